// The aggregator on the in-memory store, with a scripted worker and a clock of the test's own.
#include "aggregator/aggregator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "core/policy_gradient.h"
#include "core/schedule.h"
#include "core/spec.h"
#include "store/memory_store.h"

namespace allot {
namespace {

constexpr uint32_t kLayers = 4;

class AggregatorTest : public testing::Test {
 protected:
  AggregatorTest() {
    const auto parsed = parseExperiment(R"(
apiVersion: allot.dev/v1alpha1
kind: Experiment
metadata: {name: test}
spec:
  seed: 3
  model: {path: none}
  task: {suite: recall, tasks: [niah], trainQuestions: 32, heldOutQuestions: 40}
  policy: {totalBudget: 8}
  rollout: {questionsPerEpisode: 4}
  update: {episodesPerUpdate: 3, maxUpdates: 4}
  evaluation: {everyUpdates: 2, budgets: [8], schedules: [uniform, learned], methods: [s2anta-sys]}
)",
                                        "test");
    EXPECT_TRUE(parsed) << parsed.error().message;
    run_ = {*parsed, specDigest(*parsed), false, 1};
    server_ = std::make_shared<MemoryServer>([this] { return now_; });
    worker_ = openMemoryStore(server_);
  }

  std::unique_ptr<Aggregator> start(const std::string& holder, Store* store) {
    return std::make_unique<Aggregator>(
        store, run_,
        AggregatorOptions{
            .holder = holder, .now = [this] { return now_; }, .unix_now = [this] { return now_; }});
  }
  void announceModel() {
    ASSERT_TRUE(worker_->createRun(run_));
    v1::ModelFacts facts;
    facts.set_layers(kLayers);
    facts.set_weights_sha256("w");
    ASSERT_TRUE(worker_->agreeOnModel(facts));
  }
  v1::EpisodeResult episode(uint64_t ticket) {
    const auto policy = worker_->readPolicy();
    EXPECT_TRUE(policy && *policy);
    const auto& snapshot = (*policy)->snapshot;
    const std::vector<double> logits(snapshot.logits().begin(), snapshot.logits().end());
    const auto schedule = drawSchedule(softmax(logits), 8, 0, 3, ticket);
    v1::EpisodeResult result;
    result.set_result_id("w-" + std::to_string(ticket));
    result.set_ticket(ticket);
    result.set_policy_version(snapshot.version());
    *result.mutable_schedule() = {schedule.begin(), schedule.end()};
    result.set_behaviour_log_prob(logProbability(schedule, logits, 0));
    for (uint32_t q = 0; q < 4; ++q) {
      result.add_scores()->set_question(q);
      result.mutable_scores(static_cast<int>(q))->set_score(q < schedule[1] ? 1 : 0);
    }
    result.set_reward(std::min<double>(schedule[1], 4) / 4);
    return result;
  }
  void push(uint64_t ticket) { ASSERT_TRUE(worker_->pushResult(episode(ticket), 100)); }
  void evaluateAll() {
    while (true) {
      const auto units = worker_->claimUnits({}, 1000);
      ASSERT_TRUE(units);
      if (units->empty()) return;
      for (const auto& unit : *units) {
        v1::EvaluationResult result;
        *result.mutable_unit() = unit;
        for (uint32_t i = 0; i < unit.question_count(); ++i) {
          result.add_scores()->set_question(unit.first_question() + i);
        }
        ASSERT_TRUE(worker_->pushEvaluation(result));
      }
    }
  }
  uint64_t version() { return (*worker_->readPolicy())->snapshot.version(); }

