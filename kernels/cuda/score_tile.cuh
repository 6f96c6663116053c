#pragma once
// Exact scores of a split's keys for a head group (ScoreTile), and sums of values (ValueSum).
// Device code.
//
// Products are of 16 keys at a time (m16n8k16). Keys are the rows of A, as they lie in memory.
// Queries are the columns of B, each as two terms: the query rounded to the cache's element, and
// the rest.
// - Head group of 4: columns 2h and 2h + 1 are head h's two terms. Lane 4g + t holds both halves of
//   head t's scores for keys g and g + 8, in float32.
// - Head group of 8: column h is head h, and each term is a product of its own. Lane 4g + t holds
//   scores of heads 2t and 2t + 1. A head group of 16 is two of 8.
// Values are the rows of A transposed, and probabilities go into B as two terms, too.
#include "kernels/cuda/key_pipe.cuh"

namespace allot::kernels::cuda {

template <typename X>
__device__ X overKeys(X x) {  // the sum over the lanes of one head
  x += __shfl_xor_sync(kAll, x, 4);
  x += __shfl_xor_sync(kAll, x, 8);
  return x + __shfl_xor_sync(kAll, x, 16);
}
__device__ inline float largestOverKeys(float x) {
  x = fmaxf(x, __shfl_xor_sync(kAll, x, 4));
  x = fmaxf(x, __shfl_xor_sync(kAll, x, 8));
  return fmaxf(x, __shfl_xor_sync(kAll, x, 16));
}

template <int kDim, int kHeadGroup>
__device__ const float* queryOf(const Step& step, const Work& work, int i) {
  const int64_t query =
      static_cast<int64_t>(work.row) * step.in.heads + headOf<kHeadGroup>(step, work, i);
  return step.in.queries + query * kDim;
}

// Checks that scores are finite. Scores are in powers of two.
class ScoreGuard {
 public:
  __device__ void see(float score) { poison_ = fmaf(score, 0.0f, poison_); }

  // Returns the score of key j of the work with mask and bias. Scores of absent heads are not used.
  __device__ float finished(const Step& step, const Work& work, float score, int j) {
    if (j >= work.count || j < work.dead) return minusInfinity();
    see(score);
    if (step.in.bias) {
      score = fmaf(step.in.bias[work.row * step.in.bias_stride + work.first + j], kLog2E, score);
      // -infinity masks a key.
      if (!(score <= kLargest)) poison_ = notANumber();
    }
    return score;
  }

  // Reports a score that was not finite: 0 times such a score is not a number.
  __device__ void tell(const Step& step, const Work& work, int lane) {
    if (__any_sync(kAll, poison_ != 0) && lane == 0) {
      report(step, Wrong::kScore, work.row, work.kv_head);
    }
    poison_ = 0;
  }

 private:
  float poison_ = 0;  // not a number once a score was not finite
};

// A head group's scores of a split in a warp's scratch.
template <int kHeadGroup>
struct ScoreScratch {
  using Layout = ScoreLayout<kSplitKeys, kHeadGroup>;
  uint8_t* memory;
  __device__ float* of(int head) const {
    return reinterpret_cast<float*>(memory + head * Layout::kLineBytes);
  }
  // One word after the first line's scores.
  static_assert(Layout::kLineBytes >= (kSplitKeys + 1) * static_cast<int>(sizeof(float)));
  __device__ int& note() const { return *reinterpret_cast<int*>(of(0) + kSplitKeys); }
};

template <int kDim, typename T, int kHeadGroup>
class ScoreTile {
  static constexpr int kSteps = kDim / 16;
  using HeadGroup = HeadGroupLayout<kHeadGroup>;
  static constexpr int kOfLane = HeadGroup::kOfLane;
  static constexpr int kQueryTerms =
      kHeadGroup == kSmallHeadGroup ? 1 : 2;  // products for the terms of a query
  using Elements = ElementOf<T>;
  using Tile = TileLayout<kDim>;

 public:
  __device__ ScoreTile(const Step& step, const Lane& lane)
      : step_(step), lane_(lane), lane_key_(Tile::keysOf(lane.id)) {}

  // Loads B, the queries; `name` tells if they are loaded already.
  __device__ void take(const Work& work, int name) {
    if (name == queries_of_) return;
    queries_of_ = name;
#pragma unroll
    for (int tile = 0; tile < HeadGroup::kTiles; ++tile) takeColumns(work, tile);
  }

