#pragma once
// Loads of sixteen or eight elements of the cache as floats, and prefetching. Elements are float,
// uint16_t (bfloat16) and uint8_t (e4m3). Private to kernels/cpu; any thread.
#include "allot/kernels/paged_kv.h"
#include "kernels/cpu/simd.h"

namespace allot::kernels {

// Returns what is for the cache's element.
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

typedef uint8_t Byte16 __attribute__((vector_size(16), aligned(1), may_alias));

// Widens e4m3 codes, a word each. The exponent's bias is 7 and a float's is 127. The bits of a
// number below 2^-6 are read as one of the next exponent's, whose 2^-6 is subtracted; the
// difference is exact.
template <typename Floats, typename Words>
ALLOT_INLINE Floats fromCodes(const Words& codes) {
  const Words bits = (codes & 0x7f) << 20;
  const Words lifted = bits + (121u << 23);
  Floats small;
  std::memcpy(&small, &lifted, sizeof small);
  small -= 0x1p-6f;
  Words small_bits;
  std::memcpy(&small_bits, &small, sizeof small);
  Words words = bits < (1u << 23) ? small_bits : bits + (120u << 23);
  words = bits == (0x7fu << 20) ? Words{} + 0x7fc00000u : words;
  words |= (codes & 0x80) << 24;
  Floats floats;
  std::memcpy(&floats, &words, sizeof floats);
  return floats;
}

ALLOT_INLINE Float16 loadElements(const uint8_t* at) {
  return fromCodes<Float16>(__builtin_convertvector(*reinterpret_cast<const Byte16*>(at), Word16));
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

typedef uint8_t Byte8 __attribute__((vector_size(8), aligned(1), may_alias));
ALLOT_INLINE Float8 loadEight(const uint8_t* at) {
  return fromCodes<Float8>(__builtin_convertvector(*reinterpret_cast<const Byte8*>(at), Word8));
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
