#include "kernels/cuda/by_shape.cuh"
#include "kernels/cuda/split.cuh"

namespace allot::kernels::cuda {
namespace {

template <typename Shape, int kPack>
SplitKernel kernelOf(bool by_head) {
  using T = typename Shape::Type;
  return {by_head ? splitKernel<Shape::kDim, T, SplitMode::kShadow, true, kPack>
                  : splitKernel<Shape::kDim, T, SplitMode::kShadow, false, kPack>,
          SplitLayout<Shape::kDim, SplitMode::kShadow, kPack>::kWarpBytes};
}

}  // namespace

SplitKernel shadowSplitKernel(int head_dim, Element element, bool by_head, int pack) {
  return byShape<SplitKernel>(head_dim, element, [=](auto shape) {
    using S = decltype(shape);
    return pack == kQuad ? kernelOf<S, kQuad>(by_head) : kernelOf<S, kMostShadowPack>(by_head);
  });
}

}  // namespace allot::kernels::cuda
