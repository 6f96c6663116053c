#pragma once
// Scores of a piece's keys for up to four query heads, exact (ScoreTile) or from the keys' 4-bit
// shadow (ShadowScores), and sums of values (ValueSum).
//
// Products, for 16 keys at a time (m16n8k16): keys are the rows of A as they lie in memory;
// column 2h of B is query head h rounded to the cache's element, column 2h + 1 what the rounding
// left; so lane 4g + t holds the two halves of the scores of head t for keys g and g + 8, in
// float32. Values are the rows of A transposed, and probabilities go into B in the same two parts.
#include "kernels/cuda/key_pipe.cuh"

namespace allot::kernels::cuda {

__device__ inline float overKeys(float x) {  // the sum over lanes of one head
  x += __shfl_xor_sync(kAll, x, 4);
  x += __shfl_xor_sync(kAll, x, 8);
  return x + __shfl_xor_sync(kAll, x, 16);
}
__device__ inline float largestOverKeys(float x) {
  x = fmaxf(x, __shfl_xor_sync(kAll, x, 4));
  x = fmaxf(x, __shfl_xor_sync(kAll, x, 8));
  return fmaxf(x, __shfl_xor_sync(kAll, x, 16));
}

template <int kDim>
__device__ const float* queryOf(const Step& step, const Work& work, int in_quad) {
  const int64_t query =
      static_cast<int64_t>(work.sequence) * step.in.heads + headOf(step, work, in_quad);
  return step.in.queries + query * kDim;
}

// What scores have to be: finite. They are in powers of two.
class ScoreGuard {
 public:
  __device__ void see(float score) { poison_ = fmaf(score, 0.0f, poison_); }

  // A score of key j of the piece as it counts. Those of heads that are not there are 0, and go
  // nowhere.
  __device__ float finished(const Step& step, const Work& work, float score, int j) {
    if (j >= work.count || j < work.dead) return minusInfinity();
    see(score);
    if (step.in.bias) {
      score =
          fmaf(step.in.bias[work.sequence * step.in.bias_stride + work.first + j], kLog2E, score);
      // -infinity masks a key.
      if (!(score <= kLargest)) poison_ = notANumber();
    }
    return score;
  }

  // Reports a score that was not finite: 0 times it is not a number.
  __device__ void tell(const Step& step, const Work& work, int lane) {
    if (__any_sync(kAll, poison_ != 0) && lane == 0) {
      report(step, Wrong::kScore, work.sequence, work.kv_head);
    }
    poison_ = 0;
  }

 private:
  float poison_ = 0;  // not a number once a score was not finite
};

// Four heads' scores of a piece in a warp's scratch.
struct ScoreScratch {
  using Layout = ScoreLayout<kPieceKeys>;
  uint8_t* memory;
  __device__ float* of(int head) const {
    return reinterpret_cast<float*>(memory + head * Layout::kLineBytes);
  }
};

template <int kDim, typename T>
class ScoreTile {
  static constexpr int kSteps = kDim / 16;
  using Elements = ElementOf<T>;
  using Tile = TileLayout<kDim>;

 public:
  __device__ ScoreTile(const Step& step, const Lane& lane)
      : step_(step), lane_(lane), lane_key_(Tile::keysOf(lane.id)) {}

