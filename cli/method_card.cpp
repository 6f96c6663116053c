#include "cli/method_card.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>

#include "allot/kernels/method.h"
#include "cli/terminal.h"
#include "core/evaluation/evaluation_plan.h"
#include "core/spec/choices.h"

namespace allot {
namespace {

using nlohmann::json;

constexpr char kExact[] = "dense";
constexpr size_t kRivals = 2;
constexpr size_t kLongestCell = 100;

const kernels::MethodTraits* traitsOf(const std::string& method) {
  for (const kernels::MethodTraits& traits : kernels::methodTable()) {
    if (traits.name == method) return &traits;
  }
  return nullptr;
}

// "s2anta-flash" of "s2anta-flash tileSize=64".
std::string firstWord(const std::string& text) { return text.substr(0, text.find(' ')); }

// Of methods as methodsName() joins them.
std::string decodeOf(const std::string& methods) {
  const size_t plus = methods.rfind(" + ");
  return plus == std::string::npos ? methods : methods.substr(plus + 3);
}

bool ofDecode(const std::string& method) {
  const kernels::MethodTraits* traits = traitsOf(method);
  return traits != nullptr && kernels::includes(traits->phases, kernels::Phase::kDecode);
}

// The side of a cell that a card is about, and the other one, which rivals share.
struct Sides {
  std::string own, other;
  double bytes;  // share of what dense attention reads on the own side; negative: not counted
};
Sides sidesOf(const EvaluationCell& cell, bool decode) {
  const std::string answers = decodeOf(cell.method);
  if (decode) return {answers, cell.prefill, cell.reads.bytesShare()};
  return {cell.prefill, answers, cell.prompts.bytesShare()};
}

bool isOf(const EvaluationCell& cell, const std::string& method) {
  return cell.complete && firstWord(sidesOf(cell, ofDecode(method)).own) == method;
}

// Of learned schedules only the newest version, which is the last one.
bool isSuperseded(const EvaluationCell& cell, const std::vector<EvaluationCell>& cells) {
  return std::any_of(cells.begin(), cells.end(), [&](const EvaluationCell& other) {
    return other.complete && other.version > cell.version && other.method == cell.method &&
           other.schedule_name == cell.schedule_name && other.total_budget == cell.total_budget;
  });
}

bool isShown(const EvaluationCell& cell) {
  return cell.schedule_name == kUniformSchedule || cell.schedule_name == kLearnedSchedule ||
         cell.schedule_name == kDenseSchedule || cell.schedule_name == kAdaptiveSchedule;
}

const EvaluationCell* denseOf(const std::vector<EvaluationCell>& cells) {
  for (const EvaluationCell& cell : cells) {
    if (cell.complete && cell.method == kExact) return &cell;
  }
  return nullptr;
}

// Accuracy at each share of the bytes, by method: over budgets, or where a method reads what it
// needs over its parameters.
using Curve = std::map<double, double>;
std::map<std::string, Curve> rivalCurves(const CardRun& run, const EvaluationCell& cell,
                                         const std::string& method) {
  const bool decode = ofDecode(method);
  std::map<std::string, Curve> curves;
  for (const EvaluationCell& other : run.cells) {
    const Sides sides = sidesOf(other, decode);
    const bool fits = other.complete && sides.other == sidesOf(cell, decode).other &&
                      firstWord(sides.own) != method && sides.own != kExact && sides.bytes > 0 &&
                      other.schedule_name != kLearnedSchedule && isShown(other);
    if (!fits) continue;
    const std::string name = other.total_budget > 0 ? sides.own : firstWord(sides.own);
    curves[name][sides.bytes] = other.all.mean();
  }
  return curves;
}

std::optional<double> accuracyAt(const Curve& curve, double bytes) {
  const auto above = curve.lower_bound(bytes);
  if (above == curve.end()) return std::nullopt;
  if (above->first == bytes) return above->second;
  if (above == curve.begin()) return std::nullopt;
  const auto below = std::prev(above);
  const double way = (std::log(bytes) - std::log(below->first)) /
                     (std::log(above->first) - std::log(below->first));
  return below->second + way * (above->second - below->second);
}

std::vector<CardRow::Rival> rivalsOf(const CardRun& run, const EvaluationCell& cell,
                                     const std::string& method) {
  std::vector<CardRow::Rival> rivals;
  const double bytes = sidesOf(cell, ofDecode(method)).bytes;
  if (bytes <= 0) return rivals;
  for (const auto& [name, curve] : rivalCurves(run, cell, method)) {
    if (const auto accuracy = accuracyAt(curve, bytes)) rivals.push_back({name, *accuracy});
  }
  std::stable_sort(rivals.begin(), rivals.end(),
                   [](const auto& a, const auto& b) { return a.accuracy > b.accuracy; });
  rivals.resize(std::min(rivals.size(), kRivals));
  return rivals;
}

std::optional<CardRow::Task> worstTask(const CardRun& run, const EvaluationCell& cell) {
  const EvaluationCell* const dense = denseOf(run.cells);
  if (dense == nullptr || cell.tasks.size() < 2) return std::nullopt;
  std::optional<CardRow::Task> worst;
  for (const auto& [index, tally] : cell.tasks) {
    const auto reference = dense->tasks.find(index);
    const auto& names = run.experiment.spec().task().tasks();
    if (reference == dense->tasks.end() || index >= static_cast<uint32_t>(names.size())) continue;
    const CardRow::Task task{names[static_cast<int>(index)], tally.mean(),
                             reference->second.mean()};
    if (worst && task.accuracy - task.dense >= worst->accuracy - worst->dense) continue;
    worst = task;
  }
  return worst;
}

// ---- text ----

std::string share(double value) { return value < 0 ? "" : formatted("%.1f %%", 100 * value); }

std::string overDenseText(const std::optional<Lead>& lead) {
  if (!lead) return "";
  std::string text = formatted("%+.3f", lead->mean);
  if (!lead->interval) return text;
  text += formatted(" [%+.3f, %+.3f]", lead->interval->low, lead->interval->high);
  return lead->interval->low <= 0 && lead->interval->high >= 0 ? text + ", not told apart" : text;
}

// "1.5 of 8.0 MB": of keys and values that a token reads, mean over rows and steps.
std::string bytesOfToken(const EvaluationCell& cell) {
  if (cell.decode_steps == 0 || cell.reads.dense_bytes == 0) return "";
  const double each = 1e6 * static_cast<double>(cell.decode_steps);
  const double read = static_cast<double>(cell.reads.key_bytes + cell.reads.value_bytes);
  return formatted("%.3g of %.3g MB", read / each,
                   static_cast<double>(cell.reads.dense_bytes) / each);
}

std::string rivalsText(const std::vector<CardRow::Rival>& rivals) {
  std::string text;
  for (const CardRow::Rival& rival : rivals) {
    text += (text.empty() ? "" : ", ") + printable(rival.method, kLongestCell) +
            formatted(" %.3f", rival.accuracy);
  }
  return text;
}

std::string markdownRow(const std::vector<std::string>& cells) {
  std::string row = "|";
  for (const std::string& cell : cells) row += " " + cell + " |";
  return row + "\n";
}
std::string markdownHead(const std::vector<std::string>& cells) {
  return markdownRow(cells) + markdownRow(std::vector<std::string>(cells.size(), "---"));
}

std::string budgetText(const EvaluationCell& cell) {
  return cell.total_budget == 0 ? "what it needs" : std::to_string(cell.total_budget);
}

std::string headOf(const CardRun& run) {
  const v1::Spec& spec = run.experiment.spec();
  std::string tasks;
  for (const std::string& task : spec.task().tasks()) tasks += (tasks.empty() ? "" : ", ") + task;
  const std::string model = spec.model().path().substr(spec.model().path().rfind('/') + 1);
  const bool prompts_too = protocolOf(spec.attention()) == Protocol::kB;
  return "## " + printable(run.experiment.name(), kLongestCell) + "\n\nRun " +
         printable(run.name, kLongestCell) + ": model " + printable(model, kLongestCell) +
         ", suite " + printable(spec.task().suite(), kLongestCell) + " (" + printable(tasks) +
         "), at most " + std::to_string(spec.task().context_tokens()) + " tokens, " +
         std::to_string(spec.task().held_out_questions()) + " held-out questions, protocol " +
         (prompts_too ? "B (sampled while the question at the prompt's end is read, too)"
                      : "A (sampled while the answer is written)") +
         ".\n";
}

std::string accuracyText(const CardRun& run, const std::string& method) {
  const std::vector<CardRow> rows = cardRows(run, method);
  if (rows.empty()) return "";
  std::string text = "\n" + markdownHead({"method", "schedule", "total budget", "accuracy, 95 %",
                                          "above dense, 95 %", "bytes", "bytes a token",
                                          "others at equal bytes", "worst task (dense)"});
  if (const EvaluationCell* dense = denseOf(run.cells)) {
    text += markdownRow(
        {kExact, "", "",
         formatted("%.3f", dense->all.mean()) +
             formatted(" [%.3f, %.3f]", dense->all.interval.low, dense->all.interval.high),
         "", "100 %", "", "", ""});
  }
  for (const CardRow& row : rows) {
    const EvaluationCell& cell = row.cell;
    const bool scheduled = cell.total_budget > 0;
    text += markdownRow(
        {printable(cell.method, kLongestCell), scheduled ? printable(cell.schedule_name) : "",
         budgetText(cell),
         formatted("%.3f [%.3f, %.3f]", cell.all.mean(), cell.all.interval.low,
                   cell.all.interval.high),
         overDenseText(row.over_dense), share(sidesOf(cell, ofDecode(method)).bytes),
         ofDecode(method) ? bytesOfToken(cell) : "", rivalsText(row.rivals),
         row.worst ? printable(row.worst->name, kLongestCell) +
                         formatted(" %.3f (%.3f)", row.worst->accuracy, row.worst->dense)
                   : ""});
  }
  return text;
}

std::string fidelityText(const CardRun& run, const std::string& method) {
  std::string rows;
  for (const FidelitySummary& summary : run.fidelity) {
    if (summary.measure != Measure::kFidelity || !summary.complete ||
        firstWord(decodeOf(summary.method)) != method ||
        summary.schedule_name == kLearnedSchedule) {
      continue;
    }
    const auto agreement = summary.all.agreement();
    rows += markdownRow(
        {printable(summary.method, kLongestCell), printable(summary.schedule_name),
         summary.total_budget == 0 ? "what it needs" : std::to_string(summary.total_budget),
         formatted("%.4f", summary.all.meanRelativeError()),
         formatted("%.4f", summary.all.meanCosine()), agreement ? share(*agreement) : "",
         share(summary.all.density()), std::to_string(summary.questions)});
  }
  if (rows.empty()) return "";
  return "\nAgainst dense attention's outputs and next tokens from the same state:\n\n" +
         markdownHead({"method", "schedule", "total budget", "relative error", "cosine",
                       "same next token", "value rows", "questions"}) +
         rows;
}

std::string breakEvenText(const std::vector<BreakEven>& break_evens) {
  if (break_evens.empty()) return "";
  std::string text =
      "\n## Break-even length\n\nOne layer's decode step beside our dense attention, of the "
      "lengths "
      "that were measured.\n\n" +
      markdownHead({"device", "of", "faster from", "at the longest"});
  for (const BreakEven& found : break_evens) {
    const std::string from = found.keys == 0 ? "nowhere up to " + std::to_string(found.most)
                             : found.keys == found.least
                                 ? std::to_string(found.keys) + " keys or fewer"
                                 : std::to_string(found.keys) + " keys";
    text += markdownRow({printable(found.device, kLongestCell), printable(found.of), from,
                         formatted("%.2f times as fast, %llu keys", found.times,
                                   static_cast<unsigned long long>(found.most))});
  }
  return text;
}

// ---- benches ----

// One time: of a method at a length, under settings that it shares with dense attention's.
struct Time {
  std::string settings, method;
  uint64_t keys = 0;
  double milliseconds = 0;
  std::string budget;  // "S = 128", or ""
};

Result<std::vector<BreakEven>> compare(const std::string& device, const std::vector<Time>& times,
                                       const std::string& method) {
  std::map<std::pair<std::string, uint64_t>, double> dense;
  for (const Time& time : times) {
    if (time.method == kExact) dense[{time.settings, time.keys}] = time.milliseconds;
  }
  // By settings, method and budget: how many times as fast, by length.
  std::map<std::tuple<std::string, std::string, std::string>, std::map<uint64_t, double>> found;
  for (const Time& time : times) {
    const auto reference = dense.find({time.settings, time.keys});
    if (firstWord(time.method) != method || method == kExact || reference == dense.end()) continue;
    found[{time.settings, time.method, time.budget}][time.keys] =
        reference->second / time.milliseconds;
  }
  std::vector<BreakEven> all;
  for (const auto& [what, by_length] : found) {
    const auto& [settings, text, budget] = what;
    BreakEven one;
    one.device = device;
    one.of = settings + ", " + text + (budget.empty() ? "" : ", " + budget);
    one.least = by_length.begin()->first;
    one.most = by_length.rbegin()->first;
    one.times = by_length.rbegin()->second;
    for (auto length = by_length.rbegin(); length != by_length.rend() && length->second > 1;
         ++length) {
      one.keys = length->first;
    }
    all.push_back(std::move(one));
  }
  return all;
}

// "12/2 heads, ": query and KV heads of the bench's attention; "" where an older bench says
// nothing.
std::string headsOf(const json& bench) {
  if (!bench.contains("heads") || !bench.contains("kvHeads")) return "";
  return std::to_string(bench["heads"].get<uint64_t>()) + "/" +
         std::to_string(bench["kvHeads"].get<uint64_t>()) + " heads, ";
}

std::vector<Time> cudaTimes(const json& bench) {
  std::vector<Time> times;
  const std::string heads = headsOf(bench);
  for (const json& shape : bench.at("shapes")) {
    const auto rows = shape.at("rows").get<uint64_t>();
    for (const json& figure : shape.at("figures")) {
      Time time;
      time.settings = heads + counted(rows, "row") + ", " + figure.at("scores").get<std::string>();
      time.method = figure.at("method").get<std::string>();
      time.keys = shape.at("keys").get<uint64_t>();
      time.milliseconds = figure.at("milliseconds").get<double>();
      const json& budget = figure.at("budget");
      if (budget.is_number()) time.budget = "S = " + std::to_string(budget.get<uint64_t>());
      times.push_back(std::move(time));
    }
  }
  return times;
}

// Methods stand there as they were asked for, "s2anta-q4 @128".
std::vector<Time> cpuTimes(const json& bench) {
  std::vector<Time> times;
  for (const json& table : bench.at("tables")) {
    const auto threads = table.at("threads").get<uint64_t>();
    for (const json& row : table.at("methods")) {
      Time time;
      time.settings = counted(threads, "thread") + ", " + table.at("scores").get<std::string>();
      time.method = row.at("method").get<std::string>();
      time.keys = table.at("keys").get<uint64_t>();
      time.milliseconds = row.at("milliseconds").get<double>();
      times.push_back(std::move(time));
    }
  }
  return times;
}

}  // namespace

std::vector<CardRow> cardRows(const CardRun& run, const std::string& method) {
  std::vector<CardRow> rows;
  const EvaluationCell* const dense = denseOf(run.cells);
  for (const EvaluationCell& cell : run.cells) {
    if (!isOf(cell, method) || !isShown(cell) || isSuperseded(cell, run.cells)) continue;
    if (dense == &cell) continue;
    CardRow row;
    row.cell = cell;
    if (dense != nullptr) {
      row.over_dense = Lead{cell.all.mean() - dense->all.mean(), std::nullopt};
      if (const auto paired = run.difference ? run.difference(cell, *dense) : std::nullopt) {
        row.over_dense = Lead{paired->mean, paired->interval};
      }
    }
    row.rivals = rivalsOf(run, cell, method);
    row.worst = worstTask(run, cell);
    rows.push_back(std::move(row));
  }
  std::stable_sort(rows.begin(), rows.end(), [](const CardRow& a, const CardRow& b) {
    return std::tie(a.cell.method, a.cell.schedule_name, a.cell.total_budget) <
           std::tie(b.cell.method, b.cell.schedule_name, b.cell.total_budget);
  });
  return rows;
}

Result<std::vector<BreakEven>> breakEvens(const json& bench, const std::string& method) {
  try {
    if (bench.contains("shapes")) {
      return compare(bench.at("device").at("name").get<std::string>(), cudaTimes(bench), method);
    }
    return compare("CPU", cpuTimes(bench), method);
  } catch (const json::exception&) {
    return badInput("is not what `allot bench kernels --json FILE` writes");
  }
}

Result<std::string> methodCard(const std::string& method, const std::vector<CardRun>& runs,
                               const std::vector<BreakEven>& break_evens) {
  const kernels::MethodTraits* const traits = traitsOf(method);
  if (traits == nullptr) {
    return badInput(printable(method) + " is no method: `allot methods` lists them");
  }
  std::string text =
      "# " + method + "\n\nWhat it reads: " + std::string(traits->reads) + ".\n\n" +
      markdownHead({"promise", "phases", "on a GPU"}) +
      markdownRow({std::string(wordsOf(traits->promise)), std::string(wordsOf(traits->phases)),
                   std::string(wordsOf(traits->gpu))});
  bool measured = !break_evens.empty();
  for (const CardRun& run : runs) {
    const std::string figures = accuracyText(run, method) + fidelityText(run, method);
    if (figures.empty()) continue;
    measured = true;
    text += "\n" + headOf(run) + figures;
  }
  if (!measured) {
    return badInput("nothing of " + method +
                    " was measured here: name runs whose spec.evaluation.methods or prefills have "
                    "it, or a bench's file by --bench");
  }
  return text + breakEvenText(break_evens);
}

}  // namespace allot
