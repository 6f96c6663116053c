#include "kernels/cuda/finish.cuh"

#include "kernels/cuda/by_shape.cuh"
#include "kernels/cuda/statistics.cuh"

namespace allot::kernels::cuda {

StepKernel finishKernelOf(Sweep sweep, int head_dim, Element element) {
  return byShape<StepKernel>(head_dim, element, [=](auto shape) -> StepKernel {
    using S = decltype(shape);
    using T = typename S::Type;
    switch (sweep) {
      case Sweep::kExact:
        return finishKernel<S::kDim, T, Sweep::kExact>;
      case Sweep::kMasses:
        return finishKernel<S::kDim, T, Sweep::kMasses>;
      case Sweep::kShadow:
        return finishKernel<S::kDim, T, Sweep::kShadow>;
      case Sweep::kFlash:
        return finishKernel<S::kDim, T, Sweep::kFlash>;
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
