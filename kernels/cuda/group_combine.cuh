#pragma once
// The kernels in the combine kernel's place if the query heads of a KV head share their draws
// (draws=group). docs/shared-draws.md has the bounds. Device code.
//
// groupPartKernel has one block a row, KV head and part of the group's draws (drawsOfPart()). It
// goes round by round of kPartDraws draws:
//   1. the draws (group_mixture.cuh);
//   2. distinct rows, and their weights for all heads: from the split kernel's weights, or from
//      exact scores (tensor cores, 16 rows at a time) if a shadow proposes;
//   3. the sums of weighted values for all heads (tensor cores, 16 rows at a time).
// In a round a key or value is read once for the group, and goes from memory to the product's
// registers. groupHeadKernel has a block a query head, which adds up its parts in order.
#include "kernels/cuda/group_mixture.cuh"

namespace allot::kernels::cuda {

template <int kDim, bool kWide>
struct PartShared {
  static constexpr int kHeads = kWide ? kMaxHeadGroup : 8;
  static constexpr int kSteps = kDim / 16;  // products of a score
  MixtureShared<kWide> mixture;
  // [query heads of the group]
  int exponents[kHeads];
  float score_scales[kHeads];
  float tops[kHeads], sums[kHeads], factors[kHeads];  // of weights, in powers of two
  int first[kPartDraws + 1];                          // the first draw of each row
  // [distinct rows of a round]
  uint32_t entries[kPartDraws];
  float ratios[kPartDraws];  // c_j / p_j; 0: no row
  alignas(16) float weights[kHeads][kPartDraws + 4];
  // Scratch.
  alignas(16) uint4 queries[(kWide ? 2 : 1) * kSteps * 32];  // B of the scores: two terms of a lane
  // Sums of values by warp, as lanes have them: number kRows i + c of a lane is element c of
  // product i.
  static constexpr int kRows = kWide ? 4 : 2;
  float out[kPartWarps][kDim / 8 * kRows][32];
};

template <int kDim, typename T, bool kRescores, bool kWide>
class GroupPartBlock : protected GroupDraws<kDim, T, kRescores, kWide> {
 protected:
  using Base = GroupDraws<kDim, T, kRescores, kWide>;
  using Base::kHeads, Base::step_, Base::tid_, Base::lane_, Base::warp_, Base::group_;
  using Base::planned_, Base::begin_, Base::end_, Base::draws_, Base::mixture_;
  using Base::row_, Base::kv_head_, Base::part_, Base::keys_;
  using Base::splitAt, Base::headIndex;
  using Elements = ElementOf<T>;
  using Shared = PartShared<kDim, kWide>;
  static constexpr int kSteps = Shared::kSteps;
  static constexpr int kScoreTiles = kHeads / 8;  // products of eight heads
  static constexpr int kValueChunks = kDim / 64;

 public:
  // Reads inputs of the step alone, while the split kernel still runs.
  __device__ GroupPartBlock(const Step& step, uint8_t* memory)
      : Base(step, reinterpret_cast<Shared*>(memory)->mixture, memory + sizeof(Shared)),
        shared_(*reinterpret_cast<Shared*>(memory)) {
    if constexpr (kRescores) {
      if (begin_ < planned_) takeQueries();
    }
  }

  __device__ void run() {
    if (begin_ >= planned_) return;
    if (tid_ < kHeads) {
      shared_.tops[tid_] = kNoKeys;
      shared_.sums[tid_] = 0;
    }
    this->mix();
    listNothing();
    if (begin_ >= draws_) return;
    const DrawThresholds thresholds = this->thresholds();
    const auto end = static_cast<uint32_t>(min(end_, draws_));
    for (auto first = static_cast<uint32_t>(begin_); first < end; first += kPartDraws) {
      const auto count = static_cast<int>(min(end - first, static_cast<uint32_t>(kPartDraws)));
      this->draw(thresholds, first, count);
      addRows(first, count, first == begin_);
    }
    if (__any_sync(kAll, poison_ != 0) && lane_ == 0) {
      report(step_, Wrong::kScore, row_, kv_head_);
    }
    storePart();
  }

 protected:  // of group_choice.cuh, too
  // Returns eight channels of an entry.
  __device__ uint4 load(const void* pool, uint32_t entry, int channel) const {
    return __ldg(reinterpret_cast<const uint4*>(static_cast<const T*>(pool) +
                                                static_cast<int64_t>(entry) * kDim + channel));
  }

  // ---- Weights. They are in powers of two until exponentials().

