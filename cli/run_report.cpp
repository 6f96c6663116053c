#include "cli/run_report.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "aggregator/page/publication_text.h"
#include "aggregator/page/run_view.h"
#include "cli/table_notes.h"
#include "cli/terminal.h"
#include "core/evaluation/margin.h"
#include "core/files/files.h"
#include "core/json_text.h"
#include "core/spec/choices.h"
#include "core/spec/prices.h"
#include "core/spec/spec_yaml.h"

namespace allot {
namespace {

using nlohmann::json;

constexpr uint64_t kLargestSummary = uint64_t{64} << 20;

// Returns "480", or with repeats "480 x 3".
std::string questionsText(const json& row) {
  const auto repeats = row.at("repeats").get<uint64_t>();
  return std::to_string(row.value("n", uint64_t{0})) +
         (repeats > 1 ? " x " + std::to_string(repeats) : "");
}

std::string percentCell(const json& row) {
  if (row.is_null()) return "-";
  return formatted("%.3f  [%.3f, %.3f]  n %s", row.value("accuracy", 0.0),
                   row.at("ci95").at(0).get<double>(), row.at("ci95").at(1).get<double>(),
                   questionsText(row).c_str());
}

// The member over_dense or over_uniform of a row.
struct Paired {
  double mean, low, high;
  std::string mark;  // of Holm's rule
  bool differs() const { return low > 0 || high < 0; }
};
std::optional<Paired> pairedIn(const json& row, const char* key) {
  if (!row.is_object() || !row.contains(key) || !row.at(key).is_object()) return std::nullopt;
  const json& paired = row.at(key);
  return Paired{paired.at("mean").get<double>(), paired.at("ci95").at(0).get<double>(),
                paired.at("ci95").at(1).get<double>(), holmMark(paired)};
}

// "+0.365 [+0.319, +0.410] *"
std::string pairedText(const std::optional<Paired>& paired) {
  if (!paired) return "-";
  if (!paired->differs()) return "not distinguishable";
  return formatted("%+.3f [%+.3f, %+.3f]", paired->mean, paired->low, paired->high) + paired->mark;
}

// Returns, for a row that stands alone, "  against uniform +0.365 [+0.319, +0.410], dense not
// distinguishable".
std::string againstText(const json& row) {
  std::string text;
  for (const auto& [key, name] : {std::pair{"over_uniform", "uniform"}, {"over_dense", "dense"}}) {
    const auto paired = pairedIn(row, key);
    if (!paired) continue;
    text += (text.empty() ? "  against " : ", ") + std::string(name) + " " + pairedText(paired);
  }
  return text;
}

std::string nameOf(const json& row, const char* key) { return printable(row.value(key, ""), 100); }

std::string withoutEnd(std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

// Returns "12.5 %"; "" unless it is a number.
std::string shareText(const json& share) {
  return share.is_number() ? formatted("%.1f %%", 100 * share.get<double>()) : "";
}

bool isPlain(const json& row) {
  return row.at("schedule") == "uniform" || row.at("schedule") == "learned";
}

using ByBudget = std::map<uint64_t, std::map<std::string, json>>;  // by schedule

// Returns the differences to uniform and to dense by total budget; "" if nothing was compared.
std::string differencesText(const ByBudget& table, const std::string& unit) {
  struct Pair {
    const char *schedule, *key, *head;
  };
  constexpr Pair kPairs[] = {{"learned", "over_uniform", "learned - uniform"},
                             {"uniform", "over_dense", "uniform - dense"},
                             {"learned", "over_dense", "learned - dense"}};
  std::vector<Pair> pairs;  // that a row of the table compares
  for (const Pair& pair : kPairs) {
    const bool any = std::any_of(table.begin(), table.end(), [&](const auto& row) {
      const auto found = row.second.find(pair.schedule);
      return found != row.second.end() && pairedIn(found->second, pair.key).has_value();
    });
    if (any) pairs.push_back(pair);
  }
  if (pairs.empty()) return "";
  std::string text = formatted("\n%-24s", "on the same questions");
  for (const Pair& pair : pairs) text += formatted(" %-25s", pair.head);
  text = withoutEnd(text) + "\n";
  for (const auto& [budget, cells] : table) {
    std::string line = formatted("%-24s", (std::to_string(budget) + unit).c_str());
    for (const Pair& pair : pairs) {
      const auto found = cells.find(pair.schedule);
      const json row = found == cells.end() ? json() : found->second;
      line += formatted(" %-25s", pairedText(pairedIn(row, pair.key)).c_str());
    }
    text += withoutEnd(line) + "\n";
  }
  return text;
}

// Returns the table of one method: a row for each total budget, uniform and learned side by side.
std::string methodText(const std::vector<json>& rows, const std::string& unit) {
  std::string text =
      formatted("\n%-24s %-34s %s\n", (nameOf(rows.front(), "method") + ", total budget").c_str(),
                "uniform (95 % interval)", "learned (95 % interval)");
  ByBudget table;
  for (const json& row : rows) table[row.at("total_budget")][row.at("schedule")] = row;
  for (auto& [budget, cells] : table) {
    text += formatted("%-24s %-34s %s\n", (std::to_string(budget) + unit).c_str(),
                      percentCell(cells["uniform"]).c_str(), percentCell(cells["learned"]).c_str());
  }
  return text + differencesText(table, unit);
}

// Returns a table with a row for each method and a column for each value of the member `number`. A
// cell has the lines that `cell` makes of its row of the summary.
template <typename Number, typename Cell>
std::string gridText(const std::vector<json>& rows, const char* number, const std::string& title,
                     Cell cell) {
  std::set<Number> columns;
  std::map<std::string, std::map<Number, std::vector<std::string>>> table;
  size_t height = 1;
  for (const json& row : rows) {
    const Number column = row.at(number).get<Number>();
    columns.insert(column);
    auto& lines = table[nameOf(row, "method")][column] = cell(row);
    height = std::max(height, lines.size());
  }
  std::vector<std::string> head = {title};
  for (const Number column : columns) {
    head.push_back(formatted("%g", static_cast<double>(column)));
  }
  TextTable grid(head);
  for (auto& [method, cells] : table) {
    for (size_t i = 0; i < height; ++i) {
      std::vector<std::string> line = {i == 0 ? method : ""};
      for (const Number column : columns) {
        const auto& lines = cells[column];
        line.push_back(i < lines.size() ? lines[i] : "");
      }
      grid.add(line);
    }
  }
  return "\n" + grid.text(false);
}

// Returns the accuracies of a sweep minus dense's, on the same questions; "" without dense.
std::string lessThanDense(const std::vector<json>& rows) {
  std::vector<json> compared;
  for (const json& row : rows) {
    if (pairedIn(row, "over_dense")) compared.push_back(row);
  }
  if (compared.empty()) return "";
  return gridText<uint64_t>(compared, "total_budget", "above dense, same questions",
                            [](const json& row) {
                              const auto paired = pairedIn(row, "over_dense");
                              return std::vector{
                                  formatted("%+.3f%s", paired->mean,
                                            paired->differs() ? paired->mark.c_str() : " ~"),
                                  formatted("±%.3f", (paired->high - paired->low) / 2)};
                            }) +
         "  ~ not distinguishable from dense: the 95 % interval of the difference holds 0\n";
}

// Returns the table of prefill methods; "" if all prompts were read densely.
std::string prefillText(const json& evaluations) {
  TextTable table({"prefill", "density", "first token", "selection", "mass kept", "least"});
  std::set<std::string> seen;
  bool sparse = false;
  const auto share = [](const json& row, const char* key) {
    return shareText(row.value(key, json()));
  };
  const auto time = [](const json& row, const char* key) {
    const json value = row.value(key, json());
    return value.is_number() ? formatted("%.1f ms", value.get<double>() * 1e3) : std::string();
  };
  for (const json& row : evaluations) {
    const std::string name = row.value("prefill", "");
    if (name.empty() || !seen.insert(name).second) continue;
    sparse = sparse || name != "dense";
    table.add({nameOf(row, "prefill"), share(row, "prefill_density"), time(row, "prefill_seconds"),
               time(row, "prefill_selection_seconds"), share(row, "prefill_kept_mass"),
               share(row, "prefill_least_kept_mass")});
  }
  return sparse ? "\n" + table.text(false) : "";
}

std::string accuracyText(const json& evaluations, const std::string& unit) {
  std::string text;
  std::map<std::string, std::vector<json>> plain;  // uniform and learned, by method
  std::vector<json> all;
  std::vector<json> others;
  bool learned = false;
  const bool compared = std::any_of(evaluations.begin(), evaluations.end(), [](const json& row) {
    return row.at("schedule") == "adaptive" && pairedIn(row, "over_dense");
  });
  std::vector<std::string> head = {"reads what it needs", "accuracy", "95 % interval", "n",
                                   "KV bytes"};
  if (compared) head.emplace_back("above dense, same questions");
  TextTable adaptive(head);
  for (const json& row : evaluations) {
    learned = learned || row.at("schedule") == "learned";
    if (row.at("schedule") == "dense") {
      text += "\ndense attention: accuracy " + percentCell(row) + "\n";
    } else if (row.at("schedule") == "adaptive") {
      std::vector<std::string> line = {
          nameOf(row, "method"), formatted("%.3f", row.value("accuracy", 0.0)),
          formatted("[%.3f, %.3f]", row.at("ci95").at(0).get<double>(),
                    row.at("ci95").at(1).get<double>()),
          questionsText(row), shareText(row.value("kv_bytes_share", json()))};
      if (compared) line.push_back(pairedText(pairedIn(row, "over_dense")));
      adaptive.add(line);
    } else if (isPlain(row)) {
      plain[row.at("method")].push_back(row);
      all.push_back(row);
    } else {
      others.push_back(row);
    }
  }
  if (learned || plain.size() == 1) {
    for (const auto& [method, rows] : plain) text += methodText(rows, unit);
  } else if (!plain.empty()) {
    // Half of the interval: its two ends would make the table too wide.
    text += gridText<uint64_t>(all, "total_budget", "accuracy at total budget" + unit,
                               [](const json& row) {
                                 const double low = row.at("ci95").at(0).get<double>(),
                                              high = row.at("ci95").at(1).get<double>();
                                 return std::vector{formatted("%.3f", row.value("accuracy", 0.0)),
                                                    formatted("±%.3f", (high - low) / 2)};
                               });
    text += "  ± half of the 95 % interval; `allot top` shows its ends\n";
    text += lessThanDense(all);
  }
  if (!adaptive.empty()) text += "\n" + adaptive.text(false);
  text += prefillText(evaluations);
  if (!others.empty()) text += "\n";
  for (const json& row : others) {
    const std::string name = nameOf(row, "method") + "  " + nameOf(row, "schedule") + "  " +
                             row.at("total_budget").dump() + unit;
    text +=
        formatted("%-34s %s%s\n", name.c_str(), percentCell(row).c_str(), againstText(row).c_str());
  }
  TableNotes notes;
  for (const json& row : evaluations) {
    notes.addAccuracy(row.value("interval", ""));
    notes.addDifference(row.value("over_dense", json()), "with dense");
    notes.addDifference(row.value("over_uniform", json()), "with uniform");
  }
  const std::string said = notes.text();
  return said.empty() ? text : text + "\n" + said;
}

std::string slopesText(const json& summary, Measure measure, const char* what) {
  std::string text;
  for (const json& row : summary.value("variance_slopes", json::array())) {
    if (row.at("measure") != wordOf(measure)) continue;
    text += (text.empty() ? "\n" : "") + formatted("%s: %s falls as S to the power %.2f\n",
                                                   nameOf(row, "method").c_str(), what,
                                                   row.at("slope").get<double>());
  }
  return text;
}

std::string fidelityText(const json& summary) {
  std::vector<json> budgeted;
  TextTable adaptive({"reads what it needs", "relative error", "next token", "value rows"});
  for (const json& row : summary.value("fidelity", json::array())) {
    if (row.at("schedule") == "uniform") budgeted.push_back(row);
    if (row.at("schedule") != "adaptive") continue;
    adaptive.add({nameOf(row, "method"), formatted("%.4f", row.at("relative_error").get<double>()),
                  shareText(row.at("agreement")), shareText(row.at("density"))});
  }
  std::string text;
  if (!budgeted.empty()) {
    text += gridText<double>(
        budgeted, "reads_per_layer", "relative error at S a layer", [](const json& row) {
          return std::vector{formatted("%.4f", row.at("relative_error").get<double>())};
        });
    const std::string layers = nameOf(budgeted.front(), "agreement_layers");
    const std::string where = layers == "all-layers" ? "" : ", " + layers + ",";
    text += gridText<double>(
        budgeted, "reads_per_layer", "next token as dense" + where + " at S",
        [](const json& row) { return std::vector{shareText(row.at("agreement"))}; });
  }
  if (!adaptive.empty()) text += "\n" + adaptive.text(false);
  return text + slopesText(summary, Measure::kFidelity, "squared error");
}

// Returns the tables of measure variance, at the last positions of prompts; "" without them.
std::string varianceText(const json& summary) {
  std::vector<json> rows;
  for (const json& row : summary.value("variance", json::array())) {
    if (row.at("schedule") == "uniform") rows.push_back(row);
  }
  if (rows.empty()) return "";
  const auto number = [](const json& value) {
    return value.is_number() ? formatted("%.4g", value.get<double>()) : std::string("-");
  };
  return gridText<double>(
             rows, "reads_per_layer", "variance at S a layer",
             [&](const json& row) { return std::vector{number(row.at("variance"))}; }) +
         gridText<double>(
             rows, "reads_per_layer", "different rows a head at S",
             [&](const json& row) { return std::vector{number(row.at("unique_rows"))}; }) +
         slopesText(summary, Measure::kVariance, "variance");
}

// Returns the learned schedule by layers; if it is by heads, the mean of each layer's.
std::string drawsText(const json& row) {
  const json means = row.value("layer_reads", json::array());
  const json& entries = row.at("learned_schedule");
  std::string text;
  if (means.empty() || means.size() == entries.size()) {
    for (const json& draws : entries) {
      text += text.empty() ? "[" : ",";
      text += draws == kAllRows ? "all" : draws.dump();
    }
    return text + "]";
  }
  for (const json& draws : means) {
    text += (text.empty() ? "[" : ",") + formatted("%.1f", draws.get<double>());
  }
  return text + "]";
}

// Returns "18.75 %", a share of dense attention's bytes or time; "" if budgets are reads.
std::string priceText(const json& row) {
  const json share = row.value("price_share", json());
  return share.is_number() ? formatted("%.2f %%", 100 * share.get<double>()) : "";
}

// The published schedule of each total budget.
std::string learnedText(const json& summary) {
  if (summary.value("learned_schedule", json::array()).empty() ||
      summary.value("updates", 0) == 0) {
    return "";
  }
  const json frontier = summary.value("frontier", json::array());
  if (frontier.size() < 2) {
    const std::string known = frontier.empty() ? "" : publicationText(frontier[0]);
    return "\nlearned schedule, reads per layer: " + drawsText(summary) +
           (known.empty() ? "" : " (" + known + ")") + "\n";
  }
  const bool has_price = !budgetUnit(summary).empty();
  std::vector<std::string> head = {"learned at", "reads per layer", ""};
  if (has_price) head.insert(head.begin() + 1, "price");
  TextTable table(head);
  for (const json& row : frontier) {
    std::vector<std::string> cells = {
        std::to_string(row.at("total_budget").get<uint64_t>()) + budgetUnit(summary),
        drawsText(row), publicationText(row)};
    if (has_price) cells.insert(cells.begin() + 1, priceText(row));
    table.add(cells);
  }
  return "\n" + table.text(false);
}

}  // namespace

json verificationJson(const VerifySummary& summary) {
  json missing = json::array();
  for (const auto& [cell, units] : summary.missing) {
    missing.push_back({{"version", cell.first}, {"cell", cell.second}, {"units", units}});
  }
  const bool begun = summary.head.image.state.has_value();
  const auto tickets = unansweredTickets(summary.tickets_reached, summary.results, 0);
  return {{"run_id", summary.head.run_id},
          {"experiment", summary.head.image.spec.experiment.name()},
          {"result", begun ? "equal" : "not-begun"},
          {"version", summary.head.version()},
          {"policy_sha256", summary.head.policy_sha256},
          {"updates", summary.updates},
          {"results", summary.results},
          {"evaluations", summary.evaluations},
          {"missing", std::move(missing)},
          {"unevaluated_versions", summary.unevaluated},
          {"tickets", {{"reached", tickets.tickets}, {"unanswered", tickets.unanswered}}},
          {"workers", summary.workers}};
}

namespace {

// Joins the first texts, and counts the others.
std::string firstOf(const std::vector<std::string>& texts, const char* separator) {
  constexpr size_t kShown = 8;
  std::string text;
  for (size_t i = 0; i < std::min(kShown, texts.size()); ++i) {
    text += (i > 0 ? separator : "") + texts[i];
  }
  if (texts.size() > kShown) text += " and " + std::to_string(texts.size() - kShown) + " more";
  return text;
}

// Returns a line that says which planned units are not recorded; "" if all are.
std::string missingText(const VerifySummary& summary) {
  uint64_t units = 0;
  std::vector<std::string> cells, versions;
  for (const auto& [cell, of_cell] : summary.missing) {
    units += of_cell;
    cells.push_back(std::to_string(of_cell) + " of " + printable(cell.second, 100) +
                    " at version " + std::to_string(cell.first));
  }
  for (const uint64_t version : summary.unevaluated) versions.push_back(std::to_string(version));
  std::string text;
  if (units > 0) {
    text += "\nnot recorded: " + counted(units, "planned evaluation unit") +
            ", open or given up: " + firstOf(cells, "; ");
  }
  if (!versions.empty()) {
    text +=
        "\nwithout an evaluation, though due by spec.evaluation.everyUpdates as it is now: "
        "version " +
        firstOf(versions, ", ");
  }
  return text;
}

// Returns a line about the tickets of an asynchronous run; "" if all have a result.
std::string ticketsText(const VerifySummary& summary) {
  const auto tickets = unansweredTickets(summary.tickets_reached, summary.results, 0);
  if (tickets.unanswered == 0) return "";
  const std::string warning = tickets.warning();
  return "\ntickets: " + unansweredText(tickets) + (warning.empty() ? "" : ": ") + warning;
}

}  // namespace

std::string verificationText(const VerifySummary& summary) {
  if (!summary.head.image.state) return "verified: the run has not begun";
  return "verified: " + counted(summary.updates, "update") + ", " +
         counted(summary.results, "result") + " of " + counted(summary.workers, "worker") +
         ", every policy equal bit for bit\npolicy of version " +
         std::to_string(summary.head.version()) + ": sha256 " + summary.head.policy_sha256 + "\n" +
         counted(summary.evaluations, "evaluation unit") + ", each as it was planned" +
         missingText(summary) + ticketsText(summary);
}

json exportJson(const ExportSummary& summary, const std::string& folder) {
  return {{"folder", folder},
          {"updates", summary.updates},
          {"new_updates", summary.new_updates},
          {"results", summary.results},
          {"evaluation_units", summary.evaluations},
          {"waiting_results", summary.waiting_results}};
}

std::string exportText(const ExportSummary& summary, const std::string& folder) {
  std::string text = "exported: " + counted(summary.updates, "update");
  if (summary.new_updates < summary.updates) {
    text += " (" + std::to_string(summary.new_updates) + " new)";
  }
  text += ", " + counted(summary.results, "result") + ", " +
          counted(summary.evaluations, "evaluation unit") + ", into " + folder;
  if (summary.waiting_results > 0) {
    text += "\n" + counted(summary.waiting_results, "result") +
            " in the inbox, which no update has consumed yet: left out";
  }
  return text;
}

namespace {

// Returns the smallest budgets that are as good as dense; "" in the summary of an earlier build.
std::string asGoodSummary(const json& summary) {
  std::vector<AsGoodLine> lines;
  for (const json& row : summary.value("as_good_as_dense", json::array())) {
    const auto number = [&](const char* key) {
      return row.at(key).is_null() ? std::nullopt : std::optional(row.at(key).get<uint64_t>());
    };
    lines.push_back({row.at("method"),
                     row.at("schedule"),
                     {number("total_budget"), number("stopped_at"), row.value("compared", true)}});
  }
  const std::string text =
      asGoodText(lines, summary.value("margin", kUsualMargin), budgetUnit(summary));
  return text.empty() ? text : "\n" + text;
}

}  // namespace

std::string reportText(const json& summary) {
  std::string text =
      accuracyText(summary.value("evaluations", json::array()), budgetUnit(summary)) +
      asGoodSummary(summary);
  text += fidelityText(summary) + varianceText(summary);
  return text + learnedText(summary);
}

std::string endText(const json& summary) {
  const std::string time = duration(summary.value("wall_seconds", 0.0));
  const auto updates = summary.value("updates", uint64_t{0});
  if (updates == 0) return "evaluated in " + time;
  std::string text = counted(updates, "update") + ", " +
                     counted(summary.value("episodes", uint64_t{0}), "episode") + ", " + time;
  // Null if it is unknown, as with fewer than three updates.
  const json speed = summary.value("episodes_per_second", json());
  if (speed.is_number()) {
    text += formatted(", %.1f episodes/s while learning", speed.get<double>());
  }
  return text;
}

Status printReport(const std::string& folder) {
  const std::string path = folder + "/summary.json";
  const auto text = readWholeFile(path, kLargestSummary);
  if (!text) {
    return fail(ErrorCode::kInternal, "the run ended without its summary: " + text.error().message);
  }
  ALLOT_ASSIGN(const json summary, parseJson(*text, path));
  if (!summary.is_object() || !summary.contains("evaluations")) {
    return fail(ErrorCode::kData, path + ": is no summary of a run");
  }
  try {
    const std::string report = reportText(summary), end = endText(summary);
    std::printf("%s\n%s\n", report.c_str(), end.c_str());
    std::fflush(stdout);
    std::fprintf(stderr, "report: %s/report.html\n", folder.c_str());
  } catch (const json::exception&) {  // another type than the aggregator writes
    return fail(ErrorCode::kData, path + ": is no summary of a run");
  }
  return {};
}

}  // namespace allot
