#include "kernels/cuda/by_shape.cuh"
#include "kernels/cuda/split.cuh"

namespace allot::kernels::cuda {

SplitKernel weightsSplitKernel(int head_dim, Element element, bool by_head) {
  return byShape<SplitKernel>(head_dim, element, [=](auto shape) {
    using S = decltype(shape);
    using T = typename S::Type;
    return SplitKernel{by_head
                           ? splitKernel<S::kDim, T, SplitMode::kWeights, true, kSmallHeadGroup>
                           : splitKernel<S::kDim, T, SplitMode::kWeights, false, kSmallHeadGroup>,
                       SplitLayout<S::kDim, SplitMode::kWeights, kSmallHeadGroup>::kWarpBytes};
  });
}

// Returns the same kernel for methods without sampled heads, in head groups as
// exactSplitKernel()'s.
SplitKernel exactSplitKernelByHead(int head_dim, Element element, int head_group) {
  return byShape<SplitKernel>(head_dim, element, [=](auto shape) {
    using S = decltype(shape);
    return byHeadGroup(head_group, [](auto heads) {
      constexpr int kHeadGroup = decltype(heads)::value;
      return SplitKernel{
          splitKernel<S::kDim, typename S::Type, SplitMode::kWeights, true, kHeadGroup>,
          SplitLayout<S::kDim, SplitMode::kWeights, kHeadGroup>::kWarpBytes};
    });
  });
}

}  // namespace allot::kernels::cuda
