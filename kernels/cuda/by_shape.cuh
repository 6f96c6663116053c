#pragma once
// Chooses the kernel that was compiled for a cache's shape. Private to kernels/cuda; host.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <type_traits>

#include "kernels/cuda/launch.h"

namespace allot::kernels::cuda {

template <int kHeadDim, typename T>
struct Shape {
  static constexpr int kDim = kHeadDim;
  using Type = T;
};

// Returns make(Shape<head_dim, T>()), T being the type of `element`; Result{} for other head sizes
// than 64 and 128, and for float32 and e4m3.
template <typename Result, typename Make>
Result byShape(int head_dim, Element element, Make make) {
  if (element == Element::kBFloat16) {
    if (head_dim == 64) return make(Shape<64, __nv_bfloat16>());
    if (head_dim == 128) return make(Shape<128, __nv_bfloat16>());
  } else if (element == Element::kFloat16) {
    if (head_dim == 64) return make(Shape<64, __half>());
    if (head_dim == 128) return make(Shape<128, __half>());
  }
  return {};
}

// Returns make(std::integral_constant<int, head_group>()).
// Requires: head_group is 4, 8 or 16.
template <typename Make>
auto byHeadGroup(int head_group, Make make) {
  if (head_group == kSmallHeadGroup) return make(std::integral_constant<int, kSmallHeadGroup>());
  if (head_group == 8) return make(std::integral_constant<int, 8>());
  return make(std::integral_constant<int, kMaxHeadGroup>());
}

}  // namespace allot::kernels::cuda
