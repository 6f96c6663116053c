#pragma once
// The draws of a group (draws=group). cpu/group_draws.h has the definition, kernels/piece_masses.h
// its arithmetic, and docs/shared-draws.md the bounds. Device code.
//
// groupDrawKernel has one block a row, KV head and part of the group's draws (drawsOfPart()). A
// piece of the mixture is a split. A block computes the pieces' masses from the splits' weights, so
// that it needs no other block, and then goes round by round of kPartDraws draws:
//   1. thresholds, and the pieces that they fall into, a thread a draw;
//   2. for each piece the mixture of its 256 keys, and the keys that are drawn, a warp a piece;
//   3. the integers of these keys, a thread a draw.
// It lists draws in Space::shared_draws, thresholds ascending within a round, and asks for their
// rows to be brought to the L2 cache. group_combine.cuh gathers them.
#include "kernels/cuda/combine.cuh"
#include "kernels/piece_masses.h"

namespace allot::kernels::cuda {

static_assert(kPieceKeys == kSplitKeys && kPieceKeys == 32 * 8);  // a lane has eight keys

constexpr int kMixWarps = kMixThreads / 32;

// The part of a group's draws that a block has. Private to this file and group_combine.cuh.
// kWide: groups of more than eight query heads.
template <bool kWide>
class GroupPartBlock {
 protected:
  static constexpr int kHeads = kWide ? kMaxHeadGroup : 8;

  // Reads inputs of the step alone, while the kernel before still runs. budgets: [kHeads] in shared
  // memory; 0: the head does not draw.
  __device__ GroupPartBlock(const Step& step, uint32_t* budgets)
      : step_(step),
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
    list_ = step.space.shared_draws + static_cast<int64_t>(of) * step.space.draw_stride;
    if (tid_ < kHeads) {
      const int head = first_head_ + tid_;
      const bool draws = tid_ < group_ && kindOf<true>(step, row_, head) == HeadKind::kSampled;
      budgets[tid_] = draws ? budgetOf<true>(step, row_, head) : 0;
    }
    __syncthreads();
    planned_ = 0;
    for (int h = 0; h < kHeads; ++h) planned_ += budgets[h];
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
  // Returns x times what a float16 weight of 1 is in the common unit, `gap` below the largest
  // max_score. Requires: the result is 0 or a normal number.
  __device__ static float scaled(float x, float gap) {
    const int exponent = 24 + kKept - static_cast<int>(gap);
    return gap >= kKept + 32 ? 0.0f : x * __int_as_float((127 + exponent) << 23);
  }

  // Writes to `firsts` the threads with a flag, in order, and `count` behind them. Returns their
  // number. *own: how many of the threads up to this one have a flag, less one. counts: [kWarps] in
  // shared memory. Requires: all threads call it.
  template <int kWarps>
  __device__ int listFirsts(bool flag, int count, int* counts, int* firsts, int* own) {
    const uint32_t flags = __ballot_sync(kAll, flag);
    if (lane_ == 0) counts[warp_] = __popc(flags);
    __syncthreads();
    int before = 0, all = 0;
    for (int w = 0; w < kWarps; ++w) {
      before += w < warp_ ? counts[w] : 0;
      all += counts[w];
    }
    *own = before + __popc(flags & ((2u << lane_) - 1)) - 1;
    if (flag) firsts[*own] = tid_;
    if (tid_ == 0) firsts[all] = count;
    __syncthreads();
    return all;
  }

