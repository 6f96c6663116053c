#pragma once
// EventBook and EventRecorder: events of events.k8s.io/v1 (Kubernetes 1.19 and newer), which
// `kubectl describe` shows with the object they are about.
//
// The name of an event follows from the object, the reason and the note. So the same note again is
// the same event, counted, also after we were started anew. Of one object and reason at most one
// request a minute goes out; of what comes in between the newest note is kept, and how often.
// EventBook has the rules and is pure; EventRecorder sends. One thread each.
#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "k8s/client/api.h"
#include "k8s/client/micro_time.h"

namespace allot::kube {

struct EventNote {
  nlohmann::json regarding;  // the object: apiVersion, kind and metadata are read
  bool warning = false;
  std::string reason;  // "WorkerFailed"
  std::string action;  // "Reconcile"
  std::string note;    // for people; at most 1024 bytes are kept
};

struct EventSource {
  std::string controller;  // "allot.dev/operator"
  std::string instance;    // the pod
};

const Resource& eventResource();

class EventBook {
 public:
  // What is kept of so many objects and reasons at most; an hour's silence is forgotten.
  static constexpr size_t kMostKeys = 4096;
  static constexpr std::chrono::minutes kPause{1};

  explicit EventBook(EventSource source) : source_(std::move(source)) {}

  void add(TimePoint now, const EventNote& note);

  struct Due {
    nlohmann::json event;  // as it would be made
    int64_t count = 1;     // how often since it was last sent
    bool known = false;    // it was sent before: count it, do not make it
  };
  // What may be sent now; it counts as sent.
  std::vector<Due> due(TimePoint now, WallTime wall);

 private:
  struct Entry {
    EventNote waiting;
    int64_t count = 0;  // of `waiting`; 0: nothing waits
    std::string sent;   // name of the last event
    std::optional<TimePoint> sent_at;
    TimePoint touched_at;
  };
  void forgetSilent(TimePoint now);

  EventSource source_;
  std::map<std::pair<std::string, std::string>, Entry> entries_;  // by object and reason
};

class EventRecorder {
 public:
  // api: the caller's own, which outlives it; its thread is ours.
  EventRecorder(Api& api, EventSource source, Clock clock = steadyClock(),
                WallClock wall_clock = systemClock())
      : api_(api),
        book_(std::move(source)),
        clock_(std::move(clock)),
        wall_clock_(std::move(wall_clock)) {}

  void add(const EventNote& note) { book_.add(clock_(), note); }
  // Sends what is due: after adding, and then now and again. An event that cannot be sent is told
  // to the log and dropped: events are a help, and no part of anybody's state.
  void send();

 private:
  Reply<void> count(const EventBook::Due& due);

  Api& api_;
  EventBook book_;
  Clock clock_;
  WallClock wall_clock_;
};

}  // namespace allot::kube
