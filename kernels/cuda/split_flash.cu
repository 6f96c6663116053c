#include "kernels/cuda/by_shape.cuh"
#include "kernels/cuda/split.cuh"

namespace allot::kernels::cuda {

SplitKernel flashSplitKernel(int head_dim, Element element, bool by_head) {
  return byShape<SplitKernel>(head_dim, element, [=](auto shape) {
    using S = decltype(shape);
    using T = typename S::Type;
    return SplitKernel{by_head ? splitKernel<S::kDim, T, SplitMode::kFlash, true, kSmallHeadGroup>
                               : splitKernel<S::kDim, T, SplitMode::kFlash, false, kSmallHeadGroup>,
                       SplitLayout<S::kDim, SplitMode::kFlash, kSmallHeadGroup>::kWarpBytes};
  });
}

}  // namespace allot::kernels::cuda
