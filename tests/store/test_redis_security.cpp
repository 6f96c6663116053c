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

int freePort() {
  int port = 0;
  close(boundSocket(&port));
  return port;
}

// Throw-away authorities ("ca", "other"), and certificates of "ca" for localhost: of the server, of
// us, and one that has expired.
void makeCertificates(const std::string& folder) {
  const std::string script =
      "cd '" + folder +
      "' && exec 2>openssl.log && set -e\n"
      "key='-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes'\n"
      "echo subjectAltName=DNS:localhost > ext\n"
      "for name in ca other; do\n"
      "openssl req -x509 $key -days 2 -subj /CN=$name -keyout $name.key -out $name.crt\n"
      "done\n"
      "for name in server client expired; do\n"
      "days=2; if [ $name = expired ]; then days=-1; fi\n"
      "openssl req $key -subj /CN=$name -keyout $name.key -out $name.csr\n"
      "openssl x509 -req -in $name.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days $days "
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
  std::string good() const { return url("localhost", "?ca=" + path("ca.crt") + ours()); }
  Result<std::vector<uint64_t>> take(const std::string& url, uint64_t timeout_ms = 2000) {
    auto store = openRedisStore(url, "run", timeout_ms);
    if (!store) return tl::unexpected(store.error());
    return (*store)->takeTickets({1, 100});
  }
  // The sentence of a call that cannot be served now.
  std::string sentence(const std::string& url, uint64_t timeout_ms = 2000) {
    const auto taken = take(url, timeout_ms);
    EXPECT_TRUE(failsWith(taken, ErrorCode::kUnavailable)) << url;
    return messageOf(taken);
  }
  void replace(const std::string& name, const std::string& by) const {
    std::filesystem::copy_file(path(by), path(name),
                               std::filesystem::copy_options::overwrite_existing);
  }

  int port_ = freePort();
  RedisServer server_{
      {"--tls-port", std::to_string(port_), "--tls-cert-file", "FOLDER/server.crt",
       "--tls-key-file", "FOLDER/server.key", "--tls-ca-cert-file", "FOLDER/ca.crt"},
      makeCertificates};
};

