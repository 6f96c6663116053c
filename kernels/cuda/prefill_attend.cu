// Exact attention of a chunk over lists of key blocks, or all keys.
#include "kernels/cuda/prefill_softmax.cuh"

#ifndef ALLOT_TRY_BLOCKS
#define ALLOT_TRY_BLOCKS 3
#endif

namespace allot::kernels::cuda {
namespace {

// A block of threads: one head's 16 Warps queries.
template <int D, int Warps, bool Skips>
__global__ void __launch_bounds__(Warps * 32, Warps == 4 ? ALLOT_TRY_BLOCKS : 1)
    attend(const PromptChunk chunk) {
  constexpr int kRows = Warps * 16;
  extern __shared__ __align__(256) uint8_t shared[];
  const int head = static_cast<int>(blockIdx.x);
  // The longest rows first.
  const int block = chunk.first / kRows + static_cast<int>(gridDim.y - 1 - blockIdx.y);
  const int begin = max(chunk.first, block * kRows),
            end = min(chunkEnd(chunk), (block + 1) * kRows);
  const int row = block * kRows + static_cast<int>(threadIdx.x) / 32 * 16;
  RunningOutput<D> made;
  BlockCounts counts;
  attendInOrder<D, Warps, Skips>(chunk, head, begin, end, row,
                                 TileCursor(chunk, head, block, oldestOf(chunk, begin), end - 1),
                                 sharedAddress(shared), &made, &counts);
  writeOutput<D>(chunk, head, row, static_cast<int>(threadIdx.x) % 32, chunk.scale * kLog2E, made);
  if (chunk.statistics && threadIdx.x == 0) {
    addCounts<D>(chunk, counts, !Skips && !chunk.bits, begin, end);
  }
}

}  // namespace

int attendBytes(int head_dim) { return 4 * kTileKeys64 * head_dim * 2; }

AttendKernel attendKernelOf(int head_dim, bool skips, bool wide) {
  if (head_dim == 64)
    return skips ? attend<64, 4, true> : wide ? attend<64, 8, false> : attend<64, 4, false>;
  if (head_dim != 128) return nullptr;
  return skips ? attend<128, 4, true> : wide ? attend<128, 8, false> : attend<128, 4, false>;
}

}  // namespace allot::kernels::cuda
