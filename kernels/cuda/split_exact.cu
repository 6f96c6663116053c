#include "kernels/cuda/by_shape.cuh"
#include "kernels/cuda/split.cuh"

namespace allot::kernels::cuda {

SplitKernel exactSplitKernel(int head_dim, Element element, int pack, bool many) {
  return byShape<SplitKernel>(head_dim, element, [=](auto shape) {
    using S = decltype(shape);
    return byPack(pack, [=](auto heads) {
      using T = typename S::Type;
      constexpr int kPack = decltype(heads)::value;
      return many ? SplitKernel{splitKernel<S::kDim, T, SplitMode::kJoined, false, kPack>,
                                SplitLayout<S::kDim, SplitMode::kJoined, kPack>::kWarpBytes}
                  : SplitKernel{splitKernel<S::kDim, T, SplitMode::kExact, false, kPack>,
                                SplitLayout<S::kDim, SplitMode::kExact, kPack>::kWarpBytes};
    });
  });
}

}  // namespace allot::kernels::cuda
