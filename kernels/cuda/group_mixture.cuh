#pragma once
// The draws of a group (draws=group). cpu/group_draws.h has the definition, kernels/piece_masses.h
// its arithmetic, and docs/shared-draws.md the bounds. Device code.
//
// A piece of the mixture is a split, and its parts are subtiles. The integers of a key are linear
// in the heads' weights, so that those of a piece or subtile are the same sums of the split
// kernel's sums. A block (GroupDraws) draws for a row, KV head and part of the group's draws. It
// computes the pieces' masses from the splits, so that it needs no other block. A thread finds a
// draw's piece by these masses. Then four lanes find its subtile by the sums of the piece's 16
// subtiles, and its key by the weights of the subtile's 16 keys: each lane has four of the 16.
#include "kernels/cuda/combine.cuh"
#include "kernels/piece_masses.h"

namespace allot::kernels::cuda {

static_assert(kPieceKeys == kSplitKeys);

// A GPU's weight is a multiple of 2^-23 of the power of two of its split.
constexpr int kWeightShift = kWeightBits - 23;

// One draw of a group: the row that it takes, and the row's integers, in units of the weights'.
struct alignas(16) SharedDraw {
  int key;
  uint32_t entry;
  uint64_t mass;
};

template <bool kWide>
struct MixtureShared {
  static constexpr int kHeads = kWide ? kMaxHeadGroup : 8;
  // [query heads of the group]
  uint32_t budgets[kHeads];  // 0: the head does not draw
  float max_scores[kHeads];  // E_h
  float exponentials[kHeads];
  uint64_t totals[kHeads];               // W_h; 0 if every key is masked
  double shares[kHeads];                 // of the draws
  float inverses[kHeads];                // 1 / W_h, without kRescores
  alignas(16) uint32_t factors[kHeads];  // U_h; 0: no part in the mixture
  // [draws of a round], thresholds ascending
  SharedDraw drawn[kPartDraws];
  int pieces[kPartDraws];
  uint64_t rests[kPartDraws];  // what a threshold leaves in its piece; before, its random number
  // Scratch.
  uint64_t reciprocal;  // of the draws
  int warp_counts[kPartWarps];
  uint64_t warp_sums[kPartWarps];
};

// How far a piece is below each head's largest weight, E_h - E_ht; kLostGap for all larger ones.
template <bool kWide>
struct alignas(8) PieceGaps {
  uint8_t of[kWide ? kMaxHeadGroup : 8];
};
template <bool kWide>
constexpr size_t mixtureBytes(int splits) {
  return static_cast<size_t>(splits + 1) * (sizeof(PieceGaps<kWide>) + sizeof(uint64_t));
}

// The part of a group's draws that a block has, drawn in rounds of kPartDraws.
// Private to this file and group_combine.cuh. kWide: groups of more than eight query heads.
template <int kDim, typename T, bool kRescores, bool kWide>
class GroupDraws {
 protected:
  using Mixture = MixtureShared<kWide>;
  using Gaps = PieceGaps<kWide>;
  static constexpr int kHeads = Mixture::kHeads;

  // Reads inputs of the step alone, while the split kernel still runs. splits: shared memory of
  // mixtureBytes(max_splits) bytes.
  __device__ GroupDraws(const Step& step, Mixture& mixture, uint8_t* splits)
      : step_(step),
        tid_(threadIdx.x),
        lane_(threadIdx.x % 32),
        warp_(threadIdx.x / 32),
        group_(step.in.group),
        mixture_(mixture),
        gaps_(reinterpret_cast<Gaps*>(splits)),
        masses_(reinterpret_cast<uint64_t*>(gaps_ + step.space.max_splits + 1)) {
    part_ = static_cast<int>(blockIdx.x) % step.space.part_stride;
    const int of = static_cast<int>(blockIdx.x) / step.space.part_stride;
    row_ = of / step.cache.kv_heads;
    kv_head_ = of % step.cache.kv_heads;
    first_head_ = kv_head_ * group_;
    keys_ = keysOf(step, step.in.lengths[row_]);
    splits_ = splitsOf(keys_.span());
    if (tid_ < kHeads) {
      const int head = first_head_ + tid_;
      const bool draws = tid_ < group_ && kindOf<true>(step, row_, head) == HeadKind::kSampled;
      mixture.budgets[tid_] = draws ? budgetOf<true>(step, row_, head) : 0;
    }
    __syncthreads();
    for (int h = 0; h < kHeads; ++h) planned_ += mixture.budgets[h];
    const uint32_t each = drawsOfPart(planned_);
    begin_ = static_cast<uint64_t>(part_) * each;
    end_ = min(begin_ + each, planned_);
    if (warp_ == 0 && planned_ > 0) share(planned_);
  }

