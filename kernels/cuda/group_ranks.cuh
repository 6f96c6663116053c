#pragma once
// The first kernel of groups that choose keys together (group_choice.cuh): the ranks of a row's
// keys, which are the integers of the group's mixture (cpu/group_draws.h) as floats. Here the
// weights are of the scores that the split kernel leaves. Device code.
#include "kernels/cuda/key_sets.cuh"
#include "kernels/piece_masses.h"

namespace allot::kernels::cuda {

static_assert(kPieceKeys == kSplitKeys);

struct RankShared {
  // [query heads of the group]; of no meaning if a head does not choose.
  float max_scores[kMaxHeadGroup];  // E_h
  float exponentials[kMaxHeadGroup];
  uint64_t totals[kMaxHeadGroup];   // W_h; 0: every key is masked
  uint32_t factors[kMaxHeadGroup];  // U_h; 0: no part in the mixture
};

// Ranks are float(m_j), the integers of the group's mixture.
class GroupRanks {
 public:
  __device__ GroupRanks(const Step& step, RankShared& shared)
      : step_(step),
        shared_(shared),
        tid_(threadIdx.x),
        lane_(threadIdx.x % 32),
        warp_(threadIdx.x / 32),
        group_(step.in.group) {
    const int blocks = (step.space.max_splits + kRankSplits - 1) / kRankSplits;
    block_ = static_cast<int>(blockIdx.x) % blocks;
    const int of = static_cast<int>(blockIdx.x) / blocks;
    row_ = of / step.cache.kv_heads;
    kv_head_ = of % step.cache.kv_heads;
    first_head_ = kv_head_ * group_;
  }

  __device__ void run() {
    uint32_t choosing = 0;
    for (int h = 0; h < group_; ++h) {
      const bool chooses = kindOf<true>(step_, row_, first_head_ + h) == HeadKind::kSampled;
      choosing |= static_cast<uint32_t>(chooses) << h;
    }
    splits_ = splitsOf(keysOf(step_, step_.in.lengths[row_]).span());
    if (choosing == 0 || block_ * kRankSplits >= splits_) return;
    const int split = block_ * kRankSplits + warp_;
    // The first heads' scores come while all heads are weighed.
    const FourHeads heads = loadHeads(min(split, splits_ - 1), 0);
    weighHeads(choosing);
    if (split < splits_) rankSplit(split, heads);
  }

 private:
  __device__ int64_t headIndex(int h) const {
    return static_cast<int64_t>(row_) * step_.in.heads + first_head_ + h;
  }
  // Returns E_h - E_ht, kLostGap for all larger ones.
  __device__ static int gapOf(float max_score, float own) {
    return static_cast<int>(fminf(fmaxf(max_score - own, 0), kLostGap));
  }

  // Computes the heads' parts in the mixture: their budgets' shares, or equal ones if the method
  // does not read budgets.
  __device__ void weighHeads(uint32_t choosing) {
    for (int h = warp_; h < group_; h += kRankSplits) {
      if (choosing >> h & 1) weighHead(h);
      if (lane_ == 0 && !(choosing >> h & 1)) shared_.totals[h] = 0;
    }
    __syncthreads();
    if (tid_ < group_) {
      const bool reads = step_.how.uses_budget;
      const auto part = [&](int h) {
        return reads ? budgetOf<true>(step_, row_, first_head_ + h) : 1;
      };
      uint64_t all = 0;
      for (int h = 0; h < group_; ++h) all += shared_.totals[h] > 0 ? part(h) : 0;
      const uint64_t total = shared_.totals[tid_];
      const double share = static_cast<double>(part(tid_)) / static_cast<double>(all);
      shared_.factors[tid_] = total > 0 ? headFactor(share, total) : 0;
      if (block_ == 0 && choosing >> tid_ & 1) {
        step_.space.shared_heads[headIndex(tid_)] = {
            shared_.max_scores[tid_], shared_.exponentials[tid_], static_cast<uint32_t>(all), 0};
      }
    }
    __syncthreads();
  }

