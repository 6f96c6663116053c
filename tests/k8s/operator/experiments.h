#pragma once
// Experiments as an API server has them, and what belongs to them.
#include <nlohmann/json.hpp>
#include <string>

namespace allot::test {

inline nlohmann::json experiment(const std::string& name, const nlohmann::json& cluster = {}) {
  nlohmann::json object = nlohmann::json::parse(R"({
    "apiVersion": "allot.dev/v1alpha1", "kind": "Experiment",
    "metadata": {"namespace": "ns", "uid": "u-1", "generation": 1, "resourceVersion": "7",
                 "managedFields": [{"manager": "kubectl"}]},
    "spec": {"model": {"path": "experiments/models/recall-7m"},
             "task": {"suite": "recall", "tasks": ["niah"], "contextTokens": 256,
                      "trainQuestions": 32, "heldOutQuestions": 32},
             "policy": {"totalBudget": 8},
             "update": {"maxUpdates": 150, "learningRate": 0.05}}})");
  object["metadata"]["name"] = name;
  if (!cluster.is_null()) object["spec"]["cluster"] = cluster;
  return object;
}

inline nlohmann::json pod(const std::string& experiment, const std::string& component, bool ready,
                          int number = 0) {
  return {{"apiVersion", "v1"},
          {"kind", "Pod"},
          {"metadata",
           {{"name", experiment + "-" + component + "-" + std::to_string(number)},
            {"namespace", "ns"},
            {"labels",
             {{"allot.dev/experiment", experiment}, {"app.kubernetes.io/component", component}}}}},
          {"status",
           {{"phase", "Running"},
            {"conditions", {{{"type", "Ready"}, {"status", ready ? "True" : "False"}}}},
            {"containerStatuses", {{{"name", component}, {"ready", ready}}}}}}};
}

// As /api/status has it.
inline nlohmann::json told(const std::string& state, uint64_t version = 0) {
  return {{"apiVersion", "cli.allot.dev/v1"},
          {"kind", "Status"},
          {"run_id", "01RUN"},
          {"state", state},
          {"not_progressing", ""},
          {"version", version},
          {"max_updates", 150},
          {"episodes", version * 10},
          {"reward", version > 0 ? nlohmann::json("0.4100") : nlohmann::json()},
          {"lag", "0.10"},
          {"worker_hours", "0.010"},
          {"best", nullptr},
          {"edit_refused", ""},
          {"finished_unix_ms",
           state == "finished" ? nlohmann::json(1'700'000'000'000) : nlohmann::json()}};
}

}  // namespace allot::test