TEST_F(RedisTls, EachSideShowsItsCertificate) {
  signal(SIGPIPE, SIG_DFL);
  auto store = std::move(*openRedisStore(good(), "run", 2000));
  const Leadership leader = lead(*store);
  auto large = result("large");
  large.set_worker(std::string(200'000, 'x'));
  ASSERT_TRUE(succeeded(store->pushResult(large, 10)));
  const auto entries = store->readInbox(10, 0).value();
  ASSERT_EQ(entries.size(), 1u);
  EXPECT_EQ(entries[0].payload, large.SerializeAsString());
  EXPECT_TRUE(succeeded(leader.commit(commitOf(0, entries))));
  EXPECT_TRUE(succeeded(store->readInbox(1, 50)));

  server_.killHard();  // a write to the dead socket must not kill us either
  for (int i = 0; i < 3; ++i)
    EXPECT_TRUE(failsWith(store->takeTickets({1, 10}), ErrorCode::kUnavailable));
  server_.start();
  EXPECT_TRUE(succeeded(store->takeTickets({1, 10})));
}

TEST_F(RedisTls, SaysWhatIsWrong) {
  const std::string ca = "?ca=" + path("ca.crt");
  EXPECT_THAT(sentence(url("localhost", "")), HasSubstr("no authority of this system has signed"));
  EXPECT_THAT(sentence(url("localhost", "?ca=" + path("other.crt"))),
              AllOf(HasSubstr("the store at " + url("localhost", "") + " shows"),
                    HasSubstr("no authority in " + path("other.crt") + " has signed")));
  EXPECT_THAT(sentence(url("127.0.0.1", ca + ours())), HasSubstr("is not for 127.0.0.1: "));
  EXPECT_THAT(sentence(url("localhost", ca + ours() + "&name=redis.example")),
              HasSubstr("is not for redis.example: "));
  EXPECT_TRUE(succeeded(take(url("127.0.0.1", ca + ours() + "&name=localhost"))));
  EXPECT_THAT(sentence(url("localhost", ca)), HasSubstr("add cert= and key="));

  // One side without TLS.
  EXPECT_THAT(sentence("redis://localhost:" + std::to_string(port_)), HasSubstr("write rediss://"));
  const auto plain = [&](const std::string& port, uint64_t timeout_ms = 2000) {
    const std::string address = "rediss://127.0.0.1:" + port;
    EXPECT_THAT(sentence(address, timeout_ms),
                AllOf(HasSubstr(address + " does not answer in TLS"), HasSubstr("write redis://")));
  };
  for (const char* const answer : {"-ERR unknown command\r\n", ""}) {
    const FakeServer server(answer);
    plain(server.url().substr(server.url().rfind(':') + 1));
  }
  const std::string port = std::to_string(freePort());
  const RedisServer without({"--port", port});
  plain(port, 300);  // it may wait for the end of a line

  // Files that cannot be used.
  for (const std::string& options :
       {std::string("?ca=/no/such/file"), ca + "&cert=/no/such/file&key=" + path("client.key"),
        ca + "&cert=" + path("server.crt") + "&key=" + path("client.key"),
        "?cert=" + path("client.crt")})
    EXPECT_TRUE(failsWith(take(url("localhost", options)), ErrorCode::kUsage)) << options;
}

// Certificates are renewed on both sides while we run, in any order.
TEST_F(RedisTls, FilesAreReadAtEachConnect) {
  auto store = std::move(*openRedisStore(good(), "run", 2000));
  ASSERT_TRUE(succeeded(store->takeTickets({1, 10})));
  const auto restart = [&] {
    server_.killHard();
    EXPECT_FALSE(store->takeTickets({1, 10}).has_value());
    server_.start();
  };
  std::filesystem::copy_file(path("server.crt"), path("renewed.crt"));
  replace("server.key", "expired.key");
  replace("server.crt", "expired.crt");
  restart();
  const auto expired = store->takeTickets({1, 10});
  EXPECT_TRUE(failsWith(expired, ErrorCode::kUnavailable));
  EXPECT_THAT(messageOf(expired), HasSubstr("has expired: renew it"));
  replace("server.key", "other.key");  // an authority's own certificate, which has no name
  replace("server.crt", "other.crt");
  restart();
  EXPECT_THAT(messageOf(store->takeTickets({1, 10})), HasSubstr("no authority in"));
  replace("ca.crt", "other.crt");
  EXPECT_THAT(messageOf(store->takeTickets({1, 10})), HasSubstr("is not for localhost"));

  // A file that was there before and is being replaced ends nobody.
  std::filesystem::remove(path("client.key"));
  EXPECT_TRUE(failsWith(store->takeTickets({1, 10}), ErrorCode::kUnavailable));
  EXPECT_TRUE(failsWith(take(good()), ErrorCode::kUsage));
}

TEST_F(RedisTls, AServerThatHangsIsLeft) {
  auto store = std::move(*openRedisStore(good(), "run", 300));
  ASSERT_TRUE(succeeded(store->takeTickets({1, 10})));
  server_.freeze();
  EXPECT_TRUE(failsWith(store->takeTickets({1, 10}), ErrorCode::kUnavailable));
  EXPECT_TRUE(failsWith(store->takeTickets({1, 10}), ErrorCode::kUnavailable));  // in the handshake
  server_.thaw();
  EXPECT_TRUE(succeeded(store->takeTickets({1, 10})));
}

// The first bytes of a server are the protocol's own (tickets of sessions), and no entry.
TEST_F(RedisTls, AWaitAsksWhetherToStop) {
  RedisConnection raw(valueOf(parseRedisUrl(good())), 2000);
  int asked = 0;
  EXPECT_EQ(valueOf(raw.wait("stream", "0", 10'000, [&] { return ++asked == 3; })), "");
  EXPECT_EQ(asked, 3);
}

}  // namespace
}  // namespace allot::test
