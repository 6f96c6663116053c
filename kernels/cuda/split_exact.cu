#include "kernels/cuda/by_shape.cuh"
#include "kernels/cuda/split.cuh"

namespace allot::kernels::cuda {

SplitKernel exactSplitKernel(int head_dim, Element element, int head_group, bool many) {
  return byShape<SplitKernel>(head_dim, element, [=](auto shape) {
    using S = decltype(shape);
    return byHeadGroup(head_group, [=](auto heads) {
      using T = typename S::Type;
      constexpr int kHeadGroup = decltype(heads)::value;
      return many ? SplitKernel{splitKernel<S::kDim, T, SplitMode::kJoined, false, kHeadGroup>,
                                SplitLayout<S::kDim, SplitMode::kJoined, kHeadGroup>::kWarpBytes}
                  : SplitKernel{splitKernel<S::kDim, T, SplitMode::kExact, false, kHeadGroup>,
                                SplitLayout<S::kDim, SplitMode::kExact, kHeadGroup>::kWarpBytes};
    });
  });
}

}  // namespace allot::kernels::cuda
