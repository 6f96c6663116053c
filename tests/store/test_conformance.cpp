// The suite that every Store must pass: the same tests on MemoryStore and on a real Redis.
#include <gmock/gmock.h>

#include <chrono>
#include <limits>
#include <thread>

#include "core/digest.h"
#include "store/memory_store.h"
#include "store/redis_connection.h"
#include "tests/store/conformance.h"
#include "tests/store/redis_server.h"

namespace allot::test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class MemoryBackend : public Backend {
 public:
  std::unique_ptr<Store> open() override { return openMemoryStore(server_); }
  void advance(uint64_t ms) override { *now_ += ms; }
  void inject(const std::string& id, const std::string& payload) override {
    server_->injectIntoInbox(id, payload);
  }
  std::vector<std::string> refusedReasons() override {
    std::vector<std::string> reasons;
    for (const auto& refused : server_->refused()) reasons.push_back(refused.reason);
    return reasons;
  }

 private:
  std::shared_ptr<uint64_t> now_ = std::make_shared<uint64_t>(1'000'000);
  std::shared_ptr<MemoryServer> server_ =
      std::make_shared<MemoryServer>([now = now_] { return *now; });
};

class RedisBackend : public Backend {
 public:
  std::unique_ptr<Store> open() override {
    return std::move(*openRedisStore(server_.url(), "run"));
  }
  void advance(uint64_t ms) override { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }
  void inject(const std::string& id, const std::string& payload) override {
    ASSERT_TRUE(raw_.call({"XADD", "allot:{run}:inbox", "*", "id", id, "r", payload}));
  }
  std::vector<std::string> refusedReasons() override {
    std::vector<std::string> reasons;
    const auto reply = raw_.call({"XRANGE", "allot:{run}:dead", "-", "+"});
    for (size_t i = 0; reply && i < reply->view().size(); ++i)
      reasons.emplace_back(reply->view()[i][1][3].text());
    return reasons;
  }

 private:
  RedisServer server_;
  RedisConnection raw_{*parseRedisUrl(server_.url()), 5000};
};

class StoreConformance : public ::testing::TestWithParam<BackendFactory> {
 protected:
  // A lease that outlives the test, and version 0.
  uint64_t lead(const std::string& holder = "first") {
    const auto lease = store_->acquireLease(holder, 3'600'000);
    EXPECT_TRUE(succeeded(lease));
    EXPECT_TRUE(lease->held);
    EXPECT_TRUE(succeeded(store_->publishInitial(lease->epoch, policy(0), state(0))));
    return lease->epoch;
  }
  void push(const std::string& id) {
    EXPECT_EQ(store_->pushResult(result(id), 100).value(), PushOutcome::kAccepted) << id;
  }
  std::vector<std::string> claim(const std::vector<uint32_t>& warm, uint64_t lease_ms = 3'600'000) {
    const auto units = store_->claimUnits(warm, lease_ms);
    EXPECT_TRUE(succeeded(units));
    std::vector<std::string> ids;
    for (const auto& unit : *units) ids.push_back(unit.unit_id());
    return ids;
  }

  std::unique_ptr<Backend> backend_ = GetParam().make();
  std::unique_ptr<Store> store_ = backend_->open();
};

RunSpec runSpec(const std::string& sha256) {
  RunSpec spec;
  spec.experiment.set_name("recall");
  spec.experiment.mutable_spec()->set_seed(7);
  spec.sha256 = sha256;
  spec.synchronous = true;
  spec.started_unix_ms = 1'700'000'000'123;
  return spec;
}

TEST_P(StoreConformance, CreatesARunOnceAndRefusesAnotherExperiment) {
  EXPECT_EQ(store_->readSpec().value(), std::nullopt);
  ASSERT_TRUE(succeeded(store_->createRun(runSpec("aa"))));
  ASSERT_TRUE(succeeded(store_->createRun(runSpec("aa"))));
  const auto other = backend_->open()->createRun(runSpec("bb"));
  EXPECT_TRUE(failsWith(other, ErrorCode::kUsage));
  EXPECT_TRUE(failsWith(store_->createRun(runSpec("")), ErrorCode::kUsage));
  const auto spec = store_->readSpec().value();
  ASSERT_TRUE(spec.has_value());
  EXPECT_EQ(spec->experiment.SerializeAsString(), runSpec("aa").experiment.SerializeAsString());
  EXPECT_EQ(spec->sha256, "aa");
  EXPECT_TRUE(spec->synchronous);
  EXPECT_EQ(spec->started_unix_ms, 1'700'000'000'123u);
}

