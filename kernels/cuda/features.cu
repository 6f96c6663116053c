#include "kernels/cuda/features.cuh"

#include "kernels/cuda/by_shape.cuh"

namespace allot::kernels::cuda {

StepKernel featuresKernelOf(int head_dim, Element element) {
  return byShape<StepKernel>(head_dim, element, [](auto shape) -> StepKernel {
    return featuresKernel<decltype(shape)::kDim>;
  });
}

}  // namespace allot::kernels::cuda
