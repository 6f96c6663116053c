#include "tests/store/small_run.h"

#include "core/evaluation/evaluation_plan.h"
#include "core/learning/exact_math.h"
#include "core/learning/policy.h"
#include "core/learning/questions.h"
#include "core/learning/schedule.h"
#include "core/learning/update.h"
#include "core/spec/spec.h"
#include "tests/results.h"

namespace allot::test {
namespace {

constexpr uint32_t kBudget = 8;
constexpr uint32_t kQuestions = 4;
constexpr uint32_t kTrainQuestions = 32;
constexpr RunStreams kStreams = {.key = 3};  // spec.seed

const char* const kWorkers[] = {"worker-1", "=HYPERLINK(\"http://x\"),a", "wörker\n\"two\""};

}  // namespace

v1::Experiment smallExperiment() {
  return valueOf(parseExperiment(R"(
apiVersion: allot.dev/v1alpha1
kind: Experiment
metadata: {name: small}
spec:
  seed: 3
  model: {path: none}
  task: {suite: recall, tasks: [niah, multi], trainQuestions: 32, heldOutQuestions: 40}
  policy: {totalBudget: 8}
  rollout: {questionsPerEpisode: 4}
  update: {learner: reinforce, episodesPerUpdate: 3, maxUpdates: 100}
  evaluation: {everyUpdates: 2, budgets: [8, 16], schedules: [uniform, learned], methods: [s2anta-sys]}
)",
                                 "test"));
}

SmallRun::SmallRun(Store* store, bool synchronous, uint32_t layers)
    : store_(*store), layers_(layers) {
  spec_.experiment = smallExperiment();
  spec_.synchronous = synchronous;
  begin();
}

SmallRun::SmallRun(Store* store, const v1::Origin& origin)
    : store_(*store), layers_(static_cast<uint32_t>(origin.state().policy().logits_size())) {
  spec_.experiment = smallExperiment();
  spec_.origin = origin;
  begin();
}

void SmallRun::begin() {
  spec_.sha256 = specDigest(spec_.experiment);
  spec_.started_unix_ms = 1'900'000'000'123;
  spec_.build = "allot 0.1.0 (test)";
  spec_.arithmetic = kArithmetic;
  EXPECT_TRUE(store_.createRun(spec_));
  const auto lease = store_.acquireLease("aggregator", 1'000'000);
  EXPECT_TRUE(lease && lease->held);
  epoch_ = lease->epoch;
  v1::ModelFacts facts;
  facts.set_layers(layers_);
  facts.set_weights_sha256("w");
  EXPECT_TRUE(store_.agreeOnModel(facts));
  const auto first =
      initialState(spec_.experiment, layers_, spec_.origin ? &*spec_.origin : nullptr);
  EXPECT_TRUE(Leadership(store_, epoch_).publishInitial(first.policy(), first));
  policies_.push_back(first.policy());
  planEvaluation();
}

v1::EpisodeResult SmallRun::episode(uint64_t ticket) {
  // Every fifth is of the policy before.
  const bool old = ticket % 5 == 4 && policies_.size() > 1 && !spec_.synchronous;
  const v1::PolicySnapshot& policy = policies_[policies_.size() - (old ? 2 : 1)];
  const std::vector<double> logits(policy.logits().begin(), policy.logits().end());
  const auto schedule = drawSchedule(softmax(logits), kBudget, 0, kStreams, ticket);
  v1::EpisodeResult result;
  result.set_result_id("result-" + std::to_string(ticket));
  result.set_ticket(ticket);
  result.set_policy_version(policy.version());
  result.set_policy_sha256(policyDigest(policy));
  *result.mutable_schedule() = {schedule.begin(), schedule.end()};
  result.set_behaviour_log_prob(logProbability(schedule, logits, 0));
  double sum = 0;
  const auto questions = episodeQuestions(kStreams, ticket, kQuestions, kTrainQuestions);
  for (uint32_t q = 0; q < kQuestions; ++q) {
    auto* score = result.add_scores();
    score->set_question(questions[q]);
    score->set_tokens(5 + q);
    // Thirds do not end in any base; reads in layer 1 are what helps.
    score->set_score(q < schedule[1] ? 1.0 / 3 : 0);
    sum += score->score();
  }
  result.set_reward(sum / kQuestions);
  result.set_seconds(0.1 + static_cast<double>(ticket) / 7);
  result.set_worker(kWorkers[ticket % 3]);
  result.set_device("cpu");
  result.set_build("test");
  result.set_finished_unix_ms(1'900'000'000'000 + ticket);
  return result;
}

