#pragma once
// The combine kernel (step.h) of dense attention and of methods that draw single keys. Device code,
// one block a row and query head, which adds up the splits in a fixed order. Exact heads: a
// weighted sum of the splits' sums. Flash heads: a weighted mean of the splits' means. Sampled
// heads: draws from the splits' weights, by prefix sums in integers, then the drawn values.
#include "kernels/cuda/head_block.cuh"

namespace allot::kernels::cuda {

// Splits' weights are added up in units of 2^(E - 24 - kKept), E the largest max_score. A split
// whose max_score is E - g keeps all its bits if g <= kKept, and else loses its last g - kKept
// bits: at g = 24 they are 2^-23 of a split of equal scores. A split has at most 2^31 of its own
// units, so the total of kMostSplits is at most 2^62.
constexpr int kKept = 16;
static_assert(kMostSplits <= 1 << (62 - 31 - kKept));

// Returns a split's weight in the common unit, weight * 2^(kKept - gap), rounded to nearest, ties
// up; 0 for a gap of kKept + 32 or more. gap: how far the split's max_score is below the largest.
__device__ inline uint64_t inUnits(uint32_t weight, float gap) {
  if (gap >= kKept + 32) return 0;
  const int bits = kKept - static_cast<int>(gap);
  if (bits >= 0) return static_cast<uint64_t>(weight) << bits;
  return (weight + (uint64_t{1} << (-bits - 1))) >> -bits;
}

template <int kDim>
struct CombineShared : HeadShared<kDim> {
  uint64_t warp_sums[kCombineWarps];
};

template <int kDim, typename T, SplitMode kFrom, bool kByHead, int kThreads>
class CombineHead : HeadBlock<kDim, T, kFrom == SplitMode::kShadow, kByHead, kThreads> {
  static constexpr bool kRescores = kFrom == SplitMode::kShadow;
  static constexpr bool kSamples = kRescores || kFrom == SplitMode::kWeights;
  using Base = HeadBlock<kDim, T, kRescores, kByHead, kThreads>;
  using Base::at_, Base::budget_, Base::keys_, Base::lane_, Base::memory_, Base::splits_,
      Base::row_;
  using Base::kLanes, Base::kEntries, Base::kShare, Base::kOwnWarps;
  using Base::step_, Base::tid_, Base::warp_;
  static constexpr int kAhead = kRescores ? 4 : 8;  // entries that a lane loads at once
  static_assert(!kSamples || kThreads >= kDim);

 public:
  __device__ CombineHead(const Step& step, CombineShared<kDim>& shared, uint8_t* memory)
      : Base(step, shared, memory), shared_(shared) {
    if constexpr (kSamples) {
      if (this->kind_ == HeadKind::kSampled) offset_ = offsetOf(this->words(0)[0]);
    }
  }

  __device__ void run() {
    if (this->plain()) return;
    if constexpr (kFrom == SplitMode::kFlash) {
      this->combineFlash();
    } else if constexpr (kSamples) {
      sample();
    }
  }

 private:
  // Computes prefix[p], the weight of the splits before p in the common unit, and the sum of
  // exponentials relative to max_score. Returns the total weight.
  __device__ uint64_t scanWeights(float max_score, uint64_t* prefix, float* exponentials) {
    uint64_t passed = 0;
    float sums[kShare] = {};
    for (int all = 0; all < splits_; all += kCombineThreads) {
#pragma unroll
      for (int s = 0; s < kShare; ++s) {
        const int first = all + s * kThreads, p = first + tid_;
        if (first >= splits_) break;
        uint64_t weight = 0;
        if (p < splits_) {
          const Split split = p == tid_ ? this->split_ : step_.space.splits[at_ + p];
          weight = inUnits(split.weight, max_score - split.max_score);
          sums[s] += power2(split.max_score - max_score) * split.sum;
        }
        uint64_t before = weight;
        for (int i = 1; i < 32; i *= 2) {
          const uint64_t left = __shfl_up_sync(kAll, before, i);
          if (lane_ >= i) before += left;
        }
        __syncthreads();
        if (lane_ == 31) shared_.warp_sums[warp_] = before;
        __syncthreads();
        uint64_t warps = passed;
        for (int w = 0; w < warp_; ++w) warps += shared_.warp_sums[w];
        if (p < splits_) prefix[p] = warps + before - weight;
        for (int w = 0; w < kOwnWarps; ++w) passed += shared_.warp_sums[w];
      }
    }
    *exponentials = this->sum(sums);  // and a barrier after the prefix
    return passed;
  }

