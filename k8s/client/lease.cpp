#include "k8s/client/lease.h"

#include <algorithm>
#include <utility>

namespace allot::kube {
namespace {

using nlohmann::json;

// A record may say anything; nobody is waited for longer.
constexpr int64_t kLongestLease = 3600;

}  // namespace

const Resource& leaseResource() {
  static const Resource resource{"coordination.k8s.io", "v1", "leases", "Lease"};
  return resource;
}

Status LeaseTimes::check() const {
  if (duration <= renew_deadline || renew_deadline * 5 <= retry * 6) {
    return badInput(
        "a lease's duration must be longer than its renew deadline, and that longer than 1.2 of "
        "its "
        "retry period");
  }
  return {};
}

Candidate::Candidate(ObjectName lease, std::string identity, LeaseTimes times)
    : lease_(std::move(lease)), identity_(std::move(identity)), times_(times) {}

Candidate::Step Candidate::next(TimePoint now, WallTime wall) const {
  if (!known_) return {Step::What::kRead};
  if (!isFree(now)) return {Step::What::kRead};
  return {record_ ? Step::What::kReplace : Step::What::kCreate, claim(wall)};
}

void Candidate::read(TimePoint now, std::optional<json> record) {
  known_ = true;
  record_ = std::move(record);
  if (!record_) {
    holder_.clear();
    return;
  }
  observe(now, *record_);
  if (renewed_at_ && holder_ != identity_) taken_from_us_ = true;
}

void Candidate::wrote(TimePoint began, json record) {
  known_ = true;
  record_ = std::move(record);
  observe(began, *record_);
  renewed_at_ = began;
}

void Candidate::observe(TimePoint now, const json& record) {
  const json* spec = memberAt(record, {"spec"});
  const json seen = spec != nullptr ? *spec : json();
  if (observed_ && seen == spec_) return;
  observed_ = true;
  spec_ = seen;
  changed_at_ = now;
  holder_ = textAt(spec_, {"holderIdentity"});
  holder_duration_ = std::chrono::seconds(
      std::clamp<int64_t>(numberAt(spec_, {"leaseDurationSeconds"}), 1, kLongestLease));
}

bool Candidate::isFree(TimePoint now) const {
  return !record_ || holder_.empty() || holder_ == identity_ ||
         now - changed_at_ > holder_duration_;
}

json Candidate::claim(WallTime wall) const {
  json object = record_ ? *record_
                        : json{{"apiVersion", leaseResource().apiVersion()},
                               {"kind", leaseResource().kind},
                               {"metadata", {{"namespace", lease_.space}, {"name", lease_.name}}}};
  const bool ours = record_ && holder_ == identity_;
  const std::string now = microTime(wall);
  json spec = memberAt(object, {"spec"}) != nullptr && object["spec"].is_object() ? object["spec"]
                                                                                  : json::object();
  spec["holderIdentity"] = identity_;
  spec["leaseDurationSeconds"] = times_.duration.count();
  spec["renewTime"] = now;
  if (!ours) {
    spec["acquireTime"] = now;
    spec["leaseTransitions"] =
        record_ ? std::max<int64_t>(0, numberAt(spec_, {"leaseTransitions"})) + 1 : 0;
  }
  object["spec"] = std::move(spec);
  return object;
}

bool Candidate::leads(TimePoint now) const {
  return renewed_at_ && !taken_from_us_ && now - *renewed_at_ < times_.renew_deadline;
}

bool Candidate::lost(TimePoint now) const { return renewed_at_ && !leads(now); }

std::optional<json> Candidate::release(TimePoint now, WallTime wall) const {
  if (!leads(now) || !record_) return std::nullopt;
  json object = claim(wall);
  object["spec"]["holderIdentity"] = "";
  object["spec"]["leaseDurationSeconds"] = 1;
  return object;
}

}  // namespace allot::kube
