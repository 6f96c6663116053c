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
  uint64_t totals[kHeads];               // W_h
  float inverses[kHeads];                // 1 / W_h; 0: every key is masked
  alignas(16) uint32_t factors[kHeads];  // U_h; 0: no part in the mixture
  // [draws of a round], thresholds ascending
  SharedDraw drawn[kPartDraws];
  int pieces[kPartDraws];
  uint64_t rests[kPartDraws];  // what a threshold leaves in its piece
  // Scratch.
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

  // Computes R and, if the part has draws, the pieces' masses. The first part's block writes what
  // the heads draw with.
  __device__ void mix() {
    weighHeads();
    for (int h = 0; h < kHeads; ++h) draws_ += mixture_.totals[h] > 0 ? mixture_.budgets[h] : 0;
    if (tid_ < kHeads) {
      const uint64_t total = mixture_.totals[tid_];
      const double share =
          static_cast<double>(mixture_.budgets[tid_]) / static_cast<double>(draws_);
      const float inverse = total > 0 ? static_cast<float>(1.0 / static_cast<double>(total)) : 0;
      mixture_.factors[tid_] = total > 0 ? headFactor(share, total) : 0;
      mixture_.inverses[tid_] = inverse;
      if (part_ == 0 && mixture_.budgets[tid_] > 0) {
        const uint32_t each = drawsOfPart(planned_);
        step_.space.shared_heads[headIndex(tid_)] = {
            mixture_.max_scores[tid_], mixture_.exponentials[tid_], static_cast<uint32_t>(draws_),
            static_cast<uint32_t>((draws_ + each - 1) / each)};
      }
    }
    __syncthreads();
    if (begin_ < draws_) weighPieces();
  }

  // Computes E_h, W_h and the sum of exponentials of the heads that draw: a warp has every eighth
  // head, and the loads of its heads are in flight at once.
  __device__ void weighHeads() {
    constexpr int kOwn = kHeads / kPartWarps;
    const int own = (group_ - warp_ + kPartWarps - 1) / kPartWarps;  // at most kOwn
    const Split* splits[kOwn];
    float tops[kOwn], exponentials[kOwn] = {};
    uint64_t totals[kOwn] = {};
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      tops[i] = kNoKeys;
      splits[i] = step_.space.splits + splitAt(min(warp_ + i * kPartWarps, group_ - 1), 0);
    }
#pragma unroll 4
    for (int p = lane_; p < splits_; p += 32) {
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
        if (i < own) tops[i] = fmaxf(tops[i], splits[i][p].max_score);
      }
    }
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      for (int j = 16; j > 0; j /= 2) tops[i] = fmaxf(tops[i], __shfl_xor_sync(kAll, tops[i], j));
    }
