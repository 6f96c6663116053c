// RedisStore when Redis dies, hangs, forgets its scripts or is used by many at once.
#include <signal.h>

#include <atomic>
#include <chrono>
#include <set>
#include <thread>

#include "core/digest.h"
#include "store/redis/redis_connection.h"
#include "tests/results.h"
#include "tests/store/conformance.h"
#include "tests/store/redis_server.h"

namespace allot::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr uint64_t kTimeoutMs = 300;

class RedisFaults : public ::testing::Test {
 protected:
  std::unique_ptr<Store> open(const std::string& run = "run") {
    return std::move(*openRedisStore(server_.url(), run, kTimeoutMs));
  }
  // Every kind of call, each of which must say kUnavailable, and soon.
  void expectOutage(Store& store) {
    using Call = std::function<Status(Store&)>;
    const std::vector<Call> calls = {
        [](Store& s) { return statusOf(s.readPolicy()); },
        [](Store& s) { return statusOf(s.pushResult(result("out"), 10)); },
        [](Store& s) { return statusOf(s.readInbox(1, 100)); },
        [](Store& s) { return statusOf(s.acquireLease("a", 100)); },
        [](Store& s) { return statusOf(s.listWorkers()); },
        [](Store& s) { return Leadership(s, 1).commit(commitOf(0, {})); },
        [](Store& s) { return Leadership(s, 1).writeState(state(0)); },
        [](Store& s) { return Leadership(s, 1).planUnits({unit(0, 0, "a")}); },
    };
    for (const Call& call : calls) {
      const auto start = steady_clock::now();
      const Status status = call(store);
      const auto took = steady_clock::now() - start;
      EXPECT_TRUE(failsWith(status, ErrorCode::kUnavailable));
      if (!status) {
        EXPECT_THAT(status.error().message, HasSubstr(server_.url()));
      }
      EXPECT_LT(took, milliseconds(kTimeoutMs + 100 + 500));
    }
  }

  RedisServer server_;
  RedisConnection raw_{*parseRedisUrl(server_.url()), 5000};
};

TEST_F(RedisFaults, NothingAcknowledgedIsLostInACrash) {
  signal(SIGPIPE, SIG_DFL);  // a write to the dead socket must not kill the test
  auto aggregator = open();
  auto worker = open();
  const Leadership leader = lead(*aggregator);
  for (int i = 0; i < 20; ++i)
    ASSERT_EQ(worker->pushResult(result("r" + std::to_string(i)), 100).value(),
              PushOutcome::kAccepted);
  auto entries = aggregator->readInbox(10, 0).value();
  ASSERT_TRUE(succeeded(leader.commit(commitOf(0, entries))));
  ASSERT_THAT(aggregator->readInbox(5, 0).value(), SizeIs(5));  // delivered, not consumed
  ASSERT_TRUE(succeeded(leader.planUnits({unit(1, 0, "a"), unit(1, 0, "b")})));
  ASSERT_EQ(worker->pushEvaluation(evaluationOf(unit(1, 0, "a"), "w")).value(),
            PushOutcome::kAccepted);
  ASSERT_THAT(worker->takeTickets({3, 10}).value(), ElementsAre(0, 1, 2));

  server_.killHard();
  expectOutage(*aggregator);
  expectOutage(*worker);
  server_.start();

  // The same objects go on. The reader goes on where it was, without repeats.
  EXPECT_EQ(aggregator->readPolicy().value()->sha256, sha256Hex(policy(1).SerializeAsString()));
  EXPECT_EQ(aggregator->readState().value()->policy().version(), 1u);
  EXPECT_THAT(aggregator->readHistory(0, 10).value(), SizeIs(1));
  EXPECT_THAT(resultIds(aggregator->readInbox(10, 0)),
              ElementsAre("r15", "r16", "r17", "r18", "r19"));
  ASSERT_TRUE(succeeded(aggregator->reopenInbox()));
  entries = aggregator->readInbox(100, 0).value();
  EXPECT_THAT(entries, SizeIs(10));
  for (int i = 0; i < 20; ++i)
    EXPECT_EQ(worker->pushResult(result("r" + std::to_string(i)), 100).value(),
              PushOutcome::kDuplicate);
  EXPECT_EQ(aggregator->acquireLease("a", 3'600'000)->epoch, leader.epoch());
  EXPECT_TRUE(succeeded(leader.commit(commitOf(1, entries))));
  EXPECT_EQ(worker->openUnits().value(), 2u);
  EXPECT_THAT(worker->readRecorded(10).value(), SizeIs(1));
  EXPECT_THAT(worker->takeTickets({1, 10}).value(), ElementsAre(3));
}

