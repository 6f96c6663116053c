#pragma once
// Sums of values in the order of their positions (PagedKv::value_sums). Private to kernels/; any
// thread. A page has one writer at a time, and none while others read it.
#include <cstdint>

#include "allot/kernels/paged_kv.h"

namespace allot::kernels {

// Adds v_j[d] to sums[d] for j = from .. to - 1, in that order: one chain of additions a channel,
// so that the number of calls does not change a bit.
void addValues(const PagedKv& kv, const int32_t* pages, int kv_head, int from, int to,
               double* sums);

// Returns the place [head_dim] in PagedKv::value_sums for the sum over positions 0 .. position.
double* valueSums(const PagedKv& kv, const int32_t* pages, int kv_head, int position);

// Brings PagedKv::value_sums up to date after positions start .. start + count - 1 were written.
// Writes the sums at the last two of these, and at the last position of each page that they fill.
// Requires: the cache has the values written and, unless start is 0, the sum at start - 1.
void appendValueSums(const PagedKv& kv, const int32_t* pages, int kv_head, int start, int count);

}  // namespace allot::kernels
