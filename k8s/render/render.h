#pragma once
// The Kubernetes objects of an experiment: the YAML of k8s/base and of components, filled in with
// the experiment's name, labels, file and what its section spec.cluster asks for. `allot render`
// prints the objects, the operator applies them. Includes only core: accounts are made by the
// caller (accountFiles of store/redis/acl.h). Pure functions, any thread.
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "allot/v1/cluster.pb.h"
#include "core/result.h"
#include "core/spec/cluster_section.h"

namespace allot {

using KubeObjects = std::vector<nlohmann::json>;
using TextMap = std::map<std::string, std::string>;

// The Secret NAME-accounts with Redis's accounts. Pods see it as files; Redis reads it only when it
// starts.
enum class AccountsSecret {
  // Immutable: a cluster keeps the Secret that it has, and refuses a change.
  kOnce,
  // The Secret's digest is an annotation of the pods (allot.dev/accounts), so that a changed Secret
  // replaces the pods. For callers that keep the passwords.
  kStamped,
  // The Secret exists already, and is not among the objects.
  kLeftOut
};

struct RenderOptions {
  std::string name_space;  // of the objects; empty: they name none, and kubectl's holds
  std::string registry;    // empty: spec.cluster.image.registry
  std::string tag;         // empty: spec.cluster.image.tag, or the version
  std::vector<std::string> components;  // repetitions are ignored
  AccountsSecret accounts = AccountsSecret::kStamped;
  // With the Job that exports the run to the claim of spec.cluster.results.
  bool exports = false;
  // Replicas of the workers' Deployment; absent: spec.cluster.workers, or no replicas key without
  // that.
  std::optional<uint32_t> workers;
};

// Returns the names that `components` may have: those of the files of k8s/components.
std::vector<std::string> componentNames();

// Returns the objects in the order in which they are to be applied. kUsage, with a sentence, if a
// component is unknown or lacks what it needs.
//   files     experiment.yaml as the aggregator is to read it, and the files beside it
//   accounts  users.acl and NAME.password by file name; ignored if the Secret is left out
Result<KubeObjects> renderExperiment(const ExperimentObject& experiment, const TextMap& files,
                                     const TextMap& accounts, const RenderOptions& options);

// Returns files of k8s/ by path ("base/worker.yaml"), embedded at build time (embed.cmake).
const std::map<std::string_view, std::string_view>& manifestSources();

// Adds what spec.cluster asks for, except images, to the objects of k8s/base.
void applyCluster(const v1::Cluster& cluster, KubeObjects* objects);

// Gives the workers the claim into which the component smollm2 fetches its model, and memory for
// that model.
void mountFetchedModel(const std::string& experiment, KubeObjects* objects);

// Returns the Deployment or StatefulSet of worker, aggregator or store. Throws std::logic_error if
// there is none.
nlohmann::json& workloadOf(const char* component, KubeObjects* objects);

}  // namespace allot
