#include "kernels/cuda/finish.cuh"

#include "kernels/cuda/by_shape.cuh"
#include "kernels/cuda/statistics.cuh"

namespace allot::kernels::cuda {

StepKernel finishKernelOf(Sweep sweep, int head_dim, Element element) {
  return byShape<StepKernel>(head_dim, element, [sweep](auto shape) -> StepKernel {
    using S = decltype(shape);
    switch (sweep) {
      case Sweep::kExact:
        return finishKernel<S::kDim, typename S::Type, Sweep::kExact>;
      case Sweep::kMasses:
        return finishKernel<S::kDim, typename S::Type, Sweep::kMasses>;
      case Sweep::kShadow:
        return finishKernel<S::kDim, typename S::Type, Sweep::kShadow>;
      case Sweep::kFlash:
        return finishKernel<S::kDim, typename S::Type, Sweep::kFlash>;
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