TEST_P(StoreConformance, TheFirstModelFactsStand) {
  EXPECT_FALSE(store_->readModel().value().has_value());
  v1::ModelFacts first;
  first.set_layers(4);
  v1::ModelFacts second;
  second.set_layers(5);
  EXPECT_EQ(store_->agreeOnModel(first)->layers(), 4u);
  EXPECT_EQ(backend_->open()->agreeOnModel(second)->layers(), 4u);
  EXPECT_EQ(store_->readModel().value()->layers(), 4u);
}

TEST_P(StoreConformance, DesiredIsOneOfFourWords) {
  EXPECT_EQ(store_->readDesired().value(), "running");
  for (const std::string word : {"paused", "stopped", "finished", "running"}) {
    ASSERT_TRUE(succeeded(store_->setDesired(word)));
    EXPECT_EQ(backend_->open()->readDesired().value(), word);
  }
  EXPECT_TRUE(failsWith(store_->setDesired("on fire"), ErrorCode::kUsage));
  EXPECT_EQ(store_->readDesired().value(), "running");
}

TEST_P(StoreConformance, LeaseGoesToOneHolderUntilItExpires) {
  auto other = backend_->open();
  const auto first = store_->acquireLease("a", 100).value();
  EXPECT_TRUE(first.held);
  EXPECT_EQ(first.epoch, 1u);
  const auto refused = other->acquireLease("b", 100).value();
  EXPECT_FALSE(refused.held);
  EXPECT_EQ(refused.holder, "a");
  EXPECT_EQ(store_->acquireLease("a", 100)->epoch, 1u);  // renewed
  backend_->advance(120);
  const auto second = other->acquireLease("b", 3'600'000).value();
  EXPECT_TRUE(second.held);
  EXPECT_EQ(second.epoch, 2u);
  EXPECT_FALSE(store_->acquireLease("a", 100)->held);

  ASSERT_TRUE(succeeded(store_->releaseLease("a")));  // not the holder: no effect
  EXPECT_FALSE(store_->acquireLease("a", 100)->held);
  ASSERT_TRUE(succeeded(other->releaseLease("b")));
  EXPECT_EQ(store_->acquireLease("a", 100)->epoch, 3u);  // an epoch never comes twice
  EXPECT_TRUE(failsWith(store_->acquireLease("", 100), ErrorCode::kUsage));
}

TEST_P(StoreConformance, AnOldEpochIsFencedEverywhere) {
  EXPECT_TRUE(failsWith(store_->publishInitial(0, policy(0), state(0)), ErrorCode::kFenced));
  const uint64_t old_epoch = store_->acquireLease("a", 20)->epoch;
  ASSERT_TRUE(succeeded(store_->publishInitial(old_epoch, policy(0), state(0))));
  push("r1");
  const auto entries = store_->readInbox(10, 0).value();
  backend_->advance(40);
  const uint64_t epoch = backend_->open()->acquireLease("b", 3'600'000)->epoch;

  const auto commit = commitOf(old_epoch, 0, entries);
  EXPECT_TRUE(failsWith(store_->commit(commit), ErrorCode::kFenced));
  EXPECT_TRUE(failsWith(store_->writeState(old_epoch, state(0, 9)), ErrorCode::kFenced));
  EXPECT_TRUE(
      failsWith(store_->publishInitial(old_epoch, policy(0), state(0)), ErrorCode::kFenced));
  EXPECT_TRUE(failsWith(store_->reject(old_epoch, entries[0], "no"), ErrorCode::kFenced));
  EXPECT_TRUE(failsWith(store_->planUnits(old_epoch, {unit(0, 0, "dense")}), ErrorCode::kFenced));
  EXPECT_TRUE(failsWith(store_->planUnits(old_epoch, {}), ErrorCode::kFenced));

  EXPECT_EQ(store_->readPolicy().value()->snapshot.version(), 0u);
  EXPECT_EQ(store_->readState().value()->episodes(), 0u);
  EXPECT_EQ(store_->inboxSize().value(), 1u);
  EXPECT_EQ(store_->openUnits().value(), 0u);
  EXPECT_TRUE(succeeded(store_->commit(commitOf(epoch, 0, entries))));
}

