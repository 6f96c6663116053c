// What the deletion of an experiment waits for: pure, and against an API server.
#include "k8s/operator/results.h"

#include "k8s/client/api_error.h"
#include "k8s/operator/plan.h"
#include "store/redis/acl.h"
#include "tests/k8s/operator/cluster_fixture.h"
#include "tests/k8s/operator/experiments.h"
#include "tests/results.h"

namespace allot {
namespace {

using kube::textAt;
using nlohmann::json;
using std::chrono::milliseconds;
using test::experiment;
using test::pod;
using test::told;

constexpr char kOurs[] = "allot.dev/results";
constexpr uint64_t kLeftMs = 1'700'000'000'000;  // 2023-11-14T22:13:20Z

// One that ran, and is being deleted since a second.
Observed leaving(const json& cluster = {{"results", {{"claim", "kept"}}}}) {
  Observed observed{.object = experiment("x", cluster), .now_unix_ms = kLeftMs};
  observed.object["metadata"]["finalizers"] = {kOurs, "others.org/theirs"};
  observed.object["metadata"]["deletionTimestamp"] = "2023-11-14T22:13:19Z";
  observed.object["status"] = {{"runId", "01RUN"}, {"startedAt", "2023-11-14T22:00:00Z"}};
  observed.pods = {pod("x", "store", true), pod("x", "aggregator", true)};
  observed.told = told("running", 3);
  return observed;
}

ExportStep stepOf(const Observed& observed, const Judgement& judgement = {}) {
  return exportStep(observed, judgement, statusOf(observed, judgement));
}

json succeeded() { return {{"kind", "Job"}, {"status", {{"succeeded", 1}}}}; }

TEST(OperatorResults, WaitForWorkersAndThenForTheJob) {
  using Next = ExportStep::Next;
  Observed observed = leaving();
  observed.pods.push_back(pod("x", "worker", true));
  ExportStep step = stepOf(observed);
  EXPECT_EQ(step.next, Next::kWait);
  EXPECT_EQ(step.reason, "WaitsForWorkers");
  EXPECT_EQ(step.message, "1 worker pushes what is in hand before the run is exported");
  // A pod on a node that is lost never goes.
  observed.now_unix_ms += 300'000;
  EXPECT_EQ(stepOf(observed).next, Next::kRunJob);
  observed.pods.pop_back();
  observed.now_unix_ms = kLeftMs;
  step = stepOf(observed);
  EXPECT_EQ(step.next, Next::kRunJob);
  EXPECT_EQ(step.reason, "Exporting");
  EXPECT_EQ(step.message, "Job x-export writes the run to claim kept");

  json failing = pod("x", "export", false);
  failing["status"]["containerStatuses"][0]["lastState"]["terminated"] = {
      {"exitCode", 74}, {"message", "cannot make /results/x: Permission denied\n"}};
  observed.pods.push_back(failing);
  step = stepOf(observed);
  EXPECT_EQ(step.next, Next::kRunJob);
  EXPECT_EQ(step.reason, "ExportFailed");
  EXPECT_THAT(step.message, HasSubstr("cannot make /results/x: Permission denied"));
  EXPECT_THAT(step.message, HasSubstr("take spec.cluster.results away"));

  observed.export_job = succeeded();
  step = stepOf(observed);
  EXPECT_EQ(step.next, Next::kLetGo);
  EXPECT_TRUE(step.exported);
  EXPECT_EQ(step.message, "claim kept, folder x/01RUN");
}

TEST(OperatorResults, NobodyIsHeldForNothing) {
  struct Case {
    const char* reason;
    bool lost;
    std::function<void(Observed*, Judgement*)> change;
  };
  const Case cases[] = {
      {"NothingToExport", false,  // nothing counts yet
       [](Observed* observed, Judgement*) {
         observed->object["status"] = {{"runId", "01RUN"}};
         observed->told = told("running");
       }},
      {"NothingToExport", false,  // it never came up
       [](Observed* observed, Judgement*) {
         observed->object.erase("status");
         observed->told.reset();
         observed->pods.clear();
       }},
      {"NothingToExport", false,  // somebody does not want them any more
       [](Observed* observed, Judgement*) {
         observed->object["spec"]["cluster"]["results"] = nullptr;
       }},
      {"NamespaceEnds", true,
       [](Observed*, Judgement* judgement) { judgement->space_ends = true; }},
      {"ForegroundDeletion", true,
       [](Observed* observed, Judgement*) {
         observed->object["metadata"]["finalizers"].push_back("foregroundDeletion");
       }},
      {"GivenUp", true,
       [](Observed* observed, Judgement* judgement) {
         judgement->refused = "x: spec.seed: no";
         observed->now_unix_ms += 24ull * 3600 * 1000;
       }},
  };
  for (const Case& one : cases) {
    Observed observed = leaving();
    Judgement judgement;
    one.change(&observed, &judgement);
    const ExportStep step = stepOf(observed, judgement);
    EXPECT_EQ(step.next, ExportStep::Next::kLetGo) << one.reason;
    EXPECT_EQ(step.reason, one.reason);
    EXPECT_EQ(step.lost, one.lost) << one.reason;
    const Plan todo = plan(observed, judgement, {}, {});
    ASSERT_TRUE(todo.finalizers) << one.reason;
    EXPECT_THAT(*todo.finalizers, Not(Contains(kOurs)));
    EXPECT_THAT(*todo.finalizers, Contains("others.org/theirs"));
    EXPECT_EQ(todo.events.size(), one.lost ? 1u : 0u) << one.reason;
    EXPECT_FALSE(todo.status);
  }
}

TEST(OperatorResults, AFileThatCannotBeRunIsWaitedFor) {
  const ExportStep step = stepOf(leaving(), {.refused = "x: spec.seed: no"});
  EXPECT_EQ(step.next, ExportStep::Next::kWait);
  EXPECT_EQ(step.reason, "Invalid");
  EXPECT_THAT(step.message, HasSubstr("x: spec.seed: no"));
}

// A namespace that ends takes Redis and all pods with it, and nobody mends the file then.
TEST(OperatorResults, AFileThatCannotBeRunWhoseStoreIsGoneIsLetGo) {
  Observed observed = leaving();
  observed.pods.clear();
  const ExportStep step = stepOf(observed, {.refused = "x: spec.seed: no"});
  EXPECT_EQ(step.next, ExportStep::Next::kLetGo);
  EXPECT_EQ(step.reason, "StoreGone");
  EXPECT_FALSE(step.exported);
}

TEST(OperatorResults, OnlyWhoseResultsAreToBeExportedHasAFinalizer) {
  const auto finalizers = [](const json& object, const Judgement& judgement = {}) {
    return plan({.object = object, .now_unix_ms = kLeftMs}, judgement, {}, {}).finalizers;
  };
  json object = experiment("x", {{"results", {{"claim", "kept"}}}});
  EXPECT_FALSE(finalizers(experiment("x")));
  EXPECT_FALSE(finalizers(object, {.refused = "no"}));
  EXPECT_EQ(finalizers(object), (json{kOurs}));
  object["metadata"]["finalizers"] = {"others.org/theirs"};
  EXPECT_EQ(finalizers(object), (json{"others.org/theirs", kOurs}));
  object["metadata"]["finalizers"] = {kOurs, "others.org/theirs"};
  EXPECT_FALSE(finalizers(object));
  EXPECT_FALSE(finalizers(object, {.refused = "an edit that was wrong"}));
  object["spec"]["cluster"].erase("results");
  EXPECT_EQ(finalizers(object), (json{"others.org/theirs"}));
}

TEST(OperatorResults, TheJobIsThatOfTheComponent) {
  const json object = experiment("x", {{"results", {{"claim", "kept"}}}});
  const auto read = valueOf(readExperimentObject(object));
  const auto made = valueOf(objectsOf(
      object, read,
      accountFiles({{"worker", "w"}, {"aggregator", "a"}, {"admin", "m"}, {"reader", "r"}}),
      {.exports = true}));
  const json& job = made.back();
  ASSERT_EQ(job["kind"], "Job");
  EXPECT_EQ(job["metadata"]["name"], exportJobName("x"));
  EXPECT_EQ(job["metadata"]["ownerReferences"][0]["uid"], "u-1");
  const json& pod = job["spec"]["template"]["spec"];
  EXPECT_THAT(pod["containers"][0]["args"], Contains("--out=/results/$(ALLOT_EXPERIMENT)/{run}"));
  std::map<std::string, json> volumes;
  for (const json& volume : pod["volumes"]) volumes[volume["name"]] = volume;
  EXPECT_EQ(volumes["results"]["persistentVolumeClaim"]["claimName"], "kept");
  EXPECT_EQ(volumes["account"]["secret"]["secretName"], "x-accounts");
}

class ResultsAtServer : public test::ClusterTest {
 protected:
  json running() {
    put(experiment("x", {{"workers", 2}, {"results", {{"claim", "kept"}}}}));
    putPods("x");
    told_["x"] = told("running", 3);
    return find("x");
  }
  void removeWhileJobsAreRefused(int status, const std::string& body) {
    running();
    auto controller = settled();
    api_.script(
        {.method = "PATCH", .contains = "jobs", .status = status, .body = body, .times = 1000});
    remove(pod("x", "worker", true));
    remove(find("x"));
    settle(controller.get());
    std::this_thread::sleep_for(milliseconds(1100));  // the pause after a refusal
    settle(controller.get());
  }
  void remove(const json& object) { api_.store().remove(kube::test::targetOf(object), {}); }
  std::string message(const std::string& type) {
    const json object = find("x");
    const json* const condition = conditionOf(object["status"], type);
    return condition == nullptr ? "none" : textAt(*condition, {"message"});
  }
};

TEST_F(ResultsAtServer, AreExportedBeforeTheExperimentGoes) {
  running();
  auto controller = settled();
  EXPECT_EQ(find("x")["metadata"]["finalizers"], json{kOurs});
  EXPECT_EQ(reason("x", "Exported"), "NotDeleted");
  EXPECT_TRUE(api_.store().all("jobs").empty());

  remove(find("x"));
  settle(controller.get());
  EXPECT_EQ(replicas("x"), 0);
  EXPECT_EQ(reason("x", "Exported"), "WaitsForWorkers");
  EXPECT_EQ(reason("x", "Progressing"), "Deleting");
  EXPECT_TRUE(api_.store().all("jobs").empty());

  remove(pod("x", "worker", true));
  controller.reset();  // another operator goes on
  controller = settled();
  EXPECT_EQ(reason("x", "Exported"), "Exporting");
  json job = find("batch/v1", "Job", "x-export");
  ASSERT_FALSE(job.is_null());
  EXPECT_FALSE(find("networking.k8s.io/v1", "NetworkPolicy", "x-redis-from-export").is_null());

  // To another claim, which a Job that is there cannot take up.
  api_.script({.method = "PATCH",
               .contains = "jobs",
               .status = 422,
               .body = R"({"kind":"Status","code":422,"reason":"Invalid","message":"immutable"})"});
  json corrected = find("x");
  corrected["spec"]["cluster"]["results"]["claim"] = "other";
  put(corrected);
  settle(controller.get());
  job = find("batch/v1", "Job", "x-export");
  ASSERT_FALSE(job.is_null());
  EXPECT_THAT(job.dump(), HasSubstr(R"("claimName":"other")"));
  EXPECT_THAT(message("Exported"), HasSubstr("claim other"));
  EXPECT_EQ(reason("x", "Degraded"), "AsWanted");

  job["status"] = {{"succeeded", 1}};
  put(job);
  settle(controller.get());
  EXPECT_TRUE(find("x").is_null());
  EXPECT_TRUE(api_.store().all("statefulsets").empty());
  EXPECT_THAT(events(), Contains("Exported"));
}

// A refusal of a Job that is not there is told, as any other.
TEST_F(ResultsAtServer, AJobThatTheServerRefusesIsSaid) {
  removeWhileJobsAreRefused(
      422, R"({"kind":"Status","code":422,"reason":"Invalid","message":"no Jobs on Fridays"})");
  EXPECT_FALSE(find("x").is_null());
  EXPECT_THAT(message("Degraded"), HasSubstr("no Jobs on Fridays"));
}

// An operator whose first listing fails knows of no worker, and does not take that for there being
// none.
TEST_F(ResultsAtServer, NothingIsExportedBeforePodsAreKnown) {
  running();
  auto controller = settled();
  remove(find("x"));
  settle(controller.get());
  controller.reset();
  api_.script(
      {.method = "GET",
       .contains = "/pods",
       .status = 500,
       .body = R"({"kind":"Status","code":500,"reason":"InternalError","message":"later"})"});
  controller = settled();
  EXPECT_TRUE(api_.store().all("jobs").empty());
  EXPECT_EQ(reason("x", "Exported"), "WaitsForWorkers");
}

TEST_F(ResultsAtServer, ANamespaceThatIsDeletedIsNotHeldUp) {
  removeWhileJobsAreRefused(403, R"({"kind":"Status","code":403,"reason":"Forbidden","message":
                   "jobs.batch \"x-export\" is forbidden: unable to create new content in namespace ns because it is being terminated"})");
  EXPECT_TRUE(find("x").is_null());
  EXPECT_THAT(events(), Contains("NotExported"));
}

}  // namespace
}  // namespace allot
