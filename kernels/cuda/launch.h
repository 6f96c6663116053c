#pragma once
// The kernels by shape. These functions are spread over several files, so that the kernels compile
// in parallel. Private to kernels/cuda; host, any thread.
#include <cuda_runtime_api.h>

#include <cstddef>

#include "kernels/cuda/step.h"

namespace allot::kernels::cuda {

struct Append;
struct Means;

using StepKernel = void (*)(Step);
using AppendKernel = void (*)(Append);

// One split kernel, and the shared memory of each of its warps.
struct SplitKernel {
  StepKernel kernel = nullptr;
  int warp_bytes = 0;
};

// One combine kernel, and the threads of its block.
struct CombineKernel {
  StepKernel kernel = nullptr;
  int threads = 256;
};

// Return the split kernels; null for shapes that byShape() has none for. by_head: the kernel reads
// Step::ByHead. head_group: 4, 8 or 16 query heads that a warp processes together, over the shadow
// 4 or 8; kernels without this argument have head groups of 4. many: the kernel may take
// kJoinedSplits splits together (splits_at_once.h).
SplitKernel exactSplitKernel(int head_dim, Element element, int head_group, bool many);
SplitKernel exactSplitKernelByHead(int head_dim, Element element, int head_group);
SplitKernel weightsSplitKernel(int head_dim, Element element, bool by_head);
SplitKernel shadowSplitKernel(int head_dim, Element element, bool by_head, int head_group);
SplitKernel flashSplitKernel(int head_dim, Element element, bool by_head);
// Returns a combine kernel; null for other shapes, and for SplitMode::kExact and kJoined by head,
// for which kWeights' kernel serves. heads_each: heads for each multiprocessor. With many heads
// blocks have fewer threads, except kFlash's.
CombineKernel combineKernelOf(SplitMode mode, int head_dim, Element element, bool by_head,
                              int heads_each);
// The kernels in the combine kernel's place if the heads of a KV head share draws, in their order:
// a block of kPartThreads threads a row, KV head and part, and one of kPartDraws threads a query
// head.
struct GroupKernels {
  StepKernel parts = nullptr;
  StepKernel heads = nullptr;
};
GroupKernels groupKernelsOf(SplitMode mode, int head_dim, Element element, int group);
// Returns the bytes of dynamic shared memory of the first.
size_t groupPartBytes(int head_dim, int group, int splits);

// The kernels in the combine kernel's place if the heads of a KV head choose together, in their
// order: a block of kRankThreads threads a row, KV head and kRankSplits splits, one of 256 a row
// and KV head, one of kPartThreads a row, KV head and part, and one of kPartDraws a query head.
struct GroupChoiceKernels {
  StepKernel ranks = nullptr;
  StepKernel choice = nullptr;
  StepKernel parts = nullptr;
  StepKernel heads = nullptr;
};
GroupChoiceKernels groupChoiceKernelsOf(SplitMode mode, int head_dim, Element element, int group);
// Returns the bytes of dynamic shared memory of the second.
size_t groupChoiceBytes(int max_length, bool long_sets);

// Returns the combine kernel of methods that choose by scores (SplitMode::kWeights and kShadow).
StepKernel choiceKernelOf(SplitMode mode, int head_dim, Element element);
// Returns the bytes of dynamic shared memory of choiceKernelOf()'s kernel.
size_t choiceBytes(int max_length, int splits);
// Return the same with sets of keys in Space::sets, for rows that shared memory has no room for.
StepKernel longChoiceKernelOf(SplitMode mode, int head_dim, Element element);
size_t longChoiceBytes(int splits);

// Return the combine kernel of methods that draw by tiles (tiles.cuh), and the most tiles of a row.
StepKernel tilesKernelOf(int head_dim, Element element);
int mostTiles(int tile_keys, int max_length);

// quest's kernels: scores of pages, launched before the split kernel, and the combine kernel.
struct QuestKernels {
  StepKernel scores = nullptr;
  StepKernel combine = nullptr;
};
QuestKernels questKernelsOf(int head_dim, Element element);
int questPages(int max_length);  // the most pages of a row, at least 1
size_t questBytes(int max_length, int splits);
cudaError_t launchBoundScores(StepKernel kernel, const Step& step, int most_length,
                              cudaStream_t stream);

// Returns the kernel of bernoulli's queries: a block of head_dim threads a row and KV head.
StepKernel featuresKernelOf(int head_dim, Element element);

StepKernel statisticsKernelOf(int head_dim, Element element, bool by_head);

// The kernels of appendKv() and meanValues().
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
