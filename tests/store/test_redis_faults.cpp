// RedisStore when Redis dies, hangs, forgets its scripts or is used by many at once.
#include <gmock/gmock.h>
#include <signal.h>

#include <atomic>

#include <chrono>
#include <thread>

#include "core/digest.h"
#include "store/redis_connection.h"
#include "tests/store/conformance.h"
#include "tests/store/redis_server.h"

namespace allot::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

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
        [](Store& s) -> Status {
          ALLOT_TRY(s.readPolicy());
          return {};
        },
        [](Store& s) -> Status {
          ALLOT_TRY(s.pushResult(result("out"), 10));
          return {};
        },
        [](Store& s) -> Status {
          ALLOT_TRY(s.readInbox(1, 100));
          return {};
        },
        [](Store& s) -> Status {
          ALLOT_TRY(s.acquireLease("a", 100));
          return {};
        },
        [](Store& s) -> Status {
          ALLOT_TRY(s.listWorkers());
          return {};
        },
        [](Store& s) -> Status { return s.commit(commitOf(1, 0, {})); },
        [](Store& s) -> Status { return s.writeState(1, state(0)); },
        [](Store& s) -> Status { return s.planUnits(1, {unit(0, 0, "a")}); },
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
  const uint64_t epoch = aggregator->acquireLease("a", 3'600'000)->epoch;
  ASSERT_TRUE(succeeded(aggregator->publishInitial(epoch, policy(0), state(0))));
  for (int i = 0; i < 20; ++i)
    ASSERT_EQ(worker->pushResult(result("r" + std::to_string(i)), 100).value(),
              PushOutcome::kAccepted);
  auto entries = aggregator->readInbox(10, 0).value();
  ASSERT_TRUE(succeeded(aggregator->commit(commitOf(epoch, 0, entries))));
  ASSERT_THAT(aggregator->readInbox(5, 0).value(), SizeIs(5));  // delivered, not consumed
  ASSERT_TRUE(succeeded(aggregator->planUnits(epoch, {unit(1, 0, "a"), unit(1, 0, "b")})));
  ASSERT_EQ(worker->pushEvaluation(evaluationOf(unit(1, 0, "a"), "w")).value(),
            PushOutcome::kAccepted);
  ASSERT_THAT(worker->takeTickets(3, 10).value(), ElementsAre(0, 1, 2));

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
  EXPECT_EQ(aggregator->acquireLease("a", 3'600'000)->epoch, epoch);
  EXPECT_TRUE(succeeded(aggregator->commit(commitOf(epoch, 1, entries))));
  EXPECT_EQ(worker->openUnits().value(), 1u);
  EXPECT_THAT(worker->readEvaluations("", 10).value(), SizeIs(1));
  EXPECT_THAT(worker->takeTickets(1, 10).value(), ElementsAre(3));
}

TEST_F(RedisFaults, AHungServerIsLeftAfterTheTimeoutAndItsLateAnswersAreNotHeard) {
  auto store = open();
  const uint64_t epoch = store->acquireLease("a", 3'600'000)->epoch;
  ASSERT_TRUE(succeeded(store->publishInitial(epoch, policy(0), state(0))));
  server_.freeze();
  EXPECT_TRUE(failsWith(store->pushResult(result("r1"), 10), ErrorCode::kUnavailable));
  EXPECT_TRUE(failsWith(store->takeTickets(1, 10), ErrorCode::kUnavailable));
  server_.thaw();
  // Whether the push took effect is unknown; repeating it settles it.
  EXPECT_TRUE(succeeded(store->pushResult(result("r1"), 10)));
  EXPECT_EQ(store->inboxSize().value(), 1u);
  EXPECT_EQ(store->readDesired().value(), "running");
  EXPECT_EQ(store->readPolicy().value()->snapshot.version(), 0u);
}