  __device__ int64_t splitAt(int h, int piece) const {
    return splitIndex(step_, row_, first_head_ + h, piece);
  }
  __device__ int64_t headIndex(int h) const {
    return static_cast<int64_t>(row_) * step_.in.heads + first_head_ + h;
  }

  // Returns how many threads have a flag. *own: how many of those up to this one, less one.
  // Requires: all threads call it.
  __device__ int countFlags(bool flag, int* own) {
    int* const counts = mixture_.warp_counts;
    const uint32_t flags = __ballot_sync(kAll, flag);
    if (lane_ == 0) counts[warp_] = __popc(flags);
    __syncthreads();
    int before = 0, all = 0;
#pragma unroll
    for (int w = 0; w < kPartWarps; ++w) {
      before += w < warp_ ? counts[w] : 0;
      all += counts[w];
    }
    *own = before + __popc(flags & ((2u << lane_) - 1)) - 1;
    return all;
  }

  // ---- The mixture

  // Computes the heads' shares in `draws` draws. A warp calls it together.
  __device__ void share(uint64_t draws) {
    if (lane_ < kHeads) {
      mixture_.shares[lane_] =
          static_cast<double>(mixture_.budgets[lane_]) / static_cast<double>(draws);
    }
    if (lane_ == 0) mixture_.reciprocal = reciprocalOf(draws);
  }

  // Computes R and, if the part has draws, the pieces' masses. The first part's block writes what
  // the heads draw with.
  __device__ void mix() {
    weighHeads();
    const bool lost = lane_ < kHeads && mixture_.budgets[lane_ % kHeads] > 0 &&
                      mixture_.totals[lane_ % kHeads] == 0;
    draws_ = planned_;
    for (uint32_t masked = __ballot_sync(kAll, lost); masked != 0; masked &= masked - 1) {
      draws_ -= mixture_.budgets[__ffs(static_cast<int>(masked)) - 1];
    }
    if (warp_ == 0 && draws_ != planned_ && draws_ > 0) share(draws_);
    __syncwarp();
    if (tid_ < kHeads) {
      const uint64_t total = mixture_.totals[tid_];
      mixture_.factors[tid_] = total > 0 ? headFactor(mixture_.shares[tid_], total) : 0;
      if (!kRescores) mixture_.inverses[tid_] = __frcp_rn(static_cast<float>(total));
    }
    __syncthreads();
    if (part_ == 0 && warp_ == kPartWarps - 1) tellHeads();  // a warp without draws to place
    if (begin_ < draws_) weighPieces();
  }

  __device__ void tellHeads() const {
    if (lane_ >= kHeads || mixture_.budgets[lane_] == 0) return;
    const auto draws = static_cast<uint32_t>(draws_);
    const uint32_t parts = draws == 0 ? 0 : (draws - 1) / drawsOfPart(planned_) + 1;
    step_.space.shared_heads[headIndex(lane_)] = {mixture_.max_scores[lane_],
                                                  mixture_.exponentials[lane_], draws, parts};
  }

