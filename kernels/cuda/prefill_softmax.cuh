#pragma once
// Exact attention of blocks of queries over tiles of keys, in order, with a running maximum. Device
// code.
#include "kernels/cuda/prefill_tiles.cuh"

namespace allot::kernels::cuda {

// One thread's share of 16 queries' outputs.
template <int D>
struct RunningOutput {
  float sums[D / 8][4] = {};
  float top[2] = {minusInfinity(), minusInfinity()};  // scores, not scaled
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

  // Scores become weights.
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

// What one block of threads read; the CPU's counts.
struct BlockCounts {
  unsigned groups = 0, skipped = 0, keys = 0, value_keys = 0;  // groups of 16 keys

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

// `dense`: what was counted is what causality and the window leave.
template <int D>
__device__ void addCounts(const PromptChunk& chunk, const BlockCounts& counts, bool dense,
                          int begin, int end) {
  uint64_t dense_blocks = 0, dense_keys = 0;
  for (int b = begin / kQueryBlock; b * kQueryBlock < end; ++b) {
    const int oldest = oldestOf(chunk, max(begin, b * kQueryBlock));
    const int last = min(end, (b + 1) * kQueryBlock);
    dense_blocks += (last - 1) / chunk.key_block - oldest / chunk.key_block + 1;
    dense_keys += last - oldest;
  }
  PrefillStatistics* to = chunk.statistics;
  constexpr int kBytes = D * sizeof(Cached);
  addTo(&to->dense_blocks, dense_blocks);
  addTo(&to->dense_bytes, 2 * dense_keys * kBytes);
  addTo(&to->blocks, dense ? dense_blocks : counts.groups * 16 / chunk.key_block);
  addTo(&to->key_bytes, (dense ? dense_keys : uint64_t{counts.keys}) * kBytes);
  addTo(&to->value_bytes, (dense ? dense_keys : uint64_t{counts.value_keys}) * kBytes);
  if (counts.skipped > 0) addTo(&to->skipped_blocks, counts.skipped);
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
    float2* to = reinterpret_cast<float2*>(chunk.out + at * D);
#pragma unroll
    for (int n = 0; n < D / 8; ++n) {
      to[4 * n + t] = {made.sums[n][2 * half] * factor, made.sums[n][2 * half + 1] * factor};
    }
    if (chunk.lse && t == 0) {
      chunk.lse[at] = total > 0 ? (made.top[half] * scale2 + log2f(total)) * kLn2 : minusInfinity();
    }
  }
}

// One head's 16 Warps queries over the cursor's tiles. Keys, and where nothing is skipped values,
// are copied a tile ahead. `row`: the warp's first position; begin .. end - 1: the queries'.
template <int D, int Warps, bool Skips>
__device__ void attendInOrder(const PromptChunk& chunk, int head, int begin, int end, int row,
                              TileCursor cursor, uint32_t shared, RunningOutput<D>* made,
                              BlockCounts* counts) {
  constexpr int kThreads = Warps * 32;
  using Tile = SharedTile<D>;
  const int kv_head = head / (chunk.heads / chunk.kv_heads);
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
  const float scale2 = chunk.scale * kLog2E;
  const int oldest = oldestOf(chunk, begin);
  const auto keysAt = [&](int stage) {
    return shared + static_cast<uint32_t>(stage * Tile::kBytes);
  };
  const auto valuesAt = [&](int stage) { return keysAt(2 + stage); };
  bool outside = false;
  const auto copy = [&](const TilePlaces& places, int stage) {
    Tile::template copy<kThreads>(chunk, kv_head, places, end, keysAt(stage),
                                  Skips ? 0 : valuesAt(stage), thread, &outside);
  };

  QueryTile<D> queries;
  queries.load(chunk, head, row, lane);
  TilePlaces places = cursor.next();
  if (places.any()) copy(places, 0);
  commitCopies();
  for (int stage = 0; places.any(); stage ^= 1) {
    const TilePlaces next = cursor.next();
    if (next.any()) copy(next, stage ^ 1);
    commitCopies();
    waitCopies<1>();
    __syncthreads();
    float scores[8][4], tops[2];
    queries.score(keysAt(stage), lane, scores);
    if (isMasked(chunk, places, row)) maskScores(chunk, places, row, lane, scores);
    largestScores(scores, tops);
    const int keys = BlockCounts::keysIn(places, oldest, end);
    counts->groups += BlockCounts::groupsIn(places);
    counts->keys += keys;
    if (Skips) {
      bool below = true;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int position = row + lane / 4 + 8 * half;
        const bool seen = position >= begin && position < end && tops[half] != minusInfinity();
        below = below && (!seen || (tops[half] - made->top[half]) * scale2 < chunk.log2_skip);
      }
      if (__syncthreads_and(below)) {
        ++counts->skipped;
        places = next;
        continue;
      }
      Tile::template copy<kThreads>(chunk, kv_head, places, end, 0, valuesAt(0), thread, &outside);
      commitCopies();
    }
    counts->value_keys += keys;
    made->raise(tops, scale2);
    made->weigh(scale2, scores);
    if (Skips) {
      waitCopies<0>();
      __syncthreads();
    }
    addValues<D>(scores, valuesAt(Skips ? 0 : stage), lane, made->sums);
    __syncthreads();
    places = next;
  }
  if (__syncthreads_or(outside) && thread == 0) {
    report(chunk, PromptWrong::kPage, head, begin / kQueryBlock);
  }
}

}  // namespace allot::kernels::cuda
