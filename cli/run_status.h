#pragma once
// RunStatus: how a run is doing, as `allot status` tells it. Reading takes a store or exported
// files; the rest is pure. One thread.
#include <cstdint>
#include <functional>
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
  double evaluation_seconds = 0;  // of workers, in those
  std::string resume_command;     // of a run on this machine that has ended
  std::string arguments;          // that name this run to a command
  // Nothing of what follows is in exported files.
  std::optional<v1::AggregatorStatus> aggregator;
  Lease lease;
  std::vector<v1::WorkerBeat> workers;
  std::vector<Refusal> refusals;  // the last ones

  uint64_t maxUpdates() const;  // 0: the run learns nothing
};

// Whether there is anything to read: false while the processes of `allot run` come up.
Result<bool> hasBegun(RunAccess* access);
Result<RunStatus> readRunStatus(RunAccess* access);
// Of kind kFiles; store: null for files.
Result<RunStatus> readRunStatus(RunSource* source, RunReader* store);
// The same without the means over updates and what was refused.
Result<RunStatus> readRunState(RunAccess* access);

// Every evaluation of the run that can be one, to the end: nobody has looked at the newest yet.
Status eachEvaluation(RunSource* source, const RunHead& head,
                      const std::function<void(const v1::EvaluationResult&)>& take);
// Held-out accuracy of the newest learned schedule that is measured, at spec.policy.totalBudget:
// what spec.stop.goal is compared with. Reads the evaluations.
Result<std::optional<double>> learnedAccuracy(RunSource* source, const RunHead& head);

// What state the run is in, in one word.
std::string stateOf(const RunStatus& status);

// Why the run makes no progress and what would mend it; "" while it does or once it is finished.
std::string whyNotProgressing(const RunStatus& status);

// The document of /api/status (aggregator/page/status_document.h).
nlohmann::json statusJson(const RunStatus& status);
// Of a run whose aggregator has not come up yet.
nlohmann::json startingStatus(const std::string& run_id);
std::string statusText(const RunStatus& status, bool colour);

}  // namespace allot
