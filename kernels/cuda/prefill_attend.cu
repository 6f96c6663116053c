// Attention of a chunk over lists of key blocks or all keys, by skip-softmax if asked.
#include "kernels/cuda/prefill_softmax.cuh"

namespace allot::kernels::cuda {
namespace {

constexpr int kWideWarps = kWideQueries / 16;

// A thread block computes one head's 16 * Warps queries.
template <int D, int Warps, bool Skips>
__global__ void __launch_bounds__(Warps * 32, Warps > 4 ? 1
                                              : Skips   ? 2
                                                        : 3) attend(const PromptChunk chunk) {
  constexpr int kRows = Warps * 16;
  extern __shared__ __align__(1024) uint8_t shared[];
  const int head = static_cast<int>(blockIdx.x);
  // The blocks with the most keys start first.
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
  if (chunk.statistics && threadIdx.x % 128 == 0) {
    addCounts<D>(chunk, counts, !Skips && !chunk.bits, row);
  }
}

}  // namespace

int attendBytes(int head_dim) { return 4 * kTileKeys64 * head_dim * 2; }

AttendKernel attendKernelOf(int head_dim, bool skips, bool wide) {
  if (head_dim == 64) {
    return skips  ? attend<64, kWideWarps, true>
           : wide ? attend<64, kWideWarps, false>
                  : attend<64, 4, false>;
  }
  if (head_dim != 128) return nullptr;
  return skips  ? attend<128, kWideWarps, true>
         : wide ? attend<128, kWideWarps, false>
                : attend<128, 4, false>;
}

}  // namespace allot::kernels::cuda
