#pragma once
// skip-softmax's choice (kernels/cpu/method_skip_softmax.cpp). Blocks of keys are visited in order.
// A block is kept if its largest score is at most a fixed distance below the largest score of all
// blocks before it. Dropped blocks do not raise that maximum. Device code.
#include "allot/kernels/prefill.h"
#include "kernels/cuda/key_sets.cuh"

namespace allot::kernels::cuda {

// Sets sets.kept() to the keys dead .. span - 1 of kept blocks. scores: s' of whole blocks,
// -infinity for masked and absent keys. log_threshold: log2 of the threshold. Uses sets.scratch().
// Requires: all kCombineThreads threads of the block call it.
__device__ inline void keepHeavyBlocks(KeySets& sets, const float* scores, int dead, int span,
                                       float log_threshold) {
  constexpr int kKeys = KeyBlocks{}.key_block;
  static_assert(kKeys == 64 && kSplitKeys % kKeys == 0);
  __shared__ float warp_tops[kCombineWarps];
  const int tid = threadIdx.x, lane = tid % 32, warp = tid / 32;
  const int blocks = (span + kKeys - 1) / kKeys;
  auto* tops = reinterpret_cast<float*>(sets.scratch());  // a word a block of 64 keys
  __syncthreads();
  for (int b = warp; b < blocks; b += kCombineWarps) {
    const float2 two = *reinterpret_cast<const float2*>(scores + b * kKeys + 2 * lane);
    float top = fmaxf(two.x, two.y);
    for (int i = 16; i > 0; i /= 2) top = fmaxf(top, __shfl_xor_sync(kAll, top, i));
    if (lane == 0) tops[b] = top;
  }
  __syncthreads();
  // Each thread has a range of blocks; `before` is the largest score of earlier ranges.
  const int stretch = (blocks + kCombineThreads - 1) / kCombineThreads;
  const int first = min(tid * stretch, blocks), last = min(first + stretch, blocks);
  float own = minusInfinity();
  for (int b = first; b < last; ++b) own = fmaxf(own, tops[b]);
  float reached = own;
  for (int i = 1; i < 32; i *= 2) {
    const float left = __shfl_up_sync(kAll, reached, i);
    if (lane >= i) reached = fmaxf(reached, left);
  }
  if (lane == 31) warp_tops[warp] = reached;
  float before = __shfl_up_sync(kAll, reached, 1);
  if (lane == 0) before = minusInfinity();
  __syncthreads();
  for (int w = 0; w < warp; ++w) before = fmaxf(before, warp_tops[w]);
  for (int b = first; b < last; ++b) {
    const float top = tops[b];
    // The first block with an unmasked key is infinitely above those before.
    const bool keeps = top != minusInfinity() && !(top - before < log_threshold);
    before = fmaxf(before, top);
    for (int w = 2 * b; w < 2 * b + 2 && w < sets.words(); ++w) {
      sets.kept()[w] = keeps ? below(span, 32 * w) & ~below(dead, 32 * w) : 0;
    }
  }
  for (int w = 2 * blocks + tid; w < sets.words(); w += kCombineThreads) sets.kept()[w] = 0;
  __syncthreads();
}

}  // namespace allot::kernels::cuda
