// How the client finds the API server, whom it trusts, and who it says it is.
#include "k8s/client/server_access.h"

#include "k8s/client/api.h"
#include "tests/k8s/client/fake_api.h"
#include "tests/k8s/client/kube_objects.h"
#include "tests/k8s/client/test_pki.h"
#include "tests/results.h"
#include "tests/temp_folder.h"

namespace allot::kube::test {
namespace {

constexpr Limits kShort{.connect = milliseconds(2000), .request = milliseconds(2000)};

TEST(AccessOf, Addresses) {
  const auto a = *accessOf("https://10.0.0.1:6443");
  EXPECT_TRUE(a.tls && a.host == "10.0.0.1" && a.port == 6443);
  const auto b = *accessOf("http://localhost:8001/");
  EXPECT_TRUE(!b.tls && b.host == "localhost" && b.port == 8001);
  const auto c = *accessOf("https://[fd00::1]:6443");
  EXPECT_TRUE(c.host == "fd00::1" && c.port == 6443);
  EXPECT_EQ(c.url(), "https://[fd00::1]:6443");
  EXPECT_EQ(accessOf("https://kubernetes")->port, 443);
  for (const char* odd :
       {"", "10.0.0.1:6443", "https://", "https://a:0", "https://a:x", "https://a:70000",
        "https://a/path", "https://u@a", "https://[::1", "https://a b", "https://:80"}) {
    EXPECT_THAT(accessOf(odd), isError(HasSubstr("is no address of an API server"))) << odd;
  }
}

TEST(InCluster, IsFoundOrSaysWhatIsMissing) {
  const TempFolder folder;
  std::map<std::string, std::string> variables;
  const auto found = [&] {
    return inCluster(
        [&](const std::string& name) -> std::optional<std::string> {
          return variables.contains(name) ? std::optional(variables[name]) : std::nullopt;
        },
        folder.path());
  };
  EXPECT_THAT(found().error().message, HasSubstr("KUBERNETES_SERVICE_HOST"));
  variables = {{"KUBERNETES_SERVICE_HOST", "10.0.0.1"}, {"KUBERNETES_SERVICE_PORT", "many"}};
  EXPECT_THAT(found().error().message, HasSubstr("\"many\", which is no port"));
  variables["KUBERNETES_SERVICE_PORT"] = "6443";
  EXPECT_THAT(found().error().message, HasSubstr("ca.crt cannot be read"));
  folder.write("ca.crt", "x");
  EXPECT_THAT(found().error().message, HasSubstr("token cannot be read"));
  folder.write("token", "t");
  folder.write("namespace", "allot-system");
  const auto access = valueOf(found());
  EXPECT_EQ(access.url(), "https://10.0.0.1:6443");
  EXPECT_EQ(access.own_namespace, "allot-system");
}

TEST(Token, IsReadAgainWhenItIsOlderThanAMinute) {
  const TempFolder folder;
  ServerAccess access;
  access.token_file = folder.write("token", "one\n");
  TimePoint now{seconds(1000)};
  Token token(access, [&] { return now; });
  EXPECT_EQ(*token.get(), "one");
  folder.write("token", "two");
  now += seconds(60);
  EXPECT_EQ(*token.get(), "one");
  now += seconds(1);
  EXPECT_EQ(*token.get(), "two");
  folder.write("token", "three");
  token.forget();
  EXPECT_EQ(*token.get(), "three");
  // One that was read stays in force while the file is not what it should be.
  for (const char* odd : {"", "a b", "a\r\nX-Evil: 1"}) {
    folder.write("token", odd);
    token.forget();
    EXPECT_EQ(*token.get(), "three");
    EXPECT_FALSE(Token(access, [&] { return now; }).get()) << odd;
  }
}

TEST(TokenAtServer, AnExpiredOneIsReadAgainOnce) {
  const TempFolder folder;
  FakeApi api({.token = "new"});
  api.store().put(configMap("a", "1"));
  ServerAccess access = api.access();
  access.token_file = folder.write("token", "old");
  Api client(access, kShort);
  const auto refused = client.get(kConfigMaps, {"ns", "a"});
  EXPECT_EQ(refused.error().code, 401);
  EXPECT_TRUE(refused.error().refused());
  EXPECT_EQ(api.requests(), 2u);
  // It is fresh, but the server does not take it: the file has a newer one.
  folder.write("token", "new");
  EXPECT_TRUE(client.get(kConfigMaps, {"ns", "a"}));
  EXPECT_EQ(api.asked().back().authorization, "Bearer new");
  api.setToken("newer");
  folder.write("token", "newer");
  EXPECT_THAT(client.watch(kConfigMaps, "ns", {.resource_version = "1", .timeout = seconds(0)},
                           [](const WatchEvent&) {}),
              succeeds());
}

TEST(TokenAtServer, IsNotSentInTheClear) {
  ServerAccess access = *accessOf("http://192.0.2.1:80");
  access.token = "secret";
  EXPECT_THAT(Api(access, kShort).get(kConfigMaps, {"ns", "a"}).error().message,
              HasSubstr("the token is not sent to http://192.0.2.1:80"));
}

class TlsTest : public testing::Test {
 protected:
  TlsTest() : server_(pki_.issue("server", "IP:127.0.0.1")) {}

