#pragma once
// LeaderElection: competes for a Lease and holds it. It has its own thread and connection, so that
// no other request delays a renewal.
//
// Its owner passes two callbacks, each called at most once, on that thread: `won`, and `lost`.
// After `lost` the process must end (exit code 75) because another one may already lead. The
// destructor releases the lease. leads(), holder() and problem() are for any thread. destructor
// gives the lease up in good order. leads() is for any thread.
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "k8s/client/api.h"
#include "k8s/client/lease.h"
#include "k8s/client/list_watch.h"

namespace allot::kube {

struct ElectionOptions {
  ObjectName lease;
  // Unique to this process; "": the host's name, which is the pod's, and random digits.
  std::string identity = {};
  LeaseTimes times = {};
  // Of each request. Two requests fit into the renew deadline.
  Limits limits = {.connect = std::chrono::milliseconds(2000),
                   .request = std::chrono::milliseconds(4000)};
  Clock clock = steadyClock();
  WallClock wall_clock = systemClock();
  Random random = systemRandom();
};

class LeaderElection {
 public:
  using Won = std::function<void()>;
  using Lost = std::function<void(const std::string& why)>;

  // Creates it. kUsage if the times contradict each other.
  static Result<std::unique_ptr<LeaderElection>> create(const ServerAccess& access,
                                                        ElectionOptions options, Won won,
                                                        Lost lost);
  ~LeaderElection();
  LeaderElection(const LeaderElection&) = delete;
  LeaderElection& operator=(const LeaderElection&) = delete;

  // Starts the thread. Called once.
  void start();
  // Makes one attempt; false once the lease is lost. For tests, which own the clock.
  // Requires: start() was not called.
  bool turn();

  bool leads() const;
  // Returns the holder that the record named last.
  std::string holder() const;
  const std::string& identity() const { return options_.identity; }
  // Returns the current problem; "" if there is none.
  std::string problem() const;

 private:
  LeaderElection(const ServerAccess& access, ElectionOptions options, Won won, Lost lost);
  void run();
  void attempt();
  void write(const Candidate::Step& step);
  void note(const ApiError& error);
  void giveUp();

  const ElectionOptions options_;
  const Won won_;
  const Lost lost_;
  Api api_;

  mutable std::mutex mutex_;  // never held during a request
  std::condition_variable wake_;
  Candidate candidate_;
  std::string problem_;
  bool stopping_ = false;
  bool told_ = false;  // won_ was called
  bool over_ = false;  // lost_ was called
  std::thread thread_;
};

}  // namespace allot::kube
