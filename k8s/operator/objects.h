#pragma once
// What an Experiment of a cluster says, and the objects that run it: the file as the aggregator is
// to read it, the objects of k8s/render/render.h with their owner. Pure functions, any thread.
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "core/spec/cluster_section.h"
#include "k8s/render/render.h"

namespace allot {

// "experiments.allot.dev", "allot.dev/v1alpha1", as k8s/operator/crd.yaml has them.
inline constexpr char kExperimentGroup[] = "allot.dev";
inline constexpr char kExperimentVersion[] = "v1alpha1";

// As `allot run` reads the file: kUsage with the same sentence.
Result<ExperimentObject> readExperimentObject(const nlohmann::json& object);

struct ObjectOptions {
  std::string registry =
      {};                // of images, where the experiment names none; "": manifests' own default
  std::string tag = {};  // "": the default, too
  uint32_t workers = 1;
  bool exports = false;  // with the Job that exports the run
};

// In the order in which they are to be applied, each owned by the experiment, so that all of it
// goes when it does; the claim of the store's volume, which the StatefulSet makes, stays.
Result<KubeObjects> objectsOf(const nlohmann::json& object, const ExperimentObject& experiment,
                              const TextMap& accounts, const ObjectOptions& options);

// "NAME-accounts": the Secret that holds them.
std::string accountsName(const std::string& experiment);
// The passwords of such a Secret as files with the users of this build, which may allow more than
// an older one's. kData if it is no such Secret.
Result<TextMap> accountsOf(const nlohmann::json& secret);

}  // namespace allot
