#pragma once
// ListWatch: what to do next in order to know all objects of a kind, now and from now on.
//
//   list -> watch from the list's resourceVersion -> again from the newest one ... -> 410 -> list
//
// A pure state machine: its owner (Reflector) asks next(), does that, and tells what became of it.
// Time and random numbers come from outside. One thread. resourceVersions are opaque here: kept,
// sent back, never compared.
#include <chrono>
#include <functional>
#include <random>
#include <string>

#include "k8s/client/api_error.h"
#include "k8s/client/server_access.h"
#include "k8s/client/watch_lines.h"

namespace allot::kube {

// In [0, 1).
using Random = std::function<double()>;
Random systemRandom();

// How long to wait after the n-th failure in a row: .8 s, twice as long each time, 30 s at most,
// each lengthened at random by up to its half so that many clients do not come back at once.
class BackOff {
 public:
  explicit BackOff(Random random) : random_(std::move(random)) {}

  // Begins anew if the last failure was more than two minutes ago.
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
  // What a watch delivered; a bookmark moves the resourceVersion and nothing else.
  void saw(const WatchEvent& event);
  // ended: the server ended it in good order.
  void watchEnded(TimePoint began, TimePoint now, const Reply<void>& ended);

  // Failures in a row, of lists or of watches; 0 while all is well.
  int failures() const { return list_failures_ + watch_failures_; }

 private:
  void pause(TimePoint now, const ApiError* error);
  // The watch's place is lost: list next.
  void forget() { resource_version_.clear(); }

  Random random_;
  BackOff back_off_;
  std::string resource_version_;  // where to watch from; "": list first
  TimePoint not_before_{};
  int events_ = 0;  // of the watch that goes on, without bookmarks
  int list_failures_ = 0;
  int watch_failures_ = 0;  // a list that works does not make a watch work
};

}  // namespace allot::kube