  // Returns x times what a float16 weight of 1 is in the unit of W_h, for a split `gap` below the
  // largest.
  // Requires: the result is 0 or a normal number.
  __device__ static float scaled(float x, int gap) {
    return gap < kLostGap ? x * __int_as_float((127 + 24 + kKept - gap) << 23) : 0.0f;
  }

  // Computes c_j a_hj / p_j from the split kernel's weights, a thread a row.
  __device__ void weighRows(int rows) {
    const int row = tid_;
    const int place = row < rows ? mixture_.drawn[shared_.first[row]].key - keys_.base : 0;
    const int piece = place / kPieceKeys, key = place % kPieceKeys;
    const float ratio = shared_.ratios[row];
    __half weights[kHeads];
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {  // of no meaning if the head does not draw
      const int64_t at = splitAt(min(h, group_ - 1), piece);
      weights[h] = reinterpret_cast<const __half*>(step_.space.split_bytes + at * kSplitBytes)[key];
    }
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
      const float inverse = mixture_.inverses[h];
      float weight = 0;
      if (row < rows && inverse > 0) {
        weight = ratio * (scaled(inverse, this->gaps_[piece].of[h]) * __half2float(weights[h]));
      }
      shared_.weights[h][row] = log2f(weight);
    }
  }

  // Rounds queries to two terms, the B of products of 16 channels. In step 2 c + half a lane has
  // channels 32 c + 8 t + 4 half .. + 3, so that it can load keys in vectors of eight channels.
  __device__ void takeQueries() {
    for (int h = warp_; h < kHeads; h += kPartWarps) {
      int exponent = 0;
      if (Elements::kScalesQueries && h < group_) {
        const float* query = step_.in.queries + headIndex(h) * kDim;
        float largest = 0;
        for (int d = lane_; d < kDim; d += 32) largest = fmaxf(largest, fabsf(query[d]));
        for (int i = 16; i > 0; i /= 2) {
          largest = fmaxf(largest, __shfl_xor_sync(kAll, largest, i));
        }
        exponent = largest > 0 && isNumber(largest) ? ilogbf(largest) : 0;
      }
      if (lane_ == 0) {
        shared_.exponents[h] = exponent;
        shared_.score_scales[h] = scalbnf(step_.in.scale * kLog2E, exponent);
      }
    }
    __syncthreads();
    for (int i = warp_; i < kScoreTiles * kSteps; i += kPartWarps) {
      const int h = i / kSteps * 8 + lane_ / 4, step = i % kSteps;
      uint4 terms{0, 0, 0, 0};
      if (h < group_) {
        const int channel = step / 2 * 32 + lane_ % 4 * 8 + step % 2 * 4;
        const float4 four =
            *reinterpret_cast<const float4*>(step_.in.queries + headIndex(h) * kDim + channel);
        const int exponent = shared_.exponents[h];
        const uint32_t x = twoTerms<T>(scalbnf(four.x, -exponent));
        const uint32_t y = twoTerms<T>(scalbnf(four.y, -exponent));
        const uint32_t z = twoTerms<T>(scalbnf(four.z, -exponent));
        const uint32_t w = twoTerms<T>(scalbnf(four.w, -exponent));
        terms = {lowHalves(x, y), lowHalves(z, w), highHalves(x, y), highHalves(z, w)};
      }
      shared_.queries[i * 32 + lane_] = terms;
    }
    __syncthreads();
  }
  __device__ static uint32_t lowHalves(uint32_t x, uint32_t y) { return (x & 0xffff) | y << 16; }
  __device__ static uint32_t highHalves(uint32_t x, uint32_t y) {
    return x >> 16 | (y & 0xffff0000u);
  }

  // Asks for rows of the pool to be brought to the L2 cache, those of a tile of 16. A warp calls it
  // together.
  __device__ void bringToL2(const void* pool, int tile) const {
    constexpr int kSectors = kDim * static_cast<int>(sizeof(T)) / 32;
#pragma unroll
    for (int i = lane_; i < 16 * kSectors; i += 32) {
      const T* row = static_cast<const T*>(pool) +
                     static_cast<int64_t>(shared_.entries[tile * 16 + i / kSectors]) * kDim;
      asm volatile("prefetch.global.L2 [%0];" ::"l"(row + i % kSectors * (32 / sizeof(T))));
    }
  }