  TestPki pki_;
  TestPki::Pair server_;
};

TEST_F(TlsTest, TrustsItsAuthorityAlone) {
  FakeApi api({.certificate_file = server_.certificate_file, .key_file = server_.key_file});
  api.store().put(configMap("a", "1"));
  ServerAccess access = api.access();
  access.ca_file = pki_.ca_file();
  Api client(access, kShort);
  EXPECT_TRUE(client.get(kConfigMaps, {"ns", "a"}));
  api.cutConnections();
  EXPECT_TRUE(client.get(kConfigMaps, {"ns", "a"}));
  EXPECT_EQ(api.connections(), 2u);

  const TestPki other;
  access.ca_file = other.ca_file();
  const auto refused = Api(access, kShort).get(kConfigMaps, {"ns", "a"});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().reason, "Untrusted");
  EXPECT_THAT(refused.error().message, HasSubstr("from the authorities in " + other.ca_file()));
  access.ca_file.clear();
  EXPECT_EQ(Api(access, kShort).get(kConfigMaps, {"ns", "a"}).error().reason, "Untrusted");
  access.ca_file = "/no/such/ca.crt";
  EXPECT_THAT(Api(access, kShort).get(kConfigMaps, {"ns", "a"}).error().message,
              HasSubstr("/no/such/ca.crt cannot be used"));
}

TEST_F(TlsTest, TheCertificateMustBeForTheHost) {
  const auto elsewhere = pki_.issue("elsewhere", "IP:127.0.0.2");
  const FakeApi api(
      {.certificate_file = elsewhere.certificate_file, .key_file = elsewhere.key_file});
  ServerAccess access = api.access();
  access.ca_file = pki_.ca_file();
  const auto refused = Api(access, kShort).get(kConfigMaps, {"ns", "a"});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().reason, "Untrusted");
}

TEST_F(TlsTest, ShowsAClientsCertificate) {
  FakeApi api({.certificate_file = server_.certificate_file,
               .key_file = server_.key_file,
               .client_ca_file = pki_.ca_file()});
  api.store().put(configMap("a", "1"));
  ServerAccess access = api.access();
  access.ca_file = pki_.ca_file();
  EXPECT_FALSE(Api(access, kShort).get(kConfigMaps, {"ns", "a"}));
  const auto me = pki_.issue("me", "");
  access.certificate_file = me.certificate_file;
  access.key_file = me.key_file;
  EXPECT_TRUE(Api(access, kShort).get(kConfigMaps, {"ns", "a"}));
}

TEST_F(TlsTest, AnAuthorityThatIsReplacedIsTakenUp) {
  FakeApi api({.certificate_file = server_.certificate_file, .key_file = server_.key_file});
  api.store().put(configMap("a", "1"));
  const TestPki other;
  const TempFolder folder;
  ServerAccess access = api.access();
  access.ca_file = folder.write("ca.crt", readFile(other.ca_file()));
  Api client(access, kShort);
  EXPECT_EQ(client.get(kConfigMaps, {"ns", "a"}).error().reason, "Untrusted");
  folder.write("ca.crt", readFile(pki_.ca_file()));
  EXPECT_TRUE(client.get(kConfigMaps, {"ns", "a"}));
}

TEST_F(TlsTest, WatchesAndTimeOutsOverTlsToo) {
  FakeApi api({.certificate_file = server_.certificate_file, .key_file = server_.key_file});
  ServerAccess access = api.access();
  access.ca_file = pki_.ca_file();
  Api client(access, {.request = milliseconds(300)});
  api.script({.pieces = {eventLine("ADDED", withVersion(configMap("a", "1"), "8"))},
              .end = Scripted::End::kHang});
  int events = 0;
  const auto ended =
      client.watch(kConfigMaps, "ns",
                   {.resource_version = "1", .timeout = seconds(0), .grace = milliseconds(200)},
                   [&](const WatchEvent&) { ++events; });
  EXPECT_EQ(ended.error().reason, "Timeout");
  EXPECT_EQ(events, 1);
  EXPECT_TRUE(client.getPath("/version"));
}

}  // namespace
}  // namespace allot::kube::test