#pragma unroll 4
    for (int p = lane_; p < splits_; p += 32) {
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
        if (i >= own) continue;
        const Split split = splits[i][p];
        totals[i] +=
            inHeadUnits(uint64_t{split.weight} << kWeightShift, gapOf(tops[i], split.max_score));
        exponentials[i] += power2(split.max_score - tops[i]) * split.sum;
      }
    }
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const int h = warp_ + i * kPartWarps;
      for (int j = 16; j > 0; j /= 2) {
        totals[i] += __shfl_xor_sync(kAll, totals[i], j);
        exponentials[i] += __shfl_xor_sync(kAll, exponentials[i], j);
      }
      if (lane_ != 0) continue;
      mixture_.max_scores[h] = tops[i];
      mixture_.exponentials[h] = exponentials[i];
      mixture_.totals[h] = mixture_.budgets[h] > 0 ? totals[i] : 0;
    }
    __syncthreads();
  }

  // Returns E_h - E_ht, kLostGap for all larger ones; of no meaning if the head does not draw.
  __device__ static int gapOf(float max_score, float own) {
    return static_cast<int>(fminf(fmaxf(max_score - own, 0), kLostGap));
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

  // What the mixture needs of a split of one head. It is of no meaning if the head does not draw.
  struct Summary {
    float max_score;
    uint32_t weight;
  };
  __device__ Summary summaryOf(int64_t at) const {
    const auto two = *reinterpret_cast<const uint2*>(step_.space.splits + at);
    return {__uint_as_float(two.x), two.y};
  }

  // Computes the pieces' gaps, masses_[t], the sum of the masses of pieces before t, and the sum of
  // all.
  __device__ void weighPieces() {
    uint64_t passed = 0;
    for (int first = 0; first < splits_; first += kPartThreads) {
      const int piece = first + tid_;
      uint64_t mass = 0;
      if (piece < splits_) {
        for (int four = 0; four < group_; four += 4) {
          Summary splits[4];
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            splits[i] = summaryOf(splitAt(min(four + i, group_ - 1), piece));
          }
          uint32_t gaps = 0;
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const int gap = gapOf(mixture_.max_scores[four + i], splits[i].max_score);
            gaps |= static_cast<uint32_t>(gap) << (8 * i);
          }
          *reinterpret_cast<uint32_t*>(gaps_[piece].of + four) = gaps;
          const Factors factors = factorsOf(four, gaps);
#pragma unroll
          for (int i = 0; i < 4; ++i) mass += uint64_t{factors.of[i]} * splits[i].weight;
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

  __device__ std::array<uint32_t, 4> words(uint32_t block) const {
    return philox(step_.in.seed, step_.in.sequences[row_], step_.in.steps[row_],
                  attentionStream(step_.in.layer, static_cast<uint32_t>(first_head_)), block);
  }
  __device__ DrawThresholds thresholds() const {
    return {step_.how.chosen_by, total_, static_cast<uint32_t>(draws_), offsetOf(words(0)[0])};
  }

  // Makes draws first .. first + count - 1, in the order of their thresholds, into mixture_.drawn.
  __device__ void draw(uint32_t first, int count) {
    const ChosenBy by = step_.how.chosen_by;
    uint64_t threshold = ~uint64_t{0};
    if (tid_ < count) {
      const auto stream = [this](uint32_t block) { return words(block); };
      threshold = thresholds().at(by, first + tid_, stream);
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
    int piece = 0, behind = splits_;  // masses_[piece] <= threshold < masses_[behind]
    while (behind - piece > 1) {
      const int middle = (piece + behind) / 2;
      (masses_[middle] <= threshold ? piece : behind) = middle;
    }
    return piece;
  }

  // Finds the keys of `count` draws from their pieces and rests, four lanes a draw. Loads of a
  // quad's draws and of four heads are in flight at once. After NaN scores it finds any key of the
  // row's pieces.
  __device__ void findKeys(int count) {
    constexpr int kQuads = kPartThreads / 4, kDraws = kPartDraws / kQuads;
    const int quad = tid_ / 4, quarter = tid_ % 4;
    if (warp_ * 8 >= count) return;
    const uint4* const sums =
        reinterpret_cast<const uint4*>(step_.space.subtile_weights) + splitAt(0, 0) * 4 + quarter;
    const uint2* const weights =
        reinterpret_cast<const uint2*>(step_.space.split_bytes) + splitAt(0, 0) * 64 + quarter;
    const int apart = step_.space.max_splits;
    int pieces[kDraws], subtiles[kDraws], pages[kDraws];
    uint64_t rests[kDraws], mass[kDraws], masses[kDraws][4];
#pragma unroll
    for (int d = 0; d < kDraws; ++d) {
      const int draw = min(quad + d * kQuads, count - 1);
      pieces[d] = mixture_.pieces[draw];
      rests[d] = mixture_.rests[draw];
      for (uint64_t& m : masses[d]) m = 0;
    }
    for (int four = 0; four < group_; four += 4) {
      uint4 words[kDraws][4];
#pragma unroll
      for (int d = 0; d < kDraws; ++d) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          words[d][i] = loadEarly(sums + (min(four + i, group_ - 1) * apart + pieces[d]) * 4);
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
      subtiles[d] = select(masses[d], &rests[d], &mass[d]);
      pages[d] = pageOf(step_, row_, firstKey(pieces[d], subtiles[d]));  // all its keys' page
      for (uint64_t& m : masses[d]) m = 0;
    }
    for (int four = 0; four < group_; four += 4) {
      uint2 words[kDraws][4];
#pragma unroll
      for (int d = 0; d < kDraws; ++d) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int at = (min(four + i, group_ - 1) * apart + pieces[d]) * 16 + subtiles[d];
          words[d][i] = loadEarly(weights + at * 4);
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
      const int key = firstKey(pieces[d], subtiles[d]) + select(masses[d], &rests[d], &mass[d]);
      const int draw = quad + d * kQuads;
      if (quarter != 0 || draw >= count) continue;
      mixture_.drawn[draw] = {key, entryIn(step_, kv_head_, pages[d], key), mass[d]};
    }
  }

  __device__ int firstKey(int piece, int subtile) const {
    return keys_.base + piece * kPieceKeys + subtile * kSubtileKeys;
  }

  // Returns U_ht of head four + tid_ % 4; 0 for a head without a part in the mixture.
  __device__ uint32_t ownFactor(int four, int piece) const {
    const int h = four + tid_ % 4;
    return pieceFactor(mixture_.factors[h], gaps_[piece].of[h]);
  }

  // Returns 1 / p_j, p_j the share of a row's mass in all integers.
  __device__ float inverseShare(uint64_t mass) const {
    return static_cast<float>(static_cast<double>(total_) /
                              static_cast<double>(mass << kWeightShift));
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

  // Returns the first of a quad's 16 masses whose prefix sum is above *rest, or the last. *rest
  // becomes what is left of it there, *mass its own. A lane has four of the 16.
  // Requires: all lanes of the warp call it.
  __device__ int select(const uint64_t (&masses)[4], uint64_t* rest, uint64_t* mass) const {
    const int quarter = tid_ % 4;
    const uint64_t own = masses[0] + masses[1] + masses[2] + masses[3];
    uint64_t reached = own;
#pragma unroll
    for (int i = 1; i < 4; i *= 2) {
      const uint64_t left = __shfl_up_sync(kAll, reached, i, 4);
      if (quarter >= i) reached += left;
    }
    uint64_t prefix = reached - own, before = prefix, chosen_mass = masses[0];
    int chosen = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      prefix += masses[i];
      if (prefix > *rest || (i == 3 && quarter == 3)) continue;
      ++chosen;
      before = prefix;
      if (i < 3) chosen_mass = masses[i + 1];
    }
    chosen += __shfl_xor_sync(kAll, chosen, 1);
    chosen += __shfl_xor_sync(kAll, chosen, 2);
    *rest -= __shfl_sync(kAll, before, chosen / 4, 4);
    *mass = __shfl_sync(kAll, chosen_mass, chosen / 4, 4);
    return chosen;
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