TEST_F(RedisFaults, AHungServerIsLeftAfterTheTimeoutAndItsLateAnswersAreNotHeard) {
  auto store = open();
  lead(*store);
  server_.freeze();
  EXPECT_TRUE(failsWith(store->pushResult(result("r1"), 10), ErrorCode::kUnavailable));
  EXPECT_TRUE(failsWith(store->takeTickets({1, 10}), ErrorCode::kUnavailable));
  server_.thaw();
  // Whether the push took effect is unknown; repeating it settles it.
  EXPECT_TRUE(succeeded(store->pushResult(result("r1"), 10)));
  EXPECT_EQ(store->inboxSize().value(), 1u);
  EXPECT_EQ(store->nextTicket().value(), 0u);
  EXPECT_EQ(store->readPolicy().value()->snapshot.version(), 0u);
}

TEST_F(RedisFaults, ACommitWhoseReplyIsLostIsToldByTheDigest) {
  auto store = open();
  const Leadership leader = lead(*store);
  ASSERT_TRUE(succeeded(store->pushResult(result("r1"), 10)));
  const Commit commit = commitOf(0, store->readInbox(1, 0).value());
  server_.freeze();
  ASSERT_TRUE(failsWith(leader.commit(commit), ErrorCode::kUnavailable));
  server_.thaw();  // the command waits in the socket and is run now
  const Status again = leader.commit(commit);
  EXPECT_TRUE(again || failsWith(again, ErrorCode::kInternal));
  EXPECT_EQ(store->readPolicy().value()->sha256, sha256Hex(policy(1).SerializeAsString()));
  EXPECT_THAT(store->readHistory(0, 10).value(), SizeIs(1));
  EXPECT_EQ(store->inboxSize().value(), 0u);
}

// The commit goes out before, into or after a freeze; whatever becomes of it, the digest tells.
TEST_F(RedisFaults, ACommitInAFrozenServerTakesEffectOnceOrNotAtAll) {
  auto store = open();
  const Leadership leader = lead(*store);
  constexpr uint64_t kRounds = 20;
  for (uint64_t version = 0; version < kRounds; ++version) {
    ASSERT_TRUE(succeeded(store->pushResult(result("r" + std::to_string(version)), 10)));
    const Commit commit = commitOf(version, store->readInbox(1, 0).value());
    std::thread freezer([&] {
      std::this_thread::sleep_for(std::chrono::microseconds(version * 20));
      server_.freeze();
    });
    const bool told = leader.commit(commit).has_value();
    freezer.join();
    server_.thaw();
    const auto published = store->readPolicy().value();
    const bool applied = published->sha256 == sha256Hex(commit.policy.SerializeAsString());
    EXPECT_EQ(published->snapshot.version(), version + (applied ? 1 : 0));
    EXPECT_TRUE(applied || !told) << "a commit that was acknowledged is lost";
    // A repeated one is refused if the first took effect, and does its work if it did not.
    EXPECT_EQ(leader.commit(commit).has_value(), !applied);
    EXPECT_EQ(store->readPolicy().value()->snapshot.version(), version + 1);
    EXPECT_EQ(store->inboxSize().value(), 0u);
  }
  const auto history = store->readHistory(0, 100).value();
  ASSERT_THAT(history, SizeIs(kRounds));
  for (uint64_t i = 0; i < kRounds; ++i) EXPECT_EQ(history[i].version(), i + 1);
}

