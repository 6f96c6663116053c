#pragma once
// The common part of all ways to combine a query head (step.h): which head a block has, sums over
// the block, and sums of splits in order. Device code.
#include "allot/kernels/philox_streams.h"
#include "kernels/cuda/primitives.cuh"

namespace allot::kernels::cuda {

constexpr int kCombineThreads = 256;
constexpr int kCombineWarps = kCombineThreads / 32;

template <int kDim>
struct HeadShared {
  double warp_doubles[kCombineWarps];
  float warp_floats[kCombineWarps];
  alignas(16) float sums[kCombineWarps][kDim];  // by warps, or the partial sums of splits
};

// kThreads: with fewer than kCombineThreads threads each does the work of several, whose sums stay
// separate, so that no bit depends on the number of threads. One head then takes longer, and many
// heads less, since more blocks fit on a multiprocessor.
template <int kDim, typename T, bool kByHead, int kThreads = kCombineThreads>
class HeadSplits {
 protected:
  static constexpr int kShare = kCombineThreads / kThreads, kOwnWarps = kThreads / 32;
  static_assert(kCombineThreads % kThreads == 0);

  __device__ HeadSplits(const Step& step, HeadShared<kDim>& shared, uint8_t* memory)
      : step_(step),
        shared_(shared),
        memory_(memory),
        tid_(threadIdx.x),
        lane_(threadIdx.x % 32),
        warp_(threadIdx.x / 32) {
    row_ = blockIdx.x / step.in.heads;
    head_ = blockIdx.x % step.in.heads;
    kv_head_ = head_ / step.in.group;
    keys_ = keysOf(step, step.in.lengths[row_]);
    budget_ = budgetOf<kByHead>(step, row_, head_);
    splits_ = splitsOf(keys_.span());
    at_ = splitIndex(step, row_, head_, 0);
    kind_ = kindOf<kByHead>(step, row_, head_);
  }

  // Finishes a head that is silent, wrong or exact. Returns false if it is none of these.
  __device__ bool plain() {
    if (kind_ == HeadKind::kBad) {
      const bool length = beyondRoom(step_, keys_.n);
      if (tid_ == 0) report(step_, length ? Wrong::kLength : Wrong::kBudget, row_, kv_head_);
      fill(notANumber(), notANumber());
    } else if (kind_ == HeadKind::kSilent) {
      forChannels([&](int d) { put(d, kByHead ? idleValue(d) : 0.0f); });
      setLse(minusInfinity());
    } else if (kind_ == HeadKind::kExact) {
      splits_ = exactSplitsOf(exactKeysOf(step_, keys_.n).span());
      combineExact();
    } else {
      return false;
    }
    return true;
  }

  __device__ int64_t headIndex() const {
    return static_cast<int64_t>(row_) * step_.in.heads + head_;
  }
  // Calls body(channel) for each of the thread's channels.
  template <typename Body>
  __device__ void forChannels(Body body) const {
#pragma unroll
    for (int first = 0; first < kDim; first += kThreads) {
      const int d = first + tid_;
      if (kDim % kThreads == 0 || d < kDim) body(d);
    }
  }
  __device__ void fill(float out, float lse) const {
    forChannels([&](int d) { put(d, out); });
    setLse(lse);
  }
  // Returns a channel of the output of a head with budget 0; 0 in an empty row.
  __device__ float idleValue(int d) const {
    if (!step_.by_head.zero_budget_values || keys_.n == 0) return 0;
    const int64_t at = static_cast<int64_t>(row_) * step_.cache.kv_heads + kv_head_;
    return step_.by_head.zero_budget_values[at * kDim + d];
  }
  // Writes a channel of the head's output.
  __device__ void put(int d, float x) const {
    const int64_t at = headIndex() * kDim + d;
    step_.out.out[at] = x;
    if (step_.out.rounded) static_cast<T*>(step_.out.rounded)[at] = ElementOf<T>::of(x);
  }
  __device__ void setLse(float lse) const {
    if (tid_ == 0 && step_.out.lse) step_.out.lse[headIndex()] = lse;
  }
  __device__ int64_t listAt() const { return headIndex() * step_.space.draw_stride; }
  __device__ std::array<uint32_t, 4> words(uint32_t block) const {
    return philox(step_.in.seed, step_.in.sequences[row_], step_.in.steps[row_],
                  attentionStream(step_.in.layer, static_cast<uint32_t>(head_)), block);
  }

  // ---- Over the block, in one order whatever kThreads and the other blocks.

