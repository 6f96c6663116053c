#include "kernels/cpu/block_products.h"

#include "kernels/cpu/simd.h"

namespace allot::kernels {
namespace {

constexpr int kVectors = 2;

// kTileRows x kVectors vectors of sums, which stay in registers over the depth.
template <typename Vector>
ALLOT_INLINE void addTile(const float* left, int64_t left_stride, const float* right,
                          int64_t right_stride, int depth, float* to, int64_t stride) {
  constexpr int kLanes = kLanesOf<Vector>;
  Vector sums[kTileRows][kVectors];
  for (int r = 0; r < kTileRows; ++r) {
    for (int v = 0; v < kVectors; ++v) sums[r][v] = loadAs<Vector>(to + r * stride + kLanes * v);
  }
  for (int i = 0; i < depth; ++i) {
    Vector row[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      row[v] = loadAs<Vector>(right + i * right_stride + kLanes * v);
    }
    for (int r = 0; r < kTileRows; ++r) {
      const float factor = left[r * left_stride + i];
      for (int v = 0; v < kVectors; ++v) sums[r][v] += factor * row[v];
    }
  }
  for (int r = 0; r < kTileRows; ++r) {
    for (int v = 0; v < kVectors; ++v) store(to + r * stride + kLanes * v, sums[r][v]);
  }
}

template <typename Vector>
ALLOT_INLINE void addTiles(const float* left, int64_t left_stride, const float* right,
                           int64_t right_stride, int depth, int rows, int lanes, float* sums,
                           int64_t sums_stride) {
  constexpr int kLanes = kVectors * kLanesOf<Vector>;
  static_assert(kTileLanes % kLanes == 0);
  for (int r = 0; r < rows; r += kTileRows) {
    for (int l = 0; l < lanes; l += kLanes) {
      addTile<Vector>(left + r * left_stride, left_stride, right + l, right_stride, depth,
                      sums + r * sums_stride + l, sums_stride);
    }
  }
}

}  // namespace

ALLOT_CLONES
void addProducts(const float* left, int64_t left_stride, const float* right, int64_t right_stride,
                 int depth, int rows, int lanes, float* sums, int64_t sums_stride) {
  if (hasWideVectors()) {
    addTiles<Float16>(left, left_stride, right, right_stride, depth, rows, lanes, sums,
                      sums_stride);
  } else {
    addTiles<Float8>(left, left_stride, right, right_stride, depth, rows, lanes, sums, sums_stride);
  }
}

}  // namespace allot::kernels