TEST_F(RedisFaults, OfTwoAggregatorsTheOlderWritesNothingAnyMore) {
  auto older = open(), newer = open(), worker = open();
  const uint64_t old_epoch = older->acquireLease("older", 50)->epoch;
  ASSERT_TRUE(succeeded(Leadership(*older, old_epoch).publishInitial(policy(0), state(0))));
  ASSERT_TRUE(succeeded(Leadership(*older, old_epoch).planUnits({unit(0, 0, "a")})));
  ASSERT_TRUE(succeeded(worker->pushResult(result("r1"), 10)));
  ASSERT_TRUE(succeeded(worker->pushResult(result("r2"), 10)));
  ASSERT_TRUE(succeeded(worker->pushEvaluation(evaluationOf(unit(0, 0, "a"), "w"))));
  const auto entries = older->readInbox(10, 0).value();
  const auto recorded = older->readRecorded(10).value();
  std::this_thread::sleep_for(milliseconds(60));  // it hangs: its lease runs out
  const uint64_t epoch = newer->acquireLease("newer", 3'600'000)->epoch;
  EXPECT_EQ(epoch, old_epoch + 1);
  EXPECT_THAT(resultIds(newer->readInbox(10, 0)), ElementsAre("r1", "r2"));

  const auto again = unit(0, 0, "a");
  const std::vector<Status> writes = {
      Leadership(*older, old_epoch).publishInitial(policy(0), state(0)),
      Leadership(*older, old_epoch).writeState(state(0, 9)),
      Leadership(*older, old_epoch).publishStatus({}),
      Leadership(*older, old_epoch).commit(commitOf(0, entries)),
      Leadership(*older, old_epoch).reject(entries[0], RefusalKind::kStale, "no"),
      Leadership(*older, old_epoch)
          .rejectEvaluation(recorded[0], RefusalKind::kInvalid, "no", &again, 0),
      Leadership(*older, old_epoch).acceptEvaluations(recorded),
      Leadership(*older, old_epoch).planUnits({unit(0, 1, "b")}),
      statusOf(Leadership(*older, old_epoch).exchangeAudits({})),
  };
  for (size_t i = 0; i < writes.size(); ++i)
    EXPECT_TRUE(failsWith(writes[i], ErrorCode::kFenced)) << i;
  EXPECT_FALSE(older->acquireLease("older", 50)->held);
  ASSERT_TRUE(succeeded(older->releaseLease("older")));  // not its own any more: no effect
  EXPECT_EQ(newer->readLease()->holder, "newer");
  EXPECT_EQ(newer->readState().value()->episodes(), 0u);
  EXPECT_FALSE(newer->readStatus().value().has_value());
  EXPECT_EQ(newer->openUnits().value(), 1u);
  EXPECT_THAT(newer->readRefusals(10).value(), SizeIs(0));
  EXPECT_TRUE(succeeded(Leadership(*newer, epoch).commit(commitOf(0, entries))));
}

