#pragma once
// What same-state fidelity came to: how far a method's attention outputs and next tokens are from
// dense attention's, given the same queries, keys and values (SANTA, Appendix U). Pure, one thread.
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "allot/v1/result.pb.h"
#include "core/learning/schedule.h"

namespace allot {

// Buckets of FidelityCell.support, by their first number of tiles: 1, 2, 3..4, 5..8, 9 and more.
constexpr std::array<uint32_t, 5> kSupports = {1, 2, 3, 5, 9};
// "1", "3-4", "9+"
std::string supportLabel(uint32_t support);

// Sums over states (question, decode step, query head), and what they come to. Means over no state
// are 0.
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
  uint64_t steps = 0;   // next tokens compared; none by layer or support
  uint64_t agreed = 0;  // of them equal

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

 private:
  double perState(double sum) const { return states > 0 ? sum / static_cast<double>(states) : 0; }
};

// One method, schedule and budget.
struct FidelitySummary {
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
  std::map<uint32_t, FidelitySums> tasks;  // by index in spec.task.tasks

  // Draws per head in one layer, on average; 0 for a method without a budget.
  double drawsPerLayer() const;
};

// Adds results up, whatever the order in which they come.
class FidelityTable {
 public:
  // keep_newest: of what a learned schedule came to at one budget, only the newest two complete
  // versions and what is not complete.
  explicit FidelityTable(uint32_t held_out_questions, bool keep_newest = false);

  // A result that can be (whyImpossible); measures other than fidelity are passed over.
  void add(const v1::EvaluationResult& result);
  // By version, method, schedule name, budget.
  std::vector<FidelitySummary> summaries() const;

 private:
  using Key = std::tuple<uint64_t, std::string, std::string, uint64_t>;
  void dropOld(const FidelitySummary& completed);

  uint64_t questions_;
  bool keep_newest_;
  std::map<Key, FidelitySummary> summaries_;
  // Complete versions of learned schedules, by method and budget.
  std::map<std::pair<std::string, uint64_t>, std::set<uint64_t>> complete_;
};

// How fast a method's variance falls: the slope of log tr Cov against log S over its uniform
// schedules with S >= 2 draws a layer (-1 for independent draws). Budgets at which the error is 0
// (every row read) are left out; methods with fewer than two others are, too.
struct VarianceSlope {
  std::string method;
  double slope = 0;
  uint64_t budgets = 0;
};
std::vector<VarianceSlope> varianceSlopes(const std::vector<FidelitySummary>& summaries);

}  // namespace allot