  const Step& step_;
  int tid_, lane_, warp_, group_;
  int row_, kv_head_, first_head_, part_;
  RowKeys keys_;
  SharedDraw* list_;                // of the group
  uint64_t planned_, begin_, end_;  // draws, if no head is masked; those of the part
  uint64_t draws_ = 0;              // R
};

template <bool kWide>
struct MixtureShared {
  static constexpr int kHeads = kWide ? kMaxHeadGroup : 8;
  // [query heads of the group]
  uint32_t budgets[kHeads];
  float max_score[kHeads];
  float exponentials[kHeads];
  uint64_t totals[kHeads];    // W_h, in the common unit (combine.cuh)
  double units[kHeads];       // b_h / B for a unit of W_h; 0: no part in the mixture
  float float_units[kHeads];  // units in float32
  // [draws of a round], thresholds ascending
  uint64_t thresholds[kPartDraws];
  int pieces[kPartDraws];
  int first[kPartDraws + 1];                        // the first draw of each piece
  int keys[kPartDraws];                             // in the piece
  uint32_t until[kPartDraws], earlier[kPartDraws];  // prefix sums of the key and the one before
  uint32_t piece_totals[kPartDraws];
  // Scratch.
  int warp_counts[kMixWarps];
  uint64_t warp_sums[kMixWarps];
  alignas(16) uint32_t prefixes[kMixWarps][kPieceKeys];
};
constexpr int kMixtureSharedBytes = (sizeof(MixtureShared<true>) + 15) / 16 * 16;

template <int kDim, typename T, bool kRescores, bool kWide>
class GroupDrawBlock : GroupPartBlock<kWide> {
  using Base = GroupPartBlock<kWide>;
  using Base::kHeads, Base::step_, Base::tid_, Base::lane_, Base::warp_, Base::group_;
  using Base::planned_, Base::begin_, Base::end_, Base::draws_;
  using Base::row_, Base::kv_head_, Base::first_head_, Base::part_, Base::keys_, Base::list_;
  using Base::splitAt, Base::headIndex, Base::scaled;

 public:
  // Reads inputs of the step alone, while the split kernel still runs.
  __device__ GroupDrawBlock(const Step& step, uint8_t* memory)
      : Base(step, reinterpret_cast<MixtureShared<kWide>*>(memory)->budgets),
        shared_(*reinterpret_cast<MixtureShared<kWide>*>(memory)),
        masses_(reinterpret_cast<uint64_t*>(memory + kMixtureSharedBytes)),
        key_units_(reinterpret_cast<float*>(masses_ + step.space.max_splits + 1)) {}

  __device__ void run() {
    if (begin_ >= planned_) return;
    mix();
    if (begin_ >= draws_) return;
    const auto words = [this](uint32_t block) { return this->words(block); };
    const DrawThresholds thresholds(step_.how.chosen_by, total_, static_cast<uint32_t>(draws_),
                                    offsetOf(words(0)[0]));
    const auto end = static_cast<uint32_t>(min(end_, draws_));
    for (auto first = static_cast<uint32_t>(begin_); first < end; first += kPartDraws) {
      draw(thresholds, words, first,
           static_cast<int>(min(end - first, static_cast<uint32_t>(kPartDraws))));
    }
  }

 private:
  __device__ std::array<uint32_t, 4> words(uint32_t block) const {
    return philox(step_.in.seed, step_.in.sequences[row_], step_.in.steps[row_],
                  attentionStream(step_.in.layer, static_cast<uint32_t>(first_head_)), block);
  }

  // ---- The mixture

  // Computes R and, if the part has draws, the pieces' masses. The first part's block writes what
  // the heads draw with.
  __device__ void mix() {
    splits_ = splitsOf(keys_.span());
    weighHeads();
    for (int h = 0; h < kHeads; ++h) draws_ += shared_.totals[h] > 0 ? shared_.budgets[h] : 0;
    if (tid_ < kHeads) {
      const uint64_t total = shared_.totals[tid_];
      const double share = static_cast<double>(shared_.budgets[tid_]) / static_cast<double>(draws_);
      shared_.units[tid_] = total > 0 ? mixtureUnit(share, total) : 0;
      shared_.float_units[tid_] = static_cast<float>(shared_.units[tid_]);
      if (part_ == 0 && shared_.budgets[tid_] > 0) {
        step_.space.shared_heads[headIndex(tid_)] = {
            shared_.max_score[tid_], shared_.exponentials[tid_],
            total > 0 ? static_cast<float>(1.0 / static_cast<double>(total)) : 0.0f,
            static_cast<uint32_t>(draws_), static_cast<uint32_t>(partsOf(planned_))};
      }
    }
    __syncthreads();
    if (begin_ < draws_) weighPieces();
  }

