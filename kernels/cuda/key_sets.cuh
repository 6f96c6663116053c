#pragma once
// Sets of a row's keys as bits, in shared memory of a thread block or in the workspace: the keys
// with the largest numbers, and their list. Lists of keys ascend, and sums over them do not depend
// on other thread blocks. Device code, for all threads of one block.
//
// The largest of n numbers are found among few candidates. Candidates are
// - of scores: found by levels, which the split kernel stored for every eight keys
//   (keepByLevels());
// - of random words: those below a bound (keepBelow());
// - of any numbers: found in two passes (keepLargest()). The first counts the numbers by bins. The
//   second keeps the keys of bins above the bin of the last wanted number; the keys in that bin are
//   the candidates. keepLargest() serves quest, the cases that the others refuse, and adaptive
//   methods with a bias, which may mask keys.
#include "kernels/cuda/head_block.cuh"

namespace allot::kernels::cuda {

constexpr int kBins = 2048;
constexpr int kCandidates = 4096;

struct SetShared {
  uint32_t warp_counts[kCombineWarps];
  uint32_t bin, wanted, candidates, listed;
};

// A selection's dynamic shared memory.
struct SelectionMemory {
  union {
    uint32_t counts[kBins];
    uint16_t level_indices[2 * kBins];
  };
  uint32_t numbers[kCandidates];
  int32_t keys[kCandidates];
};

// The numbers of eight keys.
struct EightNumbers {
  uint4 low, high;
  __device__ uint32_t operator[](int i) const {
    const uint4& four = i < 4 ? low : high;
    return i % 4 == 0 ? four.x : i % 4 == 1 ? four.y : i % 4 == 2 ? four.z : four.w;
  }
};
// Returns numbers 8 o .. 8 o + 7; zeros if 8 o >= n.
__device__ inline EightNumbers loadEightNumbers(const void* numbers, int o, int n) {
  if (8 * o >= n) return {};
  const auto* from = static_cast<const uint4*>(numbers) + 2 * o;
  return {from[0], from[1]};
}
// Returns a word with the bits i for which first + i < n.
__device__ inline uint32_t below(int n, int first) {
  return n >= first + 32 ? ~0u : n > first ? (1u << (n - first)) - 1 : 0u;
}

// Returns an integer that orders as x does, with -0 below 0. x is not NaN.
__device__ inline uint32_t ordered(float x) {
  const uint32_t bits = __float_as_uint(x);
  return bits >> 31 ? ~bits : bits | 0x80000000u;
}

// The split kernel's results for a head's scores.
struct LeftScores {
  const float* scores;
  const Split* splits;    // of these max_score alone
  const uint8_t* levels;  // [splits, level_stride], first kLevelsPerSplit levels
  int level_stride;
  float max_score;  // no score is larger

  // Returns the score in powers of two, as levels and max_score are.
  __device__ static float logOf(float score) { return score; }
};
// A group's ranks of keys (group_ranks.cuh), of which levels and max_score are by logOf().
struct LeftRanks : LeftScores {
  // Returns the logarithm to base 2 of a rank except for a constant, linear between powers of two,
  // so that a larger rank has no smaller one. 0 if the rank is at most 0.
  __device__ static float logOf(float rank) {
    return static_cast<float>(__float_as_uint(fmaxf(rank, 0.0f))) * 0x1p-23f;
  }
};

// Scores of keys begin .. end - 1: a source for KeySets::keepLargest(). Left: LeftScores, or
// LeftRanks.
template <typename Left>
struct ScoreSource {
  const float* scores;
  float max_score;  // no score is larger
  int n, begin, end;
  bool masked;        // masked keys have a number, too
  uint8_t* unmasked;  // null, or gets a bit for each of the n keys: 1 if it is not masked

  __device__ uint32_t bin(uint32_t x) const {
    const float score = __uint_as_float(x >> 31 ? x & 0x7fffffffu : ~x);
    return kBins - 1 -
           static_cast<uint32_t>(fminf((max_score - Left::logOf(score)) * 16, kBins - 1));
  }
  static constexpr bool kReadsFirst = true;
  __device__ EightNumbers load(int o) const { return loadEightNumbers(scores, o, n); }
  __device__ uint32_t first(int o, const EightNumbers& eight, uint32_t (&x)[8]) const {
    uint32_t there = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float score = __uint_as_float(eight[i]);
      x[i] = ordered(score);
      there |= static_cast<uint32_t>(masked || score != minusInfinity()) << i;
    }
    there &= below(n, 8 * o);
    if (unmasked) unmasked[o] = static_cast<uint8_t>(there);
    return there & below(end, 8 * o) & ~below(begin, 8 * o);
  }
  __device__ uint32_t again(int o, const EightNumbers& eight, uint32_t (&x)[8]) const {
    return first(o, eight, x);
  }
};

