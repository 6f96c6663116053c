#pragma once
// The status of an Experiment: fields for columns and programs, and conditions that say what is the
// matter. k8s/operator/crd.yaml has the fields, docs/cluster.md the reasons. Pure; any thread.
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace allot {

// What is seen of an experiment, all of it written by others and therefore unchecked.
struct Observed {
  nlohmann::json object;                       // with its status as it is
  std::vector<nlohmann::json> workloads = {};  // Deployments and StatefulSets with its label
  std::vector<nlohmann::json> pods = {};
  std::optional<nlohmann::json> told = {};        // /api/status of its aggregator, if that answers
  std::optional<nlohmann::json> export_job = {};  // looked for while it is being deleted
  uint64_t now_unix_ms = 0;
};

struct Judgement {
  std::string refused = {};  // why its file cannot be run; "": it can
  std::string trouble = {};  // why the cluster does not take an object of it; "": it does
  uint32_t workers = 0;      // that there are to be
  bool suspended = false;
  bool space_ends = false;  // its namespace takes nothing new: it is being deleted
};

// Whether its run has ended, as far as anybody has told: what whenFinished: release waits for.
bool isComplete(const Observed& observed);

// The whole status, ready for a merge patch: what is not known is null. Equal to the one that is
// there (withoutNulls) if nothing has changed: conditions keep their times.
nlohmann::json statusOf(const Observed& observed, const Judgement& judgement);
nlohmann::json withoutNulls(const nlohmann::json& value);

// Of a status; nullptr if it is not there.
const nlohmann::json* conditionOf(const nlohmann::json& status, const std::string& type);

}  // namespace allot
