// Sampled blocks (prefill.h): a thread block computes all scores of one head's 64 queries, draws
// blocks of values by their weights, and computes the drawn blocks again. With a budget of all
// blocks it attends in order, with 0 it writes zeros.
#include "kernels/cuda/prefill_keys.cuh"
#include "kernels/cuda/prefill_softmax.cuh"
#include "kernels/systematic.h"

namespace allot::kernels::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * 32;

// What the threads of a block share beside tiles.
struct SampledShared {
  float normaliser[kQueryBlock];  // log2; +infinity for queries that are not there
  unsigned long long sums[kThreads];
  unsigned skipped;
};

// One head's block of queries.
struct SampledRow {
  int head, block, begin, end, row;  // row: the warp's first position
  int first, blocks;                 // key blocks first .. first + blocks - 1
};

// Writes lse, log2 of each query's sum of exponentials over each key block, and the normalisers.
template <int D>
__device__ void findWeights(const PromptChunk& chunk, const SampledRow& at, float* lse,
                            uint32_t tiles, SampledShared* shared) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const float scale2 = chunk.scale * kLog2E;
  QueryTile<D> queries;
  queries.load(chunk, at.head, at.row, lane);
  float top[2] = {minusInfinity(), minusInfinity()}, sum[2] = {0, 0};
  bool outside = false;
  forEachTile<D, kThreads>(
      chunk, at.head / (chunk.heads / chunk.kv_heads), at.first, at.first + at.blocks, at.end,
      tiles, &outside, [&](uint32_t tile, const TilePlaces& places) {
        float scores[8][4];
        queries.score(tile, lane, scores);
        if (isMasked(chunk, places, at.row)) maskScores(chunk, places, at.row, lane, scores);
        RunningSum own;
        own.add(scores, scale2);
        const int b = places.start[0] / kTileKeys64 - at.first;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const float total = sumOfRow(own.sum[half]);
          const float log_sum = total > 0    ? own.top[half] + log2f(total)
                                : total == 0 ? minusInfinity()
                                             : notANumber();
          if (lane % 4 == 0) lse[b * kQueryBlock + 16 * warp + lane / 4 + 8 * half] = log_sum;
          if (log_sum == minusInfinity()) continue;
          const float larger = fmaxf(top[half], log_sum);
          sum[half] = sum[half] * power2(top[half] - larger) + power2(log_sum - larger);
          top[half] = larger;
        }
      });
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int r = lane / 4 + 8 * half;
    const int position = at.row + r;
    const bool there = position >= at.begin && position < at.end;
    if (there && (!isNumber(sum[half]) || top[half] > kLargest)) {
      report(chunk, PromptWrong::kScore, at.head, at.block);
    }
    if (lane % 4 == 0) {
      shared->normaliser[16 * warp + r] = there ? top[half] + log2f(sum[half]) : -minusInfinity();
    }
  }
  if (__syncthreads_or(outside) && threadIdx.x == 0) {
    report(chunk, PromptWrong::kPage, at.head, at.block);
  }
}

// Computes each block's weight, 2^30 times the sum of the queries' attention. A warp a block.
__device__ void weighBlocks(int blocks, const float* lse, const SampledShared& shared,
                            uint64_t* weights) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int b = static_cast<int>(threadIdx.x) / 32; b < blocks; b += kWarps) {
    double weight = 0;
#pragma unroll
    for (int r = lane; r < kQueryBlock; r += 32) {
      weight += static_cast<double>(power2(lse[b * kQueryBlock + r] - shared.normaliser[r]));
    }
#pragma unroll
    for (int other = 16; other > 0; other /= 2) weight += __shfl_xor_sync(kAll, weight, other);
    if (lane == 0) weights[b] = static_cast<uint64_t>(__double2ll_rn(weight * 0x1p30));
  }
}

