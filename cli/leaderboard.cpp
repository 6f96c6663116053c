#include "cli/leaderboard.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "aggregator/page/run_view.h"
#include "aggregator/report/curve_svg.h"
#include "cli/table_notes.h"
#include "cli/terminal.h"
#include "core/evaluation/evaluation_plan.h"
#include "core/spec/prices.h"

namespace allot {
namespace {

using nlohmann::json;

constexpr char kDense[] = "dense";
constexpr size_t kLongestSchedule = 60;
constexpr size_t kLongestMethod = 100;

LeaderboardRow rowOf(const EvaluationCell& cell) {
  LeaderboardRow row;
  row.cell = cell;
  row.accuracy = cell.all.mean();
  row.interval = cell.all.interval;
  return row;
}

Lead leadOf(const LeaderboardRow& row, const EvaluationCell& other, const Difference& difference,
            std::optional<PairedDifference> known = {}) {
  if (!known && difference) known = difference(row.cell, other);
  return {known ? known->mean : row.accuracy - other.all.mean(), known};
}

bool isLike(const LeaderboardRow& row, const LeaderboardRow& best) {
  if (row.over_best->paired) return !row.over_best->paired->differs();
  return row.interval.high >= best.interval.low;
}

void rank(std::vector<LeaderboardRow>* rows, const std::vector<LeaderboardRow>& dense,
          const Difference& difference) {
  std::stable_sort(rows->begin(), rows->end(),
                   [](const auto& a, const auto& b) { return a.accuracy > b.accuracy; });
  std::map<std::string, const EvaluationCell*> uniform;  // by method
  for (const LeaderboardRow& row : *rows) {
    if (row.cell.schedule_name == kUniformSchedule) uniform[row.cell.method] = &row.cell;
  }
  for (LeaderboardRow& row : *rows) {
    if (!dense.empty()) {
      row.over_dense = leadOf(row, dense.front().cell, difference, row.cell.over_dense);
    }
    const auto reference = uniform.find(row.cell.method);
    if (reference != uniform.end() && row.cell.schedule_name != kUniformSchedule) {
      row.over_uniform = leadOf(row, *reference->second, difference, row.cell.over_uniform);
    }
    if (&row == rows->data()) continue;
    row.over_best = leadOf(row, rows->front().cell, difference);
    row.like_best = isLike(row, rows->front());
  }
}

// "3 2 0 0"
std::string scheduleText(const SampleSchedule& schedule) {
  std::string text;
  for (const uint32_t samples : schedule) {
    if (text.size() > kLongestSchedule) return text + " ...";
    text += (text.empty() ? "" : " ") + (samples == kAllRows ? "all" : std::to_string(samples));
  }
  return text;
}

json otherJson(const EvaluationCell& cell) {
  const ScoreTally& other = cell.other;
  if (other.n == 0) return nullptr;
  return {{"accuracy", other.mean()},
          {"ci95", {other.interval.low, other.interval.high}},
          {"interval", other.interval.name},
          {"n", cell.questionsOf(other)}};
}

// Returns the difference as differenceView() writes it; null unless it is known by question.
json pairedJson(const std::optional<Lead>& lead) {
  return lead ? differenceView(lead->paired) : json();
}

// Adds a lead's mean as `key`, and its interval and test beside it.
void addLead(const std::string& key, const std::optional<Lead>& lead, json* row) {
  const json paired = pairedJson(lead);
  (*row)[key] = lead ? json(lead->mean) : json();
  for (const char* member : {"ci95", "interval", "lower95", "p", "test", "holm"}) {
    (*row)[key + "_" + member] = paired.is_null() ? json() : paired[member];
  }
}

json countedJson(double value) { return value < 0 ? json() : json(value); }

json verdictJson(const LeaderboardRow& row, std::optional<double> margin) {
  if (!margin || !row.over_dense || !row.over_dense->paired) return nullptr;
  return wordOf(marginVerdict(*row.over_dense->paired, *margin));
}

json rowJson(const LeaderboardRow& row, std::optional<double> margin) {
  const auto deviation = row.cell.repeatDeviation();
  json all = {{"schedule", row.cell.schedule_name},
              {"method", row.cell.method},
              {"version", row.cell.version},
              {"reads", row.cell.schedule},
              {"accuracy", row.accuracy},
              {"ci95", {row.interval.low, row.interval.high}},
              {"interval", row.interval.name},
              {"n", row.cell.questions()},
              {"repeats", row.cell.repeats},
              {"repeat_sd", deviation ? json(*deviation) : json()},
              {"answer_tokens", countedJson(row.cell.answerTokens())},
              {"prompt_tokens", countedJson(row.cell.promptTokens())},
              {"other_grader", otherJson(row.cell)},
              {"kv_bytes_share", countedJson(row.cell.reads.bytesShare())},
              {"complete", row.cell.complete},
              {"like_best", row.like_best}};
  addLead("over_dense", row.over_dense, &all);
  addLead("over_uniform", row.over_uniform, &all);
  addLead("over_best", row.over_best, &all);
  all["against_dense"] = verdictJson(row, margin);
  return all;
}

// Returns "480", with repeats "480 x 3"; " so far" follows if the cell is incomplete.
std::string questionsText(const EvaluationCell& cell) {
  return std::to_string(cell.questions()) +
         (cell.repeats > 1 ? " x " + std::to_string(cell.repeats) : "") +
         (cell.complete ? "" : " so far");
}

std::vector<std::string> measured(const LeaderboardRow& row) {
  return {formatted("%.3f", row.accuracy),
          formatted("[%.3f, %.3f]", row.interval.low, row.interval.high), questionsText(row.cell)};
}

// "+0.365 [+0.319, +0.410]"
std::string leadText(const std::optional<Lead>& lead) {
  if (!lead) return "";
  const std::string mean = formatted("%+.3f", lead->mean);
  if (!lead->paired) return mean;
  const Interval& interval = lead->paired->interval;
  return mean + formatted(" [%+.3f, %+.3f]", interval.low, interval.high) +
         (lead->paired->differsByHolm() ? kHolmMark : "");
}

// Names n if it is less than the cell's: not every task has another grader.
std::string otherText(const EvaluationCell& cell) {
  const ScoreTally& other = cell.other;
  if (other.n == 0) return "";
  std::string text =
      formatted("%.3f  [%.3f, %.3f]", other.mean(), other.interval.low, other.interval.high);
  if (other.n != cell.all.n) text += "  n " + std::to_string(cell.questionsOf(other));
  return text;
}

// One column: its head, and what stands in a row.
struct Column {
  std::string head;
  std::function<std::string(const LeaderboardRow&)> text;
};

// Returns the columns. Some are there only if a row has something in them.
std::vector<Column> columnsOf(const LeaderboardBlock& block, bool with_method,
                              std::optional<double> margin) {
  std::vector<Column> columns;
  if (with_method) {
    columns.push_back(
        {"method", [](const auto& row) { return printable(row.cell.method, kLongestMethod); }});
  }
  const bool budgeted = block.total_budget > 0;
  if (budgeted) {
    columns.push_back(
        {"schedule", [](const auto& row) { return printable(row.cell.schedule_name, 40); }});
    columns.push_back(
        {"version", [](const auto& row) { return std::to_string(row.cell.version); }});
  }
  for (const auto& [index, head] : {std::pair{0, "accuracy"}, {1, "95 % interval"}, {2, "n"}}) {
    columns.push_back({head, [place = static_cast<size_t>(index)](const auto& row) {
                         return measured(row)[place];
                       }});
  }
  const auto any = [&](auto has) { return std::any_of(block.rows.begin(), block.rows.end(), has); };
  if (any([](const auto& row) { return row.cell.other.n > 0; })) {
    columns.push_back({"SANTA's grader", [](const auto& row) { return otherText(row.cell); }});
  }
  if (any([](const auto& row) { return row.cell.reads.bytesShare() >= 0; })) {
    columns.push_back({"KV bytes", [](const auto& row) {
                         const double share = row.cell.reads.bytesShare();
                         return share < 0 ? "" : formatted("%.1f %%", 100 * share);
                       }});
  }
  if (any([](const auto& row) { return row.cell.answerTokens() >= 0; })) {
    columns.push_back({"tokens", [](const auto& row) {
                         const double tokens = row.cell.answerTokens();
                         return tokens < 0 ? "" : formatted("%.1f", tokens);
                       }});
  }
  if (any([](const auto& row) { return row.over_dense.has_value(); })) {
    columns.push_back({"over dense", [](const auto& row) { return leadText(row.over_dense); }});
  }
  if (margin) {
    columns.push_back({"against dense", [=](const auto& row) {
                         const bool paired = row.over_dense && row.over_dense->paired;
                         return paired ? marginText(*row.over_dense->paired, *margin) : "";
                       }});
  }
  if (any([](const auto& row) { return row.over_uniform.has_value(); })) {
    columns.push_back({"over uniform", [](const auto& row) { return leadText(row.over_uniform); }});
  }
  if (budgeted) {
    columns.push_back(
        {"reads per layer", [](const auto& row) { return scheduleText(row.cell.schedule); }});
  }
  return columns;
}

std::string blockText(const LeaderboardBlock& block, bool with_method, bool colour,
                      std::optional<double> margin, const std::string& unit) {
  const std::vector<Column> columns =
      columnsOf(block, with_method || block.total_budget == 0, margin);
  std::vector<std::string> head = {"rank"};
  for (const Column& column : columns) head.push_back(column.head);
  TextTable table(head);
  size_t place = 1;  // shared by equal accuracies
  for (size_t i = 0; i < block.rows.size(); ++i) {
    const LeaderboardRow& row = block.rows[i];
    if (i == 0 || row.accuracy < block.rows[i - 1].accuracy) place = i + 1;
    std::vector<std::string> cells = {std::to_string(place) + (row.like_best ? " ~" : "")};
    for (const Column& column : columns) cells.push_back(column.text(row));
    table.add(cells);
  }
  const std::string title = block.total_budget > 0
                                ? "total budget " + std::to_string(block.total_budget) + unit
                                : "methods that read what they need";
  return toned(title, Tone::kBold, colour) + "\n" + table.text(colour);
}

}  // namespace

Leaderboard makeLeaderboard(const std::vector<EvaluationCell>& cells, uint64_t budget,
                            const Difference& difference, std::optional<double> margin) {
  std::map<std::tuple<uint64_t, std::string, std::string>, const EvaluationCell*> newest;
  for (const EvaluationCell& cell : cells) {
    auto& chosen = newest[{cell.total_budget, cell.method, cell.schedule_name}];
    if (chosen == nullptr || cell.complete || !chosen->complete) chosen = &cell;
  }
  Leaderboard board;
  board.margin = margin;
  std::map<uint64_t, std::vector<LeaderboardRow>> blocks;
  LineDifferences lines;
  for (const auto& [key, cell] : newest) {
    if (cell->total_budget > 0 && !isOneHot(cell->schedule_name)) {
      lines[{cell->method, cell->schedule_name}][cell->total_budget] = cell->over_dense;
    }
    if (cell->schedule_name == kDense) {
      board.dense.push_back(rowOf(*cell));
    } else if (budget == 0 || cell->total_budget == budget) {
      blocks[cell->total_budget].push_back(rowOf(*cell));
    }
  }
  for (auto& [total, rows] : blocks) {
    rank(&rows, board.dense, difference);
    board.blocks.push_back({total, std::move(rows)});
  }
  if (margin && !board.dense.empty()) board.as_good = asGoodLines(lines, *margin);
  return board;
}

json leaderboardJson(const Leaderboard& board) {
  json budgets = json::array();
  for (const LeaderboardBlock& block : board.blocks) {
    json rows = json::array();
    for (const LeaderboardRow& row : block.rows) rows.push_back(rowJson(row, board.margin));
    budgets.push_back({{"total_budget", block.total_budget}, {"schedules", rows}});
  }
  return {{"dense", board.dense.empty() ? json() : rowJson(board.dense.front(), board.margin)},
          {"price", wordOf(priceWith(board.unit))},
          {"budgets", budgets},
          {"margin", board.margin ? json(*board.margin) : json()},
          {"as_good_as_dense", asGoodView(board.as_good)}};
}

std::string leaderboardText(const Leaderboard& board, bool colour) {
  std::set<std::string> methods;
  bool ties = false;
  TableNotes notes;
  for (const LeaderboardRow& row : board.dense) notes.addAccuracy(row.interval.name);
  for (const LeaderboardBlock& block : board.blocks) {
    for (const LeaderboardRow& row : block.rows) {
      notes.addAccuracy(row.interval.name);
      notes.addDifference(pairedJson(row.over_dense), "with dense");
      notes.addDifference(pairedJson(row.over_uniform), "with uniform");
      methods.insert(row.cell.method);
      ties = ties || row.like_best;
    }
  }
  std::string text;
  for (const LeaderboardRow& row : board.dense) {
    const auto cells = measured(row);
    text += "dense attention: " + cells[0] + "  " + cells[1] + "  n " + cells[2];
    if (const double tokens = row.cell.answerTokens(); tokens >= 0) {
      text += formatted("  %.1f tokens an answer", tokens);
    }
    if (row.cell.other.n > 0) text += "  SANTA's grader: " + otherText(row.cell);
    text += "\n\n";
  }
  for (const LeaderboardBlock& block : board.blocks) {
    text += blockText(block, methods.size() > 1, colour, board.margin, board.unit) + "\n";
  }
  if (ties) {
    text +=
        "~ these questions cannot tell it from rank 1: the 95 % interval of the difference on the "
        "same questions holds 0\n";
  }
  if (!board.published.empty()) {
    text += "learned, version " + std::to_string(board.published_version) + ", " + board.published +
            "\n";
  }
  if (board.margin) text += asGoodText(board.as_good, *board.margin, board.unit);
  return text + notes.text();
}

}  // namespace allot
