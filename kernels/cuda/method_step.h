#pragma once
// From a method's options to the parts of its step: the kernels, their parameters and their room.
// Private to kernels/cuda. Pure functions; host, any thread.
#include "kernels/cuda/buffer.h"
#include "kernels/cuda/launch.h"

namespace allot::kernels::cuda {

// Returns how the method chooses entries; bernoulli's is that of its value stage.
ChosenBy chosenBy(const MethodOptions& method);
// Returns true if a combine kernel makes the draws tile by tile (tiles.cuh).
bool drawsByTiles(const MethodOptions& method);
SplitMode splitModeOf(const MethodOptions& method);
// Returns true if the heads of a KV head share draws. A group of one draws as a head does.
bool sharesDraws(const MethodOptions& method, int group);
// Returns true if they choose keys together.
bool sharesChoices(const MethodOptions& method, int group);
Step::How stepParams(const MethodOptions& method, int group);

// Returns the split kernel for few or for many splits. With `many` a warp may take several exact
// splits, or 8 instead of 4 heads of the shadow. No bit of the results depends on `many`.
SplitKernel splitKernelOf(SplitMode mode, const PagedKv& kv, int heads, bool by_head, bool many);
// Returns the head groups of one KV head.
int headGroupsOf(SplitMode mode, int group, bool many);
// Returns true if rows of max_length keys have many splits for `teams` teams of warps (WarpShare).
bool manySplits(SplitMode mode, int rows, int max_length, int64_t teams);
// Returns the combine kernel. long_sets: longSets() in workspace.h. heads_each: as in launch.h.
CombineKernel combineKernelOf(const MethodOptions& method, int head_dim, Element element,
                              bool by_head, bool long_sets, int heads_each);

// Returns true if a plan for `planned` has room for a step of `method`.
bool fitsPlan(const MethodOptions& method, const MethodOptions& planned);
// Return how many entries one head has in the list of draws, in quest's page scores (0 for other
// methods), in the tiles' shares of draws (0 without largest_remainder), and in the parts of shared
// draws or choices (0 without these). group: query heads of a KV head.
uint32_t drawStride(const MethodOptions& method, const StepBounds& bounds, int group);
int pageStride(const MethodOptions& method, int max_length);
int tileStride(const MethodOptions& method, int max_length);
int partStride(const MethodOptions& method, const StepBounds& bounds, int group);
// Returns how many of these parts are of keys that are always read (group_choice.cuh).
int fixedParts(const MethodOptions& method, const StepBounds& bounds, int group);

// Refuses a method, or a shape of caches and heads, without a kernel.
Refusal unsupportedShape(const MethodOptions& method, const PagedKv& kv, int heads);
// Refuses a cache without the shadow or bounds that the method reads.
Refusal missingShadow(const MethodOptions& method, const PagedKv& kv);
// Refuses more than 2^24 draws with exactAbove=never, by a group of `group` heads with draws=group.
Refusal tooManyDraws(const MethodOptions& method, uint32_t max_budget, uint32_t group);

}  // namespace allot::kernels::cuda