  // Computes E_h, W_h and the sum of exponentials of the heads that draw. A warp has a head, or two
  // if kWide, and the loads of 128 pieces of each are in flight at once.
  __device__ void weighHeads() {
    constexpr int kOwn = kHeads / kPartWarps, kLanes = 32 / kOwn, kAhead = 128 / kLanes;
    const int h = tid_ / kLanes, lane = tid_ % kLanes;
    const bool there = h < group_;
    float top = kNoKeys, exponentials = 0;
    uint64_t total = 0;
    if (warp_ * kOwn < group_) {
      const Split* const splits = step_.space.splits + splitAt(min(h, group_ - 1), 0);
      const auto forPieces = [&](auto body) {
#pragma unroll 1
        for (int first = lane; first < splits_; first += kLanes * kAhead) {
          uint4 words[kAhead];
#pragma unroll
          for (int i = 0; i < kAhead; ++i) {
            words[i] = loadEarly(
                reinterpret_cast<const uint4*>(splits + min(first + kLanes * i, splits_ - 1)));
          }
#pragma unroll
          for (int i = 0; i < kAhead; ++i) body(words[i], first + kLanes * i < splits_);
        }
      };
      forPieces([&](const uint4& split, bool) { top = fmaxf(top, __uint_as_float(split.x)); });
      for (int j = kLanes / 2; j > 0; j /= 2) top = fmaxf(top, __shfl_xor_sync(kAll, top, j));
      forPieces([&](const uint4& split, bool counts) {
        const float own_top = __uint_as_float(split.x);
        const uint64_t weight = uint64_t{split.y} << kWeightShift;
        const uint64_t units = inHeadUnits(weight, gapOf(top, own_top));
        total += counts ? units : 0;
        exponentials += counts ? power2(own_top - top) * __uint_as_float(split.z) : 0;
      });
      for (int j = kLanes / 2; j > 0; j /= 2) {
        total += __shfl_xor_sync(kAll, total, j);
        exponentials += __shfl_xor_sync(kAll, exponentials, j);
      }
    }
    if (lane == 0) {
      mixture_.max_scores[h] = top;
      mixture_.exponentials[h] = exponentials;
      mixture_.totals[h] = there && mixture_.budgets[h] > 0 ? total : 0;
    }
    __syncthreads();
  }

  // Returns E_h - E_ht, kLostGap for all larger ones; of no meaning if the head does not draw.
  __device__ static int gapOf(float max_score, float own) {
    return __float_as_int(fminf(fmaxf(max_score - own, 0), kLostGap) + 0x1p23f) & 255;
  }
  // Returns U_ht of heads four .. four + 3, 0 for a head without a part in the mixture. gaps: of
  // these heads, a byte each.
  struct Factors {
    uint32_t of[4];
  };
  __device__ Factors factorsOf(int four, uint32_t gaps) const {
    const uint4 x = *reinterpret_cast<const uint4*>(mixture_.factors + four);
    return {pieceFactor(x.x, gaps & 255), pieceFactor(x.y, gaps >> 8 & 255),
            pieceFactor(x.z, gaps >> 16 & 255), pieceFactor(x.w, gaps >> 24)};
  }
  __device__ uint32_t gapsOf(int four, int piece) const {
    return *reinterpret_cast<const uint32_t*>(gaps_[piece].of + four);
  }

