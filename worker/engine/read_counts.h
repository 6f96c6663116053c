#pragma once
// Adds up what prompts and decode steps read, in the form of a result. Pure functions, any thread.
#include <cstdint>

#include "allot/kernels/decode.h"
#include "allot/v1/result.pb.h"
#include "worker/model/decoder.h"

namespace allot {

// Adds the reads of `steps` decode steps of a row.
void addCounts(const kernels::RowStatistics& row, uint64_t steps, v1::DecodeCounts* counts);
// Adds the reads of one prompt.
void addCounts(const Prompt& prompt, v1::PrefillCounts* counts);

}  // namespace allot
