#pragma once
// What prompts and steps read, added up in the form that results carry. Pure functions, any thread.
#include <cstdint>

#include "allot/kernels/decode.h"
#include "allot/v1/result.pb.h"
#include "worker/model/decoder.h"

namespace allot {

// A row's steps.
void addCounts(const kernels::RowStatistics& row, uint64_t steps, v1::DecodeCounts* counts);
// One prompt's.
void addCounts(const Prompt& prompt, v1::PrefillCounts* counts);

}  // namespace allot
