#pragma once
// Resource: a kind of objects as the API server addresses them, and its paths. Values and pure
// functions; any thread.
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

// Names an object. `space`: its namespace; "" for kinds without one.
struct ObjectName {
  std::string space;
  std::string name;
};
// Returns the name in metadata.
ObjectName nameOf(const nlohmann::json& object);
// Returns "namespace/name", or the name alone: the key of an object in caches and queues.
std::string keyOf(const nlohmann::json& object);

// Returns "/apis/apps/v1/namespaces/NS/deployments/NAME/status". With an empty name it is the path
// of all objects; with an empty namespace of all namespaces. "BadRequest" for a name that is no
// segment of a path.
Reply<std::string> pathOf(const Resource& resource, const ObjectName& object = {},
                          const std::string& subresource = {});

// Encodes for a query: all characters except letters, digits and -._~ as %XX.
std::string percentEncoded(std::string_view text);

}  // namespace allot::kube
