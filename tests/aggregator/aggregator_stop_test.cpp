// What ends a run before its updates are done: spec.stop.
#include <functional>

#include "tests/aggregator/aggregator_fixture.h"

namespace allot {
namespace {

using Grade = std::function<double(const v1::EvaluationUnit&)>;

class StopTest : public AggregatorTest {
 protected:
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
