#pragma once
// The split kernel over keys (step.h). Device code. Each warp works alone: it processes its share
// of the splits and keeps its own ring of copies full.
#include <type_traits>

#include "kernels/cuda/shadow_scores.cuh"
#include "kernels/cuda/splits_at_once.h"
#include "kernels/cuda/tile_drawer.cuh"

namespace allot::kernels::cuda {

// Returns the sums over all lanes of four numbers: number i to the lanes with lane % 4 = i.
template <typename X>
__device__ X overLanes(const X (&x)[4], int lane) {
  // Lanes with bit 1 set keep numbers 2 and 3 and send 0 and 1; then the same with bit 0.
  const bool upper = lane & 2, odd = lane & 1;
  X a = upper ? x[2] : x[0], b = upper ? x[3] : x[1];
  a += __shfl_xor_sync(kAll, upper ? x[0] : x[2], 2);
  b += __shfl_xor_sync(kAll, upper ? x[1] : x[3], 2);
  return overKeys((odd ? b : a) + __shfl_xor_sync(kAll, odd ? a : b, 1));
}

// A lane's eight keys of a split and head: scores, and weights as float16.
struct LaneKeys {
  float4 low, high;
  float sum;  // of 2^(s' - max_score) / 2
  uint4 weights;

  __device__ LaneKeys(const float* scores, float max_score)
      : low(reinterpret_cast<const float4*>(scores)[0]),
        high(reinterpret_cast<const float4*>(scores)[1]) {
    const float one = max_score + 1;  // weights are at most a half
    float p[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
    for (int i = 0; i < 8; ++i) p[i] = power2(p[i] - one);
    sum = ((p[0] + p[1]) + (p[2] + p[3])) + ((p[4] + p[5]) + (p[6] + p[7]));
    weights = {halves(p[0], p[1]), halves(p[2], p[3]), halves(p[4], p[5]), halves(p[6], p[7])};
  }

  // Returns the sum of the weights in units of 2^-24; 0 if `sum` is NaN. The bits of float(2^23 +
  // x) exceed those of float(2^23) by round(x), for 0 <= x <= 2^23: weights are summed as integers
  // without conversions, which take four times as long.
  __device__ uint32_t units() const {
    constexpr float kBegin = 0x1p23f;
    constexpr uint32_t kBits = 0x4b000000;
    const uint32_t words[4] = {weights.x, weights.y, weights.z, weights.w};
    uint32_t units = 0;
#pragma unroll
    for (const uint32_t word : words) {
      const float2 two = ElementOf<__half>::pair(word);
      units += __float_as_uint(fmaf(two.x, kWeightUnits, kBegin)) +
               __float_as_uint(fmaf(two.y, kWeightUnits, kBegin));
    }
    return sum == sum ? units - 8 * kBits : 0;
  }
};

// Returns the largest of the lane's scores.
__device__ inline float largestOf(const LaneKeys& keys) {
  const auto ofFourHeads = [](const float4& x) { return fmaxf(fmaxf(x.x, x.y), fmaxf(x.z, x.w)); };
  return fmaxf(ofFourHeads(keys.low), ofFourHeads(keys.high));
}

struct Nothing {
  template <typename... Any>
  __device__ explicit Nothing(const Any&...) {}
};

// A warp's sums of a split, for the lane's heads.
template <int kDim, typename T, int kHeadGroup>
struct SplitSums {
  float running_max[HeadGroupLayout<kHeadGroup>::kOfLane];
  float sum[HeadGroupLayout<kHeadGroup>::kOfLane] = {};
  ValueSum<kDim, T, kHeadGroup> values;

  __device__ SplitSums() {
#pragma unroll
    for (float& e : running_max) e = kNoKeys;
  }
};

// The sums of earlier splits, in the warp's shared memory; each lane has its own words.
template <int kDim, typename T, int kHeadGroup>
class PendingSums {
  using Sums = SplitSums<kDim, T, kHeadGroup>;
  static constexpr int kOfLane = HeadGroupLayout<kHeadGroup>::kOfLane, kChannels = kDim / 8;

