#include "core/learning/budget_check.h"

#include <algorithm>
#include <cmath>

#include "core/learning/budget_problem.h"
#include "core/learning/policy.h"
#include "core/learning/trial.h"
#include "core/learning/triangle.h"

namespace allot {
namespace {

// Logits and moments that come from outside: no run of ours comes to more, and sums cannot
// overflow.
constexpr double kMostLogit = 1e12;
// Likewise sums of a surrogate's.
constexpr double kMostEvidence = 1e15;

bool areBetween(const google::protobuf::RepeatedField<double>& values, double least, double most) {
  return std::all_of(values.begin(), values.end(),
                     [&](double v) { return v >= least && v <= most; });
}

bool hasFactor(const google::protobuf::RepeatedField<double>& precision, int64_t features) {
  return features == 0 ||
         !factorOf({precision.begin(), precision.end()}, static_cast<size_t>(features)).empty();
}

bool isSchedule(const google::protobuf::RepeatedField<uint32_t>& samples,
                const AdditiveProblem& problem) {
  uint64_t sum = 0;
  for (const uint32_t draws : samples) {
    if (draws < problem.min_per_layer) return false;
    sum += draws;
  }
  return samples.size() == static_cast<int64_t>(problem.entries) && sum == problem.total;
}

bool isPolicyOf(const AdditiveProblem& problem, Learner learner, const v1::BudgetPolicy& policy) {
  const int64_t logits = learner == Learner::kReinforce ? problem.entries : 0;
  return policy.total_budget() == problem.total / problem.per_layer &&
         policy.logits_size() == logits && areBetween(policy.logits(), -kMostLogit, kMostLogit) &&
         isSchedule(policy.learned(), problem) &&
         std::all_of(policy.proposals().begin(), policy.proposals().end(),
                     [&](const v1::Draws& draws) { return isSchedule(draws.samples(), problem); });
}

bool isStateOf(const AdditiveProblem& problem, const v1::Spec& spec,
               const v1::LearnerState& state) {
  const Learner learner = learnerOf(spec.update());
  const int64_t features = learner == Learner::kAdditive ? problem.features() : 0;
  const int64_t moments = learner == Learner::kReinforce ? problem.entries : 0;
  const v1::Trial& trial = state.trial();
  return state.evidence_size() == features &&
         state.precision_size() == features * (features + 1) / 2 &&
         areBetween(state.evidence(), -kMostEvidence, kMostEvidence) &&
         areBetween(state.precision(), -kMostEvidence, kMostEvidence) &&
         hasFactor(state.precision(), features) && state.first_moment_size() == moments &&
         state.second_moment_size() == moments &&
         areBetween(state.first_moment(), -kMostLogit, kMostLogit) &&
         areBetween(state.second_moment(), 0, kMostLogit) &&
         (trial.candidate().empty() || isSchedule(trial.candidate(), problem)) &&
         std::isfinite(trial.difference()) && std::isfinite(trial.squared_difference());
}

}  // namespace

Status checkFrontier(const v1::Experiment& experiment, const ModelShape& shape,
                     const v1::PolicySnapshot& policy) {
  const auto wrong = [](const std::string& what) {
    return fail(ErrorCode::kData, "its policy is not one of its experiment: " + what);
  };
  const v1::Spec& spec = experiment.spec();
  if (!learnsByBudgets(spec)) {
    return policy.has_frontier() ? wrong("it has total budgets") : Status();
  }
  const std::vector<uint32_t> totals = totalBudgets(spec.policy());
  if (policy.frontier().budgets_size() != static_cast<int64_t>(totals.size())) {
    return wrong("another number of total budgets");
  }
  const uint32_t per_layer = entriesPerLayer(spec.policy(), shape);
  if (entriesPerLayer(policy) != per_layer) return wrong("schedules of another granularity");
  for (size_t b = 0; b < totals.size(); ++b) {
    if (isPolicyOf(problemOf(spec, shape.layers, per_layer, totals[b]), learnerOf(spec.update()),
                   policy.frontier().budgets(static_cast<int>(b)))) {
      continue;
    }
    return wrong("at total budget " + std::to_string(totals[b]));
  }
  return {};
}

Status checkBudgets(const v1::Experiment& experiment, const ModelShape& shape,
                    const v1::AggregatorState& state) {
  ALLOT_TRY(checkLearners(experiment, shape, state));
  const bool begun =
      std::any_of(state.learners().begin(), state.learners().end(),
                  [](const v1::LearnerState& learner) { return !learner.sets().empty(); });
  if (!begun) return {};
  return fail(ErrorCode::kData, "its learners have begun on question sets");
}

Status checkLearners(const v1::Experiment& experiment, const ModelShape& shape,
                     const v1::AggregatorState& state) {
  ALLOT_TRY(checkFrontier(experiment, shape, state.policy()));
  const v1::Spec& spec = experiment.spec();
  const auto wrong = [](const std::string& what) {
    return fail(ErrorCode::kData, "its learners are not those of its experiment: " + what);
  };
  const int budgets = state.policy().frontier().budgets_size();
  if (state.learners_size() != budgets) return wrong("another number of total budgets");
  // Of no steps Adam's moments have gathered nothing: the next count must not come round to 0.
  if (state.optimizer_steps() == UINT64_MAX) return wrong("a number of steps that cannot be");
  for (int b = 0; b < budgets; ++b) {
    const uint32_t total = state.policy().frontier().budgets(b).total_budget();
    const auto problem =
        problemOf(spec, shape.layers, entriesPerLayer(spec.policy(), shape), total);
    if (isStateOf(problem, spec, state.learners(b))) continue;
    return wrong("at total budget " + std::to_string(total));
  }
  return {};
}

}  // namespace allot
