#include "core/learning/learning_checks.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "core/learning/additive.h"
#include "core/learning/betting.h"
#include "core/learning/budget_learning.h"
#include "core/learning/confirmation.h"
#include "core/learning/logistic_update.h"
#include "core/learning/measured.h"
#include "core/learning/policy.h"
#include "core/learning/update.h"

namespace allot {
namespace {

// Limit of logits and moments. No run reaches it, and sums below it cannot overflow.
constexpr double kMostLogit = 1e12;
// Limit of a surrogate's precision and evidence.
constexpr double kMostEvidence = 1e15;
// Limits of a confirmation's counts, and of the numbers of question sets.
constexpr uint64_t kMostAnswers = uint64_t{1} << 40;
constexpr uint32_t kMostConfirmations = 1u << 30;
constexpr uint64_t kMostSets = ~uint64_t{0} >> 16;

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
  return problem.isSchedule({samples.begin(), samples.end()});
}

bool isPolicyOf(const AdditiveProblem& problem, Learner learner, const v1::BudgetPolicy& policy) {
  const int64_t logits = learner == Learner::kReinforce ? problem.entries : 0;
  return policy.logits_size() == logits && areBetween(policy.logits(), -kMostLogit, kMostLogit) &&
         isSchedule(policy.learned(), problem) &&
         std::all_of(
             policy.proposals().begin(), policy.proposals().end(),
             [&](const v1::Draws& draws) { return isSchedule(draws.samples(), problem); }) &&
         policy.beats_uniform() == policy.has_claim();
}

// Returns true if these can be the sums of differences of scores.
bool isConfirmation(const v1::Confirmation& confirmation, const AdditiveProblem& problem,
                    const v1::AggregatorState& state) {
  if (confirmation.candidate().empty()) return confirmation.counts().empty();
  uint64_t questions = 0;
  for (const uint64_t count : confirmation.counts()) {
    if (count > kMostAnswers) return false;
    questions += count;
  }
  return isSchedule(confirmation.candidate(), problem) && confirmation.number() > 0 &&
         confirmation.number() <= state.confirmations() && confirmation.next_pair() <= kMostSets &&
         confirmation.lost() <= questions &&
         (confirmation.counts().empty() || confirmation.counts_size() == kDifferenceValues) &&
         std::abs(confirmation.sum()) <= static_cast<double>(questions) + 1;
}

bool isClaim(const v1::Claim& claim, const v1::AggregatorState& state) {
  return claim.confirmation() > 0 && claim.confirmation() <= state.confirmations() &&
         claim.version() <= state.policy().version() && claim.lost() <= claim.questions() &&
         std::abs(claim.mean()) <= 1 && claim.low() > 0 && claim.low() <= 1 &&
         std::abs(claim.high()) <= 1 && claim.error() == errorOf(claim.confirmation());
}

bool isStateOf(const AdditiveProblem& problem, const v1::Spec& spec, const v1::LearnerState& state,
               const v1::AggregatorState& all) {
  const Learner learner = learnerOf(spec.update());
  const int64_t features = learner == Learner::kAdditive ? problem.features() : 0;
  const int64_t moments = learner == Learner::kReinforce ? problem.entries : 0;
  return state.evidence_size() == features &&
         state.precision_size() == features * (features + 1) / 2 &&
         areBetween(state.evidence(), -kMostEvidence, kMostEvidence) &&
         areBetween(state.precision(), -kMostEvidence, kMostEvidence) &&
         hasFactor(state.precision(), features) && state.first_moment_size() == moments &&
         state.second_moment_size() == moments &&
         areBetween(state.first_moment(), -kMostLogit, kMostLogit) &&
         areBetween(state.second_moment(), 0, kMostLogit) &&
         isConfirmation(state.confirmation(), problem, all) &&
         state.lateness() <= (kMostOpenSets << 8) && state.sets_seen() <= kMostSets;
}

Status checkBehaviour(const v1::Spec& spec, const v1::PolicySnapshot& behaviour,
                      const v1::EpisodeResult& result) {
  if (result.policy_sha256() != policyDigest(behaviour)) {
    return fail(ErrorCode::kData, "the policy digest is not that of the version it names");
  }
  const SampleSchedule schedule(result.schedule().begin(), result.schedule().end());
  const Proposed drawn = scheduleOf(spec, behaviour, result.ticket());
  if (schedule != drawn.schedule) {
    return fail(ErrorCode::kData, "the schedule is not that of its ticket under the policy");
  }
  const double expected = drawn.log_probability;
  // The last bits may differ: a worker need not be a build of this arithmetic.
  if (std::abs(expected - result.behaviour_log_prob()) > 1e-6 * (1 + std::abs(expected))) {
    return fail(ErrorCode::kData, "the log-probability is not that of the policy it names");
  }
  return {};
}

// Checks the policy's logits, the optimiser's moments, the lag counts and the moving baseline.
Status checkSteps(uint32_t layers, const v1::AggregatorState& state) {
  const auto size = static_cast<int64_t>(layers);
  if (state.policy().logits_size() == size && state.first_moment_size() == size &&
      state.second_moment_size() == size &&
      state.lag_counts_size() == static_cast<int64_t>(kLagBuckets) &&
      areBetween(state.policy().logits(), -kMostLogit, kMostLogit) &&
      areBetween(state.first_moment(), -kMostLogit, kMostLogit) &&
      areBetween(state.second_moment(), 0, kMostLogit) && std::isfinite(state.moving_baseline())) {
    return {};
  }
  return fail(ErrorCode::kData,
              "its state does not fit a model of " + std::to_string(layers) + " layers");
}

}  // namespace

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
  const uint32_t budget = totalBudgets(spec.policy())[placeOf(spec, result.ticket()).budget];
  if (state.policy().has_prices()) {
    const auto price = priceOf(scheduleFrom(result.schedule()), pricesOf(state.policy()));
    if (!price || *price > unitsOf(budget, static_cast<uint32_t>(state.policy().logits_size()))) {
      return bad("the schedule is not one that its total budget buys");
    }
  } else if (total != uint64_t{budget} * per_layer) {
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
    if (score.question() >= trainingQuestions(spec.task())) return bad("a question does not exist");
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
  const auto questions = questionsOf(spec, state.policy(), result.ticket());
  for (size_t i = 0; i < questions.size(); ++i) {
    if (result.scores(static_cast<int>(i)).question() != questions[i]) {
      return bad("its questions are not those of its ticket");
    }
  }
  if (behaviour == nullptr) {
    return bad("its policy is too old: policies before the newest ones are not kept");
  }
  return checkBehaviour(spec, *behaviour, result);
}

