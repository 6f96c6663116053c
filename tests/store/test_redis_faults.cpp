// RedisStore when Redis dies, hangs, forgets its scripts or is used by many at once.
#include <signal.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <limits>
#include <set>
#include <thread>

#include "core/digest.h"
#include "core/evaluation/answers.h"
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
  EXPECT_EQ(worker->openUnits().value(), 1u);
  EXPECT_THAT(worker->readEvaluations("", 10).value(), SizeIs(1));
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
  const auto recorded = older->readEvaluations("", 10).value();
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
      Leadership(*older, old_epoch).planUnits({unit(0, 1, "b")}),
  };
  for (size_t i = 0; i < writes.size(); ++i)
    EXPECT_TRUE(failsWith(writes[i], ErrorCode::kFenced)) << i;
  EXPECT_FALSE(older->acquireLease("older", 50)->held);
  ASSERT_TRUE(succeeded(older->releaseLease("older")));  // not its own any more: no effect
  EXPECT_EQ(newer->readLease()->holder, "newer");
  EXPECT_EQ(newer->readState().value()->episodes(), 0u);
  EXPECT_FALSE(newer->readStatus().value().has_value());
  EXPECT_EQ(newer->openUnits().value(), 0u);
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

TEST_F(RedisFaults, AnEvaluationPastThePushCountsNothing) {
  auto store = open();
  const Leadership leader(*store, store->acquireLease("a", 3'600'000)->epoch);
  const auto a = unit(1, 0, "a");
  ASSERT_TRUE(succeeded(leader.planUnits({a})));
  ASSERT_EQ(store->pushEvaluation(evaluationOf(a, "w")).value(), PushOutcome::kAccepted);
  const std::string forged = evaluationOf(a, "stranger").SerializeAsString();
  const std::string large(kLargestResult + 1, 'x');
  for (const std::string& payload : {forged, std::string("\xff\xff"), large})
    ASSERT_TRUE(raw_.call({"XADD", "allot:{run}:eval", "*", "id", a.unit_id(), "r", payload}));
  ASSERT_TRUE(raw_.call({"XADD", "allot:{run}:eval", "*", "odd", "fields"}));
  const auto recorded = store->readEvaluations("", 10).value();
  ASSERT_THAT(recorded, SizeIs(5));
  EXPECT_EQ(recorded[0].result.worker(), "w");
  for (size_t i = 1; i < 5; ++i) {
    EXPECT_EQ(recorded[i].result.ByteSizeLong(), 0u) << i;
    ASSERT_TRUE(
        succeeded(leader.rejectEvaluation(recorded[i], RefusalKind::kInvalid, "no", nullptr, 0)));
  }
  // The one who recorded the unit stands.
  EXPECT_THAT(store->readEvaluations("", 10).value(), SizeIs(1));
  EXPECT_EQ(store->pushEvaluation(evaluationOf(a, "w2")).value(), PushOutcome::kDuplicate);
  ASSERT_TRUE(succeeded(leader.planUnits({a})));
  EXPECT_EQ(store->openUnits().value(), 0u);
}

// What a stranger puts in the place of answers costs nobody the evaluation.
TEST_F(RedisFaults, AnswersThatNoPushCanHaveMadeAreLeftOut) {
  auto store = open();
  const uint64_t epoch = store->acquireLease("a", 3'600'000)->epoch;
  const auto a = unit(1, 0, "a"), b = unit(1, 0, "b"), c = unit(1, 0, "c");
  ASSERT_TRUE(succeeded(Leadership(*store, epoch).planUnits({a, b, c})));
  const auto forge = [&](const v1::EvaluationUnit& of, const std::string& answers) {
    // Answers in the place of the result are no answers either.
    const auto result = answered(evaluationOf(of, "stranger"), "in the wrong place");
    const auto entry = valueOf(raw_.call({"XADD", "allot:{run}:eval", "*", "id", of.unit_id(), "r",
                                          result.SerializeAsString(), "a", answers}));
    ASSERT_TRUE(raw_.call({"HSET", "allot:{run}:units_done", of.unit_id(), entry.view().text()}));
  };
  forge(a, "\xff\xff");
  forge(b, std::string(kLargestAnswers + 1, 'x'));
  forge(c, answered({}, "fine").answers().SerializeAsString());
  const auto without = store->readEvaluations("", 10).value();
  const auto full = store->readAnswers("", 10).value();
  ASSERT_THAT(full, SizeIs(3));
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(without.at(i).result.worker(), "stranger");
    EXPECT_FALSE(without[i].result.has_answers());
    EXPECT_EQ(full[i].result.has_answers(), i == 2);
    EXPECT_EQ(full[i].answers_bytes, without[i].answers_bytes);
  }
  EXPECT_EQ(full[1].answers_bytes, kLargestAnswers + 1);
  EXPECT_EQ(full[2].result.answers().answers(0).text(), "fine");
}

size_t residentKib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmHWM:")) return std::stoul(line.substr(6));
  return 0;
}

