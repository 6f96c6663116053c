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
      kernels.parts = groupPartKernel<S::kDim, T, kRescores, kWide>;
    };
    if (mode == SplitMode::kShadow) {
      wide ? set(std::true_type{}, std::true_type{}) : set(std::true_type{}, std::false_type{});
    } else {
      wide ? set(std::false_type{}, std::true_type{}) : set(std::false_type{}, std::false_type{});
    }
    return kernels;
  });
}

size_t groupPartBytes(int head_dim, int group, int splits) {
  const bool wide = group > 8;
  const size_t fixed = head_dim == 128
                           ? wide ? sizeof(PartShared<128, true>) : sizeof(PartShared<128, false>)
                       : wide ? sizeof(PartShared<64, true>)
                              : sizeof(PartShared<64, false>);
  return fixed + (wide ? mixtureBytes<true>(splits) : mixtureBytes<false>(splits));
}

}  // namespace allot::kernels::cuda
