#pragma once
// RunSnapshot: the learner's state of a run, for page and report. Data only; any thread.
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/evaluation/evaluation_table.h"
#include "core/evaluation/fidelity_table.h"
#include "core/learning/history_summary.h"
#include "core/run_state.h"
#include "store/records.h"

namespace allot {

// A copy that its reader (page, report, terminal) may keep.
struct RunSnapshot {
  RunSpec run;
  std::optional<v1::ModelFacts> model;
  v1::Experiment experiment;  // in force
  Phase phase = Phase::kStarting;
  // Why the run makes no progress (Aggregator::whyWaiting()); empty if there is nothing to report.
  std::string waiting;
  std::string last_error;
  v1::AggregatorState state;
  std::vector<v1::IterationRecord> history;  // thinned (HistorySample)
  std::vector<EvaluationCell> cells;
  std::vector<FidelitySummary> fidelity;
  std::vector<v1::WorkerBeat> workers;
  std::map<std::string, uint64_t> refused;  // by kind
  std::string edit_refused;                 // see Aggregator::setEditRefused
  uint64_t open_units = 0;                  // evaluation units without an accepted evaluation
  uint64_t inbox_entries = 0;               // results in the inbox
  StoreFill store_fill = {};                // all zero: unknown
  std::string run_id = {};
  Desired desired = Desired::kRunning;
  Lease lease = {};                               // of the leader
  std::optional<v1::AggregatorStatus> told = {};  // of the aggregator that made this, or as stored
  std::vector<Refusal> refusals = {};             // the newest ones
  UpdateMeans first = {}, last = {};              // of the first ten updates, and of the last ten
  uint64_t last_update_unix_ms = 0;               // 0: none, or unknown
  double evaluation_seconds = 0;                  // of workers, for evaluations
  uint64_t tickets_reached = 0;  // the highest counted ticket that is known, + 1; 0: none
};

}  // namespace allot
