#pragma once
// Sums over value rows. Private to kernels/cpu. Always in the order given, so that results do not
// depend on page size or threads.
#include <cstdint>

#include "allot/kernels/paged_kv.h"

namespace allot::kernels {

// out += sum_i weights_i * row_i, [head_dim]; rows are addresses of elements.
void gatherValues(const void* const* rows, const float* weights, int count, Element element,
                  int head_dim, float* out);

// For each of `group` heads, out_g += sum_j weights_g,j * v_j over the value rows first <= j < n of
// one row's KV head; weights [group] rows `weight_stride` apart, out [group, head_dim]. Each value
// row is read once for all heads.
void accumulateValues(const PagedKv& kv, const int32_t* pages, int kv_head, int first, int n,
                      const float* weights, int64_t weight_stride, int group, float* out);

// x *= factor, head_dim floats.
void scaleRow(float* x, int head_dim, float factor);

// The address of one key or value row.
const void* rowAddress(const PagedKv& kv, const void* pool, const int32_t* pages, int kv_head,
                       int position);

}  // namespace allot::kernels
