#pragma once
// spec.cluster: the settings of an experiment file that matter only in a cluster.
//
// `allot run` checks the section and ignores it. Neither the run's store nor the experiment's
// digest includes the section: all its keys may change at any time. The keys are rows of type
// SpecRule (core/spec/spec_rules.h), as those of the experiment are. Pure functions, any thread.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "allot/v1/cluster.pb.h"
#include "allot/v1/experiment.pb.h"
#include "core/result.h"
#include "core/spec/spec_rules.h"
#include "core/spec/spec_values.h"
#include "core/spec/spec_yaml.h"

namespace allot {

// Returns the rules under spec.cluster. All are live.
const std::vector<SpecRule>& clusterRules();
SpecField fieldOf(const SpecRule& rule, v1::Cluster& cluster);

// Reads the section, by the rules of keys and by those of Kubernetes' pods. A key that is not given
// has its default, except `workers` and the keys whose default follows from others: these stay
// unset.
v1::Cluster readCluster(const YamlValue& root, const std::string& place, Mistakes* mistakes);

// The content of an experiment file, or of an object of kind Experiment in a cluster.
struct ExperimentObject {
  v1::Experiment experiment;
  v1::Cluster cluster;
  std::string name_space;  // metadata.namespace; "" if it has none
};

// Parses as parseExperiment (core/spec/spec.h), with spec.cluster and the namespace.
Result<ExperimentObject> parseExperimentObject(const std::string& yaml, const std::string& place,
                                               const std::vector<std::string>& overrides = {},
                                               std::vector<std::string>* mistakes = nullptr);

// Returns the fields of metadata that an experiment file may have.
const std::vector<std::string>& metadataKeys();
// Checks that metadata.namespace is a name, and that labels and annotations are maps of strings.
void checkMetadata(const YamlValue& root, const std::string& place, Mistakes* mistakes);

// Returns true for a resource whose limit is its request: one of a vendor, as nvidia.com/gpu, or
// huge pages.
bool isNeverShared(const std::string& name);
// Returns the value of a quantity, 536870912 of "512Mi"; nothing for another unit or no number.
std::optional<double> quantityOf(std::string_view text);

inline constexpr char kQuantityPattern[] =
    "^([0-9]+(\\.[0-9]{0,9})?|\\.[0-9]{1,9})([numkMGTPE]|[KMGTPE]i|[eE][-+]?[0-9]{1,2})?$";
// A domain in front of a slash, which may be missing, and a name.
inline constexpr char kLabelKeyPattern[] =
    "^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
    "[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$";
inline constexpr size_t kLongestLabelKey = 253 + 1 + 63;  // domain, slash, name
inline constexpr char kLabelValuePattern[] = "^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$";
inline constexpr char kGpuResource[] = "nvidia.com/gpu";
inline constexpr uint32_t kMostSeconds = 1000000000;
// Return the values that a toleration's `operator` and `effect` may have.
const std::vector<std::string>& tolerationOperators();
const std::vector<std::string>& tolerationEffects();

}  // namespace allot
