#pragma once
// Scores of a piece's keys for up to four query heads, exact or from the keys' 4-bit shadow, and
// sums of values.
//
// Products, for 16 keys at a time (m16n8k16): keys are the rows of A as they lie in memory;
// column 2h of B is query head h rounded to the cache's element, column 2h + 1 what the rounding
// left; so lane 4g + t holds the two halves of the scores of head t for keys g and g + 8, in
// float32. Values are the rows of A transposed, and probabilities go into B in the same two parts.
#include "kernels/cuda/sweep_ring.cuh"

namespace allot::kernels::cuda {

template <int kDim, typename T, Sweep kSweep>
class SweepScores : protected SweepRing<kDim, kSweep> {
 protected:
  using Base = SweepRing<kDim, kSweep>;
  using Layout = SweepLayout<kDim, kSweep>;
  using Elements = ElementOf<T>;
  using Base::await, Base::codeChunk, Base::g_, Base::kSteps, Base::lane_, Base::lane_key_;
  using Base::Base;
  using Base::lane_value_, Base::quads_, Base::release, Base::scratch_, Base::step_, Base::t_;

  // ---- Queries.

  __device__ int headOf(const Work& work, int in_quad) const {
    return work.kv_head * (step_.heads / step_.kv_heads) + work.quad * kQuad + in_quad;
  }
  __device__ bool hasHead(const Work& work, int in_quad) const {
    return work.quad * kQuad + in_quad < step_.heads / step_.kv_heads;
  }
  __device__ const float* queryOf(const Work& work, int in_quad) const {
    return step_.queries +
           (static_cast<int64_t>(work.row) * step_.heads + headOf(work, in_quad)) * kDim;
  }

  // B of the products with keys.
  __device__ void takeQueries(const Work& work) {
    const int name = (work.row * step_.kv_heads + work.kv_head) * quads_ + work.quad;
    if (name == queries_of_) return;
    queries_of_ = name;
    const bool there = hasHead(work, g_ / 2);
    const float* query = queryOf(work, there ? g_ / 2 : 0);
    int exponent = 0;
    if constexpr (Elements::kScalesQueries) {
      float largest = 0;
      for (int i = t_; i < kDim; i += 4) largest = fmaxf(largest, fabsf(query[i]));
      largest = fmaxf(largest, __shfl_xor_sync(kAll, largest, 1));
      largest = fmaxf(largest, __shfl_xor_sync(kAll, largest, 2));
      exponent = largest > 0 && isNumber(largest) ? ilogbf(largest) : 0;
    }
    const auto part = [&](float x) {
      const uint32_t both = twoParts<T>(there ? scalbnf(x, -exponent) : 0.0f);
      return g_ % 2 ? both >> 16 : both & 0xffff;
    };
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
      const float2 low = *reinterpret_cast<const float2*>(query + 16 * k + 2 * t_);
      const float2 high = *reinterpret_cast<const float2*>(query + 16 * k + 2 * t_ + 8);
      query_[k][0] = part(low.x) | part(low.y) << 16;
      query_[k][1] = part(high.x) | part(high.y) << 16;
    }
    // Of head t, whose parts are in columns 2t and 2t + 1.
    scale_ = scalbnf(step_.scale * kLog2E, __shfl_sync(kAll, exponent, 8 * t_));
  }

  // The same in 8 bits, for codes; column 2h is head h.
  __device__ void takeByteQueries(const Work& work) {
    if constexpr (kSweep == Sweep::kShadow) {
      const int name = (work.row * step_.kv_heads + work.kv_head) * quads_ + work.quad;
      if (name == byte_queries_of_) return;
      byte_queries_of_ = name;
      const bool there = g_ % 2 == 0 && hasHead(work, g_ / 2);
      const float* query = queryOf(work, there ? g_ / 2 : 0);
      // All of them are on their way at once; the four lanes of a head have every feature.
      float4 own[kDim / 32][2];
#pragma unroll
      for (int v = 0; v < kDim / 32; ++v) {
        const auto* from = reinterpret_cast<const float4*>(query + 8 * (t_ + 4 * v));
        own[v][0] = from[0];
        own[v][1] = from[1];
      }
      float largest = 0;
#pragma unroll
      for (int i = 0; i < kDim / 16; ++i) {
        const float4& four = own[i / 2][i % 2];
        largest = fmaxf(largest, fmaxf(fmaxf(fabsf(four.x), fabsf(four.y)),
                                       fmaxf(fabsf(four.z), fabsf(four.w))));
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
        byte_query_[v][0] = four(own[v][0]);
        byte_query_[v][1] = four(own[v][1]);
      }
      total += __shfl_xor_sync(kAll, total, 1);
      total += __shfl_xor_sync(kAll, total, 2);
      const float factor = zero ? 0.0f : largest / 127.0f * step_.scale * kLog2E;
      byte_offset_ = __shfl_sync(kAll, total, 8 * t_) << 3;
      byte_factor_ = __shfl_sync(kAll, factor, 8 * t_);
    }
  }