 public:
  __device__ PendingSums(const Lane& lane, uint8_t* memory)
      : words_(reinterpret_cast<float*>(memory) + lane.id) {}

  __device__ void keep(const Sums& sums) const {
#pragma unroll
    for (int i = 0; i < kOfLane; ++i) {
      word(i, 0) = sums.running_max[i];
      word(i, 1) = sums.sum[i];
#pragma unroll
      for (int k = 0; k < kChannels; ++k) word(i, 2 + k) = sums.values.at(i, k);
    }
  }

  // Joins the kept sums with `sums`, those of the next split, into `sums`.
  __device__ void joinTo(Sums& sums) const {
#pragma unroll
    for (int i = 0; i < kOfLane; ++i) {
      const float running_max = fmaxf(word(i, 0), sums.running_max[i]);
      const float left = power2(word(i, 0) - running_max);
      const float right = power2(sums.running_max[i] - running_max);
      sums.running_max[i] = running_max;
      sums.sum[i] = joined(word(i, 1), left, sums.sum[i], right);
#pragma unroll
      for (int k = 0; k < kChannels; ++k) {
        sums.values.set(i, k, joined(word(i, 2 + k), left, sums.values.at(i, k), right));
      }
    }
  }

 private:
  __device__ float& word(int i, int k) const { return words_[(i * (2 + kChannels) + k) * 32]; }

  float* words_;
};

// One warp, which processes its share of the work.
template <int kDim, typename T, SplitMode kMode, bool kByHead, int kHeadGroup>
class SplitWarp {
  using Layout = SplitLayout<kDim, kMode, kHeadGroup>;
  using HeadGroup = HeadGroupLayout<kHeadGroup>;
  static constexpr int kOfLane = HeadGroup::kOfLane;
  static constexpr int kExactHeadGroup = exactHeadGroup(kMode, kHeadGroup);
  using ExactHeadGroup = HeadGroupLayout<kExactHeadGroup>;
  using ExactTile = ScoreTile<kDim, T, kExactHeadGroup>;
  using Values = ValueSum<kDim, T, kExactHeadGroup>;
  static constexpr bool kShadows = kMode == SplitMode::kShadow, kDraws = kMode == SplitMode::kFlash;
  static constexpr bool kJoins = kMode == SplitMode::kJoined;

 public:
  // at_once: exact splits that row_splits counts as one.
  __device__ SplitWarp(const Step& step, const RowSplits* row_splits, int at_once, uint8_t* memory)
      : step_(step),
        lane_(Lane::here()),
        share_(step, row_splits, at_once),
        pipe_(step, share_, memory),
        tile_(step, lane_),
        shadow_(step, lane_, ScoreScratch<kHeadGroup>{Layout::scratchOf(memory)}),
        drawer_(step, lane_, memory),
        pending_(lane_, Layout::scratchOf(memory)),
        scratch_{Layout::scratchOf(memory)} {}

  __device__ void run() {
    Place place = share_.begin();
    pipe_.start(share_);
    for (; share_.has(place); share_.goOn(place)) {
      const WorkOf<kByHead> work = share_.at(place);
      if (work.exact) {
        if constexpr (kShadows) {
          // Loads queries for this split alone: registers have no room for these and the shadow's.
          ExactTile tile(step_, lane_);
          exactSplits(work, tile);
        } else {
          exactSplits(work, tile_);
        }
      } else if constexpr (Layout::kScores) {
        sampledSplit(work);
      }
    }
    waitCopies<0>();
    if constexpr (kDraws) drawer_.takePending();
  }

