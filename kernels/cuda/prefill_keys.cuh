#pragma once
// Loops over keys, for stages without values. Device code, for all threads of one block.
#include "kernels/cuda/prefill_tiles.cuh"

namespace allot::kernels::cuda {

// Calls body(tile's address, its places) for the tiles of 64 neighbouring keys tile0 .. tile1 - 1.
// Keys from `end` on are zeros. Keys of a page outside the pool are zeros, too, and set *outside.
// Copies one tile ahead; `shared` has room for two tiles.
// Requires: all `Threads` threads of the block call it.
template <int D, int Threads, typename Body>
__device__ void forEachTile(const PromptChunk& chunk, int kv_head, int tile0, int tile1, int end,
                            uint32_t shared, bool* outside, const Body& body) {
  using Tile = SharedTile<D>;
  const int thread = static_cast<int>(threadIdx.x);
  const auto copy = [&](int tile, int stage) {
    Tile::template copy<Threads>(chunk, kv_head, TilePlaces::at(tile * kTileKeys64), end,
                                 shared + static_cast<uint32_t>(stage * Tile::kBytes), 0, thread,
                                 outside);
  };
  if (tile0 < tile1) copy(tile0, 0);
  commitCopies();
  for (int tile = tile0, stage = 0; tile < tile1; ++tile, stage ^= 1) {
    meetAtTile();
    if (tile + 1 < tile1) copy(tile + 1, stage ^ 1);
    commitCopies();
    body(shared + static_cast<uint32_t>(stage * Tile::kBytes), TilePlaces::at(tile * kTileKeys64));
  }
  __syncthreads();
}

// Sums of exponentials of the scores of rows g and g + 8, relative to their running maxima `top`.
struct RunningSum {
  float top[2] = {minusInfinity(), minusInfinity()};  // in powers of two
  float sum[2] = {0, 0};                              // of this thread's columns

  __device__ void add(const float (&scores)[8][4], float scale2) {
    float tops[2];
    largestScores(scores, tops);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float larger = fmaxf(top[half], tops[half] * scale2);
      if (larger == minusInfinity()) continue;
      sum[half] *= power2(top[half] - larger);
      top[half] = larger;
#pragma unroll
      for (int n = 0; n < 8; ++n) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          sum[half] += power2(fmaf(scores[n][2 * half + i], scale2, -larger));
        }
      }
    }
  }
};

}  // namespace allot::kernels::cuda
