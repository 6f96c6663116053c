#pragma once
// What a run's evaluations came to, and which of it is shown: chosen here, once, for page, tables
// and plots. Pure functions, any thread.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "aggregator/snapshot.h"
#include "core/spec/measure_options.h"

namespace allot {

// Graded questions of one task.
struct TaskScore {
  std::string task;
  uint64_t n = 0;
  double accuracy = 0;  // 0..1
  double low = 0;       // 95 % interval
  double high = 0;
};

// One cell of an evaluation grid, graded with the schedules of one policy version.
struct CurvePoint {
  std::string method;
  std::string schedule;       // "dense" is drawn as one dashed level, whatever its budget
  uint64_t version = 0;       // policy version
  uint64_t total_budget = 0;  // reads per head and decode step, summed over the layers
  uint64_t n = 0;             // questions graded, each in all its repeats
  double accuracy = 0;        // share of n, 0..1
  double low = 0;             // 95 % interval, around the accuracy
  double high = 0;
  std::vector<TaskScore> tasks = {};
  // Read, of what dense attention would have read; none where it was not counted.
  std::optional<double> kv_bytes_share = {};
  std::optional<double> key_share = {};
  std::optional<double> value_rows_share = {};
  std::string prefill = {};                    // the method that prompts were read with
  std::optional<double> prefill_seconds = {};  // mean of a prompt, until the first token
  std::optional<double> prefill_selection_seconds = {};
  std::optional<double> prefill_density = {};  // PrefillReads
  std::optional<double> prefill_bytes_share = {};
  std::optional<double> prefill_kept_mass = {};
  std::optional<double> prefill_least_kept_mass = {};
  SampleSchedule samples = {};               // reads per layer
  std::optional<TaskScore> other = {};       // the same answers by the paper's other grader
  uint32_t repeats = 1;                      // times that each question was answered
  std::optional<double> repeat_sd = {};      // standard deviation of the repeats' accuracies
  std::optional<double> answer_tokens = {};  // mean of an answer
  std::optional<double> prompt_tokens = {};  // mean of a prompt, as far as the prefill reads it
  // Accuracy above dense attention's, and above the uniform schedule's of the same method and
  // budget, on the same questions.
  std::optional<PairedDifference> over_dense = {}, over_uniform = {};
};

// The snapshot's complete cells, in its order.
std::vector<CurvePoint> evaluationPoints(const RunSnapshot& snapshot);

// Points that belong together: of one method and schedule, each as its place among all points.
struct CurveLine {
  std::string method;
  std::string schedule;
  std::vector<size_t> points;
};

// A row is complete when it graded as many questions as any row did: all rows of a run share the
// held-out questions, and chunks of them come in one by one.

// For each method and schedule the newest version whose budgets are all complete (while there is
// none: the version with the most), by budget: one line of the curve is always one policy.
std::vector<CurveLine> newestCompleteLines(const std::vector<CurvePoint>& points);

// The points of these lines, one after the other.
std::vector<CurvePoint> newestCompletePerSchedule(const std::vector<CurvePoint>& points);

// For each method, schedule and budget the newest complete row, or the newest one if none is.
std::vector<CurvePoint> newestCompletePerCell(const std::vector<CurvePoint>& points);

// How the policy got on: each method's complete points of its learned schedules at one budget, by
// version. No line where there are not two versions to compare.
struct LearningCurve {
  std::vector<CurveLine> lines;
  std::optional<size_t> uniform;  // the same method's uniform schedule; none if there are several
};
LearningCurve learningCurve(const std::vector<CurvePoint>& points,
                            const std::vector<CurveLine>& newest, uint64_t total_budget);

// The points behind a run's one number: at its own budget, of the method that it decodes with where
// there are several.
struct HeadlinePoints {
  std::optional<size_t> learned;
  std::optional<size_t> uniform;
  std::optional<size_t> dense;
};
HeadlinePoints headlinePoints(const std::vector<CurvePoint>& points,
                              const std::vector<CurveLine>& newest, uint64_t total_budget,
                              const std::string& decode);

// Same-state fidelity of one cell, or of the part of it that `name` says (a layer, a number of
// tiles, a task).
struct FidelityNumbers {
  std::string name;
  uint64_t states = 0;
  double relative_error = 0;
  double rms_relative_error = 0;
  double cosine = 0;
  std::optional<double> agreement;
  double trace_covariance = 0;
  std::optional<double> estimated_error;
  double exceed_rate = 0;
  double draws = 0;
  double unique_rows = 0;
  double density = 0;
  double effective_sample_size = 0;
  // Where variance was measured: at so many positions, by so many outputs at each.
  uint64_t positions = 0;
  uint64_t replicates = 0;
  std::optional<double> variance;
  std::optional<double> closed_form;
};

struct FidelityPoint {
  std::string method;
  std::string schedule;
  uint64_t version = 0;
  uint64_t total_budget = 0;
  double reads_per_layer = 0;  // 0: the method reads what it needs
  uint64_t questions = 0;
  FidelityNumbers all;
  std::vector<FidelityNumbers> layers;
  std::vector<FidelityNumbers> supports;
  std::vector<FidelityNumbers> tasks;
  std::vector<FidelityNumbers> layer_supports;    // "7/3-4": layer 7, 3 or 4 tiles
  uint32_t support_tile = MeasureOptions().tile;  // keys in a tile of `supports`
  AgreementLayers agreement = AgreementLayers::kAll;
};

// The snapshot's complete summaries of one measure (fidelity or variance), in its order.
std::vector<FidelityPoint> fidelityPoints(const RunSnapshot& snapshot, Measure measure);

// The newest for each method, schedule and budget.
std::vector<FidelityPoint> newestFidelity(const std::vector<FidelityPoint>& points);

}  // namespace allot
