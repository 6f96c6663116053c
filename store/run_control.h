#pragma once
// RunControl and RunImport: create a run, control it, import one from files. Used by people's
// commands. As a Store: one thread, and every call waits for its answer (store/store.h).
#include <vector>

#include "store/records.h"

namespace allot {

class RunControl {
 public:
  virtual ~RunControl() = default;

  // Creates the run. Succeeds if it already exists with the same experiment digest. kUsage if it
  // exists with another digest.
  virtual Status createRun(const RunSpec& spec) = 0;
  // Turns the run into one of next.experiment, unless something counts already (an update, a
  // recorded evaluation). It becomes as if created with next.sha256, arithmetic, schema and build;
  // mode, start and origin stay. `control` replaces the control record if its revision is still the
  // given one. Gathered data of the run is dropped, and its leader is fenced off.
  virtual Result<Replacement> replaceRun(const RunSpec& next, const Control& control) = 0;
  // Replaces the record if its revision is still next.revision, and adds 1 to it. Returns false if
  // another process changed it: read it again. (After a lost reply a repeated call returns false,
  // too.)
  virtual Result<bool> changeControl(const Control& next) = 0;
};

// Imports a run: begin, history and evaluations in slices, end.
class RunImport {
 public:
  virtual ~RunImport() = default;

  // Begins. The run is invisible until the end. Data of an interrupted import is dropped. kUsage if
  // the run exists.
  virtual Status beginImport() = 0;
  // Adds records in order of version. Their results count as consumed.
  virtual Status importHistory(const std::vector<v1::IterationRecord>& records) = 0;
  virtual Status importEvaluations(const std::vector<v1::EvaluationResult>& results) = 0;
  virtual Status endImport(const RunImage& image) = 0;
};

}  // namespace allot