  // Reduces kOf numbers of each thread.
  template <int kOf, typename X, typename Function>
  __device__ X reduce(const X (&own)[kOf], X* warps, Function function) {
    X x[kOf];
#pragma unroll
    for (int s = 0; s < kOf; ++s) {
      x[s] = own[s];
      for (int i = 16; i > 0; i /= 2) x[s] = function(x[s], __shfl_xor_sync(kAll, x[s], i));
    }
    __syncthreads();
#pragma unroll
    for (int s = 0; s < kOf; ++s) {
      if (lane_ == 0) warps[warp_ + s * kOwnWarps] = x[s];
    }
    __syncthreads();
    X all = warps[0];
    for (int w = 1; w < kOf * kOwnWarps; ++w) all = function(all, warps[w]);
    return all;
  }
  __device__ float largest(float x) {
    const float one[1] = {x};
    return reduce(one, shared_.warp_floats, [](float a, float b) { return fmaxf(a, b); });
  }
  __device__ float sum(const float (&x)[kShare]) {
    return reduce(x, shared_.warp_floats, [](float a, float b) { return a + b; });
  }
  __device__ double sum(const double (&x)[kShare]) {
    return reduce(x, shared_.warp_doubles, [](double a, double b) { return a + b; });
  }
  template <typename X>
  __device__ X sum(X x) {
    static_assert(kShare == 1);
    const X one[1] = {x};
    return sum(one);
  }

  __device__ float largestMaxScore() {
    float max_score = kNoKeys;
    if (tid_ < splits_) max_score = (split_ = step_.space.splits[at_ + tid_]).max_score;
    for (int p = tid_ + kThreads; p < splits_; p += kThreads) {
      max_score = fmaxf(max_score, step_.space.splits[at_ + p].max_score);
    }
    return largest(max_score);
  }

  // ---- Sums of splits.

  // The splits' sums of values are added up as eight partial sums: each adds every eighth split (of
  // exact heads, every eighth group of four) in order, then the partial sums are added in order. A
  // warp has kShare partial sums, a lane kOwn neighbouring channels of each.
  static constexpr int kPartialSums = kCombineWarps, kOwn = kDim / 32;
  struct alignas(kOwn * sizeof(float)) Channels {
    float x[kOwn] = {};
  };
  // Returns a split's sums of the lane's channels.
  __device__ Channels valuesOf(int p) const {
    const uint8_t* from = step_.space.split_bytes + (at_ + p) * kSplitBytes;
    return reinterpret_cast<const Channels*>(from)[lane_];
  }

  // Combines exact splits, in groups of four: joins those of a group in order, if not yet joined.
  __device__ void combineExact() {
    // Of a group's first split left has the group's sum, right its max_score and later its factor.
    // Of each other split left has the factor of the splits before it, right its own.
    auto* left = reinterpret_cast<float*>(memory_);
    float* right = left + splits_;
    const Split* splits = step_.space.splits + at_;
    const Split one = splits[0];
    const Channels values_of_one = valuesOf(0);
    if (one.weight == static_cast<uint32_t>(splits_)) return fillFrom(one, values_of_one);
    const bool whole = one.weight > 1;  // the split kernel has joined them
    float max_score = kNoKeys;
    for (int first = tid_ * kJoinedSplits; first < splits_; first += kThreads * kJoinedSplits) {
      Split own[kJoinedSplits];
#pragma unroll
      for (int i = 0; i < kJoinedSplits; ++i) own[i] = splits[min(first + i, splits_ - 1)];
      Split group = own[0];
#pragma unroll
      for (int i = 1; i < kJoinedSplits; ++i) {
        if (whole || first + i >= splits_) continue;
        const float common = fmaxf(group.max_score, own[i].max_score);
        left[first + i] = power2(group.max_score - common);
        right[first + i] = power2(own[i].max_score - common);
        group.sum = joined(group.sum, left[first + i], own[i].sum, right[first + i]);
        group.max_score = common;
      }
      left[first] = group.sum;
      right[first] = group.max_score;
      max_score = fmaxf(max_score, group.max_score);
    }
    max_score = largest(max_score);
    float totals[kShare] = {};
#pragma unroll
    for (int s = 0; s < kShare; ++s) {
      for (int first = (tid_ + s * kThreads) * kJoinedSplits; first < splits_;
           first += kCombineThreads * kJoinedSplits) {
        right[first] = power2(right[first] - max_score);
        totals[s] = __fmaf_rn(right[first], left[first], totals[s]);
      }
    }
    const float total = sum(totals);
    setLse(total > 0 ? (max_score + log2f(total)) * kLn2 : minusInfinity());
    if (budget_ == 0 || !(total > 0)) return fillWithout(total);
    Channels sums[kShare];
#pragma unroll(kShare == 1 ? 2 : 1)
    for (int all = 0; all < splits_; all += kPartialSums * kJoinedSplits) {
      // Loads of joined groups are all in flight at once.
      Channels group_values[kShare];
#pragma unroll
      for (int s = 0; s < kShare; ++s) {
        const int first = all + (warp_ + s * kOwnWarps) * kJoinedSplits;
        if (first < splits_) group_values[s] = valuesOf(first);
      }
#pragma unroll
      for (int s = 0; s < kShare; ++s) {
        const int first = all + (warp_ + s * kOwnWarps) * kJoinedSplits;
        if (first >= splits_) break;
        if (!whole) joinRest(first, left, right, &group_values[s]);
#pragma unroll
        for (int k = 0; k < kOwn; ++k) {
          sums[s].x[k] = __fmaf_rn(right[first], group_values[s].x[k], sums[s].x[k]);
        }
      }
    }
    putPartialSums(sums, total);
  }

