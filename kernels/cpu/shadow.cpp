// Shadows of keys: written once, scored at every step. The layout is in key_scores.h.
#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>

#include "kernels/cpu/elements.h"
#include "kernels/cpu/key_scores.h"

#if defined(__x86_64__)
#include <immintrin.h>
#define ALLOT_X86 1
#define ALLOT_VNNI __attribute__((target("avx512f,avx512bw,avx512vl,avx512vnni")))
#define ALLOT_AVX2 __attribute__((target("avx2")))
#endif

namespace allot::kernels {
namespace {

constexpr int kVector = 64;           // bytes: 16 keys, 4 features
constexpr int kHeadsAtOnce = 4;       // query heads scored together
constexpr float kLargestQuery = 127;  // symmetric, so that a query and its negative round alike

template <typename Word>
Word loadWord(const void* from) {
  Word word;
  std::memcpy(&word, from, sizeof word);
  return word;
}
uint32_t load32(const uint8_t* from) { return loadWord<uint32_t>(from); }
void store32(uint8_t* to, uint32_t word) { std::memcpy(to, &word, sizeof word); }

// Returns where the third bits start in a tile of 3-bit codes, in bytes.
int thirdBits(int head_dim) { return head_dim / 16 * kVector; }

// ---- Plain C++.

// Writes the codes of vector v, unsigned.
template <int Bits>
void unpack(const uint8_t* tile, int head_dim, int v, uint8_t* codes) {
  for (int i = 0; i < kVector; ++i) {
    if constexpr (Bits == 8) {
      codes[i] = tile[v * kVector + i];
    } else if constexpr (Bits == 4) {
      codes[i] = tile[v / 2 * kVector + i] >> (v % 2 * 4) & 0x0f;
    } else {
      const uint64_t third = loadWord<uint64_t>(tile + thirdBits(head_dim) + v * 8);
      codes[i] = static_cast<uint8_t>((tile[v / 4 * kVector + i] >> (v % 4 * 2) & 0x03) |
                                      (third >> i & 1) << 2);
    }
  }
}

template <int Bits>
void dotsPlain(const uint8_t* tile, const uint8_t*, int head_dim, const int8_t* queries, int heads,
               int32_t* dots) {
  std::fill_n(dots, heads * kTileKeys, 0);
  for (int v = 0; v < head_dim / 4; ++v) {
    uint8_t codes[kVector];
    unpack<Bits>(tile, head_dim, v, codes);
    for (int h = 0; h < heads; ++h) {
      const int8_t* query = queries + h * head_dim + 4 * v;
      for (int key = 0; key < kTileKeys; ++key) {
        int32_t dot = 0;
        for (int f = 0; f < 4; ++f) dot += codes[4 * key + f] * query[f];
        dots[h * kTileKeys + key] += dot;
      }
    }
  }
}

#ifdef ALLOT_X86

int32_t fourFeatures(const int8_t* query) { return loadWord<int32_t>(query); }

// ---- AVX-512 with VNNI: one instruction multiplies 64 codes and sums groups of four, without
// saturation.

// Writes the codes of vectors 4v .. 4v + 3 of a tile.
template <int Bits>
ALLOT_VNNI inline void unpackVnni(const uint8_t* tile, int head_dim, int v, __m512i* codes) {
  if constexpr (Bits == 8) {
    for (int i = 0; i < 4; ++i) codes[i] = _mm512_loadu_si512(tile + (4 * v + i) * kVector);
  } else if constexpr (Bits == 4) {
    const __m512i low = _mm512_set1_epi8(0x0f);
    for (int i = 0; i < 2; ++i) {
      const __m512i packed = _mm512_loadu_si512(tile + (2 * v + i) * kVector);
      codes[2 * i] = _mm512_and_si512(packed, low);
      codes[2 * i + 1] = _mm512_and_si512(_mm512_srli_epi16(packed, 4), low);
    }
  } else {
    const __m512i low = _mm512_set1_epi8(0x03), four = _mm512_set1_epi8(4);
    const __m512i packed = _mm512_loadu_si512(tile + v * kVector);
    const __m512i parts[4] = {packed, _mm512_srli_epi16(packed, 2), _mm512_srli_epi16(packed, 4),
                              _mm512_srli_epi16(packed, 6)};
    for (int i = 0; i < 4; ++i) {
      const __m512i two = _mm512_and_si512(parts[i], low);
      const __mmask64 third = loadWord<uint64_t>(tile + thirdBits(head_dim) + (4 * v + i) * 8);
      codes[i] = _mm512_mask_add_epi8(two, third, two, four);
    }
  }
}

template <int Bits, int Heads>
ALLOT_VNNI void dotsVnniHeads(const uint8_t* tile, const uint8_t* ahead, int head_dim,
                              const int8_t* queries, int32_t* dots) {
  // Two sums a head: one would wait for itself.
  __m512i even[Heads], odd[Heads];
  for (int h = 0; h < Heads; ++h) even[h] = odd[h] = _mm512_setzero_si512();
  for (int v = 0; v < head_dim / 16; ++v) {
    fetch(ahead + v * 16 * 2 * Bits, 16 * 2 * Bits);
    __m512i codes[4];
    unpackVnni<Bits>(tile, head_dim, v, codes);
    for (int h = 0; h < Heads; ++h) {
      const int8_t* query = queries + h * head_dim + 16 * v;
      even[h] = _mm512_dpbusd_epi32(even[h], codes[0], _mm512_set1_epi32(fourFeatures(query)));
      odd[h] = _mm512_dpbusd_epi32(odd[h], codes[1], _mm512_set1_epi32(fourFeatures(query + 4)));
      even[h] = _mm512_dpbusd_epi32(even[h], codes[2], _mm512_set1_epi32(fourFeatures(query + 8)));
      odd[h] = _mm512_dpbusd_epi32(odd[h], codes[3], _mm512_set1_epi32(fourFeatures(query + 12)));
    }
  }
  for (int h = 0; h < Heads; ++h) {
    _mm512_storeu_si512(dots + h * kTileKeys, _mm512_add_epi32(even[h], odd[h]));
  }
}

template <int Bits>
void dotsVnni(const uint8_t* tile, const uint8_t* ahead, int head_dim, const int8_t* queries,
              int heads, int32_t* dots) {
  switch (heads) {
    case 4:
      return dotsVnniHeads<Bits, 4>(tile, ahead, head_dim, queries, dots);
    case 3:
      return dotsVnniHeads<Bits, 3>(tile, ahead, head_dim, queries, dots);
    case 2:
      return dotsVnniHeads<Bits, 2>(tile, ahead, head_dim, queries, dots);
    default:
      return dotsVnniHeads<Bits, 1>(tile, ahead, head_dim, queries, dots);
  }
}

// ---- AVX2. Its byte product sums pairs in 16 bits and saturates. 2 * 255 * 127 is too much, so
// that 8-bit codes are multiplied as two nibbles, each pair at most 2 * 15 * 127.

ALLOT_AVX2 inline __m256i addNibbles(__m256i total, __m256i codes, __m256i query) {
  const __m256i pairs = _mm256_maddubs_epi16(codes, query);
  return _mm256_add_epi32(total, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

// Adds the products of half a vector (8 keys, 4 features) of 8-bit codes.
ALLOT_AVX2 inline __m256i addBytes(__m256i total, __m256i codes, __m256i query) {
  const __m256i low = _mm256_set1_epi8(0x0f);
  const __m256i high =
      addNibbles(_mm256_setzero_si256(), _mm256_and_si256(_mm256_srli_epi16(codes, 4), low), query);
  return _mm256_add_epi32(addNibbles(total, _mm256_and_si256(codes, low), query),
                          _mm256_slli_epi32(high, 4));
}

// Returns the codes of half `half` of vector v, unsigned.
template <int Bits>
ALLOT_AVX2 inline __m256i unpackAvx2(const uint8_t* tile, int head_dim, int v, int half) {
  const auto at = [&](int vector) {
    return reinterpret_cast<const __m256i*>(tile + vector * kVector + half * 32);
  };
  if constexpr (Bits == 8) return _mm256_loadu_si256(at(v));
  if constexpr (Bits == 4) {
    const __m256i packed = _mm256_loadu_si256(at(v / 2));
    return _mm256_and_si256(v % 2 ? _mm256_srli_epi16(packed, 4) : packed, _mm256_set1_epi8(0x0f));
  }
  const __m256i packed = _mm256_loadu_si256(at(v / 4));
  const __m256i two = _mm256_and_si256(_mm256_srl_epi16(packed, _mm_cvtsi32_si128(v % 4 * 2)),
                                       _mm256_set1_epi8(0x03));
  // Bit i of 32 to byte i: each byte gets the byte its bit is in, then keeps that bit.
  const uint32_t bits = load32(tile + thirdBits(head_dim) + v * 8 + half * 4);
  const __m256i spread = _mm256_shuffle_epi8(
      _mm256_set1_epi32(static_cast<int>(bits)),
      _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303));
  const __m256i bit = _mm256_set1_epi64x(static_cast<int64_t>(0x8040201008040201));
  const __m256i third = _mm256_cmpeq_epi8(_mm256_and_si256(spread, bit), bit);
  return _mm256_or_si256(two, _mm256_and_si256(third, _mm256_set1_epi8(4)));
}

template <int Bits>
ALLOT_AVX2 void dotsAvx2(const uint8_t* tile, const uint8_t* ahead, int head_dim,
                         const int8_t* queries, int heads, int32_t* dots) {
  for (int half = 0; half < 2; ++half) {
    __m256i totals[kHeadsAtOnce];
    for (__m256i& total : totals) total = _mm256_setzero_si256();
    for (int v = 0; v < head_dim / 4; ++v) {
      if (half == 0) fetch(ahead + v * 4 * 2 * Bits, 4 * 2 * Bits);
      const __m256i codes = unpackAvx2<Bits>(tile, head_dim, v, half);
      for (int h = 0; h < heads; ++h) {
        const __m256i query = _mm256_set1_epi32(fourFeatures(queries + h * head_dim + 4 * v));
        totals[h] =
            Bits == 8 ? addBytes(totals[h], codes, query) : addNibbles(totals[h], codes, query);
      }
    }
    for (int h = 0; h < heads; ++h) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(dots + h * kTileKeys + half * 8), totals[h]);
    }
  }
}

#endif  // ALLOT_X86

template <int Bits>
TileDots tileDotsOf(ShadowCode code) {
#ifdef ALLOT_X86
  if (code == ShadowCode::kVnni) return dotsVnni<Bits>;
  if (code == ShadowCode::kAvx2) return dotsAvx2<Bits>;
#endif
  (void)code;
  return dotsPlain<Bits>;
}

TileDots bestTileDots(int bits) {
  static const ShadowCode best = runsHere(ShadowCode::kVnni)   ? ShadowCode::kVnni
                                 : runsHere(ShadowCode::kAvx2) ? ShadowCode::kAvx2
                                                               : ShadowCode::kPlain;
  return tileDots(best, bits);
}

// One query in 8 bits, and what its products need afterwards.
struct Query8 {
  float scale = 0;     // of the scores too
  int32_t offset = 0;  // to subtract from every dot product with unsigned codes
};

Query8 roundQuery(const float* query, int head_dim, int bits, int8_t* to) {
  float largest = 0;
  for (int d = 0; d < head_dim; ++d) largest = std::max(largest, std::fabs(query[d]));
  // The inverse of a smaller number may overflow; such a query counts as zero.
  if (largest < 1e-30f) {
    std::fill_n(to, head_dim, int8_t{0});
    return {};
  }
  const float inverse = kLargestQuery / largest;
  int32_t total = 0;
  for (int d = 0; d < head_dim; ++d) {
    to[d] = static_cast<int8_t>(std::lrintf(query[d] * inverse));
    total += to[d];
  }
  return {largest / kLargestQuery, total << (bits - 1)};
}

// Has no sums of floats, so that no instruction set rounds another way.
ALLOT_CLONES
void scoreTile(const int32_t* dots, const float* scales, const Query8* queries, int heads,
               float* scores, int64_t stride) {
  for (int h = 0; h < heads; ++h, dots += kTileKeys, scores += stride) {
    const int32_t offset = queries[h].offset;
    const float factor = queries[h].scale;
    for (int key = 0; key < kTileKeys; ++key) {
      scores[key] = static_cast<float>(dots[key] - offset) * (factor * scales[key]);
    }
  }
}

// ---- Writing.

// Writes the codes of one key, unsigned. Returns the key's scale.
float quantise(const PagedKv& kv, int64_t key, const float* mean_key, int bits, uint8_t* codes) {
  const int limit = (1 << (bits - 1)) - 1;
  float halves[kMaxHeadDim];
  float largest = 0;
  for (int d = 0; d < kv.head_dim; ++d) {
    // Half the difference: the difference of two finite numbers may not be finite.
    halves[d] = 0.5f * keyAt(kv, key + d) - (mean_key ? 0.5f * mean_key[d] : 0.0f);
    largest = std::max(largest, std::fabs(halves[d]));
  }
  if (largest < 1e-30f) {
    std::fill_n(codes, kv.head_dim, static_cast<uint8_t>(limit + 1));
    return 0;
  }
  const float inverse = static_cast<float>(limit) / largest;
  for (int d = 0; d < kv.head_dim; ++d) {
    codes[d] = static_cast<uint8_t>(std::lrintf(halves[d] * inverse) + limit + 1);
  }
  return 2 * (largest / static_cast<float>(limit));
}

// Puts the codes of one key into its tile; the other keys of the tile stay.
void pack(const uint8_t* codes, int bits, int head_dim, int key, uint8_t* tile) {
  const int step = bits == 8 ? 4 : bits == 4 ? 8 : 16;  // features in 64 bytes
  for (int d = 0; d < head_dim; d += step) {
    uint8_t* vector = tile + d / step * kVector + 4 * key;
    if (bits == 8) {
      store32(vector, load32(codes + d));
    } else if (bits == 4) {
      store32(vector, load32(codes + d) | load32(codes + d + 4) << 4);
    } else {
      uint32_t low = 0;
      for (int part = 0; part < 4; ++part) {
        const uint32_t four = load32(codes + d + 4 * part);
        low |= (four & 0x03030303) << (2 * part);
        // The third bits of four features, one a byte, to one nibble.
        const uint32_t nibble = ((four >> 2 & 0x01010101) * 0x01020408u) >> 24 & 0x0f;
        uint8_t* byte = tile + thirdBits(head_dim) + (d / 4 + part) * 8 + key / 2;
        const int shift = key % 2 * 4;
        *byte = static_cast<uint8_t>((*byte & ~(0x0f << shift)) | nibble << shift);
      }
      store32(vector, low);
    }
  }
}

}  // namespace