  // Computes W_h and the sum of exponentials of the heads that draw, a warp a head.
  __device__ void weighHeads() {
    for (int h = warp_; h < kHeads; h += kMixWarps) {
      float top = kNoKeys, exponentials = 0;
      uint64_t total = 0;
      if (shared_.budgets[h] > 0) {
        const Split* splits = step_.space.splits + splitAt(h, 0);
#pragma unroll 4
        for (int p = lane_; p < splits_; p += 32) top = fmaxf(top, splits[p].max_score);
        for (int i = 16; i > 0; i /= 2) top = fmaxf(top, __shfl_xor_sync(kAll, top, i));
#pragma unroll 4
        for (int p = lane_; p < splits_; p += 32) {
          const Split split = splits[p];
          total += inUnits(split.weight, top - split.max_score);
          exponentials += power2(split.max_score - top) * split.sum;
        }
        for (int i = 16; i > 0; i /= 2) {
          total += __shfl_xor_sync(kAll, total, i);
          exponentials += __shfl_xor_sync(kAll, exponentials, i);
        }
      }
      if (lane_ == 0) {
        shared_.max_score[h] = top;
        shared_.exponentials[h] = exponentials;
        shared_.totals[h] = total;
      }
    }
    __syncthreads();
  }

  // What the mixture needs of a split of one head.
  struct Summary {
    float max_score;
    uint32_t weight;
  };
  __device__ Summary summaryOf(int64_t at) const {
    const auto two = *reinterpret_cast<const uint2*>(step_.space.splits + at);
    return {__uint_as_float(two.x), two.y};
  }

  // Returns P_t. Loads of four heads are in flight at once; those of heads that have no part in the
  // mixture are of no meaning.
  __device__ double shareOf(int piece) const {
    double share = 0;
    for (int first = 0; first < group_; first += 4) {
      Summary splits[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) splits[i] = summaryOf(splitAt(min(first + i, group_ - 1), piece));
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int h = first + i;
        if (h >= group_ || shared_.units[h] == 0) continue;
        const uint64_t weight =
            inUnits(splits[i].weight, shared_.max_score[h] - splits[i].max_score);
        share = addToPiece(shared_.units[h], weight, share);
      }
    }
    return share;
  }

  // Computes masses_[t], the sum of the masses of pieces before t, the units of keys in each piece,
  // and the total of all integers.
  __device__ void weighPieces() {
    uint64_t passed = 0;
    for (int first = 0; first < splits_; first += kMixThreads) {
      const int piece = first + tid_;
      uint64_t mass = 0;
      if (piece < splits_) {
        const double share = shareOf(piece);
        mass = pieceMass(share);
        key_units_[piece] = keyUnits(share);  // infinite, and not read, if it has no mass
      }
      uint64_t all;
      const uint64_t before = sumBefore<kMixWarps>(mass, lane_, warp_, shared_.warp_sums, &all);
      if (piece < splits_) masses_[piece] = passed + before;
      passed += all;
    }
    if (tid_ == 0) masses_[splits_] = passed;
    total_ = passed << kPieceShift;
    __syncthreads();
  }

  // ---- Draws

  // Makes draws first .. first + count - 1.
  template <typename Words>
  __device__ void draw(const DrawThresholds& thresholds, const Words& words, uint32_t first,
                       int count) {
    const ChosenBy by = step_.how.chosen_by;
    uint64_t threshold = ~uint64_t{0};
    if (tid_ < count) threshold = thresholds.at(by, first + tid_, words);
    if (by == ChosenBy::kIndependent) threshold = sorted(threshold, count);
    __syncthreads();
    int piece = -1;
    if (tid_ < count) {
      shared_.thresholds[tid_] = threshold;
      shared_.pieces[tid_] = piece = pieceOf(threshold);
    }
    __syncthreads();
    int own;
    const bool new_piece = tid_ < count && (tid_ == 0 || shared_.pieces[tid_ - 1] != piece);
    const int pieces = this->template listFirsts<kMixWarps>(new_piece, count, shared_.warp_counts,
                                                            shared_.first, &own);
    for (int k = warp_; k < pieces; k += kMixWarps) {
      drawInPiece(shared_.first[k], shared_.first[k + 1]);
    }
    __syncthreads();
    if (tid_ < count) list_[first + tid_] = listed();
  }

