#pragma once
// The results of a run's evaluations, and the selection that page, tables and plots show. Pure
// functions, any thread.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "aggregator/snapshot.h"
#include "core/spec/measure_options.h"

namespace allot {

// Graded questions of one task; of all tasks if `task` is empty (CurvePoint::other).
struct TaskScore {
  std::string task;
  uint64_t n = 0;
  double accuracy = 0;  // 0..1
  double low = 0;       // 95 % interval
  double high = 0;
  std::string interval = {};  // Interval::name
};

// One cell of an evaluation grid, graded with the schedules of one policy version.
struct CurvePoint {
  std::string method;
  std::string schedule;       // "dense" is drawn as one dashed level at all budgets
  uint64_t version = 0;       // policy version
  uint64_t total_budget = 0;  // reads per head and decode step, summed over the layers
  uint64_t n = 0;             // questions graded, each in all its repeats
  double accuracy = 0;        // mean score, 0..1
  double low = 0;             // 95 % interval, around the accuracy
  double high = 0;
  std::vector<TaskScore> tasks = {};
  // Shares of dense attention's reads; none if they were not counted.
  std::optional<double> kv_bytes_share = {};
  std::optional<double> key_share = {};
  std::optional<double> value_rows_share = {};
  std::string prefill = {};                    // the method that prompts were read with
  std::optional<double> prefill_seconds = {};  // mean, until the first token
  std::optional<double> prefill_selection_seconds = {};
  std::optional<double> prefill_density = {};  // PrefillReads::density()
  std::optional<double> prefill_bytes_share = {};
  std::optional<double> prefill_kept_mass = {};
  std::optional<double> prefill_least_kept_mass = {};
  SampleSchedule samples = {};               // reads per layer, or per layer and head
  std::optional<TaskScore> other = {};       // the same answers by the paper's other grader
  uint32_t repeats = 1;                      // times that each question was answered
  std::optional<double> repeat_sd = {};      // standard deviation of the repeats' accuracies
  std::optional<double> answer_tokens = {};  // mean of an answer
  std::optional<double> prompt_tokens = {};  // mean of the part of a prompt that the prefill reads
  // Accuracy minus dense attention's, and minus that of the uniform schedule of the same method and
  // budget, on the same questions.
  std::optional<PairedDifference> over_dense = {}, over_uniform = {};
  std::string interval = {};  // Interval::name, of the accuracy's
};

// Returns the snapshot's complete cells, in the snapshot's order.
std::vector<CurvePoint> evaluationPoints(const RunSnapshot& snapshot);

// The points of one method and schedule, as indices into all points.
struct CurveLine {
  std::string method;
  std::string schedule;
  std::vector<size_t> points;
};

// In the functions below a point is complete if no other point has a larger `n`. All points of
// evaluationPoints() are complete; points from a file may not be.

// Returns for each method and schedule the points of one policy version, by budget: the version
// with the most complete points; among equals the one with the most points, then the newest.
std::vector<CurveLine> newestCompleteLines(const std::vector<CurvePoint>& points);

// Returns the points of these lines, one line after the other.
std::vector<CurvePoint> newestCompletePerSchedule(const std::vector<CurvePoint>& points);

// Returns for each method, schedule and budget the newest complete point, or the newest one if none
// is complete.
std::vector<CurvePoint> newestCompletePerCell(const std::vector<CurvePoint>& points);

// The progress of the policy: each method's complete points of its learned schedules at one budget,
// by version. Empty if all these points are of one version.
struct LearningCurve {
  std::vector<CurveLine> lines;
  std::optional<size_t> uniform;  // index of the uniform point, if there is one method only
};
LearningCurve learningCurve(const std::vector<CurvePoint>& points,
                            const std::vector<CurveLine>& newest, uint64_t total_budget);

// Indices of the points of a run's headline. learned and uniform: at the run's total budget, of the
// method that it decodes with, or of another method if that one has no such point. dense: the first
// dense point.
struct HeadlinePoints {
  std::optional<size_t> learned;
  std::optional<size_t> uniform;
  std::optional<size_t> dense;
};
HeadlinePoints headlinePoints(const std::vector<CurvePoint>& points,
                              const std::vector<CurveLine>& newest, uint64_t total_budget,
                              const std::string& decode);

// Same-state fidelity or variance of one cell, or of its part `name`.
struct FidelityNumbers {
  std::string name;
  uint64_t states = 0;
  double relative_error = 0;
  double rms_relative_error = 0;
  double cosine = 0;
  std::optional<double> agreement;
  std::optional<double> divergence;  // mean KL of the next token's distribution, in nats
  double trace_covariance = 0;
  std::optional<double> estimated_error;
  double exceed_rate = 0;
  double draws = 0;
  double unique_rows = 0;
  double density = 0;
  double effective_sample_size = 0;
  // If variance was measured: the positions, and the outputs at each.
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
  double reads_per_layer = 0;  // 0: the method has no budget
  uint64_t questions = 0;
  FidelityNumbers all;
  std::vector<FidelityNumbers> layers;
  std::vector<FidelityNumbers> supports;
  std::vector<FidelityNumbers> tasks;
  std::vector<FidelityNumbers> layer_supports;    // "7/3-4": layer 7, 3 or 4 tiles
  uint32_t support_tile = MeasureOptions().tile;  // keys in a tile of `supports`
  AgreementLayers agreement = AgreementLayers::kAll;
};

// Returns the snapshot's summaries of one measure (fidelity or variance) whose questions have all
// been measured (FidelitySummary::complete), in the snapshot's order.
std::vector<FidelityPoint> fidelityPoints(const RunSnapshot& snapshot, Measure measure);

// Returns the newest point of each method, schedule and budget.
std::vector<FidelityPoint> newestFidelity(const std::vector<FidelityPoint>& points);

}  // namespace allot
