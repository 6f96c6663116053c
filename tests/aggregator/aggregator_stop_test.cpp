// What ends a run before its updates are done: spec.stop.
#include <functional>

#include "tests/aggregator/aggregator_fixture.h"

namespace allot {
namespace {

using Grade = std::function<double(const v1::EvaluationUnit&)>;

class StopTest : public AggregatorTest {
 protected:
  StopTest() { now_ = 10'000'000; }  // the run began at 0, long enough ago for results of an hour
  void experiment(const std::vector<std::string>& settings) {
    run_.experiment = valueOf(withSettings(run_.experiment, settings));
    run_.sha256 = specDigest(run_.experiment);
  }
  // Records all units of one chunk that are not recorded.
  void evaluate(const Grade& grade, double seconds = 0) {
    std::optional<uint32_t> chunk;
    for (const auto& unit : valueOf(worker_->listUnits())) {
      if (chunk.value_or(unit.chunk()) != unit.chunk()) continue;
      if (record(unit, grade(unit), seconds) == PushOutcome::kAccepted) chunk = unit.chunk();
    }
  }
  PushOutcome record(const v1::EvaluationUnit& unit, double score, double seconds) {
    v1::EvaluationResult result = truth(unit, score);
    result.set_seconds(seconds);
    return valueOf(worker_->pushEvaluation(result));
  }
  void pushEpisodes(double seconds = 0) {
    for (int i = 0; i < 3; ++i) {
      auto result = episode(ticket_++);
      result.set_seconds(seconds);
      ASSERT_TRUE(worker_->pushResult(result, 100));
    }
  }
  // Runs to the end; the version that it ended at.
  uint64_t endedAt(const Grade& grade) {
    announceModel();
    const auto aggregator = start("a");
    bool more = tick(aggregator.get());
    for (int i = 0; more && i < 100; ++i) {
      if (*worker_->openUnits() > 0) {
        evaluate(grade);
      } else if (*worker_->inboxSize() == 0) {
        pushEpisodes();
      }
      more = tick(aggregator.get());
    }
    EXPECT_FALSE(more);
    return version();
  }
  Desired desired() { return (**worker_->readControl()).desired; }

