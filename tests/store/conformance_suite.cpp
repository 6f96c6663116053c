// The stores that the suite runs on.
#include "tests/store/conformance_suite.h"

#include <chrono>
#include <thread>

#include "store/memory/memory_store.h"
#include "store/redis/redis_connection.h"
#include "tests/store/redis_server.h"

namespace allot::test {
namespace {

class MemoryBackend : public Backend {
 public:
  std::unique_ptr<Store> open() override { return openMemoryStore(server_); }
  void advance(uint64_t ms) override { *now_ += ms; }
  void turnBack(uint64_t ms) override { *now_ -= ms; }
  void inject(const std::string& id, const std::string& payload) override {
    server_->injectIntoInbox(id, payload);
  }

 private:
  std::shared_ptr<uint64_t> now_ = std::make_shared<uint64_t>(1'000'000'000);
  std::shared_ptr<MemoryServer> server_ =
      std::make_shared<MemoryServer>([now = now_] { return *now; });
};

// KEYS: 1 lease 2 units 3 workers   ARGV: 1 ms
constexpr const char* kSetForward = R"(
if redis.call('HEXISTS', KEYS[1], 'expires_ms') == 1 then
  redis.call('HINCRBY', KEYS[1], 'expires_ms', ARGV[1])
end
for i = 2, 3 do
  for _, name in ipairs(redis.call('ZRANGEBYSCORE', KEYS[i], '(0', '+inf')) do
    redis.call('ZINCRBY', KEYS[i], ARGV[1], name)
  end
end)";

class RedisBackend : public Backend {
 public:
  std::unique_ptr<Store> open() override {
    return std::move(*openRedisStore(server_.url(), "run"));
  }
  void advance(uint64_t ms) override { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }
  // Nobody sets the clock of the machine: what is stored is set forward instead, which is the same.
  void turnBack(uint64_t ms) override {
    ASSERT_TRUE(raw_.call({"EVAL", kSetForward, "3", "allot:{run}:lease", "allot:{run}:units",
                           "allot:{run}:workers", std::to_string(ms)}));
  }
  void inject(const std::string& id, const std::string& payload) override {
    ASSERT_TRUE(raw_.call({"XADD", "allot:{run}:inbox", "*", "id", id, "r", payload}));
  }

 private:
  RedisServer server_;
  RedisConnection raw_{*parseRedisUrl(server_.url()), 5000};
};

}  // namespace

INSTANTIATE_TEST_SUITE_P(
    Stores, StoreConformance,
    ::testing::Values(BackendFactory{"Memory", [] { return std::make_unique<MemoryBackend>(); }},
                      BackendFactory{"Redis", [] { return std::make_unique<RedisBackend>(); }}),
    [](const auto& info) { return info.param.name; });

}  // namespace allot::test
