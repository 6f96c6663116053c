#include "core/learning/budget_learning.h"

#include <algorithm>
#include <cassert>
#include <cmath>

#include "core/learning/additive.h"
#include "core/learning/gradient.h"
#include "core/learning/policy.h"
#include "core/learning/trial.h"
#include "core/spec/choices.h"

namespace allot {
namespace {

// Another schedule replaces the candidate if the mean of their difference is this many of its
// standard deviations.
constexpr double kBetter = 0.5;
// With a surrogate a candidate is published only if it is better than uniform by these numbers of
// standard deviations: by the surrogate alone, and by surrogate and trial together.
constexpr double kBelieved = 1.0, kKnown = 1.25;
// Standard deviation of the log-odds by which a surrogate errs because layers are not additive.
constexpr double kMisfit = 0.75;
// Least standard deviation of the surrogate's estimate of a reward.
constexpr double kLeastDeviation = 1e-3;
// Pairs after which a surrogate's candidate must have proved better.
constexpr uint64_t kPairsOfProof = 8;
// Pairs after which a learner without a surrogate, whose policy moves with every update, nominates
// another candidate.
constexpr uint64_t kPairsOfMoving = 4;
// Standard deviations to either side of a normal's mean that hold 95 %.
constexpr double kInterval = 1.96;
// Random streams of a version, one for each of at most 64 total budgets (kMaxListEntries).
constexpr uint64_t kStreamsOfVersion = 64;

// One total budget within an update.
class BudgetUpdate {
 public:
  BudgetUpdate(const v1::Experiment& experiment, v1::AggregatorState* state, int index)
      : spec_(experiment.spec()),
        version_(state->policy().version()),
        steps_(state->optimizer_steps()),
        index_(index),
        policy_(*state->mutable_policy()->mutable_frontier()->mutable_budgets(index)),
        learner_(*state->mutable_learners(index)),
        problem_(problemOf(spec_, static_cast<uint32_t>(state->policy().logits_size()),
                           entriesPerLayer(state->policy()), policy_.total_budget())),
        uniform_(problem_.uniform()) {}

  void begin();
  // Learns from those of the results that are of this budget. Returns the gradient's squared norm.
  double learn(const std::vector<v1::EpisodeResult>& results, v1::IterationRecord* record);

 private:
  bool additive() const { return learnerOf(spec_.update()) == Learner::kAdditive; }
  uint32_t budget() const { return static_cast<uint32_t>(index_); }
  bool isHere(const v1::EpisodeResult& result) const {
    return placeOf(spec_, result.ticket()).budget == budget();
  }
  void take(const v1::EpisodeResult& result);
  std::vector<ComparedResult> compare(const std::vector<v1::EpisodeResult>& results,
                                      google::protobuf::RepeatedField<double>* baselines);
  AdditivePosterior::Estimate gain(const Verdict& verdict,
                                   const AdditivePosterior& posterior) const;
  void judge(const AdditivePosterior* posterior);
  void withdraw() {
    *policy_.mutable_learned() = {uniform_.begin(), uniform_.end()};
    policy_.set_beats_uniform(false);
  }
  void nominate(const AdditivePosterior& posterior);
  void nominateMoving();
  void propose(const AdditivePosterior* posterior);
  SampleSchedule rounded(const std::vector<double>& logits) const {
    return learnedSchedule(softmax(logits), problem_.total, problem_.min_per_layer, problem_.total);
  }
  std::vector<double> logits() const { return {policy_.logits().begin(), policy_.logits().end()}; }
  RandomStream random() const {
    return {runStreams(spec_), Purpose::kLearner, version_ * kStreamsOfVersion + budget()};
  }
  void addProposal(const SampleSchedule& schedule) {
    *policy_.add_proposals()->mutable_samples() = {schedule.begin(), schedule.end()};
  }
  SampleSchedule candidate() const { return scheduleFrom(learner_.trial().candidate()); }
  // Makes `schedule` the candidate. The uniform schedule stands for none.
  void makeCandidate(const SampleSchedule& schedule) {
    tryNext(schedule == uniform_ ? SampleSchedule() : schedule, &learner_);
  }

