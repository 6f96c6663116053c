#include "k8s/client/leader_election.h"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <random>
#include <utility>

namespace allot::kube {
namespace {

using nlohmann::json;

// The longest duration, in s, that a record is believed.
constexpr int64_t kLongestLease = 3600;

using std::chrono::milliseconds;

// A pod that was restarted has the same name, and must not take its own predecessor for itself.
std::string ownIdentity() {
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) host[0] = '\0';
  std::random_device device;
  return fmt::format("{}_{:08x}{:08x}", host.data(), device(), device());
}

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

Result<std::unique_ptr<LeaderElection>> LeaderElection::create(const ServerAccess& access,
                                                               ElectionOptions options, Won won,
                                                               Lost lost) {
  ALLOT_TRY(options.times.check());
  if (options.identity.empty()) options.identity = ownIdentity();
  return std::unique_ptr<LeaderElection>(
      new LeaderElection(access, std::move(options), std::move(won), std::move(lost)));
}

LeaderElection::LeaderElection(const ServerAccess& access, ElectionOptions options, Won won,
                               Lost lost)
    : options_(std::move(options)),
      won_(std::move(won)),
      lost_(std::move(lost)),
      api_(access, options_.limits, options_.clock),
      candidate_(options_.lease, options_.identity, options_.times) {}

LeaderElection::~LeaderElection() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  // The request that goes on is let finish: its limits are short, and the connection is wanted once
  // more.
  if (thread_.joinable()) thread_.join();
  giveUp();
}

void LeaderElection::start() {
  thread_ = quietThread([this] { run(); });
}

void LeaderElection::run() {
  while (turn()) {
    // Candidates that were started together do not ask together for ever.
    const double longer = leads() ? 1 : 1 + options_.random() / 5;
    const auto pause = std::chrono::duration<double, std::milli>(
        static_cast<double>(options_.times.retry.count()) * longer);
    std::unique_lock lock(mutex_);
    if (wake_.wait_for(lock, pause, [this] { return stopping_; })) return;
  }
}

bool LeaderElection::turn() {
  attempt();
  bool tell_won = false;
  {
    const std::lock_guard lock(mutex_);
    if (over_) return false;
    const TimePoint now = options_.clock();
    over_ = candidate_.lost(now);
    tell_won = !over_ && !told_ && candidate_.leads(now);
    told_ = told_ || tell_won;
  }
  if (tell_won) {
    spdlog::info("leads: {} holds the lease {}", options_.identity, options_.lease.name);
    won_();
  }
  if (!over_) return true;
  const std::string other = holder();
  lost_("the lease " + options_.lease.name + " is lost" +
        (other.empty() || other == options_.identity
             ? ": it could not be renewed in time: " + problem()
             : " to " + serverText(other)));
  return false;
}

// Reads unless it may write, and then writes at once if it may.
void LeaderElection::attempt() {
  for (int i = 0; i < 2; ++i) {
    Candidate::Step step;
    {
      const std::lock_guard lock(mutex_);
      step = candidate_.next(options_.clock(), options_.wall_clock());
    }
    if (step.what != Candidate::Step::What::kRead) return write(step);
    if (i == 1) return;  // another one leads
    auto record = api_.get(leaseResource(), options_.lease);
    const std::lock_guard lock(mutex_);
    if (record) {
      candidate_.read(options_.clock(), std::move(*record));
      problem_.clear();
    } else if (record.error().notFound()) {
      candidate_.read(options_.clock(), std::nullopt);
    } else {
      return note(record.error());
    }
  }
}

void LeaderElection::write(const Candidate::Step& step) {
  const TimePoint began = options_.clock();
  auto record = step.what == Candidate::Step::What::kCreate
                    ? api_.create(leaseResource(), step.object)
                    : api_.replace(leaseResource(), step.object);
  const std::lock_guard lock(mutex_);
  if (record) {
    candidate_.wrote(began, std::move(*record));
    problem_.clear();
    return;
  }
  candidate_.failed();
  // Somebody was faster.
  if (!record.error().conflict()) note(record.error());
}

void LeaderElection::note(const ApiError& error) {
  candidate_.failed();
  if (problem_ != error.message)
    spdlog::warn("the lease {}: {}", options_.lease.name, error.message);
  problem_ = error.message;
}

void LeaderElection::giveUp() {
  const auto last = candidate_.release(options_.clock(), options_.wall_clock());
  if (!last) return;
  if (const auto released = api_.replace(leaseResource(), *last); !released) {
    spdlog::warn("the lease {} was not given up: {}", options_.lease.name,
                 released.error().message);
  }
}

bool LeaderElection::leads() const {
  const std::lock_guard lock(mutex_);
  return !over_ && candidate_.leads(options_.clock());
}

std::string LeaderElection::holder() const {
  const std::lock_guard lock(mutex_);
  return candidate_.holder();
}

std::string LeaderElection::problem() const {
  const std::lock_guard lock(mutex_);
  return problem_;
}

}  // namespace allot::kube