  // The key that a threshold falls on, and its entry.
  struct Drawn {
    int key;
    uint32_t entry;
    float log_weight;  // s' of the key, as its rounded weight has it
  };
  __device__ Drawn find(uint64_t threshold, const uint64_t* prefix, float max_score) const {
    int low = 0, high = splits_;  // prefix[low] <= threshold < prefix[high], the total at splits_
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      (prefix[middle] <= threshold ? low : high) = middle;
    }
    // The loads of a split are all in flight at once.
    const float own = step_.space.splits[at_ + low].max_score;
    const auto* subtiles =
        reinterpret_cast<const uint4*>(step_.space.subtile_weights + (at_ + low) * kSubtiles);
    uint4 four[kSubtiles / 4];
#pragma unroll
    for (int i = 0; i < kSubtiles / 4; ++i) four[i] = subtiles[i];
    const int bits = kKept - static_cast<int>(max_score - own);
    // The drawn key is the first whose prefix sum in the split, itself included, reaches `target`.
    const uint64_t rest = threshold - prefix[low];
    uint64_t target =
        bits >= 0 ? (rest >> bits) + 1 : (rest << -bits) + (uint64_t{1} << (-bits - 1));
    int subtile = 0;
    bool found = false;
#pragma unroll
    for (int i = 0; i < kSubtiles; ++i) {
      const uint4& words = four[i / 4];
      const uint32_t weight = i % 4 == 0   ? words.x
                              : i % 4 == 1 ? words.y
                              : i % 4 == 2 ? words.z
                                           : words.w;
      if (found || weight >= target) {
        found = true;
      } else {
        target -= weight;
        ++subtile;
      }
    }
    Drawn drawn{keys_.base + low * kSplitKeys + subtile * kSubtileKeys, 0, 0};
    const int from = drawn.key;
    const uint32_t first = this->entryOf(from);  // a subtile is in one page
    const auto* weights = reinterpret_cast<const uint4*>(step_.space.split_bytes +
                                                         (at_ + low) * kSplitBytes + subtile * 32);
    uint4 eight[2] = {weights[0], weights[1]};
    found = false;
    float weight = 0;
#pragma unroll
    for (int i = 0; i < kSubtileKeys; ++i) {
      const uint4& words = eight[i / 8];
      const uint32_t word = i / 2 % 4 == 0   ? words.x
                            : i / 2 % 4 == 1 ? words.y
                            : i / 2 % 4 == 2 ? words.z
                                             : words.w;
      const float2 two = ElementOf<__half>::pair(word);
      const float here = i % 2 ? two.y : two.x;
      const auto units = static_cast<uint32_t>(here * kWeightUnits);
      if (found) continue;
      if (units >= target) {
        found = true;
        weight = here;
      } else {
        target -= units;
        ++drawn.key;
      }
    }
    drawn.log_weight = log2f(weight) + 1 + own;
    drawn.entry = first + static_cast<uint32_t>(drawn.key - from);
    return drawn;
  }

