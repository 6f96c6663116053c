#pragma once
// RunControl: what people do with a run: begin it, steer it, bring one in from files. As a Store:
// one thread, and every call waits for its answer (store/store.h).
#include <vector>

#include "store/records.h"

namespace allot {

class RunControl {
 public:
  virtual ~RunControl() = default;

  // Creates the run; if it exists already with the same experiment digest, that is no error.
  // A different digest is refused (kUsage).
  virtual Status createRun(const RunSpec& spec) = 0;
  // Until something counts (an update, a recorded evaluation): makes it a run of next.experiment,
  // as if it had been created so, with next.sha256, arithmetic, schema and build; mode, start and
  // origin stay. The control record becomes `control` if its revision is still that one. What the
  // run had gathered is dropped, and whoever leads it is fenced off.
  virtual Result<Replacement> replaceRun(const RunSpec& next, const Control& control) = 0;
  // Replaces the record if its revision is still next.revision, and adds one to it. False: somebody
  // else changed it in between; read it again. (After a lost reply a second try gives false, too.)
  virtual Result<bool> changeControl(const Control& next) = 0;
};

// begin, history and evaluations in slices, end.
class RunImport {
 public:
  virtual ~RunImport() = default;

  // Until the end nobody sees a run here; what an interrupted import left is forgotten. kUsage if
  // the run exists.
  virtual Status beginImport() = 0;
  // Records in order of version. Their results count as consumed.
  virtual Status importHistory(const std::vector<v1::IterationRecord>& records) = 0;
  virtual Status importEvaluations(const std::vector<v1::EvaluationResult>& results) = 0;
  virtual Status endImport(const RunImage& image) = 0;
};

}  // namespace allot
