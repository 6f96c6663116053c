#pragma once
// Which keys a query head, or a group of query heads, attends to by their scores: the heaviest, and
// for adaptive methods (kernels/cpu/adaptive.h) a uniform sample of the others. Device code, for
// all kCombineThreads threads of one block.
#include "kernels/cuda/key_sets.cuh"

namespace allot::kernels::cuda {

// Returns the pilot's keys for a tail of n_s keys; 0 if no pilot is needed.
__device__ inline int pilotKeys(const Step::How& how, int n_s) {
  const int pilots = max(kMinimumPilot, shareOf(how.pilot, n_s));
  return pilots >= min(how.max_sample, n_s) ? 0 : pilots;
}

// A base of Head, the class of a head or a group. As a member of that it would stand in local
// memory, and its functions read it from there.
// Requires: Head has step_; keys_; tid_; sets_, KeySets; tail_, for adaptive methods the keys that
// are sampled from, a bit a key; words(block), the head's random words; listAt(), where the list of
// keys is in Space::draw_keys. The same places of Space::draw_weights are scratch.
template <typename Head>
class KeyChoice {
 protected:
  // Writes the keys of kept() to draw_keys from place `at` of the list on. Returns their number.
  __device__ uint32_t list(uint32_t at) {
    return self().sets_.list(self().keys_.base,
                             self().step_.space.draw_keys + self().listAt() + at);
  }

  // Adaptive methods: sets kept() to the first and last keys and the heaviest of those between
  // them, and the tail to the others, without masked keys. Returns how many are in the tail.
  // top-k: sets kept() to the `rows` heaviest keys, masked ones last. Returns 0.
  // Left: LeftScores, or LeftRanks.
  template <typename Left>
  __device__ uint32_t partition(const Left& left, uint32_t rows) {
    const Step::How& how = self().step_.how;
    KeySets& sets = self().sets_;
    uint32_t* const tail = self().tail_;
    const bool adaptive = how.chosen_by == ChosenBy::kAdaptive;
    const RowKeys& own = self().keys_;
    const int dead = own.first - own.base, keys = own.count(), span = own.span();
    const int begin = dead + (adaptive ? countOrShare(how.sink, how.sink_share, keys) : 0);
    const int local = adaptive ? countOrShare(how.local, how.local_share, keys) : 0;
    const int end = max(begin, span - local);
    const auto wanted = [&](uint32_t all) {
      return adaptive ? static_cast<uint32_t>(shareOf(how.heavy, static_cast<int>(all))) : rows;
    };
    uint32_t count = end - begin;
    // Without a bias no key is masked.
    bool kept = false;
    if (!adaptive || !self().step_.in.bias) {
      kept = sets.keepByLevels(left, begin, end, wanted(count));
    }
    if (!kept) {
      auto* unmasked = adaptive ? reinterpret_cast<uint8_t*>(tail) : nullptr;
      const ScoreSource<Left> source{left.scores, left.max_score, span,    begin,
                                     end,         !adaptive,      unmasked};
      count = sets.keepLargest(source, wanted);
    }
    if (!adaptive) return 0;
    if (kept) {
      for (int w = self().tid_; w < sets.words(); w += kCombineThreads) {
        tail[w] = below(span, 32 * w) & ~below(dead, 32 * w);
      }
    }
    for (int w = self().tid_; w < sets.words(); w += kCombineThreads) {
      const uint32_t middle = below(end, 32 * w) & ~below(begin, 32 * w);
      const uint32_t there = tail[w], kept = sets.kept()[w];
      tail[w] = there & middle & ~kept;
      sets.kept()[w] = kept | (there & ~middle);
    }
    __syncthreads();
    return count - wanted(count);
  }

  // Sets kept() to `count` of the tail's n_s keys, drawn uniformly without replacement.
  __device__ void takeSample(uint32_t count, uint32_t n_s, uint32_t first_block) {
    KeySets& sets = self().sets_;
    if (count == n_s) {
      for (int w = self().tid_; w < sets.words(); w += kCombineThreads) {
        sets.kept()[w] = self().tail_[w];
      }
      __syncthreads();
      return;
    }
    const auto words_of = [&](int o, uint32_t(&word)[8]) { eightWords(first_block, o, word); };
    if (sets.keepBelow(count, n_s, self().tail_, words_of)) return;
    // draw_weights is written after all draws. Until then it holds the words.
    auto* words = reinterpret_cast<uint4*>(self().step_.space.draw_weights + self().listAt());
    sets.keepLargest(Words{*this, first_block, words}, [=](uint32_t) { return count; });
  }

 private:
  __device__ Head& self() { return static_cast<Head&>(*this); }
  __device__ const Head& self() const { return static_cast<const Head&>(*this); }

  // Writes the random words of keys 8 o .. 8 o + 7, counted from the base.
  __device__ void eightWords(uint32_t first_block, int o, uint32_t (&word)[8]) const {
    const uint32_t block = first_block + self().keys_.base / 4 + 2 * o;
    const auto low = self().words(block), high = self().words(block + 1);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      word[i] = low[i];
      word[4 + i] = high[i];
    }
  }

  // A source for keepLargest(): the tail's random words, complemented so that the least is largest.
  struct Words {
    const KeyChoice& choice;
    uint32_t first_block;
    uint4* words;

    __device__ uint32_t bin(uint32_t x) const { return x >> 21; }
    static constexpr bool kReadsFirst = false;  // first() makes them
    __device__ EightNumbers load(int o) const {
      return loadEightNumbers(words, o, choice.self().keys_.span());
    }
    __device__ uint32_t first(int o, const EightNumbers&, uint32_t (&x)[8]) const {
      const uint32_t has = reinterpret_cast<const uint8_t*>(choice.self().tail_)[o];
      if (has == 0) return 0;
      choice.eightWords(first_block, o, x);
#pragma unroll
      for (int i = 0; i < 8; ++i) x[i] = ~x[i];
      words[2 * o] = {x[0], x[1], x[2], x[3]};
      words[2 * o + 1] = {x[4], x[5], x[6], x[7]};
      return has;
    }
    __device__ uint32_t again(int o, const EightNumbers& eight, uint32_t (&x)[8]) const {
#pragma unroll
      for (int i = 0; i < 8; ++i) x[i] = eight[i];
      return reinterpret_cast<const uint8_t*>(choice.self().tail_)[o];
    }
  };
};

}  // namespace allot::kernels::cuda
