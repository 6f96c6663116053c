// What the store tells of its requests, with a redis-server that works, refuses and is away.
#include "store/redis/redis_connection.h"
#include "store/store.h"
#include "store/store_probe.h"
#include "tests/results.h"
#include "tests/store/conformance.h"
#include "tests/store/redis_server.h"

namespace allot::test {
namespace {

class StoreProbeTest : public testing::Test {
 protected:
  void SetUp() override {
    metrics_.setRun("e", "");
    health_.progress();
    health_.ready();
  }
  std::string count(const char* command, const char* outcome, int value) {
    return std::string("allot_redis_commands_total{experiment=\"e\",command=\"") + command +
           "\",outcome=\"" + outcome + "\"} " + std::to_string(value) + "\n";
  }

  uint64_t now_ = 1000;
  MetricRegistry metrics_;
  Health health_{[this] { return now_; }};
  StoreProbe probe_{&metrics_, &health_};
  RedisServer server_;
};

TEST_F(StoreProbeTest, CountsRequestsByNameAndTimesAllButBlockingReads) {
  const auto store = valueOf(openRedisStore(server_.url(), "run", 5000, &probe_));
  EXPECT_THAT(metrics_.text(), HasSubstr("allot_redis_reconnects_total{experiment=\"e\"} 0\n"));
  EXPECT_FALSE(health_.readiness().good);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(succeeded(store->inboxSize()));
  ASSERT_TRUE(succeeded(store->listWorkers()));  // a script the server does not know yet
  ASSERT_TRUE(succeeded(store->readInbox(1, 100)));
  const std::string text = metrics_.text();
  EXPECT_THAT(text, HasSubstr(count("xlen", "ok", 3)));
  EXPECT_THAT(text, HasSubstr(count("xlen", "error", 0)));
  EXPECT_THAT(text, HasSubstr(count("xlen", "unavailable", 0)));
  EXPECT_THAT(text, HasSubstr(count("list_workers", "ok", 1)));
  EXPECT_THAT(text, HasSubstr(count("xread", "ok", 1)));
  EXPECT_THAT(text, HasSubstr("duration_seconds_count{experiment=\"e\",command=\"xlen\"} 3\n"));
  EXPECT_THAT(text, Not(HasSubstr("duration_seconds_count{experiment=\"e\",command=\"xread\"}")));
  EXPECT_TRUE(health_.readiness().good);
}

TEST_F(StoreProbeTest, OfAWorkerHasTotalsWhateverTheCommands) {
  MetricRegistry metrics;
  metrics.setRun("e", "");
  StoreProbe probe(&metrics, &health_, StoreProbe::Detail::kTotals);
  const auto lines = [&] {
    const std::string text = metrics.text();
    return std::count_if(text.begin(), text.end(), [](char c) { return c == '\n'; });
  };
  const auto before = lines();
  const auto store = valueOf(openRedisStore(server_.url(), "run", 5000, &probe));
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(succeeded(store->inboxSize()));
  ASSERT_TRUE(succeeded(store->listWorkers()));
  ASSERT_TRUE(succeeded(store->readInbox(1, 10)));
  EXPECT_EQ(lines(), before);
  EXPECT_GE(metrics.counter("allot_redis_commands_total", {{"command", "all"}, {"outcome", "ok"}})
                .Value(),
            5);
  EXPECT_GT(metrics.counter("allot_redis_command_seconds_total").Value(), 0);
  EXPECT_LT(metrics.counter("allot_redis_command_seconds_total").Value(), 5);
}

TEST_F(StoreProbeTest, TellsErrorsFromSilenceAndCountsReconnects) {
  RedisConnection connection(*parseRedisUrl(server_.url()), 500, &probe_);
  ASSERT_TRUE(succeeded(connection.call({"SET", "key", "x"})));
  EXPECT_FALSE(connection.call({"LPUSH", "key", "y"}));
  EXPECT_THAT(metrics_.text(), HasSubstr(count("lpush", "error", 1)));
  server_.killHard();
  EXPECT_FALSE(connection.call({"GET", "key"}));
  now_ += Health::kStoreAwayMs;
  EXPECT_FALSE(connection.call({"GET", "key"}));
  EXPECT_THAT(metrics_.text(), HasSubstr(count("get", "unavailable", 2)));
  EXPECT_FALSE(health_.readiness().good);
  EXPECT_TRUE(health_.live().good);
  EXPECT_THAT(metrics_.text(), HasSubstr("allot_redis_reconnects_total{experiment=\"e\"} 0\n"));
  server_.start();
  ASSERT_TRUE(succeeded(connection.call({"GET", "key"})));
  EXPECT_THAT(metrics_.text(), HasSubstr(count("get", "ok", 1)));
  EXPECT_THAT(metrics_.text(), HasSubstr("allot_redis_reconnects_total{experiment=\"e\"} 1\n"));
  EXPECT_TRUE(health_.readiness().good);
}

}  // namespace
}  // namespace allot::test
