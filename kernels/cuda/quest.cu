#include "kernels/cuda/quest.cuh"

#include <algorithm>

#include "kernels/cuda/by_shape.cuh"

namespace allot::kernels::cuda {

int questPages(int max_length) {
  return max_length > 0 ? (max_length + kSubtileKeys - 1) / kSubtileKeys : 1;
}

size_t questBytes(int max_length, int splits) {
  const size_t sets = 2 * static_cast<size_t>(bitWords(questPages(max_length))) * sizeof(uint32_t);
  return std::max(sizeof(SelectionMemory) + sets, splits * sizeof(uint64_t));
}

QuestKernels questKernelsOf(int head_dim, Element element) {
  return byShape<QuestKernels>(head_dim, element, [](auto shape) {
    using S = decltype(shape);
    return QuestKernels{boundScoresKernel<S::kDim, typename S::Type>,
                        questKernel<S::kDim, typename S::Type>};
  });
}

cudaError_t launchBoundScores(StepKernel kernel, const Step& step, int most_length,
                              cudaStream_t stream) {
  const int blocks = (questPages(most_length) + kBoundTiles - 1) / kBoundTiles;
  const dim3 grid(static_cast<unsigned>(blocks), static_cast<unsigned>(step.cache.kv_heads),
                  static_cast<unsigned>(step.in.rows));
  kernel<<<grid, kBoundThreads, 0, stream>>>(step);
  return cudaGetLastError();
}

}  // namespace allot::kernels::cuda
