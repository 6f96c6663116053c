// Addresses, and servers that do not speak as Redis does.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "store/redis_connection.h"
#include "store/store.h"
#include "tests/store/conformance.h"

namespace allot::test {
namespace {

// Listens on a TCP port of this host and answers the first request of each client with fixed bytes.
class FakeServer {
 public:
  explicit FakeServer(std::string answer) : answer_(std::move(answer)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    fd_ = socket(AF_INET, SOCK_STREAM, 0);
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(fd_, 8), 0);
    EXPECT_EQ(getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { serve(); });
  }
  ~FakeServer() {
    shutdown(fd_, SHUT_RDWR);
    thread_.join();
    close(fd_);
  }
  std::string url() const { return "redis://127.0.0.1:" + std::to_string(port_); }

 private:
  void serve() {
    for (;;) {
      const int client = accept(fd_, nullptr, nullptr);
      if (client < 0) return;
      char request[4096];
      if (recv(client, request, sizeof(request), 0) > 0)
        send(client, answer_.data(), answer_.size(), MSG_NOSIGNAL);
      close(client);
    }
  }

  std::string answer_;
  int fd_ = -1;
  int port_ = 0;
  std::thread thread_;
};

TEST(RedisAddress, TakesWhatItSaysAndNothingElse) {
  const auto unix_address = parseRedisUrl("unix:/run/redis.sock");
  ASSERT_TRUE(succeeded(unix_address));
  EXPECT_EQ(unix_address->unix_path, "/run/redis.sock");
  const auto tcp = parseRedisUrl("redis://redis.example:6379");
  ASSERT_TRUE(succeeded(tcp));
  EXPECT_EQ(tcp->host, "redis.example");
  EXPECT_EQ(tcp->port, 6379);
  EXPECT_EQ(parseRedisUrl("redis://[::1]:1")->host, "::1");
  const std::vector<std::string> bad = {"",
                                        "unix:",
                                        "redis://",
                                        "redis://host",
                                        "redis://:6379",
                                        "http://h:1",
                                        "redis://h:0",
                                        "redis://h:65536",
                                        "redis://h:6379x",
                                        "redis://h:-1",
                                        "redis://h:",
                                        "redis://h:1/2",
                                        "redis://u:p@h:6379",
                                        "redis://::1:6379",
                                        "redis://[]:1",
                                        "redis://h:99999999999999999999",
                                        "unix:" + std::string(200, 'x'),
                                        std::string("unix:/a\0b", 9)};
  for (const std::string& url : bad)
    EXPECT_TRUE(failsWith(parseRedisUrl(url), ErrorCode::kUsage)) << url;
}

TEST(RedisAddress, ARunIdMayNotLeaveItsBraces) {
  EXPECT_TRUE(succeeded(openRedisStore("unix:/x", "01HXYZ.a_b-c")));
  for (const std::string id : {"", "a}b", "{", "a b", "a:b"})
    EXPECT_TRUE(failsWith(openRedisStore("unix:/x", id), ErrorCode::kUsage)) << id;
  EXPECT_TRUE(failsWith(openRedisStore("nowhere", "run"), ErrorCode::kUsage));
}

TEST(RedisConnection, ConditionsOfTheServerAreUnavailableOtherErrorsAreFaults) {
  const std::vector<std::pair<std::string, ErrorCode>> cases = {
      {"-LOADING Redis is loading the dataset in memory\r\n", ErrorCode::kUnavailable},
      {"-MISCONF errors writing to the AOF file\r\n", ErrorCode::kUnavailable},
      {"-READONLY You can't write against a read only replica.\r\n", ErrorCode::kUnavailable},
      {"-ERR max number of clients reached\r\n", ErrorCode::kUnavailable},
      {"-NOAUTH Authentication required.\r\n", ErrorCode::kUsage},
      {"-WRONGTYPE Operation against a key\r\n", ErrorCode::kInternal},
      {"HTTP/1.1 400 Bad Request\r\n\r\n", ErrorCode::kUnavailable},
      {"", ErrorCode::kUnavailable},
      {"$100\r\ncut off", ErrorCode::kUnavailable},
  };
  for (const auto& [answer, code] : cases) {
    const FakeServer server(answer);
    auto store = std::move(*openRedisStore(server.url(), "run", 2000));
    const auto policy = store->readPolicy();
    EXPECT_TRUE(failsWith(policy, code)) << answer;
    if (!policy) {
      EXPECT_NE(policy.error().message.find(server.url()), std::string::npos) << answer;
    }
    store = std::move(*openRedisStore(server.url(), "run", 2000));  // the server has hung up
    EXPECT_TRUE(failsWith(store->takeTickets(1, 1), code)) << answer;
  }
}

// Well-formed RESP of the wrong shape: an error or emptiness, never a crash.
TEST(RedisConnection, RepliesOfTheWrongShapeAreSurvived) {
  for (const std::string answer :
       {"+OK\r\n", ":1\r\n", "$-1\r\n", "*-1\r\n", "*0\r\n", "*1\r\n*0\r\n", "*1\r\n:7\r\n",
        "*2\r\n$3\r\nNEW\r\n$1\r\nx\r\n", "*1\r\n*2\r\n$1\r\na\r\n*1\r\n$1\r\nb\r\n"}) {
    const FakeServer server(answer);
    // A new connection each, because the server hangs up after one answer.
    const auto open = [&] { return std::move(*openRedisStore(server.url(), "run", 2000)); };
    EXPECT_FALSE(open()->acquireLease("a", 1).has_value()) << answer;
    EXPECT_FALSE(open()->takeTickets(1, 1).has_value()) << answer;
    EXPECT_FALSE(open()->pushResult(result("r"), 1).has_value()) << answer;
    EXPECT_FALSE(open()->commit(commitOf(1, 0, {})).has_value()) << answer;
    (void)open()->readInbox(1, 0);
    (void)open()->readSpec();
    (void)open()->readPolicy();
    (void)open()->readHistory(0, 10);
    (void)open()->readEvaluations("", 10);
    (void)open()->claimUnits({1}, 10);
    (void)open()->listWorkers();
  }
}

}  // namespace
}  // namespace allot::test
