#pragma once
// MemoryServer and MemoryStore: the store without Redis, for simulation and tests. One thread. A
// MemoryServer holds one run. Every MemoryStore is one client of a MemoryServer, as every
// RedisStore is one client of a Redis. The injected clock may be set back. readInbox and awaitNews
// never wait.
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/learning/ticket_set.h"
#include "store/store.h"

namespace allot {

class MemoryServer {
 public:
  // The id of its run.
  static inline const std::string kRunId = "memory";

  // now_ms: returns the time of any clock, in milliseconds.
  explicit MemoryServer(std::function<uint64_t()> now_ms) : now_ms_(std::move(now_ms)) {}

  uint64_t now() const { return now_ms_(); }
  // Returns the newest 1000 rejected results and evaluations, the oldest first.
  const std::deque<Refusal>& refused() const { return refused_; }
  // Add to the inbox and to the recorded evaluations without the checks of a push, as a foreign
  // program could do in Redis. Injected evaluations, and results if `named`, take the name from the
  // entry that the push made for it.
  void injectIntoInbox(std::string result_id, std::string payload, std::string signature = {},
                       bool named = false);
  void injectEvaluation(const v1::EvaluationResult& result, std::string signature);
  // Deletes the recorded evaluations, or the open units, as a worker's account can in Redis.
  void loseRecorded() { recorded_.clear(); }
  void loseOpenUnits();
  // Removes all policies except the newest, as after an import.
  // Requires: there is a policy.
  void forgetOldPolicies();
  // Makes the next reject() do nothing and return kUnavailable.
  void loseNextReject() { lose_reject_ = true; }
  void setFill(StoreFill fill) { fill_ = fill; }

 private:
  friend class MemoryStore;

  struct Unit {
    v1::EvaluationUnit unit;
    uint64_t claimed_until_ms = 0;  // 0: free
    std::string holder = {};        // of the claim
  };
  struct Worker {
    v1::WorkerBeat beat;
    uint64_t dies_ms = 0;
  };
  struct Pushed {
    std::string result_id;
    std::string payload;
    std::string signature;
  };
  struct Recorded {
    v1::EvaluationResult result;
    std::string signature;
  };

  // Returns a server without a run, with this one's lease, workers, fill, news and last entry
  // numbers.
  MemoryServer withoutGathered() const;

  std::function<uint64_t()> now_ms_;
  std::optional<RunSpec> spec_;
  std::optional<v1::ModelFacts> model_;
  std::optional<Control> control_;
  std::string lease_holder_;  // empty: nobody
  uint64_t lease_epoch_ = 0;
  uint64_t lease_expires_ms_ = 0;
  uint64_t lease_ttl_ms_ = 0;
  std::optional<PublishedPolicy> policy_;
  std::optional<v1::AggregatorState> state_;
  std::optional<v1::AggregatorStatus> status_;
  std::map<uint64_t, v1::PolicySnapshot> policies_;  // by version
  TicketSet counted_tickets_;
  std::map<uint64_t, v1::IterationRecord> history_;  // by version
  std::map<uint64_t, Pushed> inbox_;                 // by number
  uint64_t last_entry_ = 0;
  bool lose_reject_ = false;
  StoreFill fill_;
  std::set<std::string> seen_;
  std::map<std::string, uint64_t> pending_;  // result id -> number of its inbox entry
  std::deque<Refusal> refused_;
  std::map<std::string, uint64_t> refused_counts_;  // by kind
  uint64_t next_ticket_ = 0;
  std::set<uint64_t> reissued_;
  std::map<std::string, v1::EvaluationUnit> planned_;  // by unit id; not accepted yet
  std::map<std::string, Unit> units_;                  // those of them that are not recorded
  // Free units as "group/unit", and each group's place in the order of claims (claim_units.lua).
  std::set<std::string> free_units_;
  std::map<std::string, uint64_t> free_groups_;
  std::map<uint64_t, Recorded> recorded_;                 // by number
  std::map<std::string, uint64_t> units_done_;            // unit id -> number of the recorded one
  std::map<uint64_t, v1::EvaluationResult> evaluations_;  // accepted ones, by number
  std::map<std::string, uint64_t> accepted_;              // unit id -> number of the accepted one
  uint64_t last_evaluation_ = 0;                          // of recorded and of accepted ones
  std::map<std::string, Worker> workers_;
  std::map<std::string, std::string> audits_;         // worker -> AuditTasks
  std::map<std::string, std::string> audit_answers_;  // worker -> AuditAnswers
  uint64_t news_ = 0;                                 // number of news so far
  uint64_t import_ = 0;                               // the current import, 0 if none
  uint64_t last_import_ = 0;
  uint64_t made_by_import_ = 0;  // the import that created the run
};

class MemoryStore final : public Store {
 public:
  explicit MemoryStore(std::shared_ptr<MemoryServer> server) : server_(std::move(server)) {}

  const std::string& runId() const override { return MemoryServer::kRunId; }
  Status createRun(const RunSpec& spec) override;
  Result<std::optional<RunSpec>> readSpec() override;
  Result<Replacement> replaceRun(const RunSpec& next, const Control& control) override;
  Result<v1::ModelFacts> agreeOnModel(const v1::ModelFacts& mine) override;
  Result<std::optional<v1::ModelFacts>> readModel() override;
  Result<std::optional<Control>> readControl() override;
  Result<bool> changeControl(const Control& next) override;