  // Computes the scores of 16 keys, at `keys` in shared memory, for the lane's heads: [0] of key g,
  // [1] of key g + 8.
  __device__ void scores(const Work& work, int tile, uint32_t keys, ScoreGuard& guard,
                         float (&scores)[kOfLane][2]) const {
    // Two independent sums, of even and odd steps of 16 channels or of the two terms, hide latency.
    float sums[HeadGroup::kTiles][2][4] = {};
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
      uint32_t a[4];
      loadMatrices(a, Tile::along(keys + lane_key_, 2 * k));
#pragma unroll
      for (int term = 0; term < kQueryTerms; ++term) {
#pragma unroll
        for (int n = 0; n < HeadGroup::kTiles; ++n) {
          const auto& b = query_[n][term][k];
          Elements::multiply(sums[n][kHeadGroup == kSmallHeadGroup ? k % 2 : term], a, b[0], b[1]);
        }
      }
    }
    const int key = tile * kSubtileKeys;
    const bool whole = !step_.in.bias && key + kSubtileKeys <= work.count && key >= work.dead;
#pragma unroll
    for (int i = 0; i < kOfLane; ++i) {
      const auto& two = sums[i / 2];
      if constexpr (kHeadGroup == kSmallHeadGroup) {
        scores[i][0] = scale_[i] * ((two[0][0] + two[1][0]) + (two[0][1] + two[1][1]));
        scores[i][1] = scale_[i] * ((two[0][2] + two[1][2]) + (two[0][3] + two[1][3]));
      } else {
        scores[i][0] = scale_[i] * (two[0][i % 2] + two[1][i % 2]);
        scores[i][1] = scale_[i] * (two[0][2 + i % 2] + two[1][2 + i % 2]);
      }
      if (whole) {
        guard.see(scores[i][0]);
        guard.see(scores[i][1]);
      } else {
        scores[i][0] = guard.finished(step_, work, scores[i][0], key + lane_.g);
        scores[i][1] = guard.finished(step_, work, scores[i][1], key + lane_.g + 8);
      }
    }
  }

  // Writes the scores of a split to scratch, and the largest of this lane's to `top`.
  template <SplitMode kMode, bool kByHead>
  __device__ void ofSplit(const Work& work, const WarpShare<kMode, kByHead, kHeadGroup>& share,
                          KeyPipe<kDim, kMode, kByHead, kHeadGroup>& pipe, ScoreGuard& guard,
                          const ScoreScratch<kHeadGroup>& scratch, float (&top)[kOfLane]) {
    take(work, share.queriesOf(work));
    float* to[kOfLane];
#pragma unroll
    for (int i = 0; i < kOfLane; ++i) {
      top[i] = minusInfinity();
      to[i] = scratch.of(HeadGroup::head(lane_.t, i)) + lane_.g;
    }
    const auto leave = [&](int tile, int i, float first, float second) {
      to[i][tile * kSubtileKeys] = first;
      to[i][tile * kSubtileKeys + 8] = second;
    };
    const int dead = work.dead / kSubtileKeys,
              tiles = (work.count + kSubtileKeys - 1) / kSubtileKeys;
    for (int tile = 0; tile < dead; ++tile) {
      for (int i = 0; i < kOfLane; ++i) leave(tile, i, minusInfinity(), minusInfinity());
    }
#pragma unroll 1
    for (int tile = dead; tile < tiles; ++tile) {
      float two[kOfLane][2];
      scores(work, tile, pipe.await(), guard, two);
      pipe.release(share);
#pragma unroll
      for (int i = 0; i < kOfLane; ++i) {
        top[i] = fmaxf(top[i], fmaxf(two[i][0], two[i][1]));
        leave(tile, i, two[i][0], two[i][1]);
      }
    }
    for (int tile = tiles; tile < kSubtiles; ++tile) {
      for (int i = 0; i < kOfLane; ++i) leave(tile, i, minusInfinity(), minusInfinity());
    }
  }

 private:
  // Loads eight columns of B.
  __device__ void takeColumns(const Work& work, int tile) {
    const int g = lane_.g, t = lane_.t;
    const int head = kHeadGroup == kSmallHeadGroup ? g / 2 : tile * 8 + g;
    const bool there = hasHead<kHeadGroup>(step_, work, head);
    const float* query = queryOf<kDim, kHeadGroup>(step_, work, there ? head : 0);
    int exponent = 0;
    if constexpr (Elements::kScalesQueries) {
      float largest = 0;
      for (int i = t; i < kDim; i += 4) largest = fmaxf(largest, fabsf(query[i]));
      largest = fmaxf(largest, __shfl_xor_sync(kAll, largest, 1));
      largest = fmaxf(largest, __shfl_xor_sync(kAll, largest, 2));
      exponent = largest > 0 && isNumber(largest) ? ilogbf(largest) : 0;
    }
    // Two neighbours, a term of each in one word.
    const auto setTerms = [&](const float2& two, int word, int k) {
      const uint32_t x = twoTerms<T>(there ? scalbnf(two.x, -exponent) : 0.0f);
      const uint32_t y = twoTerms<T>(there ? scalbnf(two.y, -exponent) : 0.0f);
      const uint32_t first = (x & 0xffff) | y << 16, second = x >> 16 | (y & 0xffff0000u);
      if constexpr (kHeadGroup == kSmallHeadGroup) {
        query_[tile][0][k][word] = g % 2 ? second : first;
      } else {
        query_[tile][0][k][word] = first;
        query_[tile][1][k][word] = second;
      }
    };
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
      setTerms(*reinterpret_cast<const float2*>(query + 16 * k + 2 * t), 0, k);
      setTerms(*reinterpret_cast<const float2*>(query + 16 * k + 2 * t + 8), 1, k);
    }
#pragma unroll
    for (int i = 0; i < kOfLane / HeadGroup::kTiles; ++i) {
      const int of_column = __shfl_sync(kAll, exponent, HeadGroup::columnLane(t, i));
      scale_[tile * 2 + i] = scalbnf(step_.in.scale * kLog2E, of_column);
    }
  }

  const Step& step_;
  Lane lane_;
  uint32_t lane_key_;
  int queries_of_ = -1;
  uint32_t query_[HeadGroup::kTiles][kQueryTerms][kSteps][2];
  float scale_[kOfLane];
};

