#include "kernels/cuda/finish.cuh"

#include "kernels/cuda/by_shape.cuh"
#include "kernels/cuda/statistics.cuh"

namespace allot::kernels::cuda {

StepKernel finishKernelOf(Sweep sweep, bool top, int head_dim, Element element) {
  return byShape<StepKernel>(head_dim, element, [=](auto shape) -> StepKernel {
    using S = decltype(shape);
    using T = typename S::Type;
    switch (sweep) {
      case Sweep::kExact:
        return finishKernel<S::kDim, T, Sweep::kExact, false>;
      case Sweep::kMasses:
        return top ? finishKernel<S::kDim, T, Sweep::kMasses, true>
                   : finishKernel<S::kDim, T, Sweep::kMasses, false>;
      case Sweep::kShadow:
        return top ? finishKernel<S::kDim, T, Sweep::kShadow, true>
                   : finishKernel<S::kDim, T, Sweep::kShadow, false>;
      case Sweep::kFlash:
        return finishKernel<S::kDim, T, Sweep::kFlash, false>;
    }
    return nullptr;
  });
}

StepKernel statisticsKernelOf(int head_dim, Element element) {
  return byShape<StepKernel>(head_dim, element, [](auto shape) -> StepKernel {
    using S = decltype(shape);
    return statisticsKernel<S::kDim, typename S::Type>;
  });
}

}  // namespace allot::kernels::cuda
