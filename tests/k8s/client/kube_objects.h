#pragma once
// What the tests of k8s/client write and read: ConfigMaps and Experiments.
#include <nlohmann/json.hpp>
#include <string>

#include "k8s/client/api.h"

namespace allot::kube::test {

using nlohmann::json;
using std::chrono::milliseconds;
using std::chrono::seconds;

inline const Resource kConfigMaps{"", "v1", "configmaps", "ConfigMap"};
inline const Resource kExperiments{"allot.dev", "v1alpha1", "experiments", "Experiment"};

inline json configMap(const std::string& name, const std::string& value,
                      const json& labels = json::object()) {
  return {{"apiVersion", "v1"},
          {"kind", "ConfigMap"},
          {"metadata", {{"name", name}, {"namespace", "ns"}, {"labels", labels}}},
          {"data", {{"value", value}}}};
}

inline json experiment(const std::string& name, int seed) {
  return {{"apiVersion", "allot.dev/v1alpha1"},
          {"kind", "Experiment"},
          {"metadata", {{"name", name}, {"namespace", "ns"}}},
          {"spec", {{"seed", seed}}}};
}

// A line of a watch.
inline std::string eventLine(const std::string& type, const json& object) {
  return json{{"type", type}, {"object", object}}.dump() + "\n";
}

inline json withVersion(json object, const std::string& version) {
  object["metadata"]["resourceVersion"] = version;
  return object;
}

inline std::string listText(const json& items, const std::string& version,
                            const std::string& continued = {}) {
  return json{{"kind", "ConfigMapList"},
              {"apiVersion", "v1"},
              {"metadata", {{"resourceVersion", version}, {"continue", continued}}},
              {"items", items}}
      .dump();
}

inline std::string statusText(int code, const std::string& reason, const std::string& message) {
  return json{{"kind", "Status"},   {"apiVersion", "v1"}, {"status", "Failure"},
              {"message", message}, {"reason", reason},   {"code", code}}
      .dump();
}

}  // namespace allot::kube::test
