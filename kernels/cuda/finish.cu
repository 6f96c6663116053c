#include "kernels/cuda/finish.cuh"

#include "kernels/cuda/by_shape.cuh"
#include "kernels/cuda/statistics.cuh"

namespace allot::kernels::cuda {

FinishKernel finishKernelOf(Sweep sweep, int head_dim, Element element, bool by_head,
                            int heads_each) {
  return byShape<FinishKernel>(head_dim, element, [=](auto shape) -> FinishKernel {
    using S = decltype(shape);
    using T = typename S::Type;
    constexpr int kFew = kFinishThreads / 2;
    const auto many = [=](Sweep from) { return heads_each > finishBlocks(from, kFinishThreads); };
    switch (sweep) {
      case Sweep::kExact:
      case Sweep::kJoined:
        if (by_head) return {};
        // A warp a head, since sums over a block are what takes long.
        if (many(Sweep::kExact)) return {finishKernel<S::kDim, T, Sweep::kExact, false, 32>, 32};
        return {finishKernel<S::kDim, T, Sweep::kExact, false>};
      case Sweep::kMasses:
        if (many(sweep)) {
          return {by_head ? finishKernel<S::kDim, T, Sweep::kMasses, true, kFew>
                          : finishKernel<S::kDim, T, Sweep::kMasses, false, kFew>,
                  kFew};
        }
        return {by_head ? finishKernel<S::kDim, T, Sweep::kMasses, true>
                        : finishKernel<S::kDim, T, Sweep::kMasses, false>};
      case Sweep::kShadow:
        if (many(sweep)) {
          return {by_head ? finishKernel<S::kDim, T, Sweep::kShadow, true, kFew>
                          : finishKernel<S::kDim, T, Sweep::kShadow, false, kFew>,
                  kFew};
        }
        return {by_head ? finishKernel<S::kDim, T, Sweep::kShadow, true>
                        : finishKernel<S::kDim, T, Sweep::kShadow, false>};
      case Sweep::kFlash:
        return {by_head ? finishKernel<S::kDim, T, Sweep::kFlash, true>
                        : finishKernel<S::kDim, T, Sweep::kFlash, false>};
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
