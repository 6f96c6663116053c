#pragma once
// Products of blocks of queries and keys, and of blocks of weights and values. Private to
// kernels/cpu. Pure function, any thread.
#include <cstdint>

namespace allot::kernels {

// The largest blocks of a prefill.
constexpr int kBlockQueries = 64;
constexpr int kBlockKeys = 64;
// The tile of sums that a product computes at once.
constexpr int kTileRows = 4;
constexpr int kTileLanes = 32;

// Adds sum_i left[r * left_stride + i] * right[i * right_stride + l] to sums[r * sums_stride + l],
// for r < rows, l < lanes and i < depth. Each sum is one chain of multiply-adds in ascending i,
// fused if the processor can.
// Requires: rows is a multiple of kTileRows, lanes of kTileLanes.
void addProducts(const float* left, int64_t left_stride, const float* right, int64_t right_stride,
                 int depth, int rows, int lanes, float* sums, int64_t sums_stride);

}  // namespace allot::kernels
