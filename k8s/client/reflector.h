#pragma once
// Reflector: keeps an ObjectCache like the API server's objects of one kind, by list and watch.
//
// Its owner starts it with a thread and a connection of its own; the destructor ends both, also in
// the middle of a watch. `changed` is called on that thread, with the key of each object that is
// new, differs or is gone: it should put the key into a queue and return. What the Reflector has to
// say of itself may be asked by any thread.
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "k8s/client/api.h"
#include "k8s/client/list_watch.h"
#include "k8s/client/object_cache.h"

namespace allot::kube {

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

  // What became of it so far.
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

  // Once.
  void start();
  // Does the next thing and returns; not after start(). For tests, which own the clock.
  ListWatch::Step turn();

  const ObjectCache& objects() const { return objects_; }
  Counts counts() const;
  // "" while it goes well. Else why it does not: a sentence for conditions and metrics, at once for
  // 401 and 403, which no waiting mends, and after the third failure in a row for anything else.
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
