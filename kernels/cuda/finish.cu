#include "kernels/cuda/finish.cuh"

#include "kernels/cuda/by_shape.cuh"
#include "kernels/cuda/statistics.cuh"

namespace allot::kernels::cuda {

StepKernel finishKernelOf(int head_dim, Element element) {
  return byShape<StepKernel>(head_dim, element, [](auto shape) -> StepKernel {
    using S = decltype(shape);
    return finishKernel<S::kDim, typename S::Type>;
  });
}

StepKernel statisticsKernelOf(int head_dim, Element element) {
  return byShape<StepKernel>(head_dim, element, [](auto shape) -> StepKernel {
    using S = decltype(shape);
    return statisticsKernel<S::kDim, typename S::Type>;
  });
}

}  // namespace allot::kernels::cuda
