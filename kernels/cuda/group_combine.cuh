#pragma once
// The kernels in the combine kernel's place if the query heads of a KV head share their draws
// (draws=group). docs/shared-draws.md has the bounds. Device code.
//
// groupPartKernel has one block a row, KV head and part of the group's draws (drawsOfPart()). It
// goes round by round of kPartDraws draws:
//   1. the draws (group_mixture.cuh);
//   2. distinct rows, whose values are copied to shared memory meanwhile;
//   3. their weights for all heads: from the split kernel's weights, or from exact scores (tensor
//      cores, a warp 16 rows) if a shadow proposes;
//   4. the sums of weighted values for all heads (tensor cores, an eighth of the channels a warp).
// In a round a key or value is read once for the group. groupHeadKernel has a block a query head,
// which adds up its parts in order.
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
  float ratios[kPartDraws];  // 1 / p_j; 0: no row
  alignas(16) float weights[kHeads][kPartDraws + 4];
  // The weights' first and second terms, those of rows 2 i and 2 i + 1 in word i.
  alignas(8) uint32_t terms[2][kHeads][kPartDraws / 2 + 4];
  alignas(16) uint16_t values[kPartDraws][kDim + 8];
  // Scratch.
  alignas(16) uint4 queries[(kWide ? 2 : 1) * kSteps * 32];  // B of the scores: two terms of a lane
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
  static constexpr int kScoreTiles = kHeads / 8;          // products of eight heads
  static constexpr int kOwnChannels = kDim / kPartWarps;  // of the sums that a warp has
  static constexpr int kValueTiles = kOwnChannels / 8;

 public:
  __device__ GroupPartBlock(const Step& step, uint8_t* memory)
      : Base(step, reinterpret_cast<Shared*>(memory)->mixture, memory + sizeof(Shared)),
        shared_(*reinterpret_cast<Shared*>(memory)) {}

  // Reads inputs of the step alone, while the split kernel still runs.
  __device__ void prepare() {
    if (begin_ >= planned_) return;
    this->takeNumber(static_cast<uint32_t>(begin_));
    if constexpr (kRescores) takeQueries();
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
    const auto end = static_cast<uint32_t>(min(end_, draws_));
#pragma unroll 1
    for (auto first = static_cast<uint32_t>(begin_); first < end; first += kPartDraws) {
      this->forgetPlaces();
      const auto count = static_cast<int>(min(end - first, static_cast<uint32_t>(kPartDraws)));
      if (first != begin_) this->takeNumber(first);
      this->draw(first, count);
      addRows(first, count, first == begin_);
    }
    if (__any_sync(kAll, poison_ != 0) && lane_ == 0) {
      report(step_, Wrong::kScore, row_, kv_head_);
    }
    storePart();
  }

 protected:  // of group_choice.cuh, too
  // ---- Weights. They are in powers of two until exponentials().

  // Returns x times what a float16 weight of 1 is in the unit of W_h, for a split `gap` below the
  // largest.
  // Requires: the result is 0 or a normal number.
  __device__ static float scaled(float x, int gap) {
    return gap < kLostGap ? x * __int_as_float((127 + 24 + kKept - gap) << 23) : 0.0f;
  }

  // Calls body(h) for each of the heads that the thread has with the row tid_ % kPartDraws.
  template <typename Body>
  __device__ void forOwnHeads(Body body) const {
    constexpr int kThreads = kPartThreads / kPartDraws;  // of a row
#pragma unroll
    for (int i = 0; i < kHeads / kThreads; ++i) body(i, tid_ / kPartDraws + i * kThreads);
  }

  // Returns c_j / p_j of a row.
  __device__ float ratioOf(int row) const {
    return static_cast<float>(shared_.first[row + 1] - shared_.first[row]) * shared_.ratios[row];
  }

  // Computes c_j a_hj / p_j from the split kernel's weights.
  __device__ void weighRows(int rows) {
    const int row = tid_ % kPartDraws;
    const bool there = row < rows;
    const int place = there ? mixture_.drawn[shared_.first[row]].key - keys_.base : 0;
    const int piece = place / kPieceKeys, key = place % kPieceKeys;
    const float ratio = there ? ratioOf(row) : 0;
    __half weights[kHeads];
    forOwnHeads([&](int i, int h) {  // of no meaning if the head does not draw
      const int64_t at = splitAt(min(h, group_ - 1), piece);
      weights[i] = reinterpret_cast<const __half*>(step_.space.split_bytes + at * kSplitBytes)[key];
    });
    forOwnHeads([&](int i, int h) {
      float weight = 0;
      if (there && mixture_.factors[h] > 0) {
        weight = ratio * (scaled(mixture_.inverses[h], this->gaps_[piece].of[h]) *
                          __half2float(weights[i]));
      }
      shared_.weights[h][row] = log2f(weight);
    });
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

  // Starts to copy the values of the rows of `tiles` tiles to shared memory.
  __device__ void copyValues(int tiles) {
    constexpr int kVectors = kDim / 8, kRows = kPartThreads / kVectors;
    const int first = tid_ / kVectors, channel = tid_ % kVectors * 8;
    const T* const values = static_cast<const T*>(step_.cache.values) + channel;
    const uint32_t to = sharedAddress(&shared_.values[first][channel]);
#pragma unroll 4
    for (int row = 0; row < tiles * 16; row += kRows) {
      if (kRows > 16 && first + row >= tiles * 16) break;
      copyAsync(to + row * static_cast<int>(sizeof shared_.values[0]),
                values + static_cast<int64_t>(shared_.entries[first + row]) * kDim);
    }
    commitCopies();
  }

  // Computes c_j exp(s_hj) / p_j of 16 rows from their exact keys. A warp calls it together.
  __device__ void scoreTile(int tile, int rows) {
    const int g = lane_ / 4, t = lane_ % 4, row = tile * 16 + g;
    uint4 keys[2][kDim / 32];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const T* const key = static_cast<const T*>(step_.cache.keys) +
                           static_cast<int64_t>(shared_.entries[row + 8 * half]) * kDim + 8 * t;
#pragma unroll
      for (int c = 0; c < kDim / 32; ++c) {
        keys[half][c] = *reinterpret_cast<const uint4*>(key + 32 * c);
      }
    }
    __syncwarp();  // the loads before it are all in flight at once
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
      float known = i < rows ? log2f(ratioOf(i)) : minusInfinity();
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

  // Replaces weights by their exponentials relative to the head's largest so far, adds them to the
  // head's sum, and rounds them to two terms. padded: rows, up to whole tiles.
  __device__ void exponentials(int padded) {
    static_assert(kPartDraws == 4 * 32);  // a lane has four rows
    const bool there = 4 * lane_ < padded;
    for (int h = warp_; h < kHeads; h += kPartWarps) {
      auto* const four = reinterpret_cast<float4*>(shared_.weights[h]) + lane_;
      const float none = minusInfinity();
      float4 weights{none, none, none, none};
      if (there) weights = *four;
      const float before = shared_.tops[h];
      float top = fmaxf(fmaxf(weights.x, weights.y), fmaxf(weights.z, weights.w));
      top = fmaxf(top, before);
      for (int i = 16; i > 0; i /= 2) top = fmaxf(top, __shfl_xor_sync(kAll, top, i));
      weights = {power2(weights.x - top), power2(weights.y - top), power2(weights.z - top),
                 power2(weights.w - top)};
      float sum = there ? weights.x + weights.y + (weights.z + weights.w) : 0;
      if (there) {
        *four = weights;
        const uint32_t x = twoTerms<T>(weights.x), y = twoTerms<T>(weights.y);
        const uint32_t z = twoTerms<T>(weights.z), w = twoTerms<T>(weights.w);
        auto* const first = shared_.terms[0][h] + 2 * lane_;
        auto* const second = shared_.terms[1][h] + 2 * lane_;
        *reinterpret_cast<uint2*>(first) = {lowHalves(x, y), lowHalves(z, w)};
        *reinterpret_cast<uint2*>(second) = {highHalves(x, y), highHalves(z, w)};
      }
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

  // Adds weighted values of the round's rows for all heads to the warp's sums, 16 rows at a time:
  // A has the weights, a head a row, and B the values.
  __device__ void addTiles(int tiles, bool first_round) {
    if (!first_round) {
      const float low = shared_.factors[lane_ / 4];
      const float high = kWide ? shared_.factors[kHeads - 8 + lane_ / 4] : low;
#pragma unroll
      for (int n = 0; n < kValueTiles; ++n) {
        sums_[n][0] *= low;
        sums_[n][1] *= low;
        sums_[n][2] *= high;
        sums_[n][3] *= high;
      }
    }
    // Four matrices of 8 rows by 8 channels: two tiles of rows if the warp has eight channels.
    constexpr int kTogether = 2 / kValueTiles;
    const int row = kTogether == 2 ? lane_ : lane_ % 16;
    const int channel = warp_ * kOwnChannels + (kTogether == 2 ? 0 : lane_ / 16 * 8);
    const uint32_t from = sharedAddress(&shared_.values[row][channel]);
#pragma unroll 2
    for (int tile = 0; tile < tiles; tile += kTogether) {
      uint32_t b[4];
      loadTransposed(b, from + tile * 16 * static_cast<int>(sizeof shared_.values[0]));
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        if (tile + i < tiles) addTile(tile + i, b + (kTogether == 2 ? 2 * i : 0));
      }
    }
  }

  // Adds 16 rows. b: the B of each product.
  __device__ void addTile(int tile, const uint32_t* b) {
    const int word = tile * 8 + lane_ % 4;
    const uint32_t* low = &shared_.terms[0][lane_ / 4][word];
    const uint32_t* second = &shared_.terms[1][lane_ / 4][word];
    // Up to eight heads: rows g + 8 of A have the second terms. More: a product a term.
    if constexpr (kWide) {
      const uint32_t* high = &shared_.terms[0][lane_ / 4 + 8][word];
      const uint32_t* second_high = &shared_.terms[1][lane_ / 4 + 8][word];
      const uint32_t a[2][4] = {{low[0], high[0], low[4], high[4]},
                                {second[0], second_high[0], second[4], second_high[4]}};
#pragma unroll
      for (int n = 0; n < kValueTiles; ++n) {
        Elements::multiply(sums_[n], a[0], b[2 * n], b[2 * n + 1]);
        Elements::multiply(sums_[n], a[1], b[2 * n], b[2 * n + 1]);
      }
    } else {
      const uint32_t a[4] = {low[0], second[0], low[4], second[4]};
#pragma unroll
      for (int n = 0; n < kValueTiles; ++n) {
        Elements::multiply(sums_[n], a, b[2 * n], b[2 * n + 1]);
      }
    }
  }

  // ---- A round, and the end

  // Adds the rows of draws first .. first + count - 1 to the heads' sums.
  __device__ void addRows(uint32_t first, int count, bool first_round) {
    const SharedDraw drawn = mixture_.drawn[min(tid_, count - 1)];
    const bool new_row = tid_ < count && (tid_ == 0 || mixture_.drawn[tid_ - 1].key != drawn.key);
    int own;
    const int rows = this->countFlags(new_row, &own);
    const int tiles = (rows + 15) / 16;
    if (new_row) {
      shared_.first[own] = tid_;
      shared_.entries[own] = drawn.entry;
      shared_.ratios[own] = this->inverseShare(drawn.mass);
    }
    if (tid_ == 0) shared_.first[rows] = count;
    // Rows that fill up the last tile have weight 0.
    if (tid_ >= rows && tid_ < 16 * tiles) shared_.entries[tid_] = mixture_.drawn[0].entry;
    __syncthreads();
    copyValues(tiles);
    if constexpr (kRescores) {
      for (int tile = warp_; tile < tiles; tile += kPartWarps) scoreTile(tile, rows);
    } else {
      weighRows(rows);
    }
    __syncthreads();
    if (step_.space.draw_keys) {
      if (tid_ < count) listDraw(first + tid_, drawn.key, own);
      __syncthreads();
    }
    exponentials(16 * tiles);
    waitCopies<0>();
    __syncthreads();
    addTiles(tiles, first_round);
  }

  // Lists a draw for the heads that have it, with log2 of its weight.
  __device__ void listDraw(uint32_t m, int key, int row) const {
    const auto times = static_cast<float>(shared_.first[row + 1] - shared_.first[row]);
    for (int h = 0; h < group_; ++h) {
      if (mixture_.factors[h] == 0) continue;
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
        if (mixture_.budgets[h] == 0 || (m < draws_ && mixture_.factors[h] > 0)) continue;
        step_.space.draw_keys[headIndex(h) * step_.space.draw_stride + static_cast<int64_t>(m)] =
            -1;
      }
    }
  }

  // Stores the part's sums.
  __device__ void storePart() {
#pragma unroll
    for (int n = 0; n < kValueTiles; ++n) {
      const int channel = warp_ * kOwnChannels + 8 * n + lane_ % 4 * 2;
      if constexpr (kWide) {
        storeChannels(lane_ / 4, channel, sums_[n][0], sums_[n][1]);
        storeChannels(lane_ / 4 + 8, channel, sums_[n][2], sums_[n][3]);
      } else {
        storeChannels(lane_ / 4, channel, sums_[n][0] + sums_[n][2], sums_[n][1] + sums_[n][3]);
      }
    }
    if (tid_ < group_ && mixture_.budgets[tid_] > 0) {
      const int64_t at = headIndex(tid_) * step_.space.part_stride + part_;
      step_.space.parts[at] = {shared_.tops[tid_], shared_.sums[tid_]};
    }
  }
  __device__ void storeChannels(int h, int channel, float x, float y) const {
    if (h >= group_ || mixture_.budgets[h] == 0) return;
    const int64_t at = headIndex(h) * step_.space.part_stride + part_;
    *reinterpret_cast<float2*>(step_.space.part_values + at * kDim + channel) = {x, y};
  }

  Shared& shared_;
  float sums_[kValueTiles][4] = {};  // of weighted values, as products leave them
  float poison_ = 0;                 // NaN once a score was not finite
};

