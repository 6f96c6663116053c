#include "kernels/cuda/by_shape.cuh"
#include "kernels/cuda/sweep.cuh"

namespace allot::kernels::cuda {

SweepKernel massesSweep(int head_dim, Element element, bool by_head) {
  return byShape<SweepKernel>(head_dim, element, [=](auto shape) {
    using S = decltype(shape);
    using T = typename S::Type;
    return SweepKernel{by_head ? sweepKernel<S::kDim, T, Sweep::kMasses, true, kQuad>
                               : sweepKernel<S::kDim, T, Sweep::kMasses, false, kQuad>,
                       SweepLayout<S::kDim, Sweep::kMasses, kQuad>::kWarpBytes};
  });
}

// Where all heads are exact or silent: the same kernel, in packs as exactSweep()'s.
SweepKernel exactSweepByHead(int head_dim, Element element, int pack) {
  return byShape<SweepKernel>(head_dim, element, [=](auto shape) {
    using S = decltype(shape);
    return byPack(pack, [](auto heads) {
      constexpr int kPack = decltype(heads)::value;
      return SweepKernel{sweepKernel<S::kDim, typename S::Type, Sweep::kMasses, true, kPack>,
                         SweepLayout<S::kDim, Sweep::kMasses, kPack>::kWarpBytes};
    });
  });
}

}  // namespace allot::kernels::cuda
