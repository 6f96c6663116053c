#pragma once
// spec.cluster: what only a cluster knows of an experiment, in the same file.
//
// `allot run` checks the section and leaves it aside, nothing stores it, and it is no part of the
// experiment's digest: all of it may change at any time. Who makes Kubernetes objects (k8s/render)
// reads it. Its keys are rows as those of the experiment are (core/spec/spec_rules.h). Pure
// functions, any thread.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "allot/v1/cluster.pb.h"
#include "allot/v1/experiment.pb.h"
#include "core/result.h"
#include "core/spec/spec_rules.h"
#include "core/spec/spec_yaml.h"

namespace allot {

// The rows under spec.cluster; all are live.
const std::vector<SpecRule>& clusterRules();
SpecField fieldOf(const SpecRule& rule, v1::Cluster& cluster);

// The section of a file whose keys are known ones; of a file without it, the defaults.
Result<v1::Cluster> readCluster(const YamlValue& root, const std::string& place);

// An experiment file, or the object that a cluster has of it.
struct ExperimentObject {
  v1::Experiment experiment;
  v1::Cluster cluster;
  std::string name_space;  // metadata.namespace; empty: it says none
};

// As parseExperiment (core/spec/spec.h), with what it leaves aside.
Result<ExperimentObject> parseExperimentObject(const std::string& yaml, const std::string& place,
                                               const std::vector<std::string>& overrides = {});

// metadata and status as Kubernetes has them: names of fields are checked, namespace, labels and
// annotations too; status is taken as it comes.
const std::vector<std::string>& metadataKeys();
Status checkMetadata(const YamlValue& root, const std::string& place);

// "512Mi" -> 536870912; nothing if it is no quantity.
std::optional<double> quantityOf(std::string_view text);

inline constexpr char kQuantityPattern[] =
    "^[0-9]+(\\.[0-9]{1,9})?(m|k|Ki|M|Mi|G|Gi|T|Ti|P|Pi|E|Ei)?$";
inline constexpr char kLabelKeyPattern[] =
    "^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$";
inline constexpr char kLabelValuePattern[] = "^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$";
inline constexpr uint32_t kMostSeconds = 1000000000;
// What a toleration may choose by a word.
const std::vector<std::string>& tolerationOperators();
const std::vector<std::string>& tolerationEffects();

}  // namespace allot
