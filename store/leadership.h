#pragma once
// LeaseStore and Leadership: who leads a run, and what only the one who leads may write.
//
// A write under an epoch that is not the lease's any more is refused (kFenced): whoever meets that
// has been displaced and must leave. As a Store: one thread, and every call waits for its answer
// (store/store.h).
#include <string>
#include <vector>

#include "store/records.h"

namespace allot {

class LeaseStore {
 public:
  virtual ~LeaseStore() = default;

  // Takes or renews the lease for ttl_ms. Same holder keeps its epoch; a new holder gets epoch + 1.
  virtual Result<Lease> acquireLease(const std::string& holder, uint64_t ttl_ms) = 0;
  // Gives the lease up if `holder` still has it, so that a successor need not wait.
  virtual Status releaseLease(const std::string& holder) = 0;
  // New inbox entries, at most `count`, waiting at most wait_ms for the first. Entries that were
  // delivered before and neither consumed nor rejected come again after reopenInbox().
  virtual Result<std::vector<InboxEntry>> readInbox(size_t count, uint64_t wait_ms) = 0;
  virtual Status reopenInbox() = 0;

 private:
  friend class Leadership;  // nobody else writes here

  virtual Status publishInitial(uint64_t epoch, const v1::PolicySnapshot& policy,
                                const v1::AggregatorState& state) = 0;
  virtual Status writeState(uint64_t epoch, const v1::AggregatorState& state) = 0;
  virtual Status publishStatus(uint64_t epoch, const v1::AggregatorStatus& status) = 0;
  virtual Status commit(uint64_t epoch, const Commit& commit) = 0;
  virtual Status countTickets(uint64_t epoch, uint64_t from, uint64_t through,
                              const std::vector<uint64_t>& tickets) = 0;
  virtual Status reject(uint64_t epoch, const InboxEntry& entry, RefusalKind kind,
                        const std::string& reason) = 0;
  virtual Status rejectEvaluation(uint64_t epoch, const Evaluation& evaluation, RefusalKind kind,
                                  const std::string& reason, const v1::EvaluationUnit* reopen,
                                  uint64_t hold_ms) = 0;
  virtual Status reissueTicket(uint64_t epoch, uint64_t ticket) = 0;
  virtual Status resetTickets(uint64_t epoch, uint64_t next) = 0;
  virtual Status planUnits(uint64_t epoch, const std::vector<v1::EvaluationUnit>& units) = 0;
  virtual Status withdrawUnits(uint64_t epoch) = 0;
};

// What its holder writes under one epoch of the lease. A copy is the same leadership; the store
// outlives it.
class Leadership {
 public:
  Leadership(LeaseStore& store, uint64_t epoch) : store_(&store), epoch_(epoch) {}
  uint64_t epoch() const { return epoch_; }

  // Publishes version 0 with its state unless a policy exists.
  Status publishInitial(const v1::PolicySnapshot& policy, const v1::AggregatorState& state) const {
    return store_->publishInitial(epoch_, policy, state);
  }
  // Replaces the state without an update (e.g. evaluated_version); kInternal if it is not of the
  // published version.
  Status writeState(const v1::AggregatorState& state) const {
    return store_->writeState(epoch_, state);
  }
  Status publishStatus(const v1::AggregatorStatus& status) const {
    return store_->publishStatus(epoch_, status);
  }
  // All-or-nothing; kInternal if the version is not the expected one, a result does not wait or a
  // ticket has counted before.
  // A lost reply is told by reading the policy's digest again.
  Status commit(const Commit& commit) const { return store_->commit(epoch_, commit); }
  // Counts the tickets of the updates after version `from` and up to `through`, if
  // ticketsCountedThrough() is still `from`, else does nothing.
  Status countTickets(uint64_t from, uint64_t through, const std::vector<uint64_t>& tickets) const {
    return store_->countTickets(epoch_, from, through, tickets);
  }
  // Takes one entry out for good, into a bounded list of refused ones, and counts it under `kind`
  // once, however often the call is repeated.
  Status reject(const InboxEntry& entry, RefusalKind kind, const std::string& reason) const {
    return store_->reject(epoch_, entry, kind, reason);
  }
  // The same for a recorded evaluation. Its unit counts as not recorded afterwards; `reopen`, which
  // has that unit's id, makes it open again in the same step; nobody may claim it for hold_ms.
  Status rejectEvaluation(const Evaluation& evaluation, RefusalKind kind, const std::string& reason,
                          const v1::EvaluationUnit* reopen, uint64_t hold_ms) const {
    return store_->rejectEvaluation(epoch_, evaluation, kind, reason, reopen, hold_ms);
  }
  // Hands a lost ticket out again before new ones (synchronous runs cannot do without it).
  Status reissueTicket(uint64_t ticket) const { return store_->reissueTicket(epoch_, ticket); }
  // Sets the next ticket to hand out and forgets reissued ones (resuming a synchronous run).
  Status resetTickets(uint64_t next) const { return store_->resetTickets(epoch_, next); }
  // Adds units that were neither planned nor recorded before; others are left as they are.
  Status planUnits(const std::vector<v1::EvaluationUnit>& units) const {
    return store_->planUnits(epoch_, units);
  }
  // Forgets the units that are not recorded, claimed or not: what comes of them is kDuplicate. They
  // may be planned again.
  Status withdrawUnits() const { return store_->withdrawUnits(epoch_); }

 private:
  LeaseStore* store_;
  uint64_t epoch_;
};

}  // namespace allot