  uint64_t now_ = 1000;
  RunSpec run_;
  std::shared_ptr<MemoryServer> server_;
  std::unique_ptr<MemoryStore> worker_;
};

TEST_F(AggregatorTest, LearnsEvaluatesAndFinishes) {
  auto store = openMemoryStore(server_);
  auto aggregator = start("a", store.get());
  EXPECT_TRUE(*aggregator->tick());
  EXPECT_EQ(aggregator->snapshot().phase, "starting");
  announceModel();
  EXPECT_TRUE(*aggregator->tick());
  EXPECT_EQ(*worker_->openUnits(), 2u);  // uniform, two chunks; learned is uniform at version 0
  evaluateAll();
  for (uint64_t ticket = 0; ticket < 14; ++ticket) push(ticket);
  bool more = true;
  for (int i = 0; more && i < 50; ++i) {
    more = *aggregator->tick();
    evaluateAll();
  }
  EXPECT_FALSE(more);
  EXPECT_EQ(*worker_->readDesired(), "finished");
  const auto snapshot = aggregator->snapshot();
  EXPECT_EQ(snapshot.state.policy().version(), 4u);
  EXPECT_EQ(snapshot.state.episodes(), 12u);
  EXPECT_EQ(snapshot.history.size(), 4u);
  std::vector<std::string> cells;
  for (const auto& cell : snapshot.cells) {
    EXPECT_TRUE(cell.complete);
    cells.push_back(std::to_string(cell.version) + cell.schedule_name);
  }
  EXPECT_THAT(cells, testing::ElementsAre("0uniform", "2learned", "4learned"));
  // Every update again from its record: the same policies.
  auto state = initialState(run_.experiment, kLayers);
  const auto records = worker_->readHistory(0, 10);
  for (const auto& record : *records) {
    state = applyUpdate(run_.experiment, state, {record.results().begin(), record.results().end()})
                .state;
    EXPECT_EQ(policyDigest(state.policy()), record.policy_sha256());
  }
}

TEST_F(AggregatorTest, RefusesWhatCannotBeAndGoesOn) {
  auto store = openMemoryStore(server_);
  announceModel();
  auto aggregator = start("a", store.get());
  ASSERT_TRUE(*aggregator->tick());
  server_->injectIntoInbox("junk", "\xff\xff\xff");
  auto lie = episode(0);
  lie.set_result_id("other");
  server_->injectIntoInbox("name", lie.SerializeAsString());
  auto rich = episode(1);
  rich.set_reward(1e9);
  server_->injectIntoInbox(rich.result_id(), rich.SerializeAsString());
  for (uint64_t ticket = 10; ticket < 13; ++ticket) push(ticket);
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(*aggregator->tick());
  EXPECT_EQ(server_->refused().size(), 3u);
  EXPECT_EQ(version(), 1u);
}

TEST_F(AggregatorTest, ResultsReadBesideOneThatCouldNotBeRefusedAreNotForgotten) {
  auto store = openMemoryStore(server_);
  announceModel();
  auto aggregator = start("a", store.get());
  ASSERT_TRUE(*aggregator->tick());
  server_->injectIntoInbox("junk", "\xff\xff\xff");
  push(0);
  push(1);
  server_->loseNextReject();
  const auto away = aggregator->tick();
  ASSERT_FALSE(away);
  EXPECT_EQ(away.error().code, ErrorCode::kUnavailable);
  push(2);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(*aggregator->tick());
  EXPECT_EQ(server_->refused().size(), 1u);
  EXPECT_EQ(version(), 1u);
}

TEST_F(AggregatorTest, ASuccessorGoesOnAndTheOldOneIsFenced) {
  announceModel();
  auto first_store = openMemoryStore(server_), second_store = openMemoryStore(server_);
  auto first = start("a", first_store.get());
  ASSERT_TRUE(*first->tick());
  for (uint64_t ticket = 0; ticket < 4; ++ticket) push(ticket);
  ASSERT_TRUE(*first->tick());
  EXPECT_EQ(version(), 1u);  // the fourth result is held by the first
  auto second = start("b", second_store.get());
  const auto early = second->tick();
  ASSERT_FALSE(early);
  EXPECT_EQ(early.error().code, ErrorCode::kUnavailable);
  now_ += 20'000;  // the lease runs out
  ASSERT_TRUE(*second->tick());
  push(4);
  push(5);
  ASSERT_TRUE(*second->tick());
  EXPECT_EQ(version(), 2u);  // made of the fourth result, too
  push(6);
  push(7);
  push(8);
  const auto late = first->tick();
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, ErrorCode::kFenced);
  EXPECT_EQ(version(), 2u);
}

