#pragma once
// ObjectCache: the last known objects of a kind, by "namespace/name". Owned by a Reflector, which
// fills it; any thread reads it.
//
// Returned objects never change: a new state is a new object. metadata.managedFields is left out.
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "k8s/client/watch_lines.h"

namespace allot::kube {

using Object = std::shared_ptr<const nlohmann::json>;

class ObjectCache {
 public:
  // Returns nullptr if there is none.
  Object find(const std::string& key) const;
  // Returns all objects in the order of their keys.
  std::vector<Object> all() const;
  size_t size() const;
  // Returns true after the first list. Before it, an object that is not here may well exist.
  bool filled() const;

  // Replaces everything by a list, in one step. Returns the keys of new, different and removed
  // objects.
  std::vector<std::string> replaceAll(std::vector<nlohmann::json> items);
  // Applies an event. Returns the key; "" for a bookmark, which has no object.
  std::string apply(WatchEvent event);

 private:
  mutable std::mutex mutex_;
  std::map<std::string, Object> objects_;
  bool filled_ = false;
};

}  // namespace allot::kube
