#pragma once
// How a run is doing, as one JSON document for programs: what the aggregator serves at /api/status,
// what `allot status -o json` prints and what an operator reads. One function makes it, from
// whatever the run was read. Pure functions, any thread.
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "aggregator/snapshot.h"

namespace allot {

// Fields may be added to this version; none changes its meaning or goes.
inline constexpr char kStatusApiVersion[] = "cli.allot.dev/v1";
inline constexpr char kStatusKind[] = "Status";
// The document is smaller than this, whatever strangers wrote.
inline constexpr size_t kLargestStatus = 128 * 1024;
inline constexpr size_t kStatusWorkers = 50;  // workers listed; all are counted
inline constexpr size_t kStatusRefusals = 5;  // refusals listed; all are counted

// Who tells, and of what.
struct StatusReading {
  enum class From {
    kRun,    // a store that somebody may be at work in
    kEnded,  // a folder that nobody works in
    kFiles,  // an export
  };
  From from = From::kRun;
  uint64_t now_unix_ms = 0;
  std::string resume_command = {};  // of a run on this machine that has ended
  std::string arguments = {};       // that name the run to a command
  // Nothing newer has been read since, and why; "": this is new.
  uint64_t stale_since_unix_ms = 0;
  std::string stale_why = {};
};

uint64_t maxUpdatesOf(const RunSnapshot& snapshot);  // 0: the run learns nothing

// What state the run is in, in one word.
std::string stateWord(const RunSnapshot& snapshot, const StatusReading& reading);
// Why the run makes no progress and what would mend it; "" while it does or once it is finished.
std::string whyNotProgressing(const RunSnapshot& snapshot, const StatusReading& reading);
// Workers of another build than the aggregator's, as in the middle of an upgrade; "" if there are
// none. That stops nothing: what a worker sends is checked whatever made it, keys that it does not
// know have the value that means what it does (core/spec/spec_schema.h), and the two builds' scores
// are of the same task. Their floating-point sums may differ in the last bits, so that a
// synchronous run does not come out the same twice.
std::string otherBuilds(const RunSnapshot& snapshot);

// Consumed results by lag, from the first class to the last that has any: [{lag, results}].
nlohmann::json lagHistogram(const v1::AggregatorState& state);

// Fractions are strings of fixed digits, so that a document changes only where the run did; what is
// not known is null. docs/status.md has the fields.
nlohmann::json statusDocument(const RunSnapshot& snapshot, const StatusReading& reading);

}  // namespace allot
