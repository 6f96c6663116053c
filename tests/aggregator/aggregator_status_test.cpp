// What the aggregator says of a run that seems to stand still, in virtual time.
#include "core/worker_beats.h"
#include "tests/aggregator/aggregator_fixture.h"

namespace allot {
namespace {

class WaitingTest : public AggregatorTest {
 protected:
  void begin() {
    aggregator_ = lead();
    ASSERT_TRUE(aggregator_);
  }
  // What status says after so many seconds more.
  std::string after(uint64_t seconds) {
    for (uint64_t i = 0; i < seconds; ++i) {
      now_ += 1000;
      EXPECT_TRUE(tick(aggregator_.get()));
    }
    const auto status = *worker_->readStatus();
    EXPECT_EQ(aggregator_->snapshot().waiting, status->waiting());
    return status->waiting();
  }

  std::unique_ptr<Aggregator> aggregator_;
};

TEST_F(WaitingTest, WorkersThatEvaluateMakeProgressHoweverLongAUnitTakes) {
  begin();
  for (const char* worker : {"a", "b", "c", "d"}) beat(worker, "evaluation");
  ASSERT_EQ(*worker_->openUnits(), 2u);
  for (int minute = 0; minute < 8; ++minute) EXPECT_EQ(after(60), "");
  evaluateAll();
  EXPECT_EQ(after(60), "");
}

TEST_F(WaitingTest, BetweenTwoSlowEpisodesTheRunProgresses) {
  begin();
  evaluateAll();
  beat("w", "rollout");
  for (uint64_t ticket = 0; ticket < 3; ++ticket) {
    EXPECT_EQ(after(90), "");
    push(ticket);
  }
  EXPECT_EQ(after(90), "");
  EXPECT_EQ(version(), 1u);
}

TEST_F(WaitingTest, WhatIsWaitedForIsSaidOnceNobodyIsAtWork) {
  begin();
  EXPECT_EQ(after(4), "");
  EXPECT_EQ(after(2), "no worker is alive");
  beat("w", "idle");
  EXPECT_EQ(after(1), "2 evaluation units to do, and none of the 1 worker alive is at work");
  evaluateAll();
  EXPECT_EQ(after(4), "");
  push(0, 1);
  EXPECT_EQ(after(4), "");
  EXPECT_EQ(after(2),
            "waiting for episodes: 2 of 3 are in, and none of the 1 worker alive is at work");
  push(2);
  EXPECT_EQ(after(4), "");
  set({}, Desired::kPaused);
  EXPECT_EQ(after(1), "it is paused: allot resume");
}

// A beat ends with its time to live: who is gone is not at work.
TEST_F(WaitingTest, WorkersThatAreGoneAreNotAtWork) {
  begin();
  beat("w", "rollout", "", 45'000);
  EXPECT_EQ(after(44), "");
  EXPECT_EQ(after(2), "no worker is alive");
}

TEST_F(WaitingTest, WorkersWhoseResultsAreAllRefusedMakeNoProgress) {
  begin();
  evaluateAll();
  beat("w", "rollout");
  EXPECT_EQ(after(60), "");
  for (uint64_t ticket = 0; ticket < 3; ++ticket) {
    auto bad = episode(ticket);
    bad.set_reward(2);
    ASSERT_TRUE(worker_->pushResult(bad, 100));
    if (ticket == 2) break;
    EXPECT_EQ(after(10), "");  // that may be one bad worker of many
  }
  EXPECT_THAT(after(10), StartsWith("the last 3 results were refused (refused result w-2: "));
  push(3);
  EXPECT_EQ(after(60), "");
}

TEST_F(WaitingTest, EvaluationsThatAreAllRefusedAreNoProgress) {
  begin();
  beat("w", "evaluation");
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(after(10), "");
    now_ += 1000;
    v1::EvaluationResult bad;
    *bad.mutable_unit() = claimOne();
    bad.set_worker(identityOf("w").name());
    ASSERT_TRUE(worker_->pushEvaluation(bad));
  }
  EXPECT_THAT(after(10), StartsWith("the last 3 results were refused (refused evaluation v"));
}

// Tickets that are handed out again every ten seconds are no progress either.
TEST_F(WaitingTest, ASynchronousRunSaysWhatItWaitsForWhileItReissuesTickets) {
  run_.synchronous = true;
  begin();
  evaluateAll();
  beat("w", "idle");
  EXPECT_EQ(after(4), "");
  for (int i = 0; i < 25; ++i) EXPECT_THAT(after(2), StartsWith("waiting for episodes: 0 of 3"));
}

TEST_F(WaitingTest, LoadingAndFailedWorkersAreNotTakenForWorkers) {
  createRun();
  aggregator_ = start("a");
  EXPECT_EQ(after(2), "no worker is alive");
  beat("one", "failed", "spec.model.path: there is no folder x", kFailureKeptMs);
  now_ += 1000;
  beat("two", "failed", "spec.model.path: there is no folder y", kFailureKeptMs);
  EXPECT_EQ(after(1),
            "no worker is alive; the last one ended: spec.model.path: there is no folder y");
  v1::WorkerBeat loading;
  loading.set_worker("three");
  loading.set_state("loading");
  ASSERT_TRUE(worker_->beat({.beat = loading, .ttl_ms = 3'600'000}));
  EXPECT_THAT(after(1), StartsWith("1 worker still loading the model; the last one ended: "));
  loading.set_loaded_bytes(3'060'000'000);
  loading.set_total_bytes(16'060'000'000);
  ASSERT_TRUE(worker_->beat({.beat = loading, .ttl_ms = 3'600'000}));
  EXPECT_THAT(after(1), StartsWith("1 worker still loading the model (3.1 of 16.1 GB); the last"));
  ASSERT_TRUE(worker_->leave("three"));
  announceModel();
  EXPECT_THAT(after(60), HasSubstr("no folder y"));
  EXPECT_EQ(after(600), "no worker is alive");  // ten minutes are over
}

}  // namespace
}  // namespace allot