// Each commits what it reads, as fast as it can, while the lease goes to and fro.
TEST_F(RedisFaults, TwoAggregatorsAtOnceConsumeEachResultOnce) {
  constexpr int kResults = 300;
  auto worker = open();
  for (int i = 0; i < kResults; ++i)
    ASSERT_TRUE(succeeded(worker->pushResult(result("r" + std::to_string(i)), kResults)));
  auto first = std::move(*openRedisStore(server_.url(), "run", 10'000));
  const uint64_t epoch = first->acquireLease("first", 1)->epoch;
  ASSERT_TRUE(succeeded(Leadership(*first, epoch).publishInitial(policy(0), state(0))));
  const auto lead = [&](const std::string& name) {
    auto store = std::move(*openRedisStore(server_.url(), "run", 10'000));
    const auto start = steady_clock::now();
    while (store->inboxSize().value() > 0 && steady_clock::now() - start < milliseconds(20'000)) {
      const auto lease = store->acquireLease(name, 3).value();
      if (!lease.held) continue;
      ASSERT_TRUE(succeeded(store->reopenInbox()));
      for (int i = 0; i < 4; ++i) {
        const uint64_t version = store->readPolicy().value()->snapshot.version();
        const auto entries = store->readInbox(2, 0).value();
        if (!Leadership(*store, lease.epoch).commit(commitOf(version, entries))) break;
        std::this_thread::sleep_for(milliseconds(1));
      }
    }
  };
  std::thread other([&] { lead("b"); });
  lead("a");
  other.join();

  std::multiset<std::string> consumed;
  uint64_t version = 0;
  const auto history = worker->readHistory(0, 10'000).value();
  for (const auto& record : history) {
    EXPECT_EQ(record.version(), ++version);
    for (const auto& one : record.results()) consumed.insert(one.result_id());
  }
  EXPECT_EQ(worker->readPolicy().value()->snapshot.version(), version);
  EXPECT_THAT(consumed, SizeIs(kResults));
  EXPECT_EQ(std::set<std::string>(consumed.begin(), consumed.end()).size(),
            static_cast<size_t>(kResults));
  EXPECT_GT(worker->readLease()->epoch, 2u) << "the lease never changed hands";
}

TEST_F(RedisFaults, ForgottenScriptsAreSentAgain) {
  auto store = open();
  ASSERT_TRUE(succeeded(store->pushResult(result("r1"), 10)));
  ASSERT_TRUE(raw_.call({"SCRIPT", "FLUSH"}));
  EXPECT_EQ(store->pushResult(result("r1"), 10).value(), PushOutcome::kDuplicate);
  EXPECT_EQ(store->pushResult(result("r2"), 10).value(), PushOutcome::kAccepted);
  // By digest again: the digests are those of the texts.
  const auto stats = raw_.call({"INFO", "commandstats"});
  EXPECT_THAT(std::string(stats->view().text()), HasSubstr("cmdstat_eval:calls=2,"));
}

TEST_F(RedisFaults, WaitsForAResultNoLongerThanAsked) {
  auto store = open();
  auto start = steady_clock::now();
  EXPECT_THAT(store->readInbox(1, 2 * kTimeoutMs).value(), SizeIs(0));  // longer than the time-out
  EXPECT_GE(steady_clock::now() - start, milliseconds(2 * kTimeoutMs - 50));
  std::thread pusher([&] {
    std::this_thread::sleep_for(milliseconds(50));
    EXPECT_TRUE(succeeded(open()->pushResult(result("r1"), 10)));
  });
  start = steady_clock::now();
  EXPECT_THAT(resultIds(store->readInbox(5, 10'000)), ElementsAre("r1"));
  EXPECT_LT(steady_clock::now() - start, milliseconds(5'000));
  pusher.join();
}

TEST_F(RedisFaults, ManyWorkersPushingTheSameResultsCountOnce) {
  std::atomic<int> accepted = 0;
  std::atomic<int> tickets = 0;
  std::vector<std::thread> workers;
  for (int w = 0; w < 4; ++w)
    workers.emplace_back([&] {
      auto store = open();
      for (int i = 0; i < 40; ++i) {
        if (*store->pushResult(result("r" + std::to_string(i)), 30) == PushOutcome::kAccepted)
          ++accepted;
        tickets += static_cast<int>(store->takeTickets({1, 100})->size());
      }
    });
  for (auto& worker : workers) worker.join();
  EXPECT_EQ(accepted, 30);  // the capacity
  EXPECT_EQ(tickets, 100);
  EXPECT_EQ(open()->inboxSize().value(), 30u);
}

// The same results through two connections at once, against a reader who consumes them meanwhile.
TEST_F(RedisFaults, AResultPushedTwiceAtOnceCountsOnce) {
  constexpr int kResults = 400;
  std::atomic<int> accepted = 0, duplicates = 0;
  const auto push = [&] {
    auto store = open();
    for (int i = 0; i < kResults; ++i) {
      const auto outcome = *store->pushResult(result("r" + std::to_string(i)), kResults);
      EXPECT_NE(outcome, PushOutcome::kFull) << "there is room";
      if (outcome != PushOutcome::kFull) {
        ++(outcome == PushOutcome::kAccepted ? accepted : duplicates);
      }
    }
  };
  auto aggregator = open();
  const Leadership leader = lead(*aggregator);
  std::thread first(push), second(push);
  std::set<std::string> consumed;
  uint64_t version = 0;
  while (consumed.size() < kResults) {
    const auto entries = aggregator->readInbox(7, kTimeoutMs).value();
    if (entries.empty()) break;
    for (const InboxEntry& entry : entries)
      EXPECT_TRUE(consumed.insert(entry.result_id).second) << entry.result_id;
    ASSERT_TRUE(succeeded(leader.commit(commitOf(version++, entries))));
  }
  first.join();
  second.join();
  EXPECT_EQ(accepted, kResults);
  EXPECT_EQ(duplicates, kResults);
  EXPECT_THAT(consumed, SizeIs(kResults));
  EXPECT_EQ(aggregator->inboxSize().value(), 0u);
}

TEST_F(RedisFaults, RunsDoNotMixAndTheNewestIsFound) {
  auto older = open("01HA");
  auto newer = open("01HB");
  RunSpec spec;
  spec.experiment.set_name("recall");
  spec.sha256 = "aa";
  EXPECT_EQ(findRun(server_.url(), "recall").value(), std::nullopt);
  EXPECT_EQ(findOrNameRun(server_.url(), "unborn", "01HC").value(), "01HC");
  EXPECT_EQ(findOrNameRun(server_.url(), "unborn", "01HD").value(), "01HC");
  EXPECT_EQ(findRun(server_.url(), "unborn").value(), "01HC");
  ASSERT_TRUE(succeeded(older->createRun(spec)));
  EXPECT_EQ(findRun(server_.url(), "recall").value(), "01HA");
  spec.sha256 = "bb";
  ASSERT_TRUE(succeeded(newer->createRun(spec)));
  spec.sha256 = "aa";
  ASSERT_TRUE(succeeded(older->createRun(spec)));  // an old aggregator restarts
  EXPECT_EQ(findRun(server_.url(), "recall").value(), "01HB");
  EXPECT_EQ(findRun(server_.url(), "other").value(), std::nullopt);
  ASSERT_TRUE(succeeded(older->pushResult(result("r1"), 10)));
  EXPECT_EQ(newer->inboxSize().value(), 0u);
  server_.killHard();
  EXPECT_TRUE(failsWith(findRun(server_.url(), "recall"), ErrorCode::kUnavailable));
}

TEST_F(RedisFaults, AFullServerIsUnavailableNotAFault) {
  auto store = open();
  ASSERT_TRUE(raw_.call({"CONFIG", "SET", "maxmemory", "1"}));
  EXPECT_TRUE(failsWith(store->pushResult(result("r1"), 10), ErrorCode::kUnavailable));
  EXPECT_TRUE(failsWith(store->createRun(runSpec("aa")), ErrorCode::kUnavailable));
  ASSERT_TRUE(raw_.call({"CONFIG", "SET", "maxmemory", "0"}));
  EXPECT_TRUE(succeeded(store->pushResult(result("r1"), 10)));
}

}  // namespace
}  // namespace allot::test
