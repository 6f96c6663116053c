#include "kernels/cuda/by_shape.cuh"
#include "kernels/cuda/split.cuh"

namespace allot::kernels::cuda {

SplitKernel massesSplitKernel(int head_dim, Element element, bool by_head) {
  return byShape<SplitKernel>(head_dim, element, [=](auto shape) {
    using S = decltype(shape);
    using T = typename S::Type;
    return SplitKernel{by_head ? splitKernel<S::kDim, T, SplitMode::kMasses, true, kQuad>
                               : splitKernel<S::kDim, T, SplitMode::kMasses, false, kQuad>,
                       SplitLayout<S::kDim, SplitMode::kMasses, kQuad>::kWarpBytes};
  });
}

// Where all heads are exact or silent: the same kernel, in packs as exactSplitKernel()'s.
SplitKernel exactSplitKernelByHead(int head_dim, Element element, int pack) {
  return byShape<SplitKernel>(head_dim, element, [=](auto shape) {
    using S = decltype(shape);
    return byPack(pack, [](auto heads) {
      constexpr int kPack = decltype(heads)::value;
      return SplitKernel{splitKernel<S::kDim, typename S::Type, SplitMode::kMasses, true, kPack>,
                         SplitLayout<S::kDim, SplitMode::kMasses, kPack>::kWarpBytes};
    });
  });
}

}  // namespace allot::kernels::cuda
