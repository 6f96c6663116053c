#pragma once
// Why pods of an experiment do not run, as their status says it. Pure; any thread.
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace allot {

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

// Of "2026-01-31T12:00:00Z"; 0 if it is no time.
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

}  // namespace allot
