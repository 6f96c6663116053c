#include "kernels/cuda/by_shape.cuh"
#include "kernels/cuda/sweep.cuh"

namespace allot::kernels::cuda {
namespace {

template <typename Shape, int kPack>
SweepKernel kernelOf(bool by_head) {
  using T = typename Shape::Type;
  return {by_head ? sweepKernel<Shape::kDim, T, Sweep::kShadow, true, kPack>
                  : sweepKernel<Shape::kDim, T, Sweep::kShadow, false, kPack>,
          SweepLayout<Shape::kDim, Sweep::kShadow, kPack>::kWarpBytes};
}

}  // namespace

SweepKernel shadowSweep(int head_dim, Element element, bool by_head, int pack) {
  return byShape<SweepKernel>(head_dim, element, [=](auto shape) {
    using S = decltype(shape);
    return pack == kQuad ? kernelOf<S, kQuad>(by_head) : kernelOf<S, kMostShadowPack>(by_head);
  });
}

}  // namespace allot::kernels::cuda