  uint64_t ticket_ = 0;
};

struct GoalCase {
  const char* decode;
  const char* other;  // method, before or behind it in the alphabet
};

class GoalTest : public StopTest, public testing::WithParamInterface<GoalCase> {
 protected:
  GoalTest() {
    const std::string decode = GetParam().decode;
    experiment({"spec.attention.decode=" + decode,
                "spec.evaluation.methods=[" + decode + ", " + GetParam().other + "]",
                "spec.evaluation.budgets=[4, 8, 16]", "spec.update.maxUpdates=8"});
    experiment({"spec.stop.goal=0.75"});
  }
  bool isAsked(const v1::EvaluationUnit& unit) {
    return unit.method() == GetParam().decode && unit.schedule_name() == "learned" &&
           unit.total_budget() == 8;
  }
};

TEST_P(GoalTest, OtherMethodsBudgetsAndSchedulesDoNotReachIt) {
  EXPECT_EQ(endedAt([&](const auto& unit) { return isAsked(unit) ? 0.5 : 1.0; }), 8u);
}

TEST_P(GoalTest, TheDecodeMethodReachesItAloneAtItsFirstEvaluation) {
  EXPECT_EQ(endedAt([&](const auto& unit) { return isAsked(unit) ? 0.75 : 0.0; }), 2u);
}

TEST_P(GoalTest, TheNewestEvaluationCounts) {
  EXPECT_EQ(endedAt([&](const auto& unit) {
              return isAsked(unit) && unit.policy_version() >= 4 ? 1.0 : 0.5;
            }),
            4u);
}

INSTANTIATE_TEST_SUITE_P(Methods, GoalTest,
                         testing::Values(GoalCase{"s2anta-sys", "top-k"},
                                         GoalCase{"s2anta-q4", "s2anta-sys"},
                                         GoalCase{"top-k", "s2anta-sys"},
                                         GoalCase{"s2anta-sys", "s2anta-q4"}));

TEST_F(StopTest, AGoalThatWasReachedOnceAndIsNotAnyMoreEndsNothing) {
  experiment({"spec.update.maxUpdates=6"});
  const auto aggregator = lead();
  const Grade grade = [](const auto& unit) { return unit.policy_version() == 2 ? 1.0 : 0.5; };
  while (version() < 4 || *worker_->openUnits() > 0) {
    evaluate(grade);
    if (*worker_->openUnits() == 0 && version() < 4) pushEpisodes();
    ASSERT_TRUE(tick(aggregator.get()));
  }
  set({"spec.stop.goal=0.9"});
  pushEpisodes();
  ASSERT_TRUE(tick(aggregator.get()));
  EXPECT_EQ(version(), 5u);
}

// A cell counts once all of its questions are graded.
TEST_F(StopTest, HalfAnEvaluationReachesNoGoal) {
  experiment({"spec.stop.goal=0.9"});
  const auto aggregator = lead();
  evaluateAll();
  pushEpisodes();
  pushEpisodes();
  while (version() < 2) ASSERT_TRUE(tick(aggregator.get()));
  evaluate([](const auto&) { return 1.0; });  // the first of two chunks
  pushEpisodes();
  ASSERT_TRUE(tick(aggregator.get()));
  ASSERT_TRUE(tick(aggregator.get()));
  EXPECT_EQ(version(), 3u);
}

TEST_F(StopTest, HoursOfEpisodesAndEvaluationsCountTogether) {
  experiment({"spec.stop.maxWorkerHours=1"});
  const auto aggregator = lead();
  for (int chunk = 0; chunk < 2; ++chunk) evaluate([](const auto&) { return 0; }, 600);
  pushEpisodes(790);  // 1200 s and 2370 s are half a minute less than the hour
  ASSERT_TRUE(tick(aggregator.get()));
  ASSERT_TRUE(tick(aggregator.get()));
  EXPECT_EQ(version(), 1u);
  pushEpisodes(10);  // the hour
  ASSERT_FALSE(tick(aggregator.get()));
  EXPECT_EQ(version(), 2u);
  EXPECT_EQ(desired(), Desired::kFinished);
  EXPECT_EQ(*worker_->openUnits(), 0u);  // the evaluation of version 2 is over before it began
}

TEST_F(StopTest, HoursEndASweepItsOpenUnitsAreWithdrawnAndMoreHoursLetItGoOn) {
  run_.experiment.mutable_spec()->clear_update();
  experiment({"spec.evaluation.schedules=[uniform]", "spec.evaluation.budgets=[8, 16]",
              "spec.stop.maxWorkerHours=0.5"});
  const auto aggregator = lead();
  ASSERT_EQ(*worker_->openUnits(), 4u);
  const auto claimed =
      *worker_->claimUnits({.holder = "w", .count = 2, .lease_ms = 1000});  // one of two chunks
  ASSERT_EQ(claimed.size(), 2u);
  record(claimed[0], 1, 1700);
  ASSERT_TRUE(tick(aggregator.get()));
  EXPECT_EQ(*worker_->openUnits(), 3u);
  record(claimed[1], 1, 100);
  EXPECT_FALSE(tick(aggregator.get()));
  EXPECT_EQ(desired(), Desired::kFinished);
  EXPECT_EQ(*worker_->openUnits(), 0u);
  EXPECT_FALSE(tick(aggregator.get()));  // and stays so
  EXPECT_EQ(aggregator->snapshot().phase, Phase::kFinished);
  EXPECT_EQ(*worker_->openUnits(), 0u);

  set({"spec.stop.maxWorkerHours=2"}, Desired::kRunning);
  EXPECT_TRUE(tick(aggregator.get()));
  EXPECT_EQ(*worker_->openUnits(), 2u);  // what is recorded is not done again
  evaluateAll();
  EXPECT_FALSE(tick(aggregator.get()));
  for (const auto& cell : aggregator->snapshot().cells) EXPECT_TRUE(cell.complete);
}

// A successor knows of the hours before it.
TEST_F(StopTest, ASuccessorCountsWhatWasEvaluatedBeforeIt) {
  run_.experiment.mutable_spec()->clear_update();
  experiment({"spec.evaluation.schedules=[uniform]", "spec.stop.maxWorkerHours=1"});
  announceModel();
  ASSERT_TRUE(tick(start("a").get()));
  evaluate([](const auto&) { return 1; }, 3600);
  now_ += 20'000;
  const auto next = start("b");
  for (int i = 0; i < 5 && desired() != Desired::kFinished; ++i) next->tick();
  EXPECT_EQ(desired(), Desired::kFinished);
  EXPECT_EQ(*worker_->openUnits(), 0u);
}

TEST_F(StopTest, AResultOfMoreHoursThanTheRunHasEndsNothing) {
  now_ = 25'000;
  experiment({"spec.stop.maxWorkerHours=2000"});
  const auto aggregator = lead();
  evaluate([](const auto&) { return 0; }, 9.9e6);
  pushEpisodes(9.9e6);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(tick(aggregator.get()));
  EXPECT_EQ(version(), 0u);
  EXPECT_EQ(*worker_->openUnits(), 2u);  // the refused one was opened again
  EXPECT_EQ(worker_->readRefusalCounts()->at("invalid"), 4u);
  for (const Refusal& refusal : valueOf(worker_->readRefusals(4))) {
    EXPECT_EQ(refusal.reason, "worker " + identityOf("w").name() +
                                  " says that its results took 2750.0 h, but the run began 25 s "
                                  "ago: stop this worker, or see whether its machine's clock "
                                  "jumps");
  }
}

TEST_F(StopTest, ResultsOfAWorkerTakeNoMoreThanTheRunHasLasted) {
  experiment({"spec.stop.maxWorkerHours=2000"});
  const auto aggregator = lead();
  evaluate([](const auto&) { return 0; }, 8000);  // one unit; the run began 10,000 s ago
  ASSERT_TRUE(tick(aggregator.get()));
  pushEpisodes(1000);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(tick(aggregator.get()));
  EXPECT_EQ(worker_->readRefusalCounts()->at("invalid"), 1u);  // of 11,000 s together
  EXPECT_EQ(version(), 0u);
  now_ += 1'000'000;
  auto result = episode(ticket_++);
  result.set_seconds(1000);
  ASSERT_TRUE(worker_->pushResult(result, 100));
  ASSERT_TRUE(tick(aggregator.get()));
  EXPECT_EQ(version(), 1u);
  EXPECT_EQ(worker_->readRefusalCounts()->at("invalid"), 1u);

  // A successor knows what has counted, and takes what is honest if its clock is behind.
  now_ += 20'000;
  ASSERT_TRUE(tick(aggregator.get()));
  now_ += 20'000;
  Aggregator next(clients_.emplace_back(openMemoryStore(server_)).get(), run_,
                  {.holder = "b", .now = [this] { return now_; }, .unix_now = [] { return 0; }});
  pushEpisodes(1000);
  for (int i = 0; i < 5; ++i) next.tick();
  EXPECT_EQ(version(), 1u);
  EXPECT_EQ(worker_->readRefusalCounts()->at("invalid"), 4u);
  pushEpisodes(10);
  for (int i = 0; i < 5; ++i) next.tick();
  EXPECT_EQ(version(), 2u);
}

// The clock of a machine may be set back, and its monotonic one stands still while it sleeps.
TEST_F(StopTest, ClocksThatAreBehindRefuseNothing) {
  experiment({"spec.stop.maxWorkerHours=2000"});
  announceModel();
  uint64_t unix_ms = now_;
  Aggregator aggregator(
      clients_.emplace_back(openMemoryStore(server_)).get(), run_,
      {.holder = "a", .now = [this] { return now_; }, .unix_now = [&] { return unix_ms; }});
  ASSERT_TRUE(tick(&aggregator));
  unix_ms = 0;
  now_ += 1'000;
  evaluateAll();
  pushEpisodes(3000);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(tick(&aggregator));
  EXPECT_EQ(version(), 1u);
  unix_ms = 20'000'000;
  pushEpisodes(3000);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(tick(&aggregator));
  EXPECT_EQ(version(), 2u);
}

TEST_F(StopTest, AnEvaluationThatIsRefusedAfterTheLimitIsNotOpenedAgain) {
  run_.experiment.mutable_spec()->clear_update();
  experiment({"spec.evaluation.schedules=[uniform]", "spec.stop.maxWorkerHours=1"});
  const auto aggregator = lead();
  evaluate([](const auto&) { return 1; }, 3600);
  evaluate([](const auto&) { return 2; });  // no score is that high
  EXPECT_FALSE(tick(aggregator.get()));
  EXPECT_FALSE(tick(aggregator.get()));
  EXPECT_EQ(worker_->readRefusalCounts()->at("invalid"), 1u);
  EXPECT_EQ(*worker_->openUnits(), 0u);
}

}  // namespace
}  // namespace allot
