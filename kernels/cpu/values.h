#pragma once
// Weighted sums of value rows, always in the order given, so that results do not depend on page
// size or threads. Private to kernels/cpu. Any thread.
#include <cstdint>

#include "allot/kernels/paged_kv.h"

namespace allot::kernels {

// Adds sum_i weights_i * row_i, i below count, to out [head_dim]; rows are addresses of elements.
void gatherValues(const void* const* rows, const float* weights, int count, Element element,
                  int head_dim, float* out);

// Adds sum_j weights[g * weight_stride + j] * v_j to out [group, head_dim], for each of `group`
// heads over the values first <= j < n of one row and KV head. Each value comes from memory once
// for all heads.
void accumulateValues(const PagedKv& kv, const int32_t* pages, int kv_head, int first, int n,
                      const float* weights, int64_t weight_stride, int group, float* out);

// Multiplies x [head_dim] by the factor.
void scaleRow(float* x, int head_dim, float factor);

// Returns the address of a position's row in `pool`, which is kv.keys or kv.values.
const void* rowAddress(const PagedKv& kv, const void* pool, const int32_t* pages, int kv_head,
                       int position);

}  // namespace allot::kernels