  // Computes c_j exp(s_hj) / p_j of 16 rows from their exact keys. A warp calls it together.
  __device__ void scoreTile(int tile, int rows) {
    const int g = lane_ / 4, t = lane_ % 4, row = tile * 16 + g;
    uint4 keys[2][kDim / 32];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint32_t entry = shared_.entries[row + 8 * half];
#pragma unroll
      for (int c = 0; c < kDim / 32; ++c) {
        keys[half][c] = load(step_.cache.keys, entry, 32 * c + 8 * t);
      }
    }
    float sums[kScoreTiles][2][4] = {};
#pragma unroll
    for (int c = 0; c < kDim / 32; ++c) {
      const uint4 &x = keys[0][c], &y = keys[1][c];
      const uint32_t a[2][4] = {{x.x, y.x, x.y, y.y}, {x.z, y.z, x.w, y.w}};
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int n = 0; n < kScoreTiles; ++n) {
          const uint4 b = shared_.queries[(n * kSteps + 2 * c + half) * 32 + lane_];
          Elements::multiply(sums[n][0], a[half], b.x, b.y);
          Elements::multiply(sums[n][1], a[half], b.z, b.w);
        }
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int i = row + 8 * half;
      float known = log2f(shared_.ratios[i]);
      if (step_.in.bias && i < rows) {
        const int key = mixture_.drawn[shared_.first[i]].key;
        known += step_.in.bias[row_ * step_.in.bias_stride + key] * kLog2E;
      }
#pragma unroll
      for (int n = 0; n < kScoreTiles; ++n) {
#pragma unroll
        for (int column = 0; column < 2; ++column) {
          const int h = n * 8 + 2 * t + column;
          const float dot = sums[n][0][2 * half + column] + sums[n][1][2 * half + column];
          const float score = shared_.score_scales[h] * dot;
          if (mixture_.budgets[h] > 0) poison_ = fmaf(score, 0.0f, poison_);
          shared_.weights[h][i] = score + known;
        }
      }
    }
  }

  // Replaces weights by their exponentials relative to the head's largest so far, and adds them to
  // the head's sum. padded: rows, up to whole tiles.
  __device__ void exponentials(int padded) {
    for (int h = warp_; h < kHeads; h += kPartWarps) {
      float* weights = shared_.weights[h];
      const float before = shared_.tops[h];
      float top = before;
      for (int i = lane_; i < padded; i += 32) top = fmaxf(top, weights[i]);
      for (int i = 16; i > 0; i /= 2) top = fmaxf(top, __shfl_xor_sync(kAll, top, i));
      float sum = 0;
      for (int i = lane_; i < padded; i += 32) sum += weights[i] = power2(weights[i] - top);
      for (int i = 16; i > 0; i /= 2) sum += __shfl_xor_sync(kAll, sum, i);
      __syncwarp();  // all lanes have read the head's top
      if (lane_ != 0) continue;
      const float factor = power2(before - top);
      shared_.tops[h] = top;
      shared_.factors[h] = factor;
      shared_.sums[h] = fmaf(shared_.sums[h], factor, sum);
    }
  }

  // ---- Values

  // Adds weighted values of 16 rows for all heads: A has the weights, a head a row, and B the
  // values, a row of the cache a row. Column n of product 8 c + i is channel 64 c + 8 n + i, so
  // that a lane loads values in vectors of eight channels.
  __device__ void addTile(int tile, float (&out)[kDim / 8][4]) const {
    const int g = lane_ / 4, t = lane_ % 4, row = tile * 16 + 2 * t;
    uint4 values[4][kValueChunks];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t entry = shared_.entries[row + i % 2 + i / 2 * 8];
#pragma unroll
      for (int c = 0; c < kValueChunks; ++c) {
        values[i][c] = load(step_.cache.values, entry, 64 * c + 8 * g);
      }
    }
    // Up to eight heads: rows g + 8 of A have the second terms. More: a product a term.
    uint32_t a[kWide ? 2 : 1][4];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float* low = &shared_.weights[g][row + 8 * half];
      const uint32_t x = twoTerms<T>(low[0]), y = twoTerms<T>(low[1]);
      a[0][2 * half] = lowHalves(x, y);
      if constexpr (kWide) {
        const float* high = &shared_.weights[g + 8][row + 8 * half];
        const uint32_t z = twoTerms<T>(high[0]), w = twoTerms<T>(high[1]);
        a[0][2 * half + 1] = lowHalves(z, w);
        a[1][2 * half] = highHalves(x, y);
        a[1][2 * half + 1] = highHalves(z, w);
      } else {
        a[0][2 * half + 1] = highHalves(x, y);
      }
    }
