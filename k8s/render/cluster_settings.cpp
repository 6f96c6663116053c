#include "k8s/render/cluster_settings.h"

#include <algorithm>
#include <stdexcept>

#include "core/spec/cluster_section.h"

namespace allot {
namespace {

using nlohmann::json;

constexpr char kComponent[] = "app.kubernetes.io/component";
constexpr char kGpu[] = "nvidia.com/gpu";
constexpr char kKvMemory[] = "KV_MEMORY_MIB";
constexpr char kQueue[] = "kueue.x-k8s.io/queue-name";
constexpr double kMebibyte = 1 << 20;

bool has(const google::protobuf::RepeatedPtrField<v1::KeyValue>& entries, const std::string& key) {
  return std::any_of(entries.begin(), entries.end(),
                     [&](const v1::KeyValue& entry) { return entry.key() == key; });
}

// Where only one of request and limit is given, the other follows it.
void applyResources(const v1::Resources& given, json* resources) {
  json& requests = (*resources)["requests"];
  json& limits = (*resources)["limits"];
  for (const v1::KeyValue& entry : given.requests()) requests[entry.key()] = entry.value();
  for (const v1::KeyValue& entry : given.limits()) limits[entry.key()] = entry.value();
  for (const auto& [key, request] : requests.items()) {
    if (!limits.contains(key)) continue;
    const std::string least = request, most = limits[key];
    if (!(quantityOf(least).value_or(0) > quantityOf(most).value_or(0))) continue;
    if (has(given.requests(), key)) {
      limits[key] = least;
    } else {
      requests[key] = most;
    }
  }
}

json tolerationOf(const v1::Toleration& given) {
  json toleration = json::object();
  if (!given.key().empty()) toleration["key"] = given.key();
  if (!given.operator_().empty()) toleration["operator"] = given.operator_();
  if (!given.value().empty()) toleration["value"] = given.value();
  if (!given.effect().empty()) toleration["effect"] = given.effect();
  if (given.has_toleration_seconds()) toleration["tolerationSeconds"] = given.toleration_seconds();
  return toleration;
}

// Workers with a GPU each. They decode on it if their image was built with a LibTorch that has
// CUDA; with Debian's LibTorch they decode on the CPU (spec.model.device: cuda refuses that).
void applyGpus(uint32_t gpus, json* worker) {
  json& spec = (*worker)["spec"];
  spec["strategy"]["rollingUpdate"]["maxSurge"] = 0;  // an update needs no GPU beside those in use
  json& pod = spec["template"]["spec"];
  pod["tolerations"].push_back({{"key", kGpu}, {"operator", "Exists"}, {"effect", "NoSchedule"}});
  json& container = pod["containers"][0];
  container["image"] = "allot-worker-cuda";
  container["resources"]["limits"][kGpu] = std::to_string(gpus);
}

void mountClaim(const std::string& volume, const std::string& claim, const std::string& path,
                json* pod) {
  (*pod)["volumes"].push_back(
      {{"name", volume}, {"persistentVolumeClaim", {{"claimName", claim}, {"readOnly", true}}}});
  (*pod)["containers"][0]["volumeMounts"].push_back(
      {{"name", volume}, {"mountPath", path}, {"readOnly", true}});
}

void setVariable(const std::string& name, const std::string& value, json* container) {
  for (json& variable : (*container)["env"]) {
    if (variable.at("name") == name) variable["value"] = value;
  }
}

// The claim with models and data, and the memory that a model of 7 or 8 billion parameters takes.
// With GPUs, KV_MEMORY_MIB is the GPU's memory.
void applyModels(const v1::ClusterModels& models, json* pod) {
  mountClaim("models", models.claim(), models.mount_path(), pod);
  json& container = (*pod)["containers"][0];
  setVariable(kKvMemory, "40960", &container);
  container["startupProbe"]["failureThreshold"] = 720;  // times 5 s: an hour to load the model
  container["resources"]["requests"].update({{"cpu", "1"}, {"memory", "16Gi"}});
  container["resources"]["limits"].update({{"cpu", "4"}, {"memory", "96Gi"}});
}

// Names the claim in the Job that exports the run, if there is one.
void applyResults(const v1::ClusterResults& results, KubeObjects* objects) {
  for (json& object : *objects) {
    if (object.at("kind") != "Job") continue;
    for (json& volume : object["spec"]["template"]["spec"]["volumes"]) {
      if (volume.at("name") == "results") {
        volume["persistentVolumeClaim"]["claimName"] = results.claim();
      }
    }
  }
}

void applyToWorker(const v1::Cluster& cluster, json* worker) {
  json& pod = (*worker)["spec"]["template"]["spec"];
  json& container = pod["containers"][0];
  if (!cluster.models().claim().empty()) applyModels(cluster.models(), &pod);
  if (cluster.gpus() > 0) applyGpus(cluster.gpus(), worker);
  applyResources(cluster.resources(), &container["resources"]);
  if (!cluster.kv_memory().empty()) {
    const double bytes = quantityOf(cluster.kv_memory()).value_or(0);
    setVariable(kKvMemory, std::to_string(static_cast<uint64_t>(bytes / kMebibyte)), &container);
  }
  for (const v1::KeyValue& label : cluster.node_selector()) {
    pod["nodeSelector"][label.key()] = label.value();
  }
  for (const v1::Toleration& toleration : cluster.tolerations()) {
    pod["tolerations"].push_back(tolerationOf(toleration));
  }
  if (!cluster.queue().empty()) {
    (*worker)["metadata"]["labels"][kQueue] = cluster.queue();
    (*worker)["spec"]["template"]["metadata"]["labels"][kQueue] = cluster.queue();
  }
  if (cluster.suspend()) {
    (*worker)["spec"]["replicas"] = 0;
  } else if (cluster.has_workers()) {
    (*worker)["spec"]["replicas"] = cluster.workers();
  }
}

}  // namespace

void mountFetchedModel(const std::string& experiment, KubeObjects* objects) {
  json& pod = workloadOf("worker", objects)["spec"]["template"]["spec"];
  mountClaim("smollm2", experiment + "-smollm2", "/opt/allot/experiments/models/smollm2", &pod);
  json& resources = pod["containers"][0]["resources"];
  resources["requests"]["memory"] = "1Gi";
  resources["limits"]["memory"] = "4Gi";
}

json& workloadOf(const char* component, KubeObjects* objects) {
  for (json& object : *objects) {
    const bool runs = object.at("kind") == "Deployment" || object.at("kind") == "StatefulSet";
    if (runs && object.at("metadata").at("labels").value(kComponent, "") == component) {
      return object;
    }
  }
  throw std::logic_error(std::string("k8s/base has no ") + component);
}

void applyCluster(const v1::Cluster& cluster, KubeObjects* objects) {
  applyToWorker(cluster, &workloadOf("worker", objects));
  if (!cluster.results().claim().empty()) applyResults(cluster.results(), objects);
  if (cluster.storage().empty()) return;
  json& claim = workloadOf("store", objects)["spec"]["volumeClaimTemplates"][0];
  claim["spec"]["resources"]["requests"]["storage"] = cluster.storage();
}

}  // namespace allot
