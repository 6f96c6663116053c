#pragma once
// The mixture of a group's attentions and the draws from it, for groupDrawKernel
// (group_combine.cuh). cpu/group_draws.h has the definition, kernels/piece_masses.h its arithmetic.
// A piece of the mixture is a split. Device code, one block.
#include "kernels/cuda/combine.cuh"
#include "kernels/piece_masses.h"

namespace allot::kernels::cuda {

static_assert(kPieceKeys == kSplitKeys && kPieceKeys == 32 * 8);  // a lane has eight keys

constexpr int kPartWarps = kPartDraws / 32;
constexpr int kPartTiles = kPartDraws / 16;

// kWide: groups of more than eight query heads.
template <int kDim, bool kWide>
struct GroupShared {
  static constexpr int kHeads = kWide ? kMaxHeadGroup : 8;
  static constexpr int kSteps = kDim / 16;  // products of a score
  // [query heads of the group]
  uint32_t budgets[kHeads];  // 0: the head does not draw
  float max_score[kHeads];
  uint64_t totals[kHeads];  // W_h, in the common unit (combine.cuh)
  double units[kHeads];     // b_h / B for a unit of W_h; 0: no part in the mixture
  float inverses[kHeads];   // 1 / W_h
  int exponents[kHeads];
  float score_scales[kHeads];
  float tops[kHeads], sums[kHeads], factors[kHeads];  // of weights, in powers of two
  // [draws of a round], thresholds ascending
  uint64_t thresholds[kPartDraws];
  uint64_t integers[kPartDraws];  // that the drawn key has
  int pieces[kPartDraws];
  int keys[kPartDraws];
  int first[kPartDraws + 1];  // the first draw of each piece, later of each row
  // [distinct rows of a round]
  uint32_t entries[kPartDraws];
  float ratios[kPartDraws];  // c_j / p_j; 0: no row
  alignas(16) float weights[kHeads][kPartDraws + 4];
  // Scratch.
  int warp_counts[kPartWarps];
  uint64_t warp_sums[kPartWarps];
  alignas(16) uint32_t prefixes[kPartWarps][kPieceKeys];
  alignas(16) uint4 queries[(kWide ? 2 : 1) * kSteps * 32];  // B of the scores: two terms of a lane
  alignas(16) float out[kHeads][kDim];
};
constexpr int kGroupSharedBytes = sizeof(GroupShared<128, true>);

// Finds a round of up to kPartDraws draws: shared.keys and shared.integers.
template <int kDim, bool kWide>
class GroupMixture {
 protected:
  using Shared = GroupShared<kDim, kWide>;
  static constexpr int kHeads = Shared::kHeads;

  // Reads inputs of the step alone, while the split kernel still runs.
  __device__ GroupMixture(const Step& step, uint8_t* memory)
      : step_(step),
        shared_(*reinterpret_cast<Shared*>(memory)),
        masses_(reinterpret_cast<uint64_t*>(memory + kGroupSharedBytes)),
        tid_(threadIdx.x),
        lane_(threadIdx.x % 32),
        warp_(threadIdx.x / 32),
        group_(step.in.group) {
    part_ = static_cast<int>(blockIdx.x) % step.space.part_stride;
    const int of = static_cast<int>(blockIdx.x) / step.space.part_stride;
    row_ = of / step.cache.kv_heads;
    kv_head_ = of % step.cache.kv_heads;
    first_head_ = kv_head_ * group_;
    keys_ = keysOf(step, step.in.lengths[row_]);
    if (tid_ < kHeads) {
      const int head = first_head_ + tid_;
      const bool draws = tid_ < group_ && kindOf<true>(step, row_, head) == HeadKind::kSampled;
      shared_.budgets[tid_] = draws ? budgetOf<true>(step, row_, head) : 0;
      shared_.totals[tid_] = 0;
      shared_.units[tid_] = 0;
      shared_.tops[tid_] = kNoKeys;
      shared_.sums[tid_] = 0;
    }
    __syncthreads();
    planned_ = 0;
    for (int h = 0; h < kHeads; ++h) planned_ += shared_.budgets[h];
    const uint32_t each = drawsOfPart(planned_);
    begin_ = static_cast<uint64_t>(part_) * each;
    end_ = min(begin_ + each, planned_);
  }

  // Computes R and, if the part has draws, the pieces' masses.
  __device__ void mix() {
    splits_ = splitsOf(keys_.span());
    weighHeads();
    draws_ = 0;
    for (int h = 0; h < kHeads; ++h) draws_ += shared_.totals[h] > 0 ? shared_.budgets[h] : 0;
    if (tid_ < kHeads && shared_.totals[tid_] > 0) {
      const double share = static_cast<double>(shared_.budgets[tid_]) / static_cast<double>(draws_);
      shared_.units[tid_] = mixtureUnit(share, shared_.totals[tid_]);
      shared_.inverses[tid_] = static_cast<float>(1.0 / static_cast<double>(shared_.totals[tid_]));
    }
    __syncthreads();
    if (begin_ < draws_) weighPieces();
  }

