#include "core/learning/budget_learning.h"

#include <algorithm>
#include <cassert>
#include <cmath>

#include "core/learning/confirmation.h"
#include "core/learning/gradient.h"
#include "core/learning/measured.h"
#include "core/learning/policy.h"
#include "core/spec/choices.h"

namespace allot {
namespace {

// A schedule is tried if the surrogate's mean of its difference is this many of its standard
// deviations: from a candidate whose confirmation would be given up, from the confirmed schedule,
// and from uniform.
constexpr double kBetterThanTried = 1.5, kBetterThanKnown = 0.5, kBetterThanUniform = 1.0;
// The candidate is given up if it is behind uniform by this many standard errors of kLeastQuestions
// or more.
constexpr double kBehind = 1.0;
constexpr uint64_t kLeastQuestions = 32;
// The measured schedule is the best guess unless the answers have it this far behind the rival, in
// log-odds. That is the surrogate's error where layers are not additive (0.06 to 0.26,
// docs/learning.md).
constexpr double kSurrogateError = 0.25;
// Questions after which a learner without a surrogate, whose policy moves with every update, tries
// another candidate.
constexpr uint64_t kQuestionsOfMoving = 96;
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
        pairs_(freshPairs(spec_)),
        state_(*state),
        policy_(*state->mutable_policy()->mutable_frontier()->mutable_budgets(index)),
        learner_(*state->mutable_learners(index)),
        problem_(problemOf(spec_, static_cast<uint32_t>(state->policy().logits_size()),
                           entriesPerLayer(state->policy()), policy_.total_budget(),
                           pricesOf(state->policy()))),
        rival_(rivalSchedule(problem_, state_, policy_.total_budget())) {}

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
  void judge();
  // Returns true if no uniform schedule has the price of this budget.
  bool lacksUniform() const { return !uniformOf(state_.policy(), policy_.total_budget()); }
  SampleSchedule measured() const;
  SampleSchedule bestGuess(const AdditivePosterior& posterior) const;
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
  SampleSchedule candidate() const { return scheduleFrom(learner_.confirmation().candidate()); }
  // Begins the confirmation of `schedule`. The rival stands for none.
  void confirm(const SampleSchedule& schedule) {
    const bool none = schedule == rival_;
    if (!none) state_.set_confirmations(state_.confirmations() + 1);
    confirmNext(none ? SampleSchedule() : schedule, state_.confirmations(), pairs_, &learner_);
  }
  std::optional<FreshPair> pairOf(const v1::EpisodeResult& result) const {
    return freshPairOf(spec_, state_.policy(), result.ticket());
  }

