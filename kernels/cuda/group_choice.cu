#include "kernels/cuda/group_choice.cuh"

#include "kernels/cuda/by_shape.cuh"

namespace allot::kernels::cuda {

GroupChoiceKernels groupChoiceKernelsOf(SplitMode mode, int head_dim, Element element, int group) {
  return byShape<GroupChoiceKernels>(head_dim, element, [=](auto shape) {
    using S = decltype(shape);
    using T = typename S::Type;
    const bool wide = group > 8;
    GroupChoiceKernels kernels{.ranks = groupRanksKernel,
                               .choice = groupChoiceKernel<S::kDim>,
                               .heads = choiceHeadKernel<S::kDim, T>};
    const auto set = [&](auto rescores, auto is_wide) {
      constexpr bool kRescores = decltype(rescores)::value, kWide = decltype(is_wide)::value;
      kernels.parts = listPartKernel<S::kDim, T, kRescores, kWide>;
    };
    if (mode == SplitMode::kShadow) {
      wide ? set(std::true_type{}, std::true_type{}) : set(std::true_type{}, std::false_type{});
    } else {
      wide ? set(std::false_type{}, std::true_type{}) : set(std::false_type{}, std::false_type{});
    }
    return kernels;
  });
}

size_t groupChoiceBytes(int max_length, bool long_sets) {
  const size_t set = static_cast<size_t>(bitWords(max_length)) * sizeof(uint32_t);
  return sizeof(SelectionMemory) + (long_sets ? 0 : 2 * set);
}

}  // namespace allot::kernels::cuda