  // Computes the pieces' gaps, masses_[t], the sum of the masses of pieces before t, and the sum of
  // all.
  __device__ void weighPieces() {
    const void* const row = step_.space.splits + splitAt(0, 0);
    uint64_t passed = 0;
#pragma unroll 1
    for (int first = 0; first < splits_; first += kPartThreads) {
      const int piece = first + tid_;
      uint64_t mass = 0;
      if (piece < splits_) {
#pragma unroll 1
        for (int four = 0; four < group_; four += 4) {
          uint2 splits[4];  // Split::max_score and weight
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const uint32_t at = min(four + i, group_ - 1) * step_.space.max_splits + piece;
            splits[i] = loadEarly<uint2>(row, at * static_cast<uint32_t>(sizeof(Split)));
          }
          uint32_t gaps = 0;
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const int gap = gapOf(mixture_.max_scores[four + i], __uint_as_float(splits[i].x));
            gaps |= static_cast<uint32_t>(gap) << (8 * i);
          }
          *reinterpret_cast<uint32_t*>(gaps_[piece].of + four) = gaps;
          const Factors factors = factorsOf(four, gaps);
#pragma unroll
          for (int i = 0; i < 4; ++i) mass += uint64_t{factors.of[i]} * splits[i].y;
        }
      }
      uint64_t all;
      const uint64_t before =
          sumBefore<kPartWarps>(mass << kWeightShift, lane_, warp_, mixture_.warp_sums, &all);
      if (piece < splits_) masses_[piece] = passed + before;
      passed += all;
    }
    if (tid_ == 0) masses_[splits_] = passed;
    total_ = passed;
    __syncthreads();
  }

  // ---- Draws

  // Keeps what depends on the thread's numbers from being computed before a round, where it would
  // wait in local memory.
  __device__ void forgetPlaces() { asm volatile("" : "+r"(tid_), "+r"(lane_), "+r"(warp_)); }

  // Takes the random number of the thread's draw, one of first .. first + kPartDraws - 1.
  __device__ void takeNumber(uint32_t first) {
    if (tid_ >= kPartDraws) return;
    const ChosenBy by = step_.how.chosen_by;
    const std::array<uint32_t, 4> words =
        philox(step_.in.seed, step_.in.sequences[row_], step_.in.steps[row_],
               attentionStream(step_.in.layer, static_cast<uint32_t>(first_head_)),
               DrawThresholds::blockOf(by, first + tid_));
    mixture_.rests[tid_] = DrawThresholds::numberOf(by, first + tid_, words);
  }

  // Makes draws first .. first + count - 1, in the order of their thresholds, into mixture_.drawn.
  // Requires: takeNumber(first).
  __device__ void draw(uint32_t first, int count) {
    const ChosenBy by = step_.how.chosen_by;
    uint64_t threshold = ~uint64_t{0};
    if (tid_ < count) {
      const uint64_t number = mixture_.rests[tid_];
      const DrawThresholds thresholds(by, total_, static_cast<uint32_t>(draws_),
                                      offsetOf(static_cast<uint32_t>(number)), mixture_.reciprocal);
      threshold = thresholds.at(by, first + tid_, number);
    }
    if (by == ChosenBy::kIndependent) threshold = sorted(threshold, count);
    if (tid_ < count) {
      const int piece = pieceOf(threshold);
      mixture_.pieces[tid_] = piece;
      mixture_.rests[tid_] = (threshold - masses_[piece]) >> kWeightShift;
    }
    __syncthreads();  // and all threads are done with the round before
    findKeys(count);
    __syncthreads();
  }

  // Returns the thread's threshold in ascending order. Independent ones come in no order.
  __device__ uint64_t sorted(uint64_t own, int count) {
    uint64_t* const numbers = mixture_.rests;
    if (tid_ < count) numbers[tid_] = own;
    __syncthreads();
    int rank = 0;
#pragma unroll 4
    for (int i = 0; i < count; ++i) {
      const uint64_t other = numbers[i];
      rank += other < own || (other == own && i < tid_);
    }
    __syncthreads();
    if (tid_ < count) numbers[rank] = own;
    __syncthreads();
    return tid_ < count ? numbers[tid_] : ~uint64_t{0};
  }

  // Returns the piece of a threshold; any piece after NaN scores.
  __device__ int pieceOf(uint64_t threshold) const {
    int piece = 0;  // masses_[piece] <= threshold, and it is below the next fourth's
#pragma unroll 1
    for (int step = 1 << (31 - __clz(splits_) & ~1); step > 0; step /= 4) {
      const int first = min(piece + step, splits_), second = min(piece + 2 * step, splits_);
      const int third = min(piece + 3 * step, splits_);
      const int passed = (masses_[first] <= threshold) + (masses_[second] <= threshold) +
                         (masses_[third] <= threshold);
      piece += passed * step;
    }
    return min(piece, splits_ - 1);
  }

  // Finds the keys of `count` draws from their pieces and rests, four lanes a draw. Loads of a
  // quad's draws and of four heads are in flight at once. After NaN scores it finds any key of the
  // row's pieces.
  __device__ void findKeys(int count) {
    constexpr int kQuads = kPartThreads / 4, kDraws = kPartDraws / kQuads;
    const int quad = tid_ >> 2, quarter = tid_ & 3;
    if (warp_ * 8 >= count) return;
    const int64_t row = splitAt(0, 0);
    const uint32_t apart = step_.space.max_splits;
    int pieces[kDraws], subtiles[kDraws], pages[kDraws];
    uint64_t rests[kDraws], masses[kDraws][4];
    Selected selected[kDraws];
#pragma unroll
    for (int d = 0; d < kDraws; ++d) {
      const int draw = min(quad + d * kQuads, count - 1);
      pieces[d] = mixture_.pieces[draw];
      rests[d] = mixture_.rests[draw];
      for (uint64_t& m : masses[d]) m = 0;
    }
#pragma unroll 1
    for (int four = 0; four < group_; four += 4) {
      uint4 words[kDraws][4];
#pragma unroll
      for (int d = 0; d < kDraws; ++d) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const uint32_t at = min(four + i, group_ - 1) * apart + pieces[d];
          words[d][i] = loadEarly<uint4>(step_.space.subtile_weights + row * kSubtiles,
                                         at * kSubtiles * 4 + quarter * 16);
        }
      }
