#pragma once
// The records of a run in a store, and their limits. Values; any thread.
#include <algorithm>
#include <cstdint>
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

// The part of a run that is fixed once an update or a recorded evaluation counts.
struct RunSpec {
  v1::Experiment experiment;  // complete, as parsed (core/spec/spec_schema.h)
  std::string sha256;         // of the canonical experiment as stored
  bool synchronous = false;   // tickets of update v+1 are issued only once version v is published
  uint64_t started_unix_ms = 0;
  std::optional<v1::Origin> origin = std::nullopt;  // of a fork
  std::string arithmetic = {};                      // kArithmetic of the build that created it
  // Of the build that created the run; `build` is empty if that is unknown.
  uint32_t schema = kSpecSchema;
  std::string build = {};
};

// The part of a run that may change while it runs.
struct Control {
  Desired desired = Desired::kRunning;
  v1::Experiment experiment;  // in force: that of RunSpec, with other live settings
  v1::Experiment file;        // the experiment file that was applied last
  uint64_t revision = 0;      // of this record; every change adds 1
};

struct PublishedPolicy {
  v1::PolicySnapshot snapshot;
  std::string sha256;  // hex, of the snapshot's bytes as stored
};

// An entry of the inbox. payload has not been checked; a worker writes an EpisodeResult.
struct InboxEntry {
  std::string entry_id;  // name of the entry in the store
  // The worker's name for it. Empty if no push made this entry: it can only be rejected.
  std::string result_id;
  std::string payload;  // empty if it has more than kLargestResult bytes
  uint64_t bytes = 0;   // size of the payload
};

// Bytes of the largest EpisodeResult or EvaluationResult; 4096 scores and 1024 entries need less
// than 100 KiB. pushResult and pushEvaluation refuse larger ones (kUsage). The answers of an
// evaluation have a separate limit, kLargestAnswers (core/evaluation/answers.h).
inline constexpr uint64_t kLargestResult = 256 * 1024;

// Returns the results in the inbox beyond which workers hold theirs back: `least`, or the results
// of two updates if those are more. With less than one update's results the run could never go on.
inline constexpr uint64_t kInboxEntries = 256;
inline uint64_t inboxCapacity(uint64_t least, const v1::Experiment& experiment) {
  return std::max<uint64_t>(least, 2 * uint64_t{experiment.spec().update().episodes_per_update()});
}
// Bytes of the largest beat, and of the largest model facts and unit, which any worker's account
// can write and other processes read.
inline constexpr uint64_t kLargestBeat = 4 * 1024;
inline constexpr uint64_t kLargestFacts = 64 * 1024;

struct Refusal {
  std::string result_id;
  std::string kind;    // one of kRefusalKinds
  std::string reason;  // a sentence
};

enum class PushOutcome { kAccepted, kDuplicate, kFull };

// The outcome of a replaceRun.
struct Replacement {
  enum class Outcome {
    kReplaced,
    kChanged,  // the control record has another revision: read it again
    kBegun,    // results count already; nothing was changed
  };
  Outcome outcome = Outcome::kReplaced;
  uint64_t updates = 0;      // kBegun: in the run's history
  uint64_t evaluations = 0;  // kBegun: recorded
};

struct Lease {
  bool held = false;          // acquireLease: by the caller; readLease: by any process
  std::string holder;         // "": none
  uint64_t epoch = 0;         // fencing token
  uint64_t remaining_ms = 0;  // time until it ends, by the server's clock
};

// A key of a run that was broken and is mended (Leadership::repair).
struct MendedKey {
  std::string name;
  std::string last_entry;  // of a stream whose entry ids were used up: its last entry now
};

// One atomic step from version v to v+1.
struct Commit {
  uint64_t expected_version = 0;  // v
  v1::PolicySnapshot policy;      // of version v+1
  v1::AggregatorState state;
  v1::IterationRecord record;
  std::vector<std::pair<std::string, std::string>> consumed;  // entry id, result id
  std::vector<uint64_t> tickets;          // of those results; each counts once in a run
  std::optional<uint64_t> forget_policy;  // version of a policy to delete
};

// The fill of the server, with all data of all runs.
struct StoreFill {
  uint64_t used_bytes = 0;
  uint64_t limit_bytes = 0;  // 0: no limit
  std::string policy = {};   // what it does beyond the limit: Redis's maxmemory-policy
};

struct Evaluation {
  std::string entry_id;  // to continue reading after it
  // Empty (no unit id) if it cannot be decoded, has more than kLargestResult bytes, or neither a
  // push nor an import made this entry: it can only be rejected.
  v1::EvaluationResult result = {};
  uint64_t answers_bytes = 0;  // size of its answers in the store, whether or not they were read
};

// A worker's request for tickets of episodes.
struct TicketRequest {
  uint64_t count = 1;           // most tickets
  uint64_t limit = UINT64_MAX;  // new tickets are below it
  // Episodes to be shared by the run's workers: a worker gets at most an equal part, in equal
  // pieces of at most `count`. 0: no sharing.
  uint64_t shared = 0;
  uint64_t from = 0;  // reissued tickets below it are obsolete: the store forgets them
};

// A worker's request for evaluation units.
struct ClaimRequest {
  std::string holder = {};          // the worker
  std::vector<uint32_t> warm = {};  // chunks whose prompts the worker has in memory
  uint64_t count = 1;               // most units
  uint64_t lease_ms = 0;  // length of the claim unless a beat renews it; at most ten minutes
};

// The content of a worker's heartbeat.
struct Heartbeat {
  v1::WorkerBeat beat = {};
  uint64_t ttl_ms = 0;                  // time for which the beat counts; at most ten minutes
  std::vector<std::string> units = {};  // ids; claims that this worker still has are renewed
  uint64_t claim_ms = 0;                // length of renewed claims from now on; at most ten minutes
  uint64_t patience_ms = 0;  // longest wait for an answer, if shorter than usual; 0: as usual
};

// The data of a run except its history and evaluations. An import writes it last.
struct RunImage {
  RunSpec spec;
  Control control;
  std::optional<v1::ModelFacts> model;
  std::optional<v1::AggregatorState> state;  // nothing if the run has not begun
  uint64_t next_ticket = 0;
  std::vector<v1::EvaluationUnit> open_units;
};

}  // namespace allot
