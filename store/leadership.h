#pragma once
// LeaseStore and Leadership: the lease of a run's leader, and the writes that only the leader may
// do.
//
// A write with a stale epoch is refused (kFenced): the caller must stop leading. One thread; every
// call waits for its answer (store/store.h).
#include <string>
#include <vector>

#include "store/records.h"

namespace allot {

class LeaseStore {
 public:
  virtual ~LeaseStore() = default;

  // Acquires or renews the lease for ttl_ms. The holder keeps its epoch; a new holder gets the next
  // one. If another process holds the lease, returns that lease with held = false.
  virtual Result<Lease> acquireLease(const std::string& holder, uint64_t ttl_ms) = 0;
  // Releases the lease if `holder` has it, so that a successor need not wait.
  virtual Status releaseLease(const std::string& holder) = 0;
  // Returns inbox entries that this object has not returned yet, at most `count` and 8 MiB. Waits
  // at most wait_ms, and at most a minute, for the first entry. After reopenInbox(), entries that
  // were neither consumed nor rejected come again.
  virtual Result<std::vector<InboxEntry>> readInbox(size_t count, uint64_t wait_ms) = 0;
  virtual Status reopenInbox() = 0;
  // Returns the oldest recorded evaluations, at most `count` and 8 MiB, without their answers. They
  // come again until they are accepted or rejected.
  virtual Result<std::vector<Evaluation>> readRecorded(size_t count) = 0;

 private:
  friend class Leadership;  // the only caller of the functions below

  virtual Status publishInitial(uint64_t epoch, const v1::PolicySnapshot& policy,
                                const v1::AggregatorState& state) = 0;
  virtual Status writeState(uint64_t epoch, const v1::AggregatorState& state) = 0;
  virtual Status publishStatus(uint64_t epoch, const v1::AggregatorStatus& status) = 0;
  virtual Status commit(uint64_t epoch, const Commit& commit) = 0;
  virtual Status reject(uint64_t epoch, const InboxEntry& entry, RefusalKind kind,
                        const std::string& reason) = 0;
  virtual Status rejectEvaluation(uint64_t epoch, const Evaluation& evaluation, RefusalKind kind,
                                  const std::string& reason, const v1::EvaluationUnit* reopen,
                                  uint64_t hold_ms) = 0;
  virtual Status acceptEvaluations(uint64_t epoch, const std::vector<Evaluation>& evaluations) = 0;
  virtual Status reissueTicket(uint64_t epoch, uint64_t ticket) = 0;
  virtual Status resetTickets(uint64_t epoch, uint64_t next) = 0;
  virtual Status planUnits(uint64_t epoch, const std::vector<v1::EvaluationUnit>& units) = 0;
  virtual Status withdrawUnits(uint64_t epoch) = 0;
  virtual Result<std::vector<v1::AuditAnswers>> exchangeAudits(
      uint64_t epoch, const std::vector<v1::AuditTasks>& tasks) = 0;
  virtual Result<std::vector<std::string>> repair(uint64_t epoch, const KeyBounds& bounds) = 0;
};

// The writes of a lease's holder under one epoch. A copy writes under the same epoch.
// Requires: the store outlives every copy.
class Leadership {
 public:
  Leadership(LeaseStore& store, uint64_t epoch) : store_(&store), epoch_(epoch) {}
  uint64_t epoch() const { return epoch_; }

  // Publishes version 0 with its state unless a policy exists.
  Status publishInitial(const v1::PolicySnapshot& policy, const v1::AggregatorState& state) const {
    return store_->publishInitial(epoch_, policy, state);
  }
  // Replaces the state without an update, as for evaluated_version. kInternal if the state is not
  // of the published version.
  Status writeState(const v1::AggregatorState& state) const {
    return store_->writeState(epoch_, state);
  }
  Status publishStatus(const v1::AggregatorStatus& status) const {
    return store_->publishStatus(epoch_, status);
  }
  // Commits all or nothing. kInternal if expected_version is not the published one, a result is not
  // in the inbox under its entry, a ticket has counted before or the history has a later version.
  // If the reply is lost (kUnavailable), the published policy's digest tells whether the commit
  // took effect.
  Status commit(const Commit& commit) const { return store_->commit(epoch_, commit); }
  // Moves one inbox entry to a bounded list of refused ones and counts it under `kind`. A repeated
  // call does nothing.
  Status reject(const InboxEntry& entry, RefusalKind kind, const std::string& reason) const {
    return store_->reject(epoch_, entry, kind, reason);
  }
  // Rejects a recorded or an accepted evaluation in the same way. Its unit is then neither recorded
  // nor accepted, unless another entry is recorded or accepted for it. In the first case `reopen`
  // (that unit, or null) opens it again; nobody can claim it for hold_ms (at most ten minutes).
  Status rejectEvaluation(const Evaluation& evaluation, RefusalKind kind, const std::string& reason,
                          const v1::EvaluationUnit* reopen, uint64_t hold_ms) const {
    return store_->rejectEvaluation(epoch_, evaluation, kind, reason, reopen, hold_ms);
  }
  // Moves recorded evaluations to the accepted ones, which workers cannot write, each unit once:
  // other entries of the unit have no name then. Accepted units are no longer open.
  Status acceptEvaluations(const std::vector<Evaluation>& evaluations) const {
    return store_->acceptEvaluations(epoch_, evaluations);
  }
  // Makes takeTickets() hand out a lost ticket again, before new ones. Synchronous runs need every
  // ticket.
  Status reissueTicket(uint64_t ticket) const { return store_->reissueTicket(epoch_, ticket); }
  // Sets the next ticket and forgets reissued ones, to resume a synchronous run.
  Status resetTickets(uint64_t next) const { return store_->resetTickets(epoch_, next); }
  // Opens those units that are neither open, nor recorded, nor accepted.
  Status planUnits(const std::vector<v1::EvaluationUnit>& units) const {
    return store_->planUnits(epoch_, units);
  }
  // Forgets all open units, claimed or not: pushEvaluation() of their results returns kDuplicate.
  // These units may be planned again.
  Status withdrawUnits() const { return store_->withdrawUnits(epoch_); }
  // Replaces what workers are asked to answer again by `tasks`, at most one entry a worker, and
  // returns and deletes the answers of these workers, whatever tasks the answers are to.
  // Undecodable answers and those above kLargestAudit bytes are left out; signatures are not
  // checked.
  Result<std::vector<v1::AuditAnswers>> exchangeAudits(
      const std::vector<v1::AuditTasks>& tasks) const {
    return store_->exchangeAudits(epoch_, tasks);
  }
  // Mends keys that a process with a worker's account broke, and returns their names: keys of a
  // wrong type, keys with more than an honest run has in them, streams whose entry ids are used up
  // and ticket counts that no run reaches. Opens planned units again that are neither open nor
  // recorded, of many units some in each call. If a name is returned, call reopenInbox().
  Result<std::vector<std::string>> repair(const KeyBounds& bounds) const {
    return store_->repair(epoch_, bounds);
  }

 private:
  LeaseStore* store_;
  uint64_t epoch_;
};

}  // namespace allot
