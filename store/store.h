#pragma once
// Store: everything that outlives a process of one run, behind one interface.
//
// RedisStore is the real one, MemoryStore its twin for simulation; both must pass
// tests/store/conformance.h. A Store belongs to one thread; every call blocks until it is answered
// or its deadline has passed (ErrorCode::kUnavailable: nothing is known about whether it took
// effect, which is why every writing call may simply be repeated).
// Keys, growth and the reasons behind them: store/README.md.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "allot/v1/experiment.pb.h"
#include "allot/v1/policy.pb.h"
#include "allot/v1/result.pb.h"
#include "core/refusal_kind.h"
#include "core/result.h"
#include "core/run_state.h"
#include "core/spec/spec_schema.h"

namespace allot {

class StoreObserver;

// The part of a run that is fixed when its first result counts.
struct RunSpec {
  v1::Experiment experiment;  // as read, complete (core/spec/spec_schema.h)
  std::string sha256;         // of the canonical experiment as it was stored
  bool synchronous =
      false;  // tickets of update v+1 are handed out only once version v is published
  uint64_t started_unix_ms = 0;
  std::optional<v1::Origin> origin = std::nullopt;  // of a fork
  std::string arithmetic = {};  // core/learning/exact_math.h, as the run was created; "": libm's
  // Of the build that created it; its name is empty if it was not yet stored then.
  uint32_t schema = kSpecSchema;
  std::string build = {};
};

// The part of a run that people change while it goes on.
struct Control {
  Desired desired = Desired::kRunning;
  v1::Experiment experiment;  // in force; differs from RunSpec's in live settings only
  v1::Experiment file;        // the experiment file that was taken up last
  uint64_t revision = 0;      // of this record; every change adds one
};

struct PublishedPolicy {
  v1::PolicySnapshot snapshot;
  std::string sha256;  // hex, of the snapshot's bytes as stored
};

// A result as it waits in the inbox; payload is an EpisodeResult that nobody has checked yet.
struct InboxEntry {
  std::string entry_id;  // the store's name for it
  // The worker's name for it. Empty if no push made this entry: such a one can only be rejected.
  std::string result_id;
  std::string payload;  // empty if it has more than kLargestResult bytes
  uint64_t bytes = 0;   // size of the payload
};

// An EpisodeResult or EvaluationResult is at most this large, in bytes; 4096 scores and 1024 layers
// need less than 100 KiB. pushResult and pushEvaluation refuse larger ones (kUsage).
inline constexpr uint64_t kLargestResult = 256 * 1024;

// Results that wait in the inbox before workers hold theirs back: `least`, and room for two
// updates, for less would be for ever too little for one.
inline constexpr uint64_t kInboxEntries = 256;
inline uint64_t inboxCapacity(uint64_t least, const v1::Experiment& experiment) {
  return std::max<uint64_t>(least, 2 * uint64_t{experiment.spec().update().episodes_per_update()});
}
// What workers write for others to read, beside results: a beat is at most this large, in bytes
// (a longer one goes without its last error), the model's facts and a unit at most that.
inline constexpr uint64_t kLargestBeat = 4 * 1024;
inline constexpr uint64_t kLargestFacts = 64 * 1024;

struct Refusal {
  std::string result_id;
  std::string kind;    // one of kRefusalKinds
  std::string reason;  // a sentence
};

enum class PushOutcome { kAccepted, kDuplicate, kFull };

// What became of a replaceRun.
struct Replacement {
  enum class Outcome {
    kReplaced,
    kChanged,  // the control record is of another revision: read it again
    kBegun,    // something counts already, and nothing was changed
  };
  Outcome outcome = Outcome::kReplaced;
  uint64_t updates = 0;      // kBegun: in its history
  uint64_t evaluations = 0;  // kBegun: recorded
};

struct Lease {
  bool held = false;          // acquireLease: by us; readLease: by anyone
  std::string holder;         // who holds it; "": nobody
  uint64_t epoch = 0;         // fencing token
  uint64_t remaining_ms = 0;  // by the server's clock
};

// One atomic step from version v to v+1.
struct Commit {
  uint64_t epoch = 0;             // of the lease; an older one is refused (kFenced)
  uint64_t expected_version = 0;  // v
  v1::PolicySnapshot policy;      // of version v+1
  v1::AggregatorState state;
  v1::IterationRecord record;
  std::vector<std::pair<std::string, std::string>> consumed;  // entry id, result id
  std::vector<uint64_t> tickets;          // of those results; each counts once in a run
  std::optional<uint64_t> forget_policy;  // the version of a policy that nobody asks for any more
};

// How full the server is, with all that it holds of all runs.
struct StoreFill {
  uint64_t used_bytes = 0;
  uint64_t limit_bytes = 0;  // 0: it has none
};

struct Evaluation {
  std::string entry_id;  // where to go on reading
  // Empty (no unit id) if it cannot be decoded, has more than kLargestResult bytes or no push made
  // this entry: such a one can only be rejected.
  v1::EvaluationResult result;
};

// What a worker asks for when it asks for evaluation units.
struct ClaimRequest {
  std::string holder = {};          // the worker
  std::vector<uint32_t> warm = {};  // chunks whose prompts are prefilled there
  uint64_t count = 1;               // at most so many
  uint64_t lease_ms = 0;            // afterwards others may claim them, unless a beat renews it
};

// What a worker's heartbeat carries.
struct Heartbeat {
  v1::WorkerBeat beat = {};
  uint64_t ttl_ms = 0;                  // so long it counts as alive
  std::vector<std::string> units = {};  // ids; claims that are still this worker's last claim_ms
  uint64_t claim_ms = 0;                // from now on
  uint64_t patience_ms = 0;  // longest wait for an answer, if less than for other calls; 0: as they
};

// All of a run but its history and evaluations: what an import writes last.
struct RunImage {
  RunSpec spec;
  Control control;
  std::optional<v1::ModelFacts> model;
  std::optional<v1::AggregatorState> state;  // with the policy; none: the run has not begun
  uint64_t next_ticket = 0;
  std::vector<v1::EvaluationUnit> open_units;
};

class Store {
 public:
  virtual ~Store() = default;

