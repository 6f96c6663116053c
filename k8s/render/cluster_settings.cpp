#include "k8s/render/cluster_settings.h"

#include <algorithm>
#include <stdexcept>

#include "core/spec/cluster_section.h"

namespace allot {
namespace {

using nlohmann::json;

constexpr char kComponent[] = "app.kubernetes.io/component";
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

void applyModels(const v1::ClusterModels& models, json* pod) {
  for (json& volume : (*pod)["volumes"]) {
    if (volume.at("name") == "models") {
      volume["persistentVolumeClaim"]["claimName"] = models.claim();
    }
  }
  for (json& mount : (*pod)["containers"][0]["volumeMounts"]) {
    if (mount.at("name") == "models") mount["mountPath"] = models.mount_path();
  }
}

// Of the component results, where it is there.
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
  if (cluster.gpus() > 0) {
    container["resources"]["limits"]["nvidia.com/gpu"] = std::to_string(cluster.gpus());
  }
  applyResources(cluster.resources(), &container["resources"]);
  if (!cluster.kv_memory().empty()) {
    const double bytes = quantityOf(cluster.kv_memory()).value_or(0);
    for (json& variable : container["env"]) {
      if (variable.at("name") != "KV_MEMORY_MIB") continue;
      variable["value"] = std::to_string(static_cast<uint64_t>(bytes / kMebibyte));
    }
  }
  if (!cluster.models().claim().empty()) applyModels(cluster.models(), &pod);
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

std::vector<std::string> componentsOf(const v1::Cluster& cluster) {
  std::vector<std::string> names;
  if (cluster.gpus() > 0) names.push_back("gpu");
  if (!cluster.models().claim().empty()) names.push_back("models");
  return names;
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
