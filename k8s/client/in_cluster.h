#pragma once
// inCluster: the API server as a pod finds it. Any thread, while nobody changes the environment.
#include <functional>
#include <optional>
#include <string>

#include "k8s/client/server_access.h"

namespace allot::kube {

using Environment = std::function<std::optional<std::string>(const std::string& name)>;
Environment processEnvironment();

inline constexpr const char* kServiceAccountFolder =
    "/var/run/secrets/kubernetes.io/serviceaccount";

// The address from KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT; ca.crt, token and namespace
// from the folder. kUsage, one sentence, where one of them is missing.
Result<ServerAccess> inCluster(const Environment& environment = processEnvironment(),
                               const std::string& folder = kServiceAccountFolder);

}  // namespace allot::kube
