#include "k8s/render/render.h"

#include <algorithm>
#include <array>
#include <stdexcept>

#include "core/digest.h"
#include "core/spec/spec_rules.h"
#include "core/spec/spec_yaml.h"
#include "k8s/render/yaml_text.h"

namespace allot {
namespace {

using nlohmann::json;

constexpr char kComponent[] = "app.kubernetes.io/component";
constexpr char kKvMemory[] = "KV_MEMORY_MIB";
constexpr char kQueue[] = "kueue.x-k8s.io/queue-name";
constexpr double kMebibyte = 1 << 20;

bool has(const google::protobuf::RepeatedPtrField<v1::KeyValue>& entries, const std::string& key) {
  return std::any_of(entries.begin(), entries.end(),
                     [&](const v1::KeyValue& entry) { return entry.key() == key; });
}

// A given request raises a lower limit; without one, a given limit lowers a higher request. A pod
// has a limit of what is never shared.
void applyResources(const v1::Resources& given, json* resources) {
  json& requests = (*resources)["requests"];
  json& limits = (*resources)["limits"];
  for (const v1::KeyValue& entry : given.requests()) requests[entry.key()] = entry.value();
  for (const v1::KeyValue& entry : given.limits()) limits[entry.key()] = entry.value();
  for (const auto& [key, request] : requests.items()) {
    if (!limits.contains(key) && isNeverShared(key)) limits[key] = request;
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

// Gives each worker `gpus` GPUs. Workers decode on them if their image was built with a LibTorch
// that has CUDA; with Debian's LibTorch they decode on the CPU (spec.model.device: cuda refuses
// that).
void applyGpus(uint32_t gpus, json* worker) {
  json& spec = (*worker)["spec"];
  spec["strategy"]["rollingUpdate"]["maxSurge"] = 0;  // an update needs no GPU beside those in use
  json& pod = spec["template"]["spec"];
  pod["tolerations"].push_back(
      {{"key", kGpuResource}, {"operator", "Exists"}, {"effect", "NoSchedule"}});
  json& container = pod["containers"][0];
  container["image"] = "allot-worker-cuda";
  container["resources"]["limits"][kGpuResource] = std::to_string(gpus);
}

void mountClaim(const std::string& volume, const std::string& claim, const std::string& path,
                json* pod) {
  (*pod)["volumes"].push_back(
      {{"name", volume}, {"persistentVolumeClaim", {{"claimName", claim}, {"readOnly", true}}}});
  (*pod)["containers"][0]["volumeMounts"].push_back(
      {{"name", volume}, {"mountPath", path}, {"readOnly", true}});
}

void replaceAll(const std::string& from, const std::string& to, std::string* text) {
  for (size_t at = text->find(from); at != std::string::npos; at = text->find(from, at)) {
    text->replace(at, from.size(), to);
    at += to.size();
  }
}

void setVariable(const std::string& name, const std::string& value, json* container) {
  for (json& variable : (*container)["env"]) {
    if (variable.at("name") == name) variable["value"] = value;
  }
}

// Mounts the claim with models and data, and asks for the memory of a model of 7 or 8 billion
// parameters. With GPUs, KV_MEMORY_MIB is the GPU's memory.
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

bool runs(const json& object) {
  return object.at("kind") == "Deployment" || object.at("kind") == "StatefulSet";
}

void mountTls(const std::string& secret, const std::vector<std::string>& keys, json* pod) {
  json items = json::array();
  for (const std::string& key : keys) items.push_back({{"key", key}, {"path", key}});
  (*pod)["volumes"].push_back(
      {{"name", "tls"},
       {"secret", {{"secretName", secret}, {"defaultMode", 0440}, {"items", items}}}});
  (*pod)["containers"][0]["volumeMounts"].push_back(
      {{"name", "tls"}, {"mountPath", "/run/secrets/tls"}, {"readOnly", true}});
}

// Redis reads its certificate only as it starts. Its pid file has the time of that, and once the
// certificate is newer Redis counts as dead, so that the kubelet starts it again. Probes ask for
// life alone: what is wrong with a certificate is said by those who connect.
void applyTlsToStore(const std::string& secret, json* pod) {
  mountTls(secret, {"tls.crt", "tls.key"}, pod);
  (*pod)["volumes"].push_back({{"name", "tmp"}, {"emptyDir", {{"sizeLimit", "64Mi"}}}});
  json& container = (*pod)["containers"][0];
  container["volumeMounts"].push_back({{"name", "tmp"}, {"mountPath", "/tmp"}});
  for (const char* const probe : {"livenessProbe", "readinessProbe"}) {
    auto& command = container[probe]["exec"]["command"][2].get_ref<std::string&>();
    replaceAll("redis-cli", "redis-cli --tls --insecure", &command);
    if (probe == std::string_view("livenessProbe")) {
      command.insert(0, "[ /run/secrets/tls/tls.crt -nt /tmp/redis.pid ] && exit 1; ");
    }
  }
}

// Turns the connections between Redis and all others into TLS, by the certificate in this Secret.
void applyTls(const std::string& secret, KubeObjects* objects) {
  for (json& object : *objects) {
    if (object.at("kind") == "ConfigMap" && object["data"].contains("redis.conf")) {
      replaceAll("port 6379\n",
                 "port 0\ntls-port 6379\ntls-cert-file /run/secrets/tls/tls.crt\n"
                 "tls-key-file /run/secrets/tls/tls.key\ntls-auth-clients no\n"
                 "pidfile /tmp/redis.pid\n",
                 object["data"]["redis.conf"].get_ptr<std::string*>());
    }
    if (!runs(object) && object.at("kind") != "Job") continue;
    json& pod = object["spec"]["template"]["spec"];
    if (object.at("kind") == "StatefulSet") applyTlsToStore(secret, &pod);
    for (json& argument : pod["containers"][0]["args"]) {
      auto& text = argument.get_ref<std::string&>();
      if (!text.starts_with("--redis=redis://")) continue;
      text.insert(sizeof("--redis=redis") - 1, "s");
      text += "&ca=/run/secrets/tls/ca.crt";
      mountTls(secret, {"ca.crt"}, &pod);
    }
  }
}

constexpr char kFolder[] = "components/";
constexpr char kFileEnd[] = ".yaml";
constexpr char kRunbooks[] = "allot.dev/runbooks";
constexpr size_t kStampDigits = 10;

bool isIn(const std::vector<std::string>& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

Status checkComponents(const RenderOptions& options) {
  const std::vector<std::string> known = componentNames();
  for (const std::string& name : options.components) {
    if (!isIn(known, name)) {
      const std::string near = nearest(name, known);
      return badInput(
          "--component " + escaped(name) + ": there is none" +
          (near.empty() ? "; known are " + joined(known) : " (did you mean " + near + "?)"));
    }
    if (name == "namespace" && options.name_space.empty()) {
      return badInput("--component namespace: add --namespace, the name that it is to have");
    }
  }
  return {};
}

// Returns the labels that all objects and their pods have.
TextMap labelsFor(const std::string& experiment) {
  return {{"allot.dev/experiment", experiment},
          {"app.kubernetes.io/instance", experiment},
          {"app.kubernetes.io/managed-by", "allot"},
          {"app.kubernetes.io/name", "allot"},
          {"app.kubernetes.io/part-of", "allot"}};
}

// Adds the objects of a file of k8s/, where $NAME is the experiment and $LABELS are its labels.
void addFile(const std::string& path, const std::string& experiment, KubeObjects* objects) {
  std::string labels;
  for (const auto& [key, value] : labelsFor(experiment)) {
    labels += (labels.empty() ? "" : ", ") + key + ": \"" + value + "\"";
  }
  std::string text(manifestSources().at(path));
  replaceAll("$NAME", experiment, &text);
  replaceAll("$LABELS", labels, &text);
  for (json& object : yamlObjects(text)) objects->push_back(std::move(object));
}

// Adds the alert rules, whose file has neither name nor labels of an experiment: it can be applied
// by itself, too. An alert's link to its runbook begins as the annotation says.
void addRules(const std::string& experiment, KubeObjects* objects) {
  KubeObjects rules;
  addFile("prometheus/rules.yaml", experiment, &rules);
  json& metadata = rules.at(0).at("metadata");
  metadata["name"] = experiment + "-" + metadata.at("name").get<std::string>();
  for (const auto& [key, value] : labelsFor(experiment)) metadata["labels"][key] = value;
  const std::string runbooks = metadata.at("annotations").at(kRunbooks);
  for (json& group : rules.at(0).at("spec").at("groups")) {
    for (json& rule : group.at("rules")) {
      if (!rule.contains("annotations")) continue;
      json& link = rule["annotations"]["runbook_url"];
      const std::string file = link;
      link = runbooks + file.substr(std::min(file.find('#'), file.size()));
    }
  }
  objects->push_back(std::move(rules.at(0)));
}

void addComponent(const std::string& name, const std::string& experiment, KubeObjects* objects) {
  addFile(kFolder + name + kFileEnd, experiment, objects);
  if (name == "monitoring") addRules(experiment, objects);
  if (name == "smollm2") mountFetchedModel(experiment, objects);
}

json& objectOf(const char* kind, const std::string& name, KubeObjects* objects) {
  return *std::find_if(objects->begin(), objects->end(), [&](const json& object) {
    return object.at("kind") == kind && object.at("metadata").at("name") == name;
  });
}

// Annotates the pods with a digest of what they read only as they start: another digest replaces
// them.
void stampPods(const char* annotation, const std::string& content, json* workload) {
  json& metadata = workload->at("spec").at("template").at("metadata");
  metadata["annotations"][annotation] = sha256Hex(content).substr(0, kStampDigits);
}

void fillIn(const std::string& experiment, const TextMap& files, KubeObjects* objects) {
  objectOf("ConfigMap", experiment + "-experiment", objects)["data"] = files;
  const std::string conf =
      objectOf("ConfigMap", experiment + "-redis", objects).at("data").at("redis.conf");
  stampPods("allot.dev/redis-conf", conf, &workloadOf("store", objects));
}

void fillInAccounts(const std::string& experiment, const TextMap& accounts, AccountsSecret way,
                    KubeObjects* objects) {
  if (way == AccountsSecret::kLeftOut) {
    std::erase_if(*objects, [](const json& object) { return object.at("kind") == "Secret"; });
    return;
  }
  json& secret = objectOf("Secret", experiment + "-accounts", objects);
  for (const auto& [name, content] : accounts) secret["data"][name] = toBase64(content);
  if (way == AccountsSecret::kOnce) {
    secret["immutable"] = true;
    return;
  }
  const std::string content = secret.at("data").dump();
  for (json& object : *objects) {
    if (runs(object)) stampPods("allot.dev/accounts", content, &object);
  }
}

// Completes the names of our images, which stand in the files without a registry.
void placeImages(const std::string& registry, const std::string& tag, KubeObjects* objects) {
  for (json& object : *objects) {
    if (!runs(object) && object.at("kind") != "Job") continue;
    for (json& container : object["spec"]["template"]["spec"]["containers"]) {
      const std::string name = container.at("image");
      if (name.starts_with("allot-")) container["image"] = registry + "/" + name + ":" + tag;
    }
  }
}

void placeIn(const std::string& name_space, KubeObjects* objects) {
  if (name_space.empty()) return;
  for (json& object : *objects) {
    const bool itself = object.at("kind") == "Namespace";
    object["metadata"][itself ? "name" : "namespace"] = name_space;
  }
}

// Sorts objects, those that others refer to first.
void sortByKind(KubeObjects* objects) {
  static constexpr std::array<std::string_view, 10> order = {
      "Namespace", "NetworkPolicy",         "ServiceAccount", "ConfigMap",  "Secret",
      "Service",   "PersistentVolumeClaim", "StatefulSet",    "Deployment", "Job"};
  const auto rank = [](const json& object) {
    const std::string kind = object.at("kind");
    return std::find(order.begin(), order.end(), kind) - order.begin();
  };
  std::stable_sort(objects->begin(), objects->end(),
                   [&](const json& a, const json& b) { return rank(a) < rank(b); });
}

const std::string& firstOf(const std::string& a, const std::string& b) { return a.empty() ? b : a; }

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
    if (runs(object) && object.at("metadata").at("labels").value(kComponent, "") == component) {
      return object;
    }
  }
  throw std::logic_error(std::string("k8s/base has no ") + component);
}

void applyCluster(const v1::Cluster& cluster, KubeObjects* objects) {
  applyToWorker(cluster, &workloadOf("worker", objects));
  if (!cluster.results().claim().empty()) applyResults(cluster.results(), objects);
  if (!cluster.tls().secret().empty()) applyTls(cluster.tls().secret(), objects);
  if (cluster.storage().empty()) return;
  json& claim = workloadOf("store", objects)["spec"]["volumeClaimTemplates"][0];
  claim["spec"]["resources"]["requests"]["storage"] = cluster.storage();
}

std::vector<std::string> componentNames() {
  std::vector<std::string> names;
  for (const auto& [path, content] : manifestSources()) {
    if (!path.starts_with(kFolder)) continue;
    const size_t from = sizeof(kFolder) - 1;
    names.emplace_back(path.substr(from, path.size() - from - (sizeof(kFileEnd) - 1)));
  }
  return names;
}

Result<KubeObjects> renderExperiment(const ExperimentObject& experiment, const TextMap& files,
                                     const TextMap& accounts, const RenderOptions& options) {
  ALLOT_TRY(checkComponents(options));
  const std::string& name = experiment.experiment.name();
  const v1::Cluster& cluster = experiment.cluster;
  KubeObjects objects;
  for (const char* const file : {"redis", "aggregator", "worker", "network"}) {
    addFile(std::string("base/") + file + kFileEnd, name, &objects);
  }
  if (options.exports) addFile("base/export.yaml", name, &objects);
  std::vector<std::string> added;
  for (const std::string& component : options.components) {
    if (isIn(added, component)) continue;
    addComponent(component, name, &objects);
    added.push_back(component);
  }
  applyCluster(cluster, &objects);
  fillIn(name, files, &objects);
  fillInAccounts(name, accounts, options.accounts, &objects);
  if (options.workers) workloadOf("worker", &objects)["spec"]["replicas"] = *options.workers;
  for (json& object : objects) {
    object["metadata"]["labels"]["app.kubernetes.io/version"] = ALLOT_VERSION;
  }
  placeImages(firstOf(options.registry, cluster.image().registry()),
              firstOf(options.tag, firstOf(cluster.image().tag(), ALLOT_VERSION)), &objects);
  placeIn(options.name_space, &objects);
  sortByKind(&objects);
  return objects;
}

}  // namespace allot
