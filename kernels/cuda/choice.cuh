#pragma once
// The finish over heads (step.h) of methods that choose keys by their scores: top-k, and vattention
// (kernels/cpu/adaptive.h says what it does). One block a sequence and query head. Sets of keys are
// bits in shared memory, so that lists of keys ascend and sums over them are the same whatever runs
// beside.
//
// The largest of n numbers are found in two passes over them: one counts the numbers by bins, one
// keeps what is in larger bins than the last that is wanted and sets aside what is in its own. Only
// where that is too much (scores that are nearly equal) the numbers' digits decide.
#include "kernels/cuda/head_block.cuh"

namespace allot::kernels::cuda {

constexpr int kBins = 2048;
constexpr int kCandidates = 1024;

template <int kDim>
struct ChoiceShared : HeadShared<kDim> {
  uint32_t warp_counts[kFinishWarps];
  uint32_t bin, wanted, candidates;
};

// Dynamic shared memory: what a selection needs, then three sets of keys. (Exact sequences have a
// factor a piece there.)
struct ChoiceMemory {
  uint32_t counts[kBins];
  uint32_t numbers[kCandidates];
  int32_t keys[kCandidates];
};

template <int kDim, typename T, bool kRescores>
class ChoiceHead : HeadBlock<kDim, T, kRescores> {
  using Base = HeadBlock<kDim, T, kRescores>;
  using Base::at_, Base::budget_, Base::keys_, Base::kv_head_, Base::lane_;
  using Base::kLanes;
  using Base::pieces_, Base::sequence_, Base::step_, Base::tid_, Base::warp_;
  using typename Base::Sums;
  static constexpr int kAhead = kRescores ? 4 : 8;  // entries that a lane has on their way

 public:
  __device__ ChoiceHead(const Step& step, ChoiceShared<kDim>& shared, uint8_t* memory)
      : Base(step, shared, memory),
        shared_(shared),
        selection_(*reinterpret_cast<ChoiceMemory*>(memory)),
        span_(keys_.span()),
        words_(bitWords(span_)) {
    kept_ = reinterpret_cast<uint32_t*>(memory + sizeof(ChoiceMemory));
    tail_ = kept_ + bitWords(step.space.max_length);
    scratch_ = tail_ + bitWords(step.space.max_length);
  }

  __device__ void run() {
    if (!this->plain()) choose();
  }

 private:
  __device__ void choose() {
    const float reference = this->largestReference();
    float exponentials = 0;
    for (int p = tid_; p < pieces_; p += kFinishThreads) {
      const Piece piece = step_.space.pieces[at_ + p];
      exponentials += power2(piece.reference - reference) * piece.sum;
    }
    exponentials = this->sum(exponentials);
    Chosen chosen{};
    if (!(exponentials > 0)) {  // every key is masked, or a score is not a number
      this->fill(exponentials == 0 ? 0.0f : notANumber(), minusInfinity());
      tell(chosen);
      return;
    }
    const bool adaptive = step_.how.chosen_by == ChosenBy::kAdaptive;
    const int dead = keys_.first - keys_.base, keys = keys_.count();
    const int begin = dead + (adaptive ? min(step_.how.sink, keys) : 0);
    const int end = adaptive ? max(begin, span_ - min(step_.how.local, keys)) : span_;
    chosen.tail = split(begin, end, reference);
    chosen.fixed = list(0);
    const Sums fixed = gatherListed<false>(0, chosen.fixed);
    Sums sample;
    if (adaptive) {
      chosen.sampled = budget(fixed, &chosen);
      takeSample(chosen.sampled, chosen.tail, kSampleBlocks);
      list(chosen.fixed);
      sample = gatherListed<false>(chosen.fixed, chosen.sampled);
    }
    // The sample stands for the whole tail.
    const float top = fmaxf(fixed.top, sample.top);
    const double share =
        chosen.sampled > 0 ? static_cast<double>(chosen.tail) / chosen.sampled : 0.0;
    const float fixed_factor = power2(fixed.top - top);
    const auto sample_factor = static_cast<float>(power2(sample.top - top) * share);
    const double total = fixed_factor * fixed.mass + sample_factor * sample.mass;
    // Kept keys may all be masked, or so light beside what is not kept that nothing is left.
    const float inverse = total == 0 ? 0.0f : static_cast<float>(1.0 / total);
    if (tid_ < kDim) {
      this->output()[tid_] = (fixed_factor * fixed.value + sample_factor * sample.value) * inverse;
    }
    if (!adaptive && !kRescores) {
      this->setLse((reference + log2f(exponentials)) * kLn2);
    } else {
      this->setLse(total > 0 ? (top + log2f(static_cast<float>(total))) * kLn2 : minusInfinity());
    }
    if (!step_.space.chosen) return;
    tell(chosen);
    const float* scores = scoresByKey();
    for (uint32_t m = tid_; m < chosen.fixed + chosen.sampled; m += kFinishThreads) {
      const float e = power2(scores[step_.space.draw_keys[this->listAt() + m]] - top);
      const float factor = m < chosen.fixed ? 1.0f : static_cast<float>(share);
      step_.space.draw_weights[this->listAt() + m] = e * factor * inverse;
    }
  }

