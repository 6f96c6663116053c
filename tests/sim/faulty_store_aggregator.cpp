// The calls of the aggregator.
#include <optional>

#include "tests/sim/faulty_store.h"
#include "tests/sim/faulty_store_faults.h"

namespace allot::sim {

Result<Lease> FaultyStore::acquireLease(const std::string& holder, uint64_t ttl_ms) {
  return writing<Result<Lease>>(
      "acquireLease",
      [holder, ttl_ms, world = &world_](Store& s) {
        auto lease = s.acquireLease(holder, ttl_ms);
        world->ledger().led(holder, lease);
        return lease;
      },
      kOften);
}

Result<Lease> FaultyStore::readLease() {
  return reading<Result<Lease>>("readLease", [](Store& s) { return s.readLease(); });
}

Status FaultyStore::releaseLease(const std::string& holder) {
  return writing<Status>("releaseLease", [holder](Store& s) { return s.releaseLease(holder); });
}

Status FaultyStore::publishInitial(uint64_t epoch, const v1::PolicySnapshot& policy,
                                   const v1::AggregatorState& state) {
  return writing<Status>("publishInitial", [epoch, policy, state, world = &world_](Store& s) {
    const Status status = Leadership(s, epoch).publishInitial(policy, state);
    world->ledger().wroteUnder(epoch, "publishInitial", status);
    return status;
  });
}

Result<std::optional<v1::AggregatorState>> FaultyStore::readState() {
  return reading<Result<std::optional<v1::AggregatorState>>>(
      "readState", [](Store& s) { return s.readState(); });
}

Status FaultyStore::writeState(uint64_t epoch, const v1::AggregatorState& state) {
  return writing<Status>(
      "writeState",
      [epoch, state, world = &world_](Store& s) {
        const Status status = Leadership(s, epoch).writeState(state);
        world->ledger().wroteState(epoch, status);
        return status;
      },
      kSeldom);
}

Status FaultyStore::publishStatus(uint64_t epoch, const v1::AggregatorStatus& status) {
  return writing<Status>(
      "publishStatus",
      [epoch, status, world = &world_](Store& s) {
        const Status published = Leadership(s, epoch).publishStatus(status);
        world->ledger().wroteUnder(epoch, "publishStatus", published);
        return published;
      },
      kOften);
}

Result<std::optional<v1::AggregatorStatus>> FaultyStore::readStatus() {
  return reading<Result<std::optional<v1::AggregatorStatus>>>(
      "readStatus", [](Store& s) { return s.readStatus(); });
}

Status FaultyStore::commit(uint64_t epoch, const Commit& commit) {
  return writing<Status>(
      "commit",
      [epoch, commit, world = &world_, holder = process_.name](Store& s) {
        const Status status = Leadership(s, epoch).commit(commit);
        if (status) world->note("update", "", commit.record.version());
        world->ledger().committed(holder, epoch, commit, status);
        return status;
      },
      kSeldom);
}

Result<std::vector<v1::PolicySnapshot>> FaultyStore::readPolicies(uint64_t first, size_t count) {
  return reading<Result<std::vector<v1::PolicySnapshot>>>(
      "readPolicies", [first, count](Store& s) { return s.readPolicies(first, count); });
}

Result<std::vector<uint64_t>> FaultyStore::countedTickets(const std::vector<uint64_t>& tickets) {
  return reading<Result<std::vector<uint64_t>>>(
      "countedTickets", [tickets](Store& s) { return s.countedTickets(tickets); });
}

// Read when the answer is heard: as with Redis, an answer that is lost does not move the place.
Result<std::vector<InboxEntry>> FaultyStore::readInbox(size_t count, uint64_t wait_ms) {
  const Effect<Status> nothing = [](Store&) { return Status(); };
  ALLOT_TRY(reading<Status>("readInbox", nothing));
  auto entries = server_->readInbox(count, 0);
  if (!entries || !entries->empty() || wait_ms == 0) return entries;
  world_.sleep(world_.chance().below(wait_ms + 1));
  return server_->readInbox(count, 0);
}

// The place in the inbox is the client's own affair.
Status FaultyStore::reopenInbox() { return server_->reopenInbox(); }

Status FaultyStore::reject(uint64_t epoch, const InboxEntry& entry, RefusalKind kind,
                           const std::string& reason) {
  return writing<Status>("reject", [epoch, entry, kind, reason, world = &world_](Store& s) {
    const Status status = Leadership(s, epoch).reject(entry, kind, reason);
    world->ledger().wroteUnder(epoch, "reject", status);
    world->ledger().rejected(entry, kind, status);
    return status;
  });
}

Status FaultyStore::rejectEvaluation(uint64_t epoch, const Evaluation& evaluation, RefusalKind kind,
                                     const std::string& reason, const v1::EvaluationUnit* reopen,
                                     uint64_t hold_ms) {
  std::optional<v1::EvaluationUnit> unit;
  if (reopen != nullptr) unit = *reopen;
  return writing<Status>(
      "rejectEvaluation",
      [epoch, evaluation, kind, reason, unit, hold_ms, world = &world_](Store& s) {
        const Status status = Leadership(s, epoch).rejectEvaluation(
            evaluation, kind, reason, unit ? &*unit : nullptr, hold_ms);
        world->ledger().wroteUnder(epoch, "rejectEvaluation", status);
        world->ledger().evaluationRejected(evaluation, kind, status);
        return status;
      },
      kSeldom);
}

Result<uint64_t> FaultyStore::inboxSize() {
  return reading<Result<uint64_t>>("inboxSize", [](Store& s) { return s.inboxSize(); });
}

Status FaultyStore::reissueTicket(uint64_t epoch, uint64_t ticket) {
  return writing<Status>(
      "reissueTicket",
      [epoch, ticket, world = &world_](Store& s) {
        const Status status = Leadership(s, epoch).reissueTicket(ticket);
        world->ledger().wroteUnder(epoch, "reissueTicket", status);
        return status;
      },
      kSeldom);
}

Status FaultyStore::resetTickets(uint64_t epoch, uint64_t next) {
  return writing<Status>(
      "resetTickets",
      [epoch, next, world = &world_](Store& s) {
        const Status status = Leadership(s, epoch).resetTickets(next);
        world->ledger().wroteUnder(epoch, "resetTickets", status);
        return status;
      },
      kSeldom);
}

Status FaultyStore::planUnits(uint64_t epoch, const std::vector<v1::EvaluationUnit>& units) {
  return writing<Status>(
      "planUnits",
      [epoch, units, world = &world_](Store& s) {
        const Status status = Leadership(s, epoch).planUnits(units);
        world->ledger().wroteUnder(epoch, "planUnits", status);
        world->ledger().planned(units, status);
        return status;
      },
      kSeldom);
}

Status FaultyStore::withdrawUnits(uint64_t epoch) {
  return writing<Status>(
      "withdrawUnits",
      [epoch, world = &world_](Store& s) {
        const Status status = Leadership(s, epoch).withdrawUnits();
        world->ledger().wroteUnder(epoch, "withdrawUnits", status);
        return status;
      },
      kSeldom);
}

Result<uint64_t> FaultyStore::openUnits() {
  return reading<Result<uint64_t>>("openUnits", [](Store& s) { return s.openUnits(); });
}

Result<std::vector<v1::EvaluationUnit>> FaultyStore::listUnits() {
  return reading<Result<std::vector<v1::EvaluationUnit>>>("listUnits",
                                                          [](Store& s) { return s.listUnits(); });
}

Result<StoreFill> FaultyStore::fill() {
  return reading<Result<StoreFill>>("fill", [](Store& s) { return s.fill(); });
}

}  // namespace allot::sim
