// A store that follows the API server through all that goes wrong.
#include "k8s/client/reflector.h"

#include "tests/k8s/client/fake_api.h"
#include "tests/k8s/client/kube_objects.h"
#include "tests/results.h"
#include "tests/wait_for.h"

namespace allot::kube::test {
namespace {

TEST(ObjectCache, LeavesOutManagedFieldsAndTellsDifferences) {
  ObjectCache store;
  json object = withVersion(configMap("a", "1"), "1");
  object["metadata"]["managedFields"] = {{{"manager", "kubectl"}}};
  EXPECT_THAT(store.replaceAll({object}), ElementsAre("ns/a"));
  EXPECT_EQ(*store.find("ns/a"), withVersion(configMap("a", "1"), "1"));
  EXPECT_THAT(store.replaceAll({object}), ElementsAre());
  EXPECT_THAT(store.replaceAll({withVersion(configMap("b", "1"), "1")}),
              ElementsAre("ns/b", "ns/a"));
}

// Step by step, with the test's clock.
class ReflectorTest : public testing::Test {
 protected:
  using What = ListWatch::Step::What;

  ReflectorTest()
      : reflector_(api_.access(),
                   {.resource = kConfigMaps,
                    .limits = {.request = milliseconds(500), .line_bytes = 10'000},
                    .clock = [this] { return now_; },
                    .random = [] { return 0.0; }},
                   [this](const std::string& key) { changed_.push_back(key); }) {}

  // Until the next list or watch was made; the clock goes on over the waits.
  What turn() {
    auto step = reflector_.turn();
    while (step.what == What::kWait) {
      now_ = step.until;
      step = reflector_.turn();
    }
    return step.what;
  }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& object : reflector_.objects().all()) names.push_back(nameOf(*object).name);
    return names;
  }
  static Scripted events(std::vector<std::string> pieces) {
    return {.contains = "watch=true", .pieces = std::move(pieces)};
  }
  // What the watch was asked from.
  std::string watchedFrom() const {
    const std::string target = api_.asked().back().target;
    const size_t at = target.find("&resourceVersion=") + 17;
    return target.substr(at, target.find('&', at) - at);
  }

