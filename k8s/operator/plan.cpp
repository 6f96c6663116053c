#include "k8s/operator/plan.h"

#include "core/digest.h"
#include "k8s/client/api_error.h"
#include "k8s/operator/results.h"

namespace allot {
namespace {

using kube::memberAt;
using kube::numberAt;
using kube::textAt;
using nlohmann::json;

constexpr char kRelease[] = "release";
constexpr char kJob[] = "Job";

const json* liveOf(const Observed& observed, const MadeObject& object) {
  for (const json& live : observed.workloads) {
    if (textAt(live, {"kind"}) == object.kind &&
        textAt(live, {"metadata", "name"}) == object.name) {
      return &live;
    }
  }
  return nullptr;
}

// Of workloads it is seen whether they are still what was applied; the rest is applied again now
// and then by the controller, which then forgets what it applied.
bool isApplied(const Observed& observed, const MadeObject& object, const AppliedObjects& applied) {
  const auto before = applied.find(object.key);
  if (before == applied.end() || before->second.digest != object.digest) return false;
  if (object.kind == kJob) return observed.export_job.has_value();
  if (object.kind != "Deployment" && object.kind != "StatefulSet") return true;
  const json* const live = liveOf(observed, object);
  return live != nullptr &&
         numberAt(*live, {"metadata", "generation"}) == before->second.generation;
}

std::string reasonOf(const json& status, const char* type) {
  const json* const condition = conditionOf(status, type);
  return condition == nullptr ? "" : textAt(*condition, {"reason"});
}

std::string messageOf(const json& status, const char* type) {
  const json* const condition = conditionOf(status, type);
  return condition == nullptr ? "" : textAt(*condition, {"message"});
}

// An event for what has changed for people, and no other.
std::vector<Notice> eventsOf(const json& before, const json& after) {
  std::vector<Notice> events;
  for (const char* const type : {"Accepted", "Progressing", "Degraded", "Exported"}) {
    const std::string reason = reasonOf(after, type);
    const std::string note = messageOf(after, type);
    if (reason == reasonOf(before, type) && note == messageOf(before, type)) continue;
    const bool bad = reason == "Invalid" || reason == "EditRefused" || reason == "NotApplied" ||
                     reason == "ImagePullBackOff" || reason == "Unschedulable" ||
                     reason == "FailedCreate" || reason.ends_with("Failed") ||
                     reason.ends_with("Error");
    const bool twice = std::string(type) == "Progressing" && reason == "Invalid";
    if (bad && !twice) events.push_back({true, reason, note});
  }
  const std::string run = textAt(after, {"runId"});
  if (!run.empty() && run != textAt(before, {"runId"})) {
    events.push_back({false, "Started", "run " + run});
  }
  const auto desired = [](const json& status) { return numberAt(status, {"workers", "desired"}); };
  if (memberAt(before, {"workers"}) != nullptr && desired(before) != desired(after)) {
    events.push_back(
        {false, "Scaled",
         std::to_string(desired(before)) + " to " + std::to_string(desired(after)) + " workers"});
  }
  const auto evaluated = [](const json& status) {
    return textAt(status, {"best", "accuracy"}) + " " +
           std::to_string(numberAt(status, {"best", "version"}));
  };
  if (!textAt(after, {"best", "accuracy"}).empty() && evaluated(after) != evaluated(before)) {
    const std::string uniform = textAt(after, {"best", "uniform"});
    events.push_back({false, "Evaluated",
                      "update " + std::to_string(numberAt(after, {"best", "version"})) +
                          ": learned " + textAt(after, {"best", "accuracy"}) + " " +
                          textAt(after, {"best", "ci95"}) +
                          (uniform.empty() ? "" : ", uniform " + uniform)});
  }
  if (textAt(after, {"state"}) == "finished" && textAt(before, {"state"}) != "finished") {
    events.push_back({false, "Completed", "the run has ended"});
  }
  return events;
}

}  // namespace

std::string objectKey(const json& object) {
  return textAt(object, {"apiVersion"}) + "/" + textAt(object, {"kind"}) + "/" +
         textAt(object, {"metadata", "name"});
}

std::string objectDigest(const json& object) { return sha256Hex(object.dump()); }

MadeObjects packed(const KubeObjects& objects) {
  MadeObjects made;
  for (const json& object : objects) {
    made.push_back({.kind = textAt(object, {"kind"}),
                    .name = textAt(object, {"metadata", "name"}),
                    .key = objectKey(object),
                    .digest = objectDigest(object),
                    .text = object.dump()});
  }
  return made;
}

uint32_t workersOf(const v1::Cluster& cluster, const Observed& observed) {
  if (cluster.suspend() || isLeaving(observed.object)) return 0;
  if (cluster.when_finished() == kRelease && isComplete(observed)) return 0;
  return cluster.has_workers() ? cluster.workers() : 1;
}

Plan plan(const Observed& observed, const Judgement& judgement, const MadeObjects& made,
          const AppliedObjects& applied) {
  Plan plan;
  const json& experiment = observed.object;
  const bool held = isHeld(experiment);
  // What is being deleted takes what it owns along; to apply it would begin it anew.
  if (isLeaving(experiment) && !held) return plan;
  const json before = experiment.value("status", json::object());
  json after = statusOf(observed, judgement);
  const ExportStep step = exportStep(observed, judgement, after);
  if (step.next == ExportStep::Next::kLetGo) {
    plan.finalizers = finalizersOf(experiment, false);
    if (step.exported) plan.events.push_back({false, step.reason, step.message});
    if (step.lost) plan.events.push_back({true, "NotExported", step.message});
    return plan;
  }
  // One that cannot be run has nothing to export, unless it could once.
  const bool hold = !resultsClaim(experiment).empty() && (held || judgement.refused.empty());
  if (hold != held) plan.finalizers = finalizersOf(experiment, hold);
  for (const MadeObject& object : made) {
    const bool due = object.kind != kJob || step.next == ExportStep::Next::kRunJob;
    if (due && !isApplied(observed, object, applied)) {
      plan.apply.push_back(json::parse(object.text));
    }
  }
  const json plain = withoutNulls(after);
  if (plain == withoutNulls(before)) return plan;
  plan.events = eventsOf(before, plain);
  plan.status = std::move(after);
  return plan;
}

}  // namespace allot
