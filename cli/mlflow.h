#pragma once
// A run as MLflow keeps one in files: what `mlflow ui --backend-store-uri DIR` and MLflow's API
// read without a server of ours. One thread.
#include <string>

#include "core/result.h"
#include "store/archive/run_source.h"

namespace allot {

struct MlflowSummary {
  std::string folder;  // of the run
  size_t params = 0;
  size_t metrics = 0;  // names
};

// Writes the run below `dir` (MLflow's "mlruns"), which is made if need be: the experiment by its
// name, settings as params, every update and every complete evaluation as metrics with step and
// time stamp, report and experiment file as artifacts. An earlier export of the same run is
// replaced. kUsage if a run of that id is there which is not ours, kIo if something cannot be
// written.
Result<MlflowSummary> exportMlflow(RunSource* source, const std::string& dir);

// Text as a part of an MLflow name, which is also a file's name: letters, digits, '_', '-', '.' and
// blanks, at most 100 bytes; two texts give two names.
std::string mlflowName(const std::string& text);

}  // namespace allot
