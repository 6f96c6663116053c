#pragma once
// Compares two of allot's own runs question by question, for `allot compare RUN RUN`. One thread.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/prediction_comparison.h"
#include "cli/run_access.h"
#include "core/evaluation/evaluation_table.h"
#include "core/result.h"

namespace allot {

// A run's evaluations.
struct MeasuredRun {
  std::string name;  // as the user wrote it
  RunHead head;
  EvaluationTable table;
  // Of each method, schedule and budget the newest complete cell; with a version, learned cells of
  // that version alone. Ascending by method, schedule, budget.
  std::vector<EvaluationCell> cells;
};

// Chooses the cells of a table. kUsage: none is complete, or no learned cell of that version is.
Result<MeasuredRun> measuredRun(std::string name, RunHead head, EvaluationTable table,
                                std::optional<uint64_t> version);

// Opens the run that `text`, as "runs/a@120", names by itself or in the choice's store or cluster,
// and reads its evaluations.
Result<MeasuredRun> readMeasuredRun(RunChoice choice, const std::string& text);

// Compares the cells of the same method, schedule and budget, in one family of Holm's rule. kUsage,
// in one sentence: data (spec.task, the number of questions, the dataset's digest), seed or model
// differ or may differ, or the runs share no cell. Runs of another spec.repetition have the same
// questions.
Result<PredictionComparison> compareRuns(const MeasuredRun& a, const MeasuredRun& b);

// Returns a sentence for each number format or profile of scales in which the runs differ.
std::vector<std::string> modelDifferences(const MeasuredRun& a, const MeasuredRun& b);

}  // namespace allot