  // Makes draws first .. first + count - 1.
  template <typename Words>
  __device__ void draw(const DrawThresholds& thresholds, const Words& words, uint32_t first,
                       int count) {
    const ChosenBy by = step_.how.chosen_by;
    uint64_t threshold = ~uint64_t{0};
    if (tid_ < count) threshold = thresholds.at(by, first + tid_, words);
    if (by == ChosenBy::kIndependent) threshold = sorted(threshold, count);
    __syncthreads();
    shared_.thresholds[tid_] = threshold;
    const int piece = tid_ < count ? pieceOf(threshold) : -1;
    shared_.pieces[tid_] = piece;
    __syncthreads();
    int own;
    const bool new_piece = tid_ < count && (tid_ == 0 || shared_.pieces[tid_ - 1] != piece);
    const int pieces = listFirsts(new_piece, count, &own);
    for (int k = warp_; k < pieces; k += kPartWarps) {
      drawInPiece(shared_.first[k], shared_.first[k + 1]);
    }
    __syncthreads();
  }

  __device__ int64_t splitAt(int h, int piece) const {
    return splitIndex(step_, row_, first_head_ + h, piece);
  }
  __device__ int64_t headIndex(int h) const {
    return static_cast<int64_t>(row_) * step_.in.heads + first_head_ + h;
  }
  __device__ std::array<uint32_t, 4> words(uint32_t block) const {
    return philox(step_.in.seed, step_.in.sequences[row_], step_.in.steps[row_],
                  attentionStream(step_.in.layer, static_cast<uint32_t>(first_head_)), block);
  }
  // Returns x times what a float16 weight of 1 is in the common unit, `gap` below the largest
  // max_score.
  __device__ static float scaled(float x, float gap) {
    return gap >= kKept + 32 ? 0.0f : scalbnf(x, 24 + kKept - static_cast<int>(gap));
  }

  // ---- The mixture

  // Computes W_h of the heads that draw, a warp a head.
  __device__ void weighHeads() {
    for (int h = warp_; h < group_; h += kPartWarps) {
      if (shared_.budgets[h] == 0) continue;
      const Split* splits = step_.space.splits + splitAt(h, 0);
      float top = kNoKeys;
      for (int p = lane_; p < splits_; p += 32) top = fmaxf(top, splits[p].max_score);
      for (int i = 16; i > 0; i /= 2) top = fmaxf(top, __shfl_xor_sync(kAll, top, i));
      uint64_t total = 0;
      for (int p = lane_; p < splits_; p += 32) {
        total += inUnits(splits[p].weight, top - splits[p].max_score);
      }
      for (int i = 16; i > 0; i /= 2) total += __shfl_xor_sync(kAll, total, i);
      if (lane_ == 0) {
        shared_.max_score[h] = top;
        shared_.totals[h] = total;
      }
    }
    __syncthreads();
  }

  // Returns P_t.
  __device__ double shareOf(int piece) const {
    double share = 0;
    for (int h = 0; h < group_; ++h) {
      const double unit = shared_.units[h];
      if (unit == 0) continue;
      const Split& split = step_.space.splits[splitAt(h, piece)];
      share =
          addToPiece(unit, inUnits(split.weight, shared_.max_score[h] - split.max_score), share);
    }
    return share;
  }

  // Computes masses_[t], the sum of the masses of pieces before t, and the total of all integers.
  __device__ void weighPieces() {
    uint64_t passed = 0;
    for (int first = 0; first < splits_; first += kPartDraws) {
      const int piece = first + tid_;
      const uint64_t mass = piece < splits_ ? pieceMass(shareOf(piece)) : 0;
      uint64_t all;
      const uint64_t before = sumBefore<kPartWarps>(mass, lane_, warp_, shared_.warp_sums, &all);
      if (piece < splits_) masses_[piece] = passed + before;
      passed += all;
    }
    if (tid_ == 0) masses_[splits_] = passed;
    total_ = passed << kPieceShift;
    __syncthreads();
  }

  // ---- Draws

  // Returns the thread's threshold in ascending order. Independent ones come in no order.
  __device__ uint64_t sorted(uint64_t own, int count) {
    __syncthreads();
    shared_.thresholds[tid_] = own;
    __syncthreads();
    int rank = 0;
    for (int i = 0; i < count; ++i) {
      const uint64_t other = shared_.thresholds[i];
      rank += other < own || (other == own && i < tid_);
    }
    __syncthreads();
    if (tid_ < count) shared_.thresholds[rank] = own;
    __syncthreads();
    return shared_.thresholds[tid_];
  }