bool runsHere(ShadowCode code) {
#ifdef ALLOT_X86
  if (code == ShadowCode::kVnni) {
    return __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl");
  }
  if (code == ShadowCode::kAvx2) return __builtin_cpu_supports("avx2");
#endif
  return code == ShadowCode::kPlain;
}

TileDots tileDots(ShadowCode code, int bits) {
  return bits == 8 ? tileDotsOf<8>(code) : bits == 4 ? tileDotsOf<4>(code) : tileDotsOf<3>(code);
}

void shadowScores(const KeyRange& keys, int bits, const float* queries, int group, float scale,
                  float* scores, int64_t stride) {
  const PagedKv& kv = *keys.kv;
  const KeyShadow& shadow = *kv.shadow(bits);
  assert(kv.head_dim <= kMaxHeadDim && kv.page_size % kTileKeys == 0);
  const TileDots dots = bestTileDots(bits);
  const size_t tile_bytes = shadow.tileBytes(kv.head_dim);
  const auto position = [&](int start) {
    return kv.offset(keys.pages[start / kv.page_size], keys.kv_head, start % kv.page_size) /
           kv.head_dim;
  };
  for (int first = 0; first < group; first += kHeadsAtOnce) {
    const int heads = std::min(kHeadsAtOnce, group - first);
    alignas(kVector) int8_t rounded[kHeadsAtOnce * kMaxHeadDim];
    Query8 query[kHeadsAtOnce];
    for (int h = 0; h < heads; ++h) {
      query[h] = roundQuery(queries + static_cast<int64_t>(first + h) * kv.head_dim, kv.head_dim,
                            bits, rounded + h * kv.head_dim);
      query[h].scale *= scale;
    }
    for (int start = keys.first / kTileKeys * kTileKeys; start < keys.n; start += kTileKeys) {
      const int64_t at = position(start);
      const int64_t later = position(std::min(start + kAhead, keys.n - 1));
      __builtin_prefetch(shadow.scales + later);
      int32_t products[kHeadsAtOnce * kTileKeys];
      dots(shadow.codes + at / kTileKeys * tile_bytes,
           shadow.codes + later / kTileKeys * tile_bytes, kv.head_dim, rounded, heads, products);
      scoreTile(products, shadow.scales + at, query, heads, scores + first * stride + start,
                stride);
    }
  }
}

void writeShadow(const KeyShadow& shadow, const PagedKv& kv, const int32_t* pages, int kv_head,
                 int start, int count) {
  assert(kv.head_dim <= kMaxHeadDim && kv.page_size % kTileKeys == 0);
  const size_t tile_bytes = shadow.tileBytes(kv.head_dim);
  const float* mean_key =
      kv.mean_keys
          ? kv.mean_keys + (static_cast<int64_t>(pages[0]) * kv.kv_heads + kv_head) * kv.head_dim
          : nullptr;
  for (int j = start; j < start + count; ++j) {
    const int64_t key = kv.offset(pages[j / kv.page_size], kv_head, j % kv.page_size);
    const int64_t position = key / kv.head_dim;
    uint8_t codes[kMaxHeadDim];
    shadow.scales[position] = quantise(kv, key, mean_key, shadow.bits, codes);
    pack(codes, shadow.bits, kv.head_dim, static_cast<int>(position % kTileKeys),
         shadow.codes + position / kTileKeys * tile_bytes);
  }
}

}  // namespace allot::kernels