TEST_F(RedisFaults, ACommitWhoseReplyIsLostIsToldByTheDigest) {
  auto store = open();
  const uint64_t epoch = store->acquireLease("a", 3'600'000)->epoch;
  ASSERT_TRUE(succeeded(store->publishInitial(epoch, policy(0), state(0))));
  ASSERT_TRUE(succeeded(store->pushResult(result("r1"), 10)));
  const Commit commit = commitOf(epoch, 0, store->readInbox(1, 0).value());
  server_.freeze();
  ASSERT_TRUE(failsWith(store->commit(commit), ErrorCode::kUnavailable));
  server_.thaw();  // the command waits in the socket and is run now
  const Status again = store->commit(commit);
  EXPECT_TRUE(again || failsWith(again, ErrorCode::kInternal));
  EXPECT_EQ(store->readPolicy().value()->sha256, sha256Hex(policy(1).SerializeAsString()));
  EXPECT_THAT(store->readHistory(0, 10).value(), SizeIs(1));
  EXPECT_EQ(store->inboxSize().value(), 0u);
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
        tickets += static_cast<int>(store->takeTickets(1, 100)->size());
      }
    });
  for (auto& worker : workers) worker.join();
  EXPECT_EQ(accepted, 30);  // the capacity
  EXPECT_EQ(tickets, 100);
  EXPECT_EQ(open()->inboxSize().value(), 30u);
}

TEST_F(RedisFaults, RunsDoNotMixAndTheNewestIsFound) {
  auto older = open("01HA");
  auto newer = open("01HB");
  RunSpec spec;
  spec.experiment.set_name("recall");
  spec.sha256 = "aa";
  EXPECT_EQ(findRun(server_.url(), "recall").value(), std::nullopt);
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

TEST_F(RedisFaults, WhatOthersWroteIsRefusedNotTrusted) {
  auto store = open();
  ASSERT_TRUE(raw_.call({"SET", "allot:{run}:state", "\xff\xff\xff"}));
  EXPECT_TRUE(failsWith(store->readState(), ErrorCode::kData));
  ASSERT_TRUE(raw_.call({"HSET", "allot:{run}:policy", "version", "0", "blob", "", "sha256", "x"}));
  EXPECT_TRUE(failsWith(store->readPolicy(), ErrorCode::kData));
  ASSERT_TRUE(raw_.call({"HSET", "allot:{run}:spec", "sha256", "x", "started_unix_ms", "soon"}));
  EXPECT_TRUE(failsWith(store->readSpec(), ErrorCode::kData));
  ASSERT_TRUE(raw_.call({"XADD", "allot:{run}:history", "1-0", "other", "\xff"}));
  EXPECT_TRUE(failsWith(store->readHistory(0, 10), ErrorCode::kData));
  ASSERT_TRUE(raw_.call({"SET", "allot:{run}:seen", "not a set"}));
  EXPECT_TRUE(failsWith(store->pushResult(result("r1"), 10), ErrorCode::kInternal));
  ASSERT_TRUE(raw_.call({"XADD", "allot:{run}:inbox", "*", "odd", "fields"}));
  const auto entries = store->readInbox(10, 0);
  ASSERT_TRUE(succeeded(entries));
  EXPECT_EQ(entries->at(0).result_id, "");
}

TEST_F(RedisFaults, AHistoryAheadOfThePolicyStopsTheCommitBeforeItsFirstWrite) {
  auto store = open();
  const uint64_t epoch = store->acquireLease("a", 3'600'000)->epoch;
  ASSERT_TRUE(succeeded(store->publishInitial(epoch, policy(0), state(0))));
  ASSERT_TRUE(succeeded(store->pushResult(result("r1"), 10)));
  ASSERT_TRUE(raw_.call({"XADD", "allot:{run}:history", "5-0", "rec", "x"}));
  const auto entries = store->readInbox(1, 0).value();
  EXPECT_TRUE(failsWith(store->commit(commitOf(epoch, 0, entries)), ErrorCode::kInternal));
  EXPECT_EQ(store->readPolicy().value()->snapshot.version(), 0u);
  EXPECT_EQ(store->inboxSize().value(), 1u);
}

TEST_F(RedisFaults, AFullServerIsUnavailableNotAFault) {
  auto store = open();
  ASSERT_TRUE(raw_.call({"CONFIG", "SET", "maxmemory", "1"}));
  EXPECT_TRUE(failsWith(store->pushResult(result("r1"), 10), ErrorCode::kUnavailable));
  EXPECT_TRUE(failsWith(store->setDesired("paused"), ErrorCode::kUnavailable));
  ASSERT_TRUE(raw_.call({"CONFIG", "SET", "maxmemory", "0"}));
  EXPECT_TRUE(succeeded(store->pushResult(result("r1"), 10)));
}

}  // namespace
}  // namespace allot::test