  __device__ void tell(const Chosen& chosen) const {
    if (tid_ == 0 && step_.space.chosen) step_.space.chosen[this->headIndex()] = chosen;
  }

  // Entries of the tail to sample, as in kernels/cpu/adaptive.cpp.
  __device__ uint32_t budget(const Sums& fixed, Chosen* chosen) {
    const auto n_s = static_cast<int>(chosen->tail);
    const int most = min(step_.how.max_sample, n_s);
    const int pilots = max(kMinimumPilot, shareOf(step_.how.pilot, n_s));
    if (pilots >= most) return most;
    chosen->pilots = pilots;
    takeSample(pilots, chosen->tail, kPilotBlocks);
    list(chosen->fixed);
    if (step_.space.pilot_bits) {
      uint32_t* to = step_.space.pilot_bits + this->headIndex() * bitWords(step_.space.max_length);
      for (int w = tid_; w < words_; w += kFinishThreads) to[w] = kept_[w];
    }
    const Sums pilot = gatherListed<true>(chosen->fixed, pilots);
    const float top = fmaxf(fixed.top, pilot.top);
    const double f = power2(fixed.top - top), p = power2(pilot.top - top);
    PilotSums sums;
    sums.tail = n_s;
    sums.rows = pilots;
    sums.fixed = f * fixed.mass;
    sums.mass = p * pilot.mass;
    sums.squares = p * p * pilot.squares;
    sums.norms = p * p * pilot.norms;
    const double own = tid_ < kDim ? p * pilot.value : 0.0;
    const double whole = tid_ < kDim ? f * fixed.value + sums.tail / sums.rows * own : 0.0;
    sums.pilot_norm = this->sum(own * own);
    sums.whole_norm = this->sum(whole * whole);
    return limitedRows(vAttentionRows(estimateOf(sums, true), step_.how.rule), pilots, most);
  }

  __device__ float* scoresByKey() const {
    return step_.space.scores + at_ * kPieceKeys - keys_.base;
  }

  // ---- Sets of keys, counted from the sequence's base.

  // The sum over the threads before this one; `total`: over all.
  __device__ uint32_t before(uint32_t own, uint32_t* total) {
    uint32_t reached = own;
    for (int i = 1; i < 32; i *= 2) {
      const uint32_t left = __shfl_up_sync(kAll, reached, i);
      if (lane_ >= i) reached += left;
    }
    __syncthreads();
    if (lane_ == 31) shared_.warp_counts[warp_] = reached;
    __syncthreads();
    uint32_t passed = 0, all = 0;
    for (int w = 0; w < kFinishWarps; ++w) {
      if (w < warp_) passed += shared_.warp_counts[w];
      all += shared_.warp_counts[w];
    }
    *total = all;
    return passed + reached - own;
  }

