// What tests of other folders may rely on: the fake's objects behave as a cluster's do.
#include "tests/k8s/client/fake_api.h"

#include "k8s/client/api.h"
#include "tests/k8s/client/kube_objects.h"
#include "tests/results.h"

namespace allot::kube::test {
namespace {

class FakeTest : public testing::Test {
 protected:
  json apply(const json& object, const std::string& manager) {
    return valueOf(client_.apply(kExperiments, object, {.field_manager = manager}));
  }

  FakeApi api_;
  Api client_{api_.access()};
};

TEST_F(FakeTest, VersionsAndGenerations) {
  const json made = apply(experiment("x", 1), "m");
  EXPECT_EQ(made["metadata"]["generation"], 1);
  EXPECT_FALSE(textAt(made, {"metadata", "uid"}).empty());
  // The same again is no change.
  EXPECT_EQ(apply(experiment("x", 1), "m"), made);
  const json labelled =
      *client_.mergePatch(kExperiments, {"ns", "x"}, {{"metadata", {{"labels", {{"a", "b"}}}}}});
  EXPECT_EQ(labelled["metadata"]["generation"], 1);
  EXPECT_NE(labelled["metadata"]["resourceVersion"], made["metadata"]["resourceVersion"]);
  EXPECT_EQ(apply(experiment("x", 2), "m")["metadata"]["generation"], 2);
  // Status goes by /status alone.
  json with_status = experiment("x", 2);
  with_status["status"] = {{"state", "running"}};
  EXPECT_FALSE(apply(with_status, "m").contains("status"));
}

TEST_F(FakeTest, FieldsBelongToWhoAppliedThem) {
  json mine = experiment("x", 1);
  mine["spec"]["cluster"] = {{"workers", 4}, {"queue", "q"}};
  apply(mine, "me");
  json theirs = experiment("x", 1);
  theirs["spec"] = {{"cluster", {{"queue", "q"}}}};
  apply(theirs, "they");
  mine["spec"].erase("cluster");
  EXPECT_EQ(apply(mine, "me")["spec"], json({{"seed", 1}, {"cluster", {{"queue", "q"}}}}));
  theirs["spec"] = json::object();
  EXPECT_EQ(apply(theirs, "they")["spec"], json({{"seed", 1}}));
}

TEST_F(FakeTest, FinalizersHoldAndOwnersTake) {
  json owner = experiment("x", 1);
  owner["metadata"]["finalizers"] = {"allot.dev/export"};
  const json made = apply(owner, "m");
  json owned = configMap("c", "1");
  owned["metadata"]["ownerReferences"] = {{{"uid", made["metadata"]["uid"]}}};
  api_.store().put(owned);
  ASSERT_TRUE(client_.remove(kExperiments, {"ns", "x"}));
  const auto going = valueOf(client_.get(kExperiments, {"ns", "x"}));
  EXPECT_TRUE(going["metadata"].contains("deletionTimestamp"));
  EXPECT_THAT(api_.store().all("configmaps"), SizeIs(1));
  ASSERT_TRUE(
      client_.mergePatch(kExperiments, {"ns", "x"}, {{"metadata", {{"finalizers", nullptr}}}}));
  EXPECT_TRUE(client_.get(kExperiments, {"ns", "x"}).error().notFound());
  EXPECT_THAT(api_.store().all("configmaps"), IsEmpty());
}

TEST_F(FakeTest, Selectors) {
  const json object = configMap("a", "1", {{"app", "allot"}, {"tier", "worker"}});
  for (const char* yes : {"", "app=allot", "app==allot,tier!=x", "app in (x, allot)", "tier",
                          "!other", "tier notin (a,b)", "other notin (a)"}) {
    EXPECT_TRUE(matches(yes, object)) << yes;
  }
  for (const char* no : {"app=x", "app!=allot", "app in (x,y)", "other", "!app", "app=allot,tier=x",
                         "tier notin (worker)"}) {
    EXPECT_FALSE(matches(no, object)) << no;
  }
}

TEST_F(FakeTest, CountsWhatIsAsked) {
  client_.create(kConfigMaps, configMap("a", "1"));
  apply(experiment("x", 1), "m");
  client_.patchStatus(kExperiments, {"ns", "x"}, {{"state", "running"}});
  client_.list(kConfigMaps, "");
  EXPECT_EQ(api_.requests(), 4u);
  EXPECT_EQ(api_.writes(), 3u);
  EXPECT_EQ(api_.count("POST", "configmaps"), 1u);
  EXPECT_EQ(api_.count("PATCH", "experiments"), 1u);
  EXPECT_EQ(api_.count("PATCH", "experiments/status"), 1u);
  api_.resetCounts();
  EXPECT_EQ(api_.requests(), 0u);
}

}  // namespace
}  // namespace allot::kube::test