// Draws blocks: sets their bits, writes log2 of what each then counts to `factors`, and counts the
// others in shared->skipped. A thread has neighbouring blocks.
// Requires: bits are clear.
__device__ void drawBlocks(const QueryDraws& draws, uint32_t budget, const SampledRow& at,
                           const uint64_t* weights, SampledShared* shared, uint32_t* bits,
                           float* factors) {
  const int thread = static_cast<int>(threadIdx.x);
  const int each = (at.blocks + kThreads - 1) / kThreads;
  const int from = min(at.blocks, thread * each), to = min(at.blocks, from + each);
  uint64_t own = 0;
  for (int b = from; b < to; ++b) own += weights[b];
  shared->sums[thread] = own;
  if (thread == 0) shared->skipped = 0;
  __syncthreads();
  uint64_t prefix = 0, total = 0;
  for (int i = 0; i < kThreads; ++i) {
    if (i < thread) prefix += shared->sums[i];
    total += shared->sums[i];
  }
  if (total == 0) return;  // a score that is not finite, which was reported
  const uint32_t word =
      philox(draws.seed, draws.sequence, kPromptBit | static_cast<uint32_t>(at.begin),
             attentionStream(draws.layer, static_cast<uint32_t>(at.head)), kDrawBlocks)[0];
  const uint32_t offset = offsetOf(word);
  uint32_t drawn = systematicDrawsBelow(prefix, total, budget, offset);
  unsigned skipped = 0;
  for (int b = from; b < to; ++b) {
    prefix += weights[b];
    const uint32_t below = systematicDrawsBelow(prefix, total, budget, offset);
    if (below > drawn) {
      const double factor = static_cast<double>(below - drawn) * static_cast<double>(total) /
                            (static_cast<double>(budget) * static_cast<double>(weights[b]));
      factors[b] = static_cast<float>(log2(factor));
      atomicOr(bits + (at.first + b) / 32, 1u << (at.first + b) % 32);
    } else {
      ++skipped;
    }
    drawn = below;
  }
  atomicAdd(&shared->skipped, skipped);
}

// Adds each drawn block's exact attention, times what it counts.
template <int D>
__device__ void addDrawn(const PromptChunk& chunk, const SampledRow& at, const uint32_t* bits,
                         const float* factors, uint32_t tiles, const SampledShared& shared,
                         RunningOutput<D>* made, BlockCounts* counts) {
  using Tile = SharedTile<D>;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int kv_head = at.head / (chunk.heads / chunk.kv_heads);
  const float scale2 = chunk.scale * kLog2E;
  const int oldest = oldestOf(chunk, at.begin);
  bool outside = false;  // findWeights() has reported it
  const auto copy = [&](const TilePlaces& places, int stage) {
    const uint32_t to = tiles + static_cast<uint32_t>(2 * stage * Tile::kBytes);
    Tile::template copy<kThreads>(chunk, kv_head, places, at.end, to, to + Tile::kBytes, thread,
                                  &outside);
  };
  QueryTile<D> queries;
  queries.load(chunk, at.head, at.row, lane);
  const float normaliser[2] = {shared.normaliser[16 * warp + lane / 4],
                               shared.normaliser[16 * warp + lane / 4 + 8]};
  TileCursor cursor(bits, kQueryBlock, oldest, at.end - 1);
  TilePlaces places = cursor.next();
  if (places.any()) copy(places, 0);
  commitCopies();
  for (int stage = 0; places.any(); stage ^= 1) {
    meetAtTile();
    const TilePlaces now = places;
    places = cursor.next();
    if (places.any()) copy(places, stage ^ 1);
    commitCopies();
    const float factor = factors[now.start[0] / kTileKeys64 - at.first];
    const uint32_t tile = tiles + static_cast<uint32_t>(2 * stage * Tile::kBytes);
    float scores[8][4];
    queries.score(tile, lane, scores);
    if (isMasked(chunk, now, at.row)) maskScores(chunk, now, at.row, lane, scores);
#pragma unroll
    for (int n = 0; n < 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        scores[n][i] = power2(fmaf(scores[n][i], scale2, factor - normaliser[i / 2]));
      }
    }
    addValues<D>(scores, tile + Tile::kBytes, lane, made->sums);
    const int keys = BlockCounts::keysIn(now, oldest, at.end);
    counts->keys += keys;
    counts->value_keys += keys;
  }
  __syncthreads();
  // writeOutput() divides by the total, which is 1 here.
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const bool there = isNumber(normaliser[half]);
    made->top[half] = there ? normaliser[half] / scale2 : minusInfinity();
    made->total[half] = there && lane % 4 == 0 ? 1.0f : 0.0f;
  }
}

