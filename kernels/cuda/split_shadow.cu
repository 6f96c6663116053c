#include "kernels/cuda/by_shape.cuh"
#include "kernels/cuda/split.cuh"

namespace allot::kernels::cuda {
namespace {

template <typename Shape, int kHeadGroup>
SplitKernel kernelOf(bool by_head) {
  using T = typename Shape::Type;
  return {by_head ? splitKernel<Shape::kDim, T, SplitMode::kShadow, true, kHeadGroup>
                  : splitKernel<Shape::kDim, T, SplitMode::kShadow, false, kHeadGroup>,
          SplitLayout<Shape::kDim, SplitMode::kShadow, kHeadGroup>::kWarpBytes};
}

}  // namespace

SplitKernel shadowSplitKernel(int head_dim, Element element, bool by_head, int head_group) {
  return byShape<SplitKernel>(head_dim, element, [=](auto shape) {
    using S = decltype(shape);
    return head_group == kSmallHeadGroup ? kernelOf<S, kSmallHeadGroup>(by_head)
                                         : kernelOf<S, kMaxShadowHeadGroup>(by_head);
  });
}

}  // namespace allot::kernels::cuda
