// Results, tickets and workers.
#include <limits>

#include "core/digest.h"
#include "store/checks.h"
#include "tests/identity.h"
#include "tests/store/conformance_suite.h"

namespace allot::test {
namespace {

TEST_P(StoreConformance, PublishesTheFirstPolicyOnce) {
  EXPECT_FALSE(store_->readPolicy().value().has_value());
  EXPECT_FALSE(store_->readState().value().has_value());
  const Leadership leader = lead();
  auto other = policy(0);
  other.set_logits(0, 99);
  EXPECT_TRUE(succeeded(leader.publishInitial(other, state(0, 5))));
  EXPECT_FALSE(leader.publishInitial(policy(1), state(1)).has_value());
  const auto published = valueOf(store_->readPolicy().value());
  EXPECT_EQ(published.snapshot.SerializeAsString(), policy(0).SerializeAsString());
  EXPECT_EQ(published.sha256, sha256Hex(policy(0).SerializeAsString()));
  EXPECT_EQ(store_->readState().value()->episodes(), 0u);
  ASSERT_TRUE(succeeded(leader.writeState(state(0, 7))));
  EXPECT_EQ(store_->readState().value()->episodes(), 7u);
}

// A request may be under way for long; by then an update may have replaced what it writes.
TEST_P(StoreConformance, WritesNoStateOfAnotherVersionThanThePublishedOne) {
  EXPECT_FALSE(Leadership(*store_, 1).writeState(state(0)).has_value());
  const Leadership leader = lead();
  push("r1");
  ASSERT_TRUE(succeeded(leader.commit(commitOf(0, store_->readInbox(1, 0).value()))));
  const uint64_t episodes = store_->readState().value()->episodes();
  for (uint64_t version : {0, 2}) {
    EXPECT_TRUE(failsWith(leader.writeState(state(version, 9)), ErrorCode::kInternal));
  }
  EXPECT_EQ(store_->readState().value()->episodes(), episodes);
  EXPECT_EQ(store_->readState().value()->policy().version(), 1u);
  ASSERT_TRUE(succeeded(leader.writeState(state(1, 9))));
  EXPECT_EQ(store_->readState().value()->episodes(), 9u);
}

TEST_P(StoreConformance, PushCountsAResultOnceAndPushesBack) {
  const Leadership leader = lead();
  EXPECT_EQ(store_->pushResult(result("r1"), 2).value(), PushOutcome::kAccepted);
  EXPECT_EQ(backend_->open()->pushResult(result("r1"), 2).value(), PushOutcome::kDuplicate);
  EXPECT_EQ(store_->pushResult(result("r2"), 2).value(), PushOutcome::kAccepted);
  EXPECT_EQ(store_->pushResult(result("r3"), 2).value(), PushOutcome::kFull);
  EXPECT_EQ(store_->pushResult(result("r2"), 2).value(), PushOutcome::kDuplicate);  // not kFull
  EXPECT_EQ(store_->inboxSize().value(), 2u);
  EXPECT_TRUE(failsWith(store_->pushResult(result(""), 2), ErrorCode::kUsage));

  const auto entries = store_->readInbox(10, 0).value();
  ASSERT_TRUE(succeeded(leader.commit(commitOf(0, entries))));
  EXPECT_EQ(store_->pushResult(result("r1"), 2).value(), PushOutcome::kDuplicate);  // consumed
  EXPECT_EQ(store_->pushResult(result("r3"), 2).value(), PushOutcome::kAccepted);
  EXPECT_EQ(store_->inboxSize().value(), 1u);
}

TEST_P(StoreConformance, CommitIsACompareAndSetOnTheVersion) {
  const Leadership leader = lead();
  for (const char* id : {"r1", "r2", "r3"}) push(id);
  const auto entries = store_->readInbox(2, 0).value();
  ASSERT_THAT(entries, SizeIs(2));
  const Commit first = commitOf(0, entries);
  ASSERT_TRUE(succeeded(leader.commit(first)));
  EXPECT_EQ(store_->readPolicy().value()->sha256, sha256Hex(policy(1).SerializeAsString()));
  EXPECT_EQ(store_->readState().value()->episodes(), 2u);
  EXPECT_EQ(store_->inboxSize().value(), 1u);

  // The reply got lost and the caller tries again: told apart by the digest, never counted twice.
  EXPECT_TRUE(failsWith(leader.commit(first), ErrorCode::kInternal));
  EXPECT_EQ(store_->readPolicy().value()->snapshot.version(), 1u);
  // The same results in another update.
  EXPECT_TRUE(failsWith(leader.commit(commitOf(1, entries)), ErrorCode::kInternal));
  // One of them twice, an id that is none, versions that do not follow.
  const auto rest = store_->readInbox(2, 0).value();
  ASSERT_THAT(rest, SizeIs(1));
  EXPECT_FALSE(leader.commit(commitOf(1, {rest[0], rest[0]})).has_value());
  EXPECT_FALSE(leader.commit(commitOf(1, {{"0-x", "r3", ""}})).has_value());
  EXPECT_FALSE(leader.commit(commitOf(1, {{"999999999999999999999-0", "r3", ""}})));
  EXPECT_FALSE(leader.commit(commitOf(1, {{entries[0].entry_id, "r3", ""}})).has_value());
  Commit skewed = commitOf(1, rest);
  skewed.record.set_version(7);
  EXPECT_FALSE(leader.commit(skewed).has_value());
  EXPECT_FALSE(leader.commit(commitOf(5, rest)).has_value());

  EXPECT_EQ(store_->readPolicy().value()->snapshot.version(), 1u);
  EXPECT_EQ(store_->inboxSize().value(), 1u);
  EXPECT_THAT(store_->readHistory(0, 10).value(), SizeIs(1));
  EXPECT_TRUE(succeeded(leader.commit(commitOf(1, rest))));
  EXPECT_TRUE(succeeded(leader.commit(commitOf(2, {}))));
  EXPECT_EQ(store_->inboxSize().value(), 0u);
}

TEST_P(StoreConformance, CommitNeedsAPolicy) {
  const uint64_t epoch = store_->acquireLease("a", 3'600'000)->epoch;
  EXPECT_TRUE(failsWith(Leadership(*store_, epoch).commit(commitOf(0, {})), ErrorCode::kInternal));
  EXPECT_FALSE(store_->readPolicy().value().has_value());
}

TEST_P(StoreConformance, HistoryIsInOrderAndComplete) {
  const Leadership leader = lead();
  EXPECT_THAT(store_->readHistory(0, 10).value(), IsEmpty());
  for (uint64_t v = 0; v < 12; ++v) {
    push("r" + std::to_string(v));
    const auto entries = store_->readInbox(5, 0).value();
    ASSERT_TRUE(succeeded(leader.commit(commitOf(v, entries))));
  }
  const auto all = store_->readHistory(0, 100).value();
  ASSERT_THAT(all, SizeIs(12));
  for (uint64_t v = 0; v < 12; ++v) {
    EXPECT_EQ(all[v].version(), v + 1);
    ASSERT_EQ(all[v].results_size(), 1);
    EXPECT_EQ(all[v].results(0).result_id(), "r" + std::to_string(v));
  }
  const auto some = store_->readHistory(8, 2).value();
  ASSERT_THAT(some, SizeIs(2));
  EXPECT_EQ(some[0].version(), 9u);
  EXPECT_EQ(some[1].version(), 10u);
  EXPECT_THAT(store_->readHistory(12, 10).value(), IsEmpty());
  EXPECT_THAT(store_->readHistory(std::numeric_limits<uint64_t>::max(), 10).value(), IsEmpty());
  EXPECT_THAT(store_->readHistory(0, 0).value(), IsEmpty());
}

TEST_P(StoreConformance, ACrashedReadersEntriesComeAgain) {
  lead();
  for (const char* id : {"r1", "r2", "r3", "r4"}) push(id);
  EXPECT_THAT(resultIds(store_->readInbox(2, 0)), ElementsAre("r1", "r2"));
  EXPECT_THAT(resultIds(store_->readInbox(1, 0)), ElementsAre("r3"));  // no repeats

  store_ = backend_->open();  // crash
  const uint64_t epoch = store_->acquireLease("first", 3'600'000)->epoch;
  ASSERT_TRUE(succeeded(store_->reopenInbox()));
  push("r5");
  const auto again = store_->readInbox(3, 0).value();
  EXPECT_THAT(resultIds(again), ElementsAre("r1", "r2", "r3"));
  EXPECT_THAT(resultIds(store_->readInbox(10, 0)), ElementsAre("r4", "r5"));
  EXPECT_THAT(resultIds(store_->readInbox(10, 0)), IsEmpty());

  // Consumed ones never come again, others do.
  ASSERT_TRUE(succeeded(Leadership(*store_, epoch).commit(commitOf(0, {again[0], again[2]}))));
  ASSERT_TRUE(succeeded(store_->reopenInbox()));
  EXPECT_THAT(resultIds(store_->readInbox(10, 0)), ElementsAre("r2", "r4", "r5"));
  EXPECT_THAT(resultIds(store_->readInbox(0, 0)), IsEmpty());
}

TEST_P(StoreConformance, ADisplacedReaderTakesNothingAway) {
  auto displaced = backend_->open();
  lead();
  push("r1");
  EXPECT_THAT(resultIds(store_->readInbox(10, 0)), ElementsAre("r1"));
  push("r2");
  EXPECT_THAT(resultIds(displaced->readInbox(10, 0)), ElementsAre("r1", "r2"));
  EXPECT_THAT(resultIds(store_->readInbox(10, 0)), ElementsAre("r2"));
}

TEST_P(StoreConformance, RejectTakesAnEntryOutForGoodAndCountsItOnce) {
  const Leadership leader = lead();
  push("good");
  push("bad");
  backend_->inject("good", std::string("\xff\x00garbage", 9));  // forged: another's result id
  backend_->inject("", "");
  const auto entries = store_->readInbox(10, 0).value();
  ASSERT_THAT(resultIds(entries), ElementsAre("good", "bad", "", ""));  // no push: no name
  EXPECT_EQ(entries[2].payload, std::string("\xff\x00garbage", 9));
  EXPECT_EQ(entries[2].bytes, 9u);

  // Nobody can put a result into a commit that was not pushed, however well it is made.
  EXPECT_FALSE(leader.commit(commitOf(0, {entries[2]})).has_value());
  InboxEntry forged = entries[2];
  forged.result_id = "good";
  EXPECT_TRUE(failsWith(leader.commit(commitOf(0, {forged})), ErrorCode::kInternal));

  ASSERT_TRUE(succeeded(leader.reject(forged, RefusalKind::kUndecodable, "garbage")));
  EXPECT_EQ(store_->inboxSize().value(), 3u);
  ASSERT_TRUE(succeeded(leader.reject(entries[3], RefusalKind::kInvalid, "no id")));
  ASSERT_TRUE(succeeded(leader.reject(entries[1], RefusalKind::kStale, "old")));
  ASSERT_TRUE(
      succeeded(leader.reject(entries[1], RefusalKind::kStale, "old")));  // repeated: no effect
  EXPECT_THAT(refusedReasons(),
              ElementsAre("stale: old", "invalid: no id", "undecodable: garbage"));
  EXPECT_EQ(store_->readRefusals(1)->at(0).result_id, "bad");
  EXPECT_THAT(store_->readRefusals(0).value(), IsEmpty());
  const std::map<std::string, uint64_t> counts = {
      {"undecodable", 1}, {"oversized", 0}, {"invalid", 1}, {"stale", 1}, {"superseded", 0}};
  EXPECT_EQ(backend_->open()->readRefusalCounts().value(), counts);

  EXPECT_EQ(store_->pushResult(result("bad"), 10).value(), PushOutcome::kDuplicate);
  EXPECT_FALSE(leader.commit(commitOf(0, {entries[1]})).has_value());
  EXPECT_TRUE(failsWith(leader.reject({"nonsense", "x", ""}, RefusalKind::kStale, "no"),
                        ErrorCode::kUsage));

  ASSERT_TRUE(succeeded(store_->reopenInbox()));
  EXPECT_THAT(resultIds(store_->readInbox(10, 0)), ElementsAre("good"));
  EXPECT_TRUE(succeeded(leader.commit(commitOf(0, {entries[0]}))));
}

TEST_P(StoreConformance, NothingLargeComesOutOfTheInbox) {
  const Leadership leader = lead();
  auto large = result("large");
  large.set_worker(std::string(kLargestResult, 'x'));
  EXPECT_TRUE(failsWith(store_->pushResult(large, 10), ErrorCode::kUsage));
  large.mutable_worker()->resize(kLargestResult - 100);
  ASSERT_GT(large.ByteSizeLong(), kLargestResult - 100);
  EXPECT_EQ(store_->pushResult(large, 10).value(), PushOutcome::kAccepted);
  backend_->inject("huge", std::string(kLargestResult, 'x'));
  backend_->inject("huge", std::string(kLargestResult + 1, 'x'));
  backend_->inject(std::string(3'000'000, 'n'), "long name");
  const auto entries = store_->readInbox(10, 0).value();
  ASSERT_THAT(entries, SizeIs(4));
  EXPECT_EQ(entries[0].payload, large.SerializeAsString());
  EXPECT_EQ(entries[0].bytes, large.ByteSizeLong());
  EXPECT_THAT(entries[1].payload, SizeIs(kLargestResult));
  EXPECT_THAT(entries[2].payload, IsEmpty());
  EXPECT_EQ(entries[2].bytes, kLargestResult + 1);
  EXPECT_EQ(entries[3].result_id, "");
  for (size_t i = 1; i < 4; ++i)
    ASSERT_TRUE(succeeded(leader.reject(entries[i], RefusalKind::kOversized, "too large")));
  EXPECT_EQ(store_->inboxSize().value(), 1u);
  EXPECT_EQ(store_->readRefusalCounts()->at("oversized"), 3u);

  // Many of a fair size: in several answers, none left out.
  constexpr int kMany = 60;
  for (int i = 0; i < kMany; ++i)
    backend_->inject("many", std::string(kLargestResult, static_cast<char>('A' + i)));
  std::string seen;
  for (int read = 1;; ++read) {
    const auto some = store_->readInbox(1000, 0).value();
    if (some.empty()) break;
    uint64_t bytes = 0;
    for (const InboxEntry& entry : some) {
      bytes += entry.payload.size();
      seen += entry.payload[0];
    }
    EXPECT_LE(bytes, uint64_t{8} * 1024 * 1024);
  }
  ASSERT_THAT(seen, SizeIs(kMany));
  EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
}

TEST_P(StoreConformance, TicketsAreConsecutiveLimitedAndReissued) {
  constexpr uint64_t kNoLimit = std::numeric_limits<uint64_t>::max();
  EXPECT_EQ(store_->nextTicket().value(), 0u);
  EXPECT_THAT(store_->takeTickets({2, 5}).value(), ElementsAre(0, 1));
  EXPECT_EQ(store_->nextTicket().value(), 2u);
  EXPECT_THAT(backend_->open()->takeTickets({3, 5}).value(), ElementsAre(2, 3, 4));
  EXPECT_THAT(store_->takeTickets({1, 5}).value(), IsEmpty());
  EXPECT_THAT(store_->takeTickets({2, 6}).value(), ElementsAre(5));  // up to the limit
  EXPECT_THAT(store_->takeTickets({0, 100}).value(), IsEmpty());

  const Leadership leader = lead();
  ASSERT_TRUE(succeeded(leader.reissueTicket(3)));
  ASSERT_TRUE(succeeded(leader.reissueTicket(3)));  // repeated: once
  ASSERT_TRUE(succeeded(leader.reissueTicket(0)));
  EXPECT_THAT(store_->takeTickets({1, 6}).value(), ElementsAre(0));
  EXPECT_THAT(store_->takeTickets({4, kNoLimit}).value(), ElementsAre(3));
  for (const uint64_t ticket : {1, 2, 4, 5}) ASSERT_TRUE(succeeded(leader.reissueTicket(ticket)));
  // Several at once, but none of an update that is over.
  EXPECT_THAT(store_->takeTickets({.count = 2, .from = 2}).value(), ElementsAre(2, 4));
  EXPECT_THAT(store_->takeTickets({.count = 2, .from = 2}).value(), ElementsAre(5));
  EXPECT_THAT(store_->takeTickets({4, kNoLimit}).value(), ElementsAre(6, 7, 8, 9));

  // One that was never handed out is none to hand out again.
  ASSERT_TRUE(succeeded(leader.reissueTicket(1000)));
  EXPECT_THAT(store_->takeTickets({1, kNoLimit}).value(), ElementsAre(10));

  ASSERT_TRUE(succeeded(leader.reissueTicket(1)));
  ASSERT_TRUE(succeeded(leader.resetTickets(4)));
  EXPECT_THAT(store_->takeTickets({1, kNoLimit}).value(), ElementsAre(4));
  ASSERT_TRUE(succeeded(leader.resetTickets(uint64_t{1} << 53)));  // the largest
  EXPECT_THAT(store_->takeTickets({1, kNoLimit}).value(), ElementsAre(uint64_t{1} << 53));
  EXPECT_TRUE(failsWith(leader.resetTickets(kNoLimit), ErrorCode::kUsage));
  EXPECT_TRUE(failsWith(leader.reissueTicket(kNoLimit), ErrorCode::kUsage));
}

// What many episodes have in common should not all go to whoever asks first.
TEST_P(StoreConformance, TicketsAreSharedAmongLiveWorkers) {
  EXPECT_THAT(store_->takeTickets({.count = 3, .shared = 3}).value(), SizeIs(3));  // nobody beats
  for (const char* name : {"a", "b", "c"}) ASSERT_TRUE(succeeded(beat(name, 3'600'000)));
  EXPECT_THAT(store_->takeTickets({.count = 9, .shared = 7}).value(), ElementsAre(3, 4, 5));
  EXPECT_THAT(store_->takeTickets({.count = 2, .shared = 7}).value(), ElementsAre(6, 7));
  EXPECT_THAT(store_->takeTickets({.count = 9, .shared = 1}).value(), ElementsAre(8));
  EXPECT_THAT(store_->takeTickets({.count = 9, .limit = 11, .shared = 9}).value(),
              ElementsAre(9, 10));
  EXPECT_THAT(store_->takeTickets({.count = 4}).value(), ElementsAre(11, 12, 13, 14));
}

TEST_P(StoreConformance, WorkersLiveAsLongAsTheyBeat) {
  v1::WorkerBeat a;
  a.set_worker("a");
  ASSERT_TRUE(succeeded(beat("b", 3'600'000)));
  ASSERT_TRUE(succeeded(store_->beat({.beat = a, .ttl_ms = 40})));
  a.set_episodes(3);
  ASSERT_TRUE(succeeded(store_->beat({.beat = a, .ttl_ms = 40})));
  const auto both = store_->listWorkers().value();
  ASSERT_THAT(both, SizeIs(2));
  EXPECT_EQ(both[0].episodes(), 3u);
  EXPECT_EQ(both[1].worker(), "b");
  backend_->advance(60);
  ASSERT_THAT(store_->listWorkers().value(), SizeIs(1));
  ASSERT_TRUE(succeeded(store_->beat({.beat = a, .ttl_ms = 3'600'000})));
  ASSERT_TRUE(succeeded(store_->leave("b")));
  ASSERT_TRUE(succeeded(store_->leave("b")));
  const auto left = store_->listWorkers().value();
  ASSERT_THAT(left, SizeIs(1));
  EXPECT_EQ(left[0].worker(), "a");
  EXPECT_TRUE(failsWith(store_->beat({.ttl_ms = 10}), ErrorCode::kUsage));
}

TEST_P(StoreConformance, WhatIsPushedIsSignedByTheWorkerOfTheClient) {
  ASSERT_TRUE(succeeded(store_->createRun(runSpec("aa"))));
  const Leadership leader = lead();
  const auto a = unit(1, 0, "a"), b = unit(1, 0, "b");
  ASSERT_TRUE(succeeded(leader.planUnits({a, b})));
  ASSERT_TRUE(succeeded(store_->pushResult(result("before"), 10)));
  const auto other = backend_->open();
  ASSERT_TRUE(other->readSpec());
  other->signAs(identityOf("other"));
  store_->signAs(identityOf("w"));
  const auto with = answered(evaluationOf(a, "w"), "21");
  ASSERT_TRUE(succeeded(store_->pushEvaluation(with)));
  ASSERT_TRUE(succeeded(other->pushEvaluation(evaluationOf(b, "other"))));
  ASSERT_TRUE(succeeded(other->pushResult(result("r1"), 10)));
  ASSERT_TRUE(succeeded(store_->pushResult(result("r2"), 10)));
  backend_->inject("r3", "x");
  const auto isBy = [&](const char* name, const char* kind, const std::string& bytes,
                        const std::string& signature) {
    const std::string worker = identityOf(name).name();
    return checkSignature(worker, {kind, store_->runId(), "aa"}, bytes, signature).has_value();
  };
  const auto entries = store_->readInbox(10, 0).value();
  ASSERT_THAT(entries, SizeIs(4));
  EXPECT_EQ(entries[0].signature, "");
  EXPECT_TRUE(isBy("other", "result", entries[1].payload, entries[1].signature));
  EXPECT_TRUE(isBy("w", "result", entries[2].payload, entries[2].signature));
  EXPECT_EQ(entries[3].signature, "");
  const auto recorded = store_->readRecorded(10).value();
  ASSERT_THAT(recorded, SizeIs(2));
  EXPECT_TRUE(isBy("w", "evaluation", recorded[0].signed_bytes, recorded[0].signature));
  EXPECT_TRUE(isBy("other", "evaluation", recorded[1].signed_bytes, recorded[1].signature));
  EXPECT_THAT(recorded[0].signed_bytes, EndsWith(with.answers().SerializeAsString()));
  ASSERT_TRUE(succeeded(beat(identityOf("w").name(), 3'600'000)));
  const v1::WorkerBeat seen = store_->listWorkers().value().at(0);
  EXPECT_TRUE(isBy("w", "beat", store::signedBytes(seen), seen.signature()));
  // What is accepted needs no signature any more.
  ASSERT_TRUE(succeeded(leader.acceptEvaluations({recorded[0]})));
  const auto accepted = store_->readAnswers("", 1).value().at(0);
  EXPECT_TRUE(accepted.accepted);
  EXPECT_EQ(accepted.signature + accepted.signed_bytes, "");
}

TEST_P(StoreConformance, AnyBytesSurvive) {
  const Leadership leader = lead();
  const std::string odd("a\0b\r\n$5\r\n*1 %s {run} '\"", 23);
  auto pushed = result(odd);
  pushed.set_worker(odd);
  ASSERT_EQ(store_->pushResult(pushed, 10).value(), PushOutcome::kAccepted);
  EXPECT_EQ(store_->pushResult(pushed, 10).value(), PushOutcome::kDuplicate);
  const auto entries = store_->readInbox(10, 0).value();
  ASSERT_THAT(resultIds(entries), ElementsAre(odd));
  EXPECT_EQ(entries[0].payload, pushed.SerializeAsString());
  ASSERT_TRUE(succeeded(leader.commit(commitOf(0, entries))));
  EXPECT_EQ(store_->readHistory(0, 1).value().at(0).results(0).SerializeAsString(),
            pushed.SerializeAsString());
  auto odd_unit = unit(1, 1, odd);
  ASSERT_TRUE(succeeded(leader.planUnits({odd_unit})));
  EXPECT_THAT(claim({}), ElementsAre(odd_unit.unit_id()));
}

}  // namespace
}  // namespace allot::test