  // B of the products with keys; `name` says whose queries they are.
  __device__ void take(const Work& work, int name) {
    if (name == queries_of_) return;
    queries_of_ = name;
    const int g = lane_.g, t = lane_.t;
    const bool there = hasHead(step_, work, g / 2);
    const float* query = queryOf<kDim>(step_, work, there ? g / 2 : 0);
    int exponent = 0;
    if constexpr (Elements::kScalesQueries) {
      float largest = 0;
      for (int i = t; i < kDim; i += 4) largest = fmaxf(largest, fabsf(query[i]));
      largest = fmaxf(largest, __shfl_xor_sync(kAll, largest, 1));
      largest = fmaxf(largest, __shfl_xor_sync(kAll, largest, 2));
      exponent = largest > 0 && isNumber(largest) ? ilogbf(largest) : 0;
    }
    const auto part = [&](float x) {
      const uint32_t both = twoParts<T>(there ? scalbnf(x, -exponent) : 0.0f);
      return g % 2 ? both >> 16 : both & 0xffff;
    };
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
      const float2 low = *reinterpret_cast<const float2*>(query + 16 * k + 2 * t);
      const float2 high = *reinterpret_cast<const float2*>(query + 16 * k + 2 * t + 8);
      query_[k][0] = part(low.x) | part(low.y) << 16;
      query_[k][1] = part(high.x) | part(high.y) << 16;
    }
    // Of head t, whose parts are in columns 2t and 2t + 1.
    scale_ = scalbnf(step_.in.scale * kLog2E, __shfl_sync(kAll, exponent, 8 * t));
  }

  // The scores of 16 keys, at `keys` in shared memory, for head t: [0] of key g, [1] of key g + 8.
  __device__ void scores(const Work& work, int tile, uint32_t keys, ScoreGuard& guard,
                         float (&scores)[2]) const {
    float even[4] = {}, odd[4] = {};  // two sums: one would wait for itself
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
      uint32_t a[4];
      loadMatrices(a, Tile::along(keys + lane_key_, 2 * k));
      Elements::multiply(k % 2 ? odd : even, a, query_[k][0], query_[k][1]);
    }
    scores[0] = scale_ * ((even[0] + odd[0]) + (even[1] + odd[1]));
    scores[1] = scale_ * ((even[2] + odd[2]) + (even[3] + odd[3]));
    const int key = tile * kPart;
    if (!step_.in.bias && key + kPart <= work.count && key >= work.dead) {
      guard.see(scores[0]);
      guard.see(scores[1]);
    } else {
      scores[0] = guard.finished(step_, work, scores[0], key + lane_.g);
      scores[1] = guard.finished(step_, work, scores[1], key + lane_.g + 8);
    }
  }

  // Those of a whole piece to scratch; returns the largest of this lane's.
  template <Sweep kSweep, bool kByHead>
  __device__ float ofPiece(const Work& work, const WarpShare<kSweep, kByHead>& share,
                           KeyPipe<kDim, kSweep, kByHead>& pipe, ScoreGuard& guard,
                           const ScoreScratch& scratch) {
    take(work, share.queriesOf(work));
    float top = minusInfinity();
    float* to = scratch.of(lane_.t) + lane_.g;
    const int dead = work.dead / kPart, tiles = (work.count + kPart - 1) / kPart;
    for (int tile = 0; tile < dead; ++tile) {
      to[tile * kPart] = to[tile * kPart + 8] = minusInfinity();
    }
#pragma unroll 1
    for (int tile = dead; tile < tiles; ++tile) {
      float two[2];
      scores(work, tile, pipe.await(), guard, two);
      pipe.release(share);
      top = fmaxf(top, fmaxf(two[0], two[1]));
      to[tile * kPart] = two[0];
      to[tile * kPart + 8] = two[1];
    }
    for (int tile = tiles; tile < kParts; ++tile) {
      to[tile * kPart] = to[tile * kPart + 8] = minusInfinity();
    }
    return top;
  }

 private:
  const Step& step_;
  Lane lane_;
  uint32_t lane_key_;
  int queries_of_ = -1;
  uint32_t query_[kSteps][2];
  float scale_ = 0;
};

// The same from codes: queries in 8 bits, column 2h is head h.
template <int kDim>
class ShadowScores {
  using Layout = SweepLayout<kDim, Sweep::kShadow>;
  using Codes = CodeLayout<kDim>;

 public:
  __device__ ShadowScores(const Step& step, const Lane& lane) : step_(step), lane_(lane) {}

