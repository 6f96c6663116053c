#pragma once
// Sixteen floats in GCC's vector extensions. ALLOT_CLONES compiles one source for several
// instruction sets and chooses when the program is loaded. Private to kernels/cpu. Pure functions,
// any thread.
#include <cstdint>
#include <cstring>

namespace allot::kernels {

typedef float Float16 __attribute__((vector_size(64), aligned(4), may_alias));
typedef int32_t Int16 __attribute__((vector_size(64)));
typedef float Float8 __attribute__((vector_size(32)));
typedef float Float4 __attribute__((vector_size(16)));

#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// Builds with the address or thread sanitizer have one plain version: the sanitizer's runtime
// starts after the choice.
#define ALLOT_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define ALLOT_CLONES
#endif
#define ALLOT_INLINE inline __attribute__((always_inline))

// Returns true if the processor has registers of 64 bytes. Otherwise GCC splits a 64-byte vector,
// and a scalar times such a vector goes through memory, about twenty times slower. Products and
// scores are therefore written for 64 and for 32 bytes, with the same bits.
#if defined(__x86_64__)
inline bool hasWideVectors() {
  static const bool has = __builtin_cpu_supports("avx512vl");
  return has;
}
#else
inline bool hasWideVectors() { return false; }
#endif

// Passing 64-byte vectors by value changes the ABI between instruction sets; everything here is
// inlined, so the ABI never matters.
#pragma GCC diagnostic ignored "-Wpsabi"

ALLOT_INLINE const Float16& load(const float* at) { return *reinterpret_cast<const Float16*>(at); }
template <typename Vector>
constexpr int kLanesOf = sizeof(Vector) / sizeof(float);
template <typename Vector>
ALLOT_INLINE Vector loadAs(const float* at) {
  Vector v;
  std::memcpy(&v, at, sizeof v);
  return v;
}
template <typename Vector>
ALLOT_INLINE void store(float* where, const Vector& v) {
  std::memcpy(where, &v, sizeof v);
}
ALLOT_INLINE Float16& at(float* where) { return *reinterpret_cast<Float16*>(where); }

// Returns the sum of the lanes, in one order on every instruction set.
ALLOT_INLINE float sum(const Float16& v) {
  const Float8 low = __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7);
  const Float8 high = __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15);
  const Float8 half = low + high;
  const Float4 quarter = __builtin_shufflevector(half, half, 0, 1, 2, 3) +
                         __builtin_shufflevector(half, half, 4, 5, 6, 7);
  return (quarter[0] + quarter[2]) + (quarter[1] + quarter[3]);
}

// Returns exp(x) to about 2 ulp: 2^k * p(r), with Cody-Waite reduction and a degree-6 polynomial.
// The result is 0 below -87 and for -inf.
// Requires: x <= 88.
ALLOT_INLINE Float16 expOf(Float16 x) {
  const Int16 tiny = x < -87.0f;
  x = tiny ? Float16{} : x;
  const Float16 shifted = x * 1.44269504f + 12582912.0f;  // 1.5 * 2^23: rounds to an integer
  const Float16 k = shifted - 12582912.0f;
  Float16 r = x - k * 0.693359375f;
  r = r - k * -2.12194440e-4f;
  Float16 p = r * 1.3981999507e-3f + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  const Int16 exponent = (__builtin_convertvector(k, Int16) + 127) << 23;
  Float16 power;
  std::memcpy(&power, &exponent, sizeof power);
  return tiny ? Float16{} : p * power;
}

}  // namespace allot::kernels
