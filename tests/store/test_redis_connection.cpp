// Addresses, and servers that do not speak as Redis does.
#include "store/redis/redis_connection.h"
#include "store/store.h"
#include "tests/results.h"
#include "tests/store/conformance.h"
#include "tests/store/fake_server.h"

namespace allot::test {
namespace {

TEST(RedisAddress, TakesWhatItSaysAndNothingElse) {
  EXPECT_EQ(valueOf(parseRedisUrl("unix:/run/redis.sock")).unix_path, "/run/redis.sock");
  const auto tcp = valueOf(parseRedisUrl("redis://redis.example:6379"));
  EXPECT_EQ(tcp.host, "redis.example");
  EXPECT_EQ(tcp.port, 6379);
  EXPECT_EQ(parseRedisUrl("redis://[::1]:1")->host, "::1");
  EXPECT_EQ(parseRedisUrl("unix:///run/redis.sock")->unix_path, "/run/redis.sock");
  const auto full =
      valueOf(parseRedisUrl("redis://worker@h:1?password-file=/run/secrets/w@rker=1"));
  EXPECT_EQ(full.user, "worker");
  EXPECT_EQ(full.host, "h");
  EXPECT_EQ(full.password_file, "/run/secrets/w@rker=1");
  EXPECT_EQ(full.shown, "redis://worker@h:1");
  const auto socket = valueOf(parseRedisUrl("unix:/s?user=reader&password-file=/p"));
  EXPECT_EQ(socket.unix_path, "/s");
  EXPECT_EQ(socket.user, "reader");
  EXPECT_EQ(socket.password_file, "/p");
  EXPECT_EQ(socket.shown, "unix:/s");
  EXPECT_EQ(parseRedisUrl("redis://h:1?password-file=/p")->user, "");  // the default user
  const auto tls = valueOf(parseRedisUrl("rediss://h:1?ca=/ca&cert=/c&key=/k&name=x-redis"));
  EXPECT_TRUE(tls.tls && !tcp.tls && !socket.tls);
  EXPECT_EQ(tls.ca_file + tls.cert_file + tls.key_file + tls.name, "/ca/c/kx-redis");
  const auto refused = [](const std::string& url) {
    return failsWith(parseRedisUrl(url), ErrorCode::kUsage);
  };
  for (const char* url :
       {"", "unix:", "redis://", "redis://host", "redis://:6379", "http://h:1", "redis://h:0",
        "redis://h:65536", "redis://h:6379x", "redis://h:-1", "redis://h:", "redis://h:1/2",
        "redis://::1:6379", "redis://[]:1", "redis://u@h:6379", "redis://u:p@h:6379"}) {
    EXPECT_TRUE(refused(url)) << url;
  }
  for (const char* options :
       {"redis://@h:6379?password-file=/p", "redis://a b@h:6379?password-file=/p",
        "redis://h:1?user=u&password-file=/p", "redis://h:1?ca=/p", "redis://h:1?name=x",
        "rediss://h:1?name=", "rediss://h:1?key=/p", "redis://h:1?password-file",
        "redis://h:1?password-file=", "redis://h:1?password-file=/a&password-file=/b",
        "redis://h:1?password-file=/a%20b", "unix:/s?user=u", "unix:/s?user=a{b&password-file=/p",
        "unix:/s?ca=/p"}) {
    EXPECT_TRUE(refused(options)) << options;
  }
  for (const std::string& url :
       {std::string("unix://host/run/redis.sock"), std::string("redis://h:99999999999999999999"),
        "unix:" + std::string(200, 'x'), std::string("unix:/a\0b", 9)}) {
    EXPECT_TRUE(refused(url)) << url;
  }
}

TEST(RedisAddress, SaysWhatIsWrong) {
  for (const auto& [url, why] :
       {std::pair{"redis://h:7391/1",
                  "has a path behind its port; a number of a database is not supported"},
        {"redis://h:1?ca=/x", "has the option ca, which is for rediss://"},
        {"redis://h:0", "has a port outside 1..65535"}}) {
    EXPECT_THAT(parseRedisUrl(url), isError(testing::HasSubstr(why)));
  }
}

TEST(RedisAddress, APasswordInsideIsRefusedAndNotRepeated) {
  for (const std::string url :
       {"redis://user:s3cret@h:1", "redis://:s3cret@h:1", "redis://s3cret@h:1",
        "redis://user:s3cret@h", "redis://u:a?s3cret@h:1", "redis://u:s3cret?a@h:1",
        "redis://u:a@s3cret@h:1", "rediss://u:s3cret@h:1", "redis://h:1?password=s3cret",
        "redis://h:1?s3cret", "redis://h:1?s3cret=1", "unix:/s?password=s3cret",
        "unix:/s?user=u&password=s3cret", "http://u:s3cret@h:1", "u:s3cret@h:1",
        "redis://u:s3%63ret@h:1", "redis://u:s3cret/x@h:1", "redis:u:s3cret@h:1"}) {
    const auto address = parseRedisUrl(url);
    EXPECT_TRUE(failsWith(address, ErrorCode::kUsage)) << url;
    if (address) continue;
    EXPECT_EQ(address.error().message.find("s3"), std::string::npos) << address.error().message;
  }
  EXPECT_NE(parseRedisUrl("redis://user:s3cret@h:1").error().message.find("password-file="),
            std::string::npos);
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
    // The aggregator mends a key that a worker's script cannot use.
    const bool mended = answer.starts_with("-WRONGTYPE");
    EXPECT_TRUE(failsWith(store->takeTickets({1, 1}), mended ? ErrorCode::kUnavailable : code))
        << answer;
  }
}

// Refused by its header: sixty million integers need gigabytes here.
TEST(RedisConnection, AReplyWithMoreElementsThanAnyRunHasIsRefused) {
  for (const auto& [answer, refused] : {std::pair{"*2000001\r\n:1\r\n", true},
                                        {"*2\r\n*1999000\r\n:1\r\n", false},
                                        {"*3\r\n*1\r\n*2000000\r\n", true}}) {
    const FakeServer server(answer);
    const auto read = std::move(*openRedisStore(server.url(), "run", 20'000))->readHistory(0, 1);
    EXPECT_TRUE(failsWith(read, ErrorCode::kUnavailable)) << answer;
    EXPECT_EQ(messageOf(read).find("larger than any") != std::string::npos, refused) << answer;
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
    EXPECT_FALSE(open()->takeTickets({1, 1}).has_value()) << answer;
    EXPECT_FALSE(open()->pushResult(result("r"), 1).has_value()) << answer;
    EXPECT_FALSE(Leadership(*open(), 1).commit(commitOf(0, {})).has_value()) << answer;
    (void)open()->readInbox(1, 0);
    (void)open()->readSpec();
    (void)open()->readPolicy();
    (void)open()->readHistory(0, 10);
    (void)open()->readEvaluations("", 10);
    (void)open()->claimUnits({.holder = "w", .warm = {1}, .lease_ms = 10});
    (void)open()->awaitNews(1, [] { return false; });
    (void)open()->listWorkers();
  }
}

}  // namespace
}  // namespace allot::test
