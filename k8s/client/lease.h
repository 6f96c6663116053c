#pragma once
// Candidate: who leads, by a Lease of coordination.k8s.io/v1; the rules without the requests.
//
// The record is changed by compare and swap on its resourceVersion. Whether another's lease is over
// is judged by our own steady clock since we last saw the record change, never by the times in it,
// for clocks differ. A lease is no fence: who led may write once more after it has lost; the
// store's epoch is what keeps such a write out.
//
// Pure: LeaderElection does the requests and tells what became of them. One thread.
#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "k8s/client/api_error.h"
#include "k8s/client/micro_time.h"
#include "k8s/client/resource.h"
#include "k8s/client/server_access.h"

namespace allot::kube {

struct LeaseTimes {
  std::chrono::seconds duration{15};                 // others wait so long for us
  std::chrono::milliseconds renew_deadline{10'000};  // we lead so long after the last renewal
  std::chrono::milliseconds retry{2'000};            // between attempts
  // kUsage unless duration > renew_deadline > 1.2 retry.
  Status check() const;
};

const Resource& leaseResource();

class Candidate {
 public:
  // identity: of this process alone, a pod's name and something random.
  Candidate(ObjectName lease, std::string identity, LeaseTimes times);

  struct Step {
    enum class What { kRead, kCreate, kReplace, kNothing };
    What what = What::kNothing;
    nlohmann::json object = {};  // to be written
  };
  // What to do now: reading the record if we do not know it, writing it if it is ours to take or to
  // renew, nothing if another one leads.
  Step next(TimePoint now, WallTime wall) const;

  // nullopt: there is none.
  void read(TimePoint now, std::optional<nlohmann::json> record);
  // `began`: when the request was sent, for the server may have counted from then.
  void wrote(TimePoint began, nlohmann::json record);
  // A conflict, or whatever else went wrong: the record is to be read again.
  void failed() { known_ = false; }

  // Until the renew deadline after the last renewal.
  bool leads(TimePoint now) const;
  // It has led and does not any more: the process must end.
  bool lost(TimePoint now) const;
  // What to write in order to let another one in at once; nothing if we do not lead.
  std::optional<nlohmann::json> release(TimePoint now, WallTime wall) const;

  // Whoever the record named last.
  const std::string& holder() const { return holder_; }
  const std::string& identity() const { return identity_; }
  const ObjectName& lease() const { return lease_; }
  const LeaseTimes& times() const { return times_; }

 private:
  nlohmann::json claim(WallTime wall) const;
  void observe(TimePoint now, const nlohmann::json& record);
  // Nobody's, ours, or not renewed for as long as it says.
  bool isFree(TimePoint now) const;

  const ObjectName lease_;
  const std::string identity_;
  const LeaseTimes times_;

  bool known_ = false;     // record_ is what the server had when it was last asked
  bool observed_ = false;  // there was a record once
  std::optional<nlohmann::json> record_;
  nlohmann::json spec_;     // the record's, as it was last seen to change
  TimePoint changed_at_{};  // by our clock
  std::string holder_;
  std::chrono::seconds holder_duration_{0};
  std::optional<TimePoint> renewed_at_;
  bool taken_from_us_ = false;
};

}  // namespace allot::kube
