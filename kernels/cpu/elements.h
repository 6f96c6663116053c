#pragma once
// Loads of sixteen or eight elements of the cache as floats, and prefetching. Elements are float,
// uint16_t (bfloat16) and uint8_t (e4m3). Private to kernels/cpu; any thread.
#include "allot/kernels/paged_kv.h"
#include "kernels/cpu/simd.h"

namespace allot::kernels {

// Returns the argument named after the cache's element.
// Requires: it is not float16.
template <typename What>
constexpr What byElement(Element element, What float32, What bfloat16, What e4m3) {
  return element == Element::kFloat32 ? float32 : element == Element::kE4M3 ? e4m3 : bfloat16;
}

typedef uint16_t Half16 __attribute__((vector_size(32), aligned(2), may_alias));
typedef uint32_t Word16 __attribute__((vector_size(64)));

ALLOT_INLINE Float16 loadElements(const float* at) { return load(at); }

// A bfloat16 is the upper half of a float.
ALLOT_INLINE Float16 loadElements(const uint16_t* at) {
  const Word16 words = __builtin_convertvector(*reinterpret_cast<const Half16*>(at), Word16) << 16;
  Float16 floats;
  std::memcpy(&floats, &words, sizeof floats);
  return floats;
}

typedef int8_t Byte16 __attribute__((vector_size(16), aligned(1), may_alias));
typedef int16_t Short16 __attribute__((vector_size(32)));

// Widens e4m3 codes, which are sign-extended to a word each. The exponent's bias is 7, and a
// float's is 127. Below 2^-6 the code's bits with the next exponent are 2^-6 too large; from there
// on this difference is not below the number, so that the smaller of the two is right everywhere.
// GCC 12 compiles a minimum and comparisons that become masks for all lanes at once; of a choice
// between two computed vectors it makes code for each lane.
template <typename Floats, typename Words, typename Ints>
ALLOT_INLINE Floats fromCodes(const Ints& codes) {
  const Words placed = reinterpret_cast<Words>(codes) << 20;
  const Words bits = placed & 0x07f00000u;
  const Words normal = bits + (120u << 23), lifted = bits + (121u << 23);
  Floats floats;
  std::memcpy(&floats, &lifted, sizeof floats);
  floats -= 0x1p-6f;
  Words words;
  std::memcpy(&words, &floats, sizeof floats);
  words = words < normal ? words : normal;
  const Words nan = reinterpret_cast<Words>(bits == 0x07f00000u) & 0x7fc00000u;
  words |= nan | (placed & 0x80000000u);
  std::memcpy(&floats, &words, sizeof floats);
  return floats;
}

// In two steps, since GCC 12 has code for each lane where bytes become words in one.
ALLOT_INLINE Float16 loadElements(const uint8_t* at) {
  const auto halves = __builtin_convertvector(*reinterpret_cast<const Byte16*>(at), Short16);
  return fromCodes<Float16, Word16>(__builtin_convertvector(halves, Int16));
}

// Loads of eight elements, for processors without registers of 64 bytes.
typedef uint16_t Half8 __attribute__((vector_size(16), aligned(2), may_alias));
typedef uint32_t Word8 __attribute__((vector_size(32)));
ALLOT_INLINE Float8 loadEight(const float* at) { return loadAs<Float8>(at); }
ALLOT_INLINE Float8 loadEight(const uint16_t* at) {
  const Word8 words = __builtin_convertvector(*reinterpret_cast<const Half8*>(at), Word8) << 16;
  Float8 floats;
  std::memcpy(&floats, &words, sizeof floats);
  return floats;
}

typedef int8_t Byte8 __attribute__((vector_size(8), aligned(1), may_alias));
typedef int16_t Short8 __attribute__((vector_size(16)));
typedef int32_t Int8 __attribute__((vector_size(32)));
ALLOT_INLINE Float8 loadEight(const uint8_t* at) {
  const auto halves = __builtin_convertvector(*reinterpret_cast<const Byte8*>(at), Short8);
  return fromCodes<Float8, Word8>(__builtin_convertvector(halves, Int8));
}

// A cache's pages are scattered in memory, so that the processor's own prefetching does not find
// the next one. Decode loops over consecutive keys or values therefore prefetch the rows that they
// reach kAhead rows later, a few cache lines at a time: many at once would only fill the
// processor's queue of requests.
constexpr int kAhead = 32;
// Prefetches `bytes` bytes.
ALLOT_INLINE void fetch(const void* from, size_t bytes) {
  for (size_t i = 0; i < bytes; i += 64) __builtin_prefetch(static_cast<const char*>(from) + i);
}

}  // namespace allot::kernels
