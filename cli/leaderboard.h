#pragma once
// The leaderboard of schedules: held-out accuracy at equal total budget. Pure functions, any
// thread.
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/evaluation/evaluation_table.h"
#include "core/evaluation/statistics.h"

namespace allot {

struct LeaderboardRow {
  EvaluationCell cell;
  double accuracy = 0;
  Interval interval;                   // 95 %
  std::optional<double> over_uniform;  // accuracy less that of the uniform schedule
  bool like_best =
      false;  // its interval overlaps the best one's: these questions cannot tell them apart
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

// Of each schedule (and method) at a budget the newest cell that is complete, or else the newest.
// budget: only this one; 0: all.
Leaderboard makeLeaderboard(const std::vector<EvaluationCell>& cells, uint64_t budget);

nlohmann::json leaderboardJson(const Leaderboard& board);
std::string leaderboardText(const Leaderboard& board, bool colour);

}  // namespace allot