  // --- run ---
  // Creates the run; if it exists already with the same experiment digest, that is no error.
  // A different digest is refused (kUsage).
  virtual Status createRun(const RunSpec& spec) = 0;
  // What this client then agrees on and pushes is for the run as it was read here: should it be
  // replaced, agreeOnModel, pushResult and pushEvaluation are refused (kFenced) until it is read
  // again. kUsage if a newer build created the run.
  virtual Result<std::optional<RunSpec>> readSpec() = 0;
  // Until something counts (an update, a recorded evaluation): makes it a run of next.experiment,
  // as if it had been created so, with next.sha256, arithmetic, schema and build; mode, start and
  // origin stay. The control record becomes `control` if its revision is still that one. What the
  // run had gathered is dropped, and whoever leads it is fenced off.
  virtual Result<Replacement> replaceRun(const RunSpec& next, const Control& control) = 0;
  // Sets the model facts if nobody has; returns the facts in force.
  virtual Result<v1::ModelFacts> agreeOnModel(const v1::ModelFacts& mine) = 0;
  virtual Result<std::optional<v1::ModelFacts>> readModel() = 0;
  // Nothing before createRun, which writes revision 1: running, with the run's experiment.
  virtual Result<std::optional<Control>> readControl() = 0;
  // Replaces the record if its revision is still next.revision, and adds one to it. False: somebody
  // else changed it in between; read it again. (After a lost reply a second try gives false, too.)
  virtual Result<bool> changeControl(const Control& next) = 0;

