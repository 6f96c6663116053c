#pragma once
// Thresholds of draws one by one, without 128-bit divisions: those of cpu/draws.h, in the order
// drawn. Private to kernels/. Pure functions, host and device, any thread.
#include <array>
#include <cstdint>

#include "allot/kernels/method_names.h"
#include "kernels/systematic.h"

namespace allot::kernels {

// Returns floor(dividend / divisor): a double's quotient, corrected. inverse = 1 / divisor.
// Requires: dividend and divisor are below 2^63.
ALLOT_HOST_DEVICE inline uint64_t quotient(uint64_t dividend, uint64_t divisor, double inverse) {
  uint64_t q = static_cast<uint64_t>(static_cast<double>(dividend) * inverse);
  int64_t rest = static_cast<int64_t>(dividend - q * divisor);
  while (rest < 0) {
    --q;
    rest += static_cast<int64_t>(divisor);
  }
  while (rest >= static_cast<int64_t>(divisor)) {
    ++q;
    rest -= static_cast<int64_t>(divisor);
  }
  return q;
}

// Returns the upper 64 bits of a product.
ALLOT_HOST_DEVICE inline uint64_t upperProduct(uint64_t a, uint64_t b) {
#ifdef __CUDA_ARCH__
  return __umul64hi(a, b);
#else
  __extension__ using Wide = unsigned __int128;
  return static_cast<uint64_t>(static_cast<Wide>(a) * b >> 64);
#endif
}

// The thresholds of `samples` draws: total = samples * step + step_rest; systematic ones start at
// first + rest / samples. They equal the CPU's 128-bit ones, since floor(floor(x / 2^24) / S) is
// floor(x / (2^24 S)).
struct DrawThresholds {
  uint64_t total;
  uint32_t samples;
  uint64_t step, step_rest, first, rest;
  double inverse;  // of samples

  // Requires: 0 < total < 2^62, samples > 0. offset: of systematic draws.
  ALLOT_HOST_DEVICE DrawThresholds(ChosenBy by, uint64_t total_weight, uint32_t draws,
                                   uint32_t offset)
      : total(total_weight), samples(draws), first(0), rest(0) {
    inverse = 1.0 / static_cast<double>(samples);
    step = quotient(total, samples, inverse);
    step_rest = total - step * samples;
    if (by != ChosenBy::kSystematic) return;
    // (2^24 - offset) total - 1, in units of 2^24.
    const uint64_t before = (uint64_t{1} << kOffsetBits) - offset;
    const uint64_t low = before * total;
    const uint64_t high = upperProduct(before, total) - (low == 0);
    const uint64_t start = high << (64 - kOffsetBits) | (low - 1) >> kOffsetBits;
    first = quotient(start, samples, inverse);
    rest = start - first * samples;
  }

  // Returns the threshold of draw m. words(block): four words of the random stream.
  template <typename Words>
  ALLOT_HOST_DEVICE uint64_t at(ChosenBy by, uint32_t m, const Words& words) const {
    if (by == ChosenBy::kStratified) {
      const uint64_t place = words(m / 4)[m % 4];
      // floor((m 2^32 + place) total / (S 2^32))
      const uint64_t low = (place * (total >> 32)) + (place * (total & 0xffffffffu) >> 32);
      return m * step + (m * step_rest + low) / samples;
    }
    if (by == ChosenBy::kIndependent) {
      const std::array<uint32_t, 4> four = words(m / 2);
      const uint64_t random = static_cast<uint64_t>(four[m % 2 * 2]) << 32 | four[m % 2 * 2 + 1];
      return upperProduct(random, total);
    }
    return first + m * step + quotient(rest + m * step_rest, samples, inverse);
  }
};

}  // namespace allot::kernels
