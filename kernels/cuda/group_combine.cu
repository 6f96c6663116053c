#include "kernels/cuda/group_combine.cuh"

#include "kernels/cuda/by_shape.cuh"

namespace allot::kernels::cuda {

GroupKernels groupKernelsOf(SplitMode mode, int head_dim, Element element, int group) {
  return byShape<GroupKernels>(head_dim, element, [=](auto shape) {
    using S = decltype(shape);
    using T = typename S::Type;
    const bool wide = group > 8;
    GroupKernels kernels{.heads = groupHeadKernel<S::kDim, T>};
    const auto set = [&](auto rescores, auto is_wide) {
      constexpr bool kRescores = decltype(rescores)::value, kWide = decltype(is_wide)::value;
      kernels.draws = groupDrawKernel<S::kDim, T, kRescores, kWide>;
      kernels.values = groupValueKernel<S::kDim, T, kRescores, kWide>;
    };
    if (mode == SplitMode::kShadow) {
      wide ? set(std::true_type{}, std::true_type{}) : set(std::true_type{}, std::false_type{});
    } else {
      wide ? set(std::false_type{}, std::true_type{}) : set(std::false_type{}, std::false_type{});
    }
    return kernels;
  });
}

size_t groupDrawBytes(int splits) {
  return kMixtureSharedBytes + static_cast<size_t>(splits + 1) * (sizeof(uint64_t) + sizeof(float));
}

size_t groupValueBytes(int head_dim, int group) {
  if (head_dim == 128)
    return group > 8 ? sizeof(ValueShared<128, true>) : sizeof(ValueShared<128, false>);
  return group > 8 ? sizeof(ValueShared<64, true>) : sizeof(ValueShared<64, false>);
}

}  // namespace allot::kernels::cuda