// A giant that arrives while we wait wakes us and stays where it is.
TEST_F(RedisFaults, AGiantEntryNeverComesHere) {
  auto store = std::move(*openRedisStore(server_.url(), "run", 60'000));
  ASSERT_TRUE(raw_.call({"CONFIG", "SET", "appendonly", "no"}));  // for speed
  const size_t before = residentKib();
  ASSERT_GT(before, 0u);
  RedisConnection other(*parseRedisUrl(server_.url()), 60'000);
  std::thread stranger([&] {
    std::this_thread::sleep_for(milliseconds(100));
    // Made by the server, so that this process never has it either.
    EXPECT_TRUE(other.call({"EVAL",
                            "local id = redis.call('XADD', KEYS[1], '*', 'id', 'x', 'r', "
                            "string.rep(string.rep('x', 1024), 32 * 1024)); "
                            "local name = string.rep(string.rep('n', 1024), 8 * 1024); "
                            "id = redis.call('XADD', KEYS[1], '*', 'id', name, 'r', 'x'); "
                            "redis.call('HSET', KEYS[2], name, id)",
                            "2", "allot:{run}:inbox", "allot:{run}:pending"}));
  });
  const auto entries = store->readInbox(10, 60'000);
  stranger.join();
  ASSERT_TRUE(succeeded(entries));
  ASSERT_THAT(*entries, SizeIs(2));
  EXPECT_EQ(entries->at(1).result_id, "");  // as if it were pushed, with a name of 8 MiB
  EXPECT_EQ(entries->at(0).bytes, uint64_t{32} * 1024 * 1024);
  EXPECT_EQ(entries->at(0).payload, "");
  EXPECT_EQ(entries->at(0).result_id, "");
  EXPECT_LT(residentKib() - before, size_t{16} * 1024);
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

// A worker may write beats and units, whatever is in them.
TEST_F(RedisFaults, OneBadBeatOrUnitHidesNobodyElses) {
  auto store = open();
  v1::WorkerBeat beat;
  beat.set_worker("sound");
  ASSERT_TRUE(succeeded(store->beat({.beat = beat, .ttl_ms = 60'000})));
  ASSERT_TRUE(
      raw_.call({"ZADD", "allot:{run}:workers", "9e15", "none", "9e15", "bad", "9e15", "large"}));
  ASSERT_TRUE(raw_.call(
      {"HSET", "allot:{run}:beats", "bad", "\xff\xff", "large", std::string(2 << 20, '\x08')}));
  const auto workers = valueOf(store->listWorkers());
  ASSERT_THAT(workers, SizeIs(1));
  EXPECT_EQ(workers.at(0).worker(), "sound");

  const uint64_t epoch = store->acquireLease("a", 60'000)->epoch;
  ASSERT_TRUE(succeeded(
      Leadership(*store, epoch).planUnits({unit(0, 0, "a"), unit(0, 0, "b"), unit(0, 0, "c")})));
  v1::EvaluationUnit large = unit(0, 0, "b");
  large.set_schedule_name(std::string(1 << 20, 'b'));
  ASSERT_TRUE(raw_.call({"HSET", "allot:{run}:unit_specs", unit(0, 0, "a").unit_id(), "\xff",
                         large.unit_id(), large.SerializeAsString()}));
  const auto open_units = valueOf(store->listUnits());
  ASSERT_THAT(open_units, SizeIs(1));
  EXPECT_EQ(open_units.at(0).unit_id(), unit(0, 0, "c").unit_id());
  size_t claimed = 0;
  for (int i = 0; i < 3; ++i)
    claimed += store->claimUnits({.holder = "w", .count = 3, .lease_ms = 60'000})->size();
  EXPECT_EQ(claimed, 1u);
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
  ASSERT_TRUE(raw_.call({"HSET", "allot:{run}:control", "desired", "running"}));  // no revision
  EXPECT_TRUE(failsWith(store->readControl(), ErrorCode::kData));
  ASSERT_TRUE(raw_.call({"HSET", "allot:{run}:control", "desired", "on fire", "revision", "1"}));
  EXPECT_THAT(store->readControl(), isError(ErrorCode::kData, HasSubstr("none of running, paused, "
                                                                        "stopped, finished")));
  ASSERT_TRUE(raw_.call({"SET", "allot:{run}:tickets", "many"}));
  EXPECT_TRUE(failsWith(store->nextTicket(), ErrorCode::kData));
  ASSERT_TRUE(raw_.call({"HSET", "allot:{run}:refused_counts", "stale", "many"}));
  EXPECT_TRUE(failsWith(store->readRefusalCounts(), ErrorCode::kData));
  ASSERT_TRUE(raw_.call({"SET", "allot:{run}:seen", "not a set"}));
  EXPECT_TRUE(failsWith(store->pushResult(result("r1"), 10), ErrorCode::kUnavailable));
  ASSERT_TRUE(raw_.call({"XADD", "allot:{run}:inbox", "*", "odd", "fields"}));
  EXPECT_EQ(valueOf(store->readInbox(10, 0)).at(0).result_id, "");
}

// What is stored is whole, and yet nothing of ours would have stored it.
TEST_F(RedisFaults, NumbersThatNobodyOfUsStoresAreRefusedWhereTheyAreRead) {
  auto store = open();
  const auto refused = [](const auto& read, const std::string& sentence) {
    EXPECT_TRUE(failsWith(read, ErrorCode::kData)) << sentence;
    const std::string said = read ? "" : read.error().message;
    EXPECT_THAT(said, HasSubstr(sentence));
  };
  const std::string beyond = std::to_string((uint64_t{1} << 53) + 1);
  v1::PolicySnapshot odd = policy(3), late = policy(0);
  odd.set_logits(1, std::numeric_limits<double>::quiet_NaN());
  late.set_version((uint64_t{1} << 53) + 1);
  for (const auto& [stored, sentence] :
       {std::pair{odd, "number that is not finite"}, {late, "version is beyond 2^53"}}) {
    const std::string bytes = stored.SerializeAsString();
    ASSERT_TRUE(
        raw_.call({"HSET", "allot:{run}:policy", "blob", bytes, "sha256", sha256Hex(bytes)}));
    refused(store->readPolicy(), sentence);
    v1::AggregatorState state;
    *state.mutable_policy() = stored;
    ASSERT_TRUE(raw_.call({"SET", "allot:{run}:state", state.SerializeAsString()}));
    refused(store->readState(), sentence);
  }
  v1::AggregatorState moments = state(1);
  moments.add_second_moment(std::numeric_limits<double>::infinity());
  ASSERT_TRUE(raw_.call({"SET", "allot:{run}:state", moments.SerializeAsString()}));
  refused(store->readState(), "a state with a number that is not finite");

  ASSERT_TRUE(raw_.call({"HSET", "allot:{run}:policies", "3", odd.SerializeAsString()}));
  refused(store->readPolicies(3, 1), "a policy with a number that is not finite");
  ASSERT_TRUE(raw_.call({"HSET", "allot:{run}:policies", "3", policy(4).SerializeAsString()}));
  refused(store->readPolicies(3, 1), "holds version 4 as version 3");

  v1::IterationRecord record;
  record.set_version(2);
  ASSERT_TRUE(raw_.call({"XADD", "allot:{run}:history", "1-0", "rec", record.SerializeAsString()}));
  refused(store->readHistory(0, 1), "a record of update 2");
  record.add_weights(std::numeric_limits<double>::infinity());
  ASSERT_TRUE(raw_.call({"XADD", "allot:{run}:history", "2-0", "rec", record.SerializeAsString()}));
  refused(store->readHistory(1, 1), "a weight or baseline that is not finite");

  ASSERT_TRUE(raw_.call({"HSET", "allot:{run}:control", "desired", "running", "experiment", "",
                         "file", "", "revision", beyond}));
  refused(store->readControl(), "which is beyond 2^53");
  ASSERT_TRUE(raw_.call({"SET", "allot:{run}:tickets", beyond}));
  refused(store->nextTicket(), "which is beyond 2^53");
}

TEST_F(RedisFaults, AHistoryAheadOfThePolicyStopsTheCommitBeforeItsFirstWrite) {
  auto store = open();
  const Leadership leader = lead(*store);
  ASSERT_TRUE(succeeded(store->pushResult(result("r1"), 10)));
  ASSERT_TRUE(raw_.call({"XADD", "allot:{run}:history", "5-0", "rec", "x"}));
  const auto entries = store->readInbox(1, 0).value();
  EXPECT_TRUE(failsWith(leader.commit(commitOf(0, entries)), ErrorCode::kInternal));
  EXPECT_EQ(store->readPolicy().value()->snapshot.version(), 0u);
  EXPECT_EQ(store->inboxSize().value(), 1u);
}

TEST_F(RedisFaults, AKeyOfAnotherTypeStopsTheCommitBeforeItsFirstWrite) {
  auto store = open();
  const Leadership leader = lead(*store);
  ASSERT_TRUE(succeeded(store->pushResult(result("r1"), 10)));
  const auto entries = store->readInbox(10, 0).value();
  ASSERT_TRUE(raw_.call({"DEL", "allot:{run}:seen"}));
  ASSERT_TRUE(raw_.call({"SET", "allot:{run}:seen", "x"}));
  EXPECT_TRUE(failsWith(leader.commit(commitOf(0, entries)), ErrorCode::kUnavailable));
  EXPECT_EQ(store->readPolicy().value()->snapshot.version(), 0u);
  EXPECT_TRUE(store->readHistory(0, 10).value().empty());
  const auto mended = valueOf(leader.repair());
  ASSERT_EQ(mended.size(), 1u);
  EXPECT_EQ(mended[0].name, "seen");
  EXPECT_TRUE(succeeded(leader.commit(commitOf(0, entries))));
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
