#pragma once
// The card of a method, made from runs that measured it: what it promises, what it reads, how far
// its outputs and answers are from dense attention's, beside what others come to for the same
// bytes, and from which length on a device is faster with it. Markdown. Pure functions, any thread.
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "allot/v1/experiment.pb.h"
#include "cli/leaderboard.h"
#include "core/evaluation/evaluation_table.h"
#include "core/evaluation/fidelity.h"
#include "core/result.h"

namespace allot {

// What one run measured.
struct CardRun {
  std::string name;  // as the command line has it
  v1::Experiment experiment;
  std::vector<EvaluationCell> cells;  // EvaluationTable::cells
  Difference difference;              // of their table
  std::vector<FidelitySummary> fidelity;
};

// A cell's accuracy and bytes, and what others come to for as many.
struct CardRow {
  EvaluationCell cell;
  std::optional<Lead> over_dense;
  // Accuracy of another method under the uniform schedule, between its two budgets that read less
  // and more: linear in the logarithm of the bytes.
  struct Rival {
    std::string method;
    double accuracy = 0;
  };
  std::vector<Rival> rivals;  // the two best; none of what reads less or more at every budget
  // The task that loses most to dense attention's accuracy on it.
  struct Task {
    std::string name;
    double accuracy = 0, dense = 0;
  };
  std::optional<Task> worst;
};

// Complete cells of the method, with whatever parameters it was measured, under schedules that are
// uniform or learned, or without one: of learned ones the newest. By method, schedule and budget.
std::vector<CardRow> cardRows(const CardRun& run, const std::string& method);

// From which number of keys on a bench's device is faster with the method than with dense
// attention, of the shapes and settings that it was asked for.
struct BreakEven {
  std::string device;
  std::string of;      // "32/8 heads, 16 rows, peaked, s2anta-q4, S = 128"
  uint64_t least = 0;  // shortest and longest length measured
  uint64_t most = 0;
  uint64_t keys = 0;  // faster here and at every longer length measured; 0: not at the longest
  double times = 0;   // as fast as dense attention at the longest
};

// `bench`: what `allot bench kernels --json FILE` wrote, on a CPU or a GPU. kUsage if it is not.
Result<std::vector<BreakEven>> breakEvens(const nlohmann::json& bench, const std::string& method);

// kUsage if `method` is none, or nothing of it was measured.
Result<std::string> methodCard(const std::string& method, const std::vector<CardRun>& runs,
                               const std::vector<BreakEven>& break_evens);

}  // namespace allot