  Result<Lease> acquireLease(const std::string& holder, uint64_t ttl_ms) override;
  Result<Lease> readLease() override;
  Status releaseLease(const std::string& holder) override;
  Result<std::optional<v1::AggregatorState>> readState() override;
  Result<std::optional<v1::AggregatorStatus>> readStatus() override;
  Result<std::vector<v1::PolicySnapshot>> readPolicies(uint64_t first, size_t count) override;
  Result<std::vector<uint64_t>> countedTickets(const std::vector<uint64_t>& tickets) override;
  Result<std::vector<InboxEntry>> readInbox(size_t count, uint64_t wait_ms) override;
  Status reopenInbox() override;
  Result<std::vector<Evaluation>> readRecorded(size_t count) override;
  Result<uint64_t> inboxSize() override;
  Result<uint64_t> openUnits() override;
  Result<std::vector<v1::EvaluationUnit>> listUnits() override;
  Result<StoreFill> fill() override;

  Result<std::optional<PublishedPolicy>> readPolicy() override;
  void signAs(const WorkerIdentity& identity) override { identity_ = identity; }
  Result<std::vector<uint64_t>> takeTickets(const TicketRequest& request) override;
  Result<PushOutcome> pushResult(const v1::EpisodeResult& result, uint64_t cap) override;
  Result<std::vector<v1::EvaluationUnit>> claimUnits(const ClaimRequest& request) override;
  Status releaseUnits(const std::string& holder,
                      const std::vector<v1::EvaluationUnit>& units) override;
  Result<PushOutcome> pushEvaluation(const v1::EvaluationResult& result) override;
  Result<std::optional<v1::AuditTasks>> readAudits(const std::string& worker) override;
  Status answerAudits(const v1::AuditAnswers& answers) override;
  Status beat(const Heartbeat& heartbeat) override;
  Status leave(const std::string& worker) override;
  Result<bool> awaitNews(uint64_t wait_ms, const std::function<bool()>& stop) override;

  Result<std::vector<v1::WorkerBeat>> listWorkers() override;
  Result<std::vector<v1::IterationRecord>> readHistory(uint64_t after, size_t count) override;
  Result<std::vector<Evaluation>> readEvaluations(const std::string& after, size_t count) override;
  Result<std::vector<Evaluation>> readAnswers(const std::string& after, size_t count) override;
  Result<uint64_t> nextTicket() override;
  Result<std::map<std::string, uint64_t>> readRefusalCounts() override;
  Result<std::vector<Refusal>> readRefusals(size_t count) override;

  Status beginImport() override;
  Status importHistory(const std::vector<v1::IterationRecord>& records) override;
  Status importEvaluations(const std::vector<v1::EvaluationResult>& results) override;
  Status endImport(const RunImage& image) override;

 private:
  // Called only by Leadership.
  Status publishInitial(uint64_t epoch, const v1::PolicySnapshot& policy,
                        const v1::AggregatorState& state) override;
  Status writeState(uint64_t epoch, const v1::AggregatorState& state) override;
  Status publishStatus(uint64_t epoch, const v1::AggregatorStatus& status) override;
  Status commit(uint64_t epoch, const Commit& commit) override;
  Status reject(uint64_t epoch, const InboxEntry& entry, RefusalKind kind,
                const std::string& reason) override;
  Status rejectEvaluation(uint64_t epoch, const Evaluation& evaluation, RefusalKind kind,
                          const std::string& reason, const v1::EvaluationUnit* reopen,
                          uint64_t hold_ms) override;
  Status reissueTicket(uint64_t epoch, uint64_t ticket) override;
  Status resetTickets(uint64_t epoch, uint64_t next) override;
  Status acceptEvaluations(uint64_t epoch, const std::vector<Evaluation>& evaluations) override;
  Status planUnits(uint64_t epoch, const std::vector<v1::EvaluationUnit>& units) override;
  Status withdrawUnits(uint64_t epoch) override;
  Result<std::vector<v1::AuditAnswers>> exchangeAudits(
      uint64_t epoch, const std::vector<v1::AuditTasks>& tasks) override;
  Result<std::vector<std::string>> repair(uint64_t epoch, const KeyBounds& bounds) override;

  bool isRecorded(const std::string& unit_id) const;
  void accept(const v1::EvaluationResult& result);
  std::string signatureOf(std::string_view kind, std::string_view bytes) const;
  static bool lives(const MemoryServer::Worker& worker, uint64_t now);
  uint64_t leaseEnd(uint64_t now) const;
  Status checkEpoch(uint64_t epoch) const;
  Status checkVersion(uint64_t expected) const;
  Status checkImport() const;
  Status checkSpec() const;
  void refuse(const std::string& id, RefusalKind kind, const std::string& reason);
  void publish(const v1::PolicySnapshot& policy, const v1::AggregatorState& state);
  void plan(const v1::EvaluationUnit& unit, uint64_t hold_ms);
  void free(MemoryServer::Unit* unit);
  void freeEnded();
  std::optional<std::string> bestGroup(const std::vector<uint32_t>& warm) const;
  std::vector<MemoryServer::Unit*> take(const std::string& group, uint64_t count);

  std::shared_ptr<MemoryServer> server_;
  std::optional<WorkerIdentity> identity_;  // signs pushes
  std::string spec_sha256_;                 // of the spec that this client read or created last
  uint64_t inbox_cursor_ = 0;               // number of the last entry that readInbox returned
  uint64_t import_ = 0;                     // the import that beginImport started
  uint64_t news_heard_ = 0;
};

std::unique_ptr<MemoryStore> openMemoryStore(std::shared_ptr<MemoryServer> server);

}  // namespace allot