 private:
  // Processes exact heads: stores the softmax's sum and the weighted sum of values.
  __device__ void exactSplits(const WorkOf<kByHead>& work, ExactTile& tile) {
    tile.take(work, share_.queriesOf(work));
    int from = 0;
    uint32_t splits = 0;
    do {
      const int to = kJoins ? min(from + work.keys, work.count) : work.count;
      SplitSums<kDim, T, kExactHeadGroup> sums;
      attend(work, from, to, tile, sums);
      ++splits;
      if constexpr (kJoins) {
        if (from > 0) pending_.joinTo(sums);
        from = to;
        if (from < work.count) {
          pending_.keep(sums);
          continue;
        }
      }
      sums.values.store(step_, work, lane_, 1.0f);
#pragma unroll
      for (int i = 0; i < ExactHeadGroup::kOfLane; ++i) {
        const int head = ExactHeadGroup::head(lane_.t, i);
        if (lane_.g == 0 && isFor<kExactHeadGroup>(step_, work, head)) {
          const int64_t at =
              splitIndex(step_, work.row, headOf<kExactHeadGroup>(step_, work, head), work.split);
          step_.space.splits[at] = {sums.running_max[i], splits, sums.sum[i], 0};
        }
      }
    } while (kJoins && from < work.count);
  }

  // Attends to keys from .. to - 1 of the work, with an online softmax.
  __device__ void attend(const Work& work, int from, int to, const ExactTile& exact,
                         SplitSums<kDim, T, kExactHeadGroup>& sums) {
    constexpr int kOfLane = ExactHeadGroup::kOfLane;
    const uint32_t lane_value = TileLayout<kDim>::valuesOf(lane_.id);
    // Running maxima are raised only if a score exceeds its head's by more than 8, a factor of 2^8.
    auto& [running_max, sum, values] = sums;
    const int tiles = (to + kSubtileKeys - 1) / kSubtileKeys;
#pragma unroll 1
    for (int tile = kJoins ? from / kSubtileKeys : work.dead / kSubtileKeys; tile < tiles; ++tile) {
      float s[kOfLane][2];
      exact.scores(work, tile, pipe_.await(), guard_, s);
      pipe_.release(share_);
      bool above = false;
#pragma unroll
      for (int i = 0; i < kOfLane; ++i) above |= fmaxf(s[i][0], s[i][1]) > running_max[i] + 8;
      if (__any_sync(kAll, above)) {
        float factor[kOfLane];
#pragma unroll
        for (int i = 0; i < kOfLane; ++i) {
          const float top = fmaxf(s[i][0], s[i][1]);
          const float raised = fmaxf(running_max[i], largestOverKeys(top));
          factor[i] = power2(running_max[i] - raised);
          running_max[i] = raised;
          sum[i] *= factor[i];
        }
        values.scale(factor);
      }
#pragma unroll
      for (int i = 0; i < kOfLane; ++i) {
        s[i][0] = power2(s[i][0] - running_max[i]);
        s[i][1] = power2(s[i][1] - running_max[i]);
        sum[i] += s[i][0] + s[i][1];
      }
      uint32_t columns[Values::kProducts][2];
      Values::columns(s, columns);
      values.add(pipe_.await() + lane_value, columns);
      pipe_.release(share_);
    }
    guard_.tell(step_, work, lane_.id);
#pragma unroll
    for (int i = 0; i < kOfLane; ++i) sum[i] = overKeys(sum[i]);
  }

  // Writes scores to scratch, and the largest of the lane's to `top`.
  __device__ void scoresToScratch(const Work& work, float (&top)[kOfLane]) {
    if constexpr (kShadows) {
      shadow_.ofSplit(work, share_, pipe_, guard_, scratch_, top);
    } else {
      tile_.ofSplit(work, share_, pipe_, guard_, scratch_, top);
    }
  }

  // Processes sampled heads. Scores go to scratch and are read from there key by key.
  __device__ void sampledSplit(const WorkOf<kByHead>& work) {
    float of_lane[kOfLane];
    scoresToScratch(work, of_lane);
    guard_.tell(step_, work, lane_.id);
#pragma unroll
    for (int i = 0; i < kOfLane; ++i) {
      const float top = largestOverKeys(of_lane[i]);
      of_lane[i] = top >= kNoKeys ? ceilf(top) : kNoKeys;
    }
    __syncwarp();
    if constexpr (kDraws) {
      drawFromSplit(work, of_lane[0]);
    } else if (step_.space.scores) {
      storeSplit<true>(work, of_lane);
    } else {
      storeSplit<false>(work, of_lane);
    }
    __syncwarp();
  }

