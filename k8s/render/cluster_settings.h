#pragma once
// spec.cluster, put into the objects of an experiment. Part of k8s/render; pure functions.
#include <string>
#include <vector>

#include "allot/v1/cluster.pb.h"
#include "k8s/render/kustomize.h"

namespace allot {

// The components that the section stands for: gpu, models.
std::vector<std::string> componentsOf(const v1::Cluster& cluster);

// To the objects with those components in them, before their names are prefixed.
void applyCluster(const v1::Cluster& cluster, KubeObjects* objects);

// The Deployment or StatefulSet of worker, aggregator or store.
nlohmann::json& workloadOf(const char* component, KubeObjects* objects);

}  // namespace allot
