#include "kernels/cuda/choice.cuh"

#include <algorithm>

#include "kernels/cuda/by_shape.cuh"
#include "kernels/cuda/launch.h"

namespace allot::kernels::cuda {

size_t choiceBytes(int max_length, int splits) {
  const size_t sets = 3 * static_cast<size_t>(bitWords(max_length)) * sizeof(uint32_t);
  return std::max(sizeof(SelectionMemory) + sets, 2 * splits * sizeof(float));
}

StepKernel choiceKernelOf(SplitMode mode, int head_dim, Element element) {
  return byShape<StepKernel>(head_dim, element, [=](auto shape) -> StepKernel {
    using S = decltype(shape);
    using T = typename S::Type;
    return mode == SplitMode::kShadow ? choiceKernel<S::kDim, T, true, false>
                                      : choiceKernel<S::kDim, T, false, false>;
  });
}

}  // namespace allot::kernels::cuda
