// The kernels of choice.cuh with sets of keys in the workspace.
#include <algorithm>

#include "kernels/cuda/by_shape.cuh"
#include "kernels/cuda/choice.cuh"
#include "kernels/cuda/launch.h"

namespace allot::kernels::cuda {

size_t longChoiceBytes(int splits) {
  return std::max(sizeof(SelectionMemory), splits * sizeof(uint64_t));
}

StepKernel longChoiceKernelOf(SplitMode mode, int head_dim, Element element) {
  return byShape<StepKernel>(head_dim, element, [=](auto shape) -> StepKernel {
    using S = decltype(shape);
    using T = typename S::Type;
    return mode == SplitMode::kShadow ? choiceKernel<S::kDim, T, true, true>
                                      : choiceKernel<S::kDim, T, false, true>;
  });
}

}  // namespace allot::kernels::cuda