  // Writes to `first` the threads with a flag, in order, and `count` behind them. Returns their
  // number. *own: how many of the threads up to this one have a flag, less one.
  __device__ int listFirsts(bool flag, int count, int* own) {
    const uint32_t flags = __ballot_sync(kAll, flag);
    if (lane_ == 0) shared_.warp_counts[warp_] = __popc(flags);
    __syncthreads();
    int before = 0, all = 0;
    for (int w = 0; w < kPartWarps; ++w) {
      before += w < warp_ ? shared_.warp_counts[w] : 0;
      all += shared_.warp_counts[w];
    }
    *own = before + __popc(flags & ((2u << lane_) - 1)) - 1;
    if (flag) shared_.first[*own] = tid_;
    if (tid_ == 0) shared_.first[all] = count;
    __syncthreads();
    return all;
  }

  // Returns the piece of a threshold.
  __device__ int pieceOf(uint64_t threshold) const {
    const uint64_t unit = threshold >> kPieceShift;
    int low = 0, high = splits_;  // masses_[low] <= unit < masses_[high]
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      (masses_[middle] <= unit ? low : high) = middle;
    }
    return low;
  }

  // Finds the keys of draws from..to-1, which fall into one piece. A warp calls it together.
  __device__ void drawInPiece(int from, int to) {
    const int piece = shared_.pieces[from];
    float proposals[8] = {};
    double share = 0;
#pragma unroll 4
    for (int h = 0; h < group_; ++h) {
      const double unit = shared_.units[h];
      if (unit == 0) continue;
      const int64_t at = splitAt(h, piece);
      const Split& split = step_.space.splits[at];
      const auto* weights =
          reinterpret_cast<const uint4*>(step_.space.split_bytes + at * kSplitBytes);
      const uint4 eight = weights[lane_];
      const float gap = shared_.max_score[h] - split.max_score;
      const uint64_t weight = inUnits(split.weight, gap);
      // A head without a share of the piece has none of its keys, or their sum would have no bound.
      if (weight == 0) continue;
      share = addToPiece(unit, weight, share);
      const float key_unit = scaled(static_cast<float>(unit), gap);
      const uint32_t of[4] = {eight.x, eight.y, eight.z, eight.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float2 two = ElementOf<__half>::pair(of[i]);
        proposals[2 * i] = addToKey(key_unit, two.x, proposals[2 * i]);
        proposals[2 * i + 1] = addToKey(key_unit, two.y, proposals[2 * i + 1]);
      }
    }
    const float units = keyUnits(share);
    uint32_t prefix[8], reached = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      prefix[i] = reached += static_cast<uint32_t>(keyMass(proposals[i], units));
    }
    uint32_t before = reached;
    for (int i = 1; i < 32; i *= 2) {
      const uint32_t left = __shfl_up_sync(kAll, before, i);
      if (lane_ >= i) before += left;
    }
    const uint32_t piece_total = __shfl_sync(kAll, before, 31);
    before -= reached;
    uint32_t* prefixes = shared_.prefixes[warp_];
    __syncwarp();  // all lanes are done with the piece before
#pragma unroll
    for (int i = 0; i < 8; ++i) prefixes[8 * lane_ + i] = before + prefix[i];
    __syncwarp();
    const uint64_t mass = masses_[piece + 1] - masses_[piece];
    for (int m = from + lane_; m < to; m += 32) {
      const uint64_t place = shared_.thresholds[m] - (masses_[piece] << kPieceShift);
      const uint64_t product = productFor(place, piece_total);
      int key = 0;
#pragma unroll
      for (int jump = kPieceKeys / 2; jump > 0; jump /= 2) {
        if (mass * prefixes[key + jump - 1] < product) key += jump;
      }
      const uint64_t until = integersUpTo(mass, prefixes[key], piece_total);
      const uint64_t earlier =
          key > 0 ? integersUpTo(mass, prefixes[key - 1], piece_total) : uint64_t{0};
      shared_.keys[m] = keys_.base + piece * kPieceKeys + key;
      shared_.integers[m] = until - earlier;
    }
  }

  const Step& step_;
  Shared& shared_;
  uint64_t* masses_;  // [splits + 1]
  int tid_, lane_, warp_, group_;
  int row_, kv_head_, first_head_, part_, splits_ = 0;
  RowKeys keys_;
  uint64_t planned_, begin_, end_;  // draws, if no head is masked; those of the part
  uint64_t draws_ = 0;              // R
  uint64_t total_ = 0;              // integers of all pieces
};

}  // namespace allot::kernels::cuda