  // Joins the other splits of a group to its first, by their factors.
  __device__ void joinRest(int first, const float* left, const float* right,
                           Channels* group) const {
    Channels values[kJoinedSplits];
#pragma unroll
    for (int i = 1; i < kJoinedSplits; ++i) {
      if (first + i < splits_) values[i] = valuesOf(first + i);
    }
#pragma unroll
    for (int i = 1; i < kJoinedSplits; ++i) {
      const int p = first + i;
      if (p >= splits_) continue;
#pragma unroll
      for (int k = 0; k < kOwn; ++k) {
        group->x[k] = joined(group->x[k], left[p], values[i].x[k], right[p]);
      }
    }
  }

  // Outputs a single split, or splits that the split kernel has joined to one.
  __device__ void fillFrom(const Split& one, const Channels& values) const {
    setLse(one.sum > 0 ? (one.max_score + log2f(one.sum)) * kLn2 : minusInfinity());
    if (budget_ == 0 || !(one.sum > 0)) return fillWithout(one.sum);
    if (warp_ > 0) return;
#pragma unroll
    for (int k = 0; k < kOwn; ++k) put(lane_ * kOwn + k, (values.x[k] + 0.0f) / one.sum);
  }

  // Outputs a head that has no budget or no positive total.
  __device__ void fillWithout(float total) const {
    // NaN scores end here too: they were reported, and their row must not look like a number.
    const float out = budget_ == 0 || total == 0 ? 0.0f : notANumber();
    forChannels([&](int d) { put(d, kByHead && budget_ == 0 ? idleValue(d) : out); });
  }

  // Outputs the sum of the partial sums, divided by `total`.
  __device__ void putPartialSums(const Channels (&sums)[kShare], float total) {
#pragma unroll
    for (int s = 0; s < kShare; ++s) {
      auto* to = reinterpret_cast<Channels*>(shared_.sums[warp_ + s * kOwnWarps]);
      to[lane_] = sums[s];
    }
    __syncthreads();
    forChannels([&](int d) {
      float out = shared_.sums[0][d];
#pragma unroll
      for (int partial = 1; partial < kPartialSums; ++partial) out += shared_.sums[partial][d];
      put(d, out / total);
    });
  }

  // Combines s2anta-flash's splits.
  __device__ void combineFlash() {
    auto* factors = reinterpret_cast<float*>(memory_);
    const float max_score = largestMaxScore();
    float own_weights[kShare] = {}, own_exponentials[kShare] = {};
#pragma unroll
    for (int s = 0; s < kShare; ++s) {
      for (int p = tid_ + s * kThreads; p < splits_; p += kCombineThreads) {
        const Split split = p == tid_ ? split_ : step_.space.splits[at_ + p];
        const float scale = power2(split.max_score - max_score);
        own_exponentials[s] += scale * split.sum;
        factors[p] = scale * static_cast<float>(split.weight);
        own_weights[s] += factors[p];
      }
    }
    const float exponentials = sum(own_exponentials);
    const float total = sum(own_weights);
    setLse(exponentials > 0 ? (max_score + log2f(exponentials)) * kLn2 : minusInfinity());
    if (step_.space.draw_keys) {
      const uint32_t samples = drawsOfSplit(budget_, splits_);
      for (uint32_t m = tid_; m < samples * splits_; m += kThreads) {
        step_.space.draw_weights[listAt() + m] =
            total > 0 ? factors[m / samples] / (total * static_cast<float>(samples)) : 0.0f;
      }
    }
    if (budget_ == 0 || !(total > 0)) return fillWithout(total);
    Channels sums[kShare];
#pragma unroll
    for (int s = 0; s < kShare; ++s) {
#pragma unroll 4
      for (int p = warp_ + s * kOwnWarps; p < splits_; p += kPartialSums) {
        const Channels values = valuesOf(p);
#pragma unroll
        for (int k = 0; k < kOwn; ++k) sums[s].x[k] += factors[p] * values.x[k];
      }
    }
    putPartialSums(sums, total);
  }

  const Step& step_;
  HeadShared<kDim>& shared_;
  uint8_t* memory_;
  int tid_, lane_, warp_;
  int row_, head_, kv_head_, splits_;
  RowKeys keys_;
  uint32_t budget_;
  int64_t at_;
  Split split_{};  // of index tid_, set by largestMaxScore()
  HeadKind kind_;
};

}  // namespace allot::kernels::cuda
