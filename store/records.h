#pragma once
// What a store keeps of a run and gives out, and the bounds of it: data without behaviour.
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

// The part of a run that is fixed when its first result counts.
struct RunSpec {
  v1::Experiment experiment;  // as read, complete (core/spec/spec_schema.h)
  std::string sha256;         // of the canonical experiment as it was stored
  // Tickets of update v+1 are handed out only once version v is published.
  bool synchronous = false;
  uint64_t started_unix_ms = 0;
  std::optional<v1::Origin> origin = std::nullopt;  // of a fork
  std::string arithmetic = {};  // kArithmetic of the build that created it
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
// need less than 100 KiB. pushResult and pushEvaluation refuse larger ones (kUsage). The answers of
// an evaluation are not counted here: they have kLargestAnswers (core/evaluation/answers.h).
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
  // this entry: such a one can only be rejected. Its answers are in it if they were asked for.
  v1::EvaluationResult result = {};
  uint64_t answers_bytes = 0;  // that its answers take in the store, whether or not they are here
};

// What a worker asks for when it asks for tickets of episodes.
struct TicketRequest {
  uint64_t count = 1;           // at most so many
  uint64_t limit = UINT64_MAX;  // all of them below this one
  // Episodes that all live workers share: no more than an equal part of so many, and that part in
  // equal pieces. 0: no matter.
  uint64_t shared = 0;
  uint64_t from = 0;  // reissued tickets below it are of no use to anybody, and are forgotten
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

}  // namespace allot