  FakeApi api_;
  TimePoint now_{seconds(1000)};
  std::vector<std::string> changed_;
  Reflector reflector_;
};

TEST_F(ReflectorTest, FollowsEventsFromTheListOn) {
  api_.store().put(configMap("a", "1"));
  EXPECT_FALSE(reflector_.objects().filled());
  EXPECT_EQ(turn(), What::kList);
  EXPECT_TRUE(reflector_.objects().filled());
  EXPECT_THAT(changed_, ElementsAre("ns/a"));
  const std::string version = std::to_string(api_.store().version());
  api_.script(events({eventLine("ADDED", withVersion(configMap("b", "1"), "x1")),
                      eventLine("MODIFIED", withVersion(configMap("a", "2"), "x2")),
                      eventLine("DELETED", withVersion(configMap("b", "1"), "x3"))}));
  EXPECT_EQ(turn(), What::kWatch);
  EXPECT_EQ(watchedFrom(), version);
  EXPECT_THAT(changed_, ElementsAre("ns/a", "ns/b", "ns/a", "ns/b"));
  EXPECT_THAT(names(), ElementsAre("a"));
  EXPECT_EQ(textAt(*reflector_.objects().find("ns/a"), {"data", "value"}), "2");
  EXPECT_EQ(reflector_.objects().find("ns/b"), nullptr);
  // A bookmark moves the place and nothing else.
  api_.script(events({eventLine("BOOKMARK", {{"metadata", {{"resourceVersion", "x9"}}}})}));
  EXPECT_EQ(turn(), What::kWatch);
  EXPECT_EQ(watchedFrom(), "x3");
  EXPECT_EQ(changed_.size(), 4u);
  api_.script(events({"\n"}));
  EXPECT_EQ(turn(), What::kWatch);
  EXPECT_EQ(watchedFrom(), "x9");
}

TEST_F(ReflectorTest, BothKindsOf410ListAgainAndSeeWhatWasMissed) {
  const std::string gone = statusText(410, "Expired", "too old resource version");
  const std::vector<Scripted> kinds = {{.contains = "watch=true", .status = 410, .body = gone},
                                       events({eventLine("ERROR", json::parse(gone))})};
  int round = 0;
  for (const auto& kind : kinds) {
    const std::string lost = "lost" + std::to_string(round);
    api_.store().put(configMap("kept", "1"));
    api_.store().put(configMap(lost, "1"));
    EXPECT_EQ(turn(), What::kList);
    changed_.clear();
    api_.store().remove(targetOf(configMap(lost, "1")), {});
    api_.store().put(configMap("new" + std::to_string(round), "1"));
    api_.script(kind);
    EXPECT_EQ(turn(), What::kWatch);
    EXPECT_THAT(changed_, ElementsAre());
    EXPECT_EQ(turn(), What::kList);
    // What is as it was is not told again.
    EXPECT_THAT(changed_, UnorderedElementsAre("ns/" + lost, "ns/new" + std::to_string(round)));
    EXPECT_EQ(reflector_.objects().find("ns/" + lost), nullptr);
    // The same once more, from a state that is watched.
    api_.script({.contains = "watch=true", .status = 410, .body = gone});
    EXPECT_EQ(turn(), What::kWatch);
    ++round;
  }
}

TEST_F(ReflectorTest, AListThatBreaksOffChangesNothing) {
  for (int i = 0; i < 3; ++i) api_.store().put(configMap("c" + std::to_string(i), "1"));
  turn();
  changed_.clear();
  api_.script({.contains = "watch=true", .status = 410, .body = statusText(410, "Expired", "")});
  turn();
  // The first page comes, the second does not.
  const json first = json::array({withVersion(configMap("c0", "new"), "1")});
  api_.script({.contains = "limit=", .body = listText(first, "500", "more")});
  api_.script({.contains = "continue=more", .status = 500, .body = "oops"});
  EXPECT_EQ(turn(), What::kList);
  EXPECT_THAT(changed_, ElementsAre());
  EXPECT_THAT(names(), ElementsAre("c0", "c1", "c2"));
  EXPECT_EQ(textAt(*reflector_.objects().find("ns/c0"), {"data", "value"}), "1");
}

TEST_F(ReflectorTest, ALineOverTheLimitIsPassedByAList) {
  turn();
  api_.store().put(configMap("large", std::string(20'000, 'x')));
  EXPECT_EQ(turn(), What::kWatch);
  EXPECT_EQ(turn(), What::kList);
  EXPECT_THAT(names(), ElementsAre("large"));
}

TEST_F(ReflectorTest, AConnectionCutInTheMiddleGoesOnFromWhereItWas) {
  turn();
  api_.script({.contains = "watch=true",
               .pieces = {eventLine("ADDED", withVersion(configMap("a", "1"), "x1")), "{\"type\""},
               .end = Scripted::End::kCut});
  turn();
  EXPECT_THAT(names(), ElementsAre("a"));
  api_.script(events({eventLine("ADDED", withVersion(configMap("b", "1"), "x2"))}));
  EXPECT_EQ(turn(), What::kWatch);
  EXPECT_EQ(watchedFrom(), "x1");
  EXPECT_THAT(names(), ElementsAre("a", "b"));
  EXPECT_EQ(reflector_.counts().lists, 1u);
}

TEST_F(ReflectorTest, WaitsAsLongAsItIsTold) {
  api_.script({.status = 429, .headers = {{"Retry-After", "20"}}, .body = "busy"});
  EXPECT_EQ(turn(), What::kList);
  const auto step = reflector_.turn();
  EXPECT_EQ(step.what, What::kWait);
  EXPECT_EQ(step.until - now_, seconds(20));
}

TEST_F(ReflectorTest, RefusalsAreLoudAtOnceAndOthersAfterAWhile) {
  api_.script({.status = 403, .body = statusText(403, "Forbidden", "cannot list configmaps")});
  turn();
  EXPECT_THAT(reflector_.problem(), HasSubstr("403 Forbidden: cannot list configmaps"));
  turn();
  EXPECT_EQ(reflector_.problem(), "");
  api_.script({.status = 500, .body = "oops", .times = 3});
  for (int i = 1; i <= 3; ++i) {
    EXPECT_EQ(reflector_.problem(), "");
    turn();
  }
  EXPECT_THAT(reflector_.problem(), HasSubstr("500: oops"));
  // It is told until the watch shows itself.
  api_.script(events({eventLine("BOOKMARK", {{"metadata", {{"resourceVersion", "5"}}}}),
                      eventLine("ADDED", withVersion(configMap("b", "1"), "6"))}));
  turn();
  EXPECT_EQ(reflector_.problem(), "");
  EXPECT_EQ(reflector_.counts().failures, 4u);
}

TEST_F(ReflectorTest, AWatchThatEndsAtOnceIsNotAskedWithoutAPause) {
  turn();
  const TimePoint began = now_;
  api_.script({.contains = "watch=true", .pieces = {"\n"}, .times = 6});
  for (int i = 0; i < 6; ++i) turn();
  EXPECT_GE(now_ - began, milliseconds(800 + 1600 + 3200 + 6400 + 12'800));
  EXPECT_EQ(reflector_.counts().watches, 6u);
}

// On its own thread, against the store of the fake.
class RunningTest : public testing::Test {
 protected:
  bool holds(const std::string& name, const std::string& value) {
    return waitFor(
        [&] {
          const auto object = reflector_.objects().find("ns/" + name);
          return value.empty() ? object == nullptr
                               : object && textAt(*object, {"data", "value"}) == value;
        },
        10);
  }

  FakeApi api_;
  std::mutex mutex_;
  std::vector<std::string> changed_;
  Reflector reflector_{api_.access(),
                       {.resource = kConfigMaps, .space = "ns", .label_selector = "app=a"},
                       [this](const std::string& key) {
                         const std::lock_guard lock(mutex_);
                         changed_.push_back(key);
                       }};
};

TEST_F(RunningTest, KeepsUpWithTheServer) {
  api_.store().put(configMap("a", "1", {{"app", "a"}}));
  api_.store().put(configMap("z", "1", {{"app", "z"}}));
  reflector_.start();
  EXPECT_TRUE(holds("a", "1"));
  api_.store().put(configMap("a", "2", {{"app", "a"}}));
  EXPECT_TRUE(holds("a", "2"));
  api_.store().put(configMap("b", "1", {{"app", "a"}}));
  EXPECT_TRUE(holds("b", "1"));
  // What leaves the selection is gone.
  api_.store().put(configMap("b", "2", {{"app", "z"}}));
  EXPECT_TRUE(holds("b", ""));
  api_.sendBookmarks();
  // The server forgets, and while nobody watches something goes.
  api_.store().forgetHistory();
  api_.cutConnections();
  api_.store().remove(targetOf(configMap("a", "")), {});
  EXPECT_TRUE(holds("a", ""));
  EXPECT_EQ(api_.count("GET", "configmaps"), 2u);
  EXPECT_EQ(reflector_.objects().size(), 0u);
}

TEST_F(RunningTest, AWatchBlocksNobodyAndEndsWithItsOwner) {
  reflector_.start();
  EXPECT_TRUE(waitFor([&] { return api_.count("WATCH", "configmaps") == 1; }, 10));
  Api client(api_.access());
  const auto began = std::chrono::steady_clock::now();
  for (int i = 0; i < 20; ++i) {
    EXPECT_TRUE(
        client.create(kConfigMaps, configMap("c" + std::to_string(i), "1", {{"app", "a"}})));
  }
  EXPECT_TRUE(waitFor([&] { return reflector_.objects().size() == 20; }, 10));
  EXPECT_LT(std::chrono::steady_clock::now() - began, seconds(10));
  // The destructor now, in the middle of a watch of five minutes: the test's time-out would tell.
}

}  // namespace
}  // namespace allot::kube::test
