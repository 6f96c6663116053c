#pragma once
// Score stages of the CPU: the scores of one KV head's query heads over one row's keys. Private to
// kernels/cpu. Pure functions, any thread.
//
// The score of a query and a key is one sum in a fixed order. Results do not depend on page size,
// threads, the group, or which keys are scored together. Exact scores are sums of fused
// multiply-adds if the processor has them (x86-64-v3 and v4 give the same bits). Shadow scores are
// integer sums, equal everywhere.
#include <bit>
#include <cstdint>

#include "allot/kernels/decode.h"

namespace allot::kernels {

// The largest head_dim. Arrays of this size are on the stack.
constexpr int kMaxHeadDim = 1024;

// The keys of one row and KV head.
struct KeyRange {
  const PagedKv* kv = nullptr;
  const int32_t* pages = nullptr;  // of the row
  int kv_head = 0;
  int n = 0;  // the keys are first..n-1
  int first = 0;
};

// Returns one number of the key cache, `offset` in elements.
inline float keyAt(const PagedKv& kv, int64_t offset) {
  if (kv.element == Element::kFloat32) return static_cast<const float*>(kv.keys)[offset];
  if (kv.element == Element::kE4M3) return fromE4M3(static_cast<const uint8_t*>(kv.keys)[offset]);
  const uint32_t bits = static_cast<const uint16_t*>(kv.keys)[offset];
  return std::bit_cast<float>(bits << 16);
}

// Computes scores[g * stride + j] = scale * q_g . k_j for first <= j < n; queries [group,
// head_dim].
void exactScores(const KeyRange& keys, const float* queries, int group, float scale, float* scores,
                 int64_t stride);

// Computes scores[i] = scale * q . k_{rows_i} for scattered keys, with exactScores' bits. Does not
// use keys.first and keys.n.
void exactScoresOf(const KeyRange& keys, const float* query, float scale, const int32_t* rows,
                   int count, float* scores);

// Computes scores[g * stride + j] = scale * s_q * s_k,j * (int8 query . code_j) from the shadow
// with `bits` bits, without the mean key; the query is rounded to 8 bits with one scale s_q. Also
// writes unspecified numbers to up to 15 scores before `first` and up to 15 from n on.
// Requires: the cache has this shadow.
void shadowScores(const KeyRange& keys, int bits, const float* queries, int group, float scale,
                  float* scores, int64_t stride);

// Writes the shadow of the cache's keys at positions start..start+count-1 of one row and KV head.
// Subtracts the mean key at the row's first page, if the cache has mean keys.
void writeShadow(const KeyShadow& shadow, const PagedKv& kv, const int32_t* pages, int kv_head,
                 int start, int count);

// ---- For shadow.cpp, its instruction sets and their tests.

// A tile has the codes of 16 keys as unsigned numbers, code + 2^(bits-1), in vectors of 64 bytes:
// byte 4 * key + f of vector v is feature 4 * v + f of that key, which is the operand of one dot
// product instruction (16 keys, 4 features) without any sum across lanes.
//   8 bits: 64 bytes v are vector v.
//   4 bits: 64 bytes v have vectors 2v (low nibbles) and 2v + 1 (high nibbles).
//   3 bits: 64 bytes v have the low two bits of vectors 4v .. 4v + 3, vector 4v lowest. Behind the
//           low bits of all vectors come their third bits, 64 bits a vector.
//
// Computes dots[16 * h + key] = sum_i codes_key,i * queries[h * head_dim + i] for h < heads, codes
// unsigned as stored. May prefetch the tile at `ahead`.
// Requires: heads <= 4.
using TileDots = void (*)(const uint8_t* tile, const uint8_t* ahead, int head_dim,
                          const int8_t* queries, int heads, int32_t* dots);

// Instruction sets with a TileDots of their own, best first.
enum class ShadowCode { kVnni, kAvx2, kPlain };
// Returns true if this processor has the instruction set.
bool runsHere(ShadowCode code);
// Returns the function for tiles of 3, 4 or 8 bits.
// Requires: runsHere(code).
TileDots tileDots(ShadowCode code, int bits);

}  // namespace allot::kernels