  // The `wanted` largest of some numbers: those above `least`, and of those equal to it as many as
  // `ties` says.
  struct Cut {
    uint32_t least, ties;
  };

  // each(f) calls f for numbers of which there are at least `wanted`, this thread's share of them.
  // Digit by digit, the upper ones first.
  template <typename Each>
  __device__ Cut cutOf(uint32_t wanted, Each each) {
    uint32_t least = 0, known = 0;
#pragma unroll 1
    for (const int shift : {21, 10, 0}) {
      const uint32_t digits = shift > 0 ? 2047 : 1023;
      clearCounts();
      each([&](uint32_t x) {
        if ((x & known) == least) atomicAdd(&selection_.counts[x >> shift & digits], 1u);
      });
      __syncthreads();
      uint32_t all;
      findBin([=](uint32_t) { return wanted; }, &all);
      least |= shared_.bin << shift;
      wanted = shared_.wanted;
      known |= digits << shift;
    }
    return {least, wanted};
  }

  __device__ void clearCounts() {
    __syncthreads();
    for (int i = tid_; i < kBins; i += kFinishThreads) selection_.counts[i] = 0;
    __syncthreads();
  }

  // The bin that the last of the `wanted` largest falls into, and how many are wanted of it.
  template <typename Wanted>
  __device__ uint32_t findBin(Wanted wanted_of, uint32_t* all) {
    // Thread i has bins 2047 - 8 i and below.
    constexpr int kEach = kBins / kFinishThreads;
    const int first = kBins - 1 - kEach * tid_;
    uint32_t own = 0;
    for (int i = 0; i < kEach; ++i) own += selection_.counts[first - i];
    uint32_t above = before(own, all);
    const uint32_t wanted = wanted_of(*all);
    if (above < wanted && above + own >= wanted) {
      int i = 0;
      while (above + selection_.counts[first - i] < wanted) above += selection_.counts[first - i++];
      shared_.bin = first - i;
      shared_.wanted = wanted - above;
    }
    __syncthreads();
    return wanted;
  }

  // f(o, has, x) for this thread's octets. What they hold is read one ahead.
  template <bool kFirst, typename Source, typename Function>
  __device__ void overOctets(const Source& source, Function f) const {
    constexpr bool kReads = !kFirst || Source::kReadsFirst;
    const int octets = 4 * words_;
    auto ahead = source.load(kReads ? tid_ : octets);
    for (int o = tid_; o < octets; o += kFinishThreads) {
      const auto octet = ahead;
      if (kReads) ahead = source.load(o + kFinishThreads);
      uint32_t x[8];
      const uint32_t has = kFirst ? source.first(o, octet, x) : source.again(o, octet, x);
      f(o, has, x);
    }
  }

