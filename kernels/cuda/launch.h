#pragma once
// The kernels by shape: one file of each kind instantiates them, so that they compile side by side.
// Private to kernels/cuda.
#include <cuda_runtime_api.h>

#include <cstddef>

#include "kernels/cuda/step.h"

namespace allot::kernels::cuda {

struct Append;
struct Means;

using StepKernel = void (*)(Step);
using AppendKernel = void (*)(Append);

// One split kernel, and the shared memory it needs.
struct SplitKernel {
  StepKernel kernel = nullptr;
  int warp_bytes = 0;
};

// One combine kernel, and its threads.
struct CombineKernel {
  StepKernel kernel = nullptr;
  int threads = 256;
};

// Nothing (null) for other head sizes than 64 and 128. by_head: what reads Step::ByHead. There is
// no combine kernel of kExact that does: that of kWeights attends exactly where all heads do.
// head_group: query heads at once, headGroupFor() a group or, over the shadow, up to
// kMaxShadowHeadGroup; the others have groups of 4. many: there are so many splits that some are
// taken together.
SplitKernel exactSplitKernel(int head_dim, Element element, int head_group, bool many);
SplitKernel exactSplitKernelByHead(int head_dim, Element element, int head_group);
SplitKernel weightsSplitKernel(int head_dim, Element element, bool by_head);
SplitKernel shadowSplitKernel(int head_dim, Element element, bool by_head, int head_group);
SplitKernel flashSplitKernel(int head_dim, Element element, bool by_head);
// heads_each: heads for each multiprocessor. Where there are more than find room at once, blocks
// are smaller.
CombineKernel combineKernelOf(SplitMode mode, int head_dim, Element element, bool by_head,
                              int heads_each);
// The combine kernel where keys are chosen by scores (SplitMode::kWeights and kShadow), by head
// or not.
StepKernel choiceKernelOf(SplitMode mode, int head_dim, Element element);
// Shared memory that it is to have beside what it declares.
size_t choiceBytes(int max_length, int splits);
// The same with sets of keys in Space::sets, for rows that shared memory has no room for.
StepKernel longChoiceKernelOf(SplitMode mode, int head_dim, Element element);
size_t longChoiceBytes(int splits);

// The combine kernel of methods that draw tile by tile (SplitMode::kWeights; s2anta-flash beside
// its own split kernel and s2anta-prop by largest remainders), and of sums over a row at most so
// many tiles.
StepKernel tilesKernelOf(int head_dim, Element element);
int mostTiles(int tile_keys, int max_length);

// quest: scores of pages before the split kernel, and the combine kernel.
struct QuestKernels {
  StepKernel scores = nullptr;
  StepKernel combine = nullptr;
};
QuestKernels questKernelsOf(int head_dim, Element element);
int questPages(int max_length);
size_t questBytes(int max_length, int splits);
cudaError_t launchBoundScores(StepKernel kernel, const Step& step, int most_length,
                              cudaStream_t stream);

// bernoulli's queries, before all else: a block of head_dim threads a sequence and KV head.
StepKernel featuresKernelOf(int head_dim, Element element);

StepKernel statisticsKernelOf(int head_dim, Element element, bool by_head);

// Launched together.
struct AppendKernels {
  AppendKernel append = nullptr;
  AppendKernel mean_key = nullptr;
  AppendKernel shadow = nullptr;
  AppendKernel bounds = nullptr;
  AppendKernel value_sums = nullptr;
  void (*means)(Means) = nullptr;
};
AppendKernels appendKernelsOf(int head_dim, Element element);

}  // namespace allot::kernels::cuda