template <int kDim, typename T, bool kRescores, bool kWide>
__global__ void __launch_bounds__(kPartThreads, 3)
    groupPartKernel(const __grid_constant__ Step step) {
  extern __shared__ __align__(16) uint8_t memory[];  // PartShared, and masses
  GroupPartBlock<kDim, T, kRescores, kWide> part(step, memory);
  part.prepare();
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
    // The first loads depend on nothing: how many parts there are is among them.
    const SharedHead head = step_.space.shared_heads[this->headIndex()];
    const int64_t first = this->headIndex() * step_.space.part_stride;
    const int last = step_.space.part_stride - 1;
    const float* values = step_.space.part_values + first * kDim + tid_ % kDim;
    constexpr int kAhead = 8;
    float ahead[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) ahead[i] = values[min(i, last) * kDim];
    static_assert(kMostParts == 64);  // a lane has two parts
    GroupPart low = step_.space.parts[first + min(this->lane_, last)];
    GroupPart high = step_.space.parts[first + min(this->lane_ + 32, last)];
    const auto count = static_cast<int>(head.parts);
    const auto draws = static_cast<float>(head.draws);
    if (this->lane_ >= count) low = {kNoKeys, 0};
    if (this->lane_ + 32 >= count) high = {kNoKeys, 0};
    float top = fmaxf(low.top, high.top);
    for (int i = 16; i > 0; i /= 2) top = fmaxf(top, __shfl_xor_sync(kAll, top, i));
    low.top = power2(low.top - top);
    high.top = power2(high.top - top);
    float sum = 0, value = 0;
    for (int begin = 0; begin < count; begin += kAhead) {
#pragma unroll
      for (int i = 0; i < kAhead && begin > 0; ++i) ahead[i] = values[min(begin + i, last) * kDim];
      const GroupPart& parts = begin < 32 ? low : high;
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const float factor = __shfl_sync(kAll, parts.top, begin + i);
        const float own = __shfl_sync(kAll, parts.sum, begin + i);
        if (begin + i >= count) continue;
        sum = fmaf(factor, own, sum);
        value = fmaf(factor, ahead[i], value);
      }
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
