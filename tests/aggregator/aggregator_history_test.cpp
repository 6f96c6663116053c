// What commits is what Replay accepts: old policies, tickets, and what an aggregator that comes
// later knows of them.
#include "core/learning/replay.h"
#include "core/learning/update.h"
#include "tests/aggregator/aggregator_fixture.h"

namespace allot {
namespace {

class AggregatorHistoryTest : public AggregatorTest {
 protected:
  void SetUp() override {
    // Updates of two episodes are the quickest way to a long history.
    v1::Update& update = *run_.experiment.mutable_spec()->mutable_update();
    update.set_episodes_per_update(2);
    update.set_max_updates(5000);
    run_.experiment.mutable_spec()->mutable_evaluation()->set_every_updates(8);
    run_.sha256 = specDigest(run_.experiment);
    announceModel();
  }
  uint64_t ticket() { return worker_->takeTickets({1, UINT64_MAX})->at(0); }
  // Two new tickets' results each, until the policy has this version.
  void learnUntil(Aggregator* aggregator, uint64_t wanted) {
    ASSERT_TRUE(tick(aggregator));  // the first one publishes version 0
    for (int i = 0; version() < wanted && i < 20'000; ++i) {
      for (int k = 0; k < 2; ++k) push(ticket());
      ASSERT_TRUE(tick(aggregator));
      now_ += 10;
    }
    ASSERT_EQ(version(), wanted);
  }
  // As its worker would have sent it, had it not been for the log-probability.
  void pushForged(const v1::EpisodeResult& genuine, const std::string& id) {
    v1::EpisodeResult forged = genuine;
    forged.set_result_id(id);
    forged.set_behaviour_log_prob(genuine.behaviour_log_prob() - 1);
    ASSERT_EQ(*worker_->pushResult(forged, 100), PushOutcome::kAccepted);
  }
  // Every update again, as `allot verify` does.
  void verify() {
    Replay replay(run_.experiment, initialState(run_.experiment, kLayers), run_.synchronous);
    for (uint64_t after = 0; after < version();) {
      const auto records = worker_->readHistory(after, 1000);
      ASSERT_TRUE(records && !records->empty());
      for (const auto& record : *records) {
        ASSERT_THAT(replay.next(record), succeeds());
      }
      after = records->back().version();
    }
    EXPECT_EQ(policyDigest(replay.state().policy()), (*worker_->readPolicy())->sha256);
  }
  uint64_t refused(const char* kind) { return worker_->readRefusalCounts()->at(kind); }
};

TEST_F(AggregatorHistoryTest, ASuccessorRefusesForgedResultsOfOldPoliciesAsTheFirstDid) {
  auto first = start("first");
  learnUntil(first.get(), 600);
  const v1::EpisodeResult old = episode(ticket());
  learnUntil(first.get(), 1100);
  pushForged(old, "forged-1");
  ASSERT_TRUE(tick(first.get()));
  EXPECT_EQ(refused("invalid"), 1u);
  now_ += 20'000;
  auto second = start("second");
  ASSERT_TRUE(tick(second.get()));
  pushForged(old, "forged-2");
  learnUntil(second.get(), 1102);
  EXPECT_EQ(refused("invalid"), 2u);
  verify();
}

TEST_F(AggregatorHistoryTest, ATicketCountsOnceWhateverItsResultsAreCalled) {
  auto first = start("first");
  learnUntil(first.get(), 1);
  const v1::EpisodeResult counted = (*worker_->readHistory(0, 1))[0].results(0);
  v1::EpisodeResult again = counted;
  again.set_result_id("again");
  ASSERT_EQ(*worker_->pushResult(again, 100), PushOutcome::kAccepted);
  again.set_result_id("and-again");
  ASSERT_EQ(*worker_->pushResult(again, 100), PushOutcome::kAccepted);
  ASSERT_TRUE(tick(first.get()));
  EXPECT_EQ(version(), 1u);
  EXPECT_EQ(refused("superseded"), 2u);
}

// An import writes the newest policy alone; the others are in the history.
TEST_F(AggregatorHistoryTest, AnImportedRunIsCheckedAgainstPoliciesOfTheHistory) {
  auto first = start("first");
  learnUntil(first.get(), 30);
  const v1::EpisodeResult old = episode(ticket());
  learnUntil(first.get(), 60);
  server_->forgetOldPolicies();
  now_ += 20'000;
  auto second = start("second");
  ASSERT_TRUE(tick(second.get()));
  pushForged(old, "forged");
  v1::EpisodeResult again = worker_->readHistory(20, 1)->at(0).results(1);
  again.set_result_id("again");
  ASSERT_EQ(*worker_->pushResult(again, 100), PushOutcome::kAccepted);
  learnUntil(second.get(), 62);
  EXPECT_EQ(refused("invalid"), 1u);
  EXPECT_EQ(refused("superseded"), 1u);
  verify();
}

TEST_F(AggregatorHistoryTest, KeepsThePoliciesOfTheWindowAndThoseThatWereEvaluated) {
  auto store = openMemoryStore(server_);
  auto options = AggregatorOptions{.holder = "a",
                                   .policy_window = 4,
                                   .now = [this] { return now_; },
                                   .unix_now = [this] { return now_; }};
  Aggregator aggregator(store.get(), run_, options);
  learnUntil(&aggregator, 3);
  const v1::EpisodeResult old = episode(ticket());
  learnUntil(&aggregator, 7);
  // By now it is as old as a window.
  ASSERT_EQ(*worker_->pushResult(old, 100), PushOutcome::kAccepted);
  ASSERT_TRUE(tick(&aggregator));
  EXPECT_EQ(refused("stale"), 1u);
  learnUntil(&aggregator, 12);
  std::vector<uint64_t> versions;
  const auto kept = valueOf(worker_->readPolicies(0, 100));
  for (const auto& policy : kept) versions.push_back(policy.version());
  EXPECT_THAT(versions, ElementsAre(0, 8, 9, 10, 11, 12));
}

TEST_F(AggregatorHistoryTest, OnlyTicketsThatWereHandedOutCount) {
  auto aggregator = start("a");
  learnUntil(aggregator.get(), 1);
  for (const uint64_t made_up : {*worker_->nextTicket(), uint64_t{1} << 53, uint64_t{1} << 63}) {
    ASSERT_EQ(*worker_->pushResult(episode(made_up), 100), PushOutcome::kAccepted);
  }
  ASSERT_TRUE(tick(aggregator.get()));
  ASSERT_TRUE(tick(aggregator.get()));
  EXPECT_EQ(refused("invalid"), 3u);
  EXPECT_EQ(version(), 1u);
}

TEST_F(AggregatorHistoryTest, WhatNobodyCanReadDoesNotStayInTheHistory) {
  auto aggregator = start("a");
  ASSERT_TRUE(tick(aggregator.get()));
  for (int i = 0; i < 2; ++i) {
    v1::EpisodeResult result = episode(ticket());
    result.GetReflection()->MutableUnknownFields(&result)->AddLengthDelimited(
        1000, std::string(100'000, 'x'));
    ASSERT_EQ(*worker_->pushResult(result, 100), PushOutcome::kAccepted);
  }
  ASSERT_TRUE(tick(aggregator.get()));
  ASSERT_EQ(version(), 1u);
  EXPECT_LT(worker_->readHistory(0, 1)->at(0).ByteSizeLong(), 5000u);
  verify();
}

TEST_F(AggregatorTest, FactsOfAModelThatCannotBeAreForgotten) {
  auto store = openMemoryStore(server_);
  createRun();
  v1::ModelFacts facts;
  facts.set_layers(60'000'000);
  ASSERT_TRUE(worker_->agreeOnModel(facts));
  auto aggregator = start("a", store.get());
  EXPECT_TRUE(tick(aggregator.get()));
  EXPECT_FALSE(worker_->readModel()->has_value());
  EXPECT_THAT(aggregator->snapshot().last_error, HasSubstr("are mended: model"));
  announceModel();
  EXPECT_TRUE(tick(aggregator.get()));
  EXPECT_EQ(version(), 0u);
}

}  // namespace
}  // namespace allot