  // Broadcasts max_score of four heads from the lanes that have them.
  __device__ void ofFourHeads(const float (&of_lane)[kOfLane], int first_head,
                              float (&max_score)[4]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float own = of_lane[HeadGroup::ofLane(i)];
      if constexpr (kHeadGroup == kMaxHeadGroup)
        own = first_head < 8 ? own : of_lane[HeadGroup::ofLane(8 + i)];
      max_score[i] = __shfl_sync(kAll, own, HeadGroup::laneT(first_head + i));
    }
  }

  // Stores weights and their sums, or scores and levels if keys are chosen by scores. Four heads at
  // a time hide each other's latency; the code of eight would not fit into the instruction cache.
  template <bool kLeavesScores>
  __device__ void storeSplit(const WorkOf<kByHead>& work, const float (&of_lane)[kOfLane]) {
    const int64_t first =
        splitIndex(step_, work.row, headOf<kHeadGroup>(step_, work, 0), work.split);
#pragma unroll 1
    for (int first_head = 0; first_head < kHeadGroup; first_head += 4) {
      const uint32_t heads = headsOf<kHeadGroup>(step_, work) >> first_head;
      storeFourHeads<kLeavesScores>(
          first + static_cast<int64_t>(first_head) * step_.space.max_splits, heads, first_head,
          of_lane);
    }
  }

  // Stores four heads; `heads` has a bit for each one that the work is for.
  template <bool kLeavesScores>
  __device__ void storeFourHeads(int64_t first, uint32_t heads, int first_head,
                                 const float (&of_lane)[kOfLane]) {
    float max_score[4], sums[4];
    uint32_t units[4];
    ofFourHeads(of_lane, first_head, max_score);
    {
      // The lane stores 16 bytes of weights, or 32 of scores, of each head.
      const int64_t bytes = kLeavesScores ? kSplitKeys * sizeof(float) : kSplitBytes;
      auto* to =
          kLeavesScores ? reinterpret_cast<uint8_t*>(step_.space.scores) : step_.space.split_bytes;
      to += first * bytes + lane_.id * (kLeavesScores ? 32 : 16);
      const int64_t apart = step_.space.max_splits * bytes;
#pragma unroll
      for (int i = 0; i < 4; ++i, to += apart) {
        const LaneKeys keys(scratch_.of(first_head + i) + 8 * lane_.id, max_score[i]);
        sums[i] = keys.sum;
        units[i] = kLeavesScores ? 0 : keys.units();
        if (!(heads >> i & 1)) continue;
        if constexpr (kLeavesScores) {
          reinterpret_cast<float4*>(to)[0] = keys.low;
          reinterpret_cast<float4*>(to)[1] = keys.high;
          const int64_t split = first + static_cast<int64_t>(i) * step_.space.max_splits;
          step_.space.split_bytes[split * kSplitBytes + lane_.id] =
              static_cast<uint8_t>(levelOf(max_score[i], largestOf(keys)));
        } else {
          storeKept(reinterpret_cast<uint4*>(to), keys.weights);
        }
      }
    }
    if constexpr (!kLeavesScores) storeSubtileWeights(first, heads, units);
    const float sum = 2 * overLanes(sums, lane_.id);
    const uint32_t weight = kLeavesScores ? 0 : overLanes(units, lane_.id);
    const float low = lane_.id % 2 ? max_score[1] : max_score[0];
    const float high = lane_.id % 2 ? max_score[3] : max_score[2];
    if (lane_.id < 4 && heads >> lane_.id & 1) {
      step_.space.splits[first + static_cast<int64_t>(lane_.id) * step_.space.max_splits] = {
          lane_.id < 2 ? low : high, weight, sum, 0};
    }
  }

