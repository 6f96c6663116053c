// What a worker with nothing or much to do asks of a real Redis.
#include <atomic>
#include <chrono>
#include <thread>

#include "store/redis/redis_connection.h"
#include "store/store_observer.h"
#include "tests/results.h"
#include "tests/store/conformance.h"
#include "tests/store/redis_server.h"
#include "worker/loop/worker_loop.h"

namespace allot::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

class CountedRequests final : public StoreObserver {
 public:
  void requested(std::string_view, RequestOutcome, std::optional<double>) override { ++count; }
  void reconnected() override {}
  std::atomic<int> count{0};
};

class IdleEngine final : public EpisodeEngine {
 public:
  Result<std::vector<v1::EpisodeResult>> rollOut(const v1::PolicySnapshot&, const std::string&,
                                                 const std::vector<uint64_t>&) override {
    return fail(ErrorCode::kInternal, "there are no tickets");
  }
  Result<std::vector<v1::EpisodeResult>> answerUnder(const std::vector<Episode>&) override {
    return fail(ErrorCode::kInternal, "nobody audits here");
  }
  Result<v1::EvaluationResult> evaluate(const v1::EvaluationUnit& unit) override {
    ++evaluated;
    v1::EvaluationResult result;
    *result.mutable_unit() = unit;
    return result;
  }
  std::vector<uint32_t> warmChunks() const override { return {}; }
  std::atomic<int> evaluated{0};
};

class RedisWorker : public ::testing::Test {
 protected:
  std::unique_ptr<Store> open(StoreObserver* observer = nullptr) {
    return std::move(*openRedisStore(server_.url(), "run", 5000, observer));
  }
  static std::vector<std::string> claim(Store& store) {
    std::vector<std::string> ids;
    while (true) {
      const auto units = store.claimUnits({.holder = "w", .count = 100, .lease_ms = 3'600'000});
      EXPECT_TRUE(succeeded(units));
      if (!units || units->empty()) return ids;
      for (const auto& unit : *units) ids.push_back(unit.unit_id());
    }
  }
  static uint64_t nowMs() {
    return static_cast<uint64_t>(
        std::chrono::duration_cast<milliseconds>(steady_clock::now().time_since_epoch()).count());
  }
  // True as soon as `done` is, within half a minute.
  static bool becomes(const std::function<bool()>& done) {
    for (const uint64_t end = nowMs() + 30'000; nowMs() < end;) {
      if (done()) return true;
      std::this_thread::sleep_for(milliseconds(5));
    }
    return false;
  }

  RedisServer server_{{"--appendfsync", "no"}};
  RedisConnection raw_{*parseRedisUrl(server_.url()), 5000};
};

// A worker that waits is woken long before it would look by itself, and asks for nothing meanwhile.
TEST_F(RedisWorker, WithoutWorkItAsksForNothingAndIsWoken) {
  const auto store = open();
  RunSpec run = runSpec("aa");
  ASSERT_TRUE(succeeded(store->createRun(run)));
  const Leadership leader = lead(*store);
  CountedRequests requests;
  const auto its_store = open(&requests);
  IdleEngine engine;
  std::atomic<bool> draining{false};
  WorkerLoop loop(its_store.get(), its_store.get(), &engine, run,
                  {.name = "w", .build = "test", .now = nowMs, .unix_now = nowMs}, &draining);
  std::thread worker([&] { EXPECT_TRUE(succeeded(loop.run())); });
  // It waits once one of its requests is blocked in the server.
  const auto waits = [&] {
    const auto info = raw_.call({"INFO", "clients"});
    return info && info->view().text().find("blocked_clients:1") != std::string_view::npos;
  };
  EXPECT_TRUE(becomes(waits));
  const int before = requests.count;
  std::this_thread::sleep_for(milliseconds(2'000));
  EXPECT_EQ(requests.count, before);
  auto start = steady_clock::now();
  EXPECT_TRUE(succeeded(leader.planUnits({unit(0, 0, "a")})));
  EXPECT_TRUE(becomes([&] { return engine.evaluated == 1; }));
  EXPECT_LT(steady_clock::now() - start, milliseconds(10'000));  // it looks by itself after 20 s
  RecordProperty("woken_ms", static_cast<int>((steady_clock::now() - start) / milliseconds(1)));
  EXPECT_TRUE(becomes(waits));
  start = steady_clock::now();
  draining = true;
  worker.join();
  EXPECT_LT(steady_clock::now() - start, milliseconds(10'000));
}

TEST_F(RedisWorker, AWaitEndsWhenToldAndTheStoreGoesOn) {
  const auto store = open();
  int asked = 0;
  EXPECT_FALSE(valueOf(store->awaitNews(60'000, [&] { return ++asked == 3; })));
  EXPECT_EQ(asked, 3);
  EXPECT_EQ(store->nextTicket().value(), 0u);  // not the answer to another question
  EXPECT_FALSE(store->awaitNews(20, [] { return false; }).value());
}

// In the middle of a decode, nothing is worth five seconds.
TEST_F(RedisWorker, ABeatHasNoMorePatienceThanItIsGiven) {
  const auto store = open();
  Heartbeat heartbeat{.ttl_ms = 45'000, .patience_ms = 50};
  heartbeat.beat.set_worker("w");
  ASSERT_TRUE(succeeded(store->beat(heartbeat)));
  server_.freeze();
  const auto start = steady_clock::now();
  EXPECT_TRUE(failsWith(store->beat(heartbeat), ErrorCode::kUnavailable));
  EXPECT_LT(steady_clock::now() - start, milliseconds(4'000));  // others wait for 5 s
  server_.thaw();
  EXPECT_TRUE(succeeded(store->leave("w")));
}

TEST_F(RedisWorker, WhatIsListedAsFreeAndIsNotIsNotClaimed) {
  const auto store = open();
  const auto a = unit(1, 0, "a"), b = unit(1, 0, "b");
  ASSERT_TRUE(succeeded(lead(*store).planUnits({a, b})));
  const std::string later = std::to_string(
      std::chrono::duration_cast<milliseconds>(
          (std::chrono::system_clock::now() + std::chrono::minutes(5)).time_since_epoch())
          .count());
  ASSERT_TRUE(raw_.call({"ZADD", "allot:{run}:units", later, a.unit_id()}));  // a worker is at it
  ASSERT_TRUE(raw_.call({"ZREM", "allot:{run}:units", b.unit_id()}));
  EXPECT_THAT(claim(*store), IsEmpty());
  ASSERT_TRUE(raw_.call({"ZADD", "allot:{run}:units", "0", a.unit_id()}));  // free, not listed
  EXPECT_THAT(claim(*store), ElementsAre(a.unit_id()));
}

}  // namespace
}  // namespace allot::test
