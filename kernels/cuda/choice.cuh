#pragma once
// The combine kernel (step.h) of methods that choose keys by their scores: top-k, vattention and
// adaptive-denominator (kernels/cpu/adaptive.h), and skip-softmax. Device code, one block a row and
// query head. Sets of keys are bits in shared memory, or in the workspace for long rows. Lists of
// keys therefore ascend, and sums over them do not depend on other thread blocks.
#include "kernels/cuda/heavy_blocks.cuh"
#include "kernels/cuda/key_choice.cuh"

namespace allot::kernels::cuda {

template <int kDim>
struct ChoiceShared : HeadShared<kDim> {
  SetShared sets;
};

// One kernel serves budgets of rows and of heads (kByHead = true): the test is little beside 11,000
// instructions, and no kernel takes longer to compile. kLong: sets are in the workspace.
template <int kDim, typename T, bool kRescores, bool kLong>
class ChoiceHead : HeadBlock<kDim, T, kRescores, true>,
                   KeyChoice<ChoiceHead<kDim, T, kRescores, kLong>> {
  using Choice = KeyChoice<ChoiceHead>;
  friend Choice;
  using Base = HeadBlock<kDim, T, kRescores, true>;
  using Base::at_, Base::budget_, Base::keys_, Base::kv_head_, Base::lane_;
  using Base::kLanes;
  using Base::splits_, Base::row_, Base::step_, Base::tid_, Base::warp_;
  using typename Base::Sums;
  static constexpr int kAhead = kRescores ? 4 : 8;  // entries that a lane loads at once

 public:
  __device__ ChoiceHead(const Step& step, ChoiceShared<kDim>& shared, uint8_t* memory)
      : Base(step, shared, memory),
        tail_(setOf(step, memory, 1)),
        sets_(shared.sets, *reinterpret_cast<SelectionMemory*>(memory), keys_.span(),
              setOf(step, memory, 0), setOf(step, memory, 2)) {}

  __device__ void run() {
    if (!this->plain()) choose();
  }

 private:
  __device__ void choose() {
    const float max_score = this->largestMaxScore();
    float exponentials = 0;
    for (int p = tid_; p < splits_; p += kCombineThreads) {
      const Split split = step_.space.splits[at_ + p];
      exponentials += power2(split.max_score - max_score) * split.sum;
    }
    exponentials = this->sum(exponentials);
    Chosen chosen{};
    if (!(exponentials > 0)) {  // every key is masked, or a score is not a number
      this->fill(exponentials == 0 ? 0.0f : notANumber(), minusInfinity());
      tell(chosen);
      return;
    }
    const bool adaptive = step_.how.chosen_by == ChosenBy::kAdaptive;
    const bool blocks = step_.how.chosen_by == ChosenBy::kThreshold;
    const LeftScores left{step_.space.scores + at_ * kSplitKeys, step_.space.splits + at_,
                          step_.space.split_bytes + at_ * kSplitBytes, kSplitBytes, max_score};
    if (blocks) {
      keepHeavyBlocks(sets_, left.scores, keys_.first - keys_.base, keys_.span(),
                      step_.how.log_threshold);
    } else {
      chosen.tail = Choice::partition(left, budget_);
    }
    chosen.fixed = Choice::list(0);
    const Sums fixed = gatherListed<false>(0, chosen.fixed);
    Sums sample;
    if (adaptive) {
      chosen.sampled = budget(fixed, &chosen);
      Choice::takeSample(chosen.sampled, chosen.tail, kSampleBlocks);
      Choice::list(chosen.fixed);
      sample = gatherListed<false>(chosen.fixed, chosen.sampled);
    }
    // The sample represents the whole tail.
    const float top = fmaxf(fixed.top, sample.top);
    const double share =
        chosen.sampled > 0 ? static_cast<double>(chosen.tail) / chosen.sampled : 0.0;
    const float fixed_factor = power2(fixed.top - top);
    const auto sample_factor = static_cast<float>(power2(sample.top - top) * share);
    const double total = fixed_factor * fixed.denominator + sample_factor * sample.denominator;
    // All kept keys may be masked.
    const float inverse = total == 0 ? 0.0f : static_cast<float>(1.0 / total);
    if (tid_ < kDim) {
      this->put(tid_, (fixed_factor * fixed.value + sample_factor * sample.value) * inverse);
    }
    if (!adaptive && !blocks && !kRescores) {
      this->setLse((max_score + log2f(exponentials)) * kLn2);
    } else {
      this->setLse(total > 0 ? (top + log2f(static_cast<float>(total))) * kLn2 : minusInfinity());
    }
    if (!step_.space.chosen) return;
    tell(chosen);
    const float* scores = scoresByKey();
    for (uint32_t m = tid_; m < chosen.fixed + chosen.sampled; m += kCombineThreads) {
      const float e = power2(scores[step_.space.draw_keys[this->listAt() + m]] - top);
      const float factor = m < chosen.fixed ? 1.0f : static_cast<float>(share);
      step_.space.draw_weights[this->listAt() + m] = e * factor * inverse;
    }
  }

  __device__ void tell(const Chosen& chosen) const {
    if (tid_ == 0 && step_.space.chosen) step_.space.chosen[this->headIndex()] = chosen;
  }

  // Returns the set of kept keys (0), of the tail (1) or scratch (2). The sets follow
  // SelectionMemory in dynamic shared memory, except with kLong.
  __device__ static uint32_t* setOf(const Step& step, uint8_t* memory, int which) {
    const int words = bitWords(step.space.max_length);
    if constexpr (kLong) {
      return step.space.sets + (static_cast<int64_t>(blockIdx.x) * 3 + which) * words;
    }
    return reinterpret_cast<uint32_t*>(memory + sizeof(SelectionMemory)) + which * words;
  }

  // Returns how many keys of the tail to sample, as kernels/cpu/adaptive.cpp does. If it draws a
  // pilot, sets chosen->pilots, writes pilot_bits unless null, and lists the pilot behind the fixed
  // keys.
  __device__ uint32_t budget(const Sums& fixed, Chosen* chosen) {
    const auto n_s = static_cast<int>(chosen->tail);
    const int most = min(step_.how.max_sample, n_s), pilots = pilotKeys(step_.how, n_s);
    if (pilots == 0) return most;
    chosen->pilots = pilots;
    Choice::takeSample(pilots, chosen->tail, kPilotBlocks);
    Choice::list(chosen->fixed);
    if (step_.space.pilot_bits) {
      uint32_t* to = step_.space.pilot_bits + this->headIndex() * bitWords(step_.space.max_length);
      for (int w = tid_; w < sets_.words(); w += kCombineThreads) to[w] = sets_.kept()[w];
    }
    if (step_.how.denominator_alone) {
      const PilotEstimate estimate =
          estimateOf(pilotSums(fixed, chosen->fixed, pilots, n_s), false);
      return limitedRows(denominatorRows(estimate, step_.how.denominator_rule), pilots, most);
    }
    const Sums pilot = gatherListed<true>(chosen->fixed, pilots);
    const float top = fmaxf(fixed.top, pilot.top);
    const double f = power2(fixed.top - top), p = power2(pilot.top - top);
    PilotSums sums;
    sums.tail = n_s;
    sums.rows = pilots;
    sums.fixed = f * fixed.denominator;
    sums.exp_sum = p * pilot.denominator;
    sums.squares = p * p * pilot.squares;
    sums.norms = p * p * pilot.norms;
    const double own = tid_ < kDim ? p * pilot.value : 0.0;
    const double whole = tid_ < kDim ? f * fixed.value + sums.tail / sums.rows * own : 0.0;
    sums.pilot_norm = this->sum(own * own);
    sums.whole_norm = this->sum(whole * whole);
    return limitedRows(vAttentionRows(estimateOf(sums, true), step_.how.rule), pilots, most);
  }

  // Returns the sums over a pilot for the denominator's rule, from the `count` keys of the list
  // from `first` on. Does not read their values.
  __device__ PilotSums pilotSums(const Sums& fixed, uint32_t first, uint32_t count, int tail) {
    const float* scores = scoresByKey();
    const int32_t* list = step_.space.draw_keys + this->listAt() + first;
    const float* bias = step_.in.bias ? step_.in.bias + row_ * step_.in.bias_stride : nullptr;
    constexpr uint32_t kAtOnce = kCombineThreads / kLanes;  // entries that the block reads at once
    float poison = 0;
    const auto scoreOf = [&](uint32_t place) {
      const int key = list[place];
      if constexpr (kRescores) {
        float dot = 0;
        const uint4 eight = this->loadEntry(step_.cache.keys, this->entryOf(key));
        this->unpack(eight, [&](int j, float x) { dot += this->query_[j] * x; });
#pragma unroll
        for (int apart = kLanes / 2; apart > 0; apart /= 2) {
          dot += __shfl_xor_sync(kAll, dot, apart);
        }
        const float score = step_.in.scale * dot;
        poison = fmaf(score, 0.0f, poison);
        return fmaf(score, kLog2E, bias ? bias[key] * kLog2E : 0.0f);
      } else {
        return scores[key];
      }
    };
    // All lanes of a warp shuffle together: lanes beyond the last place repeat it.
    const uint32_t own = tid_ / kLanes, rounds = (count + kAtOnce - 1) / kAtOnce;
    float top = fixed.top;
    for (uint32_t r = 0; r < rounds; ++r) {
      top = fmaxf(top, scoreOf(min(r * kAtOnce + own, count - 1)));
    }
    top = this->largest(top);
    double exp_sum = 0, squares = 0;
    for (uint32_t r = 0; r < rounds; ++r) {
      const uint32_t place = r * kAtOnce + own;
      const double e = power2(scoreOf(min(place, count - 1)) - top);
      if (place >= count || lane_ % kLanes != 0) continue;
      exp_sum += e;
      squares += e * e;
    }
    if (kRescores && __any_sync(kAll, poison != 0) && lane_ == 0) {
      report(step_, Wrong::kScore, row_, kv_head_);
    }
    PilotSums sums;
    sums.tail = tail;
    sums.rows = count;
    sums.fixed = power2(fixed.top - top) * fixed.denominator;
    sums.exp_sum = this->sum(exp_sum);
    sums.squares = this->sum(squares);
    return sums;
  }

  __device__ float* scoresByKey() const {
    return step_.space.scores + at_ * kSplitKeys - keys_.base;
  }

  // ---- Entries.

  // Returns sums over the `count` keys of the list from `first` on. With kRescores the sums are by
  // exact scores, which replace the shadow's in Space::scores unless Space::chosen is null.
  template <bool kPilot>
  __device__ Sums gatherListed(uint32_t first, uint32_t count) {
    float* scores = scoresByKey();
    const int32_t* list = step_.space.draw_keys + this->listAt() + first;
    const float* bias = step_.in.bias ? step_.in.bias + row_ * step_.in.bias_stride : nullptr;
    // A short list is shared out among all warps.
    constexpr uint32_t kGroup = Base::kEntries * kAhead;
    const uint32_t per_warp = (count + kCombineWarps - 1) / kCombineWarps;
    const uint32_t each = min(32u, (per_warp + kGroup - 1) / kGroup * kGroup);
    const auto keyAt = [&](uint32_t first) {
      const uint32_t own = first + lane_;
      return static_cast<uint32_t>(lane_) < each && own < count ? list[own] : -1;
    };
    Sums sums;
    uint32_t passed = warp_ * each;
    int key = keyAt(passed);
    uint32_t entry = key >= 0 ? this->entryOf(key) : 0;
    for (; passed < count; passed += kCombineWarps * each) {
      // The page table is read one round ahead.
      const int next_key = keyAt(passed + kCombineWarps * each);
      const uint32_t next_entry = next_key >= 0 ? this->entryOf(next_key) : 0;
      entry = __shfl_sync(kAll, entry, key >= 0 ? lane_ : 0);
      float known = minusInfinity();
      if (key >= 0) known = kRescores ? (bias ? bias[key] * kLog2E : 0.0f) : scores[key];
      this->template gather<kAhead, kPilot>(min(count - passed, each), entry, known, &sums,
                                            [&](int i, float score) {
                                              if (!kRescores || !step_.space.chosen) return;
                                              const int owner = __shfl_sync(kAll, key, i);
                                              if (owner >= 0 && lane_ % kLanes == 0)
                                                scores[owner] = score;
                                            });
      key = next_key;
      entry = next_entry;
    }
    this->template finish<kPilot>(&sums);
    return sums;
  }

  uint32_t* tail_;
  KeySets sets_;
};

template <int kDim, typename T, bool kRescores, bool kLong>
__global__ void __launch_bounds__(kCombineThreads, 2)
    choiceKernel(const __grid_constant__ Step step) {
  extern __shared__ __align__(16) uint8_t memory[];  // choiceBytes(), or longChoiceBytes()
  __shared__ ChoiceShared<kDim> shared;
  ChoiceHead<kDim, T, kRescores, kLong> head(step, shared, memory);
  waitForKernelBefore();
  head.run();
}

}  // namespace allot::kernels::cuda