void SmallRun::update() {
  const v1::AggregatorState state = valueOf(valueOf(store_.readState()));
  const auto tickets = valueOf(store_.takeTickets({3, uint64_t{1} << 40}));
  for (const uint64_t ticket : tickets) {
    ASSERT_TRUE(store_.pushResult(episode(ticket), 100));
  }
  const auto entries = valueOf(store_.readInbox(3, 1000));
  ASSERT_EQ(entries.size(), 3u);
  Commit commit;
  std::vector<v1::EpisodeResult> results;
  for (const InboxEntry& entry : entries) {
    ASSERT_TRUE(results.emplace_back().ParseFromString(entry.payload));
    commit.consumed.emplace_back(entry.entry_id, entry.result_id);
  }
  const Control control = valueOf(valueOf(store_.readControl()));
  UpdateOutcome outcome = applyUpdate(control.experiment, state, results);
  outcome.record.set_committed_unix_ms(1'900'000'000'000 + state.policy().version());

  commit.expected_version = state.policy().version();
  commit.policy = outcome.state.policy();
  commit.state = outcome.state;
  commit.record = outcome.record;
  ASSERT_THAT(Leadership(store_, epoch_).commit(commit), succeeds());
  policies_.push_back(commit.policy);
}

void SmallRun::planEvaluation() {
  v1::AggregatorState state = valueOf(valueOf(store_.readState()));
  ASSERT_TRUE(Leadership(store_, epoch_)
                  .planUnits(allot::planEvaluation(spec_.experiment, state.policy())));
  state.set_evaluated_version(state.policy().version());
  state.set_has_evaluation(true);
  ASSERT_TRUE(Leadership(store_, epoch_).writeState(state));
}

void SmallRun::evaluate(size_t count) {
  std::vector<v1::EvaluationUnit> units;
  while (units.size() < count) {
    const auto claimed =
        valueOf(store_.claimUnits({.holder = "w", .count = 100, .lease_ms = 1000}));
    ASSERT_FALSE(claimed.empty());
    units.insert(units.end(), claimed.begin(), claimed.end());
  }
  ASSERT_TRUE(store_.releaseUnits("w", {units.begin() + static_cast<long>(count), units.end()}));
  units.resize(count);
  for (const auto& unit : units) {
    v1::EvaluationResult result;
    *result.mutable_unit() = unit;
    for (uint32_t q = 0; q < unit.question_count(); ++q) {
      auto* score = result.add_scores();
      score->set_question(unit.first_question() + q);
      score->set_score((q + unit.total_budget()) % 3 == 0 ? 1 : 0.1);
      score->set_task(score->question() % 2);
      if (q % 5 != 0) continue;
      auto* answer = result.mutable_answers()->add_answers();
      answer->set_question(score->question());
      answer->set_text(std::string("-0, \x1b[2J\0\"\\ ", 12) + kWorkers[q % 3]);
      answer->set_left_out(uint64_t{1} << 60);
    }
    result.set_seconds(1.0 / 3);
    result.set_worker(kWorkers[unit.chunk() % 3]);
    ASSERT_TRUE(store_.pushEvaluation(result));
  }
  acceptEvaluations();
}

void SmallRun::acceptEvaluations() {
  const auto recorded = valueOf(store_.readRecorded(1000));
  ASSERT_TRUE(Leadership(store_, epoch_).acceptEvaluations(recorded));
}

}  // namespace allot::test
