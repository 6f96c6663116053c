#include "kernels/cuda/by_shape.cuh"
#include "kernels/cuda/sweep.cuh"

namespace allot::kernels::cuda {

SweepKernel exactSweep(int head_dim, Element element, int pack, bool many) {
  return byShape<SweepKernel>(head_dim, element, [=](auto shape) {
    using S = decltype(shape);
    return byPack(pack, [=](auto heads) {
      using T = typename S::Type;
      constexpr int kPack = decltype(heads)::value;
      return many ? SweepKernel{sweepKernel<S::kDim, T, Sweep::kJoined, false, kPack>,
                                SweepLayout<S::kDim, Sweep::kJoined, kPack>::kWarpBytes}
                  : SweepKernel{sweepKernel<S::kDim, T, Sweep::kExact, false, kPack>,
                                SweepLayout<S::kDim, Sweep::kExact, kPack>::kWarpBytes};
    });
  });
}

}  // namespace allot::kernels::cuda
