#pragma once
// The status of an Experiment: fields for columns and programs, and conditions with their reasons.
// k8s/operator/crd.yaml has the fields, docs/cluster.md the reasons. Pure; any thread.
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace allot {

// Why pods of an experiment do not run, by their status.
struct PodTrouble {
  std::string reason;   // "WorkerFailed", "ImagePullBackOff", "Unschedulable"; "": there is none
  std::string message;  // one sentence, cut and free of control characters
};

// Returns the gravest trouble of a component's pods (label app.kubernetes.io/component: worker,
// aggregator, store, export): a container that ended with an error, then one that cannot begin
// (image, configuration), then a pod without a node, then a pod that a queue holds back
// (SchedulingGated). Pods that are over or being deleted are skipped. An error no longer counts
// once the container is ready, or has run for 30 s.
PodTrouble troubleOf(const std::vector<nlohmann::json>& pods, const std::string& component,
                     uint64_t now_unix_ms);

// Returns the Unix time in s of "2026-01-31T12:00:00Z"; 0 if `time` does not begin like that.
int64_t unixSeconds(const std::string& time);

// Returns why pods cannot be created: a quota, or an admission that refuses them. Only a Deployment
// has a condition for it.
PodTrouble creationTroubleOf(const std::vector<nlohmann::json>& workloads);

// Pods of a component that have not succeeded or failed. Those being deleted count, but not as
// ready.
struct PodCounts {
  int64_t pods = 0;
  int64_t ready = 0;
};
PodCounts countPods(const std::vector<nlohmann::json>& pods, const std::string& component);

// What is seen of an experiment. Others write these objects, which are unchecked.
struct Observed {
  nlohmann::json object;                       // the Experiment, with its present status
  std::vector<nlohmann::json> workloads = {};  // Deployments and StatefulSets of the experiment
  std::vector<nlohmann::json> pods = {};
  std::optional<nlohmann::json> told = {};        // /api/status of its aggregator, if that answers
  std::optional<nlohmann::json> export_job = {};  // read while the experiment is being deleted
  uint64_t now_unix_ms = 0;
};

struct Judgement {
  std::string refused = {};  // why its file cannot be run; "": it can
  std::string trouble = {};  // why an object of it could not be made or applied; "": none
  uint32_t workers = 0;      // wanted
  bool suspended = false;
  bool space_ends = false;  // its namespace takes nothing new: it is being deleted
};

// Returns true if the run is finished: by `told` or, without it, by the status in `object`.
bool isComplete(const Observed& observed);

// Returns the whole status, for a merge patch: unknown values are null. Without nulls it equals the
// present status if nothing has changed, since conditions keep their times.
nlohmann::json statusOf(const Observed& observed, const Judgement& judgement);
nlohmann::json withoutNulls(const nlohmann::json& value);

// Returns the condition of this type in a status; nullptr if there is none.
const nlohmann::json* conditionOf(const nlohmann::json& status, const std::string& type);

}  // namespace allot
