#pragma once
// Products of blocks of queries and keys, or of their masses and values. Private to kernels/cpu.
#include <cstdint>

namespace allot::kernels {

// The largest blocks of a prefill.
constexpr int kBlockQueries = 64;
constexpr int kBlockKeys = 64;
// What a product computes side by side: rows and lanes come in whole tiles.
constexpr int kTileRows = 4;
constexpr int kTileLanes = 32;

// sums[r * sums_stride + l] += sum_i left[r * left_stride + i] * right[i * right_stride + l] for
// rows x lanes. Each sum is one chain of fused multiply-adds, i ascending, whatever is computed
// beside it.
void addProducts(const float* left, int64_t left_stride, const float* right, int64_t right_stride,
                 int depth, int rows, int lanes, float* sums, int64_t sums_stride);

}  // namespace allot::kernels
