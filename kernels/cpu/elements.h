#pragma once
// Loads of sixteen or eight elements of the cache as floats, and prefetching. Private to
// kernels/cpu; any thread.
#include "allot/kernels/paged_kv.h"
#include "kernels/cpu/simd.h"

namespace allot::kernels {

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
