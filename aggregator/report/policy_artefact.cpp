#include "aggregator/report/policy_artefact.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include "aggregator/page/publication_text.h"
#include "aggregator/report/curve_svg.h"
#include "core/build.h"
#include "core/evaluation/evaluation_plan.h"
#include "core/evaluation/margin.h"
#include "core/files/files.h"
#include "core/printable.h"
#include "core/words.h"

namespace allot {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr const char* kPolicy = "policy.json";
constexpr const char* kCard = "README.md";

json cellJson(const CurvePoint& point) {
  const json row = cellView(point);
  json cell = json::object();
  for (const char* key :
       {"method", "prefill", "schedule", "total_budget", "version", "n", "repeats", "accuracy",
        "ci95", "interval", "over_dense", "over_uniform", "kv_bytes_share"}) {
    cell[key] = row.value(key, json());
  }
  return cell;
}

// Returns the text for a cell of a Markdown table.
std::string cellText(const std::string& text) {
  std::string escaped;
  for (const char c : printable(text, 100)) {
    if (c == '|' || c == '\\' || c == '<' || c == '`' || c == '*' || c == '[') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

// Returns a JSON string, which is also one of YAML and of Python.
std::string quoted(const std::string& text) {
  return json(text).dump(-1, ' ', false, json::error_handler_t::replace);
}

std::string differenceText(const std::optional<PairedDifference>& paired) {
  if (!paired) return "";
  return fmt::format("{:+.3f} \\[{:+.3f}, {:+.3f}]", paired->mean, paired->interval.low,
                     paired->interval.high);
}

std::string rowText(const CurvePoint& point, double margin, const std::string& unit) {
  std::string against;
  if (point.over_dense) against = marginText(*point.over_dense, margin);
  return fmt::format(
      "| {} | {} | {} | {:.3f} \\[{:.3f}, {:.3f}] | {} | {} | {} | {} | {} |\n",
      cellText(point.method), cellText(point.schedule),
      point.total_budget > 0 ? std::to_string(point.total_budget) + unit : "", point.accuracy,
      point.low, point.high, point.n, differenceText(point.over_dense), against,
      differenceText(point.over_uniform),
      point.kv_bytes_share ? fmt::format("{:.1f} %", 100 * *point.kv_bytes_share) : "");
}

std::string tableText(const RunView& view) {
  std::string rows;
  std::set<std::string> intervals, differences;
  bool with_dense = false;
  for (const CurvePoint& point : newestCompletePerCell(view.points)) {
    if (isOneHot(point.schedule)) continue;
    rows += rowText(point, view.margin, budgetUnit(view.facts));
    intervals.insert(point.interval);
    with_dense = with_dense || point.over_dense;
    for (const auto* paired : {&point.over_dense, &point.over_uniform}) {
      if (*paired) differences.emplace((*paired)->interval.name);
    }
  }
  if (rows.empty()) return "Nothing has been measured on held-out questions yet.\n";
  std::string text =
      "| method | schedule | total budget | accuracy, 95 % | questions | over dense, 95 % | "
      "against dense | over uniform, 95 % | KV bytes of dense's |\n"
      "| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n" +
      rows + "\nIntervals of accuracies: " + joined(intervals) + ".\n";
  if (differences.empty()) return text;
  text += "Differences are taken on the same questions; their intervals: " + joined(differences) +
          ".\n";
  if (!with_dense) return text;
  return text + "As good to within " + pointsText(view.margin) +
         ": the one-sided 95 % lower bound of the difference is above minus the margin.\n";
}

// Returns the lines that say what the policy was made for.
std::string madeForText(const RunView& view) {
  const json& model = view.made_for.at("model");
  const json& method = view.made_for.at("method");
  const json& task = view.made_for.at("task");
  const auto text = [](const json& of, const char* key) {
    return cellText(of.value(key, std::string()));
  };
  std::string lines = "- Model: " + text(model, "name");
  for (const auto& [key, what] :
       {std::pair{"layers", "layers"}, {"heads", "heads"}, {"kv_heads", "KV heads"}}) {
    const json count = model.value(key, json());
    if (!count.is_null()) lines += ", " + count.dump() + " " + what;
  }
  if (model.contains("weights_sha256")) {
    lines += "; SHA-256 of its weights " + text(model, "weights_sha256");
  }
  lines += "\n- Method: " + text(method, "decode") + "; prompts are read by " +
           text(method, "prefill") + "; protocol " + text(method, "protocol") +
           "; layers without reads: " + text(method, "zero_reads");
  lines += fmt::format("\n- Task: suite {}, {} held-out questions", text(task, "suite"),
                       task.at("held_out_questions").get<uint64_t>());
  lines += "\n- Experiment: " + cellText(view.facts.value("experiment", "")) + ", run " +
           cellText(view.facts.value("run_id", "")) + ", policy version " +
           view.facts.value("updates", json(0)).dump();
  return lines + "\n- Written by " + cellText(buildText()) + "\n";
}

// Returns the section that says what is known of each schedule; "" if the learner claims nothing.
std::string publishedSection(const RunView& view) {
  std::string lines;
  for (const json& row : view.facts.value("frontier", json::array())) {
    const std::string known = publicationText(row);
    if (known.empty()) continue;
    lines += fmt::format("- {}{}: {}\n", row.at("total_budget").get<uint64_t>(),
                         budgetUnit(view.facts), cellText(known));
  }
  if (lines.empty()) return "";
  return "## Published\n\nWhat is known of the schedule at each total budget:\n\n" + lines + "\n";
}

}  // namespace

json policyJson(const RunView& view) {
  const auto fact = [&](const char* key) { return view.facts.value(key, json()); };
  json cells = json::array();
  std::set<std::string> rivals;
  for (const CurvePoint& point : newestCompletePerCell(view.points)) {
    if (isOneHot(point.schedule)) continue;
    cells.push_back(cellJson(point));
    if (point.schedule != kLearnedSchedule) rivals.insert(point.schedule);
  }
  const auto made_for = [&](const char* key) { return view.made_for.value(key, json()); };
  return {{"experiment", fact("experiment")},
          {"run_id", fact("run_id")},
          {"version", fact("updates")},
          {"total_budget", fact("total_budget")},
          {"price", fact("price")},
          {"layers", fact("layers")},
          {"probabilities", fact("policy_probabilities")},
          {"granularity", fact("granularity")},
          {"learned_schedule", fact("learned_schedule")},
          {"frontier", fact("frontier")},
          {"model", made_for("model")},
          {"method", made_for("method")},
          {"task", made_for("task")},
          {"cells", std::move(cells)},
          {"rivals", rivals},
          {"written_by", buildText()}};
}

std::string hubCard(const RunView& view, const std::string& base_model) {
  const json& model = view.made_for.at("model");
  const std::string name_of_model = model.value("name", std::string());
  const bool is_of_hub = name_of_model.find('/') != std::string::npos;
  const std::string base = base_model.empty() && is_of_hub ? name_of_model : base_model;
  std::string card = "---\nlibrary_name: allot\ntags:\n- allot\n- sparse-attention\n- kv-cache\n";
  if (!base.empty()) card += "base_model: " + quoted(base) + "\n";
  const std::string name = cellText(view.facts.value("experiment", ""));
  return card + "---\n\n# " + name +
         "\n\nReads of the KV cache per layer and decode step, learned by allot. "
         "It holds no weights.\n\n## Made for\n\n" +
         madeForText(view) +
         "\nOn another model the figures below do not hold, and allot refuses it.\n\n"
         "## Use\n\n```python\nimport allot\n\n"
         "attention = allot.attention(model, " +
         quoted(view.made_for.at("method").value("decode", "")) + ", \"policy.json\")\n```\n\n" +
         publishedSection(view) + "## Measured\n\n" + tableText(view);
}

Status writeHubFolder(const std::string& folder, const RunView& view,
                      const std::string& base_model) {
  if (view.facts.value("learned_schedule", json::array()).empty() ||
      view.facts.value("updates", uint64_t{0}) == 0) {
    return badInput("--hub " + folder +
                    ": the run has no learned schedule yet, which is what a "
                    "policy's folder is for");
  }
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (name == kPolicy || name == kCard || name == ".git" || name == ".gitattributes") continue;
    return badInput("--hub " + folder + ": " + printable(name, 60) +
                    " is in it, and would go to the hub, too: name a folder of its own");
  }
  fs::create_directories(folder, error);
  if (error) return fail(ErrorCode::kIo, "cannot make " + folder + ": " + error.message());
  ALLOT_TRY(
      writeWholeFile(folder + "/" + kPolicy,
                     policyJson(view).dump(2, ' ', false, json::error_handler_t::replace) + "\n"));
  return writeWholeFile(folder + "/" + kCard, hubCard(view, base_model));
}

}  // namespace allot
