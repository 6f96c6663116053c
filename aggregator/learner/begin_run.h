#pragma once
// The start of a run, and of a process that goes on with one. Blocks on the store; one thread.
#include "core/result.h"
#include "store/store.h"

namespace allot {

// Creates the run, or takes up one that exists. Edits of the experiment file since it was last
// taken up are applied if all are live. Else the file replaces the run's experiment, if nothing
// counts yet and the name stays; the leading aggregator is then fenced off. Otherwise it is refused
// (kUsage, which says why).
// run.schema: that by which the file was read; of a run that exists, the run's.
Result<RunSpec> beginRun(Store* store, const RunSpec& run);

}  // namespace allot