TEST_P(StoreConformance, PublishesTheFirstPolicyOnce) {
  EXPECT_FALSE(store_->readPolicy().value().has_value());
  EXPECT_FALSE(store_->readState().value().has_value());
  const uint64_t epoch = lead();
  auto other = policy(0);
  other.set_logits(0, 99);
  EXPECT_TRUE(succeeded(store_->publishInitial(epoch, other, state(0, 5))));
  EXPECT_FALSE(store_->publishInitial(epoch, policy(1), state(1)).has_value());
  const auto published = store_->readPolicy().value();
  ASSERT_TRUE(published.has_value());
  EXPECT_EQ(published->snapshot.SerializeAsString(), policy(0).SerializeAsString());
  EXPECT_EQ(published->sha256, sha256Hex(policy(0).SerializeAsString()));
  EXPECT_EQ(store_->readState().value()->episodes(), 0u);
  ASSERT_TRUE(succeeded(store_->writeState(epoch, state(0, 7))));
  EXPECT_EQ(store_->readState().value()->episodes(), 7u);
}

TEST_P(StoreConformance, PushCountsAResultOnceAndPushesBack) {
  const uint64_t epoch = lead();
  EXPECT_EQ(store_->pushResult(result("r1"), 2).value(), PushOutcome::kAccepted);
  EXPECT_EQ(backend_->open()->pushResult(result("r1"), 2).value(), PushOutcome::kDuplicate);
  EXPECT_EQ(store_->pushResult(result("r2"), 2).value(), PushOutcome::kAccepted);
  EXPECT_EQ(store_->pushResult(result("r3"), 2).value(), PushOutcome::kFull);
  EXPECT_EQ(store_->pushResult(result("r2"), 2).value(), PushOutcome::kDuplicate);  // not kFull
  EXPECT_EQ(store_->inboxSize().value(), 2u);
  EXPECT_TRUE(failsWith(store_->pushResult(result(""), 2), ErrorCode::kUsage));

  const auto entries = store_->readInbox(10, 0).value();
  ASSERT_TRUE(succeeded(store_->commit(commitOf(epoch, 0, entries))));
  EXPECT_EQ(store_->pushResult(result("r1"), 2).value(), PushOutcome::kDuplicate);  // consumed
  EXPECT_EQ(store_->pushResult(result("r3"), 2).value(), PushOutcome::kAccepted);
  EXPECT_EQ(store_->inboxSize().value(), 1u);
}

TEST_P(StoreConformance, CommitIsACompareAndSetOnTheVersion) {
  const uint64_t epoch = lead();
  for (const char* id : {"r1", "r2", "r3"}) push(id);
  const auto entries = store_->readInbox(2, 0).value();
  ASSERT_THAT(entries, SizeIs(2));
  const Commit first = commitOf(epoch, 0, entries);
  ASSERT_TRUE(succeeded(store_->commit(first)));
  EXPECT_EQ(store_->readPolicy().value()->sha256, sha256Hex(policy(1).SerializeAsString()));
  EXPECT_EQ(store_->readState().value()->episodes(), 2u);
  EXPECT_EQ(store_->inboxSize().value(), 1u);

  // The reply got lost and the caller tries again: told apart by the digest, never counted twice.
  EXPECT_TRUE(failsWith(store_->commit(first), ErrorCode::kInternal));
  EXPECT_EQ(store_->readPolicy().value()->snapshot.version(), 1u);
  // The same results in another update.
  EXPECT_TRUE(failsWith(store_->commit(commitOf(epoch, 1, entries)), ErrorCode::kInternal));
  // One of them twice, an id that is none, versions that do not follow.
  const auto rest = store_->readInbox(2, 0).value();
  ASSERT_THAT(rest, SizeIs(1));
  EXPECT_FALSE(store_->commit(commitOf(epoch, 1, {rest[0], rest[0]})).has_value());
  EXPECT_FALSE(store_->commit(commitOf(epoch, 1, {{"0-x", "r3", ""}})).has_value());
  EXPECT_FALSE(store_->commit(commitOf(epoch, 1, {{"999999999999999999999-0", "r3", ""}})));
  EXPECT_FALSE(store_->commit(commitOf(epoch, 1, {{entries[0].entry_id, "r3", ""}})).has_value());
  Commit skewed = commitOf(epoch, 1, rest);
  skewed.record.set_version(7);
  EXPECT_FALSE(store_->commit(skewed).has_value());
  EXPECT_FALSE(store_->commit(commitOf(epoch, 5, rest)).has_value());

  EXPECT_EQ(store_->readPolicy().value()->snapshot.version(), 1u);
  EXPECT_EQ(store_->inboxSize().value(), 1u);
  EXPECT_THAT(store_->readHistory(0, 10).value(), SizeIs(1));
  EXPECT_TRUE(succeeded(store_->commit(commitOf(epoch, 1, rest))));
  EXPECT_TRUE(succeeded(store_->commit(commitOf(epoch, 2, {}))));
  EXPECT_EQ(store_->inboxSize().value(), 0u);
}

