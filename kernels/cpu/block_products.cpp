#include "kernels/cpu/block_products.h"

#include "kernels/cpu/simd.h"

namespace allot::kernels {
namespace {

constexpr int kVectors = kTileLanes / 16;

// Sums stay in registers over the depth.
ALLOT_INLINE void addTile(const float* left, int64_t left_stride, const float* right,
                          int64_t right_stride, int depth, float* to, int64_t stride) {
  Float16 sums[kTileRows][kVectors];
  for (int r = 0; r < kTileRows; ++r) {
    for (int v = 0; v < kVectors; ++v) sums[r][v] = load(to + r * stride + 16 * v);
  }
  for (int i = 0; i < depth; ++i) {
    Float16 row[kVectors];
    for (int v = 0; v < kVectors; ++v) row[v] = load(right + i * right_stride + 16 * v);
    for (int r = 0; r < kTileRows; ++r) {
      const float factor = left[r * left_stride + i];
      for (int v = 0; v < kVectors; ++v) sums[r][v] += factor * row[v];
    }
  }
  for (int r = 0; r < kTileRows; ++r) {
    for (int v = 0; v < kVectors; ++v) at(to + r * stride + 16 * v) = sums[r][v];
  }
}

}  // namespace

ALLOT_CLONES
void addProducts(const float* left, int64_t left_stride, const float* right, int64_t right_stride,
                 int depth, int rows, int lanes, float* sums, int64_t sums_stride) {
  for (int r = 0; r < rows; r += kTileRows) {
    for (int l = 0; l < lanes; l += kTileLanes) {
      addTile(left + r * left_stride, left_stride, right + l, right_stride, depth,
              sums + r * sums_stride + l, sums_stride);
    }
  }
}

}  // namespace allot::kernels
