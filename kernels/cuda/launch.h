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

// One sweep, and the shared memory it needs.
struct SweepKernel {
  StepKernel kernel = nullptr;
  int warp_bytes = 0;
};

// One finish, and its threads.
struct FinishKernel {
  StepKernel kernel = nullptr;
  int threads = 256;
};

// Nothing (null) for other head sizes than 64 and 128. by_head: what reads Step::ByHead. There is
// no finish of kExact that does: that of kMasses attends exactly where all heads do. pack: query
// heads at once, packFor() a group or, over the shadow, up to kMostShadowPack; the others have
// quads. many: there are so many pieces that some are taken together.
SweepKernel exactSweep(int head_dim, Element element, int pack, bool many);
SweepKernel exactSweepByHead(int head_dim, Element element, int pack);
SweepKernel massesSweep(int head_dim, Element element, bool by_head);
SweepKernel shadowSweep(int head_dim, Element element, bool by_head, int pack);
SweepKernel flashSweep(int head_dim, Element element, bool by_head);
// heads_each: heads for each multiprocessor. Where there are more than find room at once, blocks
// are smaller.
FinishKernel finishKernelOf(Sweep sweep, int head_dim, Element element, bool by_head,
                            int heads_each);
// The finish where keys are chosen by scores (sweeps kMasses and kShadow), by head or not.
StepKernel choiceKernelOf(Sweep sweep, int head_dim, Element element);
// Shared memory that it is to have beside what it declares.
size_t choiceBytes(int max_length, int pieces);
// The same with sets of keys in Space::sets, for rows that shared memory has no room for.
StepKernel longChoiceKernelOf(Sweep sweep, int head_dim, Element element);
size_t longChoiceBytes(int pieces);

// The finish of methods that draw tile by tile (sweep kMasses; s2anta-flash beside its own sweep
// and s2anta-prop by largest remainders), and of sums over a row at most so many tiles.
StepKernel tilesKernelOf(int head_dim, Element element);
int mostTiles(int tile_keys, int max_length);

// quest: scores of pages before the sweep, and the finish.
struct QuestKernels {
  StepKernel scores = nullptr;
  StepKernel finish = nullptr;
};
QuestKernels questKernelsOf(int head_dim, Element element);
int questPages(int max_length);
size_t questBytes(int max_length, int pieces);
cudaError_t launchBoundScores(StepKernel kernel, const Step& step, int most_length,
                              cudaStream_t stream);

// bernoulli's queries, before all else: a block of head_dim threads a sequence and KV head.
StepKernel featuresKernelOf(int head_dim, Element element);

StepKernel statisticsKernelOf(int head_dim, Element element, bool by_head);

// Launched together.
struct AppendKernels {
  AppendKernel append = nullptr;
  AppendKernel centre = nullptr;
  AppendKernel shadow = nullptr;
  AppendKernel bounds = nullptr;
  AppendKernel value_sums = nullptr;
  void (*means)(Means) = nullptr;
};
AppendKernels appendKernelsOf(int head_dim, Element element);

}  // namespace allot::kernels::cuda
