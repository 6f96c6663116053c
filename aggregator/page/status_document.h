#pragma once
// The status of a run as one JSON document for programs. The aggregator serves it at /api/status,
// `allot status -o json` prints it, and an operator reads it. statusDocument() makes it from any
// reading of a run. Pure functions, any thread.
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "aggregator/snapshot.h"
#include "core/learning/history_summary.h"

namespace allot {

// This version may get more fields; no field changes its meaning or is removed.
inline constexpr char kStatusApiVersion[] = "cli.allot.dev/v1";
inline constexpr char kStatusKind[] = "Status";
// Upper bound of the document's bytes at /api/status, whatever foreign data it has.
inline constexpr size_t kLargestStatus = 160 * 1024;
inline constexpr size_t kStatusWorkers = 50;  // workers listed; all are counted
inline constexpr size_t kStatusRefusals = 5;  // newest refusals listed; all are counted

// The source and the time of a reading.
struct StatusReading {
  enum class From {
    kRun,    // a store in which processes may be at work
    kEnded,  // a run's folder without processes
    kFiles,  // an export
  };
  From from = From::kRun;
  uint64_t now_unix_ms = 0;
  std::string resume_command = {};  // of kEnded; else ""
  std::string arguments = {};       // that name the run in a command
  // The time of the last reading, and why there is no newer one; stale_why "": the reading is
  // current.
  uint64_t stale_since_unix_ms = 0;
  std::string stale_why = {};
};

// Returns spec.update.maxUpdates, or the number of updates made if that is larger; 0 without
// spec.update.
uint64_t maxUpdatesOf(const RunSnapshot& snapshot);

// Returns the tickets that are not answered. Nothing for a synchronous run, which gives such
// tickets to other workers, and before an update.
std::optional<UnansweredTickets> ticketsOf(const RunSnapshot& snapshot);

std::string stateWord(const RunSnapshot& snapshot, const StatusReading& reading);
// Returns why the run makes no progress, if that is known; "" for a finished run and for an export.
std::string whyNotProgressing(const RunSnapshot& snapshot, const StatusReading& reading);
// Names live workers of another build than the aggregator's, some of each build. "" if there are
// none or the aggregator's build is unknown. Sums of two builds may differ in the last bits, so
// that a synchronous run cannot be repeated exactly.
std::string otherBuilds(const RunSnapshot& snapshot);

// Returns consumed results by lag, up to the last class that has any: [{lag, results}].
nlohmann::json lagHistogram(const v1::AggregatorState& state);

// Returns the document, which docs/status.md describes. Fractions are strings of fixed digits, so
// that they change only if the run did.
nlohmann::json statusDocument(const RunSnapshot& snapshot, const StatusReading& reading);

}  // namespace allot
