#pragma once
// ListWatch: the steps to know all objects of a kind, now and from now on.
//
//   list -> watch from the list's resourceVersion -> again from the newest one ... -> 410 -> list
//
// It is a pure state machine. Its owner (Reflector) calls next(), does the step that it returns,
// and reports the outcome. Time and random numbers are injected. One thread. resourceVersions are
// opaque here: kept, sent back, never compared.
#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "k8s/client/api_error.h"
#include "k8s/client/server_access.h"

namespace allot::kube {

enum class EventType { kAdded, kModified, kDeleted, kBookmark };

struct WatchEvent {
  EventType type = EventType::kAdded;
  nlohmann::json object;
};

// Assembles the events of a watch from bytes that the transport splits anywhere. Pure; one thread.
//
// A watch has one JSON object a line. The limit is on a line, however many reads bring it.
class WatchLines {
 public:
  static constexpr size_t kLongestLine = size_t{8} << 20;

  explicit WatchLines(size_t longest_line = kLongestLine) : longest_(longest_line) {}

  // Calls `take` for each event whose line is complete, in order. Errors end the watch; `take` was
  // called for the events before the faulty line. "TooLarge" for a line over the limit, "BadAnswer"
  // for one that is no event. For an event of type ERROR, returns the server's error (410 if the
  // server has forgotten the resourceVersion).
  Reply<void> feed(std::string_view bytes, const std::function<void(WatchEvent)>& take);

  // Returns true if the bytes so far end within a line: if the stream ends there, the connection
  // was cut.
  bool insideLine() const { return !line_.empty(); }

 private:
  Reply<void> takeLine(std::string_view line, const std::function<void(WatchEvent)>& take) const;

  size_t longest_;
  std::string line_;  // the beginning of an incomplete line
};

// Returns a random number in [0, 1).
using Random = std::function<double()>;
Random systemRandom();

// The wait after the n-th failure in a row: 0.8 s, doubled each time, at most 30 s. Each wait is
// then extended at random by up to its half, to 45 s at most, so that many clients do not return at
// once.
class BackOff {
 public:
  explicit BackOff(Random random) : random_(std::move(random)) {}

  // Returns the next wait. Starts again if the last failure was more than two minutes ago.
  std::chrono::milliseconds next(TimePoint now);

 private:
  Random random_;
  int failures_ = 0;
  TimePoint last_{};
};

class ListWatch {
 public:
  struct Step {
    enum class What { kList, kWatch, kWait };
    What what = What::kList;
    std::string resource_version = {};  // kWatch
    std::chrono::seconds timeout{0};    // kWatch: for the server
    TimePoint until{};                  // kWait
  };

  explicit ListWatch(Random random);

  Step next(TimePoint now);

  void listed(std::string resource_version);
  void listFailed(TimePoint now, const ApiError& error);
  // Notes an event or a bookmark of a watch: keeps its resourceVersion, and ends the row of failed
  // watches.
  void saw(const WatchEvent& event);
  // Notes the end of a watch. ended: no error if the server ended it in good order. Such an end is
  // a failure, too, if it came within a second and without an event.
  void watchEnded(TimePoint began, TimePoint now, const Reply<void>& ended);

  // Returns the failures in a row: of lists, plus of watches.
  int failures() const { return list_failures_ + watch_failures_; }

 private:
  void pause(TimePoint now, const ApiError* error);
  // Drops the watch's position: the next step is a list.
  void forget() { resource_version_.clear(); }

  Random random_;
  BackOff back_off_;
  std::string resource_version_;  // where to watch from; "": list first
  TimePoint not_before_{};
  int events_ = 0;  // of the current watch, without bookmarks
  int list_failures_ = 0;
  int watch_failures_ = 0;  // not reset by a list that succeeds
};

}  // namespace allot::kube
