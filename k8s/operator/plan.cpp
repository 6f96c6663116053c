#include "k8s/operator/plan.h"

#include "core/digest.h"
#include "k8s/client/api_error.h"
#include "k8s/operator/results.h"
#include "store/redis/acl.h"

namespace allot {
namespace {

using nlohmann::json;

constexpr char kPasswordEnd[] = ".password";

// Returns the object as an experiment file, without spec.cluster and what the server adds.
std::string fileOf(const json& object) {
  json spec = object.value("spec", json::object());
  spec.erase("cluster");
  const json file = {{"apiVersion", object.value("apiVersion", "")},
                     {"kind", object.value("kind", "")},
                     {"metadata", {{"name", object.at("metadata").at("name")}}},
                     {"spec", std::move(spec)}};
  return file.dump(2) + "\n";  // JSON is YAML
}

json ownerOf(const json& object) {
  const json& metadata = object.at("metadata");
  return {{"apiVersion", object.at("apiVersion")},
          {"kind", object.at("kind")},
          {"name", metadata.at("name")},
          {"uid", metadata.value("uid", "")},
          {"controller", true},
          {"blockOwnerDeletion", true}};
}

// Turns "x:1: ..." and "x:1:187: ..." of the reader of files into "x: ...": an object has no lines.
void withoutLine(const std::string& place, std::string* sentence) {
  if (!sentence->starts_with(place + ":1:")) return;
  const size_t end = sentence->find_first_not_of("0123456789:", place.size());
  if (end != std::string::npos) sentence->replace(place.size(), end - place.size(), ":");
}

bool names(const json& object, const char* key) {
  const json* at = &object;
  for (const char* const step : {"spec", "cluster", "image", key}) {
    const auto found = at->is_object() ? at->find(step) : at->end();
    if (found == at->end()) return false;
    at = &*found;
  }
  return true;
}

using kube::memberAt;
using kube::numberAt;
using kube::textAt;

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

// Returns true if the object is as it was applied, as far as that is observed: of workloads and the
// Job. The controller applies the others again now and then, by forgetting what it applied.
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

// Returns events for the changes that people should hear of.
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

Result<ExperimentObject> readExperimentObject(const json& object) {
  json file = object;
  file.erase("status");
  file["metadata"] = {{"name", object.at("metadata").at("name")},
                      {"namespace", object.at("metadata").value("namespace", "")}};
  const std::string name = object.at("metadata").at("name");
  auto read = parseExperimentObject(file.dump(), name);
  if (!read) withoutLine(name, &read.error().message);
  return read;
}

Result<KubeObjects> objectsOf(const json& object, const ExperimentObject& experiment,
                              const TextMap& accounts, const ObjectOptions& options) {
  RenderOptions render;
  render.name_space = object.at("metadata").value("namespace", "");
  render.workers = options.workers;
  render.exports = options.exports;
  if (!names(object, "registry")) render.registry = options.registry;
  if (!names(object, "tag")) render.tag = options.tag;
  const TextMap files = {{"experiment.yaml", fileOf(object)}};
  ALLOT_ASSIGN(KubeObjects objects, renderExperiment(experiment, files, accounts, render));
  for (json& made : objects) {
    made["metadata"]["ownerReferences"] = json::array({ownerOf(object)});
    made["metadata"]["labels"]["app.kubernetes.io/managed-by"] = "allot-operator";
  }
  return objects;
}

std::string accountsName(const std::string& experiment) { return experiment + "-accounts"; }

Result<TextMap> accountsOf(const json& secret) {
  std::map<std::string, std::string> passwords;
  const json data = secret.value("data", json::object());
  for (const AclRole& role : aclRoles()) {
    const auto found = data.find(role.name + kPasswordEnd);
    auto password = found != data.end() && found->is_string()
                        ? fromBase64(found->get<std::string>())
                        : std::nullopt;
    while (password && password->ends_with('\n')) password->pop_back();
    if (!password || password->empty()) {
      return fail(ErrorCode::kData, "Secret " + secret.at("metadata").value("name", "") +
                                        ": has no " + role.name + kPasswordEnd +
                                        "; remove it, and new accounts are made");
    }
    passwords[role.name] = *password;
  }
  return accountFiles(passwords);
}

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
  // The objects of a deleted experiment are deleted with it; applying would create them again.
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
  // An experiment that is refused is held only if it was held before.
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
