// The calls of the aggregator.

#include "tests/sim/faulty_store.h"

namespace allot::sim {

Result<Lease> FaultyStore::acquireLease(const std::string& holder, uint64_t ttl_ms) {
  return writing("acquireLease", kOften, [holder, ttl_ms, world = &world_](Store& s) {
    auto lease = s.acquireLease(holder, ttl_ms);
    world->ledger().led(holder, lease);
    return lease;
  });
}

Status FaultyStore::publishInitial(uint64_t epoch, const v1::PolicySnapshot& policy,
                                   const v1::AggregatorState& state) {
  return writingUnder(
      epoch, "publishInitial", kSometimes,
      [policy, state](const Leadership& leader) { return leader.publishInitial(policy, state); });
}

Status FaultyStore::writeState(uint64_t epoch, const v1::AggregatorState& state) {
  return writing("writeState", kSeldom, [epoch, state, world = &world_](Store& s) {
    const Status status = Leadership(s, epoch).writeState(state);
    world->ledger().wroteState(epoch, status);
    return status;
  });
}

Status FaultyStore::publishStatus(uint64_t epoch, const v1::AggregatorStatus& status) {
  // Before it arrives: what an aggregator has found it may act upon.
  world_.ledger().told(status);
  return writingUnder(epoch, "publishStatus", kOften,
                      [status](const Leadership& leader) { return leader.publishStatus(status); });
}

Status FaultyStore::commit(uint64_t epoch, const Commit& commit) {
  return writing("commit", kSeldom,
                 [epoch, commit, world = &world_, holder = process_.name](Store& s) {
                   const Status status = Leadership(s, epoch).commit(commit);
                   if (status) world->note("update", "", commit.record.version());
                   world->ledger().committed(holder, epoch, commit, status);
                   return status;
                 });
}

// Read when the answer is heard: as with Redis, an answer that is lost does not move the place.
Result<std::vector<InboxEntry>> FaultyStore::readInbox(size_t count, uint64_t wait_ms) {
  const Effect<Status> nothing = [](Store&) { return Status(); };
  ALLOT_TRY(reading("readInbox", nothing));
  auto entries = server_->readInbox(count, 0);
  if (!entries || !entries->empty() || wait_ms == 0) return entries;
  world_.sleep(world_.chance().below(wait_ms + 1));
  return server_->readInbox(count, 0);
}

// The place in the inbox is the client's own affair.
Status FaultyStore::reopenInbox() { return server_->reopenInbox(); }

Status FaultyStore::reject(uint64_t epoch, const InboxEntry& entry, RefusalKind kind,
                           const std::string& reason) {
  return writing("reject", [epoch, entry, kind, reason, world = &world_](Store& s) {
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
  return writing("rejectEvaluation", kSeldom,
                 [epoch, evaluation, kind, reason, unit, hold_ms, world = &world_](Store& s) {
                   const auto before = s.readRefusalCounts();
                   const Status status = Leadership(s, epoch).rejectEvaluation(
                       evaluation, kind, reason, unit ? &*unit : nullptr, hold_ms);
                   world->ledger().wroteUnder(epoch, "rejectEvaluation", status);
                   // A stranger may have deleted it.
                   if (*s.readRefusalCounts() == *before) return status;
                   world->ledger().evaluationRejected(evaluation, kind, status);
                   return status;
                 });
}

Status FaultyStore::acceptEvaluations(uint64_t epoch, const std::vector<Evaluation>& evaluations) {
  return writingUnder(epoch, "acceptEvaluations", kSeldom, [evaluations](const Leadership& leader) {
    return leader.acceptEvaluations(evaluations);
  });
}

Status FaultyStore::reissueTicket(uint64_t epoch, uint64_t ticket) {
  return writingUnder(epoch, "reissueTicket", kSeldom,
                      [ticket](const Leadership& leader) { return leader.reissueTicket(ticket); });
}

Result<std::vector<std::string>> FaultyStore::repair(uint64_t epoch, const KeyBounds& bounds) {
  auto mended = Leadership(*server_, epoch).repair(bounds);
  if (mended) world_.ledger().unitsLost(false);
  return mended;
}

Status FaultyStore::resetTickets(uint64_t epoch, uint64_t next) {
  return writingUnder(epoch, "resetTickets", kSeldom,
                      [next](const Leadership& leader) { return leader.resetTickets(next); });
}

Status FaultyStore::planUnits(uint64_t epoch, const std::vector<v1::EvaluationUnit>& units) {
  return writing("planUnits", kSeldom, [epoch, units, world = &world_](Store& s) {
    const Status status = Leadership(s, epoch).planUnits(units);
    world->ledger().wroteUnder(epoch, "planUnits", status);
    world->ledger().planned(units, status);
    return status;
  });
}

Result<std::vector<v1::AuditAnswers>> FaultyStore::exchangeAudits(
    uint64_t epoch, const std::vector<v1::AuditTasks>& tasks) {
  return writing("exchangeAudits", kOften, [epoch, tasks, world = &world_](Store& s) {
    auto answers = Leadership(s, epoch).exchangeAudits(tasks);
    if (answers) world->ledger().wroteUnder(epoch, "exchangeAudits", {});
    return answers;
  });
}

Status FaultyStore::withdrawUnits(uint64_t epoch) {
  return writingUnder(epoch, "withdrawUnits", kSeldom,
                      [](const Leadership& leader) { return leader.withdrawUnits(); });
}

}  // namespace allot::sim