  // --- aggregator ---
  // Takes or renews the lease for ttl_ms. Same holder keeps its epoch; a new holder gets epoch + 1.
  virtual Result<Lease> acquireLease(const std::string& holder, uint64_t ttl_ms) = 0;
  // Who leads now.
  virtual Result<Lease> readLease() = 0;
  // Gives the lease up if `holder` still has it, so that a successor need not wait.
  virtual Status releaseLease(const std::string& holder) = 0;
  // Publishes version 0 with its state unless a policy exists. Needs the lease's epoch (kFenced).
  virtual Status publishInitial(uint64_t epoch, const v1::PolicySnapshot& policy,
                                const v1::AggregatorState& state) = 0;
  virtual Result<std::optional<v1::AggregatorState>> readState() = 0;
  // Replaces the state without an update (e.g. evaluated_version). Needs the epoch (kFenced);
  // kInternal if the state is not of the published version.
  virtual Status writeState(uint64_t epoch, const v1::AggregatorState& state) = 0;
  virtual Status publishStatus(uint64_t epoch, const v1::AggregatorStatus& status) = 0;
  virtual Result<std::optional<v1::AggregatorStatus>> readStatus() = 0;
  // All-or-nothing; kFenced if the epoch is old, kInternal if the version is not the expected one,
  // a result does not wait or a ticket has counted before.
  // A lost reply is told by reading the policy's digest again.
  virtual Status commit(const Commit& commit) = 0;
  // The policies of versions first, ..., first + count - 1, ascending, as far as commits have kept
  // them: not those that one was told to forget, nor any that an older build committed (they are in
  // the history).
  virtual Result<std::vector<v1::PolicySnapshot>> readPolicies(uint64_t first, size_t count) = 0;
  // Those of these tickets that have counted in an update, ascending.
  virtual Result<std::vector<uint64_t>> countedTickets(const std::vector<uint64_t>& tickets) = 0;
  // The version up to which the tickets of all updates are known to countedTickets: behind the
  // policy's if an older build made updates.
  virtual Result<uint64_t> ticketsCountedThrough() = 0;
  // Counts the tickets of the updates after version `from` and up to `through`, if
  // ticketsCountedThrough() is still `from`, else does nothing. Needs the epoch (kFenced).
  virtual Status countTickets(uint64_t epoch, uint64_t from, uint64_t through,
                              const std::vector<uint64_t>& tickets) = 0;
  // New inbox entries, at most `count`, waiting at most wait_ms for the first. Entries that were
  // delivered before and neither consumed nor rejected come again after reopenInbox().
  virtual Result<std::vector<InboxEntry>> readInbox(size_t count, uint64_t wait_ms) = 0;
  virtual Status reopenInbox() = 0;
  // Takes one entry out for good, into a bounded list of refused ones, and counts it under `kind`
  // (one of kRefusalKinds) once, however often the call is repeated.
  virtual Status reject(uint64_t epoch, const InboxEntry& entry, const std::string& kind,
                        const std::string& reason) = 0;
  // The same for a recorded evaluation. Its unit counts as not recorded afterwards; `reopen`, which
  // has that unit's id, makes it open again in the same step; nobody may claim it for hold_ms.
  virtual Status rejectEvaluation(uint64_t epoch, const Evaluation& evaluation,
                                  const std::string& kind, const std::string& reason,
                                  const v1::EvaluationUnit* reopen, uint64_t hold_ms) = 0;
  virtual Result<uint64_t> inboxSize() = 0;
  // Hands a lost ticket out again before new ones (synchronous runs cannot do without it).
  // Needs the epoch (kFenced).
  virtual Status reissueTicket(uint64_t epoch, uint64_t ticket) = 0;
  // Sets the next ticket to hand out and forgets reissued ones (resuming a synchronous run). Needs
  // the epoch (kFenced).
  virtual Status resetTickets(uint64_t epoch, uint64_t next) = 0;
  // Adds units that were neither planned nor recorded before; others are left as they are.
  virtual Status planUnits(uint64_t epoch, const std::vector<v1::EvaluationUnit>& units) = 0;
  // Forgets the units that are not recorded, claimed or not: what comes of them is kDuplicate. They
  // may be planned again.
  virtual Status withdrawUnits(uint64_t epoch) = 0;
  // Units not yet recorded.
  virtual Result<uint64_t> openUnits() = 0;
  // The open ones; those that cannot be decoded or are larger than kLargestFacts are left out.
  virtual Result<std::vector<v1::EvaluationUnit>> listUnits() = 0;
  // kUsage where this user may not ask, as with accounts that an older build made.
  virtual Result<StoreFill> fill() = 0;