  const v1::Spec& spec_;
  const uint64_t version_;
  const uint64_t steps_;
  const int index_;
  const uint32_t pairs_;  // fresh ones of a set
  v1::AggregatorState& state_;
  v1::BudgetPolicy& policy_;
  v1::LearnerState& learner_;
  const AdditiveProblem problem_;
  const SampleSchedule rival_;
  std::vector<GradedEpisode> episodes_;  // of this update, for the surrogate
};

void BudgetUpdate::begin() {
  *policy_.mutable_learned() = {rival_.begin(), rival_.end()};
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
  const auto pair = pairOf(result);
  if (additive()) {
    // Each set and each pair has questions, and so a level, of its own.
    const uint64_t group = pair ? 2 * pair->number + 1 : 2 * set;
    episodes_.push_back({scheduleFrom(result.schedule()), result.reward(), group});
  }
  countEpisode(result, set, pair, rival_, &learner_);
}

double BudgetUpdate::learn(const std::vector<v1::EpisodeResult>& results,
                           v1::IterationRecord* record) {
  for (const v1::EpisodeResult& result : results) take(result);
  takePairs(pairsWithQuestions(spec_, state_.policy()), pairs_, problem_.questions, &learner_);
  const std::vector<ComparedResult> compared = compare(results, record->mutable_baselines());
  double squares = 0;
  if (additive()) {
    // A fork has the prior of its origin, in what that has learned.
    if (steps_ == 1 && state_.has_measurement()) {
      beginMeasured(problem_, LayerLosses(state_.measurement()), &learner_);
    }
    if (!episodes_.empty()) observe(problem_, episodes_, &learner_);
    const AdditivePosterior posterior(problem_, learner_);
    judge();
    if (!policy_.beats_uniform()) {
      const SampleSchedule guess = bestGuess(posterior);
      *policy_.mutable_learned() = {guess.begin(), guess.end()};
    }
    if (version_ == 1 && state_.has_measurement() && !lacksUniform()) {
      confirm(measured());
    } else {
      nominate(posterior);
    }
    propose(&posterior);
  } else {
    squares = ascend(spec_, steps_, compared,
                     {problem_.total, policy_.mutable_logits(), learner_.mutable_first_moment(),
                      learner_.mutable_second_moment()},
                     record->mutable_weights());
    judge();
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
    const v1::QuestionSet& set =
        *openSet(placeOf(spec_, result.ticket()).set, pairOf(result), &learner_);
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

// Publishes the candidate if its evidence says that it beats its rival, and keeps the claim's
// evidence up to date. Gives the candidate up if it is behind.
void BudgetUpdate::judge() {
  const SampleSchedule tried = candidate();
  if (tried.empty()) return;
  const v1::Confirmation& confirmation = learner_.confirmation();
  const Evidence evidence = evidenceOf(confirmation);
  const bool is_claimed =
      policy_.has_claim() && policy_.claim().confirmation() == confirmation.number();
  if (evidence.low > 0 || is_claimed) {
    if (!is_claimed) {
      *policy_.mutable_learned() = {tried.begin(), tried.end()};
      policy_.set_beats_uniform(true);
      policy_.mutable_claim()->Clear();
      policy_.mutable_claim()->set_version(version_);
      policy_.mutable_claim()->set_low(-1);
      policy_.mutable_claim()->set_high(1);
    }
    v1::Claim& claim = *policy_.mutable_claim();
    claim.set_confirmation(confirmation.number());
    claim.set_questions(evidence.questions);
    claim.set_lost(confirmation.lost());
    claim.set_mean(evidence.mean);
    claim.set_error(evidence.error);
    // The bounds hold at every look, and so do the narrowest ones.
    claim.set_low(std::max(claim.low(), evidence.low));
    claim.set_high(std::min(claim.high(), evidence.high));
    return;
  }
  if (evidence.questions >= kLeastQuestions && evidence.mean < -kBehind * evidence.mean_error) {
    confirm(rival_);
  }
}

// Returns the measured schedule, with a layer's reads in each of its entries. It is the first one
// that is tried: it is known before any answer is graded.
SampleSchedule BudgetUpdate::measured() const {
  const auto layers = *measuredSchedule(state_, policy_.total_budget(), problem_.min_per_layer);
  SampleSchedule schedule;
  for (const uint32_t reads : layers) schedule.insert(schedule.end(), problem_.per_layer, reads);
  return schedule;
}

// Returns what is published while nothing is confirmed: the measured schedule or, if the answers
// speak against it, the rival. Nothing is claimed of it, and no candidate is compared with it. The
// prior's features are a fit to the losses by which the measured schedule is best. What this fit
// says against that schedule is a misfit, up to 0.48 in recall-priced, and does not count.
SampleSchedule BudgetUpdate::bestGuess(const AdditivePosterior& posterior) const {
  if (!state_.has_measurement()) return rival_;
  const SampleSchedule guess = measured();
  v1::LearnerState prior;
  beginAdditive(problem_, &prior);
  beginMeasured(problem_, LayerLosses(state_.measurement()), &prior);
  const double misfit = AdditivePosterior(problem_, prior).difference(guess, rival_).mean;
  const double ahead = posterior.difference(guess, rival_).mean - std::min(0.0, misfit);
  return ahead < -kSurrogateError ? rival_ : guess;
}

// Begins the confirmation of the surrogate's best schedule, if that is better than the one that is
// tried now or, without one, than the confirmed one or the rival.
void BudgetUpdate::nominate(const AdditivePosterior& posterior) {
  const SampleSchedule best = posterior.best();
  const SampleSchedule known = policy_.beats_uniform() ? scheduleFrom(policy_.learned()) : rival_;
  const bool is_trying = !candidate().empty() && candidate() != known;
  const SampleSchedule against = is_trying ? candidate() : known;
  if (best == against) return;
  const auto gain = posterior.difference(best, against);
  const double bar = is_trying                 ? kBetterThanTried
                     : policy_.beats_uniform() ? kBetterThanKnown
                                               : kBetterThanUniform;
  if (gain.mean > bar * gain.deviation) confirm(best);
}

void BudgetUpdate::nominateMoving() {
  const SampleSchedule now = rounded(logits());
  const bool tried_enough = evidenceOf(learner_.confirmation()).questions >= kQuestionsOfMoving;
  if (now == candidate() || !(candidate().empty() || tried_enough)) return;
  confirm(now);
}

void BudgetUpdate::propose(const AdditivePosterior* posterior) {
  policy_.clear_proposals();
  RandomStream stream = random();
  const auto add_other = [&] { addProposal(posterior->drawn(&stream)); };
  const bool tries = !candidate().empty();
  // Uniform and candidate in turn, for the fresh pairs. What is beyond the proposals is drawn from
  // the logits.
  addProposal(rival_);
  for (uint32_t pair = 0; tries && pair < pairs_; ++pair) {
    if (pair > 0) addProposal(rival_);
    addProposal(candidate());
  }
  if (posterior == nullptr) return;
  const auto wanted = static_cast<int>(episodesOfSet(spec_));
  while (policy_.proposals_size() < wanted) add_other();
}

}  // namespace

SampleSchedule rivalSchedule(const AdditiveProblem& problem, const v1::AggregatorState& state,
                             uint32_t total_budget) {
  if (!state.has_measurement() || uniformOf(state.policy(), total_budget)) {
    return problem.reference();
  }
  return *measuredSchedule(state, total_budget, problem.min_per_layer);
}

std::vector<LayerWorth> layerWorths(const v1::Spec& spec, const v1::AggregatorState& state,
                                    int budget) {
  const v1::LearnerState& learner = state.learners(budget);
  if (learnerOf(spec.update()) != Learner::kAdditive) return {};
  const auto layers = static_cast<uint32_t>(state.policy().logits_size());
  const uint32_t total = state.policy().frontier().budgets(budget).total_budget();
  // An unverified export may hold anything.
  const PriceList prices = pricesOf(state.policy());
  const uint32_t per_layer = entriesPerLayer(state.policy());
  if (layers == 0) return {};
  if (prices.empty() ? uint64_t{layers} * spec.policy().min_per_layer() > total
                     : !isAffordable(total, layers, prices) || per_layer > 1) {
    return {};
  }
  const auto problem = problemOf(spec, layers, per_layer, total, prices);
  const int64_t features = problem.features();
  if (learner.evidence_size() != features ||
      learner.precision_size() != features * (features + 1) / 2) {
    return {};
  }
  const AdditivePosterior posterior(problem, learner);
  const SampleSchedule reference = problem.reference();
  std::vector<LayerWorth> worths;
  for (uint32_t l = 0; l < problem.entries / problem.per_layer; ++l) {
    const uint32_t draws = std::max(1u, reference[size_t{l} * problem.per_layer]);
    const auto estimate = posterior.worth(l, draws);
    worths.push_back({draws, -posterior.inReward(-estimate.mean),
                      -posterior.inReward(estimate.deviation - estimate.mean),
                      -posterior.inReward(-estimate.deviation - estimate.mean)});
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
