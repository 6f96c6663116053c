// Name servers that hang, and hosts with several addresses.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <netdb.h>

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "store/redis/redis_connection.h"
#include "tests/store/conformance.h"
#include "tests/store/fake_server.h"

namespace allot::test {
namespace {

// Stands for a name server.
class NameServer {
 public:
  void hang() {
    const std::lock_guard lock(mutex_);
    hangs_ = true;
    asked_ = 0;
  }
  void goOn() {
    const std::lock_guard lock(mutex_);
    hangs_ = false;
    goes_on_.notify_all();
  }
  // Comes back once it goes on; a caller that it holds up gets away after a while, for the test to
  // end.
  void ask() {
    std::unique_lock lock(mutex_);
    ++asked_;
    ++asking_;
    if (!goes_on_.wait_for(lock, std::chrono::seconds(20), [this] { return !hangs_; })) {
      held_up_ = true;
    }
    if (--asking_ == 0) idle_.notify_all();
  }
  // Until everybody who asked has an answer.
  void awaitIdle() {
    std::unique_lock lock(mutex_);
    idle_.wait_for(lock, std::chrono::seconds(20), [this] { return asking_ == 0; });
  }
  int asked() {
    const std::lock_guard lock(mutex_);
    return asked_;
  }
  bool heldUp() {
    const std::lock_guard lock(mutex_);
    return held_up_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable goes_on_, idle_;
  bool hangs_ = false, held_up_ = false;
  int asked_ = 0, asking_ = 0;
};

NameServer& nameServer() {
  static auto* const server = new NameServer;
  return *server;
}

}  // namespace
}  // namespace allot::test

// This program's own, which store and hiredis call.
extern "C" int getaddrinfo(const char* node, const char* service, const addrinfo* hints,
                           addrinfo** found) {
  static const auto real =
      reinterpret_cast<decltype(&getaddrinfo)>(dlsym(RTLD_NEXT, "getaddrinfo"));
  const std::string_view name = node == nullptr ? "" : node;
  if (name == "slow.test") {
    allot::test::nameServer().ask();
    return real("127.0.0.1", service, hints, found);
  }
  if (name == "two.test") {
    const int error = real("127.0.0.2", service, hints, found);
    return error != 0 ? error : real("127.0.0.1", service, hints, &(*found)->ai_next);
  }
  if (name == "none.test") return EAI_NONAME;
  return real(node, service, hints, found);
}

namespace allot::test {
namespace {

using ::testing::HasSubstr;

RedisConnection connectionTo(const std::string& host, const FakeServer& server,
                             uint64_t timeout_ms) {
  const std::string port = server.url().substr(server.url().rfind(':'));
  return RedisConnection(*parseRedisUrl("redis://" + host + port), timeout_ms);
}

TEST(HostLookup, HangsNobodyBeyondItsDeadline) {
  const FakeServer server("+PONG\r\n");
  auto connection = connectionTo("slow.test", server, 50);
  nameServer().hang();
  for (int i = 0; i < 3; ++i) {
    const auto pong = connection.call({"PING"});
    ASSERT_TRUE(failsWith(pong, ErrorCode::kUnavailable));
    ASSERT_FALSE(nameServer().heldUp());
    EXPECT_THAT(pong.error().message, HasSubstr("its name is still being looked up"));
  }
  EXPECT_EQ(nameServer().asked(), 1);  // all wait for one answer
  nameServer().goOn();
  auto patient = connectionTo("slow.test", server, 20'000);
  EXPECT_TRUE(succeeded(patient.call({"PING"})));
}

TEST(HostLookup, AnAnswerThatCameTooLateIsTheNextCalls) {
  const FakeServer server("+PONG\r\n");
  nameServer().hang();
  ASSERT_FALSE(connectionTo("slow.test", server, 50).call({"PING"}));
  nameServer().goOn();
  nameServer().awaitIdle();
  EXPECT_TRUE(succeeded(connectionTo("slow.test", server, 20'000).call({"PING"})));
  EXPECT_EQ(nameServer().asked(), 1);
}

TEST(HostLookup, TriesEachAddress) {
  const FakeServer server("+PONG\r\n");  // listens on 127.0.0.1 alone
  EXPECT_TRUE(succeeded(connectionTo("two.test", server, 20'000).call({"PING"})));
}

TEST(HostLookup, SaysWhyThereIsNoAddress) {
  const FakeServer server("+PONG\r\n");
  const auto pong = connectionTo("none.test", server, 20'000).call({"PING"});
  ASSERT_TRUE(failsWith(pong, ErrorCode::kUnavailable));
  EXPECT_THAT(pong.error().message, HasSubstr(gai_strerror(EAI_NONAME)));
}

}  // namespace
}  // namespace allot::test
