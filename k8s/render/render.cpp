#include "k8s/render/render.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "core/spec/spec_keys.h"
#include "core/spec/spec_yaml.h"
#include "k8s/render/cluster_settings.h"
#include "k8s/render/sources.h"
#include "k8s/render/yaml_text.h"

namespace allot {
namespace {

using nlohmann::json;

constexpr char kFolder[] = "components/";
constexpr char kRelease[] = "release";  // of every experiment
constexpr char kVersion[] = "app.kubernetes.io/version";
constexpr char kStamp[] = "allot.dev/accounts";

bool isIn(const std::vector<std::string>& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// Those of spec.cluster and those that are named, each once.
Result<std::vector<std::string>> chosenComponents(const ExperimentObject& experiment,
                                                  const RenderOptions& options) {
  const std::vector<std::string> known = componentNames();
  std::vector<std::string> chosen = componentsOf(experiment.cluster);
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
    if (!isIn(chosen, name)) chosen.push_back(name);
  }
  return chosen;
}

json* objectOf(const char* kind, const std::string& name, KubeObjects* objects) {
  for (json& object : *objects) {
    if (object.at("kind") == kind && object.at("metadata").at("name") == name) return &object;
  }
  return nullptr;
}

void fillIn(const TextMap& files, const TextMap& accounts, KubeObjects* objects) {
  (*objectOf("ConfigMap", "experiment", objects))["data"] = files;
  json& secret = *objectOf("Secret", "accounts", objects);
  for (const auto& [name, content] : accounts) secret["data"][name] = toBase64(content);
}

// Names and pods as the Secret is to be had.
void keepAccounts(AccountsSecret way, KubeObjects* objects) {
  json& secret = *objectOf("Secret", "accounts", objects);
  if (way == AccountsSecret::kDigest) return;
  withoutDigest(&secret);
  if (way == AccountsSecret::kOnce) secret["immutable"] = true;
  if (way != AccountsSecret::kStamped) return;
  const std::string stamp = contentDigest(secret);
  for (json& object : *objects) {
    const bool runs = object.at("kind") == "Deployment" || object.at("kind") == "StatefulSet";
    if (runs) (*podTemplateOf(&object))["metadata"]["annotations"][kStamp] = stamp;
  }
}

// Images by their bare names: those that the release names.
void placeImages(const std::string& registry, const std::string& tag, KubeObjects* objects) {
  const json release =
      yamlObjects(std::string(manifestSources().at("components/release/kustomization.yaml"))).at(0);
  std::set<std::string> ours;
  for (const json& image : release.at("images")) ours.insert(image.at("name"));
  for (json& object : *objects) {
    json* const pods = podTemplateOf(&object);
    if (pods == nullptr) continue;
    for (json& container : (*pods)["spec"]["containers"]) {
      const std::string name = container.at("image");
      if (ours.contains(name)) container["image"] = registry + "/" + name + ":" + tag;
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

// What others refer to comes first.
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

}  // namespace

std::vector<std::string> componentNames() {
  std::vector<std::string> names;
  for (const auto& [path, content] : manifestSources()) {
    if (!path.starts_with(kFolder) || !path.ends_with("/kustomization.yaml")) continue;
    const std::string_view rest = path.substr(sizeof(kFolder) - 1);
    const std::string name(rest.substr(0, rest.find('/')));
    if (name != kRelease) names.push_back(name);
  }
  return names;
}

Result<KubeObjects> renderExperiment(const ExperimentObject& experiment, const TextMap& files,
                                     const TextMap& accounts, const RenderOptions& options) {
  ALLOT_ASSIGN(const std::vector<std::string> components, chosenComponents(experiment, options));
  const std::string& name = experiment.experiment.name();
  const v1::Cluster& cluster = experiment.cluster;
  KubeObjects objects;
  accumulate("base", &objects);
  fillIn(files, accounts, &objects);
  for (const std::string& component : components) accumulate(kFolder + component, &objects);
  accumulate(std::string(kFolder) + kRelease, &objects);
  applyCluster(cluster, &objects);
  if (options.workers) workloadOf("worker", &objects)["spec"]["replicas"] = *options.workers;
  keepAccounts(options.accounts, &objects);
  addLabels({{"allot.dev/experiment", name}, {"app.kubernetes.io/instance", name}}, &objects);
  prefixNames(name + "-", &objects);
  if (options.accounts == AccountsSecret::kLeftOut) {
    std::erase_if(objects, [](const json& object) { return object.at("kind") == "Secret"; });
  }
  const std::string version = objects.at(0).at("metadata").at("labels").at(kVersion);
  const std::string tag = cluster.image().tag().empty() ? version : cluster.image().tag();
  placeImages(options.registry.empty() ? cluster.image().registry() : options.registry,
              options.tag.empty() ? tag : options.tag, &objects);
  placeIn(options.name_space, &objects);
  sortByKind(&objects);
  return objects;
}

}  // namespace allot
