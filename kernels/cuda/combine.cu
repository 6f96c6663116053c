#include "kernels/cuda/combine.cuh"

#include "kernels/cuda/by_shape.cuh"
#include "kernels/cuda/statistics.cuh"

namespace allot::kernels::cuda {

CombineKernel combineKernelOf(SplitMode mode, int head_dim, Element element, bool by_head,
                              int heads_each) {
  return byShape<CombineKernel>(head_dim, element, [=](auto shape) -> CombineKernel {
    using S = decltype(shape);
    using T = typename S::Type;
    constexpr int kFew = kCombineThreads / 2;
    const auto many = [=](SplitMode from) {
      return heads_each > combineBlocks(from, kCombineThreads);
    };
    switch (mode) {
      case SplitMode::kExact:
      case SplitMode::kJoined:
        if (by_head) return {};
        // One warp a head: sums over a block take most of the time.
        if (many(SplitMode::kExact))
          return {combineKernel<S::kDim, T, SplitMode::kExact, false, 32>, 32};
        return {combineKernel<S::kDim, T, SplitMode::kExact, false>};
      case SplitMode::kWeights:
        if (many(mode)) {
          return {by_head ? combineKernel<S::kDim, T, SplitMode::kWeights, true, kFew>
                          : combineKernel<S::kDim, T, SplitMode::kWeights, false, kFew>,
                  kFew};
        }
        return {by_head ? combineKernel<S::kDim, T, SplitMode::kWeights, true>
                        : combineKernel<S::kDim, T, SplitMode::kWeights, false>};
      case SplitMode::kShadow:
        if (many(mode)) {
          return {by_head ? combineKernel<S::kDim, T, SplitMode::kShadow, true, kFew>
                          : combineKernel<S::kDim, T, SplitMode::kShadow, false, kFew>,
                  kFew};
        }
        return {by_head ? combineKernel<S::kDim, T, SplitMode::kShadow, true>
                        : combineKernel<S::kDim, T, SplitMode::kShadow, false>};
      case SplitMode::kFlash:
        return {by_head ? combineKernel<S::kDim, T, SplitMode::kFlash, true>
                        : combineKernel<S::kDim, T, SplitMode::kFlash, false>};
    }
    return {};
  });
}

StepKernel statisticsKernelOf(int head_dim, Element element, bool by_head) {
  return byShape<StepKernel>(head_dim, element, [=](auto shape) -> StepKernel {
    using S = decltype(shape);
    return by_head ? statisticsKernel<S::kDim, typename S::Type, true>
                   : statisticsKernel<S::kDim, typename S::Type, false>;
  });
}

}  // namespace allot::kernels::cuda
