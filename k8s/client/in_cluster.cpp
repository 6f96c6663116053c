#include "k8s/client/in_cluster.h"

#include <charconv>
#include <cstdlib>
#include <fstream>

namespace allot::kube {

Environment processEnvironment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());  // NOLINT(concurrency-mt-unsafe)
    if (value == nullptr) return std::nullopt;
    return value;
  };
}

Result<ServerAccess> inCluster(const Environment& environment, const std::string& folder) {
  ServerAccess access;
  access.host = environment("KUBERNETES_SERVICE_HOST").value_or("");
  const std::string port = environment("KUBERNETES_SERVICE_PORT").value_or("");
  if (access.host.empty() || port.empty()) {
    return badInput(
        "KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set: this is no pod; name the "
        "API server yourself");
  }
  const auto [at, error] = std::from_chars(port.data(), port.data() + port.size(), access.port);
  if (error != std::errc() || at != port.data() + port.size() || access.port == 0) {
    return badInput("KUBERNETES_SERVICE_PORT is \"" + port + "\", which is no port");
  }
  access.ca_file = folder + "/ca.crt";
  access.token_file = folder + "/token";
  for (const std::string& file : {access.ca_file, access.token_file}) {
    if (!std::ifstream(file).good()) {
      return badInput(file +
                      " cannot be read: give the pod a service account with "
                      "automountServiceAccountToken: true");
    }
  }
  std::ifstream(folder + "/namespace") >> access.own_namespace;
  return access;
}

}  // namespace allot::kube
