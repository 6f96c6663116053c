#pragma once
// Sets of a sequence's keys, as bits in a block's shared memory: the keys with the largest numbers,
// and their list. Lists of keys ascend, and sums over them are the same whatever runs beside.
//
// The largest of n numbers are found in two passes over them: one counts the numbers by bins, one
// keeps what is in larger bins than the last that is wanted and sets aside what is in its own. Only
// where that is too much (scores that are nearly equal) the numbers' digits decide.
#include "kernels/cuda/head_block.cuh"

namespace allot::kernels::cuda {

constexpr int kBins = 2048;
constexpr int kCandidates = 1024;

struct SetShared {
  uint32_t warp_counts[kFinishWarps];
  uint32_t bin, wanted, candidates;
};

// What a selection needs in dynamic shared memory.
struct SelectionMemory {
  uint32_t counts[kBins];
  uint32_t numbers[kCandidates];
  int32_t keys[kCandidates];
};

// What a source reads of eight keys: zeros where there are none.
struct Octet {
  uint4 low, high;
  __device__ uint32_t operator[](int i) const {
    const uint4& four = i < 4 ? low : high;
    return i % 4 == 0 ? four.x : i % 4 == 1 ? four.y : i % 4 == 2 ? four.z : four.w;
  }
};
__device__ inline Octet octetOf(const void* numbers, int o, int n) {
  if (8 * o >= n) return {};
  const auto* from = static_cast<const uint4*>(numbers) + 2 * o;
  return {from[0], from[1]};
}
// The bits i for which first + i < n, of at most 32.
__device__ inline uint32_t below(int n, int first) {
  return n >= first + 32 ? ~0u : n > first ? (1u << (n - first)) - 1 : 0u;
}

// Scores of keys begin .. end - 1, larger floats as larger integers.
struct ScoreSource {
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

// Keys are counted from the sequence's base.
class KeySets {
 public:
  // kept and scratch: room for bitWords(span) words each.
  __device__ KeySets(SetShared& shared, SelectionMemory& selection, int span, uint32_t* kept,
                     uint32_t* scratch)
      : shared_(shared),
        selection_(selection),
        tid_(threadIdx.x),
        lane_(threadIdx.x % 32),
        warp_(threadIdx.x / 32),
        words_(bitWords(span)),
        kept_(kept),
        scratch_(scratch) {}

  __device__ int words() const { return words_; }
  // What keepLargest() kept, a bit a key.
  __device__ uint32_t* kept() const { return kept_; }
  // Its callers may use it between the others' calls, [words()].
  __device__ uint32_t* scratch() const { return scratch_; }

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

  // The keys of kept() to a list, ascending, counted from 0. Returns how many.
  __device__ uint32_t list(int base, int32_t* to) {
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
    for (int w = warp_; w < words_; w += kFinishWarps) {
      const uint32_t bits = kept_[w];
      const uint32_t below = bits & ((1u << lane_) - 1);
      if (bits >> lane_ & 1) to[scratch_[w] + __popc(below)] = base + w * 32 + lane_;
    }
    __syncthreads();
    return all;
  }

 private:
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

  SetShared& shared_;
  SelectionMemory& selection_;
  int tid_, lane_, warp_;
  int words_;
  uint32_t* kept_;
  uint32_t* scratch_;  // [words_]
};

}  // namespace allot::kernels::cuda
