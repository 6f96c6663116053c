#include "kernels/cuda/by_shape.cuh"
#include "kernels/cuda/sweep.cuh"

namespace allot::kernels::cuda {

SweepKernel shadowSweep(int head_dim, Element element) {
  return byShape<SweepKernel>(head_dim, element, [](auto shape) {
    using S = decltype(shape);
    return SweepKernel{sweepKernel<S::kDim, typename S::Type, Sweep::kShadow>,
                       SweepLayout<S::kDim, Sweep::kShadow>::kWarpBytes};
  });
}

}  // namespace allot::kernels::cuda
