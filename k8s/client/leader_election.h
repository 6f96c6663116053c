#pragma once
// LeaderElection: competes for a Lease and holds it. It has its own thread and connection, so that
// no other request delays a renewal.
//
// Its owner passes two callbacks, `won` and `lost`. The election's thread calls each at most once.
// After `lost` the process must end (exit code 75) because another process may already lead. The
// destructor releases the lease if this process leads. leads(), holder() and problem() are for any
// thread.
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>

#include "k8s/client/api.h"
#include "k8s/client/api_error.h"
#include "k8s/client/list_watch.h"
#include "k8s/client/server_access.h"

namespace allot::kube {

struct LeaseTimes {
  std::chrono::seconds duration{15};                 // others wait that long after a renewal
  std::chrono::milliseconds renew_deadline{10'000};  // we lead that long after a renewal
  std::chrono::milliseconds retry{2'000};            // between attempts
  // Returns kUsage unless duration > renew_deadline > 1.2 * retry.
  Status check() const;
};

const Resource& leaseResource();

// The rules of leading by a Lease of coordination.k8s.io/v1, without the requests. Pure:
// LeaderElection sends the requests and reports their outcome. One thread.
//
// The record is changed by compare and swap on its resourceVersion. Another holder's lease is over
// once its duration has passed, on our steady clock, since we last saw the record change.
// Timestamps in the record are ignored, because clocks differ. A lease is no fence: a former leader
// may write once more after it has lost.
class Candidate {
 public:
  // identity: unique to this process, a pod's name and something random.
  Candidate(ObjectName lease, std::string identity, LeaseTimes times);

  struct Step {
    enum class What { kRead, kCreate, kReplace };
    What what = What::kRead;
    nlohmann::json object = {};  // to be written
  };
  // Returns the next step: write the record if it is known and we may acquire or renew the lease,
  // else read it.
  Step next(TimePoint now, WallTime wall) const;

  // Notes the record as read; nullopt: there is none.
  void read(TimePoint now, std::optional<nlohmann::json> record);
  // Notes a successful write. `began`: when the request was sent; the lease counts from then.
  void wrote(TimePoint began, nlohmann::json record);
  // Notes a conflict or another failure: the record must be read again.
  void failed() { known_ = false; }

  // Returns true until the renew deadline after the last renewal, unless another holder was read
  // since.
  bool leads(TimePoint now) const;
  // Returns true if this candidate has led and no longer does: the process must end.
  bool lost(TimePoint now) const;
  // Returns the record that releases the lease at once; nothing if we do not lead.
  std::optional<nlohmann::json> release(TimePoint now, WallTime wall) const;

  // Returns the holder that the record named last.
  const std::string& holder() const { return holder_; }
  const std::string& identity() const { return identity_; }
  const ObjectName& lease() const { return lease_; }
  const LeaseTimes& times() const { return times_; }

 private:
  nlohmann::json claim(WallTime wall) const;
  void observe(TimePoint now, const nlohmann::json& record);
  // Returns true if the lease is nobody's, ours, or was not renewed within its duration.
  bool isFree(TimePoint now) const;

  const ObjectName lease_;
  const std::string identity_;
  const LeaseTimes times_;

  bool known_ = false;     // record_ is what the server had last
  bool observed_ = false;  // a record was seen
  std::optional<nlohmann::json> record_;
  nlohmann::json spec_;     // the record's, at its last change
  TimePoint changed_at_{};  // by our clock
  std::string holder_;
  std::chrono::seconds holder_duration_{0};
  std::optional<TimePoint> renewed_at_;
  bool taken_from_us_ = false;
};

struct ElectionOptions {
  ObjectName lease;
  // Unique to this process; "": the host's name, which is the pod's, and random digits.
  std::string identity = {};
  LeaseTimes times = {};
  // Of each request. By default two requests fit into the renew deadline.
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

  // Creates an election that is not started. kUsage if options.times.check() fails.
  static Result<std::unique_ptr<LeaderElection>> create(const ServerAccess& access,
                                                        ElectionOptions options, Won won,
                                                        Lost lost);
  ~LeaderElection();
  LeaderElection(const LeaderElection&) = delete;
  LeaderElection& operator=(const LeaderElection&) = delete;

  // Starts the thread. Called once.
  void start();
  // Makes one attempt. Returns false once the lease is lost. Public for tests, which own the clock.
  // Requires: start() was not called.
  bool turn();

  bool leads() const;
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
