// The client against an API server that answers as it is told, and as it should.
#include "k8s/client/api.h"

#include <thread>

#include "tests/k8s/client/fake_api.h"
#include "tests/k8s/client/kube_objects.h"
#include "tests/results.h"
#include "tests/wait_for.h"

namespace allot::kube::test {
namespace {

constexpr Limits kTight{.connect = milliseconds(1000),
                        .request = milliseconds(300),
                        .response_bytes = 100'000,
                        .line_bytes = 10'000};

class ApiTest : public testing::Test {
 protected:
  Reply<void> watch(std::vector<std::string>& names, seconds timeout = seconds(5)) {
    return client_.watch(kConfigMaps, "ns",
                         {.resource_version = "7", .timeout = timeout, .grace = milliseconds(200)},
                         [&](const WatchEvent& event) {
                           names.push_back(textAt(event.object, {"metadata", "name"}));
                         });
  }

  FakeApi api_;
  Api client_{api_.access(), kTight};
};

TEST_F(ApiTest, WritesAndReadsObjects) {
  const auto made = valueOf(client_.create(kConfigMaps, configMap("a", "1")));
  EXPECT_EQ(client_.create(kConfigMaps, configMap("a", "1")).error().reason, "AlreadyExists");
  auto object = *client_.get(kConfigMaps, {"ns", "a"});
  EXPECT_EQ(object, made);
  object["data"]["value"] = "2";
  ASSERT_TRUE(client_.replace(kConfigMaps, object));
  // It has changed since it was read.
  const auto stale = client_.replace(kConfigMaps, object);
  ASSERT_FALSE(stale);
  EXPECT_TRUE(stale.error().conflict());
  EXPECT_EQ(stale.error().reason, "Conflict");
  ASSERT_TRUE(client_.mergePatch(kConfigMaps, {"ns", "a"}, {{"data", {{"more", "3"}}}}));
  EXPECT_EQ((*client_.get(kConfigMaps, {"ns", "a"}))["data"],
            json({{"value", "2"}, {"more", "3"}}));
  const auto other = client_.remove(kConfigMaps, {"ns", "a"}, {.uid = "another"});
  EXPECT_TRUE(other.error().conflict());
  ASSERT_TRUE(client_.remove(kConfigMaps, {"ns", "a"}));
  EXPECT_TRUE(client_.get(kConfigMaps, {"ns", "a"}).error().notFound());
  EXPECT_TRUE(client_.remove(kConfigMaps, {"ns", "a"}).error().notFound());
  // All of it over one connection.
  EXPECT_EQ(api_.connections(), 1u);
}

TEST_F(ApiTest, AppliesWholeSetsOfFields) {
  json object = experiment("x", 1);
  object["spec"]["more"] = "text";
  ASSERT_TRUE(client_.apply(kExperiments, object, {.field_manager = "allot operator"}));
  const auto asked = api_.asked().back();
  EXPECT_EQ(asked.content_type, "application/apply-patch+yaml");
  EXPECT_EQ(asked.target,
            "/apis/allot.dev/v1alpha1/namespaces/ns/experiments/x?fieldManager=allot%20operator&"
            "force=true");
  // What is left out is given up.
  object["spec"].erase("more");
  const auto applied = client_.apply(kExperiments, object, {.field_manager = "allot operator"});
  EXPECT_EQ((*applied)["spec"], json({{"seed", 1}}));
  // Without force another's field is not taken.
  object["spec"]["seed"] = 2;
  const auto refused =
      client_.apply(kExperiments, object, {.field_manager = "other", .force = false});
  EXPECT_TRUE(refused.error().conflict());
  EXPECT_THAT(refused.error().message, HasSubstr("allot operator"));
}

TEST_F(ApiTest, StatusGoesToStatusAlone) {
  const auto made = client_.create(kExperiments, experiment("x", 1));
  const json status = {{"state", "running"}, {"observedGeneration", 1}};
  const auto patched = valueOf(client_.patchStatus(kExperiments, {"ns", "x"}, status));
  EXPECT_EQ(patched["status"], status);
  EXPECT_EQ(patched["spec"], (*made)["spec"]);
  EXPECT_EQ(patched["metadata"]["generation"], 1);
  EXPECT_EQ(api_.asked().back().target,
            "/apis/allot.dev/v1alpha1/namespaces/ns/experiments/x/status");
  json object = experiment("x", 1);
  object["status"] = {{"state", "finished"}};
  const auto applied =
      client_.apply(kExperiments, object, {.field_manager = "m", .subresource = "status"});
  EXPECT_EQ((*applied)["status"]["state"], "finished");
  EXPECT_TRUE(
      client_.patchStatus(kExperiments, {"ns", "x"}, status, (*made)["metadata"]["resourceVersion"])
          .error()
          .conflict());
}

TEST_F(ApiTest, ListsPageByPage) {
  for (int i = 0; i < 7; ++i) {
    api_.store().put(configMap("c" + std::to_string(i), "1", {{"app", i % 2 == 0 ? "a" : "b"}}));
  }
  const auto all = valueOf(client_.list(kConfigMaps, "ns", {.page = 3}));
  ASSERT_EQ(all.items.size(), 7u);
  EXPECT_EQ(all.items[6]["metadata"]["name"], "c6");
  EXPECT_EQ(all.items[6]["kind"], "ConfigMap");
  EXPECT_EQ(all.items[6]["apiVersion"], "v1");
  EXPECT_EQ(all.resource_version, std::to_string(api_.store().version()));
  EXPECT_EQ(api_.count("GET", "configmaps"), 3u);
  EXPECT_EQ(client_.list(kConfigMaps, "", {.label_selector = "app in (b, c)"})->items.size(), 3u);
  EXPECT_EQ(client_.list(kConfigMaps, "elsewhere")->items.size(), 0u);
  const auto many = client_.list(kConfigMaps, "ns", {.page = 3, .most_items = 5});
  EXPECT_EQ(many.error().reason, "TooLarge");
}

TEST_F(ApiTest, AnExpiredContinueBeginsTheListAgain) {
  for (int i = 0; i < 5; ++i) api_.store().put(configMap("c" + std::to_string(i), "1"));
  const std::string gone = statusText(410, "Expired", "The provided continue parameter is too old");
  api_.script({.contains = "continue=", .status = 410, .body = gone});
  EXPECT_EQ(valueOf(client_.list(kConfigMaps, "ns", {.page = 3})).items.size(), 5u);
  EXPECT_EQ(api_.count("GET", "configmaps"), 4u);
  // But not for ever.
  api_.script({.contains = "continue=", .status = 410, .body = gone, .times = 100});
  EXPECT_TRUE(client_.list(kConfigMaps, "ns", {.page = 3}).error().expired());
  EXPECT_EQ(api_.count("GET", "configmaps"), 10u);
}

TEST_F(ApiTest, ListsThatAreNone) {
  const json item = withVersion(configMap("a", "1"), "1");
  const std::vector<std::string> cases = {
      "[]",
      "{}",
      R"({"items": 7})",
      R"({"items": [], "metadata": {}})",
      R"({"items": [7], "metadata": {"resourceVersion": "1"}})",
      R"({"items": [{}], "metadata": {"resourceVersion": "1"}})",
      "{\"items\": [",
      "",
      listText(json::array(), "1", "for ever")};
  for (const auto& body : cases) {
    api_.script({.body = body});
    const auto list = client_.list(kConfigMaps, "ns");
    ASSERT_FALSE(list) << body;
    EXPECT_EQ(list.error().reason, "BadAnswer") << body;
  }
  api_.script({.body = listText(json::array({item}), "1", "same"), .times = 2});
  EXPECT_EQ(client_.list(kConfigMaps, "ns").error().reason, "BadAnswer");
}

TEST_F(ApiTest, ErrorsKeepWhatTheServerSaid) {
  const std::vector<std::pair<int, std::string>> cases = {
      {400, "BadRequest"}, {403, "Forbidden"}, {404, "NotFound"},        {409, "Conflict"},
      {410, "Expired"},    {422, "Invalid"},   {429, "TooManyRequests"}, {500, "InternalError"}};
  for (const auto& [code, reason] : cases) {
    api_.script({.status = code, .body = statusText(code, reason, "why\n\x1b[2J")});
    const auto got = client_.get(kConfigMaps, {"ns", "a"});
    ASSERT_FALSE(got);
    EXPECT_EQ(got.error().code, code);
    EXPECT_EQ(got.error().reason, reason);
    EXPECT_EQ(got.error().message, "GET /api/v1/namespaces/ns/configmaps/a: " +
                                       std::to_string(code) + " " + reason + ": why\\n\\x1b[2J");
    EXPECT_FALSE(got.error().retry_after);
  }
  EXPECT_EQ(api_.requests(), cases.size());  // none was tried again
}

TEST_F(ApiTest, SaysHowLongToWait) {
  const auto waitOf = [&](const std::string& header, const std::string& body) {
    api_.script({.status = 429, .headers = {{"Retry-After", header}}, .body = body});
    return client_.get(kConfigMaps, {"ns", "a"}).error().retry_after;
  };
  EXPECT_EQ(waitOf("7", "busy"), seconds(7));
  EXPECT_EQ(waitOf("1000000", "busy"), seconds(300));
  EXPECT_EQ(waitOf("Wed, 21 Oct 2026", "busy"), std::nullopt);
  EXPECT_EQ(waitOf("x", R"({"kind":"Status","details":{"retryAfterSeconds":3}})"), seconds(3));
}

TEST_F(ApiTest, AnswersOfSomebodyElse) {
  api_.script({.status = 502, .body = "<html>\x07" + std::string(5000, 'x')});
  const auto proxy = client_.get(kConfigMaps, {"ns", "a"});
  EXPECT_EQ(proxy.error().code, 502);
  EXPECT_THAT(proxy.error().message, HasSubstr("<html>\\x07xxx"));
  EXPECT_LT(proxy.error().message.size(), 400u);
  for (const char* body : {"<html>", "", "[]", "7"}) {
    api_.script({.body = body});
    EXPECT_EQ(client_.get(kConfigMaps, {"ns", "a"}).error().reason, "BadAnswer");
  }
}

TEST_F(ApiTest, LimitsTheAnswer) {
  const json fits = configMap("a", std::string(90'000, 'x'));
  api_.script({.body = fits.dump()});
  EXPECT_TRUE(client_.get(kConfigMaps, {"ns", "a"}));
  const json large = configMap("a", std::string(110'000, 'x'));
  api_.script({.body = large.dump()});
  EXPECT_EQ(client_.get(kConfigMaps, {"ns", "a"}).error().reason, "TooLarge");
  // Also where its length is not said, and in place of a watch.
  api_.script({.status = 500, .pieces = std::vector<std::string>(20, std::string(10'000, 'x'))});
  EXPECT_EQ(client_.get(kConfigMaps, {"ns", "a"}).error().reason, "TooLarge");
  std::vector<std::string> names;
  api_.script({.status = 500, .pieces = std::vector<std::string>(20, std::string(10'000, 'x'))});
  EXPECT_EQ(watch(names).error().reason, "TooLarge");
  // The next request is none the worse for it.
  api_.store().put(configMap("a", "1"));
  EXPECT_TRUE(client_.get(kConfigMaps, {"ns", "a"}));
}

TEST_F(ApiTest, AServerThatIsSilentOrCuts) {
  api_.store().put(configMap("a", "1"));
  const auto began = std::chrono::steady_clock::now();
  api_.script({.end = Scripted::End::kHang, .silent = true});
  EXPECT_EQ(client_.get(kConfigMaps, {"ns", "a"}).error().reason, "Timeout");
  api_.script({.body = std::string(1000, ' '), .end = Scripted::End::kHang});
  EXPECT_EQ(client_.get(kConfigMaps, {"ns", "a"}).error().reason, "Timeout");
  EXPECT_LT(std::chrono::steady_clock::now() - began, seconds(5));
  api_.script({.body = std::string(1000, ' '), .end = Scripted::End::kCut});
  const auto cut = client_.get(kConfigMaps, {"ns", "a"});
  EXPECT_EQ(cut.error().code, 0);
  EXPECT_EQ(cut.error().reason, "Unavailable");
  EXPECT_TRUE(client_.get(kConfigMaps, {"ns", "a"}));
}

TEST_F(ApiTest, NobodyThere) {
  ServerAccess access;
  {
    const FakeApi gone;
    access = gone.access();
  }
  Api client(access, kTight);
  const auto got = client.get(kConfigMaps, {"ns", "a"});
  EXPECT_EQ(got.error().reason, "Unavailable");
  EXPECT_THAT(got.error().message, HasSubstr("http://127.0.0.1:" + std::to_string(access.port)));
}

TEST_F(ApiTest, AnIdleConnectionThatWasClosedIsRenewedInSilence) {
  api_.store().put(configMap("a", "1"));
  EXPECT_TRUE(client_.get(kConfigMaps, {"ns", "a"}));
  api_.cutConnections();
  EXPECT_TRUE(client_.get(kConfigMaps, {"ns", "a"}));
  api_.cutConnections();
  EXPECT_TRUE(client_.create(kConfigMaps, configMap("b", "1")));
  EXPECT_EQ(api_.connections(), 3u);
  // Closed on receipt of the request: tried once more, unless that might count twice.
  api_.script({.end = Scripted::End::kCut, .silent = true});
  EXPECT_TRUE(client_.get(kConfigMaps, {"ns", "a"}));
  api_.script({.end = Scripted::End::kCut, .silent = true, .times = 2});
  EXPECT_EQ(client_.get(kConfigMaps, {"ns", "a"}).error().reason, "Unavailable");
  EXPECT_TRUE(client_.get(kConfigMaps, {"ns", "a"}));
  api_.script({.end = Scripted::End::kCut, .silent = true});
  EXPECT_EQ(client_.create(kConfigMaps, configMap("c", "1")).error().reason, "Unavailable");
}

TEST_F(ApiTest, WatchesTakeEventsHoweverTheyAreSplit) {
  const std::string lines = eventLine("ADDED", withVersion(configMap("a", "1"), "8")) +
                            eventLine("BOOKMARK", {{"metadata", {{"resourceVersion", "9"}}}}) +
                            eventLine("MODIFIED", withVersion(configMap("b", "1"), "10"));
  std::vector<std::string> bytes;
  for (const char c : lines) bytes.emplace_back(1, c);
  api_.script({.pieces = bytes});
  std::vector<std::string> names;
  EXPECT_THAT(watch(names), succeeds());
  EXPECT_THAT(names, ElementsAre("a", "", "b"));
  EXPECT_EQ(api_.asked().back().target,
            "/api/v1/namespaces/ns/configmaps?watch=true&allowWatchBookmarks=true&"
            "resourceVersion=7&timeoutSeconds=5");
  // The connection is still good.
  client_.get(kConfigMaps, {"ns", "a"});
  EXPECT_EQ(api_.connections(), 1u);
}

TEST_F(ApiTest, HowWatchesEnd) {
  const std::string event = eventLine("ADDED", withVersion(configMap("a", "1"), "8"));
  const std::string gone = statusText(410, "Expired", "too old resource version");
  struct Case {
    Scripted script;
    int code;
    const char* reason;
    size_t events;
  };
  const std::vector<Case> cases = {
      {{.status = 410, .body = gone}, 410, "Expired", 0},
      {{.pieces = {event, eventLine("ERROR", json::parse(gone))}}, 410, "Expired", 1},
      {{.status = 403, .body = statusText(403, "Forbidden", "no")}, 403, "Forbidden", 0},
      {{.status = 500, .body = "oops"}, 500, "", 0},
      {{.pieces = {event, event.substr(0, 20)}, .end = Scripted::End::kCut}, 0, "Unavailable", 1},
      {{.pieces = {event, event.substr(0, 20)}}, 0, "Unavailable", 1},
      {{.pieces = {event}, .end = Scripted::End::kHang}, 0, "Timeout", 1},
      {{.end = Scripted::End::kHang, .silent = true}, 0, "Timeout", 0},
      {{.pieces = {event, std::string(10'001, 'x')}}, 0, "TooLarge", 1},
      {{.pieces = {event, "nonsense\n"}}, 0, "BadAnswer", 1},
  };
  for (size_t i = 0; i < cases.size(); ++i) {
    api_.script(cases[i].script);
    std::vector<std::string> names;
    const auto ended = watch(names, seconds(0));
    ASSERT_FALSE(ended) << i;
    EXPECT_EQ(ended.error().code, cases[i].code) << i;
    EXPECT_EQ(ended.error().reason, cases[i].reason) << i << ended.error().message;
    EXPECT_EQ(names.size(), cases[i].events) << i;
  }
}

TEST_F(ApiTest, AWatchThatDripsEndsToo) {
  // Something comes again and again, but never the end.
  api_.script({.pieces = std::vector<std::string>(200, "\n"), .pause = milliseconds(20)});
  std::vector<std::string> names;
  EXPECT_EQ(watch(names, seconds(0)).error().reason, "Timeout");
}

TEST_F(ApiTest, InterruptEndsAWatchAtOnce) {
  api_.script({.pieces = {"\n"}, .end = Scripted::End::kHang});
  std::thread other([&] {
    EXPECT_TRUE(waitFor([&] { return api_.count("WATCH", "configmaps") == 1; }, 10));
    client_.interrupt();
  });
  std::vector<std::string> names;
  const auto began = std::chrono::steady_clock::now();
  EXPECT_TRUE(watch(names, seconds(60)).error().interrupted());
  EXPECT_LT(std::chrono::steady_clock::now() - began, seconds(10));
  other.join();
  EXPECT_TRUE(client_.get(kConfigMaps, {"ns", "a"}).error().interrupted());
}

TEST_F(ApiTest, PathsHoldNamesAlone) {
  for (const char* name : {"../secrets", "a/b", "..", "a%2fb"}) {
    EXPECT_EQ(client_.get(kConfigMaps, {"ns", name}).error().reason, "BadRequest") << name;
    EXPECT_EQ(client_.list(kConfigMaps, name).error().reason, "BadRequest") << name;
  }
  EXPECT_EQ(client_.get(kConfigMaps, {"ns", ""}).error().reason, "BadRequest");
  EXPECT_EQ(client_.replace(kConfigMaps, configMap("a", "1")).error().reason, "BadRequest");
  EXPECT_EQ(api_.requests(), 0u);
  EXPECT_EQ(*pathOf(kConfigMaps, {"ns", "a b?c#d\r\n"}),
            "/api/v1/namespaces/ns/configmaps/a%20b%3Fc%23d%0D%0A");
}

}  // namespace
}  // namespace allot::kube::test