TEST_P(StoreConformance, CommitNeedsAPolicy) {
  const uint64_t epoch = store_->acquireLease("a", 3'600'000)->epoch;
  EXPECT_TRUE(failsWith(store_->commit(commitOf(epoch, 0, {})), ErrorCode::kInternal));
  EXPECT_FALSE(store_->readPolicy().value().has_value());
}

TEST_P(StoreConformance, HistoryIsInOrderAndComplete) {
  const uint64_t epoch = lead();
  EXPECT_THAT(store_->readHistory(0, 10).value(), IsEmpty());
  for (uint64_t v = 0; v < 12; ++v) {
    push("r" + std::to_string(v));
    const auto entries = store_->readInbox(5, 0).value();
    ASSERT_TRUE(succeeded(store_->commit(commitOf(epoch, v, entries))));
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
  ASSERT_TRUE(succeeded(store_->commit(commitOf(epoch, 0, {again[0], again[2]}))));
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

TEST_P(StoreConformance, RejectTakesAnEntryOutForGood) {
  const uint64_t epoch = lead();
  push("good");
  push("bad");
  backend_->inject("good", std::string("\xff\x00garbage", 9));  // forged: another's result id
  backend_->inject("", "");
  const auto entries = store_->readInbox(10, 0).value();
  ASSERT_THAT(resultIds(entries), ElementsAre("good", "bad", "good", ""));
  EXPECT_EQ(entries[2].payload, std::string("\xff\x00garbage", 9));

  ASSERT_TRUE(succeeded(store_->reject(epoch, entries[2], "undecodable")));
  EXPECT_EQ(store_->inboxSize().value(), 3u);
  EXPECT_FALSE(store_->commit(commitOf(epoch, 0, {entries[2]})).has_value());
  ASSERT_TRUE(succeeded(store_->reject(epoch, entries[3], "no id")));
  ASSERT_TRUE(succeeded(store_->reject(epoch, entries[1], "stale")));
  ASSERT_TRUE(succeeded(store_->reject(epoch, entries[1], "stale")));  // repeated: no effect
  EXPECT_THAT(backend_->refusedReasons(), ElementsAre("undecodable", "no id", "stale"));
  EXPECT_EQ(store_->pushResult(result("bad"), 10).value(), PushOutcome::kDuplicate);
  EXPECT_FALSE(store_->commit(commitOf(epoch, 0, {entries[1]})).has_value());
  EXPECT_TRUE(failsWith(store_->reject(epoch, {"nonsense", "x", ""}, "no"), ErrorCode::kUsage));

  ASSERT_TRUE(succeeded(store_->reopenInbox()));
  EXPECT_THAT(resultIds(store_->readInbox(10, 0)), ElementsAre("good"));
  EXPECT_TRUE(succeeded(store_->commit(commitOf(epoch, 0, {entries[0]}))));
}

TEST_P(StoreConformance, TicketsAreConsecutiveLimitedAndReissued) {
  constexpr uint64_t kNoLimit = std::numeric_limits<uint64_t>::max();
  EXPECT_THAT(store_->takeTickets(2, 5).value(), ElementsAre(0, 1));
  EXPECT_THAT(backend_->open()->takeTickets(3, 5).value(), ElementsAre(2, 3, 4));
  EXPECT_THAT(store_->takeTickets(1, 5).value(), IsEmpty());
  EXPECT_THAT(store_->takeTickets(2, 6).value(), IsEmpty());  // all or none
  EXPECT_THAT(store_->takeTickets(1, 6).value(), ElementsAre(5));
  EXPECT_THAT(store_->takeTickets(0, 100).value(), IsEmpty());

  ASSERT_TRUE(succeeded(store_->reissueTicket(3)));
  ASSERT_TRUE(succeeded(store_->reissueTicket(3)));  // repeated: once
  ASSERT_TRUE(succeeded(store_->reissueTicket(0)));
  EXPECT_THAT(store_->takeTickets(4, 6).value(), ElementsAre(0));
  EXPECT_THAT(store_->takeTickets(4, kNoLimit).value(), ElementsAre(3));
  EXPECT_THAT(store_->takeTickets(4, kNoLimit).value(), ElementsAre(6, 7, 8, 9));

  ASSERT_TRUE(succeeded(store_->reissueTicket(1)));
  ASSERT_TRUE(succeeded(store_->resetTickets(4)));
  EXPECT_THAT(store_->takeTickets(1, kNoLimit).value(), ElementsAre(4));
  ASSERT_TRUE(succeeded(store_->resetTickets(uint64_t{1} << 53)));  // the largest
  EXPECT_THAT(store_->takeTickets(1, kNoLimit).value(), ElementsAre(uint64_t{1} << 53));
  EXPECT_TRUE(failsWith(store_->resetTickets(kNoLimit), ErrorCode::kUsage));
  EXPECT_TRUE(failsWith(store_->reissueTicket(kNoLimit), ErrorCode::kUsage));
}

TEST_P(StoreConformance, UnitsAreClaimedByGroupAndWarmChunksFirst) {
  const uint64_t epoch = lead();
  EXPECT_THAT(claim({}), IsEmpty());
  // Version 10 after 9, chunk 10 after 2: numbers, not text, decide.
  ASSERT_TRUE(succeeded(store_->planUnits(
      epoch, {unit(10, 1, "dense"), unit(9, 2, "santa"), unit(9, 2, "dense"), unit(9, 10, "dense"),
              unit(10, 2, "dense"), unit(10, 10, "dense"), unit(11, 5, "dense")})));
  EXPECT_EQ(store_->openUnits().value(), 7u);
  EXPECT_THAT(claim({5}), ElementsAre("v11/c5/dense"));                 // warm before old
  EXPECT_THAT(claim({10, 1}), ElementsAre("v9/c10/dense"));             // warm, the older version
  EXPECT_THAT(claim({1}), ElementsAre("v10/c1/dense"));                 // warm before old
  EXPECT_THAT(claim({77}), ElementsAre("v9/c2/dense", "v9/c2/santa"));  // cold: the oldest, whole
  EXPECT_THAT(claim({}), ElementsAre("v10/c2/dense"));
  EXPECT_THAT(claim({}), ElementsAre("v10/c10/dense"));
  EXPECT_THAT(claim({1, 2, 10}), IsEmpty());
  EXPECT_EQ(store_->openUnits().value(), 7u);  // claimed, not recorded
}

TEST_P(StoreConformance, UnitsAreRecordedOnceAndClaimsExpire) {
  const uint64_t epoch = lead();
  const auto a = unit(1, 0, "a"), b = unit(1, 0, "b");
  ASSERT_TRUE(succeeded(store_->planUnits(epoch, {a, b, b})));
  EXPECT_THAT(claim({}, 60), ElementsAre(a.unit_id(), b.unit_id()));
  ASSERT_TRUE(succeeded(store_->planUnits(epoch, {a, b})));  // planned again: the claim stands
  EXPECT_THAT(claim({}), IsEmpty());
  EXPECT_EQ(store_->pushEvaluation(evaluationOf(a, "w1")).value(), PushOutcome::kAccepted);
  EXPECT_EQ(store_->pushEvaluation(evaluationOf(a, "w2")).value(), PushOutcome::kDuplicate);
  EXPECT_EQ(store_->openUnits().value(), 1u);
  ASSERT_TRUE(succeeded(store_->releaseUnits({a, b, unit(7, 7, "never planned")})));
  EXPECT_EQ(store_->openUnits().value(), 1u);
  EXPECT_THAT(claim({}, 60), ElementsAre(b.unit_id()));  // given back; a is done
  EXPECT_THAT(claim({}), IsEmpty());
  backend_->advance(80);
  EXPECT_THAT(claim({}), ElementsAre(b.unit_id()));          // w1 died
  ASSERT_TRUE(succeeded(store_->planUnits(epoch, {a, b})));  // a was recorded: not planned again
  EXPECT_EQ(store_->openUnits().value(), 1u);
  EXPECT_EQ(store_->pushEvaluation(evaluationOf(b, "w2")).value(), PushOutcome::kAccepted);
  EXPECT_EQ(store_->openUnits().value(), 0u);
  EXPECT_TRUE(failsWith(store_->planUnits(epoch, {v1::EvaluationUnit()}), ErrorCode::kUsage));
  EXPECT_TRUE(failsWith(store_->pushEvaluation(v1::EvaluationResult()), ErrorCode::kUsage));

  const auto first = store_->readEvaluations("", 1).value();
  ASSERT_THAT(first, SizeIs(1));
  EXPECT_EQ(first[0].result.worker(), "w1");
  const auto second = store_->readEvaluations(first[0].entry_id, 10).value();
  ASSERT_THAT(second, SizeIs(1));
  EXPECT_EQ(second[0].result.unit().unit_id(), b.unit_id());
  EXPECT_THAT(store_->readEvaluations(second[0].entry_id, 10).value(), IsEmpty());
  EXPECT_TRUE(failsWith(store_->readEvaluations("(0-0", 10), ErrorCode::kUsage));
}

TEST_P(StoreConformance, ALargeGridIsClaimedWhole) {
  const uint64_t epoch = lead();
  std::vector<v1::EvaluationUnit> units;
  for (uint32_t i = 0; i < 2400; ++i) units.push_back(unit(3, i % 2, std::to_string(i)));
  ASSERT_TRUE(succeeded(store_->planUnits(epoch, units)));
  EXPECT_EQ(store_->openUnits().value(), 2400u);
  EXPECT_THAT(claim({1}), SizeIs(1200));
  EXPECT_THAT(claim({1}), SizeIs(1200));
  EXPECT_THAT(claim({1}), IsEmpty());
}

TEST_P(StoreConformance, WorkersLiveAsLongAsTheyBeat) {
  v1::WorkerBeat a;
  a.set_worker("a");
  v1::WorkerBeat b;
  b.set_worker("b");
  ASSERT_TRUE(succeeded(store_->beat(b, 3'600'000)));
  ASSERT_TRUE(succeeded(store_->beat(a, 40)));
  a.set_episodes(3);
  ASSERT_TRUE(succeeded(store_->beat(a, 40)));
  const auto both = store_->listWorkers().value();
  ASSERT_THAT(both, SizeIs(2));
  EXPECT_EQ(both[0].episodes(), 3u);
  EXPECT_EQ(both[1].worker(), "b");
  backend_->advance(60);
  ASSERT_THAT(store_->listWorkers().value(), SizeIs(1));
  ASSERT_TRUE(succeeded(store_->beat(a, 3'600'000)));
  ASSERT_TRUE(succeeded(store_->leave("b")));
  ASSERT_TRUE(succeeded(store_->leave("b")));
  const auto left = store_->listWorkers().value();
  ASSERT_THAT(left, SizeIs(1));
  EXPECT_EQ(left[0].worker(), "a");
  EXPECT_TRUE(failsWith(store_->beat(v1::WorkerBeat(), 10), ErrorCode::kUsage));
}

TEST_P(StoreConformance, AnyBytesSurvive) {
  const uint64_t epoch = lead();
  const std::string odd("a\0b\r\n$5\r\n*1 %s {run} '\"", 23);
  auto pushed = result(odd);
  pushed.set_worker(odd);
  ASSERT_EQ(store_->pushResult(pushed, 10).value(), PushOutcome::kAccepted);
  EXPECT_EQ(store_->pushResult(pushed, 10).value(), PushOutcome::kDuplicate);
  const auto entries = store_->readInbox(10, 0).value();
  ASSERT_THAT(resultIds(entries), ElementsAre(odd));
  EXPECT_EQ(entries[0].payload, pushed.SerializeAsString());
  ASSERT_TRUE(succeeded(store_->commit(commitOf(epoch, 0, entries))));
  EXPECT_EQ(store_->readHistory(0, 1).value().at(0).results(0).SerializeAsString(),
            pushed.SerializeAsString());
  auto odd_unit = unit(1, 1, odd);
  ASSERT_TRUE(succeeded(store_->planUnits(epoch, {odd_unit})));
  EXPECT_THAT(claim({}), ElementsAre(odd_unit.unit_id()));
}

INSTANTIATE_TEST_SUITE_P(
    Stores, StoreConformance,
    ::testing::Values(BackendFactory{"Memory", [] { return std::make_unique<MemoryBackend>(); }},
                      BackendFactory{"Redis", [] { return std::make_unique<RedisBackend>(); }}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace allot::test
