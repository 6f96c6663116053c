#pragma once
// Attention of queries over tiles of keys, in order, with a running maximum. Device code.
#include "kernels/cuda/prefill_tiles.cuh"

namespace allot::kernels::cuda {

// One thread's share of 16 queries' outputs.
template <int D>
struct RunningOutput {
  float sums[D / 8][4] = {};
  float top[2] = {minusInfinity(), minusInfinity()};  // largest scores, not scaled
  float total[2] = {0, 0};                            // of this thread's columns

  __device__ void raise(const float (&tops)[2], float scale2) {
    float factors[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float larger = fmaxf(top[half], tops[half]);
      factors[half] = larger == minusInfinity() ? 1.0f : power2((top[half] - larger) * scale2);
      top[half] = larger;
      total[half] *= factors[half];
    }
    // Most tiles bring no larger score to any of the warp's queries.
    if (__all_sync(kAll, factors[0] == 1.0f && factors[1] == 1.0f)) return;
#pragma unroll
    for (int n = 0; n < D / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[n][i] *= factors[i / 2];
    }
  }

  // Turns scores into weights and adds these to `total`.
  __device__ void weigh(float scale2, float (&scores)[8][4]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float shift = top[half] == minusInfinity() ? 0.0f : top[half] * scale2;
#pragma unroll
      for (int n = 0; n < 8; ++n) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float& x = scores[n][2 * half + i];
          x = power2(fmaf(x, scale2, -shift));
          total[half] += x;
        }
      }
    }
  }
};

// The counts of one block of 64 queries, from which PrefillStatistics follow.
struct BlockCounts {
  int groups = 0;  // of 16 keys
  int skipped = 0, keys = 0, value_keys = 0;

  __device__ static int keysIn(const TilePlaces& places, int oldest, int end) {
    int keys = 0;
#pragma unroll
    for (int i = 0; i < kTileGroups; ++i) {
      const int from = max(places.start[i], oldest), to = min(places.start[i] + 16, end);
      keys += max(to - from, 0);
    }
    return keys;
  }
  __device__ static int groupsIn(const TilePlaces& places) {
    int groups = 0;
#pragma unroll
    for (int i = 0; i < kTileGroups; ++i) groups += places.start[i] != kNowhere;
    return groups;
  }
};

__device__ inline void addTo(uint64_t* counter, uint64_t value) {
  atomicAdd(reinterpret_cast<unsigned long long*>(counter), static_cast<unsigned long long>(value));
}

// Adds the counts of the warp's block of 64 queries to the chunk's statistics; `row` is the warp's
// first position. `dense`: the block read all that causality and the window leave.
// Requires: one thread of the block of 64 queries calls it.
template <int D>
__device__ void addCounts(const PromptChunk& chunk, const BlockCounts& counts, bool dense,
                          int row) {
  const int begin = max(chunk.first, row / kQueryBlock * kQueryBlock);
  const int end = min(chunkEnd(chunk), row / kQueryBlock * kQueryBlock + kQueryBlock);
  if (begin >= end) return;
  const int oldest = oldestOf(chunk, begin);
  const int dense_blocks = (end - 1) / chunk.key_block - oldest / chunk.key_block + 1;
  const int dense_keys = end - oldest;
  constexpr uint64_t kBytes = D * sizeof(Cached);
  PrefillStatistics* to = chunk.statistics;
  addTo(&to->dense_blocks, dense_blocks);
  addTo(&to->dense_bytes, 2 * dense_keys * kBytes);
  addTo(&to->blocks, dense ? dense_blocks : counts.groups * 16 / chunk.key_block);
  addTo(&to->key_bytes, (dense ? dense_keys : counts.keys) * kBytes);
  addTo(&to->value_bytes, (dense ? dense_keys : counts.value_keys) * kBytes);
  if (counts.skipped > 0) addTo(&to->skipped_blocks, counts.skipped);
}

// Returns the t-th word of each of the four lanes 4 g + i, where the lane is 4 g + t: of a tile of
// 8 x 32 channels, of which a lane has pairs, 8 neighbours.
// Requires: the four lanes call it.
__device__ inline uint4 columnOf(const uint32_t (&words)[4], int lane) {
  const uint32_t four = 15u << (lane & ~3);
  const bool high = lane & 2, odd = lane & 1;
  const uint32_t other[2] = {__shfl_xor_sync(four, high ? words[0] : words[2], 2),
                             __shfl_xor_sync(four, high ? words[1] : words[3], 2)};
  // Of words 2 * high and 2 * high + 1: from the lower two lanes, from the upper two.
  const uint32_t low[2] = {high ? other[0] : words[0], high ? other[1] : words[1]};
  const uint32_t top[2] = {high ? words[2] : other[0], high ? words[3] : other[1]};
  const uint32_t from_low = __shfl_xor_sync(four, odd ? low[0] : low[1], 1);
  const uint32_t from_top = __shfl_xor_sync(four, odd ? top[0] : top[1], 1);
  return odd ? uint4{from_low, low[1], from_top, top[1]}
             : uint4{low[0], from_low, top[0], from_top};
}

