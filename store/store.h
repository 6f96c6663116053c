#pragma once
// Store: everything that outlives a process of one run, behind one interface.
//
// RedisStore is the real one, MemoryStore its twin for simulation; both must pass
// tests/store/conformance.h. A Store belongs to one thread; every call blocks until it is answered
// or its deadline has passed (ErrorCode::kUnavailable: nothing is known about whether it took
// effect, which is why every writing call may simply be repeated).
// Keys, growth and the reasons behind them: store/README.md.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "allot/v1/experiment.pb.h"
#include "allot/v1/policy.pb.h"
#include "allot/v1/result.pb.h"
#include "core/result.h"

namespace allot {

// The part of a run that is fixed when it starts.
struct RunSpec {
  v1::Experiment experiment;
  std::string sha256;  // of the canonical experiment
  bool synchronous =
      false;  // tickets of update v+1 are handed out only once version v is published
  uint64_t started_unix_ms = 0;
};

struct PublishedPolicy {
  v1::PolicySnapshot snapshot;
  std::string sha256;  // hex, of the snapshot's bytes as stored
};

// A result as it waits in the inbox; payload is an EpisodeResult that nobody has checked yet.
struct InboxEntry {
  std::string entry_id;   // the store's name for it
  std::string result_id;  // the worker's name for it
  std::string payload;
};

enum class PushOutcome { kAccepted, kDuplicate, kFull };

struct Lease {
  bool held = false;   // by us
  std::string holder;  // who holds it
  uint64_t epoch = 0;  // fencing token
};

// One atomic step from version v to v+1.
struct Commit {
  uint64_t epoch = 0;             // of the lease; an older one is refused (kFenced)
  uint64_t expected_version = 0;  // v
  v1::PolicySnapshot policy;      // of version v+1
  v1::AggregatorState state;
  v1::IterationRecord record;
  std::vector<std::pair<std::string, std::string>> consumed;  // entry id, result id
};

struct Evaluation {
  std::string entry_id;  // where to go on reading
  v1::EvaluationResult result;
};

class Store {
 public:
  virtual ~Store() = default;

  // --- run ---
  // Creates the run; if it exists already with the same experiment digest, that is no error.
  // A different digest is refused (kUsage).
  virtual Status createRun(const RunSpec& spec) = 0;
  virtual Result<std::optional<RunSpec>> readSpec() = 0;
  // Sets the model facts if nobody has; returns the facts in force.
  virtual Result<v1::ModelFacts> agreeOnModel(const v1::ModelFacts& mine) = 0;
  virtual Result<std::optional<v1::ModelFacts>> readModel() = 0;
  // What the run should do: "running", "paused", "stopped" (by a person) or "finished".
  virtual Result<std::string> readDesired() = 0;
  virtual Status setDesired(const std::string& desired) = 0;

  // --- aggregator ---
  // Takes or renews the lease for ttl_ms. Same holder keeps its epoch; a new holder gets epoch + 1.
  virtual Result<Lease> acquireLease(const std::string& holder, uint64_t ttl_ms) = 0;
  // Gives the lease up if `holder` still has it, so that a successor need not wait.
  virtual Status releaseLease(const std::string& holder) = 0;
  // Publishes version 0 with its state unless a policy exists. Needs the lease's epoch (kFenced).
  virtual Status publishInitial(uint64_t epoch, const v1::PolicySnapshot& policy,
                                const v1::AggregatorState& state) = 0;
  virtual Result<std::optional<v1::AggregatorState>> readState() = 0;
  // Replaces the state without an update (e.g. evaluated_version). Needs the epoch (kFenced).
  virtual Status writeState(uint64_t epoch, const v1::AggregatorState& state) = 0;
  // All-or-nothing; kFenced if the epoch is old, kInternal if the version is not the expected one.
  // A lost reply is told by reading the policy's digest again.
  virtual Status commit(const Commit& commit) = 0;
  // New inbox entries, at most `count`, waiting at most wait_ms for the first. Entries that were
  // delivered before and neither consumed nor rejected come again after reopenInbox().
  virtual Result<std::vector<InboxEntry>> readInbox(size_t count, uint64_t wait_ms) = 0;
  virtual Status reopenInbox() = 0;
  // Takes one entry out for good, into a bounded list of refused ones with the reason.
  virtual Status reject(uint64_t epoch, const InboxEntry& entry, const std::string& reason) = 0;
  virtual Result<uint64_t> inboxSize() = 0;
  // Hands a lost ticket out again before new ones (synchronous runs cannot do without it).
  virtual Status reissueTicket(uint64_t ticket) = 0;
  // Sets the next ticket to hand out and forgets reissued ones (resuming a synchronous run).
  virtual Status resetTickets(uint64_t next) = 0;
  // Adds units that were neither planned nor recorded before; others are left as they are.
  virtual Status planUnits(uint64_t epoch, const std::vector<v1::EvaluationUnit>& units) = 0;
  // Units not yet recorded.
  virtual Result<uint64_t> openUnits() = 0;

  // --- worker ---
  virtual Result<std::optional<PublishedPolicy>> readPolicy() = 0;
  // One reissued ticket, or else `count` consecutive new ones if all of them lie below `limit`;
  // empty: none for now.
  virtual Result<std::vector<uint64_t>> takeTickets(uint64_t count, uint64_t limit) = 0;
  // kFull when the inbox holds `cap` entries: keep the result and try later.
  virtual Result<PushOutcome> pushResult(const v1::EpisodeResult& result, uint64_t cap) = 0;
  // Claims, for lease_ms, every open unit of one (policy version, chunk), preferring chunks in
  // `warm` (their prompts are prefilled here), oldest version first. Empty: nothing waits.
  virtual Result<std::vector<v1::EvaluationUnit>> claimUnits(const std::vector<uint32_t>& warm,
                                                             uint64_t lease_ms) = 0;
  // Opens claimed units again that this worker will not do; recorded ones are left alone.
  virtual Status releaseUnits(const std::vector<v1::EvaluationUnit>& units) = 0;
  // Counts a unit once; kDuplicate if another worker was first.
  virtual Result<PushOutcome> pushEvaluation(const v1::EvaluationResult& result) = 0;
  virtual Status beat(const v1::WorkerBeat& beat, uint64_t ttl_ms) = 0;
  virtual Status leave(const std::string& worker) = 0;  // a worker that goes in good order

  // --- anyone ---
  virtual Result<std::vector<v1::WorkerBeat>> listWorkers() = 0;
  // Records with version > after, oldest first, at most `count`.
  virtual Result<std::vector<v1::IterationRecord>> readHistory(uint64_t after, size_t count) = 0;
  // Evaluations recorded after the entry ("" = from the start), at most `count`.
  virtual Result<std::vector<Evaluation>> readEvaluations(const std::string& after,
                                                          size_t count) = 0;
};

// Opens the store of one run. url: "unix:/path/redis.sock" or "redis://host:port".
// Does not fail when the server is away: each call then says so.
Result<std::unique_ptr<Store>> openRedisStore(const std::string& url, const std::string& run_id,
                                              uint64_t timeout_ms = 5000);
// The run that was created last under this experiment name, if any.
Result<std::optional<std::string>> findRun(const std::string& url, const std::string& experiment);

}  // namespace allot
