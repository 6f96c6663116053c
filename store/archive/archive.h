#pragma once
// Export, import and verification of a run as files.
//
// An exported folder has
//   export.json        v1::RunExport: settings, model, last state, open units
//   history.jsonl      every update with the results that it consumed: one v1::IterationRecord a
//   line evaluations.jsonl  one v1::EvaluationResult a line updates.csv, episodes.csv,
//   evaluations.csv   the same for people; no program reads them
// The JSON is exact to the bit (store/archive/exact_json.h). export.json is written last and says
// how far the run had come. Later lines of the other files, from an export that was interrupted,
// are ignored. Results that wait in the inbox are not exported; their tickets stay gaps.
//
// Functions block; one thread each. Memory does not grow with the run, except by about 64 bytes a
// result when updates are computed again.
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/files/files.h"
#include "core/learning/replay.h"
#include "core/result.h"
#include "store/archive/run_source.h"
#include "store/store.h"

namespace allot {

// Is called now and then with the updates done and all updates.
using ArchiveProgress = std::function<void(uint64_t done, uint64_t all)>;

struct ExportSummary {
  uint64_t updates = 0;
  uint64_t new_updates = 0;  // not in the folder before
  uint64_t results = 0;
  uint64_t evaluations = 0;
  uint64_t waiting_results = 0;  // left behind
};

// Writes the run into `folder`, which is made if needed, or updates an earlier export of this run:
// history.jsonl only grows, the other files are replaced.
// kUsage if the folder has another run or a later state of this run, or if another process writes
// there. kIo if a file cannot be written. Every file is then as before, except that history.jsonl
// may have more whole lines.
Result<ExportSummary> exportRun(RunSource* source, const std::string& folder,
                                const ArchiveProgress& progress = {});

// Reads an exported folder. Every line is checked: kData names file and line. One thread.
class ArchiveReader final : public RunSource {
 public:
  // Opens the folder's files. kUsage if it has no export.json.
  static Result<std::unique_ptr<ArchiveReader>> open(const std::string& folder);

  Result<RunHead> readHead() override;
  Result<std::vector<v1::IterationRecord>> nextRecords() override;
  Result<std::vector<v1::EvaluationResult>> nextEvaluations() override;
  Status checkEnd() override { return {}; }
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
  uint64_t evaluations_left_ = 0;  // of those that export.json counts
  EvaluationBounds bounds_;
};

struct VerifySummary {
  RunHead head;
  uint64_t updates = 0;
  uint64_t results = 0;
  uint64_t evaluations = 0;
  size_t workers = 0;  // number of workers whose results were consumed
  double seconds = 0;
};

// Is given the results of a run while it is verified; either may be empty.
struct ResultWatcher {
  std::function<void(const v1::EpisodeResult&)> episode = {};
  std::function<void(const v1::EvaluationResult&)> evaluation = {};
};

// Computes every update again. Compares each policy with its record, and the last state with the
// published one. kData names the first difference; kUsage if the run has another arithmetic.
Result<VerifySummary> verifyRun(RunSource* source, const ArchiveProgress& progress = {},
                                const ResultWatcher& watcher = {});

// Writes the run into the store, after computing every update again. kData, without a run in the
// store, if one differs. kUsage if the store already has the run.
// Requires: the store's run id is the source's.
Result<VerifySummary> importRun(RunSource* source, RunImport* store,
                                const ArchiveProgress& progress = {});

// Returns the state of `source` at `version`, as the origin of a fork that begins with it.
Result<v1::Origin> originAt(RunSource* source, uint64_t version,
                            const ArchiveProgress& progress = {});

}  // namespace allot