#pragma unroll
      for (int d = 0; d < kDraws; ++d) {
        const uint32_t own = ownFactor(four, pieces[d]);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const uint64_t factor = __shfl_sync(kAll, own, i, 4);
          masses[d][0] += factor * words[d][i].x;
          masses[d][1] += factor * words[d][i].y;
          masses[d][2] += factor * words[d][i].z;
          masses[d][3] += factor * words[d][i].w;
        }
      }
    }
#pragma unroll
    for (int d = 0; d < kDraws; ++d) {
      selected[d] = select(masses[d], rests[d]);
      subtiles[d] = __shfl_sync(kAll, 4 * quarter + selected[d].index, selected[d].lane, 4);
      rests[d] = __shfl_sync(kAll, selected[d].rest, selected[d].lane, 4);
      pages[d] = pageOf(step_, row_, firstKey(pieces[d], subtiles[d]));  // all its keys' page
      for (uint64_t& m : masses[d]) m = 0;
    }
#pragma unroll 1
    for (int four = 0; four < group_; four += 4) {
      uint2 words[kDraws][4];
#pragma unroll
      for (int d = 0; d < kDraws; ++d) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const uint32_t at = min(four + i, group_ - 1) * apart + pieces[d];
          words[d][i] =
              loadEarly<uint2>(step_.space.split_bytes + row * kSplitBytes,
                               at * kSplitBytes + subtiles[d] * kSubtileKeys * 2 + quarter * 8);
        }
      }
#pragma unroll
      for (int d = 0; d < kDraws; ++d) {
        const uint32_t own = ownFactor(four, pieces[d]);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const uint64_t factor = __shfl_sync(kAll, own, i, 4);
          const float2 low = ElementOf<__half>::pair(words[d][i].x);
          const float2 high = ElementOf<__half>::pair(words[d][i].y);
          masses[d][0] += factor * unitsOf(low.x);
          masses[d][1] += factor * unitsOf(low.y);
          masses[d][2] += factor * unitsOf(high.x);
          masses[d][3] += factor * unitsOf(high.y);
        }
      }
    }
