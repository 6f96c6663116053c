#pragma once
// Adds up same-state fidelity: the distance of a method's attention outputs and next tokens from
// dense attention's, given the same queries, keys and values (SANTA, Appendix U). Also adds up the
// variance of the method's outputs at prompts' last positions (Appendices D, M and N). Pure, one
// thread.
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "allot/v1/result.pb.h"
#include "core/learning/schedule.h"
#include "core/spec/choices.h"

namespace allot {

// Values of FidelityCell.support. Each is the least number of tiles in its bucket: 1, 2, 3..4,
// 5..8, 9 and more.
constexpr std::array<uint32_t, 5> kSupports = {1, 2, 3, 5, 9};
// Returns the bucket of a support as text: "1", "3-4", "9+".
std::string supportLabel(uint32_t support);

// Sums over states, and their means. Without states a mean is 0, or nothing if it is optional. A
// state is one output of one query head in one layer: at a decode step of a question (fidelity), or
// in one replicate at its prompt's end (variance).
struct FidelitySums {
  uint64_t states = 0;
  double relative_error = 0;
  double relative_error_squared = 0;
  double cosine = 0;
  double squared_error = 0;
  double estimated_error = 0;
  uint64_t estimated_states = 0;
  uint64_t exceeded = 0;
  uint64_t draws = 0;
  uint64_t unique_rows = 0;
  uint64_t dense_rows = 0;
  double effective_sample_size = 0;
  // For variance: sums over positions (question, layer, query head), each with equally many states.
  uint64_t positions = 0;
  double variance = 0;
  uint64_t closed_form_positions = 0;
  double closed_form = 0;
  // Next tokens that were compared with dense attention's, and those that were equal. Not counted
  // by support; counted by layer only if one layer alone used the method.
  uint64_t steps = 0;
  uint64_t agreed = 0;
  // KL divergence of these next tokens' distributions from dense attention's, in nats, and the
  // steps over which it is summed: 0 in results of builds that had no divergence.
  double divergence = 0;
  uint64_t divergence_steps = 0;

  void add(const v1::FidelityCell& cell);
  void add(const v1::AgreementCell& cell);

  double meanRelativeError() const { return perState(relative_error); }
  double rmsRelativeError() const;
  double meanCosine() const { return perState(cosine); }
  // Returns the mean squared error of an output, which is tr Cov of the output if the method is
  // unbiased.
  double traceCovariance() const { return perState(squared_error); }
  double exceedRate() const { return perState(static_cast<double>(exceeded)); }
  double uniqueRows() const { return perState(static_cast<double>(unique_rows)); }
  double drawsMade() const { return perState(static_cast<double>(draws)); }
  double effectiveSampleSize() const { return perState(effective_sample_size); }
  // Returns the share of the value rows that were read.
  double density() const;
  // Returns the mean over states for which the method estimates its error.
  std::optional<double> meanEstimatedError() const;
  std::optional<double> agreement() const;
  std::optional<double> meanDivergence() const;
  // Return the mean tr Cov of an output: by the replicates' unbiased estimate, by the method's
  // closed form.
  std::optional<double> meanVariance() const;
  std::optional<double> meanClosedForm() const;
  // Returns the outputs at each position; 0 unless variance was measured.
  uint64_t replicates() const { return positions > 0 ? states / positions : 0; }

 private:
  double perState(double sum) const { return states > 0 ? sum / static_cast<double>(states) : 0; }
};

// The sums of one method, schedule and budget.
struct FidelitySummary {
  Measure measure = Measure::kFidelity;  // or kVariance
  uint64_t version = 0;
  std::string method;
  std::string schedule_name;
  uint64_t total_budget = 0;
  SampleSchedule schedule;
  uint64_t questions = 0;
  bool complete = false;
  FidelitySums all;
  std::map<uint32_t, FidelitySums> layers;
  std::map<uint32_t, FidelitySums> supports;
  std::map<std::pair<uint32_t, uint32_t>, FidelitySums> layer_supports;  // by layer and support
  std::map<uint32_t, FidelitySums> tasks;  // by index in spec.task.tasks

  // Returns the mean of the schedule's entries; 0 for a method without a budget.
  double drawsPerLayer() const;
};

// Adds up results, in any order.
class FidelityTable {
 public:
  // questions: what comparedQuestions() returns for fidelity and for variance. keep_newest: for
  // each measure, method and budget, only the newest two complete learned summaries stay, and
  // incomplete ones.
  explicit FidelityTable(uint32_t questions, bool keep_newest = false);
  explicit FidelityTable(const v1::Spec& spec, bool keep_newest = false);

  // Adds a result of measure fidelity or variance; others are ignored.
  // Requires: the result is possible (whyImpossible).
  void add(const v1::EvaluationResult& result);
  // Returns the summaries, ordered by measure, version, method, schedule name, budget.
  std::vector<FidelitySummary> summaries() const;

 private:
  using Key = std::tuple<Measure, uint64_t, std::string, std::string, uint64_t>;
  void dropOld(const FidelitySummary& completed);

  uint64_t of_fidelity_, of_variance_;  // questions
  bool keep_newest_;
  std::map<Key, FidelitySummary> summaries_;
  // Complete versions of learned schedules, by measure, method and budget.
  std::map<std::tuple<Measure, std::string, uint64_t>, std::set<uint64_t>> complete_;
};

// The rate at which a method's variance falls: the slope of log tr Cov against log S over its
// uniform schedules with S >= 2 draws a layer (-1 for independent draws). tr Cov is
// traceCovariance() for fidelity, meanVariance() for variance. Incomplete summaries and those with
// tr Cov = 0 (every row read) are left out. A method of which fewer than two budgets remain has no
// slope.
struct VarianceSlope {
  std::string method;
  double slope = 0;
  uint64_t budgets = 0;
  Measure measure = Measure::kFidelity;
};
std::vector<VarianceSlope> varianceSlopes(const std::vector<FidelitySummary>& summaries);

}  // namespace allot
