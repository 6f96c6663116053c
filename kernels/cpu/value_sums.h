#pragma once
// Sums of values in the order of their positions. Private to kernels/.
#include <cstdint>

#include "allot/kernels/paged_kv.h"

namespace allot::kernels {

// sums[d] += v_j[d] for j = from .. to - 1 in that order: one chain of additions a channel, so that
// it does not matter in how many calls.
void addValues(const PagedKv& kv, const int32_t* pages, int kv_head, int from, int to,
               double* sums);

// Where PagedKv::value_sums has the sum over the positions 0 .. position, [head_dim].
double* valueSums(const PagedKv& kv, const int32_t* pages, int kv_head, int position);

// Writes PagedKv::value_sums for positions start .. start + count - 1, whose values are in the
// cache.
void appendValueSums(const PagedKv& kv, const int32_t* pages, int kv_head, int start, int count);

}  // namespace allot::kernels
