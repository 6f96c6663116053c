#pragma once
// The leaderboard of schedules: held-out accuracy at equal total budget. Pure functions, any
// thread.
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/evaluation/evaluation_table.h"
#include "core/evaluation/margin.h"
#include "core/evaluation/score_statistics.h"

namespace allot {

// The accuracy of a row minus that of another cell; `paired` if both are known by question.
struct Lead {
  double mean = 0;
  std::optional<PairedDifference> paired;
};

struct LeaderboardRow {
  EvaluationCell cell;
  double accuracy = 0;
  Interval interval;  // 95 %
  std::optional<Lead> over_dense;
  std::optional<Lead> over_uniform;  // of the same method; none for uniform
  std::optional<Lead> over_best;     // best row of the block; none for that row
  // True if the row cannot be told from the best one: the interval of over_best contains 0 or, if
  // there is none, the two rows' intervals overlap. False for the best row.
  bool like_best = false;
};

// The schedules measured at one total budget, the most accurate first.
struct LeaderboardBlock {
  uint64_t total_budget = 0;  // 0: methods without a budget
  std::vector<LeaderboardRow> rows;
};

struct Leaderboard {
  std::vector<LeaderboardRow> dense;     // the reference; at most one row
  std::vector<LeaderboardBlock> blocks;  // by budget
  std::optional<double> margin;          // --margin
  std::string unit = {};                 // of total budgets in texts (unitOf())
  std::vector<AsGoodLine> as_good;       // with a margin: of all budgets, whatever is shown
  std::string published = {};            // what is known of learned schedules: publicationsText()
  uint64_t published_version = 0;        // the run's newest, which `published` is about
};

// EvaluationTable::difference of the table that the cells are from.
using Difference =
    std::function<std::optional<PairedDifference>(const EvaluationCell&, const EvaluationCell&)>;

// Makes the board from the newest complete cell of each schedule and method at a budget, or the
// newest if none is complete. budget: blocks of only this one; 0: all. Differences to dense and to
// uniform are the cells' own if they have them, with their families, whatever `budget` is.
// margin: in 0..1, for what is as good as dense.
// Requires: cells ascend by version.
Leaderboard makeLeaderboard(const std::vector<EvaluationCell>& cells, uint64_t budget,
                            const Difference& difference = {}, std::optional<double> margin = {});

nlohmann::json leaderboardJson(const Leaderboard& board);
std::string leaderboardText(const Leaderboard& board, bool colour);

}  // namespace allot
