// Passwords and TLS: who we are to the server, and who it is to us.
#include <signal.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "store/redis/redis_connection.h"
#include "tests/results.h"
#include "tests/store/conformance.h"
#include "tests/store/fake_server.h"
#include "tests/store/redis_server.h"

namespace allot::test {
namespace {

void writeText(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

TEST(RedisPassword, ComesFromItsFileAtEachConnect) {
  RedisServer server({"--requirepass", "first"});
  const std::string file = server.folder() + "/password";
  const std::string url = server.url() + "?password-file=" + file;
  writeText(file, "first\n");
  auto store = std::move(*openRedisStore(url, "run"));
  ASSERT_TRUE(succeeded(store->takeTickets({1, 10})));

  // The password is changed there and here while we are connected; then the server restarts.
  server.killHard();
  EXPECT_TRUE(failsWith(store->takeTickets({1, 10}), ErrorCode::kUnavailable));
  writeText(file, "second\r\n");
  server.setMore({"--requirepass", "second"});
  server.start();
  EXPECT_THAT(store->takeTickets({1, 10}).value(), ElementsAre(1));

  RedisConnection raw(*parseRedisUrl(url), 1000);
  ASSERT_TRUE(raw.call({"ACL", "SETUSER", "someone", "on", ">pw", "~*", "+@all"}));
  writeText(file, "pw");
  const std::string someone = server.url() + "?user=someone&password-file=" + file;
  EXPECT_EQ(RedisConnection(*parseRedisUrl(someone), 1000).call({"ACL", "WHOAMI"})->view().text(),
            "someone");
}

// A person changes the password there and here, in any order: who was let in before waits.
TEST(RedisPassword, WaitsWhileItIsBeingChanged) {
  RedisServer server;
  RedisConnection admin(*parseRedisUrl(server.url()), 1000);
  const std::string file = server.folder() + "/password";
  const std::string url = server.url() + "?user=w&password-file=" + file;
  const auto change = [&](const std::string& rule) {
    ASSERT_TRUE(admin.call({"ACL", "SETUSER", "w", rule}));
    ASSERT_TRUE(admin.call({"CLIENT", "KILL", "USER", "w"}));
  };
  for (const char* rule : {"on", ">first", "~*", "+@all"}) change(rule);
  writeText(file, "wrong");
  auto store = std::move(*openRedisStore(url, "run", 1000));
  EXPECT_TRUE(failsWith(store->takeTickets({1, 10}), ErrorCode::kUsage));  // it was never right
  writeText(file, "first");
  ASSERT_TRUE(succeeded(store->takeTickets({1, 10})));

  change("resetpass");
  change(">second");
  (void)store->takeTickets({1, 10});  // the connection was closed
  const auto refused = store->takeTickets({1, 10});
  EXPECT_TRUE(failsWith(refused, ErrorCode::kUnavailable));
  EXPECT_THAT(messageOf(refused), HasSubstr("does not take the password in " + file));
  EXPECT_THAT(messageOf(refused), Not(HasSubstr("first")));
  EXPECT_TRUE(failsWith(findRun(url, "recall"), ErrorCode::kUnavailable));  // connects anew
  std::filesystem::remove(file);                                            // as it is replaced
  EXPECT_TRUE(failsWith(store->takeTickets({1, 10}), ErrorCode::kUnavailable));
  writeText(file, "second");
  EXPECT_EQ(store->takeTickets({1, 10})->size(), 1u);

  // The file first: the connection that is open stays so, a new one waits.
  writeText(file, "third");
  EXPECT_TRUE(succeeded(store->takeTickets({1, 10})));
  EXPECT_TRUE(failsWith(findRun(url, "recall"), ErrorCode::kUnavailable));
  change(">third");
  (void)store->takeTickets({1, 10});
  EXPECT_TRUE(succeeded(store->takeTickets({1, 10})));

  // A right that it had comes back; one that it never had does not.
  change("-zpopmin");
  (void)store->inboxSize();
  EXPECT_TRUE(failsWith(store->takeTickets({1, 10}), ErrorCode::kUnavailable));
  change("-xread");
  (void)store->inboxSize();
  EXPECT_TRUE(failsWith(store->readInbox(1, 10), ErrorCode::kUsage));
  change("+zpopmin");
  (void)store->inboxSize();
  EXPECT_TRUE(succeeded(store->takeTickets({1, 10})));
}

TEST(RedisPassword, IsNeverInAMessage) {
  RedisServer server({"--requirepass", "right"});
  const std::string file = server.folder() + "/password";
  const auto call = [&](const std::string& url) {
    return std::move(*openRedisStore(url, "run", 1000))->readPolicy();
  };
  const std::string url = server.url() + "?password-file=" + file;
  const auto missing = call(url);
  EXPECT_TRUE(failsWith(missing, ErrorCode::kUsage));
  EXPECT_THAT(messageOf(missing), HasSubstr(file));
  writeText(file, "\n");
  EXPECT_TRUE(failsWith(call(url), ErrorCode::kUsage));
  writeText(file, std::string(5000, 'x'));
  EXPECT_TRUE(failsWith(call(url), ErrorCode::kUsage));
  EXPECT_TRUE(failsWith(call(server.url()), ErrorCode::kUsage));  // without one

  writeText(file, "s3cret\n");
  const auto wrong = call(url);
  EXPECT_TRUE(failsWith(wrong, ErrorCode::kUsage));
  EXPECT_THAT(messageOf(wrong), HasSubstr(file));
  EXPECT_THAT(messageOf(wrong), Not(HasSubstr("s3cret")));
  // Some servers quote what they do not understand.
  for (const std::string answer :
       {"-ERR unknown command `AUTH`, with args beginning with: `s3cret`", "-LOADING s3cret",
        "-WRONGPASS s3cret", "+s3cret", "s3cret"}) {
    const FakeServer fake(answer + "\r\n");
    const auto quoted = call(fake.url() + "?password-file=" + file);
    EXPECT_FALSE(quoted.has_value());
    EXPECT_THAT(messageOf(quoted), HasSubstr(fake.url()));
    EXPECT_THAT(messageOf(quoted), Not(HasSubstr("s3cret")));
    EXPECT_THAT(messageOf(quoted), Not(HasSubstr("?")));
  }
  // A server that has no room for us now is no fault of the password.
  const FakeServer full("-ERR max number of clients reached\r\n");
  EXPECT_TRUE(failsWith(call(full.url() + "?password-file=" + file), ErrorCode::kUnavailable));
}

#if ALLOT_REDIS_TLS

int freePort() {
  int port = 0;
  close(boundSocket(&port));
  return port;
}

// A throw-away authority, and certificates for the server ("localhost") and for us.
void makeCertificates(const std::string& folder) {
  const std::string script =
      "cd '" + folder +
      "' && exec 2>openssl.log && set -e\n"
      "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=ca "
      "-keyout ca.key -out ca.crt\n"
      "for name in server client; do\n"
      "openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=$name "
      "-keyout $name.key -out $name.csr\n"
      "echo subjectAltName=DNS:localhost > ext\n"
      "openssl x509 -req -in $name.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 "
      "-extfile ext -out $name.crt\n"
      "done\n";
  ASSERT_EQ(std::system(script.c_str()), 0) << "see openssl.log in " << folder;
}

class RedisTls : public ::testing::Test {
 protected:
  std::string url(const std::string& host, const std::string& options) const {
    return "rediss://" + host + ":" + std::to_string(port_) + options;
  }
  std::string path(const std::string& name) const { return server_.folder() + "/" + name; }
  std::string ours() const { return "&cert=" + path("client.crt") + "&key=" + path("client.key"); }
  Result<std::vector<uint64_t>> take(const std::string& url) {
    auto store = openRedisStore(url, "run", 2000);
    if (!store) return tl::unexpected(store.error());
    return (*store)->takeTickets({1, 100});
  }

  int port_ = freePort();
  RedisServer server_{
      {"--tls-port", std::to_string(port_), "--tls-cert-file", "FOLDER/server.crt",
       "--tls-key-file", "FOLDER/server.key", "--tls-ca-cert-file", "FOLDER/ca.crt"},
      makeCertificates};
};

TEST_F(RedisTls, EachSideShowsItsCertificate) {
  signal(SIGPIPE, SIG_DFL);
  const std::string good = url("localhost", "?ca=" + path("ca.crt") + ours());
  auto store = std::move(*openRedisStore(good, "run", 2000));
  const Leadership leader = lead(*store);
  auto large = result("large");
  large.set_worker(std::string(200'000, 'x'));
  ASSERT_TRUE(succeeded(store->pushResult(large, 10)));
  const auto entries = store->readInbox(10, 0).value();
  ASSERT_EQ(entries.size(), 1u);
  EXPECT_EQ(entries[0].payload, large.SerializeAsString());
  EXPECT_TRUE(succeeded(leader.commit(commitOf(0, entries))));
  EXPECT_TRUE(succeeded(store->readInbox(1, 50)));

  const auto strangers = take(url("localhost", ""));  // no authority of the system signed this
  EXPECT_TRUE(failsWith(strangers, ErrorCode::kUnavailable));
  EXPECT_THAT(messageOf(strangers), HasSubstr("certificate"));
  // Another name than the one in the certificate.
  EXPECT_TRUE(
      failsWith(take(url("127.0.0.1", "?ca=" + path("ca.crt") + ours())), ErrorCode::kUnavailable));
  // Redis wants to see ours.
  EXPECT_TRUE(failsWith(take(url("localhost", "?ca=" + path("ca.crt"))), ErrorCode::kUnavailable));
  EXPECT_TRUE(
      failsWith(take("redis://localhost:" + std::to_string(port_)), ErrorCode::kUnavailable));
  EXPECT_TRUE(failsWith(take(url("localhost", "?ca=/no/such/file")), ErrorCode::kUsage));
  EXPECT_TRUE(
      failsWith(take(url("localhost", "?ca=" + path("ca.crt") + "&cert=" + path("server.crt") +
                                          "&key=" + path("client.key"))),
                ErrorCode::kUsage));
  EXPECT_TRUE(failsWith(take(url("localhost", "?cert=" + path("client.crt"))), ErrorCode::kUsage));

  server_.killHard();  // a write to the dead socket must not kill us either
  for (int i = 0; i < 3; ++i)
    EXPECT_TRUE(failsWith(store->takeTickets({1, 10}), ErrorCode::kUnavailable));
  server_.start();
  EXPECT_TRUE(succeeded(store->takeTickets({1, 10})));
}

TEST_F(RedisTls, AServerThatHangsIsLeft) {
  const std::string good = url("localhost", "?ca=" + path("ca.crt") + ours());
  auto store = std::move(*openRedisStore(good, "run", 300));
  ASSERT_TRUE(succeeded(store->takeTickets({1, 10})));
  server_.freeze();
  EXPECT_TRUE(failsWith(store->takeTickets({1, 10}), ErrorCode::kUnavailable));
  EXPECT_TRUE(failsWith(store->takeTickets({1, 10}), ErrorCode::kUnavailable));  // in the handshake
  server_.thaw();
  EXPECT_TRUE(succeeded(store->takeTickets({1, 10})));
}

#else

TEST(RedisTls, IsMissingFromThisBuild) {
  const auto address = parseRedisUrl("rediss://h:1?ca=/ca.crt");
  EXPECT_TRUE(failsWith(address, ErrorCode::kUsage));
  EXPECT_THAT(messageOf(address), HasSubstr("hiredis_ssl"));
  GTEST_SKIP()
      << "a TLS round trip needs hiredis_ssl (hiredis 1.0 or newer), which this build lacks";
}

#endif

}  // namespace
}  // namespace allot::test
