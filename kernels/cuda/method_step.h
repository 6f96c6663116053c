#pragma once
// From a method's options to what its step is made of: what the kernels are told of it, and what
// room it takes. Private to kernels/cuda; host, any thread.
#include "kernels/cuda/buffer.h"
#include "kernels/cuda/launch.h"

namespace allot::kernels::cuda {

// Bernoulli's is that of the values behind its scores.
ChosenBy chosenBy(const MethodOptions& method);
// Whether the draws are made tile by tile by a combine kernel (tiles.cuh).
bool drawsByTiles(const MethodOptions& method);
SplitMode splitModeOf(const MethodOptions& method);
Step::How stepParams(const MethodOptions& method);

// A step has one split kernel for few splits and one for many, which takes exact ones together, or
// more heads of the shadow's at once; some split kernels are both. No bit depends on which it is.
SplitKernel splitKernelOf(SplitMode mode, const PagedKv& kv, int heads, bool by_head, bool many);
// Packs of its heads that it takes one by one.
int headGroupsOf(SplitMode mode, int group, bool many);
// teams: of warps that take splits together, in the split kernel for many.
bool manySplits(SplitMode mode, int rows, int max_length, int64_t teams);
// long_sets: sets of keys are in the workspace. heads_each: heads for each multiprocessor.
CombineKernel combineKernelOf(const MethodOptions& method, int head_dim, Element element,
                              bool by_head, bool long_sets, int heads_each);

// Whether a step of this method finds the room that a plan for the other one made.
bool fitsPlan(const MethodOptions& method, const MethodOptions& planned);
// Entries of a head's list of draws; of its scores of pages and of its tiles' shares of draws, 0
// where it has none.
uint32_t drawStride(const MethodOptions& method, const StepBounds& bounds);
int pageStride(const MethodOptions& method, int max_length);
int tileStride(const MethodOptions& method, int max_length);

// A method, or a shape of caches and heads, that no kernel is for.
Refusal unsupportedShape(const MethodOptions& method, const PagedKv& kv, int heads);
// What the method reads of keys, and the cache does not hold.
Refusal missingShadow(const MethodOptions& method, const PagedKv& kv);
// More draws than are made where they are made however many keys there are.
Refusal tooManyDraws(const MethodOptions& method, uint32_t max_budget);

}  // namespace allot::kernels::cuda