#pragma unroll
    for (int c = 0; c < kValueChunks; ++c) {
      const uint32_t of[4][4] = {{values[0][c].x, values[0][c].y, values[0][c].z, values[0][c].w},
                                 {values[1][c].x, values[1][c].y, values[1][c].z, values[1][c].w},
                                 {values[2][c].x, values[2][c].y, values[2][c].z, values[2][c].w},
                                 {values[3][c].x, values[3][c].y, values[3][c].z, values[3][c].w}};
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const int word = i / 2;
        const uint32_t b0 =
            i % 2 ? highHalves(of[0][word], of[1][word]) : lowHalves(of[0][word], of[1][word]);
        const uint32_t b1 =
            i % 2 ? highHalves(of[2][word], of[3][word]) : lowHalves(of[2][word], of[3][word]);
#pragma unroll
        for (int term = 0; term < (kWide ? 2 : 1); ++term) {
          Elements::multiply(out[8 * c + i], a[term], b0, b1);
        }
      }
    }
  }

  // Adds the warp's rows of a round to its sums.
  __device__ void addTiles(int tiles, bool first_round) {
    float out[kDim / 8][4] = {};
    for (int tile = warp_; tile < tiles; tile += kPartWarps) addTile(tile, out);
    const float low = shared_.factors[lane_ / 4];
    const float high = kWide ? shared_.factors[kHeads - 8 + lane_ / 4] : low;
#pragma unroll
    for (int i = 0; i < kDim / 8; ++i) {
#pragma unroll
      for (int c = 0; c < Shared::kRows; ++c) {
        float& sum = shared_.out[warp_][Shared::kRows * i + c][lane_];
        const float own = kWide ? out[i][c] : out[i][c] + out[i][c + 2];
        sum = first_round ? own : fmaf(sum, c < 2 ? low : high, own);
      }
    }
  }

  // ---- A round, and the end

  // Adds the rows of draws first .. first + count - 1 to the heads' sums.
  __device__ void addRows(uint32_t first, int count, bool first_round) {
    int own;
    const int key = tid_ < count ? mixture_.drawn[tid_].key : 0;
    const bool new_row = tid_ < count && (tid_ == 0 || mixture_.drawn[tid_ - 1].key != key);
    const int rows = this->listFirsts(new_row, count, shared_.first, &own);
    const int tiles = (rows + 15) / 16;
    const int draw = tid_ < rows ? shared_.first[tid_] : 0;
    const auto times = static_cast<float>(shared_.first[min(tid_ + 1, rows)] - draw);
    shared_.entries[tid_] = mixture_.drawn[draw].entry;  // of any row beyond `rows`
    shared_.ratios[tid_] = tid_ < rows ? times * mixture_.drawn[draw].inverse : 0;
    __syncthreads();
    if constexpr (kRescores) {
      for (int tile = warp_ + kPartWarps; tile < tiles; tile += kPartWarps) {
        bringToL2(step_.cache.keys, tile);
      }
      for (int tile = warp_; tile < tiles; tile += kPartWarps) {
        bringToL2(step_.cache.values, tile);
      }
      for (int tile = warp_; tile < tiles; tile += kPartWarps) scoreTile(tile, rows);
    } else {
      for (int tile = warp_; tile < tiles; tile += kPartWarps) {
        bringToL2(step_.cache.values, tile);
      }
      weighRows(rows);
    }
    __syncthreads();
    if (step_.space.draw_keys && tid_ < count) listDraw(first + tid_, key, own);
    __syncthreads();
    exponentials(16 * tiles);
    __syncthreads();
    addTiles(tiles, first_round);
  }

  // Lists a draw for the heads that have it, with log2 of its weight.
  __device__ void listDraw(uint32_t m, int key, int row) const {
    const auto times = static_cast<float>(shared_.first[row + 1] - shared_.first[row]);
    for (int h = 0; h < group_; ++h) {
      if (!(mixture_.inverses[h] > 0)) continue;
      const int64_t at = headIndex(h) * step_.space.draw_stride + m;
      step_.space.draw_keys[at] = key;
      step_.space.draw_weights[at] = shared_.weights[h][row] - log2f(times);
    }
  }

  // Lists -1 for the draws that masked heads would have made, and for those of masked heads.
  __device__ void listNothing() const {
    if (!step_.space.draw_keys) return;
    for (uint64_t m = begin_ + tid_; m < end_; m += kPartThreads) {
      for (int h = 0; h < group_; ++h) {
        if (mixture_.budgets[h] == 0 || (m < draws_ && mixture_.inverses[h] > 0)) continue;
        step_.space.draw_keys[headIndex(h) * step_.space.draw_stride + static_cast<int64_t>(m)] =
            -1;
      }
    }
  }

  // Stores the part's sums, those of warps added in order. A lane has eight neighbouring channels.
  __device__ void storePart() {
    __syncthreads();
    for (int part = warp_; part < kValueChunks * Shared::kRows; part += kPartWarps) {
      const int chunk = part / Shared::kRows, row = part % Shared::kRows;
      const int h = lane_ / 4 + row / 2 * 8;
      float sums[8];
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const int number = Shared::kRows * (8 * chunk + i) + row;
        sums[i] = shared_.out[0][number][lane_];
#pragma unroll
        for (int w = 1; w < kPartWarps; ++w) sums[i] += shared_.out[w][number][lane_];
      }
      if (h >= group_ || mixture_.budgets[h] == 0) continue;
      const int64_t at = headIndex(h) * step_.space.part_stride + part_;
      const int channel = 64 * chunk + 8 * (lane_ % 4 * 2 + row % 2);
      auto* to = reinterpret_cast<float4*>(step_.space.part_values + at * kDim + channel);
      to[0] = {sums[0], sums[1], sums[2], sums[3]};
      to[1] = {sums[4], sums[5], sums[6], sums[7]};
    }
    if (tid_ < group_ && mixture_.budgets[tid_] > 0) {
      const int64_t at = headIndex(tid_) * step_.space.part_stride + part_;
      step_.space.parts[at] = {shared_.tops[tid_], shared_.sums[tid_]};
    }
  }

  Shared& shared_;
  float poison_ = 0;  // NaN once a score was not finite
};

