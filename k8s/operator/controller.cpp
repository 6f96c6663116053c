#include "k8s/operator/controller.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "k8s/operator/experiment_status.h"
#include "k8s/operator/results.h"
#include "store/redis/acl.h"

namespace allot {
namespace {

using kube::Api;
using kube::ObjectName;
using kube::Resource;
using kube::TimePoint;
using nlohmann::json;
using std::chrono::milliseconds;

const Resource kExperiments{kExperimentGroup, kExperimentVersion, "experiments", "Experiment"};
const Resource kDeployments{"apps", "v1", "deployments", "Deployment"};
const Resource kStatefulSets{"apps", "v1", "statefulsets", "StatefulSet"};
const Resource kPods{"", "v1", "pods", "Pod"};
const Resource kSecrets{"", "v1", "secrets", "Secret"};
const Resource kJobs{"batch", "v1", "jobs", "Job"};

constexpr char kManager[] = "allot-operator";
constexpr char kLabel[] = "allot.dev/experiment";
constexpr int kPage = 100;  // pods are large, and one page at a time is in memory
constexpr milliseconds kLongestTurn{5'000};
constexpr milliseconds kFirstPause{1'000};
constexpr milliseconds kLongestPause{300'000};

// Returns the resource of an object; nothing for a kind that an operator does not apply.
std::optional<Resource> resourceOf(const json& object) {
  static const std::map<std::string, std::string> plurals = {
      {"Deployment", "deployments"},
      {"Job", "jobs"},
      {"StatefulSet", "statefulsets"},
      {"Service", "services"},
      {"ServiceAccount", "serviceaccounts"},
      {"ConfigMap", "configmaps"},
      {"Secret", "secrets"},
      {"NetworkPolicy", "networkpolicies"},
      {"PersistentVolumeClaim", "persistentvolumeclaims"},
      {"PodDisruptionBudget", "poddisruptionbudgets"}};
  const std::string kind = object.at("kind"), version = object.at("apiVersion");
  const auto plural = plurals.find(kind);
  if (plural == plurals.end()) return std::nullopt;
  const size_t slash = version.find('/');
  if (slash == std::string::npos) return Resource{"", version, plural->second, kind};
  return Resource{version.substr(0, slash), version.substr(slash + 1), plural->second, kind};
}

std::string experimentOf(const json& object) {
  return kube::textAt(object, {"metadata", "namespace"}) + "/" +
         kube::textAt(object, {"metadata", "labels", kLabel});
}

// Returns a text that changes with the spec (generation), and with the object (uid) of that name.
std::string versionOf(const json& object) {
  return kube::textAt(object, {"metadata", "uid"}) + " " +
         std::to_string(kube::numberAt(object, {"metadata", "generation"})) + " ";
}

size_t hashOf(const std::string& text) { return std::hash<std::string>()(text); }

// Returns true if the object was refused because its namespace is being deleted.
bool saysThatTheNamespaceEnds(const kube::ApiError& error) {
  return error.code == 403 && error.message.find("being terminated") != std::string::npos;
}

json only(const json& object, std::initializer_list<const char*> names) {
  json kept = json::object();
  for (const char* const name : names) {
    if (const json* const member = kube::memberAt(object, {name})) kept[name] = *member;
  }
  return kept;
}

json onlyOfEach(const json& list, std::initializer_list<const char*> names) {
  json kept = json::array();
  if (!list.is_array()) return kept;
  for (const json& item : list) kept.push_back(only(item, names));
  return kept;
}

// Returns the members of a pod or a workload that are read. The others of hundreds of pods would
// take memory.
json slim(const json& object) {
  json kept = only(object, {"apiVersion", "kind"});
  kept["metadata"] = only(object.at("metadata"),
                          {"name", "namespace", "labels", "generation", "deletionTimestamp"});
  const json status = object.value("status", json::object());
  kept["status"] = only(status, {"phase"});
  kept["status"]["conditions"] =
      onlyOfEach(status.value("conditions", json()), {"type", "status", "reason", "message"});
  kept["status"]["containerStatuses"] = onlyOfEach(status.value("containerStatuses", json()),
                                                   {"ready", "image", "state", "lastState"});
  return kept;
}

}  // namespace

Controller::Controller(const kube::ServerAccess& access, ControllerOptions options)
    : options_(std::move(options)),
      api_(access, {}, options_.clock),
      events_(api_, {.controller = "allot.dev/operator", .instance = options_.instance},
              options_.clock) {
  std::vector<std::string> spaces = options_.namespaces;
  if (spaces.empty()) spaces.emplace_back();
  for (const std::string& space : spaces) {
    reflectors_.push_back(std::make_unique<kube::Reflector>(
        access, kube::ReflectorOptions{.resource = kExperiments, .space = space},
        [this](const std::string& key) { enqueue(key); }));
    reflectors_.back()->start();
  }
}

// Their threads end first: they put keys into the queue until then.
Controller::~Controller() { reflectors_.clear(); }

void Controller::enqueue(const std::string& key) {
  {
    const std::lock_guard lock(mutex_);
    queue_.insert(key);
  }
  wake_.notify_all();
}

std::set<std::string> Controller::takeQueue(milliseconds wait) {
  std::unique_lock lock(mutex_);
  wake_.wait_for(lock, wait, [&] { return !queue_.empty(); });
  return std::exchange(queue_, {});
}

kube::Object Controller::find(const std::string& key) const {
  for (const auto& reflector : reflectors_) {
    if (auto object = reflector->objects().find(key)) return object;
  }
  return nullptr;
}

std::string Controller::problem() const {
  for (const auto& reflector : reflectors_) {
    if (std::string why = reflector->problem(); !why.empty()) return why;
  }
  return "";
}

void Controller::await(const std::string& key) {
  if (in_backlog_.insert(key).second) backlog_.push_back(key);
}

void Controller::turn(milliseconds wait) {
  for (const std::string& key : takeQueue(backlog_.empty() ? wait : milliseconds(0))) await(key);
  const TimePoint now = options_.clock();
  if (!listed_at_ || now - *listed_at_ >= options_.look_every) {
    listed_at_ = now;
    list();
    counts_.experiments = 0;
    for (const auto& reflector : reflectors_) {
      for (const kube::Object& object : reflector->objects().all()) {
        ++counts_.experiments;
        await(kube::keyOf(*object));
      }
    }
  }
  do {
    if (backlog_.empty()) break;
    const std::string key = std::move(backlog_.front());
    backlog_.pop_front();
    in_backlog_.erase(key);
    reconcile(key);
  } while (options_.clock() - now < kLongestTurn);
  events_.send();
}

// Lists workloads and pods. Replaces both or neither, since they must fit together.
void Controller::list() {
  std::map<std::string, std::vector<json>> workloads, pods;
  std::vector<std::string> spaces = options_.namespaces;
  if (spaces.empty()) spaces.emplace_back();
  for (const std::string& space : spaces) {
    for (const Resource* const resource : {&kDeployments, &kStatefulSets, &kPods}) {
      auto listed =
          api_.list(*resource, space, {.label_selector = kLabel, .page = kPage, .keep = slim});
      if (!listed) {
        spdlog::warn("{}", listed.error().message);
        ++counts_.failures;
        return;
      }
      auto& into = resource == &kPods ? pods : workloads;
      for (json& item : listed->items) {
        const std::string key = experimentOf(item);
        into[key].push_back(std::move(item));
      }
    }
  }
  workloads_ = std::move(workloads);
  pods_ = std::move(pods);
  listed_ = true;
}

Observed Controller::observe(const kube::Object& object) {
  const std::string key = kube::keyOf(*object);
  Observed observed{.object = *object,
                    .workloads = workloads_[key],
                    .pods = pods_[key],
                    .now_unix_ms = options_.unix_ms()};
  const ObjectName name = kube::nameOf(*object);
  if (countPods(observed.pods, "aggregator").ready > 0) {
    observed.told = options_.ask(name.space, name.name);
  }
  if (isLeaving(*object) && isHeld(*object)) observed.export_job = exportJob(*object);
  return observed;
}

// Returns the export Job that this object owns. A Job of an earlier experiment of the same name
// does not count.
std::optional<json> Controller::exportJob(const json& object) {
  const ObjectName name = kube::nameOf(object);
  auto job = api_.get(kJobs, {name.space, exportJobName(name.name)});
  if (!job) return std::nullopt;
  const json* const owners = kube::memberAt(*job, {"metadata", "ownerReferences"});
  for (const json& owner : owners != nullptr && owners->is_array() ? *owners : json::array()) {
    if (kube::textAt(owner, {"uid"}) == kube::textAt(object, {"metadata", "uid"})) return *job;
  }
  return std::nullopt;
}

void Controller::reconcile(const std::string& key) {
  const kube::Object object = find(key);
  if (object == nullptr) {
    memories_.erase(key);
    return;
  }
  if (!listed_) return;  // the next listing looks at it again
  const TimePoint now = options_.clock();
  const auto [found, is_new] = memories_.try_emplace(key);
  Memory& memory = found->second;
  // Spreads over apply_again when experiments are applied again.
  if (is_new) memory.applied_at = now + options_.apply_again * (hashOf(key) % 100) / 100;
  // The next listing looks at the experiment again; an edit is worth a try at once.
  if (now < memory.not_before && memory.made_of.starts_with(versionOf(*object))) return;
  ++counts_.reconciles;
  if (now - memory.applied_at >= options_.apply_again) {
    memory.applied.clear();
    memory.applied_at = now;
  }
  const Observed observed = observe(object);
  Judgement judgement;
  judgement.trouble = memory.trouble;
  judgement.space_ends = memory.space_ends;
  const Status made = make(observed, &memory, &judgement);
  if (!made && made.error().code != ErrorCode::kUsage) judgement.trouble = made.error().message;
  const Plan todo = plan(observed, judgement, memory.made, memory.applied);
  std::optional<std::string> trouble = carryOut(todo, observed, &memory);
  if (!trouble && !made && made.error().code != ErrorCode::kUsage) trouble = made.error().message;
  if (!trouble) {
    // Another look writes the status without the trouble.
    if (!memory.trouble.empty()) enqueue(key);
    memory.trouble.clear();
    memory.back_off = milliseconds(0);
    return;
  }
  spdlog::warn("{}: {}", key, *trouble);
  ++counts_.failures;
  memory.trouble = *trouble;
  memory.back_off = std::min(kLongestPause, std::max(kFirstPause, memory.back_off * 2));
  memory.not_before = now + memory.back_off;
}

// If the file cannot be run, judgement->refused says why. Other errors: there are no accounts.
Status Controller::make(const Observed& observed, Memory* memory, Judgement* judgement) {
  const json& object = observed.object;
  const std::string version = versionOf(object);
  if (!memory->made_of.starts_with(version)) {
    memory->parsed = readExperimentObject(object);
    memory->made_of = version;
    memory->made.clear();
  }
  if (!memory->parsed) {
    judgement->refused = memory->parsed.error().message;
    memory->made.clear();
    return tl::unexpected(memory->parsed.error());
  }
  const v1::Cluster& cluster = memory->parsed->cluster;
  judgement->workers = workersOf(cluster, observed);
  judgement->suspended = cluster.suspend();
  const bool exports = isLeaving(object) && isHeld(object);
  const std::string made_of =
      version + std::to_string(judgement->workers) + " workers" + (exports ? ", exports" : "");
  if (memory->made_of == made_of) return {};
  if (!memory->accounts) {
    ALLOT_ASSIGN(memory->accounts, accounts(observed));
  }
  auto made = objectsOf(object, *memory->parsed, *memory->accounts,
                        {.registry = options_.registry,
                         .tag = options_.tag,
                         .workers = judgement->workers,
                         .exports = exports});
  if (!made) {
    judgement->refused = made.error().message;
    memory->made.clear();
    return tl::unexpected(made.error());
  }
  memory->made = packed(*made);
  memory->made_of = made_of;
  return {};
}

// Returns the accounts of the existing Secret, or new ones. Existing passwords are never replaced:
// Redis and its clients know them.
Result<TextMap> Controller::accounts(const Observed& observed) {
  const ObjectName name = kube::nameOf(observed.object);
  const auto secret = api_.get(kSecrets, {name.space, accountsName(name.name)});
  if (secret) return accountsOf(*secret);
  if (!secret.error().notFound()) return tl::unexpected(secret.error().error());
  ALLOT_ASSIGN(const auto passwords, options_.passwords());
  return accountFiles(passwords);
}

std::optional<std::string> Controller::apply(const json& object, Memory* memory) {
  const auto resource = resourceOf(object);
  if (!resource) return "nothing here knows how to apply a " + object.at("kind").dump();
  const auto applied = api_.apply(*resource, object, {.field_manager = kManager});
  if (applied) {
    memory->applied[objectKey(object)] = {objectDigest(object),
                                          kube::numberAt(*applied, {"metadata", "generation"})};
    return std::nullopt;
  }
  memory->space_ends |= saysThatTheNamespaceEnds(applied.error());
  // A Job cannot change, for example to another claim. It is removed, and made again at the next
  // look.
  if (resource->kind == kJobs.kind && applied.error().invalid()) {
    // If there is no Job to remove, the refusal has another cause.
    if (api_.remove(*resource, kube::nameOf(object))) return std::nullopt;
  }
  return applied.error().message;
}

std::optional<std::string> Controller::hold(const json& object, const std::string& version,
                                            const json& finalizers) {
  const json patch = {{"metadata", {{"finalizers", finalizers}, {"resourceVersion", version}}}};
  const auto written = api_.mergePatch(kExperiments, kube::nameOf(object), patch);
  // A changed object comes back into the queue.
  if (written || written.error().conflict() || written.error().notFound()) return std::nullopt;
  return written.error().message;
}

std::optional<std::string> Controller::carryOut(const Plan& todo, const Observed& observed,
                                                Memory* memory) {
  std::optional<std::string> trouble;
  const auto keepFirst = [&](std::optional<std::string> why) {
    if (!trouble) trouble = std::move(why);
  };
  const std::string version = kube::textAt(observed.object, {"metadata", "resourceVersion"});
  const bool leaves = isLeaving(observed.object);
  if (todo.finalizers && !leaves) keepFirst(hold(observed.object, version, *todo.finalizers));
  // A failure does not stop the rest: workers scale though a volume cannot grow.
  for (const json& object : todo.apply) keepFirst(apply(object, memory));
  bool tell = true;
  if (todo.status) {
    const auto written =
        api_.patchStatus(kExperiments, kube::nameOf(observed.object), *todo.status);
    tell = written.has_value();
    if (!written && !written.error().notFound()) keepFirst(written.error().message);
  }
  if (todo.finalizers && leaves) keepFirst(hold(observed.object, version, *todo.finalizers));
  if (!tell) return trouble;
  for (const Notice& notice : todo.events) {
    events_.add({.regarding = observed.object,
                 .warning = notice.warning,
                 .reason = notice.reason,
                 .action = "Reconcile",
                 .note = notice.note});
  }
  return trouble;
}

}  // namespace allot
