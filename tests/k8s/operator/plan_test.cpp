#include "k8s/operator/plan.h"

#include "core/digest.h"
#include "k8s/client/api_error.h"
#include "store/redis/acl.h"
#include "tests/k8s/operator/experiments.h"
#include "tests/results.h"

namespace allot {
namespace {

using kube::numberAt;
using kube::textAt;
using nlohmann::json;
using test::experiment;
using test::pod;
using test::told;

constexpr uint64_t kNow = 1'700'000'000'000;

TextMap someAccounts() {
  return accountFiles({{"worker", "w"}, {"aggregator", "a"}, {"admin", "m"}, {"reader", "r"}});
}

KubeObjects madeOf(const json& object, uint32_t workers = 1) {
  const auto read = valueOf(readExperimentObject(object));
  return valueOf(objectsOf(object, read, someAccounts(), {.workers = workers}));
}

const json& objectOf(const KubeObjects& objects, const std::string& kind, const std::string& name) {
  for (const json& object : objects) {
    if (object.at("kind") == kind && object.at("metadata").at("name") == name) return object;
  }
  throw std::out_of_range(kind + " " + name);
}

std::string reasonOf(const json& status, const char* type) {
  const json* const condition = conditionOf(status, type);
  return condition == nullptr
             ? "none"
             : textAt(*condition, {"status"}) + " " + textAt(*condition, {"reason"});
}

json statusOfNow(const Observed& observed, Judgement judgement = {.workers = 1}) {
  return statusOf(observed, judgement);
}

// One whose pods are there, and what it tells.
Observed observedWith(std::initializer_list<const char*> components, const json& told = {}) {
  Observed observed{.object = experiment("x"), .now_unix_ms = kNow};
  for (const char* component : components) observed.pods.push_back(pod("x", component, true));
  if (!told.is_null()) observed.told = told;
  return observed;
}

TEST(OperatorObjects, TheFileIsTheExperimentsAndNothingOfTheClusters) {
  json object = experiment("sweep", {{"workers", 3}, {"gpus", 1}});
  object["status"] = {{"state", "running"}};
  object["metadata"]["annotations"] = {{"kubectl.kubernetes.io/last-applied-configuration", "{}"}};
  const KubeObjects made = madeOf(object, 3);
  const json& map = objectOf(made, "ConfigMap", [&] {
    for (const json& one : made) {
      if (one.at("kind") == "ConfigMap" && one.at("data").contains("experiment.yaml")) {
        return one.at("metadata").at("name").get<std::string>();
      }
    }
    return std::string();
  }());
  const std::string text = map.at("data").at("experiment.yaml");
  const auto read = valueOf(parseExperimentObject(text, "experiment.yaml"));
  EXPECT_EQ(read.experiment.name(), "sweep");
  EXPECT_FALSE(read.cluster.has_workers());
  EXPECT_EQ(text.find("cluster"), std::string::npos);
  EXPECT_EQ(text.find("status"), std::string::npos);
  const json& workers = objectOf(made, "Deployment", "sweep-worker");
  EXPECT_EQ(workers.at("spec").at("replicas"), 3);
  for (const json& one : made) {
    const json& owner = one.at("metadata").at("ownerReferences").at(0);
    EXPECT_EQ(owner.at("uid"), "u-1") << one;
    EXPECT_EQ(owner.at("controller"), true);
    EXPECT_EQ(one.at("metadata").at("namespace"), "ns");
  }
}

TEST(OperatorObjects, RefusalsAreTheLaptopsSentences) {
  json object = experiment("bad");
  object["spec"]["policy"]["totalBudget"] = 0;
  EXPECT_THAT(readExperimentObject(object),
              isError(HasSubstr("spec.policy.totalBudget: 0 is out of range 1..1000000")));
}

TEST(OperatorObjects, AccountsAreReadAsTheyWereMade) {
  const TextMap accounts = someAccounts();
  json secret = {{"metadata", {{"name", "x-accounts"}}}, {"data", json::object()}};
  for (const auto& [name, content] : accounts) secret["data"][name] = toBase64(content);
  EXPECT_EQ(valueOf(accountsOf(secret)), accounts);
  secret["data"].erase("worker.password");
  EXPECT_THAT(accountsOf(secret).error().message, HasSubstr("has no worker.password"));
  secret["data"]["worker.password"] = "%%%%";
  EXPECT_FALSE(accountsOf(secret));
}

TEST(OperatorWorkers, NoneWhileSuspendedOrOnceReleased) {
  const auto count = [](const json& cluster, const std::string& state) {
    const json object = experiment("x", cluster);
    Observed observed{.object = object};
    if (!state.empty()) observed.told = told(state, 150);
    return workersOf(readExperimentObject(object)->cluster, observed);
  };
  EXPECT_EQ(count(nullptr, "running"), 1u);
  EXPECT_EQ(count({{"workers", 6}}, ""), 6u);
  EXPECT_EQ(count({{"workers", 6}}, "finished"), 0u);
  EXPECT_EQ(count({{"workers", 6}, {"whenFinished", "keep"}}, "finished"), 6u);
  EXPECT_EQ(count({{"workers", 6}, {"suspend", true}}, "running"), 0u);
}

TEST(OperatorStatus, SaysWhatPodsDieOf) {
  Observed observed = observedWith({"store", "aggregator"}, told("running", 3));
  json failing = pod("x", "worker", false);
  failing["status"]["containerStatuses"][0]["lastState"]["terminated"] = {
      {"exitCode", 64}, {"message", "spec.model.path: there is no folder recall-8m\n"}};
  observed.pods.push_back(failing);
  json status = statusOfNow(observed);
  EXPECT_EQ(reasonOf(status, "Progressing"), "False WorkerFailed");
  EXPECT_THAT(textAt(*conditionOf(status, "Progressing"), {"message"}),
              HasSubstr("spec.model.path: there is no folder recall-8m"));
  EXPECT_EQ(reasonOf(status, "StoreReady"), "True Ready");

  // It has been mended, and loads its model.
  failing["status"]["containerStatuses"][0]["state"]["running"]["startedAt"] =
      "2023-11-14T22:13:00Z";  // 20 s ago
  observed.pods.back() = failing;
  EXPECT_EQ(reasonOf(statusOfNow(observed), "Progressing"), "False WorkerFailed");
  observed.now_unix_ms += 10'000;
  EXPECT_EQ(reasonOf(statusOfNow(observed), "Progressing"), "True Running");

  json waiting = pod("x", "worker", false);
  waiting["status"]["containerStatuses"][0]["state"]["waiting"] = {
      {"reason", "ImagePullBackOff"}, {"message", "Back-off pulling image \"a/b:1\""}};
  observed.pods.back() = waiting;
  EXPECT_EQ(reasonOf(statusOfNow(observed), "Progressing"), "False ImagePullBackOff");

  json homeless = pod("x", "worker", false);
  homeless["status"]["conditions"] = {{{"type", "PodScheduled"},
                                       {"status", "False"},
                                       {"message", "0/12 nodes: Insufficient nvidia.com/gpu"}}};
  observed.pods.back() = homeless;
  status = statusOfNow(observed);
  EXPECT_EQ(reasonOf(status, "Progressing"), "False Unschedulable");
  EXPECT_EQ(status.at("workers").at("text"), "0/1");

  // Kueue holds it back, which is no fault.
  homeless["status"]["conditions"][0]["reason"] = "SchedulingGated";
  observed.pods.back() = homeless;
  EXPECT_EQ(reasonOf(statusOfNow(observed), "Progressing"), "False Queued");
}

// What an eviction or a node that was shut down leaves lies there for long.
TEST(OperatorStatus, PodsThatAreGoneButForTheirRecordAreNoTrouble) {
  Observed observed = observedWith({"store", "aggregator", "worker"}, told("running", 3));
  json evicted = pod("x", "worker", false, 1);
  evicted["status"]["phase"] = "Failed";
  evicted["status"]["containerStatuses"][0]["state"]["terminated"] = {{"exitCode", 137},
                                                                      {"reason", "Error"}};
  observed.pods.push_back(evicted);
  const json status = statusOfNow(observed);
  EXPECT_EQ(reasonOf(status, "Progressing"), "True Running");
  EXPECT_EQ(status.at("workers").at("pods"), 1);
}

TEST(OperatorStatus, SaysWhyThereAreNoPods) {
  Observed observed = observedWith({"store", "aggregator"});
  observed.workloads = {{{"kind", "Deployment"},
                         {"metadata", {{"name", "x-worker"}}},
                         {"status",
                          {{"conditions",
                            {{{"type", "ReplicaFailure"},
                              {"status", "True"},
                              {"reason", "FailedCreate"},
                              {"message", "pods \"x-worker\" is forbidden: exceeded quota"}}}}}}}};
  observed.told = told("running", 3);
  const json status = statusOfNow(observed);
  EXPECT_EQ(reasonOf(status, "Progressing"), "False FailedCreate");
  EXPECT_THAT(textAt(*conditionOf(status, "Progressing"), {"message"}),
              HasSubstr("exceeded quota"));
}

TEST(OperatorStatus, FollowsTheRunAndKeepsWhatItKnows) {
  Observed observed = observedWith({"store", "aggregator", "worker"});
  json status = withoutNulls(statusOfNow(observed));
  EXPECT_EQ(status.at("state"), "starting");
  EXPECT_EQ(reasonOf(status, "Progressing"), "True Starting");
  EXPECT_FALSE(status.contains("startedAt"));

  observed.object["status"] = status;
  observed.told = told("running");
  status = withoutNulls(statusOfNow(observed));
  EXPECT_FALSE(status.contains("startedAt"));  // nothing counts: all of it may still be edited
  observed.object["status"] = status;
  observed.told = told("running", 3);
  observed.now_unix_ms += 60'000;
  status = withoutNulls(statusOfNow(observed));
  EXPECT_EQ(status.at("startedAt"), "2023-11-14T22:14:20Z");
  EXPECT_EQ(status.at("progress"), "3/150");
  EXPECT_EQ(status.at("workers").at("text"), "1/1");

  // The aggregator moves to another node.
  observed.object["status"] = status;
  observed.told.reset();
  observed.now_unix_ms += 60'000;
  const json kept = withoutNulls(statusOfNow(observed));
  for (const char* const field : {"runId", "progress", "startedAt", "reward", "state"}) {
    EXPECT_EQ(kept.at(field), status.at(field)) << field;
  }
  observed.told = told("finished", 150);
  status = withoutNulls(statusOfNow(observed, {.workers = 0}));
  EXPECT_EQ(reasonOf(status, "Complete"), "True Finished");
  EXPECT_EQ(reasonOf(status, "Progressing"), "False Finished");
  EXPECT_EQ(status.at("finishedAt"), "2023-11-14T22:13:20Z");
}

// What an aggregator or a person wrote may be anything.
TEST(OperatorStatus, StandsWhateverIsTold) {
  json values =
      json::parse(R"([null, 7, -1, 1e300, "x", "a\nb\u001b[31m", [1, 2], {"accuracy": [1]}])");
  values.push_back(std::string(100'000, 'y'));
  const json document = told("running", 3);
  for (const auto& [field, sound] : document.items()) {
    for (const json& value : values) {
      Observed observed{.object = experiment("x"), .now_unix_ms = kNow};
      observed.told = told("running", 3);
      (*observed.told)[field] = value;
      observed.object["status"] = {{field, value}, {"conditions", value}};
      const std::string text = statusOfNow(observed).dump();
      EXPECT_LT(text.size(), 64u * 1024) << field;
      EXPECT_EQ(text.find("\\u001b"), std::string::npos) << field;
    }
  }
}

TEST(OperatorPlan, AppliesAllOnceAndThenNothing) {
  const json object = experiment("x");
  Observed observed{.object = object, .now_unix_ms = kNow};
  const KubeObjects made = madeOf(object);
  AppliedObjects applied;
  Plan first = plan(observed, {.workers = 1}, packed(made), applied);
  EXPECT_EQ(first.apply.size(), made.size());
  ASSERT_TRUE(first.status);
  for (const json& one : first.apply) applied[objectKey(one)] = {objectDigest(one), 1};
  for (const json& one : made) {
    if (one.at("kind") != "Deployment" && one.at("kind") != "StatefulSet") continue;
    observed.workloads.push_back(one);
    observed.workloads.back()["metadata"]["generation"] = 1;
  }
  observed.object["status"] = withoutNulls(*first.status);
  observed.now_unix_ms += 3'600'000;
  Plan second = plan(observed, {.workers = 1}, packed(made), applied);
  EXPECT_TRUE(second.apply.empty());
  EXPECT_FALSE(second.status);
  EXPECT_TRUE(second.events.empty());

  observed.workloads.back()["metadata"]["generation"] = 2;  // somebody's kubectl edit
  second = plan(observed, {.workers = 1}, packed(made), applied);
  ASSERT_EQ(second.apply.size(), 1u);
  observed.workloads.pop_back();  // somebody's kubectl delete
  second = plan(observed, {.workers = 1}, packed(made), applied);
  ASSERT_EQ(second.apply.size(), 1u);

  observed.object["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z";
  second = plan(observed, {.workers = 1}, packed(made), {});
  EXPECT_TRUE(second.apply.empty());
  EXPECT_FALSE(second.status);
}

TEST(OperatorPlan, TellsPeopleWhatHasChangedForThem) {
  Observed observed{.object = experiment("x"), .now_unix_ms = kNow};
  const auto reasons = [&](const Judgement& judgement) {
    const Plan todo = plan(observed, judgement, {}, {});
    std::vector<std::string> all;
    for (const Notice& notice : todo.events) all.push_back(notice.reason);
    if (todo.status) observed.object["status"] = withoutNulls(*todo.status);
    return all;
  };
  EXPECT_THAT(reasons({.refused = "x: spec.seed: no"}), ElementsAre("Invalid"));
  EXPECT_THAT(reasons({.refused = "x: spec.seed: no"}), IsEmpty());
  observed.pods = {pod("x", "store", true), pod("x", "aggregator", true), pod("x", "worker", true)};
  observed.told = told("running");
  EXPECT_THAT(reasons({.workers = 1}), ElementsAre("Started", "Scaled"));
  observed.told = told("running", 25);
  (*observed.told)["best"] = {{"accuracy", "0.710"},
                              {"ci95", {"0.67", "0.75"}},
                              {"interval", "wilson"},
                              {"uniform", "0.350"},
                              {"version", 25}};
  EXPECT_THAT(reasons({.workers = 1}), ElementsAre("Evaluated"));
  EXPECT_EQ(observed.object["status"]["best"]["ci95"], "[0.67, 0.75]");
  EXPECT_EQ(observed.object["status"]["best"]["interval"], "wilson");
  (*observed.told)["edit_refused"] = "spec.seed cannot change";
  EXPECT_THAT(reasons({.workers = 1}), ElementsAre("EditRefused"));
  EXPECT_THAT(reasons({.trouble = "no right", .workers = 1}), ElementsAre("NotApplied"));
  observed.told = told("finished", 150);
  EXPECT_THAT(reasons({.workers = 0}), ElementsAre("Scaled", "Completed"));
}

}  // namespace
}  // namespace allot
