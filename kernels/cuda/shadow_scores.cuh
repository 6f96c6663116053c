#pragma once
// Scores of a split's keys for a head group, from the 4-bit shadow. Device code, owned by one warp.
#include "kernels/cuda/score_tile.cuh"

namespace allot::kernels::cuda {

// Queries have 8 bits, and products are of bytes (m16n8k32). A key's 32-bit word v has channels 8 v
// .. 8 v + 3 as low nibbles and 8 v + 4 .. 8 v + 7 as high ones. A query's first and second word
// have these channels as bytes.
// - Head group of 8: low and high nibbles have separate products; those of the high nibbles are 16
//   times too large. A head group of 16 would do the same; no kernel has one.
// - Head group of 4: columns 2h and 2h + 1 are head h's. The first has products of the low nibbles.
//   The second has products of the whole bytes with the query's second word and of the low nibbles
//   with that word negated, which cancel the low nibbles. So only low nibbles need to be extracted.
template <int kDim, int kHeadGroup>
class ShadowScores {
  using HeadGroup = HeadGroupLayout<kHeadGroup>;
  static constexpr int kOfLane = HeadGroup::kOfLane, kTiles = HeadGroup::kTiles;
  static constexpr bool kBytes = kHeadGroup == kSmallHeadGroup;
  static constexpr int kHalves =
      kHeadGroup == kMaxHeadGroup ? 1 : 2;  // of a slot, that are scored at once
  using Layout = SplitLayout<kDim, SplitMode::kShadow, kHeadGroup>;
  using Codes = CodeLayout<kDim>;
  // Sums of products start from the bits of 1.5 * 2^23. The bits of a sum of at most 2^22 in size
  // are then the float32 1.5 * 2^23 + sum.
  static constexpr int kFloatBits = 0x4b400000;
  static constexpr float kFloat = 12582912.0f;

 public:
  __device__ ShadowScores(const Step& step, const Lane& lane,
                          const ScoreScratch<kHeadGroup>& scratch)
      : step_(step), lane_(lane) {
    if (lane.id == 0) scratch.note() = -1;
    __syncwarp();
  }

  // Writes the scores of a split to scratch, and the largest of this lane's to `top`.
  template <bool kByHead>
  __device__ void ofSplit(const Work& work,
                          const WarpShare<SplitMode::kShadow, kByHead, kHeadGroup>& share,
                          KeyPipe<kDim, SplitMode::kShadow, kByHead, kHeadGroup>& pipe,
                          ScoreGuard& guard, const ScoreScratch<kHeadGroup>& scratch,
                          float (&top)[kOfLane]) {
#pragma unroll
    for (int i = 0; i < kOfLane; ++i) top[i] = minusInfinity();
    // The name of the loaded queries is in shared memory: no register is free, and local memory
    // costs as much as loading a key.
    const int name = share.queriesOf(work);
    if (scratch.note() != name) {
      take(work);
      __syncwarp();  // all lanes have looked
      if (lane_.id == 0) scratch.note() = name;
      __syncwarp();
    }
#pragma unroll 1
    for (int slot = 0; slot < kSplitKeys / 64; ++slot) {
      const int begin = slot * 64 + lane_.g / 4 * 16 + lane_.g % 4 * 4;
      const auto line = [&](int i, int half) -> float4& {
        return *reinterpret_cast<float4*>(scratch.of(HeadGroup::head(lane_.t, i)) + begin +
                                          half * 32);
      };
      if (slot * 64 >= work.count || slot < work.dead / 64) {
        const float none = minusInfinity();
#pragma unroll
        for (int i = 0; i < kOfLane; ++i) line(i, 0) = line(i, 1) = {none, none, none, none};
        continue;
      }
      const auto leave = [&](int first, const float(&s)[kHalves][kOfLane][4]) {
#pragma unroll
        for (int half = 0; half < kHalves; ++half) {
#pragma unroll
          for (int i = 0; i < kOfLane; ++i) {
            const float(&four)[4] = s[half][i];
            top[i] = fmaxf(top[i], fmaxf(fmaxf(four[0], four[1]), fmaxf(four[2], four[3])));
            line(i, first + half) = {four[0], four[1], four[2], four[3]};
          }
        }
      };
      const bool whole = !step_.in.bias && slot * 64 + 64 <= work.count && slot * 64 >= work.dead;
      const uint32_t at = pipe.await();
      // This lane has keys 4 (g % 4) .. + 3 of tile g / 4, of the two tiles of 16 keys of a half.
      const uint32_t codes = at + Codes::readBy(lane_.g, lane_.t);
      const uint32_t scales = at + Layout::Tile::kBytes + lane_.g * 16;
#pragma unroll
      for (int first = 0; first < 2; first += kHalves) {
        float s[kHalves][kOfLane][4];
#pragma unroll
        for (int i = 0; i < kHalves; ++i) {
          fourScores(codes + (first + i) * (2 * Codes::kBytes), scales + (first + i) * 128, s[i]);
        }
        // The code is written twice, so that scores of whole slots stay in registers.
        if (whole) {
          float seen[4] = {};  // not one number that waits for itself
          forEach([&](int half, int i, int key) {
            seen[key] = fmaf(s[half][i][key], 0.0f, seen[key]);
          });
          guard.see((seen[0] + seen[1]) + (seen[2] + seen[3]));
          leave(first, s);
        } else {
          forEach([&](int half, int i, int key) {
            const int own = begin + (first + half) * 32 + key;
            s[half][i][key] = guard.finished(step_, work, s[half][i][key], own);
          });
          leave(first, s);
        }
      }
      pipe.release(share);
    }
  }