template <int D>
__global__ void __launch_bounds__(kThreads, 2)
    sampleBlocks(const PromptChunk chunk, const SampledBlocks sampled) {
  extern __shared__ __align__(1024) uint8_t memory[];
  const uint32_t tiles = sharedAddress(memory);
  auto& shared = *reinterpret_cast<SampledShared*>(memory + 4 * SharedTile<D>::kBytes);
  uint32_t* const bits = reinterpret_cast<uint32_t*>(&shared + 1);
  const int words = sampled.room / 32 + 1;
  const int64_t scratch = static_cast<int64_t>(blockIdx.x) * sampled.room;
  float* const lse = sampled.lse + scratch * kQueryBlock;
  uint64_t* const weights = sampled.weights + scratch;
  float* const factors = sampled.factors + scratch;
  const int last_block = (chunkEnd(chunk) - 1) / kQueryBlock;
  const int items = chunk.heads * (last_block - firstBlock(chunk) + 1);
  for (int item = static_cast<int>(blockIdx.x); item < items; item += static_cast<int>(gridDim.x)) {
    // The blocks with the most keys first.
    const int block = last_block - item / chunk.heads;
    SampledRow at{.head = item % chunk.heads,
                  .block = block,
                  .begin = max(chunk.first, block * kQueryBlock),
                  .end = min(chunkEnd(chunk), (block + 1) * kQueryBlock),
                  .row = block * kQueryBlock + static_cast<int>(threadIdx.x) / 32 * 16};
    const int oldest = oldestOf(chunk, at.begin);
    at.first = oldest / kTileKeys64;
    at.blocks = (at.end - 1) / kTileKeys64 - at.first + 1;
    const uint32_t* own = sampled.draws.budgets;
    const uint32_t budget = own ? own[at.head] : sampled.draws.budget;
    const bool all = budget >= static_cast<uint32_t>(at.blocks);
    RunningOutput<D> made;
    BlockCounts counts;
    if (all) {
      attendInOrder<D, kWarps, false>(chunk, at.head, at.begin, at.end, at.row,
                                      TileCursor(nullptr, kQueryBlock, oldest, at.end - 1), tiles,
                                      &made, &counts);
    } else if (budget > 0) {
      for (int i = static_cast<int>(threadIdx.x); i < words; i += kThreads) bits[i] = 0;
      findWeights<D>(chunk, at, lse, tiles, &shared);
      __syncthreads();
      weighBlocks(at.blocks, lse, shared, weights);
      __syncthreads();
      drawBlocks(sampled.draws, budget, at, weights, &shared, bits, factors);
      __syncthreads();
      counts.groups = at.blocks * kTileGroups;
      counts.keys = at.end - oldest;
      counts.skipped = static_cast<int>(shared.skipped);
      addDrawn<D>(chunk, at, bits, factors, tiles, shared, &made, &counts);
    }
    writeOutput<D>(chunk, at.head, at.row, static_cast<int>(threadIdx.x) % 32, chunk.scale * kLog2E,
                   made);
    if (chunk.statistics && threadIdx.x == 0) {
      addCounts<D>(chunk, counts, all, at.row);
    }
    __syncthreads();
  }
}

}  // namespace

int sampledBytes(int head_dim, int room) {
  return 4 * kTileKeys64 * head_dim * 2 + static_cast<int>(sizeof(SampledShared)) +
         (room / 32 + 1) * 4;
}

SampledKernel sampledKernelOf(int head_dim) {
  return head_dim == 64 ? sampleBlocks<64> : head_dim == 128 ? sampleBlocks<128> : nullptr;
}

}  // namespace allot::kernels::cuda
