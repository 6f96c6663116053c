#pragma once
// The arithmetic of TokenChoice, for host and device. A mass is a token's unnormalised probability
// as an integer, so that sums do not depend on their order. Pure functions, any thread. Private to
// worker/model/.
#include <cstdint>

#include "allot/kernels/philox_streams.h"

namespace allot {

// The mass of the likeliest token. Tokens below half a unit are never drawn. In a vocabulary of
// 2^17 these tokens together have less than a millionth of the likeliest token's probability. Sums
// over 2^24 tokens fit into 64 bits.
constexpr double kTokenMass = 0x1.0p36;

ALLOT_HOST_DEVICE inline uint64_t tokenMass(float logit, float highest, double temperature) {
  const double gap = static_cast<double>(logit) - static_cast<double>(highest);
  return static_cast<uint64_t>(exp(gap / temperature) * kTokenMass + 0.5);
}

// Returns the mass that the likeliest tokens must reach together to be the nucleus, 1..total.
// Requires: total > 0.
ALLOT_HOST_DEVICE inline uint64_t nucleusMass(uint64_t total, double top_p) {
  const auto wanted = static_cast<uint64_t>(ceil(top_p * static_cast<double>(total)));
  if (wanted > total) return total;  // a total above 2^53 may have been rounded up
  return wanted > 0 ? wanted : 1;
}

// Returns a uniform number in 0..total-1. The drawn token is the first, by id, at which the running
// sum of masses exceeds this number.
ALLOT_HOST_DEVICE inline uint64_t drawnMass(uint64_t total, uint64_t seed, uint32_t sequence,
                                            uint32_t step) {
  const auto words = philox(seed, sequence, step, kTokenStream, 0);
  const double u = uniformDouble(words[0], words[1]);
  const auto drawn = static_cast<uint64_t>(u * static_cast<double>(total));
  return drawn < total ? drawn : total - 1;
}

}  // namespace allot
