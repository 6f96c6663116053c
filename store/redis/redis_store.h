#pragma once
// RedisStore: the store of one run in Redis 6.2 or newer.
//
// Owned by one thread of a worker, an aggregator or the command line, through openRedisStore().
// Each write is one Lua script (store/redis/lua) and atomic, with two exceptions: long lists go in
// several calls, and createRun() and endImport() write allot:index by a second script.
// store/README.md describes the keys.
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/learning/ticket_set.h"
#include "store/redis/redis_connection.h"
#include "store/store.h"

namespace allot {

class RedisStore final : public Store {
 public:
  RedisStore(RedisConnection connection, std::string run_id);

  const std::string& runId() const override { return run_id_; }
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

  std::string key(std::string_view name) const;
  std::string signatureOf(std::string_view kind, std::string_view bytes) const;
  // Runs a script with the keys that its first lines declare.
  Result<RedisReply> run(const RedisScript& script, const RedisConnection::Arguments& arguments);
  // Runs a script with the keys `names`, for a script whose keys differ between calls. kInternal if
  // the script does not declare them.
  Result<RedisReply> run(const RedisScript& script, const std::vector<std::string_view>& names,
                         const RedisConnection::Arguments& arguments);
  // Returns the error for a reply that none of our scripts returns.
  tl::unexpected<Error> unexpectedReply(std::string_view what) const;
  // Runs a script that takes the epoch first and replies OK or FENCED.
  Status runFenced(const RedisScript& script, uint64_t epoch, RedisConnection::Arguments arguments);
  Status fencedStatus(const RedisReply& reply, uint64_t epoch) const;
  // Decodes units, in order of unit id, except missing ones.
  static Result<std::vector<v1::EvaluationUnit>> toUnits(const RedisView& specs);
  Status importStatus(const RedisReply& reply) const;
  Status updateIndex(const std::string& experiment);
  struct StreamEntry {
    InboxEntry entry;
    std::string answers;  // of an evaluation
    uint64_t answers_bytes = 0;
  };
  // Returns entries of `stream` from `start` (as XRANGE has it) on, by read_entries.lua. `stream`
  // and `owners` are names without the run's prefix. Answers above largest_answers bytes are left
  // out.
  Result<std::vector<StreamEntry>> readEntries(std::string_view stream, std::string_view owners,
                                               const std::string& start, size_t count,
                                               uint64_t largest_answers);
  Result<std::vector<Evaluation>> readEvaluations(const std::string& after, size_t count,
                                                  uint64_t largest_answers);
  Result<std::vector<Evaluation>> readEvaluations(std::string_view stream, const std::string& start,
                                                  size_t count, uint64_t largest_answers);

  RedisConnection connection_;
  std::string run_id_;
  std::optional<WorkerIdentity> identity_;  // signs pushes
  std::string prefix_;
  std::string spec_sha256_;  // of the spec that this client read or created last
  // The last inbox entry that readInbox returned since reopenInbox.
  std::string inbox_cursor_ = "0-0";
  std::string units_cursor_ = "0";   // the planned units that repair looks at next
  std::string news_cursor_ = "0-0";  // the last entry of `news` that awaitNews reported
  std::string import_;               // the import that beginImport started, "" if none
};

}  // namespace allot
