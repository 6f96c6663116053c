#pragma once
// RunControl and RunImport: create a run, control it, import one from files. Used by people's
// commands, RunControl also by the aggregator. One thread; every call waits for its answer
// (store/store.h).
#include <vector>

#include "store/records.h"

namespace allot {

class RunControl {
 public:
  virtual ~RunControl() = default;

  // Creates the run. Does nothing if it exists with the same experiment digest. kUsage if it exists
  // with another digest or is being imported.
  virtual Status createRun(const RunSpec& spec) = 0;
  // Turns the run into one of next.experiment, unless an update or an accepted evaluation counts
  // already, or the control record has another revision than control.revision. The run also gets
  // sha256, arithmetic, schema and build of `next`, and the experiment and file of `control`. Other
  // members of RunSpec and Control stay, and the revision grows by 1. Gathered data of the run is
  // deleted, and its leader is fenced off.
  virtual Result<Replacement> replaceRun(const RunSpec& next, const Control& control) = 0;
  // Replaces the control record if its revision is still next.revision, and adds 1 to the revision.
  // Returns false if the record has another revision: read it again. After a lost reply a repeated
  // call returns false, too.
  virtual Result<bool> changeControl(const Control& next) = 0;
};

// Imports a run: begin, history and evaluations in slices, end.
class RunImport {
 public:
  virtual ~RunImport() = default;

  // Begins an import, and deletes the data of an interrupted one. The run is invisible until
  // endImport(). kUsage if the run exists. The calls below return kUsage if another process has
  // begun an import of the run since.
  virtual Status beginImport() = 0;
  // Adds records. Their results count as consumed. kUsage for records out of order.
  virtual Status importHistory(const std::vector<v1::IterationRecord>& records) = 0;
  virtual Status importEvaluations(const std::vector<v1::EvaluationResult>& results) = 0;
  // Makes the run visible. kUsage if the history does not reach from version 1 to that of
  // image.state.
  virtual Status endImport(const RunImage& image) = 0;
};

}  // namespace allot
