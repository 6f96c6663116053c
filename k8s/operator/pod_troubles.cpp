#include "k8s/operator/pod_troubles.h"

#include <ctime>
#include <set>

#include "k8s/client/api_error.h"

namespace allot {
namespace {

using kube::memberAt;
using kube::numberAt;
using kube::serverText;
using kube::textAt;
using nlohmann::json;

// A container that cannot begin.
const std::set<std::string> kImageReasons = {"ImagePullBackOff", "ErrImagePull", "InvalidImageName",
                                             "ErrImageNeverPull"};
const std::set<std::string> kConfigReasons = {"CreateContainerConfigError", "CreateContainerError",
                                              "RunContainerError"};

constexpr int64_t kStaleSeconds = 30;

bool isOf(const json& pod, const std::string& component) {
  return textAt(pod, {"metadata", "labels", "app.kubernetes.io/component"}) == component;
}

// Returns true if the pod ends, or if only its record is left, as of an evicted pod.
bool isOver(const json& pod) {
  const std::string phase = textAt(pod, {"status", "phase"});
  return memberAt(pod, {"metadata", "deletionTimestamp"}) != nullptr || phase == "Succeeded" ||
         phase == "Failed";
}

const json& listAt(const json& object, std::initializer_list<const char*> path) {
  static const json none = json::array();
  const json* const found = memberAt(object, path);
  return found != nullptr && found->is_array() ? *found : none;
}

// "WorkerFailed" of component worker.
std::string failedReason(const std::string& component) {
  std::string reason = component + "Failed";
  reason[0] = static_cast<char>(reason[0] - 'a' + 'A');
  return reason;
}

// How a container ended that has to be mended by a person; it is started again and again meanwhile.
std::string endedWith(const json& container, uint64_t now_unix_ms) {
  const int64_t running = unixSeconds(textAt(container, {"state", "running", "startedAt"}));
  const int64_t now = static_cast<int64_t>(now_unix_ms / 1000);
  for (const char* const when : {"state", "lastState"}) {
    if (running > 0 && now - running >= kStaleSeconds) return "";
    const int64_t code = numberAt(container, {when, "terminated", "exitCode"});
    if (code == 0) continue;
    const std::string message = textAt(container, {when, "terminated", "message"});
    if (!message.empty()) return message;
    return "it ended with exit code " + std::to_string(code) + " (" +
           textAt(container, {when, "terminated", "reason"}) + ")";
  }
  return "";
}

// Ranks: 4 ended, 3 cannot begin, 2 has no node, 1 waits its turn.
struct Found {
  int rank = 0;
  PodTrouble trouble;
};

void take(int rank, std::string reason, const std::string& message, Found* found) {
  if (rank > found->rank) *found = {rank, {std::move(reason), serverText(message)}};
}

void lookAtContainers(const json& pod, const std::string& component, uint64_t now_unix_ms,
                      Found* found) {
  for (const json& container : listAt(pod, {"status", "containerStatuses"})) {
    const std::string waiting = textAt(container, {"state", "waiting", "reason"});
    const std::string why = textAt(container, {"state", "waiting", "message"});
    if (kImageReasons.contains(waiting)) {
      take(3, "ImagePullBackOff", why.empty() ? "image " + textAt(container, {"image"}) : why,
           found);
    } else if (kConfigReasons.contains(waiting)) {
      take(3, waiting, why, found);
    }
    const json* const ready = memberAt(container, {"ready"});
    if (ready != nullptr && ready->is_boolean() && ready->get<bool>()) continue;
    if (const std::string ended = endedWith(container, now_unix_ms); !ended.empty()) {
      take(4, failedReason(component), ended, found);
    }
  }
}

}  // namespace

int64_t unixSeconds(const std::string& time) {
  tm utc{};
  const char* const end = strptime(time.c_str(), "%Y-%m-%dT%H:%M:%SZ", &utc);
  return end == nullptr ? 0 : static_cast<int64_t>(timegm(&utc));
}

PodTrouble troubleOf(const std::vector<json>& pods, const std::string& component,
                     uint64_t now_unix_ms) {
  Found found;
  for (const json& pod : pods) {
    if (!isOf(pod, component) || isOver(pod)) continue;
    lookAtContainers(pod, component, now_unix_ms, &found);
    for (const json& condition : listAt(pod, {"status", "conditions"})) {
      if (textAt(condition, {"type"}) != "PodScheduled") continue;
      if (textAt(condition, {"status"}) != "False") continue;
      if (textAt(condition, {"reason"}) == "SchedulingGated") {
        take(1, "Queued", "a queue of pods, such as Kueue, has not let them start yet", &found);
      } else {
        take(2, "Unschedulable", textAt(condition, {"message"}), &found);
      }
    }
  }
  return found.trouble;
}

PodTrouble creationTroubleOf(const std::vector<json>& workloads) {
  for (const json& workload : workloads) {
    for (const json& condition : listAt(workload, {"status", "conditions"})) {
      if (textAt(condition, {"type"}) != "ReplicaFailure") continue;
      if (textAt(condition, {"status"}) != "True") continue;
      return {"FailedCreate", serverText(textAt(condition, {"message"}))};
    }
  }
  return {};
}

PodCounts countPods(const std::vector<json>& pods, const std::string& component) {
  PodCounts counts;
  for (const json& pod : pods) {
    const std::string phase = textAt(pod, {"status", "phase"});
    if (!isOf(pod, component) || phase == "Succeeded" || phase == "Failed") continue;
    ++counts.pods;
    for (const json& condition : listAt(pod, {"status", "conditions"})) {
      if (textAt(condition, {"type"}) != "Ready") continue;
      if (textAt(condition, {"status"}) == "True" && !isOver(pod)) ++counts.ready;
    }
  }
  return counts;
}

}  // namespace allot
