#pragma once
// spec.cluster, put into the objects of an experiment. Part of k8s/render; pure functions.
#include "allot/v1/cluster.pb.h"
#include "k8s/render/render.h"

namespace allot {

// Adds what the section asks for to the objects of k8s/base.
void applyCluster(const v1::Cluster& cluster, KubeObjects* objects);

// Mounts the claim that the component smollm2 fetches its model into, with the memory for it.
void mountFetchedModel(const std::string& experiment, KubeObjects* objects);

// Returns the Deployment or StatefulSet of worker, aggregator or store.
nlohmann::json& workloadOf(const char* component, KubeObjects* objects);

}  // namespace allot
