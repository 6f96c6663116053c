// Objects of an experiment: what spec.cluster and the options put into them. manifests_test.py
// holds all that is printed to checks.
#include "k8s/render/render.h"

#include <nlohmann/json.hpp>

#include "k8s/render/yaml_text.h"
#include "tests/results.h"

namespace allot {
namespace {

using nlohmann::json;

const TextMap kAccounts = {{"users.acl", "user default off\n"},
                           {"worker.password", "w\n"},
                           {"aggregator.password", "a\n"},
                           {"reader.password", "r\n"}};

ExperimentObject experimentWith(const std::string& cluster) {
  return valueOf(parseExperimentObject(
      "apiVersion: allot.dev/v1alpha1\nkind: Experiment\nmetadata: {name: x}\nspec:\n"
      "  model: {path: m}\n  task: {tasks: [niah]}\n  policy: {totalBudget: 8}\n  cluster: " +
          cluster + "\n",
      "x.yaml"));
}

KubeObjects rendered(const std::string& cluster, const RenderOptions& options = {}) {
  return valueOf(renderExperiment(experimentWith(cluster), {{"experiment.yaml", "text\n"}},
                                  kAccounts, options));
}

json podOf(const char* component, KubeObjects objects) {
  return workloadOf(component, &objects)["spec"]["template"]["spec"];
}

json containerOf(const char* component, const KubeObjects& objects) {
  return podOf(component, objects)["containers"][0];
}

const json* objectOf(const char* kind, const std::string& start, const KubeObjects& objects) {
  for (const json& object : objects) {
    const std::string name = object.at("metadata").at("name");
    if (object.at("kind") == kind && name.starts_with(start)) return &object;
  }
  return nullptr;
}

// The entry of a list that has this name; null if there is none.
json named(const json& list, const std::string& name) {
  for (const json& entry : list) {
    if (entry.at("name") == name) return entry;
  }
  return nullptr;
}

TEST(Render, WhatTheSectionLeavesOutIsAsInTheBase) {
  const json plain = rendered("{}");
  EXPECT_EQ(plain, json(rendered("{gpus: 0, suspend: false, storage: 1Gi, whenFinished: keep}")));
  KubeObjects objects = rendered("{}");
  // Nobody's number of workers is undone by applying again.
  EXPECT_FALSE(workloadOf("worker", &objects)["spec"].contains("replicas"));
  EXPECT_EQ(objectOf("ConfigMap", "x-experiment", objects)->at("data").at("experiment.yaml"),
            "text\n");
}

TEST(Render, GpusBringTheirImageAndTheirNumber) {
  const KubeObjects objects = rendered("{gpus: 2}");
  const json container = containerOf("worker", objects);
  EXPECT_EQ(container.at("resources").at("limits").at("nvidia.com/gpu"), "2");
  EXPECT_THAT(container.at("image").get<std::string>(), HasSubstr("/allot-worker-cuda:"));
}

TEST(Render, ModelsAreMountedWhereTheSectionSays) {
  const KubeObjects objects = rendered("{models: {claim: weights, mountPath: /w}}");
  const json pod = podOf("worker", objects);
  EXPECT_EQ(named(pod.at("volumes"), "models").at("persistentVolumeClaim").at("claimName"),
            "weights");
  EXPECT_EQ(named(pod.at("containers")[0].at("volumeMounts"), "models").at("mountPath"), "/w");
  const auto kvMemory = [](const KubeObjects& of) {
    return named(containerOf("worker", of).at("env"), "KV_MEMORY_MIB").at("value");
  };
  EXPECT_EQ(kvMemory(objects), "40960");
  EXPECT_EQ(kvMemory(rendered("{kvMemory: 1.5Gi}")), "1536");
}

TEST(Render, OfRequestAndLimitTheOneThatIsGivenHolds) {
  const auto resources = [](const std::string& given) {
    return containerOf("worker", rendered("{resources: " + given + "}")).at("resources");
  };
  const json raised = resources("{requests: {memory: 24Gi}}");
  EXPECT_EQ(raised.at("requests").at("memory"), "24Gi");
  EXPECT_EQ(raised.at("limits").at("memory"), "24Gi");
  const json lowered = resources("{limits: {cpu: 100m}}");
  EXPECT_EQ(lowered.at("requests").at("cpu"), "100m");
  EXPECT_EQ(lowered.at("limits").at("cpu"), "100m");
  const json slice = resources("{limits: {nvidia.com/mig-1g.10gb: 1}}");
  EXPECT_EQ(slice.at("limits").at("nvidia.com/mig-1g.10gb"), "1");
  EXPECT_EQ(slice.at("limits").at("memory"), "2Gi");
  // An API server refuses a request of it without an equal limit.
  const json asked = resources("{requests: {nvidia.com/gpu: 1}}");
  EXPECT_EQ(asked.at("limits").at("nvidia.com/gpu"), asked.at("requests").at("nvidia.com/gpu"));
  EXPECT_FALSE(
      resources("{requests: {ephemeral-storage: 1Gi}}").at("limits").contains("ephemeral-storage"));
}

TEST(Render, WorkersAloneGoWhereTheSectionSays) {
  const KubeObjects objects = rendered(
      "{gpus: 1, nodeSelector: {a: b}, tolerations: [{key: k, operator: Exists}], queue: q, "
      "storage: 5Gi}");
  const json worker = podOf("worker", objects);
  EXPECT_EQ(worker.at("nodeSelector"), (json{{"a", "b"}}));
  EXPECT_THAT(worker.at("tolerations"), Contains(json{{"key", "k"}, {"operator", "Exists"}}));
  EXPECT_EQ(worker.at("tolerations").size(), 2u);  // that of the GPUs beside it
  EXPECT_FALSE(podOf("aggregator", objects).contains("nodeSelector"));
  KubeObjects copy = objects;
  const json& store = workloadOf("store", &copy);
  EXPECT_EQ(store["spec"]["volumeClaimTemplates"][0]["spec"]["resources"]["requests"]["storage"],
            "5Gi");
  const json& deployment = workloadOf("worker", &copy);
  EXPECT_EQ(deployment["metadata"]["labels"]["kueue.x-k8s.io/queue-name"], "q");
  EXPECT_EQ(deployment["spec"]["template"]["metadata"]["labels"]["kueue.x-k8s.io/queue-name"], "q");
  // What selects them must not change with it.
  EXPECT_FALSE(deployment["spec"]["selector"]["matchLabels"].contains("kueue.x-k8s.io/queue-name"));
}

TEST(Render, WorkersAreAsManyAsSomebodySays) {
  const auto replicas = [](const std::string& cluster, std::optional<uint32_t> workers) {
    RenderOptions options;
    options.workers = workers;
    KubeObjects objects = rendered(cluster, options);
    return workloadOf("worker", &objects)["spec"]["replicas"];
  };
  EXPECT_EQ(replicas("{workers: 3}", {}), 3);
  EXPECT_EQ(replicas("{workers: 0}", {}), 0);
  EXPECT_EQ(replicas("{workers: 3, suspend: true}", {}), 0);
  EXPECT_EQ(replicas("{workers: 3}", 5), 5);
}

TEST(Render, ImagesAreTheOptionsOrTheSectionsOrTheVersions) {
  KubeObjects plain = rendered("{}");
  const std::string version =
      workloadOf("store", &plain)["metadata"]["labels"]["app.kubernetes.io/version"];
  EXPECT_EQ(containerOf("store", plain).at("image"), "localhost/allot-redis:" + version);
  const std::string section = "{image: {registry: r.example.org/t, tag: v2}}";
  EXPECT_EQ(containerOf("store", rendered(section)).at("image"), "r.example.org/t/allot-redis:v2");
  RenderOptions options;
  options.registry = "other";
  options.tag = "v3";
  EXPECT_EQ(containerOf("store", rendered(section, options)).at("image"), "other/allot-redis:v3");
}

TEST(Render, TheSecretIsAsItIsAskedFor) {
  const auto with = [](AccountsSecret way) {
    RenderOptions options;
    options.accounts = way;
    return rendered("{}", options);
  };
  const auto secretOfWorker = [](const KubeObjects& objects) {
    return named(podOf("worker", objects).at("volumes"), "account").at("secret").at("secretName");
  };
  const KubeObjects once = with(AccountsSecret::kOnce);
  EXPECT_EQ(objectOf("Secret", "x-accounts", once)->at("immutable"), true);
  EXPECT_EQ(objectOf("Secret", "x-accounts", once)->at("data").at("worker.password"), "dwo=");
  EXPECT_EQ(secretOfWorker(once), "x-accounts");
  // The next time, without the Secret: nothing else is another.
  KubeObjects rest = once;
  std::erase_if(rest, [](const json& object) { return object.at("kind") == "Secret"; });
  EXPECT_EQ(json(rest), json(with(AccountsSecret::kLeftOut)));
  KubeObjects stamped = with(AccountsSecret::kStamped);
  EXPECT_FALSE(objectOf("Secret", "x-accounts", stamped)->contains("immutable"));
  for (const char* component : {"worker", "aggregator", "store"}) {
    const json& pods = workloadOf(component, &stamped)["spec"]["template"];
    EXPECT_TRUE(pods.at("metadata").at("annotations").contains("allot.dev/accounts")) << component;
  }
  EXPECT_EQ(secretOfWorker(stamped), "x-accounts");
}

TEST(Render, OtherAccountsAreAnotherStamp) {
  const auto stampOf = [](const TextMap& accounts) {
    auto objects = renderExperiment(experimentWith("{}"), {}, accounts, {});
    return workloadOf(
        "store", &*objects)["spec"]["template"]["metadata"]["annotations"]["allot.dev/accounts"];
  };
  TextMap others = kAccounts;
  others["worker.password"] = "another\n";
  EXPECT_NE(stampOf(kAccounts), stampOf(others));
}

TEST(Render, TheJobThatExportsWritesToTheClaimOfTheSection) {
  RenderOptions options;
  options.exports = true;
  const KubeObjects objects = rendered("{results: {claim: kept}}", options);
  const json* const job = objectOf("Job", "x-export", objects);
  ASSERT_NE(job, nullptr);
  EXPECT_EQ(job, &objects.back());
  const json& pod = job->at("spec").at("template").at("spec");
  EXPECT_EQ(named(pod.at("volumes"), "results").at("persistentVolumeClaim").at("claimName"),
            "kept");
  EXPECT_EQ(objectOf("Job", "", rendered("{results: {claim: kept}}")), nullptr);
}

// manifests_test.py checks the pods that run all the time.
TEST(Render, EveryConnectionToRedisIsOfTheTlsThatTheSectionAsksFor) {
  RenderOptions options;
  options.exports = true;
  const KubeObjects objects = rendered("{tls: {secret: s}}", options);
  const json& pod = objectOf("Job", "x-export", objects)->at("spec").at("template").at("spec");
  EXPECT_THAT(pod.at("containers")[0].at("args").dump(),
              AllOf(HasSubstr("\"--redis=rediss://reader@"),
                    HasSubstr("reader.password&ca=/run/secrets/tls/ca.crt\"")));
  EXPECT_EQ(named(pod.at("volumes"), "tls").at("secret").at("items"),
            (json{{{"key", "ca.crt"}, {"path", "ca.crt"}}}));
  const json store = podOf("store", objects);
  EXPECT_EQ(named(store.at("volumes"), "tls").at("secret").at("secretName"), "s");
  // A renewed certificate has Redis started again, by the probe of life alone.
  const auto probe = [&](const char* name) {
    return store["containers"][0][name]["exec"]["command"][2].get<std::string>();
  };
  EXPECT_THAT(probe("livenessProbe"), StartsWith("[ /run/secrets/tls/tls.crt -nt /tmp/redis.pid"));
  EXPECT_THAT(probe("readinessProbe"), Not(HasSubstr("redis.pid")));
  EXPECT_THAT(objectOf("ConfigMap", "x-redis", objects)->dump(),
              HasSubstr("pidfile /tmp/redis.pid"));
  EXPECT_THAT(json(rendered("{}", options)).dump(), Not(HasSubstr("tls")));
}

TEST(Render, EveryObjectIsInTheNamespaceAndNoneWithoutOne) {
  for (const json& object : rendered("{}")) {
    EXPECT_FALSE(object.at("metadata").contains("namespace"));
  }
  RenderOptions options;
  options.name_space = "team";
  options.components = {"namespace", "monitoring"};
  const KubeObjects objects = rendered("{}", options);
  EXPECT_EQ(objects.at(0).at("kind"), "Namespace");
  EXPECT_EQ(objects.at(0).at("metadata").at("name"), "team");
  for (size_t i = 1; i < objects.size(); ++i) {
    EXPECT_EQ(objects[i].at("metadata").at("namespace"), "team");
    EXPECT_EQ(objects[i].at("metadata").at("labels").at("allot.dev/experiment"), "x");
  }
}

TEST(Render, RefusesAComponentThatIsNoneOrLacksSomething) {
  const auto refusal = [](const std::string& component) {
    RenderOptions options;
    options.components = {component};
    return messageOf(renderExperiment(experimentWith("{}"), {}, kAccounts, options));
  };
  EXPECT_EQ(refusal("monitorin"),
            "--component monitorin: there is none (did you mean monitoring?)");
  EXPECT_EQ(refusal("../base"),
            "--component ../base: there is none; known are disruption-budget, monitoring, "
            "namespace, smollm2");
  EXPECT_EQ(refusal("namespace"),
            "--component namespace: add --namespace, the name that it is to have");
}

TEST(Render, EveryPrintedObjectIsReadAsItWas) {
  RenderOptions options;
  options.name_space = "team";
  options.components = componentNames();
  const KubeObjects objects = rendered("{}", options);
  EXPECT_EQ(json(yamlObjects(yamlText(objects))), json(objects));
}

}  // namespace
}  // namespace allot