  // ---- Scores, in powers of two.

  // A score of key j of the piece as it counts. Those of heads that are not there are 0, and go
  // nowhere.
  __device__ float finished(const Work& work, float score, int j) {
    if (j >= work.count || j < work.dead) return minusInfinity();
    poison_ = fmaf(score, 0.0f, poison_);
    if (step_.bias) {
      score = fmaf(step_.bias[work.row * step_.bias_stride + work.first + j], kLog2E, score);
      // -infinity masks a key.
      if (!(score <= kLargest)) poison_ = notANumber();
    }
    return score;
  }

  // The scores of 16 keys for head t: [0] of key g, [1] of key g + 8.
  __device__ void scoreTile(const Work& work, int tile, uint32_t keys, float (&scores)[2]) {
    float even[4] = {}, odd[4] = {};  // two sums: one would wait for itself
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
      uint32_t a[4];
      loadMatrices(a, (keys + lane_key_) ^ (k << 5));
      Elements::multiply(k % 2 ? odd : even, a, query_[k][0], query_[k][1]);
    }
    scores[0] = scale_ * ((even[0] + odd[0]) + (even[1] + odd[1]));
    scores[1] = scale_ * ((even[2] + odd[2]) + (even[3] + odd[3]));
    const int key = tile * kPart;
    if (!step_.bias && key + kPart <= work.count && key >= work.dead) {
      poison_ = fmaf(scores[0], 0.0f, poison_);
      poison_ = fmaf(scores[1], 0.0f, poison_);
    } else {
      scores[0] = finished(work, scores[0], key + g_);
      scores[1] = finished(work, scores[1], key + g_ + 8);
    }
  }

  // Reports a score that was not finite: 0 times it is not a number.
  __device__ void tell(const Work& work) {
    if (__any_sync(kAll, poison_ != 0) && lane_ == 0) {
      report(step_, Wrong::kScore, work.row, work.kv_head);
    }
    poison_ = 0;
  }

  __device__ static float overKeys(float x) {  // the sum over lanes of one head
    x += __shfl_xor_sync(kAll, x, 4);
    x += __shfl_xor_sync(kAll, x, 8);
    return x + __shfl_xor_sync(kAll, x, 16);
  }
  __device__ static float largestOverKeys(float x) {
    x = fmaxf(x, __shfl_xor_sync(kAll, x, 4));
    x = fmaxf(x, __shfl_xor_sync(kAll, x, 8));
    return fmaxf(x, __shfl_xor_sync(kAll, x, 16));
  }

  // total += V^T p for 16 value rows; p as B in two words.
  __device__ void addValues(uint32_t values, uint32_t b0, uint32_t b1, float (&total)[kSteps][4]) {
#pragma unroll
    for (int m = 0; m < kSteps; ++m) {
      uint32_t a[4];
      loadTransposed(a, (values + lane_value_) ^ (m << 5));
      Elements::multiply(total[m], a, b0, b1);
    }
  }

  __device__ void store(const Work& work, const float (&total)[kSteps][4], float factor) const {
    if (!hasHead(work, t_)) return;
    const int64_t at = pieceIndex(step_, work.row, headOf(work, t_), work.piece);
    float* to = reinterpret_cast<float*>(step_.piece_bytes + at * kPieceBytes);
#pragma unroll
    for (int m = 0; m < kSteps; ++m) {
      to[16 * m + g_] = (total[m][0] + total[m][1]) * factor;
      to[16 * m + 8 + g_] = (total[m][2] + total[m][3]) * factor;
    }
  }

  __device__ float* scoresOf(int head) const {
    return reinterpret_cast<float*>(scratch_ + head * kScoreRow);
  }

  // Returns the largest of this lane's.
  __device__ float exactScores(const Work& work) {
    takeQueries(work);
    float top = minusInfinity();
    float* to = scoresOf(t_) + g_;
    const int dead = work.dead / kPart, tiles = (work.count + kPart - 1) / kPart;
    for (int tile = 0; tile < dead; ++tile) {
      to[tile * kPart] = to[tile * kPart + 8] = minusInfinity();
    }
#pragma unroll 1
    for (int tile = dead; tile < tiles; ++tile) {
      float two[2];
      scoreTile(work, tile, await(), two);
      release();
      top = fmaxf(top, fmaxf(two[0], two[1]));
      to[tile * kPart] = two[0];
      to[tile * kPart + 8] = two[1];
    }
    for (int tile = tiles; tile < kParts; ++tile) {
      to[tile * kPart] = to[tile * kPart + 8] = minusInfinity();
    }
    return top;
  }

  __device__ float shadowScores(const Work& work) {
    float top = minusInfinity();
    if constexpr (kSweep == Sweep::kShadow) {
      takeByteQueries(work);
#pragma unroll 1
      for (int slot = 0; slot < kPieceKeys / 64; ++slot) {
        const int begin = slot * 64 + g_ / 4 * 16 + g_ % 4 * 4;
        float* to = scoresOf(t_) + begin;
        if (slot * 64 >= work.count || slot < work.dead / 64) {
          const float none = minusInfinity();
          *reinterpret_cast<float4*>(to) =
              *reinterpret_cast<float4*>(to + 32) = {none, none, none, none};
          continue;
        }
        const bool whole = !step_.bias && slot * 64 + 64 <= work.count && slot * 64 >= work.dead;
        const uint32_t at = await();
        // Features 8 (t + 4 v) .. + 7 of keys 4 (g % 4) .. + 3 of tile g / 4 of 32 keys.
        const uint32_t codes = at + g_ / 4 * (kDim * 8) + codeChunk(t_ * 4 + g_ % 4) * 16;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          // Products of low nibbles, and 16 times those of high ones, which stay where they are.
          int low[2][4] = {}, high[2][4] = {};
#pragma unroll
          for (int v = 0; v < kDim / 32; v += 2) {
            const uint4 one = loadShared(codes + half * (16 * kDim) + v * 256);
            const uint4 two = loadShared(codes + half * (16 * kDim) + (v + 1) * 256);
            constexpr uint32_t kLow = 0x0f0f0f0f, kHigh = 0xf0f0f0f0;
            const uint32_t a[4] = {one.x & kLow, one.y & kLow, two.x & kLow, two.y & kLow};
            multiplyBytes(low[0], a, byte_query_[v][0], byte_query_[v + 1][0]);
            const uint32_t b[4] = {one.x & kHigh, one.y & kHigh, two.x & kHigh, two.y & kHigh};
            multiplyBytes(high[0], b, byte_query_[v][1], byte_query_[v + 1][1]);
            const uint32_t c[4] = {one.z & kLow, one.w & kLow, two.z & kLow, two.w & kLow};
            multiplyBytes(low[1], c, byte_query_[v][0], byte_query_[v + 1][0]);
            const uint32_t d[4] = {one.z & kHigh, one.w & kHigh, two.z & kHigh, two.w & kHigh};
            multiplyBytes(high[1], d, byte_query_[v][1], byte_query_[v + 1][1]);
          }
          const uint4 bits = loadShared(at + Layout::kTileBytes + half * 128 + g_ * 16);
          const float scales[4] = {__uint_as_float(bits.x), __uint_as_float(bits.y),
                                   __uint_as_float(bits.z), __uint_as_float(bits.w)};
          float s[4];
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const int dot = low[i / 2][i % 2 * 2] + (high[i / 2][i % 2 * 2] >> 4) - byte_offset_;
            s[i] = static_cast<float>(dot) * (byte_factor_ * scales[i]);
          }
          if (whole) {
#pragma unroll
            for (int i = 0; i < 4; ++i) poison_ = fmaf(s[i], 0.0f, poison_);
          } else {
#pragma unroll
            for (int i = 0; i < 4; ++i) s[i] = finished(work, s[i], begin + half * 32 + i);
          }
          top = fmaxf(top, fmaxf(fmaxf(s[0], s[1]), fmaxf(s[2], s[3])));
          *reinterpret_cast<float4*>(to + half * 32) = {s[0], s[1], s[2], s[3]};
        }
        release();
      }
    }
    return top;
  }

  __device__ static uint4 loadShared(uint32_t at) {
    uint4 words;
    asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
                 : "r"(at)
                 : "memory");
    return words;
  }

  float poison_ = 0;  // not a number once a score was not finite
  int queries_of_ = -1, byte_queries_of_ = -1;
  uint32_t query_[kSteps][2];
  float scale_ = 0;
  uint32_t byte_query_[kDim / 32][2];
  int byte_offset_ = 0;
  float byte_factor_ = 0;
};

}  // namespace allot::kernels::cuda
