#pragma once
// Thresholds of draws one by one, without 128-bit divisions: those of cpu/draws.h, in the order
// drawn. Private to kernels/. Pure functions, host and device, any thread.
#include <array>
#include <cstdint>

#include "allot/kernels/method_names.h"
#include "kernels/systematic.h"

namespace allot::kernels {

// Returns the upper 64 bits of a product.
ALLOT_HOST_DEVICE inline uint64_t upperProduct(uint64_t a, uint64_t b) {
#ifdef __CUDA_ARCH__
  return __umul64hi(a, b);
#else
  __extension__ using Wide = unsigned __int128;
  return static_cast<uint64_t>(static_cast<Wide>(a) * b >> 64);
#endif
}

// Returns a reciprocal of a divisor for quotient(): 2^64 / divisor, less at most two.
// Requires: 0 < divisor < 2^62.
ALLOT_HOST_DEVICE inline uint64_t reciprocalOf(uint64_t divisor) {
  // Twice a double's estimate from below: the second divides what the first leaves of 2^64.
  const double inverse = (1 - 0x1p-50) / static_cast<double>(divisor);
  const auto estimate = static_cast<uint64_t>(0x1p64 * inverse);
  const uint64_t rest = 0 - estimate * divisor;
  return estimate + static_cast<uint64_t>(static_cast<double>(rest) * inverse);
}

// Returns floor(dividend / divisor).
// Requires: dividend < 2^63, and divisor as reciprocalOf() does.
ALLOT_HOST_DEVICE inline uint64_t quotient(uint64_t dividend, uint64_t divisor,
                                           uint64_t reciprocal) {
  const uint64_t q = upperProduct(dividend, reciprocal);  // or one less than the quotient
  return q + (dividend - q * divisor >= divisor);
}

// The thresholds of `samples` draws: total = samples * step + step_rest; systematic ones start at
// first + rest / samples. They equal the CPU's 128-bit ones, since floor(floor(x / 2^24) / S) is
// floor(x / (2^24 S)).
struct DrawThresholds {
  uint64_t total;
  uint32_t samples;
  uint64_t step, step_rest, first, rest;
  uint64_t reciprocal;  // of samples

  // Requires: 0 < total < 2^62, samples > 0. offset: of systematic draws. reciprocal_of_draws:
  // reciprocalOf(draws).
  ALLOT_HOST_DEVICE DrawThresholds(ChosenBy by, uint64_t total_weight, uint32_t draws,
                                   uint32_t offset, uint64_t reciprocal_of_draws)
      : total(total_weight), samples(draws), first(0), rest(0), reciprocal(reciprocal_of_draws) {
    step = quotient(total, samples, reciprocal);
    step_rest = total - step * samples;
    if (by != ChosenBy::kSystematic) return;
    // (2^24 - offset) total - 1, in units of 2^24.
    const uint64_t before = (uint64_t{1} << kOffsetBits) - offset;
    const uint64_t low = before * total;
    const uint64_t high = upperProduct(before, total) - (low == 0);
    const uint64_t start = high << (64 - kOffsetBits) | (low - 1) >> kOffsetBits;
    first = quotient(start, samples, reciprocal);
    rest = start - first * samples;
  }

  // Returns the block of the random stream that has draw m's number, and the number in its four
  // words. A systematic draw's is that of all, whose upper bits are the offset.
  ALLOT_HOST_DEVICE static uint32_t blockOf(ChosenBy by, uint32_t m) {
    return by == ChosenBy::kStratified ? m / 4 : by == ChosenBy::kIndependent ? m / 2 : 0;
  }
  ALLOT_HOST_DEVICE static uint64_t numberOf(ChosenBy by, uint32_t m,
                                             const std::array<uint32_t, 4>& words) {
    if (by == ChosenBy::kIndependent) {
      const uint32_t high = m % 2 == 0 ? words[0] : words[2];
      return uint64_t{high} << 32 | (m % 2 == 0 ? words[1] : words[3]);
    }
    if (by != ChosenBy::kStratified) return words[0];
    const uint32_t even = m % 4 < 2 ? words[0] : words[2], odd = m % 4 < 2 ? words[1] : words[3];
    return m % 2 == 0 ? even : odd;
  }

  // Returns the threshold of draw m. number: numberOf() it, or any for a systematic draw.
  ALLOT_HOST_DEVICE uint64_t at(ChosenBy by, uint32_t m, uint64_t number) const {
    if (by == ChosenBy::kIndependent) return upperProduct(number, total);
    if (by == ChosenBy::kStratified) {
      // floor((m 2^32 + number) total / (S 2^32))
      const uint64_t low = (number * (total >> 32)) + (number * (total & 0xffffffffu) >> 32);
      return m * step + quotient(m * step_rest + low, samples, reciprocal);
    }
    return first + m * step + quotient(rest + m * step_rest, samples, reciprocal);
  }
  // The same. words(block): four words of the random stream.
  template <typename Words>
  ALLOT_HOST_DEVICE uint64_t at(ChosenBy by, uint32_t m, const Words& words) const {
    if (by == ChosenBy::kSystematic) return at(by, m, uint64_t{0});
    return at(by, m, numberOf(by, m, words(blockOf(by, m))));
  }
};

}  // namespace allot::kernels
