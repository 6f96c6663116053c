#include "tests/sim/planted.h"

#include <algorithm>

#include "tests/sim/forwarding_store.h"

namespace allot::sim {
namespace {

// What the clients of one broken server share.
struct Shared {
  uint64_t calls = 0;
  std::vector<uint64_t> tickets;             // handed out last
  std::map<std::string, std::string> alias;  // entry id -> the name that the sound store knows
  std::set<std::string> settled;             // result ids consumed or refused
  std::shared_ptr<MemoryServer> server;
  std::string leader;
  uint64_t lease_ends = 0;                      // of the leader, by the server's clock
  std::map<std::string, uint64_t> claim_ends;   // by unit id
  std::set<std::string> beaten;                 // workers
  std::map<std::string, std::string> recorder;  // by unit id
};

struct Broken : ForwardingStore {
  Broken(std::unique_ptr<Store> inner, std::shared_ptr<Shared> shared)
      : ForwardingStore(std::move(inner)), shared_(std::move(shared)) {}

 protected:
  // Every n-th time.
  bool due(uint64_t n) { return ++shared_->calls % n == 0; }
  // The evaluations of settled units two times.
  Result<std::vector<Evaluation>> twice(Result<std::vector<Evaluation>> evaluations) const {
    if (!evaluations) return evaluations;
    std::vector<Evaluation> all;
    for (Evaluation& evaluation : *evaluations) {
      if (shared_->settled.contains(evaluation.result.unit().unit_id())) all.push_back(evaluation);
      all.push_back(std::move(evaluation));
    }
    return all;
  }

  std::shared_ptr<Shared> shared_;
};

// Publishes and records an update, and leaves what it consumed in the inbox.
struct CommitInParts final : Broken {
  using Broken::Broken;
  Status commit(uint64_t epoch, const Commit& commit) override {
    if (!due(3)) return Leadership(*inner_, epoch).commit(commit);
    Commit part = commit;
    part.consumed.clear();
    return Leadership(*inner_, epoch).commit(part);
  }
};

// Takes a result in again that it has: the sound store below gets it under another name, which is
// taken back wherever it shows.
struct PushAgain : Broken {
  using Broken::Broken;
  Result<PushOutcome> pushResult(const v1::EpisodeResult& result, uint64_t cap) override {
    auto outcome = inner_->pushResult(result, cap);
    if (!outcome || *outcome != PushOutcome::kDuplicate || !forgets(result.result_id())) {
      return outcome;
    }
    v1::EpisodeResult again = result;
    again.set_result_id(result.result_id() + "~" + std::to_string(++shared_->calls));
    return inner_->pushResult(again, cap);
  }

  Result<std::vector<InboxEntry>> readInbox(size_t count, uint64_t wait_ms) override {
    auto entries = inner_->readInbox(count, wait_ms);
    if (!entries) return entries;
    for (InboxEntry& entry : *entries) {
      const size_t tilde = entry.result_id.find('~');
      if (tilde == std::string::npos) continue;
      shared_->alias[entry.entry_id] = entry.result_id;
      entry.result_id.resize(tilde);
      v1::EpisodeResult result;
      if (!result.ParseFromString(entry.payload)) continue;
      result.set_result_id(entry.result_id);
      entry.payload = result.SerializeAsString();
    }
    return entries;
  }

  Status commit(uint64_t epoch, const Commit& commit) override {
    Commit real = commit;
    for (auto& [entry_id, result_id] : real.consumed) result_id = nameOf(entry_id, result_id);
    const Status status = Leadership(*inner_, epoch).commit(real);
    if (!status) return status;
    for (const auto& [entry_id, result_id] : commit.consumed) shared_->settled.insert(result_id);
    return status;
  }

  Status reject(uint64_t epoch, const InboxEntry& entry, RefusalKind kind,
                const std::string& reason) override {
    InboxEntry real = entry;
    real.result_id = nameOf(entry.entry_id, entry.result_id);
    return Leadership(*inner_, epoch).reject(real, kind, reason);
  }

 protected:
  virtual bool forgets(const std::string&) const { return true; }