  // --- worker ---
  virtual Result<std::optional<PublishedPolicy>> readPolicy() = 0;
  // One reissued ticket, or else `count` consecutive new ones if all of them lie below `limit`;
  // empty: none for now.
  virtual Result<std::vector<uint64_t>> takeTickets(uint64_t count, uint64_t limit) = 0;
  // kFull when the inbox holds `cap` entries: keep the result and try later.
  virtual Result<PushOutcome> pushResult(const v1::EpisodeResult& result, uint64_t cap) = 0;
  // Claims open units of one (policy version, chunk): free ones before those whose claim has ended;
  // chunks in `warm` first, then the oldest version, then the chunk that was claimed from longest
  // ago. Fewer than `count` if the free ones would not last long for all workers. Empty: nothing
  // waits.
  virtual Result<std::vector<v1::EvaluationUnit>> claimUnits(const ClaimRequest& request) = 0;
  // Opens units again that `holder` claimed and will not do; what is recorded or claimed by another
  // one meanwhile is left alone.
  virtual Status releaseUnits(const std::string& holder,
                              const std::vector<v1::EvaluationUnit>& units) = 0;
  // Counts a unit once; kDuplicate if another worker was first, or if the unit was never planned.
  virtual Result<PushOutcome> pushEvaluation(const v1::EvaluationResult& result) = 0;
  virtual Status beat(const Heartbeat& heartbeat) = 0;
  virtual Status leave(const std::string& worker) = 0;  // a worker that goes in good order

  // Whether there is something new for a worker that has nothing to do: a policy, settings, units
  // or tickets to hand out, room in the inbox. Waits for it, at most wait_ms or until `stop`, which
  // is asked some ten times a second, says so. What was new once is not new again for this object.
  virtual Result<bool> awaitNews(uint64_t wait_ms, const std::function<bool()>& stop) = 0;

  // --- anyone ---
  // Beats that are too large (kLargestBeat) or cannot be decoded are left out.
  virtual Result<std::vector<v1::WorkerBeat>> listWorkers() = 0;
  // Records with version > after, oldest first, at most `count`; fewer where they are large: one,
  // and then as many as are 8 MiB together.
  virtual Result<std::vector<v1::IterationRecord>> readHistory(uint64_t after, size_t count) = 0;
  // Evaluations recorded after the entry ("" = from the start), at most `count`.
  virtual Result<std::vector<Evaluation>> readEvaluations(const std::string& after,
                                                          size_t count) = 0;
  virtual Result<uint64_t> nextTicket() = 0;
  // How many were refused, by kind; all of kRefusalKinds are there.
  virtual Result<std::map<std::string, uint64_t>> readRefusalCounts() = 0;
  // The last ones, newest first, at most `count`.
  virtual Result<std::vector<Refusal>> readRefusals(size_t count) = 0;

  // --- import: begin, history and evaluations in slices, end ---
  // Until the end nobody sees a run here; what an interrupted import left is forgotten. kUsage if
  // the run exists.
  virtual Status beginImport() = 0;
  // Records in order of version. Their results count as consumed.
  virtual Status importHistory(const std::vector<v1::IterationRecord>& records) = 0;
  virtual Status importEvaluations(const std::vector<v1::EvaluationResult>& results) = 0;
  virtual Status endImport(const RunImage& image) = 0;
};

// Opens the store of one run. url: see store/redis/redis_address.h.
// Does not fail when the server is away: each call then says so. observer: told of every request,
// and outlives the store; may be null.
Result<std::unique_ptr<Store>> openRedisStore(const std::string& url, const std::string& run_id,
                                              uint64_t timeout_ms = 5000,
                                              StoreObserver* observer = nullptr);
// The run that was created last under this experiment name, if any.
Result<std::optional<std::string>> findRun(const std::string& url, const std::string& experiment);
// The same; if there is none, `fresh` is noted as the newest run, which createRun is then to make.
// Whoever asks at the same moment gets the same run.
Result<std::string> findOrNameRun(const std::string& url, const std::string& experiment,
                                  const std::string& fresh);
// Experiment name -> newest run id.
Result<std::map<std::string, std::string>> listRuns(const std::string& url);

}  // namespace allot
