#include "kernels/cuda/group_combine.cuh"

#include "kernels/cuda/by_shape.cuh"

namespace allot::kernels::cuda {

GroupKernels groupKernelsOf(SplitMode mode, int head_dim, Element element, int group) {
  return byShape<GroupKernels>(head_dim, element, [=](auto shape) {
    using S = decltype(shape);
    using T = typename S::Type;
    const bool wide = group > 8;
    GroupKernels kernels{.heads = groupHeadKernel<S::kDim, T>};
    if (mode == SplitMode::kShadow) {
      kernels.draws =
          wide ? groupDrawKernel<S::kDim, T, true, true> : groupDrawKernel<S::kDim, T, true, false>;
    } else {
      kernels.draws = wide ? groupDrawKernel<S::kDim, T, false, true>
                           : groupDrawKernel<S::kDim, T, false, false>;
    }
    return kernels;
  });
}

size_t groupDrawBytes(int splits) {
  return kGroupSharedBytes + static_cast<size_t>(splits + 1) * sizeof(uint64_t);
}

}  // namespace allot::kernels::cuda
