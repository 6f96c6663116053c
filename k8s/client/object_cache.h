#pragma once
// ObjectCache: the objects of a kind as they were last seen, by "namespace/name".
//
// A Reflector fills it, any thread reads it. What is handed out never changes: a new state is a new
// object. metadata.managedFields is left out.
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
  // nullptr if there is none.
  Object find(const std::string& key) const;
  // In the order of their keys.
  std::vector<Object> all() const;
  size_t size() const;
  // Whether there was a list yet: before it, an object that is not here may well exist.
  bool filled() const;

  // What a list says, all at once. Returns the keys of what is new, differs or is gone.
  std::vector<std::string> replaceAll(std::vector<nlohmann::json> items);
  // What an event says. Returns the key; "" for a bookmark, which is no object.
  std::string take(WatchEvent event);

 private:
  mutable std::mutex mutex_;
  std::map<std::string, Object> objects_;
  bool filled_ = false;
};

}  // namespace allot::kube