  // Computes E_h, W_h and the sum of exponentials. A warp calls it together.
  __device__ void weighHead(int h) {
    const Split* splits = step_.space.splits + splitIndex(step_, row_, first_head_ + h, 0);
    float top = kNoKeys, exponentials = 0;
    uint64_t total = 0;
    for (int p = lane_; p < splits_; p += 32) top = fmaxf(top, splits[p].max_score);
    for (int i = 16; i > 0; i /= 2) top = fmaxf(top, __shfl_xor_sync(kAll, top, i));
    for (int p = lane_; p < splits_; p += 32) {
      const Split split = splits[p];
      const auto weight = static_cast<uint64_t>(split.sum * kWeightOne);
      exponentials += power2(split.max_score - top) * split.sum;
      total += inHeadUnits(weight, gapOf(top, split.max_score));
    }
    for (int i = 16; i > 0; i /= 2) {
      exponentials += __shfl_xor_sync(kAll, exponentials, i);
      total += __shfl_xor_sync(kAll, total, i);
    }
    if (lane_ != 0) return;
    shared_.max_scores[h] = top;
    shared_.exponentials[h] = exponentials;
    shared_.totals[h] = exponentials > 0 ? total : 0;  // not if a score is not a number
  }

  // Returns w_hj of a key whose s' is `below` its split's max_score.
  __device__ static uint32_t weightOf(float below) {
    const float weight = power2(below) * kWeightOne;
    return static_cast<uint32_t>(weight < 0x1p23f ? weight + 0.5f : weight);
  }

  // What the split kernel left of four heads of a split, of eight keys a lane.
  struct FourHeads {
    float4 scores[4][2];
    float max_scores[4];
  };
  __device__ FourHeads loadHeads(int split, int four) const {
    FourHeads heads;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int64_t at = splitIndex(step_, row_, first_head_ + min(four + i, group_ - 1), split);
      const auto* from =
          reinterpret_cast<const float4*>(step_.space.scores + at * kSplitKeys + 8 * lane_);
      heads.scores[i][0] = from[0];
      heads.scores[i][1] = from[1];
      heads.max_scores[i] = step_.space.splits[at].max_score;
    }
    return heads;
  }

  // Writes a split's ranks, eight keys a lane, and their levels. heads: the first four.
  __device__ void rankSplit(int split, FourHeads heads) const {
    uint64_t masses[8] = {};
    uint32_t there = 0;  // keys that are not masked
#pragma unroll 1
    for (int four = 0; four < group_; four += 4) {
      if (four > 0) heads = loadHeads(split, four);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int h = four + i;
        const uint32_t of_head = h < group_ ? shared_.factors[h] : 0;
        if (of_head == 0) continue;  // the head's scores may be anything
        const float max_score = heads.max_scores[i];
        const uint32_t factor = pieceFactor(of_head, gapOf(shared_.max_scores[h], max_score));
        const float4 &low = heads.scores[i][0], &high = heads.scores[i][1];
        const float s[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
        for (int k = 0; k < 8; ++k) {
          there |= static_cast<uint32_t>(s[k] != minusInfinity()) << k;
          masses[k] += static_cast<uint64_t>(factor) * weightOf(s[k] - max_score);
        }
      }
    }
    // Adaptive methods leave masked keys out; top-k takes them last, as keys of weight 0.
    const float masked = step_.how.chosen_by == ChosenBy::kAdaptive ? minusInfinity() : 0.0f;
    float ranks[8], largest = masked;
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      ranks[k] = there >> k & 1 ? static_cast<float>(masses[k]) : masked;
      largest = fmaxf(largest, ranks[k]);
    }
    const float log = LeftRanks::logOf(largest);
    float max_score = ceilf(log);
    for (int i = 16; i > 0; i /= 2)
      max_score = fmaxf(max_score, __shfl_xor_sync(kAll, max_score, i));
    const int64_t at =
        (static_cast<int64_t>(row_) * step_.cache.kv_heads + kv_head_) * step_.space.max_splits +
        split;
    auto* to = reinterpret_cast<float4*>(step_.together.ranks + at * kSplitKeys + 8 * lane_);
    to[0] = {ranks[0], ranks[1], ranks[2], ranks[3]};
    to[1] = {ranks[4], ranks[5], ranks[6], ranks[7]};
    step_.together.rank_levels[at * kLevelsPerSplit + lane_] =
        static_cast<uint8_t>(levelOf(max_score, log));
    if (lane_ == 0) step_.together.rank_splits[at] = {max_score, 0, 0, 0};
  }

  static constexpr float kWeightOne = 1 << kWeightBits;

  const Step& step_;
  RankShared& shared_;
  int tid_, lane_, warp_, group_;
  int block_, row_, kv_head_, first_head_, splits_;
};

__global__ void __launch_bounds__(kRankThreads, 3)
    groupRanksKernel(const __grid_constant__ Step step) {
  __shared__ RankShared shared;
  GroupRanks ranks(step, shared);
  waitForKernelBefore();
  letNextKernelIn();
  ranks.run();
}

}  // namespace allot::kernels::cuda