  // Stores the sums of weights by subtiles, which two lanes share.
  __device__ void storeSubtileWeights(int64_t first, uint32_t heads, const uint32_t (&units)[4]) {
    uint32_t subtiles[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) subtiles[i] = units[i] + __shfl_xor_sync(kAll, units[i], 1);
    uint32_t* to = step_.space.subtile_weights + first * kSubtiles + lane_.id / 2;
    const int64_t apart = static_cast<int64_t>(step_.space.max_splits) * kSubtiles;
    if (lane_.id % 2 == 0) {
#pragma unroll
      for (int i = 0; i < 4; ++i, to += apart) {
        if (heads >> i & 1) *to = subtiles[i];
      }
    }
  }

  __device__ void drawFromSplit(const WorkOf<kByHead>& work, float of_lane) {
    static_assert(!kDraws || kHeadGroup == 4);
    const float of_lanes[kOfLane] = {of_lane};
    float max_score[4], sums[4];
    uint4 weights[4];
    ofFourHeads(of_lanes, 0, max_score);
#pragma unroll
    for (int h = 0; h < kHeadGroup; ++h) {
      const LaneKeys keys(scratch_.of(h) + 8 * lane_.id, max_score[h]);
      sums[h] = keys.sum;
      weights[h] = keys.weights;
    }
    const float sum = 2 * overLanes(sums, lane_.id);
    __syncwarp();
#pragma unroll
    for (int h = 0; h < kHeadGroup; ++h) {
      reinterpret_cast<uint4*>(scratch_.of(h))[lane_.id] = weights[h];
    }
    __syncwarp();
    drawer_.draw(work, share_.splitsOf(work.row), of_lane, sum);
  }

  const Step& step_;
  Lane lane_;
  WarpShare<kMode, kByHead, kHeadGroup> share_;
  KeyPipe<kDim, kMode, kByHead, kHeadGroup> pipe_;
  ScoreGuard guard_;
  std::conditional_t<kShadows, Nothing, ExactTile> tile_;
  std::conditional_t<kShadows, ShadowScores<kDim, kHeadGroup>, Nothing> shadow_;
  std::conditional_t<kDraws, TileDrawer<kDim, T, kByHead>, Nothing> drawer_;
  std::conditional_t<kJoins, PendingSums<kDim, T, kExactHeadGroup>, Nothing> pending_;
  ScoreScratch<kHeadGroup> scratch_;
};

// Returns how many blocks of four warps should fit on a multiprocessor, by their registers.
constexpr int blocksOf(SplitMode mode, int head_group) {
  return mode == SplitMode::kFlash || head_group == 8 ? 3 : head_group == kSmallHeadGroup ? 4 : 2;
}

template <int kDim, typename T, SplitMode kMode, bool kByHead, int kHeadGroup>
__global__ void __launch_bounds__(128, blocksOf(kMode, kHeadGroup))
    splitKernel(const __grid_constant__ Step step) {
  static_assert(kMode != SplitMode::kFlash ||
                kHeadGroup == kSmallHeadGroup);  // counts of draws: a byte a head
  static_assert(kMode != SplitMode::kJoined || !kByHead);
  extern __shared__ __align__(256) uint8_t unaligned[];
  using Layout = SplitLayout<kDim, kMode, kHeadGroup>;
  uint8_t* memory = unaligned + (-sharedAddress(unaligned) & 255);
  auto* row_splits = reinterpret_cast<RowSplits*>(memory + blockDim.x / 32 * Layout::kWarpBytes);
  waitForKernelBefore();
  const int at_once = countSplits<kByHead>(step, row_splits, [&](int splits) {
    if constexpr (kMode != SplitMode::kJoined) return 1;
    return splitsAtOnce(splits, WarpShare<kMode, kByHead, kHeadGroup>::teamsOf(step));
  });
  letNextKernelIn();
  SplitWarp<kDim, T, kMode, kByHead, kHeadGroup> warp(
      step, row_splits, at_once, memory + threadIdx.x / 32 * Layout::kWarpBytes);
  warp.run();
}

}  // namespace allot::kernels::cuda
