#pragma once
// Reflector: keeps an ObjectCache equal to the API server's objects of one kind, by list and watch.
//
// It has its own thread and connection; the destructor ends both, even in the middle of a watch.
// `changed` is called on that thread, with the key of each object that a list shows to be new,
// different or gone. It is also called for the object of each event. `changed` should put the key
// into a queue and return. objects(), counts() and problem() are for any thread.
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "k8s/client/api.h"
#include "k8s/client/list_watch.h"

namespace allot::kube {

using Object = std::shared_ptr<const nlohmann::json>;

// The last known objects of a kind, by "namespace/name". Owned by a Reflector, which fills it; any
// thread may read it.
//
// Returned objects never change: a new state is a new object. metadata.managedFields is left out.
class ObjectCache {
 public:
  // Returns nullptr if no object has this key.
  Object find(const std::string& key) const;
  // Returns all objects in the order of their keys.
  std::vector<Object> all() const;
  size_t size() const;
  // Returns true after the first list. Before it, an object that is not here may well exist.
  bool filled() const;

  // Replaces everything by a list, in one step. Returns the keys of new, different and removed
  // objects.
  std::vector<std::string> replaceAll(std::vector<nlohmann::json> items);
  // Applies an event. Returns the key; "" for a bookmark, and for an object without a name.
  std::string apply(WatchEvent event);

 private:
  mutable std::mutex mutex_;
  std::map<std::string, Object> objects_;
  bool filled_ = false;
};

struct ReflectorOptions {
  Resource resource;
  std::string space = {};  // "": all namespaces
  std::string label_selector = {};
  Limits limits = {};
  Clock clock = steadyClock();
  Random random = systemRandom();
};

class Reflector {
 public:
  using Changed = std::function<void(const std::string& key)>;

  // What the reflector has done so far.
  struct Counts {
    uint64_t lists = 0;
    uint64_t watches = 0;
    uint64_t events = 0;
    uint64_t failures = 0;
  };

  Reflector(const ServerAccess& access, ReflectorOptions options, Changed changed);
  ~Reflector();
  Reflector(const Reflector&) = delete;
  Reflector& operator=(const Reflector&) = delete;

  // Starts the thread. Called once.
  void start();
  // Does the next step and returns. Public for tests, which own the clock.
  // Requires: start() was not called.
  ListWatch::Step turn();

  const ObjectCache& objects() const { return objects_; }
  Counts counts() const;
  // Returns the current problem as a sentence for conditions and metrics; "" if there is none. A
  // 401 or 403 is reported at once, since waiting does not help; other errors from the third
  // failure in a row on.
  std::string problem() const;

 private:
  void run();
  void list();
  void watch(const ListWatch::Step& step);
  void waitUntil(TimePoint time);
  void note(const ApiError* error);

  const ReflectorOptions options_;
  const Changed changed_;
  Api api_;
  ListWatch machine_;
  ObjectCache objects_;

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  Counts counts_;
  std::string problem_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace allot::kube
