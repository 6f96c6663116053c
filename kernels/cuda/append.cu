#include "kernels/cuda/append.cuh"

#include "kernels/cuda/by_shape.cuh"

namespace allot::kernels::cuda {

AppendKernels appendKernelsOf(int head_dim, Element element) {
  return byShape<AppendKernels>(head_dim, element, [](auto shape) {
    using S = decltype(shape);
    return AppendKernels{
        appendKernel<S::kDim, typename S::Type>,    meanKeyKernel<S::kDim, typename S::Type>,
        shadowKernel<S::kDim, typename S::Type>,    boundsKernel<S::kDim, typename S::Type>,
        valueSumsKernel<S::kDim, typename S::Type>, meansKernel<S::kDim>};
  });
}

}  // namespace allot::kernels::cuda