TEST_F(AggregatorTest, SynchronousTakesEachTicketOnceUnderItsOwnPolicyAndReissuesLostOnes) {
  run_.synchronous = true;
  announceModel();
  auto store = openMemoryStore(server_);
  auto aggregator = start("a", store.get());
  ASSERT_TRUE(*aggregator->tick());
  evaluateAll();
  const auto tickets = worker_->takeTickets(3, 3);
  EXPECT_THAT(*tickets, testing::ElementsAre(0, 1, 2));
  push(2);
  push(0);
  auto twice = episode(0);
  twice.set_result_id("again");
  ASSERT_TRUE(worker_->pushResult(twice, 100));
  ASSERT_TRUE(*aggregator->tick());
  EXPECT_EQ(server_->refused().size(), 1u);
  EXPECT_TRUE(worker_->takeTickets(1, 3)->empty());
  now_ += 11'000;
  ASSERT_TRUE(*aggregator->tick());
  EXPECT_THAT(*worker_->takeTickets(1, 3), testing::ElementsAre(1));
  push(1);
  ASSERT_TRUE(*aggregator->tick());
  EXPECT_EQ(version(), 1u);
  const auto records = worker_->readHistory(0, 10);
  ASSERT_EQ(records->size(), 1u);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(records->front().results(i).ticket(), uint64_t(i));
}

TEST_F(AggregatorTest, StopsAtItsGoal) {
  run_.experiment.mutable_spec()->mutable_stop()->set_max_gpu_hours(1);
  announceModel();
  auto store = openMemoryStore(server_);
  auto aggregator = start("a", store.get());
  ASSERT_TRUE(*aggregator->tick());
  evaluateAll();
  for (uint64_t ticket = 0; ticket < 3; ++ticket) {
    auto result = episode(ticket);
    result.set_seconds(1200);
    ASSERT_TRUE(worker_->pushResult(result, 100));
  }
  bool more = true;
  for (int i = 0; more && i < 10; ++i) {
    more = *aggregator->tick();
    evaluateAll();
  }
  EXPECT_FALSE(more);
  EXPECT_EQ(version(), 1u);
}

TEST(EvaluationPlan, CoversEveryQuestionOnceForEveryCell) {
  v1::Experiment e;
  auto* spec = e.mutable_spec();
  spec->mutable_policy()->set_total_budget(8);
  spec->mutable_task()->set_held_out_questions(70);
  for (const char* kind : {"uniform", "oneHot", "explicit"}) {
    spec->mutable_evaluation()->add_schedules()->set_kind(kind);
  }
  for (uint32_t n : {5u, 0u, 1u}) {
    spec->mutable_evaluation()->mutable_schedules(2)->add_samples(n);
  }
  for (const char* method : {"dense", "santa"}) spec->mutable_evaluation()->add_methods(method);
  for (uint32_t budget : {6u, 12u}) spec->mutable_evaluation()->add_budgets(budget);
  v1::PolicySnapshot policy;
  for (int l = 0; l < 3; ++l) policy.add_logits(0);
  std::map<std::string, std::set<uint32_t>> questions;
  std::set<std::string> ids;
  for (const auto& unit : planEvaluation(e, policy)) {
    EXPECT_TRUE(ids.insert(unit.unit_id()).second);
    for (uint32_t i = 0; i < unit.question_count(); ++i) {
      const std::string cell =
          unit.method() + " " + unit.schedule_name() + " " + std::to_string(unit.total_budget());
      EXPECT_TRUE(questions[cell].insert(unit.first_question() + i).second);
    }
  }
  // dense; uniform and three oneHot at two budgets each; one explicit
  EXPECT_EQ(questions.size(), 1u + 2 * 4 + 1);
  EXPECT_TRUE(questions.contains("santa explicit-00 6"));
  for (const auto& [cell, asked] : questions) EXPECT_EQ(asked.size(), 70u) << cell;
  policy.set_version(5);
  EXPECT_TRUE(planEvaluation(e, policy).empty());
}

}  // namespace
}  // namespace allot
