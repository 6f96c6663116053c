// The experiment file as a Kubernetes object: metadata, status and spec.cluster, which a run leaves
// aside.
#include "core/spec/cluster_section.h"

#include "core/spec/spec.h"
#include "core/spec/spec_change.h"
#include "tests/results.h"

namespace allot {
namespace {

std::string file(const std::string& metadata, const std::string& more) {
  return "apiVersion: allot.dev/v1alpha1\nkind: Experiment\nmetadata: " + metadata +
         "\nspec:\n  model: {path: m}\n  task: {tasks: [niah]}\n  policy: {totalBudget: 8}\n" +
         more;
}

ExperimentObject parsed(const std::string& text) {
  return valueOf(parseExperimentObject(text, "x.yaml"));
}

std::string refusal(const std::string& cluster) {
  return messageOf(parseExperimentObject(file("{name: a}", "  cluster: " + cluster + "\n"), "x"));
}

// As `kubectl get experiment a -o yaml` prints it.
const char* const kPrinted = R"(
apiVersion: allot.dev/v1alpha1
kind: Experiment
metadata:
  annotations:
    kubectl.kubernetes.io/last-applied-configuration: |
      {"apiVersion":"allot.dev/v1alpha1","kind":"Experiment","metadata":{"name":"a"}}
  creationTimestamp: "2026-11-24T10:00:00Z"
  finalizers:
  - allot.dev/export
  generation: 3
  labels:
    team: attention
  managedFields:
  - apiVersion: allot.dev/v1alpha1
    fieldsType: FieldsV1
    fieldsV1:
      f:spec:
        .: {}
        f:policy: {}
    manager: kubectl
    operation: Apply
  name: a
  namespace: alice
  resourceVersion: "4711"
  uid: 0d1f3c1e-7a3e-4f0e-9a3e-1f0e9a3e4f0e
spec:
  cluster:
    workers: 3
  model: {path: m}
  policy: {totalBudget: 8}
  task: {tasks: [niah]}
status:
  conditions:
  - lastTransitionTime: "2026-11-24T10:00:00Z"
    message: ""
    status: "True"
    type: Accepted
  progress: 117/150
)";

TEST(ClusterSection, ARunLeavesAsideWhatIsTheClusters) {
  const std::string digest = specDigest(parsed(file("{name: a}", "")).experiment);
  const ExperimentObject object = parsed(kPrinted);
  EXPECT_EQ(specDigest(object.experiment), digest);
  EXPECT_EQ(object.name_space, "alice");
  EXPECT_EQ(object.cluster.workers(), 3u);
  for (const char* cluster :
       {"{}", "{suspend: true, gpus: 2}", "{models: {claim: m, mountPath: /m}}"}) {
    const ExperimentObject same =
        parsed(file("{name: a}", "  cluster: " + std::string(cluster) + "\n"));
    EXPECT_EQ(specDigest(same.experiment), digest) << cluster;
    EXPECT_TRUE(specChanges(object.experiment, same.experiment).empty()) << cluster;
  }
}

TEST(ClusterSection, WhatIsMissingIsTheTablesDefault) {
  const v1::Cluster cluster = parsed(file("{name: a}", "")).cluster;
  EXPECT_FALSE(cluster.has_workers());  // kubectl scale decides
  EXPECT_EQ(cluster.when_finished(), "release");
  EXPECT_EQ(cluster.models().mount_path(), "/models");
  EXPECT_EQ(cluster.image().registry(), "localhost");
  EXPECT_EQ(cluster.storage(), "1Gi");
  EXPECT_EQ(cluster.kv_memory(), "");
  EXPECT_FALSE(cluster.suspend());
}

TEST(ClusterSection, IsReadWhole) {
  const v1::Cluster cluster = parsed(file("{name: a, labels: {x: z}}", R"(  cluster:
    resources: {requests: {cpu: 4, memory: 24Gi}, limits: {nvidia.com/mig-1g.10gb: 1}}
    kvMemory: 40Gi
    nodeSelector: {nvidia.com/gpu.product: H100}
    tolerations:
    - {key: dedicated, operator: Equal, value: research, effect: NoSchedule}
    - {operator: Exists, effect: NoExecute, tolerationSeconds: 30}
    image: {registry: "registry.example.org:5000/team", tag: 0.2.0-abc}
    queue: gpus
    whenFinished: keep
    results: {claim: results}
    tls: {secret: store-tls}
)"))
                                  .cluster;
  ASSERT_EQ(cluster.resources().requests_size(), 2);
  EXPECT_EQ(cluster.resources().requests(1).key(), "memory");
  EXPECT_EQ(cluster.resources().requests(1).value(), "24Gi");
  EXPECT_EQ(cluster.resources().limits(0).key(), "nvidia.com/mig-1g.10gb");
  EXPECT_EQ(cluster.node_selector(0).value(), "H100");
  ASSERT_EQ(cluster.tolerations_size(), 2);
  EXPECT_EQ(cluster.tolerations(0).value(), "research");
  EXPECT_EQ(cluster.tolerations(1).toleration_seconds(), 30u);
  EXPECT_EQ(cluster.image().registry(), "registry.example.org:5000/team");
  EXPECT_EQ(cluster.queue(), "gpus");
  EXPECT_EQ(cluster.when_finished(), "keep");
  EXPECT_EQ(cluster.results().claim(), "results");
  EXPECT_EQ(cluster.tls().secret(), "store-tls");
}

TEST(ClusterSection, RefusesWithPathValueAndWhatIsAllowed) {
  const std::pair<const char*, const char*> cases[] = {
      {"3", "spec.cluster: \"3\" is not a section (keys with values)"},
      {"{worker: 3}", "spec.cluster.worker: unknown key (did you mean workers?)"},
      {"{workers: -1}", "spec.cluster.workers: -1 is out of range 0..10000"},
      {"{gpus: 65}", "spec.cluster.gpus: 65 is out of range 0..64"},
      {"{suspend: yes}", "spec.cluster.suspend: \"yes\" is not true or false"},
      {"{whenFinished: stay}", "spec.cluster.whenFinished: \"stay\" is not one of release, keep"},
      {"{kvMemory: 40 GiB}",
       "spec.cluster.kvMemory: \"40 GiB\" is not a quantity, as in 40Gi or 500m"},
      {"{kvMemory: 500m}", "spec.cluster.kvMemory: 500m is less than 1Mi"},
      {"{storage: -1Gi}", "spec.cluster.storage: \"-1Gi\" is not a quantity, as in 40Gi or 500m"},
      {"{resources: {limit: {cpu: 1}}}",
       "spec.cluster.resources.limit: unknown key (did you mean limits?)"},
      {"{resources: {limits: {cpu: much}}}",
       "spec.cluster.resources.limits.cpu: \"much\" is not a quantity, as in 40Gi or 500m"},
      {"{resources: {limits: [cpu]}}",
       "spec.cluster.resources.limits: a list is not a section (keys with values)"},
      {"{resources: {requests: {memory: 24Gi}, limits: {memory: 2Gi}}}",
       "spec.cluster.resources.requests.memory: 24Gi is more than the limit, which is 2Gi"},
      {"{models: {claim: A}}",
       "spec.cluster.models.claim: \"A\" is not a name of lower-case letters, digits and inner "
       "hyphens"},
      {"{models: {claim: m, mountPath: ../etc}}",
       "spec.cluster.models.mountPath: \"../etc\" is not an absolute path"},
      {"{models: {claim: m, mountPath: /m/../etc}}",
       "spec.cluster.models.mountPath: \"/m/../etc\" is not an absolute path"},
      {"{image: {tag: \"a b\"}}", "spec.cluster.image.tag: \"a b\" is not a tag"},
      {"{nodeSelector: {\"a b\": c}}",
       "spec.cluster.nodeSelector: \"a b\" is no name of a label or resource"},
      {"{nodeSelector: {a: [c]}}",
       "spec.cluster.nodeSelector.a: a list is not a label's value: 0..63 letters, digits and "
       "inner - _ ."},
      {"{tolerations: [{effect: NoSchedule}]}",
       "spec.cluster.tolerations[0]: has no key; name the taint's, or write operator: Exists for "
       "every taint"},
      {"{tolerations: [{key: a, operator: In}]}",
       "spec.cluster.tolerations[0].operator: \"In\" is not one of Equal, Exists"},
      {"{tolerations: [{key: a, seconds: 3}]}",
       "spec.cluster.tolerations[0].seconds: unknown key; known here: key, operator, value, "
       "effect, "
       "tolerationSeconds"},
  };
  for (const auto& [cluster, message] : cases) {
    EXPECT_EQ(refusal(cluster), "x:8: " + std::string(message)) << cluster;
  }
}

// What an API server refuses of the pods that the section becomes, by its own validation.
TEST(ClusterSection, PodsFollowKubernetesRules) {
  const std::pair<const char*, const char*> cases[] = {
      {"{tolerations: [{key: a, operator: Exists, effect: NoSchedule, tolerationSeconds: 30}]}",
       "tolerations[0]: tolerationSeconds are for effect NoExecute; write that, or remove them"},
      {"{tolerations: [{key: a, tolerationSeconds: 30}]}",
       "tolerations[0]: tolerationSeconds are for effect NoExecute; write that, or remove them"},
      {"{tolerations: [{key: a, operator: Exists, value: b}]}",
       "tolerations[0]: operator Exists takes no value; remove it, or write operator: Equal"},
      {"{tolerations: [{key: a..b/c}]}", "tolerations[0].key: \"a..b/c\" is no key of a taint"},
      {"{nodeSelector: {a.-b/c: d}}", "nodeSelector: \"a.-b/c\" is no name of a label or resource"},
      {"{resources: {limits: {gpu: 1}}}",
       "resources.limits.gpu: 1 is no resource of a container; write cpu, memory, "
       "ephemeral-storage, hugepages-SIZE, or a name with a domain, as in nvidia.com/gpu"},
      {"{resources: {limits: {requests.a.com/gpu: 1}}}",
       "resources.limits.requests.a.com/gpu: 1 begins with requests., as no resource may"},
      {"{resources: {limits: {nvidia.com/gpu: \"0.5\"}}}",
       "resources.limits.nvidia.com/gpu: 0.5 is not a whole number"},
      {"{resources: {requests: {nvidia.com/gpu: 1}, limits: {nvidia.com/gpu: 2}}}",
       "resources.requests.nvidia.com/gpu: 1 is not the limit, which is 2: a worker gets all that "
       "it asks for; remove one"},
      {"{gpus: 2, resources: {requests: {nvidia.com/gpu: 1}}}",
       "resources.requests.nvidia.com/gpu: 1 is not the limit, which is 2: a worker gets all that "
       "it asks for; remove one"},
      {"{gpus: 2, resources: {limits: {nvidia.com/gpu: 1}}}",
       "resources.limits.nvidia.com/gpu: 1 is not the limit, which is 2: a worker gets all that "
       "it asks for; remove one"},
      {"{resources: {limits: {memory: 400m}}}", "resources.limits.memory: 400m is less than 1Mi"},
      {"{kvMemory: 64Gi, resources: {limits: {memory: 2Gi}}}",
       "kvMemory: 64Gi is not below the limit of a worker's memory, which is 2Gi and holds the "
       "weights too; raise spec.cluster.resources.limits.memory"},
      {"{storage: 0}", "storage: 0 is less than 1Mi"},
      {"{models: {claim: m, mountPath: /tmp}}",
       "models.mountPath: /tmp is a worker's already; choose another path"},
      {"{models: {claim: m, mountPath: /run}}",
       "models.mountPath: /run is a worker's already; choose another path"},
      {"{models: {claim: m, mountPath: /opt/allot}}",
       "models.mountPath: /opt/allot is a worker's already; choose another path"},
      {"{models: {claim: m, mountPath: /usr/lib}}",
       "models.mountPath: /usr/lib is a worker's already; choose another path"},
      {"{resources: {limits: {hugepages-abc: 4Mi}}}",
       "resources.limits.hugepages-abc: 4Mi has no size of pages in its name, as in hugepages-2Mi"},
      {"{resources: {limits: {hugepages-2Mi: 3Mi}}}",
       "resources.limits.hugepages-2Mi: 3Mi is no multiple of the size of its pages"},
      {"{resources: {requests: {hugepages-2Mi: 2Mi}, limits: {hugepages-2Mi: 4Mi}}}",
       "resources.requests.hugepages-2Mi: 2Mi is not the limit, which is 4Mi: a worker gets all "
       "that it asks for; remove one"},
      {"{image: {registry: a..b}}",
       "image.registry: \"a..b\" is not a registry with a path, as in registry.example.org/team"},
      {"{image: {registry: a/..}}",
       "image.registry: \"a/..\" is not a registry with a path, as in registry.example.org/team"},
      {"{image: {registry: \"a:99999\"}}",
       "image.registry: \"a:99999\" is not a registry with a path, as in "
       "registry.example.org/team"},
      {"{models: {claim: a..b}}",
       "models.claim: \"a..b\" is not a name of lower-case letters, digits and inner hyphens"},
  };
  for (const auto& [cluster, message] : cases) {
    EXPECT_EQ(refusal(cluster), "x:8: spec.cluster." + std::string(message)) << cluster;
  }
  for (const char* cluster :
       {"{tolerations: [{key: a, effect: NoExecute, tolerationSeconds: 30}]}",
        "{tolerations: [{operator: Exists}]}", "{nodeSelector: {a.b-c/d: \"true\"}}",
        "{gpus: 2, resources: {requests: {nvidia.com/gpu: 2}}}",
        "{resources: {requests: {nvidia.com/gpu: 1}, limits: {ephemeral-storage: 1Gi}}}",
        "{kvMemory: 64Gi, gpus: 1, resources: {limits: {memory: 2Gi}}}",
        "{resources: {requests: {hugepages-2Mi: 4Mi}}}",
        "{resources: {limits: {hugepages-1Gi: 2Gi}}}",
        "{models: {claim: m, mountPath: /opt/allot/experiments/models/m}}",
        "{models: {claim: m, mountPath: /runs}}",
        "{image: {registry: \"R-1.example.org:65535/my_team/a.b--c\"}}",
        "{resources: {requests: {cpu: \".5\", memory: \"1e9\"}, limits: {memory: 1.5Gi}}}"}) {
    parsed(file("{name: a}", "  cluster: " + std::string(cluster) + "\n"));
  }
}

TEST(ClusterSection, MetadataIsCheckedByNameAndKind) {
  const auto refused = [](const std::string& metadata) {
    return messageOf(parseExperimentObject(file(metadata, ""), "x"));
  };
  EXPECT_EQ(refused("{name: a, labels: {}, annotations: {b: c}, namespace: d}"), "");
  EXPECT_EQ(refused("{name: a, lables: {}}"),
            "x:3: metadata.lables: unknown key (did you mean labels?)");
  EXPECT_EQ(refused("{name: a, labels: [b]}"),
            "x:3: metadata.labels: a list is not a section (keys with values)");
  EXPECT_EQ(refused("{name: a, labels: {b: c d}}"),
            "x:3: metadata.labels.b: \"c d\" makes no label; write 0..63 letters, digits and inner "
            "- _ ., and a key of them, with or without DOMAIN/");
  EXPECT_EQ(refused("{name: a, annotations: {b: 1}}"),
            "x:3: metadata.annotations.b: 1 is a number to Kubernetes; write \"1\"");
  EXPECT_EQ(refused("{name: a, annotations: {Some.Domain/b_c: d}}"), "");
  EXPECT_EQ(refused("{name: a, annotations: {b: " + std::string(1 << 18, 'c') + "}}"),
            "x:3: metadata.annotations: has 262145 bytes; Kubernetes takes at most 262144");
  EXPECT_EQ(refused("{name: a, annotations: {\"a b\": c}}"),
            "x:3: metadata.annotations.a b: is no key of an annotation; write letters, digits and "
            "inner - _ ., with or without DOMAIN/");
  EXPECT_EQ(refused("{name: a, annotations: {b: {}}}"),
            "x:3: metadata.annotations.b: a section is not a string");
  EXPECT_EQ(refused("{name: a, namespace: [b]}"),
            "x:3: metadata.namespace: a list is not a string");
}

TEST(ClusterSection, IsNothingThatARunCouldBeToldToChange) {
  const v1::Experiment experiment = parsed(file("{name: a}", "")).experiment;
  EXPECT_THAT(withSettings(experiment, {"spec.cluster.workers=3"}),
              isError(HasSubstr("spec.cluster is no part of a run")));
}

TEST(ClusterSection, QuantitiesAreKubernetes) {
  EXPECT_EQ(quantityOf("512Mi"), 512.0 * 1024 * 1024);
  EXPECT_EQ(quantityOf("1.5k"), 1500.0);
  EXPECT_EQ(quantityOf("250m"), 0.25);
  EXPECT_EQ(quantityOf("2"), 2.0);
  EXPECT_EQ(quantityOf("1Ki"), 1024.0);
  EXPECT_EQ(quantityOf("1e3"), 1000.0);
  EXPECT_EQ(quantityOf("5E"), 5e18);
  EXPECT_EQ(quantityOf(".5"), 0.5);
  EXPECT_EQ(quantityOf("2u"), 2e-6);
  for (const char* bad :
       {"", "Gi", "-1", "1K", "1ki", "1Gib", "1 Gi", "1mi", "0x1", "inf", "1e3Mi"}) {
    EXPECT_EQ(quantityOf(bad), std::nullopt) << bad;
  }
}

}  // namespace
}  // namespace allot
