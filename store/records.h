#pragma once
// The records of a run in a store, and their limits. Values; any thread.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
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

// The part of a run that is fixed once an update or an accepted evaluation counts.
struct RunSpec {
  v1::Experiment experiment;  // with all keys set (core/spec/spec_schema.h)
  std::string sha256;         // of the canonical experiment as stored
  bool synchronous = false;   // tickets of update v+1 are issued only once version v is published
  uint64_t started_unix_ms = 0;
  std::optional<v1::Origin> origin = std::nullopt;  // of a fork
  std::string arithmetic = {};                      // kArithmetic of the build that created the run
  // schema and build: of the build that created the run. `build` is empty if it is unknown.
  uint32_t schema = kSpecSchema;
  std::string build = {};
};

// The part of a run that may change while it runs.
struct Control {
  Desired desired = Desired::kRunning;
  v1::Experiment experiment;  // in force: that of RunSpec, with changed live settings
  v1::Experiment file;        // the experiment file that was applied last
  uint64_t revision = 0;      // of this record; every change adds 1
};

struct PublishedPolicy {
  v1::PolicySnapshot snapshot;
  std::string sha256;  // hex, of the snapshot's bytes as stored
};

// An entry of the inbox. The payload, an EpisodeResult if a worker wrote it, has not been checked.
struct InboxEntry {
  std::string entry_id;  // name of the entry in the store
  // The name that the worker gave the result. Empty if no pushResult() made this entry, which can
  // then only be rejected.
  std::string result_id;
  std::string payload;         // empty if it has more than kLargestResult bytes
  uint64_t bytes = 0;          // size of the payload
  std::string signature = {};  // of the payload, as its worker made it; has not been checked
};

// Kinds of what workers sign (core/worker_identity.h).
inline constexpr std::string_view kSignedResult = "result";
inline constexpr std::string_view kSignedEvaluation = "evaluation";
inline constexpr std::string_view kSignedAudit = "audit";
inline constexpr std::string_view kSignedBeat = "beat";

// Bytes of the largest EpisodeResult or EvaluationResult. One with 4096 scores and a schedule of
// 1024 entries needs less than 100 KiB. pushResult and pushEvaluation refuse larger ones (kUsage).
// The answers of an evaluation have a separate limit, kLargestAnswers (core/evaluation/answers.h).
inline constexpr uint64_t kLargestResult = 256 * 1024;

inline constexpr uint64_t kInboxEntries = 256;
// Returns the number of results in the inbox at which workers stop pushing theirs: `least` (usually
// kInboxEntries), or the results of two updates if those are more. An inbox with room for less than
// one update would stop the run.
inline uint64_t inboxCapacity(uint64_t least, const v1::Experiment& experiment) {
  return std::max<uint64_t>(least, 2 * uint64_t{experiment.spec().update().episodes_per_update()});
}
// Bytes of the largest beat and of the largest model facts, and the most workers of a run. Any
// worker's account can write these, and other processes read them.
inline constexpr uint64_t kLargestBeat = 4 * 1024;
inline constexpr uint64_t kLargestFacts = 64 * 1024;
inline constexpr uint64_t kMostWorkers = 4096;
inline constexpr uint64_t kLargestAudit = 64 * 1024;  // bytes of AuditAnswers

struct Refusal {
  std::string result_id;
  std::string kind;    // one of kRefusalKinds
  std::string reason;  // a sentence
};

enum class PushOutcome { kAccepted, kDuplicate, kFull };

struct Replacement {
  enum class Outcome {
    kReplaced,
    kChanged,  // the control record has another revision: read it again
    kBegun,    // results count already; nothing was changed
  };
  Outcome outcome = Outcome::kReplaced;
  uint64_t updates = 0;      // kBegun: in the run's history
  uint64_t evaluations = 0;  // kBegun: accepted
};

struct Lease {
  bool held = false;          // acquireLease: by the caller; readLease: by any process
  std::string holder;         // "": none
  uint64_t epoch = 0;         // fencing token
  uint64_t remaining_ms = 0;  // until the lease ends, by the server's clock
};

// What an honest run has at most, or at least, in keys that a worker's account can write
// (Leadership::repair).
struct KeyBounds {
  uint64_t tickets_handed_out = 0;  // at least
  uint64_t inbox_entries = kInboxEntries;
  uint64_t reissued_tickets = 0;
  bool end_claims = false;    // on units: other workers can claim them
  bool forget_model = false;  // its facts are impossible: a worker says them again
};

// One atomic step from version v to v+1.
struct Commit {
  uint64_t expected_version = 0;  // v
  v1::PolicySnapshot policy;      // of version v+1
  v1::AggregatorState state;
  v1::IterationRecord record;
  std::vector<std::pair<std::string, std::string>> consumed;  // entry id, result id
  std::vector<uint64_t> tickets;          // of the consumed results; each counts once in a run
  std::optional<uint64_t> forget_policy;  // version of a policy to delete
};

// The memory of the server, which all its runs share.
struct StoreFill {
  uint64_t used_bytes = 0;
  uint64_t limit_bytes = 0;  // 0: no limit
  std::string policy = {};   // what the server does beyond the limit: maxmemory-policy
};

struct Evaluation {
  std::string entry_id;  // the next read begins after this entry
  // Empty (no unit id) if the entry cannot be decoded, has more than kLargestResult bytes, or was
  // not made by a push. Such an entry can only be rejected.
  v1::EvaluationResult result = {};
  uint64_t answers_bytes = 0;  // size of the answers in the store, even if they were not read
  bool accepted = false;       // read by readEvaluations or readAnswers, not by readRecorded
  // From readRecorded(): the bytes that its worker signed, and the signature, which has not been
  // checked.
  std::string signed_bytes = {};
  std::string signature = {};
};

struct TicketRequest {
  uint64_t count = 1;           // most tickets
  uint64_t limit = UINT64_MAX;  // new tickets are below this number
  // Episodes that the run's workers share equally. A worker's part is cut into equal pieces of at
  // most `count`, and a call returns at most one piece. 0: no sharing.
  uint64_t shared = 0;
  uint64_t from = 0;  // the store forgets reissued tickets below this number: they are obsolete
};

struct ClaimRequest {
  std::string holder = {};          // the worker
  std::vector<uint32_t> warm = {};  // chunks whose prompts the worker has in memory
  uint64_t count = 1;               // most units
  uint64_t lease_ms = 0;  // length of the claim unless a beat renews it; at most ten minutes
};

struct Heartbeat {
  v1::WorkerBeat beat = {};
  uint64_t ttl_ms = 0;                  // time for which the beat counts; at most ten minutes
  std::vector<std::string> units = {};  // ids of units; the worker's claims on these are renewed
  uint64_t claim_ms = 0;                // length of renewed claims from now on; at most ten minutes
  uint64_t patience_ms = 0;             // shortens the call's time-out to this time; 0: does not
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
