#pragma once
// The start of a run, and of a process that goes on with a run. Blocks on the store; one thread.
#include "core/result.h"
#include "store/store.h"

namespace allot {

// Creates the run, or continues one that exists, and returns it as stored. Edits of the experiment
// file since Control::file are applied if all are live. Else the file replaces the run's
// experiment, if no result counts yet and the name is the same; the leading aggregator is then
// fenced off. Otherwise the file is refused (kUsage, which says why). run.schema: the schema by
// which the file was read: that of the stored run, if there is one.
Result<RunSpec> beginRun(Store* store, const RunSpec& run);

}  // namespace allot
