#include "kernels/cuda/by_shape.cuh"
#include "kernels/cuda/sweep.cuh"

namespace allot::kernels::cuda {

SweepKernel flashSweep(int head_dim, Element element, bool by_head) {
  return byShape<SweepKernel>(head_dim, element, [=](auto shape) {
    using S = decltype(shape);
    using T = typename S::Type;
    return SweepKernel{by_head ? sweepKernel<S::kDim, T, Sweep::kFlash, true, kQuad>
                               : sweepKernel<S::kDim, T, Sweep::kFlash, false, kQuad>,
                       SweepLayout<S::kDim, Sweep::kFlash, kQuad>::kWarpBytes};
  });
}

}  // namespace allot::kernels::cuda
