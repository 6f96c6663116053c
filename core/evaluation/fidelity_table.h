#pragma once
// What same-state fidelity came to: how far a method's attention outputs and next tokens are from
// dense attention's, given the same queries, keys and values (SANTA, Appendix U); and the variance
// of its outputs at prompts' last positions (Appendices D, M and N). Pure, one thread.
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

// Buckets of FidelityCell.support, by their first number of tiles: 1, 2, 3..4, 5..8, 9 and more.
constexpr std::array<uint32_t, 5> kSupports = {1, 2, 3, 5, 9};
// "1", "3-4", "9+"
std::string supportLabel(uint32_t support);

// Sums over states (question, decode step, query head; of variance question, replicate, query
// head), and what they come to. Means over no state are 0.
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
  // Of variance: over positions (question, query head), each of as many states.
  uint64_t positions = 0;
  double variance = 0;
  uint64_t closed_form_positions = 0;
  double closed_form = 0;
  // Next tokens compared, and of them equal: none by support, and by layer only where one layer
  // alone had the method.
  uint64_t steps = 0;
  uint64_t agreed = 0;

  void add(const v1::FidelityCell& cell);

  double meanRelativeError() const { return perState(relative_error); }
  double rmsRelativeError() const;
  double meanCosine() const { return perState(cosine); }
  // tr Cov of an unbiased method's output; for others the mean squared error.
  double traceCovariance() const { return perState(squared_error); }
  double exceedRate() const { return perState(static_cast<double>(exceeded)); }
  double uniqueRows() const { return perState(static_cast<double>(unique_rows)); }
  double drawsMade() const { return perState(static_cast<double>(draws)); }
  double effectiveSampleSize() const { return perState(effective_sample_size); }
  // Share of the value rows that was read.
  double density() const;
  // Of the states with an estimate of the method's own.
  std::optional<double> meanEstimatedError() const;
  std::optional<double> agreement() const;
  // tr Cov of an output, by replicates (unbiased) and by the method's closed form.
  std::optional<double> meanVariance() const;
  std::optional<double> meanClosedForm() const;
  // Outputs at each position; 0 where that is not what was measured.
  uint64_t replicates() const { return positions > 0 ? states / positions : 0; }

 private:
  double perState(double sum) const { return states > 0 ? sum / static_cast<double>(states) : 0; }
};

// One method, schedule and budget.
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
  std::map<std::pair<uint32_t, uint32_t>, FidelitySums> layer_supports;  // of one layer's states
  std::map<uint32_t, FidelitySums> tasks;  // by index in spec.task.tasks

  // Draws per head in one layer, on average; 0 for a method without a budget.
  double drawsPerLayer() const;
};

// Adds results up, whatever the order in which they come.
class FidelityTable {
 public:
  // questions: those that both are measured on (comparedQuestions).
  // keep_newest: of what a learned schedule came to at one budget, only the newest two complete
  // versions and what is not complete.
  explicit FidelityTable(uint32_t questions, bool keep_newest = false);
  explicit FidelityTable(const v1::Spec& spec, bool keep_newest = false);

  // A result that can be (whyImpossible); accuracy is passed over.
  void add(const v1::EvaluationResult& result);
  // By measure, version, method, schedule name, budget.
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

// How fast a method's variance falls: the slope of log tr Cov against log S over its uniform
// schedules with S >= 2 draws a layer (-1 for independent draws). Of fidelity tr Cov is the mean
// squared error, of variance that of the replicates. Budgets at which it is 0 (every row read) are
// left out; methods with fewer than two others are, too.
struct VarianceSlope {
  std::string method;
  double slope = 0;
  uint64_t budgets = 0;
  Measure measure = Measure::kFidelity;
};
std::vector<VarianceSlope> varianceSlopes(const std::vector<FidelitySummary>& summaries);

}  // namespace allot