 private:
  std::string nameOf(const std::string& entry_id, const std::string& result_id) const {
    const auto known = shared_->alias.find(entry_id);
    return known == shared_->alias.end() ? result_id : known->second;
  }
};

// Knows what waits, but not what was consumed.
struct ForgetSeen final : PushAgain {
  using PushAgain::PushAgain;

 protected:
  bool forgets(const std::string& id) const override { return shared_->settled.contains(id); }
};

struct FullIsAccepted final : Broken {
  using Broken::Broken;
  Result<PushOutcome> pushResult(const v1::EpisodeResult& result, uint64_t cap) override {
    auto outcome = inner_->pushResult(result, cap);
    if (outcome && *outcome == PushOutcome::kFull) return PushOutcome::kAccepted;
    return outcome;
  }
};

struct TicketTwice final : Broken {
  using Broken::Broken;
  Result<std::vector<uint64_t>> takeTickets(const TicketRequest& request) override {
    if (due(5) && !shared_->tickets.empty()) return shared_->tickets;
    auto tickets = inner_->takeTickets(request);
    if (tickets && !tickets->empty()) shared_->tickets = *tickets;
    return tickets;
  }
};

// A unit that comes a second time is recorded a second time.
struct UnitTwice final : Broken {
  using Broken::Broken;
  Result<PushOutcome> pushEvaluation(const v1::EvaluationResult& result) override {
    auto outcome = inner_->pushEvaluation(result);
    if (outcome && *outcome == PushOutcome::kDuplicate) {
      shared_->settled.insert(result.unit().unit_id());
    }
    return outcome;
  }
  Result<std::vector<Evaluation>> readEvaluations(const std::string& after, size_t count) override {
    return twice(inner_->readEvaluations(after, count));
  }
};

// A ticket counts as often as there are results of it.
struct ForgetTickets final : Broken {
  using Broken::Broken;
  Status commit(uint64_t epoch, const Commit& commit) override {
    Commit without = commit;
    without.tickets.clear();
    return Leadership(*inner_, epoch).commit(without);
  }
};

struct NoFence final : Broken {
  using Broken::Broken;
  Status writeState(uint64_t, const v1::AggregatorState& state) override {
    return Leadership(*inner_, inForce()).writeState(state);
  }
  Status commit(uint64_t, const Commit& commit) override {
    return Leadership(*inner_, inForce()).commit(commit);
  }
  Status reject(uint64_t, const InboxEntry& entry, RefusalKind kind,
                const std::string& reason) override {
    return Leadership(*inner_, inForce()).reject(entry, kind, reason);
  }
  Status planUnits(uint64_t, const std::vector<v1::EvaluationUnit>& units) override {
    return Leadership(*inner_, inForce()).planUnits(units);
  }
  Status withdrawUnits(uint64_t) override { return Leadership(*inner_, inForce()).withdrawUnits(); }
  Result<std::vector<std::string>> repair(uint64_t, const KeyBounds& bounds) override {
    return Leadership(*inner_, inForce()).repair(bounds);
  }

