#include "kernels/cuda/by_shape.cuh"
#include "kernels/cuda/sweep.cuh"

namespace allot::kernels::cuda {

SweepKernel exactSweep(int head_dim, Element element) {
  return byShape<SweepKernel>(head_dim, element, [](auto shape) {
    using S = decltype(shape);
    return SweepKernel{sweepKernel<S::kDim, typename S::Type, Sweep::kExact, false>,
                       SweepLayout<S::kDim, Sweep::kExact>::kWarpBytes};
  });
}

}  // namespace allot::kernels::cuda