  // Returns the thread's threshold in ascending order. Independent ones come in no order.
  __device__ uint64_t sorted(uint64_t own, int count) {
    __syncthreads();
    if (tid_ < count) shared_.thresholds[tid_] = own;
    __syncthreads();
    int rank = 0;
    for (int i = 0; i < count; ++i) {
      const uint64_t other = shared_.thresholds[i];
      rank += other < own || (other == own && i < tid_);
    }
    __syncthreads();
    if (tid_ < count) shared_.thresholds[rank] = own;
    __syncthreads();
    return tid_ < count ? shared_.thresholds[tid_] : ~uint64_t{0};
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

  // Finds the keys of draws from .. to - 1 of the round, which fall into one piece. A warp calls it
  // together.
  __device__ void drawInPiece(int from, int to) {
    const int piece = shared_.pieces[from];
    float proposals[8] = {};
    for (int first = 0; first < group_; first += 4) {
      Summary splits[4];
      uint4 weights[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int64_t at = splitAt(min(first + i, group_ - 1), piece);
        splits[i] = summaryOf(at);
        weights[i] =
            reinterpret_cast<const uint4*>(step_.space.split_bytes + at * kSplitBytes)[lane_];
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int h = first + i;
        const float gap = shared_.max_score[min(h, group_ - 1)] - splits[i].max_score;
        // A head without a share of the piece has none of its keys, or their sum would have no
        // bound.
        if (h >= group_ || shared_.float_units[h] == 0 || isNothing(splits[i].weight, gap))
          continue;
        const float key_unit = scaled(shared_.float_units[h], gap);
        const uint32_t of[4] = {weights[i].x, weights[i].y, weights[i].z, weights[i].w};
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          const float2 two = ElementOf<__half>::pair(of[k]);
          proposals[2 * k] = addToKey(key_unit, two.x, proposals[2 * k]);
          proposals[2 * k + 1] = addToKey(key_unit, two.y, proposals[2 * k + 1]);
        }
      }
    }
    const float units = key_units_[piece];
    uint32_t prefix[8], reached = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      prefix[i] = reached += keyMass(proposals[i], units);
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
    auto* stored = reinterpret_cast<uint4*>(prefixes) + 2 * lane_;
    stored[0] = {before + prefix[0], before + prefix[1], before + prefix[2], before + prefix[3]};
    stored[1] = {before + prefix[4], before + prefix[5], before + prefix[6], before + prefix[7]};
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
      shared_.keys[m] = key;
      shared_.until[m] = prefixes[key];
      shared_.earlier[m] = key > 0 ? prefixes[key - 1] : 0;
      shared_.piece_totals[m] = piece_total;
    }
  }

  // Returns true if inUnits() returns 0.
  __device__ static bool isNothing(uint32_t weight, float gap) {
    const int lost = static_cast<int>(gap) - kKept - 1;
    return weight == 0 || lost >= 32 || (lost >= 0 && weight >> lost == 0);
  }

  // Returns the thread's draw, and asks for its row to be brought to the L2 cache.
  __device__ SharedDraw listed() const {
    const int piece = shared_.pieces[tid_];
    const int key = keys_.base + piece * kPieceKeys + shared_.keys[tid_];
    const uint32_t entry = entryOf(step_, row_, kv_head_, key);
    bringToL2(static_cast<const T*>(step_.cache.values) + static_cast<int64_t>(entry) * kDim);
    if constexpr (kRescores) {
      bringToL2(static_cast<const T*>(step_.cache.keys) + static_cast<int64_t>(entry) * kDim);
    }
    const uint64_t mass = masses_[piece + 1] - masses_[piece];
    const uint32_t piece_total = max(shared_.piece_totals[tid_], 1u);  // 0 after NaN scores alone
    const double inverse = 1.0 / static_cast<double>(piece_total);
    const uint64_t integers = integersUpTo(mass, shared_.until[tid_], piece_total, inverse) -
                              integersUpTo(mass, shared_.earlier[tid_], piece_total, inverse);
    const double share = static_cast<double>(total_) / static_cast<double>(integers);
    return {key, entry, static_cast<float>(share)};
  }

  // Asks for a row of the pool to be brought to the L2 cache.
  __device__ static void bringToL2(const T* row) {
#if __CUDA_ARCH__ >= 900
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(row),
                 "n"(kDim * static_cast<int>(sizeof(T))));
#endif
  }

  MixtureShared<kWide>& shared_;
  uint64_t* masses_;  // [splits + 1]
  float* key_units_;  // [splits]
  int splits_ = 0;
  uint64_t total_ = 0;  // integers of all pieces
};

template <int kDim, typename T, bool kRescores, bool kWide>
__global__ void __launch_bounds__(kMixThreads, 4)
    groupDrawKernel(const __grid_constant__ Step step) {
  extern __shared__ __align__(16) uint8_t memory[];  // MixtureShared, masses
  GroupDrawBlock<kDim, T, kRescores, kWide> block(step, memory);
  waitForKernelBefore();
  letNextKernelIn();
  block.run();
}

}  // namespace allot::kernels::cuda
