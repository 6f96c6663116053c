#pragma once
// The Kubernetes objects of an experiment: those of k8s/base and of components, under its name,
// with its file, its labels and what its section spec.cluster asks for.
//
// `allot render` prints them, an operator applies them. Knows core only: accounts are made by
// whoever calls (accountFiles of store/redis/acl.h). Pure functions, any thread.
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/spec/cluster_section.h"
#include "k8s/render/kustomize.h"

namespace allot {

// What becomes of the Secret with Redis's accounts. Pods see it as files, Redis reads it as it
// starts.
enum class AccountsSecret {
  // NAME-accounts-DIGEST: with other accounts it is another Secret, and all
  // pods
  // are replaced.
  kDigest,
  // NAME-accounts, immutable: what is there stays, a cluster refuses to change it.
  kOnce,
  // NAME-accounts, and its digest as an annotation of the pods (allot.dev/accounts), so that they
  // are
  // replaced when it changes: for who reads what is there before it renders.
  kStamped,
  // NAME-accounts is there already and no part of the objects.
  kLeftOut
};

struct RenderOptions {
  std::string name_space;  // of the objects; empty: they have none, and kubectl's holds
  std::string registry;    // empty: spec.cluster.image.registry
  std::string tag;         // empty: spec.cluster.image.tag, or the version
  std::vector<std::string> components;  // in this order
  AccountsSecret accounts = AccountsSecret::kDigest;
  // Replicas of the workers' Deployment; absent: as spec.cluster says, which may be nothing.
  std::optional<uint32_t> workers;
};

// Those that `components` may name: gpu, models, ...
std::vector<std::string> componentNames();

// files: experiment.yaml as the aggregator is to read it, and what lies beside it. accounts:
// users.acl and NAME.password by file name; not looked at where the Secret is left out. kUsage,
// with a sentence, if a component is unknown or lacks what it needs.
Result<KubeObjects> renderExperiment(const ExperimentObject& experiment, const TextMap& files,
                                     const TextMap& accounts, const RenderOptions& options);

}  // namespace allot