  __device__ void sample() {
    auto* prefix = reinterpret_cast<uint64_t*>(memory_);
    const float max_score = this->largestMaxScore();
    float exponentials;
    const uint64_t total = scanWeights(max_score, prefix, &exponentials);
    const int64_t list = this->listAt();
    if (total == 0) {
      for (uint32_t m = tid_; step_.space.draw_keys && m < budget_; m += kThreads) {
        step_.space.draw_keys[list + m] = -1;
      }
      this->fill(exponentials == exponentials ? 0.0f : notANumber(), minusInfinity());
      return;
    }
    if (!kRescores) this->setLse((max_score + log2f(exponentials)) * kLn2);

    // Every lane finds a draw, and the warp gathers them. Few draws are distributed over all warps.
    constexpr int kGroup = kEntries * kAhead;
    const auto per_warp = static_cast<int>((budget_ + kCombineWarps - 1) / kCombineWarps);
    const int each = min(32, (per_warp + kGroup - 1) / kGroup * kGroup);
    const ChosenBy by = step_.how.chosen_by;
    const DrawThresholds thresholds(by, total, budget_, offset_, reciprocalOf(budget_));
    const auto words = [this](uint32_t block) { return this->words(block); };
    // A warp that does the work of two warps finds the draws of both at once if they are few.
    const bool pairs = kShare == 2 && each <= 16;
    typename Base::Sums sums[kShare];
    for (uint32_t base = 0; base < budget_; base += kCombineWarps * each) {
      uint32_t entry = 0;
      float known = 0;
#pragma unroll
      for (int s = 0; s < kShare; ++s) {
        const uint32_t first = base + (warp_ + s * kOwnWarps) * each;
        if (first >= budget_) break;
        if (s == 0 || !pairs) {
          const int of = pairs ? lane_ / 16 : 0, i = pairs ? lane_ % 16 : lane_;
          const uint32_t m = first + of * (kOwnWarps * each) + i;
          const bool own = i < each && m < budget_;
          Drawn drawn{};
          known = minusInfinity();
          if (own) {
            drawn = find(thresholds.at(by, m, words), prefix, max_score);
            known = -drawn.log_weight;
            if (step_.space.draw_keys) step_.space.draw_keys[list + m] = drawn.key;
            if (kRescores && step_.in.bias) {
              known += step_.in.bias[row_ * step_.in.bias_stride + drawn.key] * kLog2E;
            }
          }
          entry = __shfl_sync(kAll, drawn.entry, own ? lane_ : of * 16);
        }
        const int from = pairs ? s * 16 : 0;
        const int count = static_cast<int>(min(budget_ - first, static_cast<uint32_t>(each)));
        if constexpr (kRescores) {
          const auto used = [&](int i, float weight) {
            if (!step_.space.draw_keys || i >= count || lane_ % kLanes != 0) return;
            step_.space.draw_weights[list + first + i] = weight;
          };
          this->template gather<kAhead, false>(count, entry, known, &sums[s], used, from);
        } else {
          this->template gatherEqual<kAhead>(count, entry, sums[s].out, from);
        }
      }
    }
    if constexpr (kRescores) {
      this->template finish<false>(sums);
      const auto denominator = static_cast<float>(sums->denominator);
      for (uint32_t m = tid_; step_.space.draw_keys && m < budget_; m += kThreads) {
        float& weight = step_.space.draw_weights[list + m];
        weight = denominator > 0 ? power2(weight - sums->top) / denominator : 0.0f;
      }
      // The proposal's normaliser times the mean importance weight.
      const float scale = sums->top + max_score - static_cast<float>(23 + kKept) +
                          log2f(static_cast<float>(total) / static_cast<float>(budget_));
      this->setLse(denominator > 0 ? (scale + log2f(denominator)) * kLn2 : minusInfinity());
      // The denominator is 0 if every drawn key's exact score is -infinity.
      if (tid_ < kDim)
        this->put(tid_, sums->value * (denominator == 0 ? 0.0f : 1.0f / denominator));
    } else {
      const float share = 1.0f / static_cast<float>(budget_);
      for (uint32_t m = tid_; step_.space.draw_keys && m < budget_; m += kThreads) {
        step_.space.draw_weights[list + m] = share;
      }
      const float value = this->sumEntries(sums);
      if (tid_ < kDim) this->put(tid_, value * share);
    }
  }

  CombineShared<kDim>& shared_;
  uint32_t offset_ = 0;  // of systematic draws
};

// Returns how many blocks should fit on a multiprocessor.
constexpr int combineBlocks(SplitMode from, int threads) {
  if (threads == 32) return 20;  // of exact heads alone
  if (threads == kCombineThreads) return from == SplitMode::kShadow ? 2 : 4;
  return from == SplitMode::kShadow ? 4 : 6;
}

template <int kDim, typename T, SplitMode kFrom, bool kByHead, int kThreads = kCombineThreads>
__global__ void __launch_bounds__(kThreads, combineBlocks(kFrom, kThreads))
    combineKernel(const __grid_constant__ Step step) {
  extern __shared__ __align__(16) uint8_t memory[];  // (max_splits + 1) * 8 bytes
  __shared__ CombineShared<kDim> shared;
  // The constructor reads inputs of the step while the split kernel still runs.
  CombineHead<kDim, T, kFrom, kByHead, kThreads> head(step, shared, memory);
  waitForKernelBefore();
  head.run();
}

}  // namespace allot::kernels::cuda