  // kept_: of the keys that have a number the wanted(how many have) with the largest ones; of equal
  // ones the older. Returns how many have. A source gives the numbers of keys 8 o .. 8 o + 7, says
  // in bits which of them have one (first() is called before again()), and cuts the range of
  // numbers into bins, larger numbers in larger bins: what is in doubt is then in one bin.
  template <typename Source, typename Wanted>
  __device__ uint32_t keepLargest(const Source& source, Wanted wanted_of) {
    auto* kept = reinterpret_cast<uint8_t*>(kept_);
    auto* ties = reinterpret_cast<uint8_t*>(scratch_);
    clearCounts();
    overOctets<true>(source, [&](int o, uint32_t has, const uint32_t(&x)[8]) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        if (has >> i & 1) atomicAdd(&selection_.counts[source.bin(x[i])], 1u);
      }
      kept[o] = static_cast<uint8_t>(has);
    });
    if (tid_ == 0) shared_.candidates = 0;
    __syncthreads();
    uint32_t all;
    const uint32_t wanted = findBin(wanted_of, &all);
    if (wanted >= all) return all;
    if (wanted == 0) {
      for (int w = tid_; w < words_; w += kFinishThreads) kept_[w] = 0;
      __syncthreads();
      return all;
    }
    const uint32_t bin = shared_.bin;
    overOctets<false>(source, [&](int o, uint32_t has, const uint32_t(&x)[8]) {
      uint32_t above = 0;
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        if (!(has >> i & 1)) continue;
        const uint32_t own = source.bin(x[i]);
        above |= (own > bin) << i;
        if (own != bin) continue;
        const uint32_t place = atomicAdd(&shared_.candidates, 1u);
        if (place >= kCandidates) continue;
        selection_.numbers[place] = x[i];
        selection_.keys[place] = 8 * o + i;
      }
      kept[o] = static_cast<uint8_t>(above);
      ties[o] = 0;
    });
    __syncthreads();
    const uint32_t candidates = shared_.candidates;
    Cut cut;
    if (candidates <= kCandidates) {
      cut = cutOf(shared_.wanted, [&](auto take) {
        for (uint32_t c = tid_; c < candidates; c += kFinishThreads) take(selection_.numbers[c]);
      });
      for (uint32_t c = tid_; c < candidates; c += kFinishThreads) {
        const uint32_t x = selection_.numbers[c];
        const int j = selection_.keys[c];
        if (x >= cut.least) atomicOr((x > cut.least ? kept_ : scratch_) + j / 32, 1u << j % 32);
      }
    } else {  // many numbers are nearly equal
      cut = cutOf(shared_.wanted, [&](auto take) {
        overOctets<false>(source, [&](int, uint32_t has, const uint32_t(&x)[8]) {
#pragma unroll
          for (int i = 0; i < 8; ++i) {
            if (has >> i & 1 && source.bin(x[i]) == bin) take(x[i]);
          }
        });
      });
      overOctets<false>(source, [&](int o, uint32_t has, const uint32_t(&x)[8]) {
        uint32_t above = 0, equal = 0;
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          if (!(has >> i & 1)) continue;
          above |= (x[i] > cut.least) << i;
          equal |= (x[i] == cut.least) << i;
        }
        kept[o] = static_cast<uint8_t>(above);
        ties[o] = static_cast<uint8_t>(equal);
      });
    }
    __syncthreads();
    keepTies(cut.ties);
    return all;
  }

  // kept_ gets the first `count` keys of scratch_.
  __device__ void keepTies(uint32_t count) {
    const int stretch = (words_ + kFinishThreads - 1) / kFinishThreads;
    const int first = min(tid_ * stretch, words_), last = min(first + stretch, words_);
    uint32_t own = 0, all;
    for (int w = first; w < last; ++w) own += __popc(scratch_[w]);
    const uint32_t passed = before(own, &all);
    uint32_t left = count > passed ? count - passed : 0;
    for (int w = first; w < last && left > 0; ++w) {
      uint32_t ties = scratch_[w];
      while (__popc(ties) > left) ties &= ~(0x80000000u >> __clz(ties));
      left -= __popc(ties);
      kept_[w] |= ties;
    }
    __syncthreads();
  }

  // draw_keys from place `at` on: the keys of kept_, ascending. Returns how many.
  __device__ uint32_t list(uint32_t at) {
    const int stretch = (words_ + kFinishThreads - 1) / kFinishThreads;
    const int first = min(tid_ * stretch, words_), last = min(first + stretch, words_);
    uint32_t own = 0, all;
    for (int w = first; w < last; ++w) own += __popc(kept_[w]);
    uint32_t place = before(own, &all);
    for (int w = first; w < last; ++w) {
      scratch_[w] = place;
      place += __popc(kept_[w]);
    }
    __syncthreads();
    int32_t* to = step_.space.draw_keys + this->listAt() + at;
    for (int w = warp_; w < words_; w += kFinishWarps) {
      const uint32_t bits = kept_[w];
      const uint32_t below = bits & ((1u << lane_) - 1);
      if (bits >> lane_ & 1) to[scratch_[w] + __popc(below)] = keys_.base + w * 32 + lane_;
    }
    __syncthreads();
    return all;
  }

  // What a source reads of eight keys: zeros where there are none.
  struct Octet {
    uint4 low, high;
    __device__ uint32_t operator[](int i) const {
      const uint4& four = i < 4 ? low : high;
      return i % 4 == 0 ? four.x : i % 4 == 1 ? four.y : i % 4 == 2 ? four.z : four.w;
    }
  };
  __device__ static Octet octetOf(const void* numbers, int o, int n) {
    if (8 * o >= n) return {};
    const auto* from = static_cast<const uint4*>(numbers) + 2 * o;
    return {from[0], from[1]};
  }
  // The bits i for which first + i < n, of at most 32.
  __device__ static uint32_t below(int n, int first) {
    return n >= first + 32 ? ~0u : n > first ? (1u << (n - first)) - 1 : 0u;
  }

  // Scores of keys begin .. end - 1, larger floats as larger integers.
  struct Scores {
    const float* scores;
    float reference;  // no score is larger
    int n, begin, end;
    bool masked;        // masked keys count, too
    uint8_t* unmasked;  // null, or gets which of the n keys are not masked

    __device__ static uint32_t ordered(float x) {
      const uint32_t bits = __float_as_uint(x);
      return bits >> 31 ? ~bits : bits | 0x80000000u;
    }
    __device__ uint32_t bin(uint32_t x) const {
      const float score = __uint_as_float(x >> 31 ? x & 0x7fffffffu : ~x);
      return kBins - 1 - static_cast<uint32_t>(fminf((reference - score) * 16, kBins - 1));
    }
    static constexpr bool kReadsFirst = true;
    __device__ Octet load(int o) const { return octetOf(scores, o, n); }
    __device__ uint32_t first(int o, const Octet& octet, uint32_t (&x)[8]) const {
      uint32_t there = 0;
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const float score = __uint_as_float(octet[i]);
        x[i] = ordered(score);
        there |= static_cast<uint32_t>(masked || score != minusInfinity()) << i;
      }
      there &= below(n, 8 * o);
      if (unmasked) unmasked[o] = static_cast<uint8_t>(there);
      return there & below(end, 8 * o) & ~below(begin, 8 * o);
    }
    __device__ uint32_t again(int o, const Octet& octet, uint32_t (&x)[8]) const {
      return first(o, octet, x);
    }
  };

  // kept_: the heaviest of keys begin .. end - 1, and all before and after; tail_: the rest.
  // Returns how many are in the tail. Masked keys are in neither, but for top-k, which keeps as
  // many keys as its budget says.
  __device__ uint32_t split(int begin, int end, float reference) {
    const float* scores = step_.space.scores + at_ * kPieceKeys;
    const bool adaptive = step_.how.chosen_by == ChosenBy::kAdaptive;
    const auto wanted = [&](uint32_t all) {
      return adaptive ? static_cast<uint32_t>(shareOf(step_.how.heavy, static_cast<int>(all)))
                      : budget_;
    };
    auto* unmasked = adaptive ? reinterpret_cast<uint8_t*>(tail_) : nullptr;
    const Scores source{scores, reference, span_, begin, end, !adaptive, unmasked};
    const uint32_t count = keepLargest(source, wanted);
    if (!adaptive) return 0;
    for (int w = tid_; w < words_; w += kFinishThreads) {
      const uint32_t middle = below(end, 32 * w) & ~below(begin, 32 * w);
      const uint32_t there = tail_[w], kept = kept_[w];
      tail_[w] = there & middle & ~kept;
      kept_[w] = kept | (there & ~middle);
    }
    __syncthreads();
    return count - wanted(count);
  }

  // Random words of the keys of the tail, the smallest as the largest numbers.
  struct Words {
    const ChoiceHead& head;
    uint32_t first_block;
    uint4* words;

    __device__ uint32_t bin(uint32_t x) const { return x >> 21; }
    static constexpr bool kReadsFirst = false;  // first() makes them
    __device__ Octet load(int o) const { return octetOf(words, o, head.span_); }
    __device__ uint32_t first(int o, const Octet&, uint32_t (&x)[8]) const {
      const uint32_t has = reinterpret_cast<const uint8_t*>(head.tail_)[o];
      if (has == 0) return 0;
      const uint32_t block = first_block + head.keys_.base / 4 + 2 * o;
      const auto low = head.words(block), high = head.words(block + 1);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        x[i] = ~low[i];
        x[4 + i] = ~high[i];
      }
      words[2 * o] = {x[0], x[1], x[2], x[3]};
      words[2 * o + 1] = {x[4], x[5], x[6], x[7]};
      return has;
    }
    __device__ uint32_t again(int o, const Octet& octet, uint32_t (&x)[8]) const {
#pragma unroll
      for (int i = 0; i < 8; ++i) x[i] = octet[i];
      return reinterpret_cast<const uint8_t*>(head.tail_)[o];
    }
  };

  // kept_: `count` keys of the tail, a sample.
  __device__ void takeSample(uint32_t count, uint32_t n_s, uint32_t first_block) {
    if (count == n_s) {
      for (int w = tid_; w < words_; w += kFinishThreads) kept_[w] = tail_[w];
      __syncthreads();
      return;
    }
    // Weights are written when all is drawn: until then their place is the words'.
    auto* words = reinterpret_cast<uint4*>(step_.space.draw_weights + this->listAt());
    keepLargest(Words{*this, first_block, words}, [=](uint32_t) { return count; });
  }

  // ---- Entries.

  // Sums over the keys of `count` places of the list from `first` on. Where scores come from a
  // shadow, exact ones take their place.
  template <bool kPilot>
  __device__ Sums gatherListed(uint32_t first, uint32_t count) {
    float* scores = scoresByKey();
    const int32_t* list = step_.space.draw_keys + this->listAt() + first;
    const float* bias = step_.in.bias ? step_.in.bias + sequence_ * step_.in.bias_stride : nullptr;
    const auto keyAt = [&](uint32_t place) { return place < count ? list[place] : -1; };
    Sums sums;
    uint32_t passed = warp_ * 32;
    int key = keyAt(passed + lane_);
    uint32_t entry = key >= 0 ? this->entryOf(key) : 0;
    for (; passed < count; passed += kFinishWarps * 32) {
      // Where the next entries are is read meanwhile.
      const int next_key = keyAt(passed + kFinishWarps * 32 + lane_);
      const uint32_t next_entry = next_key >= 0 ? this->entryOf(next_key) : 0;
      entry = __shfl_sync(kAll, entry, key >= 0 ? lane_ : 0);
      float known = minusInfinity();
      if (key >= 0) known = kRescores ? (bias ? bias[key] * kLog2E : 0.0f) : scores[key];
      this->template gather<kAhead, kPilot>(min(count - passed, 32u), entry, known, &sums,
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

  ChoiceShared<kDim>& shared_;
  ChoiceMemory& selection_;
  int span_;
  int words_;
  uint32_t* kept_;     // [words_], sets of keys
  uint32_t* tail_;     // vattention: the keys that are sampled from
  uint32_t* scratch_;  // [words_]
};

template <int kDim, typename T, bool kRescores>
__global__ void __launch_bounds__(kFinishThreads, 2)
    choiceKernel(const __grid_constant__ Step step) {
  extern __shared__ __align__(16) uint8_t memory[];  // choiceBytes()
  __shared__ ChoiceShared<kDim> shared;
  ChoiceHead<kDim, T, kRescores> head(step, shared, memory);
  waitForKernelBefore();
  head.run();
}

}  // namespace allot::kernels::cuda
