#pragma once
// Candidate: the rules of leading by a Lease of coordination.k8s.io/v1, without the requests. Pure:
// LeaderElection sends the requests and reports their outcome. One thread.
//
// The record is changed by compare and swap on its resourceVersion. Another holder's lease is over
// when our steady clock says so, counted from the last change of the record that we saw. Times in
// the record are ignored, because clocks differ. A lease is no fence: a former leader may write
// once more after it has lost. The store's epoch rejects that write.
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
  std::chrono::seconds duration{15};                 // other candidates wait for it
  std::chrono::milliseconds renew_deadline{10'000};  // we lead for it after the last renewal
  std::chrono::milliseconds retry{2'000};            // between attempts
  // Returns kUsage unless duration > renew_deadline > 1.2 retry.
  Status check() const;
};

const Resource& leaseResource();

class Candidate {
 public:
  // identity: unique to this process, a pod's name and something random.
  Candidate(ObjectName lease, std::string identity, LeaseTimes times);

  struct Step {
    enum class What { kRead, kCreate, kReplace, kNothing };
    What what = What::kNothing;
    nlohmann::json object = {};  // to be written
  };
  // Returns the next step: read the record if it is unknown, write it if we may acquire or renew
  // the lease, nothing if another candidate leads.
  Step next(TimePoint now, WallTime wall) const;

  // Notes the record as read; nullopt: there is none.
  void read(TimePoint now, std::optional<nlohmann::json> record);
  // Notes a successful write. `began`: when the request was sent, since the server may count from
  // then.
  void wrote(TimePoint began, nlohmann::json record);
  // Notes a conflict or another failure: the record must be read again.
  void failed() { known_ = false; }

  // Returns true until the renew deadline after the last renewal.
  bool leads(TimePoint now) const;
  // Returns true if it has led and no longer does: the process must end.
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

  bool known_ = false;     // record_ is the server's last known one
  bool observed_ = false;  // a record was seen
  std::optional<nlohmann::json> record_;
  nlohmann::json spec_;     // the record's, at its last change
  TimePoint changed_at_{};  // by our clock
  std::string holder_;
  std::chrono::seconds holder_duration_{0};
  std::optional<TimePoint> renewed_at_;
  bool taken_from_us_ = false;
};

}  // namespace allot::kube