// Keys are counted from RowKeys::base; quest's pages, which are keys here, from the oldest page.
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
  // Returns the kept keys, a bit a key.
  __device__ uint32_t* kept() const { return kept_; }
  // Returns scratch [words()], which callers may use between calls.
  __device__ uint32_t* scratch() const { return scratch_; }

  // Of the `count` keys that have a number keeps the wanted_of(count) with the largest, or all if
  // `count` is not larger; among equal numbers the older keys. Returns count. A source's first()
  // and again(), which is called later, return the numbers of keys 8 o .. 8 o + 7 and a bit for
  // each key that has one. Its bin() maps larger numbers to larger bins.
  template <typename Source, typename Wanted>
  __device__ uint32_t keepLargest(const Source& source, Wanted wanted_of) {
    auto* kept = reinterpret_cast<uint8_t*>(kept_);
    auto* ties = reinterpret_cast<uint8_t*>(scratch_);
    clearCounts();
    forEachEightKeys<true>(source, [&](int o, uint32_t has, const uint32_t(&x)[8]) {
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
      for (int w = tid_; w < words_; w += kCombineThreads) kept_[w] = 0;
      __syncthreads();
      return all;
    }
    const uint32_t bin = shared_.bin;
    forEachEightKeys<false>(source, [&](int o, uint32_t has, const uint32_t(&x)[8]) {
      uint32_t above = 0;
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        if (!(has >> i & 1)) continue;
        const uint32_t own = source.bin(x[i]);
        above |= (own > bin) << i;
        if (own == bin) addCandidate(x[i], 8 * o + i);
      }
      kept[o] = static_cast<uint8_t>(above);
      ties[o] = 0;
    });
    __syncthreads();
    Cut cut;
    if (shared_.candidates <= kCandidates) {
      cut = cutOfCandidates(shared_.wanted);
    } else {  // many numbers are nearly equal
      cut = cutOf(shared_.wanted, [&](auto take) {
        forEachEightKeys<false>(source, [&](int, uint32_t has, const uint32_t(&x)[8]) {
#pragma unroll
          for (int i = 0; i < 8; ++i) {
            if (has >> i & 1 && source.bin(x[i]) == bin) take(x[i]);
          }
        });
      });
      forEachEightKeys<false>(source, [&](int o, uint32_t has, const uint32_t(&x)[8]) {
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

  // Keeps the `wanted` keys with the largest scores of begin .. end - 1; among equal scores the
  // older keys, masked keys last. Returns false, with kept() unspecified, if levels cannot decide.
  // The `wanted`-th nearest level bounds the level of the `wanted`-th key, so that few keys are
  // read. Levels are distances from the largest max_score, in eighths. Differences of scores may be
  // rounded, so that a level is off by less than one.
  template <typename Left>
  __device__ bool keepByLevels(const Left& left, int begin, int end, uint32_t wanted) {
    static_assert(kLevels == kCombineThreads);
    constexpr uint32_t kMaxListed = 2 * kBins;
    if (end > 8 << 16) return false;  // a level's index has 16 bits
    const int whole = end / 8 - (begin + 7) / 8;
    if (wanted > kCandidates || wanted > static_cast<uint32_t>(max(whole, 0))) return false;
    clearKept();
    selection_.counts[tid_] = 0;
    if (tid_ == 0) shared_.candidates = shared_.listed = 0;
    __syncthreads();
    if (wanted == 0) return true;
    // Eight keys that are not all in the range are not counted: their largest may be outside.
    overLevels(left, end, [&](int first, uint32_t levels, uint32_t further) {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const int key = 8 * (first + k);
        const uint32_t level = min(further + (levels >> 8 * k & 0xff), kLevels - 1u);
        if (key >= begin && key + 8 <= end) atomicAdd(&selection_.counts[level], 1u);
      }
    });
    __syncthreads();
    const uint32_t own = selection_.counts[tid_];
    uint32_t all;
    const uint32_t nearer = before(own, &all);
    if (nearer < wanted && nearer + own >= wanted) shared_.bin = tid_;
    __syncthreads();
    // The last level stands for all larger distances, too.
    if (all < wanted || shared_.bin + 2 >= kLevels) return false;
    const uint32_t last = shared_.bin + 1;
    overLevels(left, end, [&](int first, uint32_t levels, uint32_t further) {
      if (further > last) return;
      const uint32_t near = __vcmpleu4(levels, (last - further) * 0x01010101u);
      if (near == 0) return;
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const int key = 8 * (first + k);
        if (!(near >> 8 * k & 1) || key >= end || key + 8 <= begin) continue;
        const uint32_t place = atomicAdd(&shared_.listed, 1u);
        if (place < kMaxListed) selection_.level_indices[place] = static_cast<uint16_t>(first + k);
      }
    });
    __syncthreads();
    const uint32_t listed = shared_.listed;
    if (listed > kMaxListed) return false;
    for (uint32_t i = tid_; i < listed; i += kCombineThreads) {
      const int o = selection_.level_indices[i];
      const float max_score = left.splits[o / kLevelsPerSplit].max_score;
      const float most = static_cast<float>(last) - (left.max_score - max_score) * kLevelsInTwo;
      const EightNumbers eight = loadEightNumbers(left.scores, o, end);
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        const int key = 8 * o + k;
        const float score = __uint_as_float(eight[k]);
        if (key >= begin && key < end && levelOf(max_score, Left::logOf(score)) <= most) {
          addCandidate(ordered(score), key);
        }
      }
    }
    __syncthreads();
    if (shared_.candidates > kCandidates) return false;
    keepCandidates(wanted);
    return true;
  }

  // Keeps the keys with the `wanted` smallest random words, of a set of `count` keys; among equal
  // words the older keys. words_of(o, word) writes the words of keys 8 o .. 8 o + 7. Returns false,
  // with kept() unspecified, if `wanted` is too near kCandidates or half of `count` for a bound.
  // Also does so if too few or too many words are below the bound, with probability below 10^-8.
  template <typename WordsOf>
  __device__ bool keepBelow(uint32_t wanted, uint32_t count, const uint32_t* set,
                            WordsOf words_of) {
    const float root = sqrtf(static_cast<float>(wanted));
    const float expected = static_cast<float>(wanted) + 6 * root + 16;  // six standard deviations
    if (expected + 6 * root > kCandidates || 2 * expected > static_cast<float>(count)) return false;
    const auto bound = static_cast<uint32_t>(expected / static_cast<float>(count) * 0x1p32f);
    clearKept();
    if (tid_ == 0) shared_.candidates = 0;
    __syncthreads();
    const auto* has_of = reinterpret_cast<const uint8_t*>(set);
    for (int o = tid_; o < 4 * words_; o += kCombineThreads) {
      const uint32_t has = has_of[o];
      if (has == 0) continue;
      uint32_t word[8];
      words_of(o, word);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        if (word[i] < bound && has >> i & 1) addCandidate(~word[i], 8 * o + i);
      }
    }
    __syncthreads();
    const uint32_t candidates = shared_.candidates;
    if (candidates < wanted || candidates > kCandidates) return false;
    keepCandidates(wanted);
    return true;
  }

  // Writes the keys of kept(), `base` added to each, to a list, ascending. Returns their number.
  __device__ uint32_t list(int base, int32_t* to) {
    const int stretch = (words_ + kCombineThreads - 1) / kCombineThreads;
    const int first = min(tid_ * stretch, words_), last = min(first + stretch, words_);
    uint32_t own = 0, all;
    for (int w = first; w < last; ++w) own += __popc(kept_[w]);
    uint32_t place = before(own, &all);
    if (all <= 4u * words_) {  // few bits a word: each thread lists its own words
      for (int w = first; w < last; ++w) {
        for (uint32_t bits = kept_[w]; bits != 0; bits &= bits - 1) {
          to[place++] = base + w * 32 + __ffs(bits) - 1;
        }
      }
      __syncthreads();
      return all;
    }
    for (int w = first; w < last; ++w) {
      scratch_[w] = place;
      place += __popc(kept_[w]);
    }
    __syncthreads();
    for (int w = warp_; w < words_; w += kCombineWarps) {
      const uint32_t bits = kept_[w];
      const uint32_t below = bits & ((1u << lane_) - 1);
      if (bits >> lane_ & 1) to[scratch_[w] + __popc(below)] = base + w * 32 + lane_;
    }
    __syncthreads();
    return all;
  }

 private:
  // Returns the sum over the threads before this one, and the `total` over all.
  __device__ uint32_t before(uint32_t own, uint32_t* total) {
    return sumBefore<kCombineWarps>(own, lane_, warp_, shared_.warp_counts, total);
  }

  // The cut of the `wanted` largest numbers: those above `least`, and `ties` of those equal to it.
  struct Cut {
    uint32_t least, ties;
  };

  // Finds the cut digit by digit, from the top. each(f) calls f for this thread's share of the
  // numbers. Requires: there are at least `wanted` numbers.
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

  // Adds the `wanted` largest candidates to kept_.
  // Requires: scratch_ is clear.
  __device__ void keepCandidates(uint32_t wanted) {
    if (shared_.candidates > kCombineThreads || !keepByRank(wanted)) {
      keepTies(cutOfCandidates(wanted).ties);
    }
  }

  // Does the same by counting larger candidates. If the cut is in a tie, adds none; returns false.
  // Requires: at most kCombineThreads candidates.
  __device__ bool keepByRank(uint32_t wanted) {
    const auto candidates = static_cast<int>(shared_.candidates);
    const uint32_t own = tid_ < candidates ? selection_.numbers[tid_] : 0;
    uint32_t larger = 0;
    int c = 0;
    for (; c + 4 <= candidates; c += 4) {
      const uint4 four = *reinterpret_cast<const uint4*>(selection_.numbers + c);
      larger += (four.x > own) + (four.y > own) + (four.z > own) + (four.w > own);
    }
    for (; c < candidates; ++c) larger += selection_.numbers[c] > own;
    const bool keep = tid_ < candidates && larger < wanted;
    if (static_cast<uint32_t>(__syncthreads_count(keep)) != wanted) return false;
    const int key = keep ? selection_.keys[tid_] : 0;
    if (keep) atomicOr(kept_ + key / 32, 1u << key % 32);
    __syncthreads();
    return true;
  }

  // Finds the cut of the `wanted` largest candidates. Adds larger keys to kept_, equal to scratch_.
  __device__ Cut cutOfCandidates(uint32_t wanted) {
    const uint32_t candidates = shared_.candidates;
    const Cut cut = cutOf(wanted, [&](auto take) {
      for (uint32_t c = tid_; c < candidates; c += kCombineThreads) take(selection_.numbers[c]);
    });
    for (uint32_t c = tid_; c < candidates; c += kCombineThreads) {
      const uint32_t x = selection_.numbers[c];
      const int j = selection_.keys[c];
      if (x >= cut.least) atomicOr((x > cut.least ? kept_ : scratch_) + j / 32, 1u << j % 32);
    }
    __syncthreads();
    return cut;
  }

  __device__ void addCandidate(uint32_t number, int key) {
    const uint32_t place = atomicAdd(&shared_.candidates, 1u);
    if (place >= kCandidates) return;
    selection_.numbers[place] = number;
    selection_.keys[place] = key;
  }

  __device__ void clearKept() {
    for (int w = tid_; w < words_; w += kCombineThreads) kept_[w] = scratch_[w] = 0;
  }

  // Calls f(first, levels, further) for this thread's levels of the keys before `end`, four at a
  // time: levels first .. first + 3, a byte each. `further` is to be added to each, the distance of
  // the split's max_score from left.max_score.
  template <typename Function>
  __device__ void overLevels(const LeftScores& left, int end, Function f) const {
    constexpr int kLevelWords = kLevelsPerSplit / 4, kAhead = 4;
    const int level_words = (end + 31) / 32;
#pragma unroll 1
    for (int first = tid_; first < level_words; first += kAhead * kCombineThreads) {
      uint32_t levels[kAhead];
      float apart[kAhead];
#pragma unroll
      for (int a = 0; a < kAhead; ++a) {
        const int i = min(first + a * kCombineThreads, level_words - 1), split = i / kLevelWords;
        levels[a] = reinterpret_cast<const uint32_t*>(
            left.levels + static_cast<int64_t>(split) * left.level_stride)[i % kLevelWords];
        apart[a] = (left.max_score - left.splits[split].max_score) * kLevelsInTwo;
      }
#pragma unroll
      for (int a = 0; a < kAhead; ++a) {
        const int i = first + a * kCombineThreads;
        if (i < level_words)
          f(4 * i, levels[a], static_cast<uint32_t>(fminf(apart[a], kLevels - 1)));
      }
    }
  }

  __device__ void clearCounts() {
    __syncthreads();
    for (int i = tid_; i < kBins; i += kCombineThreads) selection_.counts[i] = 0;
    __syncthreads();
  }

  // Writes the bin of the last of the `wanted` largest to shared_.bin, and how many are wanted of
  // that bin to shared_.wanted. Returns wanted_of(*all), *all being the sum of all bins.
  template <typename Wanted>
  __device__ uint32_t findBin(Wanted wanted_of, uint32_t* all) {
    // Thread i has bins 2047 - 8 i and below.
    constexpr int kEach = kBins / kCombineThreads;
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

  // Calls f(o, has, x) for this thread's bytes of the set, eight keys each. Loads one byte ahead.
  template <bool kFirst, typename Source, typename Function>
  __device__ void forEachEightKeys(const Source& source, Function f) const {
    constexpr bool kReads = !kFirst || Source::kReadsFirst;
    const int bytes = 4 * words_;
    auto ahead = source.load(kReads ? tid_ : bytes);
    for (int o = tid_; o < bytes; o += kCombineThreads) {
      const auto eight = ahead;
      if (kReads) ahead = source.load(o + kCombineThreads);
      uint32_t x[8];
      const uint32_t has = kFirst ? source.first(o, eight, x) : source.again(o, eight, x);
      f(o, has, x);
    }
  }

  // Adds the first `count` keys of scratch_ to kept_.
  __device__ void keepTies(uint32_t count) {
    const int stretch = (words_ + kCombineThreads - 1) / kCombineThreads;
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
