#include "k8s/client/object_cache.h"

#include "k8s/client/resource.h"

namespace allot::kube {
namespace {

// Who set which field takes as much room as the fields, and nobody here asks.
Object kept(nlohmann::json object) {
  if (object.contains("metadata")) object["metadata"].erase("managedFields");
  return std::make_shared<const nlohmann::json>(std::move(object));
}

}  // namespace

Object ObjectCache::find(const std::string& key) const {
  const std::lock_guard lock(mutex_);
  const auto found = objects_.find(key);
  return found == objects_.end() ? nullptr : found->second;
}

std::vector<Object> ObjectCache::all() const {
  const std::lock_guard lock(mutex_);
  std::vector<Object> objects;
  objects.reserve(objects_.size());
  for (const auto& [key, object] : objects_) objects.push_back(object);
  return objects;
}

size_t ObjectCache::size() const {
  const std::lock_guard lock(mutex_);
  return objects_.size();
}

bool ObjectCache::filled() const {
  const std::lock_guard lock(mutex_);
  return filled_;
}

std::vector<std::string> ObjectCache::replaceAll(std::vector<nlohmann::json> items) {
  std::map<std::string, Object> fresh;
  for (auto& item : items) {
    std::string key = keyOf(item);
    fresh[std::move(key)] = kept(std::move(item));
  }
  const std::lock_guard lock(mutex_);
  std::vector<std::string> changed;
  for (const auto& [key, object] : fresh) {
    const auto old = objects_.find(key);
    if (old == objects_.end() || *old->second != *object) changed.push_back(key);
  }
  for (const auto& [key, object] : objects_) {
    if (!fresh.contains(key)) changed.push_back(key);
  }
  objects_ = std::move(fresh);
  filled_ = true;
  return changed;
}

std::string ObjectCache::apply(WatchEvent event) {
  if (event.type == EventType::kBookmark) return {};
  std::string key = keyOf(event.object);
  if (key.empty()) return {};
  const std::lock_guard lock(mutex_);
  if (event.type == EventType::kDeleted) {
    objects_.erase(key);
  } else {
    objects_[key] = kept(std::move(event.object));
  }
  return key;
}

}  // namespace allot::kube
