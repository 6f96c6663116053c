#pragma once
// The status of an Experiment: fields for columns and programs, and conditions that say what is the
// matter. k8s/operator/crd.yaml has the fields, docs/cluster.md the reasons. Pure; any thread.
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace allot {

// Why pods of an experiment do not run, as their status says it. Pure; any thread.
struct PodTrouble {
  std::string reason;   // "WorkerFailed", "ImagePullBackOff", "Unschedulable"; "": there is none
  std::string message;  // one sentence, cut and free of control characters
};

// The gravest of a component's pods (label app.kubernetes.io/component: worker, aggregator, store,
// export): one that ended because of its input, then images that cannot be had, then pods without a
// node, then those that are queued. Pods of which only the record is left are skipped.
// What a container that has been running again for half a minute ended with before is no news.
PodTrouble troubleOf(const std::vector<nlohmann::json>& pods, const std::string& component,
                     uint64_t now_unix_ms);

// Returns the Unix time in s of "2026-01-31T12:00:00Z"; 0 if `time` has another form.
int64_t unixSeconds(const std::string& time);

// Why there are no pods where there are to be some: a quota, or an admission that refuses them. A
// Deployment says so; of a StatefulSet only events do.
PodTrouble creationTroubleOf(const std::vector<nlohmann::json>& workloads);

// Pods of a component, and those of them that are ready.
struct PodCounts {
  int64_t pods = 0;
  int64_t ready = 0;
};
PodCounts countPods(const std::vector<nlohmann::json>& pods, const std::string& component);

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

// Returns true if the run is finished, by its aggregator or else by the last status.
bool isComplete(const Observed& observed);

// The whole status, ready for a merge patch: what is not known is null. Equal to the one that is
// there (withoutNulls) if nothing has changed: conditions keep their times.
nlohmann::json statusOf(const Observed& observed, const Judgement& judgement);
nlohmann::json withoutNulls(const nlohmann::json& value);

// Of a status; nullptr if it is not there.
const nlohmann::json* conditionOf(const nlohmann::json& status, const std::string& type);

}  // namespace allot