 private:
  uint64_t inForce() {
    const auto lease = inner_->readLease();
    return lease ? lease->epoch : 0;
  }
};

struct EndlessClaims final : Broken {
  using Broken::Broken;
  Result<std::vector<v1::EvaluationUnit>> claimUnits(const ClaimRequest& request) override {
    ClaimRequest endless = request;
    endless.lease_ms = uint64_t{1} << 48;
    return inner_->claimUnits(endless);
  }
};

// Hands out what another worker has claimed.
struct SharedClaims final : Broken {
  using Broken::Broken;
  Result<std::vector<v1::EvaluationUnit>> claimUnits(const ClaimRequest& request) override {
    auto units = inner_->claimUnits(request);
    if (!units || !units->empty()) return units;
    auto open = inner_->listUnits();
    if (open && open->size() > 1) open->resize(1);
    return open;
  }
};

struct NoRenewal final : Broken {
  using Broken::Broken;
  Status beat(const Heartbeat& heartbeat) override {
    Heartbeat bare = heartbeat;
    bare.units.clear();
    return inner_->beat(bare);
  }
};

struct RefusedUnitIsLost final : Broken {
  using Broken::Broken;
  Status rejectEvaluation(uint64_t epoch, const Evaluation& evaluation, RefusalKind kind,
                          const std::string& reason, const v1::EvaluationUnit*,
                          uint64_t hold_ms) override {
    return Leadership(*inner_, epoch).rejectEvaluation(evaluation, kind, reason, nullptr, hold_ms);
  }
};

// Believes the end of a lease, however far away a clock that was set back has put it.
struct LeaseEndBelieved final : Broken {
  using Broken::Broken;
  Result<Lease> acquireLease(const std::string& holder, uint64_t ttl_ms) override {
    const uint64_t now = shared_->server->now();
    if (!shared_->leader.empty() && shared_->leader != holder && shared_->lease_ends > now) {
      auto lease = inner_->readLease();
      const uint64_t epoch = lease ? lease->epoch : 0;
      return Lease{false, shared_->leader, epoch, shared_->lease_ends - now};
    }
    auto lease = inner_->acquireLease(holder, ttl_ms);
    if (lease && lease->held) {
      shared_->leader = holder;
      shared_->lease_ends = now + ttl_ms;
    }
    return lease;
  }
  Status releaseLease(const std::string& holder) override {
    if (shared_->leader == holder) shared_->leader.clear();
    return inner_->releaseLease(holder);
  }
};

// The same of claims, where no claim can end that late.
struct ClaimEndBelieved final : Broken {
  using Broken::Broken;
  Result<std::vector<v1::EvaluationUnit>> claimUnits(const ClaimRequest& request) override {
    auto units = inner_->claimUnits(request);
    if (!units) return units;
    const uint64_t now = shared_->server->now();
    std::vector<v1::EvaluationUnit> claimed, held;
    for (const auto& unit : *units) {
      uint64_t& ends = shared_->claim_ends[unit.unit_id()];
      (ends > now + 600'000 ? held : claimed).push_back(unit);
      if (ends <= now + 600'000) ends = now + request.lease_ms;
    }
    if (!held.empty()) (void)inner_->releaseUnits(request.holder, held);
    return claimed;
  }
  Status beat(const Heartbeat& heartbeat) override {
    for (const std::string& id : heartbeat.units) {
      shared_->claim_ends[id] = shared_->server->now() + heartbeat.claim_ms;
    }
    return inner_->beat(heartbeat);
  }
  Status releaseUnits(const std::string& holder,
                      const std::vector<v1::EvaluationUnit>& units) override {
    for (const auto& unit : units) shared_->claim_ends.erase(unit.unit_id());
    return inner_->releaseUnits(holder, units);
  }
};

// A server that has no room and takes some of what it should refuse whole.
struct TakesWhenFull : Broken {
  using Broken::Broken;
  Result<StoreFill> fill() override { return StoreFill(); }

 protected:
  bool isFull() const {
    const auto fill = inner_->fill();
    return fill && fill->limit_bytes > 0 && fill->used_bytes >= fill->limit_bytes;
  }
};

// Writes the policy and the record, and has no room to retire what they consumed.
struct FullInTheMiddle final : TakesWhenFull {
  using TakesWhenFull::TakesWhenFull;
  Status commit(uint64_t epoch, const Commit& commit) override {
    const Leadership leader(*inner_, epoch);
    if (!isFull()) return leader.commit(commit);
    Commit part = commit;
    part.consumed.clear();
    ALLOT_TRY(leader.commit(part));
    return fail(ErrorCode::kUnavailable, "the store is full");
  }
};

struct FullDropsResults final : TakesWhenFull {
  using TakesWhenFull::TakesWhenFull;
  Result<PushOutcome> pushResult(const v1::EpisodeResult& result, uint64_t cap) override {
    if (isFull()) return PushOutcome::kAccepted;
    return inner_->pushResult(result, cap);
  }
};

// Takes nothing that a worker made who counts as dead, and says that it does.
struct DeadAreNotHeard final : Broken {
  using Broken::Broken;
  Result<PushOutcome> pushResult(const v1::EpisodeResult& result, uint64_t cap) override {
    if (diedSince(result.worker())) return PushOutcome::kAccepted;
    return inner_->pushResult(result, cap);
  }
  Result<PushOutcome> pushEvaluation(const v1::EvaluationResult& result) override {
    if (diedSince(result.worker())) return PushOutcome::kAccepted;
    return inner_->pushEvaluation(result);
  }
  Status beat(const Heartbeat& heartbeat) override {
    shared_->beaten.insert(heartbeat.beat.worker());
    return inner_->beat(heartbeat);
  }

 private:
  // It has beaten once, and too long ago.
  bool diedSince(const std::string& worker) {
    if (!shared_->beaten.contains(worker)) return false;
    const auto living = inner_->listWorkers();
    return living && std::none_of(living->begin(), living->end(),
                                  [&](const auto& beat) { return beat.worker() == worker; });
  }
};

// Knows that a worker has recorded a unit, not that another one has who claimed it since.
struct UnitOncePerWorker final : Broken {
  using Broken::Broken;
  Result<PushOutcome> pushEvaluation(const v1::EvaluationResult& result) override {
    auto outcome = inner_->pushEvaluation(result);
    if (!outcome) return outcome;
    const std::string& unit = result.unit().unit_id();
    const auto known = shared_->recorder.emplace(unit, result.worker()).first;
    if (*outcome == PushOutcome::kDuplicate && known->second != result.worker()) {
      shared_->settled.insert(unit);
    }
    return outcome;
  }
  Result<std::vector<Evaluation>> readEvaluations(const std::string& after, size_t count) override {
    return twice(inner_->readEvaluations(after, count));
  }
};

template <typename Kind>
OpenStore plantOf() {
  auto shared = std::make_shared<Shared>();
  return [shared](const std::shared_ptr<MemoryServer>& server) -> std::unique_ptr<Store> {
    shared->server = server;
    return std::make_unique<Kind>(openMemoryStore(server), shared);
  };
}

}  // namespace

OpenStore soundStore() {
  return [](const std::shared_ptr<MemoryServer>& server) -> std::unique_ptr<Store> {
    return openMemoryStore(server);
  };
}

const std::vector<Planted>& plantedFaults() {
  static const std::vector<Planted> all = {
      {"commit-in-parts", "a commit is whole", plantOf<CommitInParts>},
      {"push-again", "a result is taken in once", plantOf<PushAgain>},
      {"forget-seen", "a result that was consumed is known for ever", plantOf<ForgetSeen>},
      {"full-is-accepted", "an acknowledged result is there", plantOf<FullIsAccepted>},
      {"ticket-twice", "a ticket is handed out once", plantOf<TicketTwice>},
      {"forget-tickets", "a ticket counts once", plantOf<ForgetTickets>},
      {"unit-twice", "a unit is recorded once", plantOf<UnitTwice>},
      {"no-fence", "an older epoch writes nothing", plantOf<NoFence>},
      {"endless-claims", "a claim runs out", plantOf<EndlessClaims>},
      {"shared-claims", "a unit is claimed by one worker at a time", plantOf<SharedClaims>},
      {"no-renewal", "a beat renews its worker's claims", plantOf<NoRenewal>},
      {"refused-unit-is-lost", "a unit that was refused is open again", plantOf<RefusedUnitIsLost>},
      {"lease-end-believed", "a clock set back makes no lease longer", plantOf<LeaseEndBelieved>},
      {"claim-end-believed", "a clock set back makes no claim last", plantOf<ClaimEndBelieved>},
      {"full-in-the-middle", "a full server refuses a commit whole", plantOf<FullInTheMiddle>},
      {"full-drops-results", "a full server accepts no result", plantOf<FullDropsResults>},
      {"dead-are-not-heard", "what a worker pushes that was thought dead is there",
       plantOf<DeadAreNotHeard>},
      {"unit-once-per-worker", "a unit is recorded once, whoever has claimed it since",
       plantOf<UnitOncePerWorker>},
  };
  return all;
}

}  // namespace allot::sim