  const v1::Spec& spec_;
  const uint64_t version_;
  const uint64_t steps_;
  const int index_;
  v1::BudgetPolicy& policy_;
  v1::LearnerState& learner_;
  const AdditiveProblem problem_;
  const SampleSchedule uniform_;
  std::vector<GradedEpisode> episodes_;  // of this update, for the surrogate
};

void BudgetUpdate::begin() {
  *policy_.mutable_learned() = {uniform_.begin(), uniform_.end()};
  if (additive()) {
    beginAdditive(problem_, &learner_);
    const AdditivePosterior prior(problem_, learner_);
    propose(&prior);
    return;
  }
  const auto entries = static_cast<int>(problem_.entries);
  policy_.mutable_logits()->Resize(entries, 0.0);
  learner_.mutable_first_moment()->Resize(entries, 0.0);
  learner_.mutable_second_moment()->Resize(entries, 0.0);
  propose(nullptr);
}

void BudgetUpdate::take(const v1::EpisodeResult& result) {
  if (!isHere(result)) return;
  const uint64_t set = placeOf(spec_, result.ticket()).set;
  if (additive()) {
    episodes_.push_back({scheduleFrom(result.schedule()), result.reward(), set});
  }
  countEpisode(result, set, uniform_, &learner_);
}

double BudgetUpdate::learn(const std::vector<v1::EpisodeResult>& results,
                           v1::IterationRecord* record) {
  for (const v1::EpisodeResult& result : results) take(result);
  const std::vector<ComparedResult> compared = compare(results, record->mutable_baselines());
  double squares = 0;
  if (additive()) {
    if (!episodes_.empty()) observe(problem_, episodes_, &learner_);
    const AdditivePosterior posterior(problem_, learner_);
    judge(&posterior);
    nominate(posterior);
    propose(&posterior);
  } else {
    squares = ascend(spec_, steps_, compared,
                     {problem_.total, policy_.mutable_logits(), learner_.mutable_first_moment(),
                      learner_.mutable_second_moment()},
                     record->mutable_weights());
    judge(nullptr);
    nominateMoving();
    propose(nullptr);
  }
  closeOldSets(&learner_);
  return squares;
}

// Compares each result of this budget with the mean reward of its set's other episodes so far.
// Writes the baselines by index.
std::vector<ComparedResult> BudgetUpdate::compare(
    const std::vector<v1::EpisodeResult>& results,
    google::protobuf::RepeatedField<double>* baselines) {
  std::vector<ComparedResult> compared;
  for (size_t i = 0; i < results.size(); ++i) {
    const v1::EpisodeResult& result = results[i];
    if (!isHere(result)) continue;
    const v1::QuestionSet& set = *openSet(placeOf(spec_, result.ticket()).set, &learner_);
    const bool alone = set.episodes() < 2;
    const double baseline =
        alone ? result.reward() : (set.rewards() - result.reward()) / (set.episodes() - 1);
    const auto index = static_cast<int>(i);
    (*baselines)[index] = baseline;
    compared.push_back(
        {&result, index, result.reward() - baseline, result.behaviour_log_prob() < 0, alone});
  }
  return compared;
}

// Returns the candidate's reward (not log-odds) less uniform's. The surrogate's estimate and the
// trial's count as two independent measurements. The surrogate has seen every episode, those of the
// trial included. The surrogate's error has a part, kMisfit, that no number of episodes removes.
AdditivePosterior::Estimate BudgetUpdate::gain(const Verdict& verdict,
                                               const AdditivePosterior& posterior) const {
  const auto believed = posterior.above(candidate());
  const double off = std::sqrt(believed.deviation * believed.deviation + kMisfit * kMisfit);
  const double deviation = std::max(
      kLeastDeviation,
      (posterior.inReward(believed.mean + off) - posterior.inReward(believed.mean - off)) / 2);
  const double by_surrogate = 1 / (deviation * deviation);
  const double by_trial = verdict.pairs == 0 ? 0 : 1 / (verdict.error * verdict.error);
  const double sum = by_surrogate + by_trial;
  return {(by_surrogate * posterior.inReward(believed.mean) + by_trial * verdict.mean) / sum,
          1 / std::sqrt(sum)};
}

// Publishes the candidate if it beats uniform. Withdraws a published schedule, or the candidate,
// that has lost.
void BudgetUpdate::judge(const AdditivePosterior* posterior) {
  if (learner_.trial().candidate().empty()) return;
  const Verdict verdict = verdictOf(learner_, problem_.questions);
  const SampleSchedule tried = candidate();
  bool beats = verdict.beats();
  bool lost = verdict.loses();
  if (posterior != nullptr) {
    const auto known = gain(verdict, *posterior);
    const auto believed = posterior->above(tried);
    beats = verdict.mean > 0 && believed.mean > kBelieved * believed.deviation &&
            known.mean > kKnown * known.deviation;
    lost = known.mean < 0;
    // The candidate was what the surrogate thought best: without it nothing beats uniform.
    if (!beats && verdict.pairs >= kPairsOfProof) withdraw();
  }
  if (beats) {
    *policy_.mutable_learned() = {tried.begin(), tried.end()};
    policy_.set_beats_uniform(true);
    return;
  }
  if (lost && scheduleFrom(policy_.learned()) == tried) withdraw();
  if (verdict.loses()) makeCandidate(uniform_);
}

void BudgetUpdate::nominate(const AdditivePosterior& posterior) {
  const SampleSchedule best = posterior.best(), tried = candidate();
  if (best == tried || !(posterior.above(best).mean > 0)) return;
  if (!tried.empty()) {
    const auto gain = posterior.difference(best, tried);
    if (!(gain.mean > kBetter * gain.deviation)) return;
  }
  makeCandidate(best);
}

void BudgetUpdate::nominateMoving() {
  const SampleSchedule now = rounded(logits());
  const bool tried_enough = verdictOf(learner_, problem_.questions).pairs >= kPairsOfMoving;
  if (now == candidate() || !(learner_.trial().candidate().empty() || tried_enough)) return;
  makeCandidate(now);
}

void BudgetUpdate::propose(const AdditivePosterior* posterior) {
  policy_.clear_proposals();
  addProposal(uniform_);
  if (!learner_.trial().candidate().empty()) addProposal(candidate());
  if (posterior != nullptr) {
    RandomStream stream = random();
    const auto wanted = static_cast<int>(episodesOfSet(spec_));
    while (policy_.proposals_size() < wanted) addProposal(posterior->drawn(&stream));
  }
}

}  // namespace

std::vector<LayerWorth> layerWorths(const v1::Spec& spec, const v1::AggregatorState& state,
                                    int budget) {
  const v1::LearnerState& learner = state.learners(budget);
  if (learnerOf(spec.update()) != Learner::kAdditive) return {};
  const auto layers = static_cast<uint32_t>(state.policy().logits_size());
  const uint32_t total = state.policy().frontier().budgets(budget).total_budget();
  // An unverified export may hold anything.
  if (layers == 0 || uint64_t{layers} * spec.policy().min_per_layer() > total) return {};
  const auto problem = problemOf(spec, layers, entriesPerLayer(state.policy()), total);
  const int64_t features = problem.features();
  if (learner.evidence_size() != features ||
      learner.precision_size() != features * (features + 1) / 2) {
    return {};
  }
  const AdditivePosterior posterior(problem, learner);
  const SampleSchedule uniform = problem.uniform();
  std::vector<LayerWorth> worths;
  for (uint32_t l = 0; l < problem.entries / problem.per_layer; ++l) {
    const uint32_t draws = std::max(1u, uniform[size_t{l} * problem.per_layer]);
    const auto estimate = posterior.worth(l, draws);
    const double half = kInterval * estimate.deviation;
    worths.push_back({draws, -posterior.inReward(-estimate.mean),
                      -posterior.inReward(half - estimate.mean),
                      -posterior.inReward(-half - estimate.mean)});
  }
  return worths;
}

void beginBudgets(const v1::Experiment& experiment, const ModelShape& shape,
                  v1::AggregatorState* state) {
  const uint32_t per_layer = entriesPerLayer(experiment.spec().policy(), shape);
  if (per_layer > 1) state->mutable_policy()->mutable_frontier()->set_entries_per_layer(per_layer);
  for (const uint32_t total : totalBudgets(experiment.spec().policy())) {
    state->mutable_policy()->mutable_frontier()->add_budgets()->set_total_budget(total);
    state->add_learners();
  }
  for (int b = 0; b < state->learners_size(); ++b) BudgetUpdate(experiment, state, b).begin();
}

double learnBudget(const v1::Experiment& experiment, const std::vector<v1::EpisodeResult>& results,
                   int budget, v1::AggregatorState* state, v1::IterationRecord* record) {
  assert(record->weights_size() == static_cast<int>(results.size()));
  assert(record->baselines_size() == static_cast<int>(results.size()));
  return BudgetUpdate(experiment, state, budget).learn(results, record);
}

}  // namespace allot
