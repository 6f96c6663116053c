#pragma once
// Export, import and verification of a run as files. An exported folder has
//  - export.json: a v1::RunExport with settings, model, last state and open units;
//  - history.jsonl: one v1::IterationRecord a line, every update with the results that it consumed;
//  - evaluations.jsonl: one v1::EvaluationResult a line;
//  - updates.csv, episodes.csv, evaluations.csv: the same for people; allot does not read them.
// The JSON is exact to the bit (store/archive/exact_json.h). export.json is written last and says
// which version the export reaches. Later lines, which an interrupted export leaves, are no part of
// the run: exportRun() from the folder leaves them out, verifyRun() and importRun() refuse them.
// Results in the inbox are not exported; an imported run never has results of their tickets.
//
// Functions block and work on the caller's thread, which alone may use their source or store
// meanwhile. Errors of the source or store are returned as they are. Functions that compute updates
// again take memory that grows with the run: about 120 bytes a result and 500 bytes an evaluation
// unit.
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/files/files.h"
#include "core/learning/replay.h"
#include "core/result.h"
#include "store/archive/archive_files.h"
#include "store/archive/plan_check.h"
#include "store/archive/run_source.h"
#include "store/store.h"

namespace allot {

// Is called after each slice of updates with the updates done and those to be done in all.
using ArchiveProgress = std::function<void(uint64_t done, uint64_t all)>;

struct ExportSummary {
  uint64_t updates = 0;
  uint64_t new_updates = 0;  // not in the folder before
  uint64_t results = 0;
  uint64_t evaluations = 0;
  uint64_t waiting_results = 0;  // in the inbox, not exported
};

// Writes the run into `folder`, which is made if needed, or updates an earlier export of this run:
// history.jsonl only grows, the other files are replaced. kUsage if the folder has another run or a
// later state of this run, or if another process writes there. kData if history.jsonl does not end
// with an update. kIo if a file cannot be written. After an error export.json is as before; other
// files may be newer.
Result<ExportSummary> exportRun(RunSource* source, const std::string& folder,
                                const ArchiveProgress& progress = {});

// Reads an exported folder, and checks each line that it reads: kData names the file and, for a
// line, its number. kUsage for the run of a newer or a development build. One thread.
class ArchiveReader final : public RunSource {
 public:
  // Opens the folder's files. kUsage if one is missing.
  static Result<std::unique_ptr<ArchiveReader>> open(const std::string& folder);

  Result<RunHead> readHead() override;
  Result<std::vector<v1::IterationRecord>> nextRecords() override;
  Result<std::vector<v1::EvaluationResult>> nextEvaluations() override;
  Status checkEnd() override;
  std::string name() const override { return folder_; }

 private:
  ArchiveReader(std::string folder, LineReader history, LineReader evaluations)
      : folder_(std::move(folder)),
        history_(std::move(history)),
        evaluations_(std::move(evaluations)) {}

  std::string folder_;
  LineReader history_;
  LineReader evaluations_;
  uint64_t version_ = 0;
  uint64_t read_ = 0;
  uint64_t evaluations_left_ = 0;  // evaluations that export.json counts and were not read yet
  EvaluationBounds bounds_;
  archive::ChainDigest records_digest_, evaluations_digest_;  // of those that were read
  std::string history_sha256_, evaluations_sha256_;           // as export.json has them
};

struct VerifySummary {
  RunHead head;
  uint64_t updates = 0;
  uint64_t results = 0;
  uint64_t evaluations = 0;
  size_t workers = 0;                 // workers whose results were consumed
  uint64_t tickets_reached = 0;       // the highest counted ticket + 1; 0: none
  MissingUnits missing;               // that the run may still lack (PlanCheck::end)
  std::vector<uint64_t> unevaluated;  // versions (PlanCheck::unevaluated)
  double seconds = 0;
};

// Functions that are called with what a run recorded while it is verified, evaluations first; each
// may be empty.
struct ResultWatcher {
  std::function<void(const v1::IterationRecord&)> record = {};
  std::function<void(const v1::EvaluationResult&)> evaluation = {};
};

// Computes every update again. Compares each update with its record, and the last state with the
// published one. Checks that each evaluation is possible, and all of them as PlanCheck does. kData
// names the first fault; kUsage if there is no run or the run has another arithmetic.
Result<VerifySummary> verifyRun(RunSource* source, const ArchiveProgress& progress = {},
                                const ResultWatcher& watcher = {});

// Writes the run into the store, and verifies it as verifyRun() does, without
// RunSource::checkEnd(). If the verification fails, the run does not appear in the store. kUsage if
// the store already has the run.
// Requires: the store's run id is the source's.
Result<VerifySummary> importRun(RunSource* source, RunImport* store,
                                const ArchiveProgress& progress = {});

// Returns the state of `source` at `version`, computed again, as the origin of a fork. kUsage if
// the run has not reached that version or has another arithmetic.
Result<v1::Origin> originAt(RunSource* source, uint64_t version,
                            const ArchiveProgress& progress = {});

}  // namespace allot