 private:
  __device__ void take(const Work& work) {
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) takeColumns(work, tile);
  }

  // Calls body(half, head of the lane, key).
  template <typename Body>
  __device__ static void forEach(Body body) {
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
#pragma unroll
      for (int i = 0; i < kOfLane; ++i) {
#pragma unroll
        for (int key = 0; key < 4; ++key) body(half, i, key);
      }
    }
  }

  // Loads eight columns of B.
  __device__ void takeColumns(const Work& work, int tile) {
    const int g = lane_.g, t = lane_.t;
    const int head = kHeadGroup == kSmallHeadGroup ? g / 2 : tile * 8 + g;
    const bool there = hasHead<kHeadGroup>(step_, work, head);
    const float* query = queryOf<kDim, kHeadGroup>(step_, work, there ? head : 0);
    // All loads are in flight at once; the four lanes of one g together have all channels.
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
    // An absent head, or a query whose scale's inverse might not be finite, counts as zero.
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
      const uint32_t first = four(own[v][0]), second = four(own[v][1]);
      const bool odd = kBytes && g % 2;
      query_[tile][v][0] = odd ? __vneg4(second) : first;
      query_[tile][v][1] = odd || !kBytes ? second : 0;
    }
    total += __shfl_xor_sync(kAll, total, 1);
    total += __shfl_xor_sync(kAll, total, 2);
    const float factor = zero ? 0.0f : largest / 127.0f * step_.in.scale * kLog2E;
#pragma unroll
    for (int i = 0; i < kOfLane / kTiles; ++i) {
      const int lane = HeadGroup::columnLane(t, i);
      // Codes are relative to 8.
      const int begin = kFloatBits - (__shfl_sync(kAll, total, lane) << 3);
      begin_[tile][i] = begin_[tile][2 + i] = begin;
      if (kBytes) begin_[tile][1] = begin_[tile][3] = 0;
      factor_[tile * 2 + i] = __shfl_sync(kAll, factor, lane);
    }
  }

  // Computes the scores of the lane's heads for four keys, from shared memory.
  __device__ void fourScores(uint32_t codes, uint32_t scales_at, float (&s)[kOfLane][4]) const {
    constexpr uint32_t kLow = 0x0f0f0f0f, kHigh = 0xf0f0f0f0;
    constexpr int kNone[4] = {};
    // [1]: of high nibbles; a head group of 4 has both sums in [0].
    int sums[2][kTiles][2][4];
#pragma unroll
    for (int v = 0; v < kDim / 32; v += 2) {
      const uint4 one = loadShared(codes + v * 256);
      const uint4 two = loadShared(codes + (v + 1) * 256);
      const uint32_t words[2][4] = {{one.x, one.y, two.x, two.y}, {one.z, one.w, two.z, two.w}};
#pragma unroll
      for (int nibble = 0; nibble < 2; ++nibble) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          uint32_t a[4];
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            a[i] = words[half][i] & (nibble == 0 ? kLow : kBytes ? ~0u : kHigh);
          }
#pragma unroll
          for (int n = 0; n < kTiles; ++n) {
            auto& sum = sums[kBytes ? 0 : nibble][n][half];
            const uint32_t b0 = query_[n][v][nibble], b1 = query_[n][v + 1][nibble];
            if (v == 0 && nibble == 0) {
              multiplyBytes(sum, a, b0, b1, begin_[n]);
            } else if (v == 0 && !kBytes) {
              multiplyBytes(sum, a, b0, b1, kNone);
            } else {
              multiplyBytes(sum, a, b0, b1, sum);
            }
          }
        }
      }
    }
    const uint4 bits = loadShared(scales_at);
    const float scales[4] = {__uint_as_float(bits.x), __uint_as_float(bits.y),
                             __uint_as_float(bits.z), __uint_as_float(bits.w)};
#pragma unroll
    for (int i = 0; i < kOfLane; ++i) {
#pragma unroll
      for (int key = 0; key < 4; ++key) {
        const int place = key % 2 * 2 + i % 2;
        const int low = sums[0][i / 2][key / 2][place];
        const int high =
            kBytes ? sums[0][i / 2][key / 2][place + 1] : sums[1][i / 2][key / 2][place];
        const float dot = __int_as_float(low + (high >> 4)) - kFloat;  // exact
        s[i][key] = dot * (factor_[i] * scales[key]);
      }
    }
  }

  const Step& step_;
  Lane lane_;
  uint32_t query_[kTiles][kDim / 32][2];
  int begin_[kTiles][4];
  float factor_[kOfLane];
};

}  // namespace allot::kernels::cuda
