// The stores that the suite runs on.
#include "tests/store/conformance_suite.h"

#include <chrono>
#include <thread>

#include "store/memory_store.h"
#include "store/redis_connection.h"
#include "tests/store/redis_server.h"

namespace allot::test {
namespace {

class MemoryBackend : public Backend {
 public:
  std::unique_ptr<Store> open() override { return openMemoryStore(server_); }
  void advance(uint64_t ms) override { *now_ += ms; }
  void inject(const std::string& id, const std::string& payload) override {
    server_->injectIntoInbox(id, payload);
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
