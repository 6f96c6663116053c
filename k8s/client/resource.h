#pragma once
// Resource: a kind of objects as the API server addresses them, and the paths made of it.
// Values and pure functions; any thread.
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "k8s/client/api_error.h"

namespace allot::kube {

struct Resource {
  std::string group;  // "" for core's: pods, secrets
  std::string version;
  std::string plural;
  std::string kind;

  std::string apiVersion() const { return group.empty() ? version : group + "/" + version; }
};

// Which object. `space`: its namespace; "" for what has none.
struct ObjectName {
  std::string space;
  std::string name;
};
// As metadata says.
ObjectName nameOf(const nlohmann::json& object);
// "namespace/name", or the name alone: how stores and queues know an object.
std::string keyOf(const nlohmann::json& object);

// "/apis/apps/v1/namespaces/NS/deployments/NAME/status". All objects, where the name is empty; of
// all namespaces, where that is. "BadRequest" for a name that is no segment of a path.
Reply<std::string> pathOf(const Resource& resource, const ObjectName& object = {},
                          const std::string& subresource = {});

// For a query: all but letters, digits and -._~ as %XX.
std::string percentEncoded(std::string_view text);

}  // namespace allot::kube