// The sums V^T p of a split. Lane 4 g + t has channels 16 m + g and 16 m + 8 + g of its heads, as
// two terms in a head group of 4.
template <int kDim, typename T, int kHeadGroup>
struct ValueSum {
  static constexpr int kSteps = kDim / 16;
  using HeadGroup = HeadGroupLayout<kHeadGroup>;
  static constexpr int kOfLane = HeadGroup::kOfLane;
  static constexpr int kProducts =
      kHeadGroup == kSmallHeadGroup ? 1 : kHeadGroup / 4;  // [tile][term]
  using Tile = TileLayout<kDim>;

  // Makes B from the lane's probabilities, [0] of key g and [1] of key g + 8.
  __device__ static void columns(const float (&p)[kOfLane][2], uint32_t (&b)[kProducts][2]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if constexpr (kHeadGroup == kSmallHeadGroup) {
        b[0][half] = transpose(twoTerms<T>(p[0][half]));
      } else {
#pragma unroll
        for (int n = 0; n < HeadGroup::kTiles; ++n) {
          const uint32_t x = twoTerms<T>(p[2 * n][half]), y = twoTerms<T>(p[2 * n + 1][half]);
          b[2 * n][half] = transpose((x & 0xffff) | y << 16);
          b[2 * n + 1][half] = transpose(x >> 16 | (y & 0xffff0000u));
        }
      }
    }
  }

  // Adds 16 values. `values` is the sum of the tile's address and Tile::valuesOf().
  __device__ void add(uint32_t values, const uint32_t (&b)[kProducts][2]) {
#pragma unroll
    for (int m = 0; m < kSteps; ++m) {
      uint32_t a[4];
      loadTransposed(a, Tile::along(values, 2 * m));
#pragma unroll
      for (int term = 0; term < kProducts / HeadGroup::kTiles; ++term) {
#pragma unroll
        for (int n = 0; n < HeadGroup::kTiles; ++n) {
          const auto& columns = b[n * (kProducts / HeadGroup::kTiles) + term];
          ElementOf<T>::multiply(total[n][m], a, columns[0], columns[1]);
        }
      }
    }
  }

  __device__ void scale(const float (&factor)[kOfLane]) {
#pragma unroll
    for (int m = 0; m < kSteps; ++m) {
#pragma unroll
      for (int n = 0; n < HeadGroup::kTiles; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i)
          total[n][m][i] *= factor[kHeadGroup == kSmallHeadGroup ? 0 : 2 * n + i % 2];
      }
    }
  }

  // Return or set channel 8 k + g of the lane's head i.
  __device__ float at(int i, int k) const {
    const auto& four = total[i / 2][k / 2];
    const int half = k % 2 * 2;
    return kHeadGroup == kSmallHeadGroup ? four[half] + four[half + 1] : four[half + i % 2];
  }
  __device__ void set(int i, int k, float x) {
    auto& four = total[i / 2][k / 2];
    const int half = k % 2 * 2;
    four[half + i % 2] = x;
    if (kHeadGroup == kSmallHeadGroup) four[half + 1] = 0;
  }

  template <typename AnyWork>
  __device__ void store(const Step& step, const AnyWork& work, const Lane& lane,
                        float factor) const {
#pragma unroll
    for (int i = 0; i < kOfLane; ++i) {
      const int head = HeadGroup::head(lane.t, i);
      if (!isFor<kHeadGroup>(step, work, head)) continue;
      const int64_t split =
          splitIndex(step, work.row, headOf<kHeadGroup>(step, work, head), work.split);
      float* to = reinterpret_cast<float*>(step.space.split_bytes + split * kSplitBytes);
#pragma unroll
      for (int k = 0; k < 2 * kSteps; ++k) storeKept(to + 8 * k + lane.g, at(i, k) * factor);
    }
  }

  float total[HeadGroup::kTiles][kSteps][4] = {};
};

}  // namespace allot::kernels::cuda