template <int kDim, typename T, bool kRescores, bool kWide>
__global__ void __launch_bounds__(kPartThreads, kWide ? 3 : 4)
    groupPartKernel(const __grid_constant__ Step step) {
  extern __shared__ __align__(16) uint8_t memory[];  // PartShared, and masses
  GroupPartBlock<kDim, T, kRescores, kWide> part(step, memory);
  waitForKernelBefore();
  letNextKernelIn();
  part.run();
}

// A query head: the sum of its parts, or what heads that do not draw give.
template <int kDim, typename T>
class GroupHead : HeadSplits<kDim, T, true, kPartDraws> {
  using Base = HeadSplits<kDim, T, true, kPartDraws>;
  using Base::step_, Base::tid_;

 public:
  __device__ GroupHead(const Step& step, HeadShared<kDim>& shared, uint8_t* memory)
      : Base(step, shared, memory) {}

  __device__ void run() {
    if (this->plain()) return;
    const SharedHead head = step_.space.shared_heads[this->headIndex()];
    const int64_t first = this->headIndex() * step_.space.part_stride;
    const GroupPart* parts = step_.space.parts + first;
    const auto count = static_cast<int>(head.parts);
    const auto draws = static_cast<float>(head.draws);
    float top = kNoKeys;
#pragma unroll 4
    for (int i = 0; i < count; ++i) top = fmaxf(top, parts[i].top);
    float sum = 0, value = 0;
#pragma unroll 4
    for (int i = 0; i < count; ++i) {
      const float factor = power2(parts[i].top - top);
      sum = fmaf(factor, parts[i].sum, sum);
      if (tid_ >= kDim) continue;
      value = fmaf(factor, step_.space.part_values[(first + i) * kDim + tid_], value);
    }
    // The sum is 0 if the head is masked, or attends to no drawn row.
    const bool any = sum > 0;
    float factor = 0;
    if (any) factor = step_.how.exact_weights ? power2(top) / draws : 1.0f / sum;
    for (uint32_t m = tid_; step_.space.draw_keys && m < head.draws; m += kPartDraws) {
      float& weight = step_.space.draw_weights[this->listAt() + m];
      weight = power2(weight - top) * factor;
    }
    if (step_.how.mode == SplitMode::kShadow) {
      this->setLse(any ? (top + log2f(sum / draws)) * kLn2 : minusInfinity());
    } else {
      this->setLse(head.exponentials > 0 ? (head.max_score + log2f(head.exponentials)) * kLn2
                                         : minusInfinity());
    }
    // NaN scores were reported, and their row must not look like a number.
    const float out = head.exponentials == head.exponentials ? value * factor : notANumber();
    if (tid_ < kDim) this->put(tid_, out);
  }
};

template <int kDim, typename T>
__global__ void __launch_bounds__(kPartDraws) groupHeadKernel(const __grid_constant__ Step step) {
  extern __shared__ __align__(16) uint8_t memory[];  // (max_splits + 1) * 8 bytes
  __shared__ HeadShared<kDim> shared;
  GroupHead<kDim, T> head(step, shared, memory);
  waitForKernelBefore();
  head.run();
}

}  // namespace allot::kernels::cuda