Status checkFrontier(const v1::Experiment& experiment, const ModelShape& shape,
                     const v1::PolicySnapshot& policy) {
  const auto wrong = [](const std::string& what) {
    return fail(ErrorCode::kData, "its policy is not one of its experiment: " + what);
  };
  const v1::Spec& spec = experiment.spec();
  const PriceList stored = pricesOf(policy);
  const bool is_unknown = priceOf(spec.policy()) == Price::kBytes && shape.head_dim == 0;
  const PriceList prices = is_unknown ? stored : priceListOf(spec, shape);
  if (stored != prices || policy.has_prices() != hasPrices(spec.policy()) ||
      policy.prices().reads_size() != policy.prices().prices_size()) {
    return wrong(
        "other prices, of another model or another spec.policy.price, stepTimes, minPerLayer or "
        "zeroReads, "
        "spec.attention.decode, spec.task.contextTokens or spec.model.kvDtype: keep these, or "
        "begin anew");
  }
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
    const bool has_room = prices.empty()
                              ? uint64_t{spec.policy().min_per_layer()} * shape.layers <= totals[b]
                              : isAffordable(totals[b], shape.layers, prices);
    const v1::BudgetPolicy& of = policy.frontier().budgets(static_cast<int>(b));
    if (has_room && of.total_budget() == totals[b] &&
        isPolicyOf(problemOf(spec, shape.layers, per_layer, totals[b], prices),
                   learnerOf(spec.update()), of)) {
      continue;
    }
    return wrong("at total budget " + std::to_string(totals[b]));
  }
  return {};
}

Status checkBudgets(const v1::Experiment& experiment, const ModelShape& shape,
                    const v1::AggregatorState& state) {
  ALLOT_TRY(checkLearners(experiment, shape, state));
  const auto wrong = [](const char* what) { return fail(ErrorCode::kData, what); };
  for (const v1::LearnerState& learner : state.learners()) {
    if (!learner.sets().empty() || learner.sets_seen() > 0 || learner.lateness() > 0) {
      return wrong("its learners have begun on question sets");
    }
    if (!learner.confirmation().candidate().empty()) return wrong("it has begun a confirmation");
  }
  const v1::Frontier& frontier = state.policy().frontier();
  for (const v1::BudgetPolicy& budget : frontier.budgets()) {
    if (budget.beats_uniform()) return wrong("it claims a schedule before it has asked a question");
    const auto problem = problemOf(experiment.spec(), shape.layers, entriesPerLayer(state.policy()),
                                   budget.total_budget(), pricesOf(state.policy()));
    if (scheduleFrom(budget.learned()) != rivalSchedule(problem, state, budget.total_budget())) {
      return wrong("it publishes another schedule than its rival before it has asked a question");
    }
  }
  if (frontier.asked_of().empty() || frontier.asked_of() == questionsDigest(experiment.spec())) {
    return {};
  }
  return wrong("its learners have seen other questions: keep spec.seed and spec.task");
}

Status checkLearners(const v1::Experiment& experiment, const ModelShape& shape,
                     const v1::AggregatorState& state) {
  ALLOT_TRY(checkFrontier(experiment, shape, state.policy()));
  ALLOT_TRY(checkSteps(shape.layers, state));
  const v1::Spec& spec = experiment.spec();
  const auto wrong = [](const std::string& what) {
    return fail(ErrorCode::kData, "its learners are not those of its experiment: " + what);
  };
  if (state.has_measurement()) ALLOT_TRY(checkMeasurement(state.measurement(), shape.layers));
  const int budgets = state.policy().frontier().budgets_size();
  if (state.learners_size() != budgets) return wrong("another number of total budgets");
  if (state.confirmations() > kMostConfirmations)
    return wrong("a number of confirmations that cannot be");
  if (state.policy().frontier().asked_before() > kMostSets)
    return wrong("questions that cannot be");
  // The next count would be 0, by which Adam's correction divides.
  if (state.optimizer_steps() == UINT64_MAX) return wrong("a number of steps that cannot be");
  for (int b = 0; b < budgets; ++b) {
    const uint32_t total = state.policy().frontier().budgets(b).total_budget();
    const auto problem = problemOf(spec, shape.layers, entriesPerLayer(spec.policy(), shape), total,
                                   pricesOf(state.policy()));
    const v1::BudgetPolicy& policy = state.policy().frontier().budgets(b);
    if (policy.has_claim() && !isClaim(policy.claim(), state))
      return wrong("a claim that cannot be");
    if (isStateOf(problem, spec, state.learners(b), state)) continue;
    return wrong("at total budget " + std::to_string(total));
  }
  return {};
}

}  // namespace allot