template <int D>
__device__ void writeOutput(const PromptChunk& chunk, int head, int row, int lane, float scale2,
                            const RunningOutput<D>& made) {
  const int g = lane / 4, t = lane % 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float total = sumOfRow(made.total[half]);
    const int position = row + g + 8 * half;
    if (position < chunk.first || position >= chunkEnd(chunk)) continue;
    if (!isNumber(total) || made.top[half] > kLargest) {
      report(chunk, PromptWrong::kScore, head, position / kQueryBlock);
    }
    const float factor = total > 0 ? 1.0f / total : 0.0f;
    const int64_t at = static_cast<int64_t>(position - chunk.first) * chunk.heads + head;
    if (chunk.out) {
      float2* to = reinterpret_cast<float2*>(chunk.out + at * D);
#pragma unroll
      for (int n = 0; n < D / 8; ++n) {
        to[4 * n + t] = {made.sums[n][2 * half] * factor, made.sums[n][2 * half + 1] * factor};
      }
    } else {
      uint4* to = static_cast<uint4*>(chunk.rounded) + at * (D / 8);
#pragma unroll
      for (int n = 0; n < D / 8; n += 4) {
        uint32_t words[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          words[i] =
              pairOf(made.sums[n + i][2 * half] * factor, made.sums[n + i][2 * half + 1] * factor);
        }
        to[n + t] = columnOf(words, lane);
      }
    }
    if (chunk.lse && t == 0) {
      chunk.lse[at] = total > 0 ? (made.top[half] * scale2 + log2f(total)) * kLn2 : minusInfinity();
    }
  }
}

// Returns true, to all 128 threads of a block of 64 queries, if `mine` is true in each of them.
// `queries`: the index of the block of queries in the thread block.
__device__ inline bool agree(bool mine, int queries) {
  uint32_t all;
  asm volatile(
      "{\n"
      ".reg .pred p, q;\n"
      "setp.ne.u32 p, %1, 0;\n"
      "barrier.cta.red.and.aligned.pred q, %2, 128, p;\n"
      "selp.u32 %0, 1, 0, q;\n"
      "}\n"
      : "=r"(all)
      : "r"(static_cast<uint32_t>(mine)), "r"(1 + queries)
      : "memory");
  return all != 0;
}

// Computes attention of one head's 16 * Warps queries begin .. end - 1 over the cursor's tiles;
// copies one tile ahead. `row`: the warp's first position.
template <int D, int Warps, bool Skips>
__device__ void attendInOrder(const PromptChunk& chunk, int head, int begin, int end, int row,
                              TileCursor cursor, uint32_t shared, RunningOutput<D>* made,
                              BlockCounts* counts) {
  constexpr int kThreads = Warps * 32;
  using Tile = SharedTile<D>;
  const int kv_head = head / (chunk.heads / chunk.kv_heads);
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
  const float scale2 = chunk.scale * kLog2E;
  const auto keysAt = [&](int stage) {
    return shared + static_cast<uint32_t>(stage * Tile::kBytes);
  };
  const auto valuesAt = [&](int stage) { return keysAt(2 + stage); };
  bool outside = false;
  const auto copy = [&](const TilePlaces& places, int stage) {
    Tile::template copy<kThreads>(chunk, kv_head, places, end, keysAt(stage), valuesAt(stage),
                                  thread, &outside);
  };
  // The warp's block of 64 queries.
  const int own_begin = max(begin, row / kQueryBlock * kQueryBlock);
  const int own_end = min(end, row / kQueryBlock * kQueryBlock + kQueryBlock);
  const int own_oldest = oldestOf(chunk, own_begin);

  QueryTile<D> queries;
  queries.load(chunk, head, row, lane);
  TilePlaces places = cursor.next();
  if (places.any()) copy(places, 0);
  commitCopies();
  for (int stage = 0; places.any(); stage ^= 1) {
    meetAtTile();
    const TilePlaces now = places;
    places = cursor.next();
    if (places.any()) copy(places, stage ^ 1);
    commitCopies();
    // Of several blocks of queries some may not see the tile.
    if (Warps > 4 && (now.start[0] >= own_end || now.start[3] + 15 < own_oldest)) continue;
    float scores[8][4], tops[2];
    queries.score(keysAt(stage), lane, scores);
    if (isMasked(chunk, now, row)) maskScores(chunk, now, row, lane, scores);
    largestScores(scores, tops);
    const int keys = BlockCounts::keysIn(now, own_oldest, own_end);
    counts->groups += BlockCounts::groupsIn(now);
    counts->keys += keys;
    if (Skips) {
      bool below = true;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int position = row + lane / 4 + 8 * half;
        const bool seen =
            position >= own_begin && position < own_end && tops[half] != minusInfinity();
        below = below && (!seen || (tops[half] - made->top[half]) * scale2 < chunk.log2_skip);
      }
      if (agree(below, thread / 128)) {
        ++counts->skipped;
        continue;
      }
    }
    counts->value_keys += keys;
    made->raise(tops, scale2);
    made->weigh(scale2, scores);
    addValues<D>(scores, valuesAt(stage), lane, made->sums);
  }
  if (__syncthreads_or(outside) && thread == 0) {
    report(chunk, PromptWrong::kPage, head, begin / kQueryBlock);
  }
}

}  // namespace allot::kernels::cuda
