#pragma once
// Reads a whole run for page, report and status, from files or from a store. One thread; memory
// grows with the evaluations, not with the history.
#include <cstdint>
#include <functional>

#include "aggregator/snapshot.h"
#include "core/result.h"
#include "store/archive/run_source.h"

namespace allot {

struct ReadRun {
  RunSnapshot snapshot;
  uint64_t last_unix_ms = 0;  // of its newest update or evaluation; 0: none
};

// Reads the run. each: is called for every update, with its results, in order.
Result<ReadRun> readRun(RunSource* source,
                        const std::function<void(const v1::IterationRecord&)>& each = {});

}  // namespace allot
