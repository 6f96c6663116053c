#include "core/learning/update.h"

#include <algorithm>
#include <cassert>
#include <cmath>

#include "core/learning/additive.h"
#include "core/learning/budget_learning.h"
#include "core/learning/exact_math.h"
#include "core/learning/gradient.h"
#include "core/learning/measured.h"
#include "core/learning/policy.h"
#include "core/learning/priced_schedule.h"
#include "core/learning/schedule.h"
#include "core/spec/choices.h"

namespace allot {
namespace {

constexpr double kMovingBaselineDecay = 0.9;

std::vector<double> logitsOf(const v1::PolicySnapshot& policy) {
  return {policy.logits().begin(), policy.logits().end()};
}

// Returns KL(from || to) in nats.
double divergence(const std::vector<double>& from, const std::vector<double>& to) {
  double nats = 0;
  for (size_t l = 0; l < from.size(); ++l) {
    if (from[l] > 0) nats += from[l] * exactLog(from[l] / to[l]);
  }
  return nats;
}

bool areFinite(const google::protobuf::RepeatedField<double>& values) {
  return std::all_of(values.begin(), values.end(), [](double v) { return std::isfinite(v); });
}

// Returns true if the parts of a state have matching sizes.
[[maybe_unused]] bool fitsItself(const v1::AggregatorState& state) {
  const int layers = state.policy().logits_size();
  return layers > 0 && state.first_moment_size() == layers &&
         state.second_moment_size() == layers &&
         state.learners_size() == state.policy().frontier().budgets_size() &&
         state.lag_counts_size() == static_cast<int>(kLagBuckets);
}

// Returns true if the result can be one of this policy or of an older one of the run.
[[maybe_unused]] bool isOf(const v1::PolicySnapshot& policy, const v1::EpisodeResult& result) {
  const auto entries = static_cast<uint32_t>(policy.logits_size()) * entriesPerLayer(policy);
  return result.policy_version() <= policy.version() &&
         static_cast<uint32_t>(result.schedule_size()) == entries &&
         std::isfinite(result.reward()) && result.behaviour_log_prob() <= 0 &&
         std::isfinite(result.behaviour_log_prob());
}

// Returns each result's baseline (spec.update.baseline). The leave-one-out baseline of a single
// result is the moving average.
std::vector<double> baselines(const v1::Experiment& experiment, const v1::AggregatorState& state,
                              const std::vector<v1::EpisodeResult>& results) {
  double sum = 0;
  for (const auto& result : results) sum += result.reward();
  const double count = static_cast<double>(results.size());
  const auto of = [&](const v1::EpisodeResult& result) {
    const double moving = state.has_moving_baseline() ? state.moving_baseline() : sum / count;
    switch (baselineOf(experiment.spec().update())) {
      case Baseline::kLeaveOneOut:
        return results.size() > 1 ? (sum - result.reward()) / (count - 1) : moving;
      case Baseline::kBatchMean:
        return sum / count;
      case Baseline::kMovingAverage:
        return moving;
    }
    return moving;
  };
  std::vector<double> values;
  for (const auto& result : results) values.push_back(of(result));
  return values;
}

// Compares each result of an update with its baseline. Writes the baselines to `baselines_of`.
std::vector<ComparedResult> compareAll(const v1::Experiment& experiment,
                                       const v1::AggregatorState& state,
                                       const std::vector<v1::EpisodeResult>& results,
                                       google::protobuf::RepeatedField<double>* baselines_of) {
  const std::vector<double> baseline = baselines(experiment, state, results);
  *baselines_of = {baseline.begin(), baseline.end()};
  std::vector<ComparedResult> compared;
  for (size_t i = 0; i < results.size(); ++i) {
    compared.push_back({&results[i], static_cast<int>(i), results[i].reward() - baseline[i]});
  }
  return compared;
}

// Learns from an update's results. Fills record's weights, baselines and gradient norm.
// Requires: state->policy() has the new version and the content of the version before.
void learn(const v1::Experiment& experiment, const std::vector<v1::EpisodeResult>& results,
           v1::AggregatorState* state, v1::IterationRecord* record) {
  record->mutable_weights()->Resize(static_cast<int>(results.size()), 1.0);
  record->mutable_baselines()->Resize(static_cast<int>(results.size()), 0.0);
  double squares = 0;
  if (!state->policy().has_frontier()) {
    squares = ascend(
        experiment.spec(), state->optimizer_steps(),
        compareAll(experiment, *state, results, record->mutable_baselines()),
        {experiment.spec().policy().total_budget(), state->mutable_policy()->mutable_logits(),
         state->mutable_first_moment(), state->mutable_second_moment()},
        record->mutable_weights());
  }
  for (int b = 0; b < state->learners_size(); ++b) {
    squares += learnBudget(experiment, results, b, state, record);
  }
  record->set_gradient_norm(std::sqrt(squares));
}

}  // namespace

v1::AggregatorState initialState(const v1::Experiment& experiment, const ModelShape& shape,
                                 const v1::Origin* origin) {
  if (origin != nullptr) {
    v1::AggregatorState first = origin->state();
    if (!inheritsMeasurement(experiment.spec(), origin)) first.clear_measurement();
    return first;
  }
  v1::AggregatorState state;
  for (size_t bucket = 0; bucket < kLagBuckets; ++bucket) state.add_lag_counts(0);
  for (uint32_t l = 0; l < shape.layers; ++l) {
    state.mutable_policy()->add_logits(0.0);
    state.add_first_moment(0.0);
    state.add_second_moment(0.0);
  }
  setPrices(priceListOf(experiment.spec(), shape), state.mutable_policy());
  if (learnsByBudgets(experiment.spec())) beginBudgets(experiment, shape, &state);
  return state;
}

namespace {

// Returns the first training question that neither the run by `state` nor those before have asked.
uint64_t firstUnasked(const v1::Spec& spec, const v1::AggregatorState& state) {
  uint64_t sets = 0;
  for (const v1::LearnerState& learner : state.learners()) {
    sets = std::max(sets, learner.sets_seen());
  }
  const uint64_t with_questions = pairsWithQuestions(spec, state.policy());
  const uint64_t pairs =
      std::min(std::min(sets, with_questions) * freshPairs(spec), with_questions);
  return firstFreshQuestion(spec, state.policy()) +
         pairs * static_cast<uint64_t>(state.learners_size()) *
             spec.rollout().questions_per_episode();
}

}  // namespace

v1::Origin originOf(const v1::Experiment& experiment, const std::string& run_id,
                    const v1::AggregatorState& state) {
  assert(fitsItself(state));
  v1::Origin origin;
  origin.set_run_id(run_id);
  origin.set_version(state.policy().version());
  v1::AggregatorState& first = *origin.mutable_state();
  *first.mutable_policy() = state.policy();
  first.mutable_policy()->set_version(0);
  *first.mutable_first_moment() = state.first_moment();
  *first.mutable_second_moment() = state.second_moment();
  first.set_moving_baseline(state.moving_baseline());
  first.set_has_moving_baseline(state.has_moving_baseline());
  first.set_optimizer_steps(state.optimizer_steps());
  *first.mutable_learners() = state.learners();
  // The fork's tickets begin anew, and so do its question sets.
  for (v1::LearnerState& learner : *first.mutable_learners()) {
    learner.clear_sets();
    learner.clear_sets_seen();
    learner.clear_lateness();
    learner.clear_confirmation();
  }
  first.set_confirmations(state.confirmations());
  const uint32_t per_layer = entriesPerLayer(state.policy());
  for (int b = 0; b < state.policy().frontier().budgets_size(); ++b) {
    v1::BudgetPolicy& budget = *first.mutable_policy()->mutable_frontier()->mutable_budgets(b);
    const AdditiveProblem problem =
        problemOf(experiment.spec(), static_cast<uint32_t>(state.policy().logits_size()), per_layer,
                  budget.total_budget(), pricesOf(state.policy()));
    const SampleSchedule rival = rivalSchedule(problem, state, budget.total_budget());
    *budget.mutable_learned() = {rival.begin(), rival.end()};
    budget.set_beats_uniform(false);
    budget.clear_claim();
  }
  if (state.policy().has_frontier()) {
    v1::Frontier& frontier = *first.mutable_policy()->mutable_frontier();
    frontier.set_asked_before(firstUnasked(experiment.spec(), state));
    frontier.set_asked_of(questionsDigest(experiment.spec()));
  }
  if (state.has_measurement()) {
    *first.mutable_measurement() = state.measurement();
    origin.set_measured_of(measurementDigest(experiment.spec()));
  }
  for (size_t bucket = 0; bucket < kLagBuckets; ++bucket) first.add_lag_counts(0);
  // The digest of what is taken over: of the run's policy without its claims.
  v1::PolicySnapshot taken = first.policy();
  taken.set_version(state.policy().version());
  origin.set_policy_sha256(policyDigest(taken));
  return origin;
}

bool isStale(const v1::Experiment& experiment, uint64_t version, const v1::EpisodeResult& result) {
  const v1::Staleness& staleness = experiment.spec().staleness();
  const bool drops = modeOf(staleness) == StalenessMode::kDrop;
  return drops && version > result.policy_version() + staleness.max_lag();
}

size_t lagBucket(uint64_t lag) {
  if (lag <= 2) return lag;
  size_t bucket = 3;
  for (uint64_t last = 4; lag > last && bucket + 1 < kLagBuckets; last *= 2) ++bucket;
  return bucket;
}

std::string lagBucketLabel(size_t bucket) {
  if (bucket <= 2) return std::to_string(bucket);
  const uint64_t last = uint64_t{1} << (bucket - 1);
  const std::string first = std::to_string(last / 2 + 1);
  return bucket + 1 < kLagBuckets ? first + "-" + std::to_string(last) : first + "+";
}

UpdateOutcome applyUpdate(const v1::Experiment& experiment, const v1::AggregatorState& state,
                          const std::vector<v1::EpisodeResult>& results) {
  assert(!results.empty());
  assert(fitsItself(state));
  assert(std::all_of(results.begin(), results.end(), [&](const v1::EpisodeResult& result) {
    return isOf(state.policy(), result);
  }));
  UpdateOutcome outcome{state, {}};
  auto& record = outcome.record;
  auto* policy = outcome.state.mutable_policy();
  policy->set_version(state.policy().version() + 1);
  outcome.state.set_optimizer_steps(state.optimizer_steps() + 1);
  learn(experiment, results, &outcome.state, &record);
  const auto& weights = record.weights();
  assert(std::all_of(weights.begin(), weights.end(),
                     [](double weight) { return weight >= 0 && std::isfinite(weight); }));
  assert(areFinite(policy->logits()));

  double reward = 0, lag = 0, weight = 0, weight_squares = 0;
  for (size_t i = 0; i < results.size(); ++i) {
    reward += results[i].reward();
    const uint64_t updates = state.policy().version() - results[i].policy_version();
    lag += static_cast<double>(updates);
    const int bucket = static_cast<int>(lagBucket(updates));
    outcome.state.set_lag_counts(bucket, outcome.state.lag_counts(bucket) + 1);
    const double of_result = weights[static_cast<int>(i)];
    weight += of_result;
    weight_squares += of_result * of_result;
    outcome.state.set_worker_seconds(outcome.state.worker_seconds() + results[i].seconds());
  }
  const double count = static_cast<double>(results.size());
  outcome.state.set_episodes(state.episodes() + results.size());
  outcome.state.set_moving_baseline(state.has_moving_baseline()
                                        ? kMovingBaselineDecay * state.moving_baseline() +
                                              (1 - kMovingBaselineDecay) * reward / count
                                        : reward / count);
  outcome.state.set_has_moving_baseline(true);

  record.set_version(policy->version());
  *record.mutable_results() = {results.begin(), results.end()};
  *record.mutable_policy() = *policy;
  describeStep(state.policy(), &record);
  record.set_mean_reward(reward / count);
  record.set_effective_sample_size_ratio(
      weight_squares > 0 ? weight * weight / (count * weight_squares) : 0);
  record.set_mean_lag_updates(lag / count);
  if (record.version() == 1 && state.has_measurement() &&
      learnsFromMeasurement(experiment.spec())) {
    *record.mutable_measurement() = state.measurement();
  }
  *record.mutable_update() = experiment.spec().update();
  *record.mutable_staleness() = experiment.spec().staleness();
  return outcome;
}

// Swaps instead of clearing: a cleared protobuf field keeps its memory.
void dropResults(v1::IterationRecord* record) {
  google::protobuf::RepeatedPtrField<v1::EpisodeResult>().Swap(record->mutable_results());
  google::protobuf::RepeatedField<double>().Swap(record->mutable_weights());
  google::protobuf::RepeatedField<double>().Swap(record->mutable_baselines());
}

void describeStep(const v1::PolicySnapshot& before, v1::IterationRecord* record) {
  assert(record->policy().logits_size() == before.logits_size());
  const std::vector<double> after = softmax(logitsOf(record->policy()));
  record->set_policy_sha256(policyDigest(record->policy()));
  record->set_step_kl_nats(divergence(softmax(logitsOf(before)), after));
  record->set_entropy_nats(entropy(after));
}

}  // namespace allot