  // A piece's to scratch; returns the largest of this lane's.
  template <bool kByHead>
  __device__ float ofPiece(const Work& work, const WarpShare<Sweep::kShadow, kByHead>& share,
                           KeyPipe<kDim, Sweep::kShadow, kByHead>& pipe, ScoreGuard& guard,
                           const ScoreScratch& scratch) {
    float top = minusInfinity();
    take(work, share.queriesOf(work));
#pragma unroll 1
    for (int slot = 0; slot < kPieceKeys / 64; ++slot) {
      const int begin = slot * 64 + lane_.g / 4 * 16 + lane_.g % 4 * 4;
      float* to = scratch.of(lane_.t) + begin;
      if (slot * 64 >= work.count || slot < work.dead / 64) {
        const float none = minusInfinity();
        *reinterpret_cast<float4*>(to) =
            *reinterpret_cast<float4*>(to + 32) = {none, none, none, none};
        continue;
      }
      const bool whole = !step_.in.bias && slot * 64 + 64 <= work.count && slot * 64 >= work.dead;
      const uint32_t at = pipe.await();
      // Channels 8 (t + 4 v) .. + 7 of keys 4 (g % 4) .. + 3 of tile g / 4 of 32 keys.
      const uint32_t codes = at + Codes::readBy(lane_.g, lane_.t);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float s[4];
        fourScores(codes + half * (2 * Codes::kBytes),
                   at + Layout::Tile::kBytes + half * 128 + lane_.g * 16, s);
        if (whole) {
#pragma unroll
          for (int i = 0; i < 4; ++i) guard.see(s[i]);
        } else {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            s[i] = guard.finished(step_, work, s[i], begin + half * 32 + i);
          }
        }
        top = fmaxf(top, fmaxf(fmaxf(s[0], s[1]), fmaxf(s[2], s[3])));
        *reinterpret_cast<float4*>(to + half * 32) = {s[0], s[1], s[2], s[3]};
      }
      pipe.release(share);
    }
    return top;
  }

 private:
  __device__ void take(const Work& work, int name) {
    if (name == queries_of_) return;
    queries_of_ = name;
    const int g = lane_.g, t = lane_.t;
    const bool there = g % 2 == 0 && hasHead(step_, work, g / 2);
    const float* query = queryOf<kDim>(step_, work, there ? g / 2 : 0);
    // All of them are on their way at once; the four lanes of a head have every channel.
    float4 own[kDim / 32][2];
#pragma unroll
    for (int v = 0; v < kDim / 32; ++v) {
      const auto* from = reinterpret_cast<const float4*>(query + 8 * (t + 4 * v));
      own[v][0] = from[0];
      own[v][1] = from[1];
    }
    float largest = 0;
#pragma unroll
    for (int i = 0; i < kDim / 16; ++i) {
      const float4& four = own[i / 2][i % 2];
      largest = fmaxf(
          largest, fmaxf(fmaxf(fabsf(four.x), fabsf(four.y)), fmaxf(fabsf(four.z), fabsf(four.w))));
    }
    largest = fmaxf(largest, __shfl_xor_sync(kAll, largest, 1));
    largest = fmaxf(largest, __shfl_xor_sync(kAll, largest, 2));
    // So small that its inverse is not a number: as good as zero.
    const bool zero = !there || largest < 1e-30f;
    const float inverse = 127.0f / largest;
    int total = 0;
    const auto rounded = [&](float x, int shift) {
      const int code = zero ? 0 : static_cast<int>(rintf(x * inverse));
      total += code;
      return static_cast<uint32_t>(code & 0xff) << shift;
    };
    const auto four = [&](const float4& x) {
      return rounded(x.x, 0) | rounded(x.y, 8) | rounded(x.z, 16) | rounded(x.w, 24);
    };
#pragma unroll
    for (int v = 0; v < kDim / 32; ++v) {
      query_[v][0] = four(own[v][0]);
      query_[v][1] = four(own[v][1]);
    }
    total += __shfl_xor_sync(kAll, total, 1);
    total += __shfl_xor_sync(kAll, total, 2);
    const float factor = zero ? 0.0f : largest / 127.0f * step_.in.scale * kLog2E;
    offset_ = __shfl_sync(kAll, total, 8 * t) << 3;
    factor_ = __shfl_sync(kAll, factor, 8 * t);
  }

  // Of head t and the keys whose codes and scales are at these addresses of shared memory.
  __device__ void fourScores(uint32_t codes, uint32_t scales_at, float (&s)[4]) const {
    // Products of low nibbles, and 16 times those of high ones, which stay where they are.
    int low[2][4] = {}, high[2][4] = {};
#pragma unroll
    for (int v = 0; v < kDim / 32; v += 2) {
      const uint4 one = loadShared(codes + v * 256);
      const uint4 two = loadShared(codes + (v + 1) * 256);
      constexpr uint32_t kLow = 0x0f0f0f0f, kHigh = 0xf0f0f0f0;
      const uint32_t a[4] = {one.x & kLow, one.y & kLow, two.x & kLow, two.y & kLow};
      multiplyBytes(low[0], a, query_[v][0], query_[v + 1][0]);
      const uint32_t b[4] = {one.x & kHigh, one.y & kHigh, two.x & kHigh, two.y & kHigh};
      multiplyBytes(high[0], b, query_[v][1], query_[v + 1][1]);
      const uint32_t c[4] = {one.z & kLow, one.w & kLow, two.z & kLow, two.w & kLow};
      multiplyBytes(low[1], c, query_[v][0], query_[v + 1][0]);
      const uint32_t d[4] = {one.z & kHigh, one.w & kHigh, two.z & kHigh, two.w & kHigh};
      multiplyBytes(high[1], d, query_[v][1], query_[v + 1][1]);
    }
    const uint4 bits = loadShared(scales_at);
    const float scales[4] = {__uint_as_float(bits.x), __uint_as_float(bits.y),
                             __uint_as_float(bits.z), __uint_as_float(bits.w)};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int dot = low[i / 2][i % 2 * 2] + (high[i / 2][i % 2 * 2] >> 4) - offset_;
      s[i] = static_cast<float>(dot) * (factor_ * scales[i]);
    }
  }

  const Step& step_;
  Lane lane_;
  int queries_of_ = -1;
  uint32_t query_[kDim / 32][2];
  int offset_ = 0;
  float factor_ = 0;
};

