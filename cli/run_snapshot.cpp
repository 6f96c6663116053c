#include "cli/run_snapshot.h"

#include <algorithm>

#include "core/evaluation/evaluation_check.h"
#include "core/learning/history_summary.h"

namespace allot {
namespace {

// What a run of files is at: nobody works on it.
Phase phaseOf(Desired desired) {
  if (desired == Desired::kFinished) return Phase::kFinished;
  return desired == Desired::kPaused ? Phase::kPaused : Phase::kStopped;
}

RunSnapshot snapshotOfHead(const RunHead& head) {
  RunSnapshot snapshot;
  snapshot.run = head.image.spec;
  snapshot.model = head.image.model;
  snapshot.experiment = head.image.control.experiment;
  snapshot.desired = head.image.control.desired;
  snapshot.phase = phaseOf(snapshot.desired);
  if (head.image.state) snapshot.state = *head.image.state;
  snapshot.refused = head.refused;
  snapshot.open_units = head.image.open_units.size();
  snapshot.inbox_entries = head.waiting_results;
  snapshot.run_id = head.run_id;
  return snapshot;
}

Status readAllUpdates(RunSource* source,
                      const std::function<void(const v1::IterationRecord&)>& each,
                      RunSnapshot* snapshot) {
  HistorySample history;
  while (true) {
    ALLOT_ASSIGN(auto records, source->nextRecords());
    if (records.empty()) break;
    for (v1::IterationRecord& record : records) {
      if (each) each(record);
      history.add(std::move(record));
    }
  }
  snapshot->history = history.records();
  snapshot->first = firstMeans(snapshot->history);
  snapshot->last = lastMeans(snapshot->history);
  if (!snapshot->history.empty()) {
    snapshot->last_update_unix_ms = snapshot->history.back().committed_unix_ms();
  }
  return {};
}

Result<uint64_t> readAllEvaluations(RunSource* source, const EvaluationBounds& bounds,
                                    RunSnapshot* snapshot) {
  EvaluationTable table(snapshot->run.experiment);
  FidelityTable fidelity(snapshot->run.experiment.spec());
  uint64_t last = 0;
  while (true) {
    ALLOT_ASSIGN(const auto results, source->nextEvaluations());
    if (results.empty()) break;
    for (const v1::EvaluationResult& result : results) {
      if (whyImpossible(result, bounds)) continue;
      table.add(result);
      fidelity.add(result);
      snapshot->evaluation_seconds += result.seconds();
      last = std::max(last, result.finished_unix_ms());
    }
  }
  snapshot->cells = table.cells();
  snapshot->fidelity = fidelity.summaries();
  return last;
}

}  // namespace

Result<ReadRun> readRun(RunSource* source,
                        const std::function<void(const v1::IterationRecord&)>& each) {
  ALLOT_ASSIGN(const RunHead head, source->readHead());
  ReadRun read{snapshotOfHead(head)};
  ALLOT_TRY(readAllUpdates(source, each, &read.snapshot));
  ALLOT_ASSIGN(const uint64_t evaluated, readAllEvaluations(source, head.bounds(), &read.snapshot));
  read.last_unix_ms = std::max(evaluated, read.snapshot.last_update_unix_ms);
  return read;
}

}  // namespace allot
