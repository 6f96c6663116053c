#include "k8s/operator/results.h"

#include <algorithm>

#include "k8s/client/api_error.h"

namespace allot {
namespace {

using kube::memberAt;
using kube::numberAt;
using kube::textAt;
using nlohmann::json;

constexpr char kFinalizer[] = "allot.dev/results";
constexpr char kForeground[] = "foregroundDeletion";  // the garbage collector's
constexpr char kExport[] = "export";                  // component of the Job's pods
// Workers push what they hold within their grace of two minutes; a pod of a lost node may stay.
constexpr int64_t kWorkersSeconds = 300;
constexpr int64_t kLongestSeconds = 24 * 3600;

std::vector<std::string> finalizers(const json& object) {
  std::vector<std::string> names;
  const json* const found = memberAt(object, {"metadata", "finalizers"});
  if (found == nullptr || !found->is_array()) return names;
  for (const json& name : *found) {
    if (name.is_string()) names.push_back(name.get<std::string>());
  }
  return names;
}

bool has(const std::vector<std::string>& names, const char* name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool hasPods(const Observed& observed, const std::string& component) {
  return std::any_of(observed.pods.begin(), observed.pods.end(), [&](const json& pod) {
    return textAt(pod, {"metadata", "labels", "app.kubernetes.io/component"}) == component;
  });
}

// Returns true if no result counts yet: the aggregator answers so, or there is no store.
bool neverBegan(const Observed& observed, const json& status) {
  if (!textAt(status, {"startedAt"}).empty()) return false;
  return observed.told.has_value() || !hasPods(observed, "store");
}

// left: what becomes of the volume of the store, before its claim's name.
ExportStep letGo(const Observed& observed, std::string reason, const std::string& why,
                 const std::string& left = "what is left of the run is its volume") {
  const std::string name = textAt(observed.object, {"metadata", "name"});
  return {
      .next = ExportStep::Next::kLetGo,
      .lost = true,
      .reason = std::move(reason),
      .message = why + "; nothing is exported, and " + left + ", claim data-" + name + "-redis-0"};
}

// Returns the step in which the Job runs, with its trouble if it has one.
ExportStep jobStep(const Observed& observed, const std::string& claim) {
  const std::string job = exportJobName(textAt(observed.object, {"metadata", "name"}));
  ExportStep step{.next = ExportStep::Next::kRunJob,
                  .reason = "Exporting",
                  .message = "Job " + job + " writes the run to claim " + claim};
  const PodTrouble trouble = troubleOf(observed.pods, kExport, observed.now_unix_ms);
  if (trouble.reason.empty()) return step;
  step.reason = trouble.reason;
  step.message = "Job " + job + ", which is to write the run to claim " + claim +
                 " and goes on trying: " + trouble.message +
                 "; to delete the experiment without it take spec.cluster.results away";
  return step;
}

}  // namespace

std::string resultsClaim(const json& object) {
  return textAt(object, {"spec", "cluster", "results", "claim"});
}

bool isLeaving(const json& object) {
  return memberAt(object, {"metadata", "deletionTimestamp"}) != nullptr;
}

bool isHeld(const json& object) { return has(finalizers(object), kFinalizer); }

json finalizersOf(const json& object, bool held) {
  std::vector<std::string> names = finalizers(object);
  std::erase(names, kFinalizer);
  if (held) names.emplace_back(kFinalizer);
  return names;
}

std::string exportJobName(const std::string& experiment) { return experiment + "-export"; }

ExportStep exportStep(const Observed& observed, const Judgement& judgement, const json& status) {
  const json& object = observed.object;
  const std::string claim = resultsClaim(object);
  if (!isLeaving(object)) {
    return {
        .reason = "NotDeleted",
        .message = "the run is exported to claim " + claim + " before the experiment is deleted"};
  }
  if (claim.empty() || neverBegan(observed, status)) {
    return {.next = ExportStep::Next::kLetGo, .reason = "NothingToExport", .message = "nothing"};
  }
  const std::string name = textAt(object, {"metadata", "name"});
  if (observed.export_job && numberAt(*observed.export_job, {"status", "succeeded"}) > 0) {
    return {.next = ExportStep::Next::kLetGo,
            .exported = true,
            .reason = "Exported",
            .message = "claim " + claim + ", folder " + name + "/" + textAt(status, {"runId"})};
  }
  if (judgement.space_ends) {
    return letGo(observed, "NamespaceEnds",
                 "the namespace is being deleted, and no Job can be made",
                 "with the namespace goes the run's volume");
  }
  if (has(finalizers(object), kForeground)) {
    return letGo(observed, "ForegroundDeletion",
                 "deleting with --cascade=foreground takes Redis away before the experiment");
  }
  const int64_t since = unixSeconds(textAt(object, {"metadata", "deletionTimestamp"}));
  const int64_t passed = static_cast<int64_t>(observed.now_unix_ms / 1000) - since;
  if (passed >= kLongestSeconds) {
    return letGo(observed, "GivenUp", "it could not be exported within a day");
  }
  if (!judgement.refused.empty() && observed.workloads.empty() && observed.pods.empty()) {
    return letGo(observed, "StoreGone",
                 "its Redis is gone, and none is made of a file that cannot be run");
  }
  if (!judgement.refused.empty()) {
    return {.next = ExportStep::Next::kWait,
            .reason = "Invalid",
            .message =
                "no Job can be made of a file that cannot be run; correct it, or take "
                "spec.cluster.results away: " +
                judgement.refused};
  }
  if (const int64_t workers = countPods(observed.pods, "worker").pods;
      workers > 0 && passed < kWorkersSeconds) {
    return {.next = ExportStep::Next::kWait,
            .reason = "WaitsForWorkers",
            .message = std::to_string(workers) +
                       (workers == 1 ? " worker pushes" : " workers push") +
                       " what is in hand before the run is exported"};
  }
  return jobStep(observed, claim);
}

}  // namespace allot
