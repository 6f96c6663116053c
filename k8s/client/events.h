#pragma once
// EventBook and EventRecorder: events of events.k8s.io/v1 (Kubernetes 1.19 and newer), which
// `kubectl describe` shows with their object. One thread.
//
// The name of an event follows from its EventNote. A repeated note therefore adds to the count of
// the same event, even after a restart. At most one event a minute is sent for an object and
// reason. Of the notes within that minute, the newest is kept with the number of its repetitions in
// a row. EventBook has the rules and is pure; EventRecorder sends.
#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "k8s/client/api.h"
#include "k8s/client/server_access.h"

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
  // Most pairs of object and reason that are kept. A full book forgets pairs silent for an hour.
  // While it is full it ignores new pairs.
  static constexpr size_t kMostKeys = 4096;
  static constexpr std::chrono::minutes kPause{1};

  explicit EventBook(EventSource source) : source_(std::move(source)) {}

  void add(TimePoint now, const EventNote& note);

  struct Due {
    nlohmann::json event;  // as it would be created
    int64_t count = 1;     // occurrences since an event was last sent
    bool known = false;    // the last event sent was this one: increase its count
  };
  // Returns the events that may be sent now; they count as sent.
  std::vector<Due> due(TimePoint now, WallTime wall);

 private:
  struct Entry {
    EventNote waiting;
    int64_t count = 0;  // of `waiting`; 0: none
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
  // Requires: `api` outlives the recorder and is used by the same thread.
  EventRecorder(Api& api, EventSource source, Clock clock = steadyClock(),
                WallClock wall_clock = systemClock())
      : api_(api),
        book_(std::move(source)),
        clock_(std::move(clock)),
        wall_clock_(std::move(wall_clock)) {}

  void add(const EventNote& note) { book_.add(clock_(), note); }
  // Sends due events. Called after adding, and then from time to time. An event that cannot be sent
  // is logged and dropped: no state depends on events.
  void send();

 private:
  Reply<void> count(const EventBook::Due& due);

  Api& api_;
  EventBook book_;
  Clock clock_;
  WallClock wall_clock_;
};

}  // namespace allot::kube
