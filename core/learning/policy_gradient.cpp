#include "core/learning/policy_gradient.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "core/digest.h"
#include "core/learning/budget_update.h"
#include "core/learning/exact_math.h"
#include "core/learning/policy.h"
#include "core/learning/question_sets.h"
#include "core/learning/schedule.h"
#include "core/spec/choices.h"

namespace allot {
namespace {

constexpr double kAdamDecay1 = 0.9;
constexpr double kAdamDecay2 = 0.999;
constexpr double kAdamEpsilon = 1e-8;
constexpr double kMovingBaselineDecay = 0.9;

std::vector<double> logitsOf(const v1::PolicySnapshot& policy) {
  return {policy.logits().begin(), policy.logits().end()};
}

double entropy(const std::vector<double>& probabilities) {
  double nats = 0;
  for (double p : probabilities) {
    if (p > 0) nats -= p * exactLog(p);
  }
  return nats;
}

double divergence(const std::vector<double>& from, const std::vector<double>& to) {
  double nats = 0;
  for (size_t l = 0; l < from.size(); ++l) {
    if (from[l] > 0) nats += from[l] * exactLog(from[l] / to[l]);
  }
  return nats;
}

// Leave-one-out: the mean of the other rewards of the batch, independent of the result's own.
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

// Whether a step is scaled by the gradient's moments (Adam), or is the gradient.
bool stepsByMoments(Optimizer optimizer) {
  switch (optimizer) {
    case Optimizer::kAdam:
      return true;
    case Optimizer::kSgd:
      return false;
  }
  return false;
}

// What Adam's moments have gathered of a constant gradient's after so many steps.
double gathered(double decay, uint64_t steps) { return 1 - exactPower(decay, steps); }

Status checkBehaviour(const v1::Spec& spec, const v1::PolicySnapshot& behaviour,
                      const v1::EpisodeResult& result) {
  if (result.policy_sha256() != policyDigest(behaviour)) {
    return fail(ErrorCode::kData, "the policy digest is not that of the version it names");
  }
  const SampleSchedule schedule(result.schedule().begin(), result.schedule().end());
  double expected = 0;
  if (behaviour.frontier().budgets().empty()) {
    // Older builds drew where other processors round the softmax otherwise: a schedule may differ.
    expected = logProbability(schedule, logitsOf(behaviour), spec.policy().min_per_layer());
  } else {
    const Proposed proposed = scheduleOf(spec, behaviour, result.ticket());
    if (schedule != proposed.schedule) {
      return fail(ErrorCode::kData, "the schedule is not that of its ticket under the policy");
    }
    expected = proposed.log_probability;
  }
  // Other machines round the logarithm otherwise, but not by this much.
  if (std::abs(expected - result.behaviour_log_prob()) > 1e-6 * (1 + std::abs(expected))) {
    return fail(ErrorCode::kData, "the log-probability is not that of the policy it names");
  }
  return {};
}

// The results of an update, compared with the baseline: all are of one policy.
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

// Learns from an update's results: state->policy() has its new version and the rest of the one
// before. Fills record's weights, baselines and gradient norm.
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

double importanceWeight(const v1::Spec& spec, const google::protobuf::RepeatedField<double>& logits,
                        const v1::EpisodeResult& result) {
  if (!weighsResults(modeOf(spec.staleness()))) return 1.0;
  const SampleSchedule schedule(result.schedule().begin(), result.schedule().end());
  const double log_ratio =
      logProbability(schedule, {logits.begin(), logits.end()}, spec.policy().min_per_layer()) -
      result.behaviour_log_prob();
  return std::min(spec.staleness().rho_bar(), exactExp(log_ratio));
}

std::vector<double> policyGradient(const v1::Spec& spec,
                                   const google::protobuf::RepeatedField<double>& logits,
                                   uint32_t total, const std::vector<GradientTerm>& terms) {
  const std::vector<double> probabilities = softmax({logits.begin(), logits.end()});
  const size_t layers = probabilities.size();
  const uint32_t min_per_layer = spec.policy().min_per_layer();
  const double drawn =
      std::max<double>(1.0, static_cast<double>(total) - 1.0 * layers * min_per_layer);
  // Algorithm 1's gradient is of draws, not of their shares: n - N pi.
  const double unit = learnerOf(spec.update()) == Learner::kSanta ? 1.0 : drawn;
  double weight_sum = 0;
  std::vector<double> gradient(layers, 0.0);
  for (const GradientTerm& term : terms) {
    weight_sum += term.weight;
    const double advantage = term.weight * term.advantage;
    for (size_t l = 0; l < layers; ++l) {
      const double share = (static_cast<double>(term.schedule[l]) - min_per_layer) / unit;
      gradient[l] += advantage * (share - probabilities[l] * (drawn / unit));
    }
  }
  if (weight_sum > 0) {
    for (double& g : gradient) g /= weight_sum;
  }
  const double bonus = spec.update().entropy_bonus();
  if (bonus > 0) {
    const double h = entropy(probabilities);
    for (size_t l = 0; l < layers; ++l) {
      const double p = probabilities[l];
      if (p > 0) gradient[l] -= bonus * p * (exactLog(p) + h);  // dH/dlogit_l
    }
  }
  return gradient;
}

double ascend(const v1::Spec& spec, uint64_t steps, const std::vector<ComparedResult>& results,
              const Ascended& of, google::protobuf::RepeatedField<double>* weights) {
  std::vector<GradientTerm> terms;
  for (const ComparedResult& one : results) {
    if (!one.drawn) continue;
    const double weight = importanceWeight(spec, *of.logits, *one.result);
    (*weights)[one.index] = weight;
    if (one.alone) continue;
    const auto& schedule = one.result->schedule();
    terms.push_back({{schedule.begin(), schedule.end()}, weight, one.advantage});
  }
  const std::vector<double> gradient = policyGradient(spec, *of.logits, of.total, terms);
  const double rate = spec.update().learning_rate();
  const bool by_moments = stepsByMoments(optimizerOf(spec.update()));
  const double gathered1 = gathered(kAdamDecay1, steps);
  const double gathered2 = gathered(kAdamDecay2, steps);
  double squares = 0;
  for (int l = 0; l < of.logits->size(); ++l) {
    double delta = gradient[l];
    squares += gradient[l] * gradient[l];
    if (by_moments) {
      const double m = kAdamDecay1 * of.first_moment->Get(l) + (1 - kAdamDecay1) * gradient[l];
      const double v =
          kAdamDecay2 * of.second_moment->Get(l) + (1 - kAdamDecay2) * gradient[l] * gradient[l];
      of.first_moment->Set(l, m);
      of.second_moment->Set(l, v);
      const double m_hat = m / gathered1;
      const double v_hat = v / gathered2;
      delta = m_hat / (std::sqrt(v_hat) + kAdamEpsilon);
    }
    of.logits->Set(l, of.logits->Get(l) + rate * delta);
  }
  return squares;
}

v1::AggregatorState initialState(const v1::Experiment& experiment, const ModelShape& shape,
                                 const v1::Origin* origin) {
  if (origin != nullptr) return origin->state();
  v1::AggregatorState state;
  for (size_t bucket = 0; bucket < kLagBuckets; ++bucket) state.add_lag_counts(0);
  for (uint32_t l = 0; l < shape.layers; ++l) {
    state.mutable_policy()->add_logits(0.0);
    state.add_first_moment(0.0);
    state.add_second_moment(0.0);
  }
  // policy.init knows only `uniform`.
  if (learnsByBudgets(experiment.spec())) beginBudgets(experiment, shape, &state);
  return state;
}

v1::Origin originOf(const std::string& run_id, const v1::AggregatorState& state) {
  v1::Origin origin;
  origin.set_run_id(run_id);
  origin.set_version(state.policy().version());
  origin.set_policy_sha256(policyDigest(state.policy()));
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
  for (v1::LearnerState& learner : *first.mutable_learners()) closeAll(&learner);
  for (size_t bucket = 0; bucket < kLagBuckets; ++bucket) first.add_lag_counts(0);
  return origin;
}

bool weighsResults(StalenessMode mode) {
  switch (mode) {
    case StalenessMode::kTruncatedIs:
      return true;
    case StalenessMode::kNone:
    case StalenessMode::kDrop:
      return false;
  }
  return false;
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
  UpdateOutcome outcome{state, {}};
  auto& record = outcome.record;
  auto* policy = outcome.state.mutable_policy();
  policy->set_version(state.policy().version() + 1);
  outcome.state.set_optimizer_steps(state.optimizer_steps() + 1);
  learn(experiment, results, &outcome.state, &record);
  const auto& weights = record.weights();

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
  *record.mutable_update() = experiment.spec().update();
  *record.mutable_staleness() = experiment.spec().staleness();
  return outcome;
}

// Swapped out, not cleared: what protobuf clears keeps its memory.
void dropResults(v1::IterationRecord* record) {
  google::protobuf::RepeatedPtrField<v1::EpisodeResult>().Swap(record->mutable_results());
  google::protobuf::RepeatedField<double>().Swap(record->mutable_weights());
  google::protobuf::RepeatedField<double>().Swap(record->mutable_baselines());
}

void describeStep(const v1::PolicySnapshot& before, v1::IterationRecord* record) {
  const std::vector<double> after = softmax(logitsOf(record->policy()));
  record->set_policy_sha256(policyDigest(record->policy()));
  record->set_step_kl_nats(divergence(softmax(logitsOf(before)), after));
  record->set_entropy_nats(entropy(after));
}

double stepPerGradient(const v1::Update& update, const v1::AggregatorState& after, int layer) {
  if (!stepsByMoments(optimizerOf(update))) return update.learning_rate();
  const double v_hat = after.second_moment(layer) / gathered(kAdamDecay2, after.optimizer_steps());
  return update.learning_rate() / (std::sqrt(v_hat) + kAdamEpsilon);
}

Status checkResult(const v1::Experiment& experiment, const v1::AggregatorState& state,
                   const v1::EpisodeResult& result, const v1::PolicySnapshot* behaviour) {
  const auto bad = [](std::string why) { return fail(ErrorCode::kData, std::move(why)); };
  const auto& spec = experiment.spec();
  if (result.result_id().empty() || result.result_id().size() > 200) {
    return bad("the result id is empty or longer than 200 bytes");
  }
  if (result.policy_version() > state.policy().version()) {
    return bad("policy version " + std::to_string(result.policy_version()) +
               " has not been published");
  }
  const uint32_t per_layer = entriesPerLayer(state.policy());
  const int entries = state.policy().logits_size() * static_cast<int>(per_layer);
  if (result.schedule_size() != entries) {
    return bad("the schedule has " + std::to_string(result.schedule_size()) +
               (per_layer > 1 ? " entries, the policy " : " layers, the model ") +
               std::to_string(entries));
  }
  uint64_t total = 0;
  for (uint32_t samples : result.schedule()) {
    if (samples < spec.policy().min_per_layer()) return bad("a layer is below minPerLayer");
    total += samples;
  }
  const uint64_t budget = totalBudgets(spec.policy())[placeOf(spec, result.ticket()).budget];
  if (total != budget * per_layer) {
    return bad("the schedule sums to " + std::to_string(total) + ", not to the total budget");
  }
  if (static_cast<uint32_t>(result.scores_size()) != spec.rollout().questions_per_episode()) {
    return bad("there are " + std::to_string(result.scores_size()) + " scores instead of " +
               std::to_string(spec.rollout().questions_per_episode()));
  }
  double sum = 0;
  std::set<uint32_t> seen;
  for (const auto& score : result.scores()) {
    if (!(score.score() >= 0 && score.score() <= 1)) return bad("a score is outside 0..1");
    if (!(score.other_score() >= 0 && score.other_score() <= 1)) {
      return bad("an other score is outside 0..1");
    }
    if (score.question() >= spec.task().train_questions()) return bad("a question does not exist");
    if (!seen.insert(score.question()).second) return bad("a question is there twice");
    sum += score.score();
  }
  if (!(std::abs(sum / result.scores_size() - result.reward()) <= 1e-9)) {  // nor NaN
    return bad("the reward is not the mean score");
  }
  if (!std::isfinite(result.behaviour_log_prob()) || result.behaviour_log_prob() > 0) {
    return bad("the log-probability is not a finite number below 0");
  }
  if (!(result.seconds() >= 0 && result.seconds() < 1e7)) return bad("the duration makes no sense");
  // Questions are a function of the ticket, in integers, so the same on every machine.
  const auto questions = questionsOf(spec, result.ticket());
  for (size_t i = 0; i < questions.size(); ++i) {
    if (result.scores(static_cast<int>(i)).question() != questions[i]) {
      return bad("its questions are not those of its ticket");
    }
  }
  return behaviour == nullptr ? Status() : checkBehaviour(spec, *behaviour, result);
}

std::string policyDigest(const v1::PolicySnapshot& policy) {
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    policy.SerializeToCodedStream(&coded);
  }
  return sha256Hex(bytes);
}

}  // namespace allot
