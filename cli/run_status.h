#pragma once
// RunStatus: the data of `allot status`. Reading needs a store or exported files. One thread.
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/run_access.h"
#include "core/evaluation/evaluation_table.h"
#include "core/learning/history_summary.h"
#include "core/result.h"
#include "store/store.h"

namespace allot {

struct RunStatus {
  RunAccess::Kind kind = RunAccess::Kind::kFiles;
  RunHead head;
  UpdateMeans first;  // the first ten updates
  UpdateMeans last;   // the last ten
  uint64_t last_update_unix_ms = 0;
  uint64_t now_unix_ms = 0;
  std::vector<EvaluationCell> cells;
  double evaluation_seconds = 0;  // of workers, for evaluations
  uint64_t tickets_reached = 0;   // as in RunSnapshot
  std::string resume_command;     // of a folder whose `allot run` has ended; else ""
  std::string arguments;          // that name this run in a command
  // The members below are empty for exported files.
  std::optional<v1::AggregatorStatus> aggregator;
  Lease lease;
  std::vector<v1::WorkerBeat> workers;
  std::vector<Refusal> refusals;  // the newest ones

  uint64_t maxUpdates() const;  // 0: the run learns nothing
};

// Returns true if there is a run to read. False while the processes of `allot run` start.
Result<bool> hasBegun(RunAccess* access);
Result<RunStatus> readRunStatus(RunAccess* access);
// As above, with `kind` kFiles and without `resume_command` and `arguments`. store: null for
// exported files.
Result<RunStatus> readRunStatus(RunSource* source, RunReader* store);
// As readRunStatus, without `first`, `last`, `last_update_unix_ms`, `refusals`, `cells` and
// `evaluation_seconds`.
Result<RunStatus> readRunState(RunAccess* access);

// Returns the held-out accuracy that spec.stop.goal is compared with: that of the newest learned
// schedule with a complete evaluation at spec.policy.totalBudget. Nothing if there is none. Reads
// the evaluations.
Result<std::optional<double>> learnedAccuracy(RunSource* source, const RunHead& head);

std::string stateOf(const RunStatus& status);

// Returns why the run makes no progress, if that is known; "" for a finished run and for an export.
std::string whyNotProgressing(const RunStatus& status);

// Returns the document of /api/status (aggregator/page/status_document.h).
nlohmann::json statusJson(const RunStatus& status);
// Returns the document of /api/status for a run whose aggregator has not started yet.
nlohmann::json startingStatus(const std::string& run_id);
std::string statusText(const RunStatus& status, bool colour);

}  // namespace allot
