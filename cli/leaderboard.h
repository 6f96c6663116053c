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
#include "core/evaluation/score_statistics.h"

namespace allot {

// By how much a row's accuracy is above another's. The interval, 95 %, is that of the difference on
// the same questions; none while either is not complete.
struct Lead {
  double mean = 0;
  std::optional<Interval> interval;
};

struct LeaderboardRow {
  EvaluationCell cell;
  double accuracy = 0;
  Interval interval;  // 95 %
  std::optional<Lead> over_dense;
  std::optional<Lead> over_uniform;  // of the same method
  std::optional<Lead> over_best;     // of this block; none of itself
  // These questions cannot tell it from the best one: the interval of their difference holds 0, or
  // where there is none, their own intervals overlap.
  bool like_best = false;
};

// All schedules measured at one total budget, the best first.
struct LeaderboardBlock {
  uint64_t total_budget = 0;  // 0: methods that read what they need
  std::vector<LeaderboardRow> rows;
};

struct Leaderboard {
  std::vector<LeaderboardRow> dense;     // the reference; one row at most
  std::vector<LeaderboardBlock> blocks;  // by budget
};

// EvaluationTable::difference, of the table that the cells are from.
using Difference =
    std::function<std::optional<PairedDifference>(const EvaluationCell&, const EvaluationCell&)>;

// Of each schedule (and method) at a budget the newest cell that is complete, or else the newest.
// budget: only this one; 0: all.
Leaderboard makeLeaderboard(const std::vector<EvaluationCell>& cells, uint64_t budget,
                            const Difference& difference = {});

nlohmann::json leaderboardJson(const Leaderboard& board);
std::string leaderboardText(const Leaderboard& board, bool colour);

}  // namespace allot