#pragma unroll
    for (int d = 0; d < kDraws; ++d) {
      selected[d] = select(masses[d], rests[d]);
      const int draw = quad + d * kQuads;
      if (quarter != selected[d].lane || draw >= count) continue;
      const int key = firstKey(pieces[d], subtiles[d]) + 4 * quarter + selected[d].index;
      mixture_.drawn[draw] = {key, entryIn(step_, kv_head_, pages[d], key), selected[d].mass};
    }
  }

  __device__ int firstKey(int piece, int subtile) const {
    return keys_.base + piece * kPieceKeys + subtile * kSubtileKeys;
  }

  // Returns U_ht of head four + tid_ % 4; 0 for a head without a part in the mixture.
  __device__ uint32_t ownFactor(int four, int piece) const {
    const int h = four + (tid_ & 3);
    return pieceFactor(mixture_.factors[h], gaps_[piece].of[h]);
  }

  // Returns 1 / p_j, p_j the share of a row's mass in all integers.
  __device__ float inverseShare(uint64_t mass) const {
    return __fdividef(static_cast<float>(total_), static_cast<float>(mass << kWeightShift));
  }

  // Loads before the instructions that follow, so that such loads are in flight at once.
  __device__ static uint4 loadEarly(const uint4* from) {
    uint4 words;
    asm volatile("ld.global.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
                 : "l"(from)
                 : "memory");
    return words;
  }
  __device__ static uint2 loadEarly(const uint2* from) {
    uint2 words;
    asm volatile("ld.global.v2.u32 {%0,%1}, [%2];"
                 : "=r"(words.x), "=r"(words.y)
                 : "l"(from)
                 : "memory");
    return words;
  }
  // The same, by bytes.
  template <typename Words>
  __device__ static Words loadEarly(const void* from, uint32_t offset) {
    return loadEarly(reinterpret_cast<const Words*>(static_cast<const uint8_t*>(from) + offset));
  }

  // One of a quad's 16 masses, of which a lane has four.
  struct Selected {
    int lane;  // of the quad, that has it; the others' members below have no meaning
    int index;
    uint64_t rest, mass;
  };
  // Returns the first mass whose prefix sum is above `rest`, or the last, and what is left of
  // `rest` there.
  // Requires: all lanes of the warp call it.
  __device__ Selected select(const uint64_t (&masses)[4], uint64_t rest) const {
    const int quarter = tid_ & 3;
    const uint64_t two = masses[0] + masses[1], three = two + masses[2], own = three + masses[3];
    uint64_t reached = own;
#pragma unroll
    for (int i = 1; i < 4; i *= 2) {
      const uint64_t left = __shfl_up_sync(kAll, reached, i, 4);
      if (quarter >= i) reached += left;
    }
    const uint32_t passed = __ballot_sync(kAll, reached <= rest) >> (lane_ - quarter);
    rest -= reached - own;
    const bool first = masses[0] <= rest, second = two <= rest, third = three <= rest;
    const uint64_t before = third ? three : second ? two : first ? masses[0] : 0;
    const uint64_t mass = third ? masses[3] : second ? masses[2] : first ? masses[1] : masses[0];
    return {__popc(passed & 7), first + second + third, rest - before, mass};
  }

  // Returns a weight in units of 2^-24, by its bits beside 2^23.
  // Requires: weight <= 1/2.
  __device__ static uint32_t unitsOf(float weight) {
    return __float_as_uint(fmaf(weight, kWeightUnits, 0x1p23f)) - __float_as_uint(0x1p23f);
  }

  const Step& step_;
  int tid_, lane_, warp_, group_;
  int row_, kv_head_, first_head_, part_, splits_;
  RowKeys keys_;
  Mixture& mixture_;
  Gaps* gaps_;            // [splits]
  uint64_t* masses_;      // [splits + 1]
  uint64_t planned_ = 0;  // draws, if no head is masked
  uint64_t begin_, end_;  // those of the part
  uint64_t draws_ = 0;    // R
  uint64_t total_ = 0;    // integers of all keys
};

}  // namespace allot::kernels::cuda
