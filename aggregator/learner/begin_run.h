#pragma once
// The start of a run, and of a process that goes on with one. Blocks on the store; one thread.
#include "core/result.h"
#include "store/store.h"

namespace allot {

// Creates the run, or takes up one that exists: what the experiment file changed since it was last
// taken up is applied if it is live, replaces the run's experiment while nothing counts yet
// (the leading aggregator is then fenced off), and is refused otherwise (kUsage, which says why).
// run.schema: that by which the file was read; of a run that exists, the run's.
Result<RunSpec> beginRun(Store* store, const RunSpec& run);

}  // namespace allot
