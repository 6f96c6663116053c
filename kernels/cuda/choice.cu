#include "kernels/cuda/choice.cuh"

#include <algorithm>

#include "kernels/cuda/by_shape.cuh"
#include "kernels/cuda/launch.h"

namespace allot::kernels::cuda {

size_t choiceBytes(int max_length, int pieces) {
  const size_t sets = 3 * static_cast<size_t>(bitWords(max_length)) * sizeof(uint32_t);
  return std::max(sizeof(SelectionMemory) + sets, 2 * pieces * sizeof(float));
}

StepKernel choiceKernelOf(Sweep sweep, int head_dim, Element element) {
  return byShape<StepKernel>(head_dim, element, [=](auto shape) -> StepKernel {
    using S = decltype(shape);
    using T = typename S::Type;
    return sweep == Sweep::kShadow ? choiceKernel<S::kDim, T, true, false>
                                   : choiceKernel<S::kDim, T, false, false>;
  });
}

}  // namespace allot::kernels::cuda
