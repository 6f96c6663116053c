#include "k8s/operator/experiment_status.h"

#include <algorithm>
#include <ctime>
#include <set>

#include "k8s/client/api_error.h"
#include "k8s/operator/results.h"

namespace allot {
namespace {

using kube::memberAt;
using kube::numberAt;
using kube::serverText;
using kube::textAt;
using nlohmann::json;

// Reasons for which a container cannot begin.
const std::set<std::string> kImageReasons = {"ImagePullBackOff", "ErrImagePull", "InvalidImageName",
                                             "ErrImageNeverPull"};
const std::set<std::string> kConfigReasons = {"CreateContainerConfigError", "CreateContainerError",
                                              "RunContainerError"};

constexpr int64_t kStaleSeconds = 30;

bool isOf(const json& pod, const std::string& component) {
  return textAt(pod, {"metadata", "labels", "app.kubernetes.io/component"}) == component;
}

// Returns true if the pod is being deleted, has succeeded or has failed, as an evicted pod.
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

// Returns "WorkerFailed" for component worker.
std::string failedReason(const std::string& component) {
  std::string reason = component + "Failed";
  reason[0] = static_cast<char>(reason[0] - 'a' + 'A');
  return reason;
}

// Returns how a container last ended, if that was with an error; "" once it has run for
// kStaleSeconds again.
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

constexpr char kWorker[] = "worker";
constexpr char kAggregator[] = "aggregator";
constexpr char kStore[] = "store";

std::string timeText(uint64_t unix_ms) {
  const auto seconds = static_cast<time_t>(unix_ms / 1000);
  tm utc{};
  gmtime_r(&seconds, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

json orNull(std::string text) { return text.empty() ? json() : json(serverText(text)); }

// Returns a member that is a string, or another one as JSON text; null if it is empty or absent.
json textOrNull(const json& object, std::initializer_list<const char*> path) {
  const json* const found = memberAt(object, path);
  if (found == nullptr) return nullptr;
  if (found->is_string()) return orNull(found->get<std::string>());
  return found->is_null() ? json() : json(serverText(found->dump()));
}

json timeOrNull(int64_t unix_ms) {
  return unix_ms > 0 ? json(timeText(static_cast<uint64_t>(unix_ms))) : json();
}

struct Verdict {
  bool holds = false;
  std::string reason;
  std::string message;
};

// Returns a condition. Its lastTransitionTime stays the old one while its status does.
json conditionFrom(const std::string& type, const Verdict& verdict, const Observed& observed) {
  const std::string status = verdict.holds ? "True" : "False";
  const json& object = observed.object;
  const json old_status = object.value("status", json::object());
  const json* const old = conditionOf(old_status, type);
  const bool same = old != nullptr && textAt(*old, {"status"}) == status;
  const std::string since = same ? textAt(*old, {"lastTransitionTime"}) : "";
  return {{"type", type},
          {"status", status},
          {"reason", verdict.reason},
          {"message", serverText(verdict.message)},
          {"lastTransitionTime", since.empty() ? timeText(observed.now_unix_ms) : since},
          {"observedGeneration", numberAt(object, {"metadata", "generation"})}};
}

Verdict accepted(const Observed& observed, const Judgement& judgement) {
  if (!judgement.refused.empty()) return {false, "Invalid", judgement.refused};
  const std::string edit = observed.told ? textAt(*observed.told, {"edit_refused"}) : "";
  if (!edit.empty()) return {false, "EditRefused", edit};
  return {true, "Valid", "the file can be run"};
}

Verdict storeReady(const Observed& observed, const Judgement& judgement) {
  if (!judgement.refused.empty() && observed.pods.empty()) {
    return {false, "Invalid", "nothing is started for a file that cannot be run"};
  }
  if (countPods(observed.pods, kStore).ready > 0) return {true, "Ready", "Redis answers"};
  const PodTrouble trouble = troubleOf(observed.pods, kStore, observed.now_unix_ms);
  if (!trouble.reason.empty()) return {false, trouble.reason, trouble.message};
  return {false, "Starting", "Redis is not ready yet"};
}

// Returns what keeps pods from running, of the store first, then of the aggregator: workers wait
// for both.
PodTrouble firstTrouble(const Observed& observed) {
  for (const char* const component : {kStore, kAggregator, kWorker}) {
    PodTrouble trouble = troubleOf(observed.pods, component, observed.now_unix_ms);
    if (!trouble.reason.empty()) return trouble;
  }
  return creationTroubleOf(observed.workloads);
}

Verdict progressing(const Observed& observed, const Judgement& judgement, const json& status) {
  if (isLeaving(observed.object)) {
    return {false, "Deleting", exportStep(observed, judgement, status).message};
  }
  if (!judgement.refused.empty()) return {false, "Invalid", judgement.refused};
  const std::string state = textAt(status, {"state"});
  if (state == "finished") return {false, "Finished", "the run has ended"};
  if (judgement.suspended) return {false, "Suspended", "spec.cluster.suspend is true"};
  if (state == "paused") return {false, "Paused", "it is paused: allot resume"};
  if (state == "stopped") return {false, "Stopped", "it was stopped: allot resume"};
  if (const PodTrouble trouble = firstTrouble(observed); !trouble.reason.empty()) {
    return {false, trouble.reason, trouble.message};
  }
  if (judgement.workers == 0) {
    return {false, "NoWorkers",
            "spec.cluster.workers is 0: kubectl scale experiment/" +
                textAt(observed.object, {"metadata", "name"}) + " --replicas=1"};
  }
  if (!observed.told) return {true, "Starting", "the aggregator does not answer yet"};
  const std::string why = textAt(*observed.told, {"not_progressing"});
  if (!why.empty()) return {false, "Waiting", why};
  return {true, state == "evaluating" ? "Evaluating" : "Running", "results come in"};
}

Verdict complete(const json& status) {
  if (textAt(status, {"state"}) != "finished") return {false, "Running", "the run goes on"};
  return {true, "Finished", "the run has ended"};
}

Verdict degraded(const Judgement& judgement) {
  if (!judgement.trouble.empty()) return {true, "NotApplied", judgement.trouble};
  return {false, "AsWanted", "the cluster has taken every object"};
}

// Returns "[0.6700, 0.7500]" for a list of these two strings; null for another form.
json intervalOrNull(const json& object, std::initializer_list<const char*> path) {
  const json* const found = memberAt(object, path);
  if (found == nullptr || !found->is_array()) return nullptr;
  std::string text;
  for (const json& end : *found) {
    if (!end.is_string() || text.size() > 100) return nullptr;
    text += (text.empty() ? "" : ", ") + end.get<std::string>();
  }
  return orNull("[" + text + "]");
}

json bestOf(const json& told) {
  const json* const best = memberAt(told, {"best"});
  if (best == nullptr || !best->is_object()) return nullptr;
  return {
      {"accuracy", textOrNull(*best, {"accuracy"})}, {"ci95", intervalOrNull(*best, {"ci95"})},
      {"interval", textOrNull(*best, {"interval"})}, {"schedule", textOrNull(*best, {"schedule"})},
      {"uniform", textOrNull(*best, {"uniform"})},   {"version", numberAt(*best, {"version"})}};
}

// Sets what the aggregator reports of the run.
void takeRun(const json& told, const json& before, uint64_t now_unix_ms, json* status) {
  const std::string run = textAt(told, {"run_id"});
  (*status)["runId"] = orNull(run);
  (*status)["state"] = textOrNull(told, {"state"});
  (*status)["reward"] = textOrNull(told, {"reward"});
  (*status)["lag"] = textOrNull(told, {"lag"});
  (*status)["workerHours"] = textOrNull(told, {"worker_hours"});
  (*status)["best"] = bestOf(told);
  const int64_t most = numberAt(told, {"max_updates"});
  const int64_t version = numberAt(told, {"version"});
  (*status)["progress"] =
      most > 0 ? json(std::to_string(version) + "/" + std::to_string(most)) : json();
  // Set when the first result counts, and kept while the run is the same.
  const bool counts = numberAt(told, {"episodes"}) > 0 || (*status)["best"].is_object();
  const std::string started =
      textAt(before, {"runId"}) == run ? textAt(before, {"startedAt"}) : std::string();
  (*status)["startedAt"] = !started.empty() ? json(started)
                           : counts         ? json(timeText(now_unix_ms))
                                            : json();
  (*status)["finishedAt"] = timeOrNull(numberAt(told, {"finished_unix_ms"}));
}

// Keeps what was reported last, while no aggregator answers.
void keepRun(const json& before, json* status) {
  for (const char* const field : {"runId", "state", "reward", "lag", "workerHours", "best",
                                  "progress", "startedAt", "finishedAt"}) {
    (*status)[field] = before.contains(field) ? before.at(field) : json();
  }
  if ((*status)["state"].is_null()) (*status)["state"] = "starting";
}

std::string pageOf(const json& object) {
  return "http://" + textAt(object, {"metadata", "name"}) + "-aggregator." +
         textAt(object, {"metadata", "namespace"}) + ":9464/";
}

json workersOf(const Observed& observed, const Judgement& judgement) {
  const PodCounts counts = countPods(observed.pods, kWorker);
  return {{"desired", judgement.workers},
          {"pods", counts.pods},
          {"ready", counts.ready},
          {"text", std::to_string(counts.ready) + "/" + std::to_string(judgement.workers)},
          {"selector", "allot.dev/experiment=" + textAt(observed.object, {"metadata", "name"}) +
                           ",app.kubernetes.io/component=worker"}};
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

const json* conditionOf(const json& status, const std::string& type) {
  const json* const all = memberAt(status, {"conditions"});
  if (all == nullptr || !all->is_array()) return nullptr;
  const auto found = std::find_if(all->begin(), all->end(), [&](const json& condition) {
    return textAt(condition, {"type"}) == type;
  });
  return found == all->end() ? nullptr : &*found;
}

bool isComplete(const Observed& observed) {
  if (observed.told) return textAt(*observed.told, {"state"}) == "finished";
  return textAt(observed.object, {"status", "state"}) == "finished";
}

json statusOf(const Observed& observed, const Judgement& judgement) {
  const json before = observed.object.value("status", json::object());
  json status = {{"observedGeneration", numberAt(observed.object, {"metadata", "generation"})},
                 {"page", judgement.refused.empty() ? json(pageOf(observed.object)) : json()},
                 {"workers", workersOf(observed, judgement)}};
  if (observed.told) {
    takeRun(*observed.told, before, observed.now_unix_ms, &status);
  } else {
    keepRun(before, &status);
  }
  std::vector<std::pair<const char*, Verdict>> verdicts = {
      {"Accepted", accepted(observed, judgement)},
      {"StoreReady", storeReady(observed, judgement)},
      {"Progressing", progressing(observed, judgement, status)},
      {"Complete", complete(status)},
      {"Degraded", degraded(judgement)}};
  if (!resultsClaim(observed.object).empty()) {
    const ExportStep step = exportStep(observed, judgement, status);
    verdicts.push_back({"Exported", {step.exported, step.reason, step.message}});
  }
  json conditions = json::array();
  for (const auto& [type, verdict] : verdicts) {
    conditions.push_back(conditionFrom(type, verdict, observed));
  }
  status["conditions"] = std::move(conditions);
  return status;
}

json withoutNulls(const json& value) {
  if (!value.is_object()) return value;
  json kept = json::object();
  for (const auto& [key, member] : value.items()) {
    if (!member.is_null()) kept[key] = withoutNulls(member);
  }
  return kept;
}

}  // namespace allot
