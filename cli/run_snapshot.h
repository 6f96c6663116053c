#pragma once
// A run read from its beginning to its end, as page, report and status show it: of files as well as
// of a store. One thread; memory grows with the evaluations, not with the history.
#include <cstdint>
#include <functional>

#include "aggregator/snapshot.h"
#include "core/result.h"
#include "store/archive/run_source.h"

namespace allot {

struct ReadRun {
  RunSnapshot snapshot;
  uint64_t last_unix_ms = 0;  // of its newest update or evaluation; 0: there is none
};

// each: told every update, with its results, in order.
Result<ReadRun> readRun(RunSource* source,
                        const std::function<void(const v1::IterationRecord&)>& each = {});

}  // namespace allot
