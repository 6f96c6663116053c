#pragma once
// plan(): what to do about one Experiment now. The plan follows from what is seen and what was
// applied before; the controller carries it out. Pure; any thread.
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/spec/cluster_section.h"
#include "k8s/operator/experiment_status.h"
#include "k8s/render/render.h"

namespace allot {

// "experiments.allot.dev", "allot.dev/v1alpha1", as k8s/operator/crd.yaml has them.
inline constexpr char kExperimentGroup[] = "allot.dev";
inline constexpr char kExperimentVersion[] = "v1alpha1";

// Reads the object as `allot run` reads a file. Errors are those of `allot run`, without line and
// column.
Result<ExperimentObject> readExperimentObject(const nlohmann::json& object);

struct ObjectOptions {
  std::string registry =
      {};                // of images, where the experiment names none; "": manifests' own default
  std::string tag = {};  // of images, as `registry`; "": this version
  uint32_t workers = 1;
  bool exports = false;  // with the Job that exports the run
};

// Returns the objects in the order in which they are to be applied. The experiment owns each
// object, so that all are deleted with it. The claim of the store's volume, which the StatefulSet
// makes, stays.
Result<KubeObjects> objectsOf(const nlohmann::json& object, const ExperimentObject& experiment,
                              const TextMap& accounts, const ObjectOptions& options);

// Returns "NAME-accounts", the name of the Secret with the accounts.
std::string accountsName(const std::string& experiment);
// Returns the files of the accounts: the Secret's passwords, and the users of this build, which may
// allow more than an older build's. kData if a password is missing.
Result<TextMap> accountsOf(const nlohmann::json& secret);

// An object as it was applied last: the digest of what was sent, and the generation in the answer.
// If a workload has another generation, somebody else has changed it since.
struct Applied {
  std::string digest;
  int64_t generation = 0;
};
using AppliedObjects = std::map<std::string, Applied>;  // by objectKey()

std::string objectKey(const nlohmann::json& object);  // "apps/v1/Deployment/x-worker"
std::string objectDigest(const nlohmann::json& object);

// An object as it is to be. Its JSON is kept as text, which takes a fifth of the memory.
struct MadeObject {
  std::string kind;
  std::string name;
  std::string key;
  std::string digest;
  std::string text;
};
using MadeObjects = std::vector<MadeObject>;
MadeObjects packed(const KubeObjects& objects);

struct Notice {
  bool warning = false;
  std::string reason;
  std::string note;
};

struct Plan {
  // metadata.finalizers, if they are to change: ours is added before anything is applied, and
  // removed last.
  std::optional<nlohmann::json> finalizers;
  KubeObjects apply;                     // in this order
  std::optional<nlohmann::json> status;  // a merge patch; absent: nothing to change
  std::vector<Notice> events;
};

// Returns the number of wanted workers: 0 if the experiment is suspended or being deleted, or is
// finished with whenFinished: release.
uint32_t workersOf(const v1::Cluster& cluster, const Observed& observed);

// Returns what to do. made: the packed objects of objectsOf(), empty if the file cannot be run. The
// Job among them is applied only if exportStep() returns kRunJob.
Plan plan(const Observed& observed, const Judgement& judgement, const MadeObjects& made,
          const AppliedObjects& applied);

}  // namespace allot