// V^T p of a piece: lane 4 g + t has channels 16 m + g and 16 m + 8 + g of head t, in two parts.
template <int kDim, typename T>
struct ValueSum {
  static constexpr int kSteps = kDim / 16;
  using Tile = TileLayout<kDim>;

  // Of 16 values, `values` being the tile's address and Tile::valuesOf() together; p as B in two
  // words.
  __device__ void add(uint32_t values, uint32_t b0, uint32_t b1) {
#pragma unroll
    for (int m = 0; m < kSteps; ++m) {
      uint32_t a[4];
      loadTransposed(a, Tile::along(values, 2 * m));
      ElementOf<T>::multiply(total[m], a, b0, b1);
    }
  }

  __device__ void scale(float factor) {
#pragma unroll
    for (int m = 0; m < kSteps; ++m) {
#pragma unroll
      for (int i = 0; i < 4; ++i) total[m][i] *= factor;
    }
  }

  template <typename AnyWork>
  __device__ void store(const Step& step, const AnyWork& work, const Lane& lane,
                        float factor) const {
    if (!isFor(step, work, lane.t)) return;
    const int64_t at = pieceIndex(step, work.sequence, headOf(step, work, lane.t), work.piece);
    float* to = reinterpret_cast<float*>(step.space.piece_bytes + at * kPieceBytes);
#pragma unroll
    for (int m = 0; m < kSteps; ++m) {
      to[16 * m + lane.g] = (total[m][0] + total[m][1]) * factor;
      to[16 * m + 8 + lane.g] = (total[m][2] + total[m][3]) * factor;
    }
  }

  float total[kSteps][4] = {};
};

}  // namespace allot::kernels::cuda
