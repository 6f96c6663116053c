#pragma once
// Draws from integer masses, exact: a draw is a threshold t in 0..total-1, and takes the key j
// whose prefix sums satisfy P_{j-1} <= t < P_j. Private to kernels/cpu.
#include <cstdint>

#include "kernels/cpu/methods.h"
#include "kernels/systematic.h"

namespace allot::kernels {

// Systematic sampling's thresholds, m = 0..samples-1, ascending: the counts that they make are
// floor(S P_j / total + u) - floor(S P_{j-1} / total + u), in exact arithmetic.
void systematicThresholds(uint64_t total, uint32_t samples, uint32_t offset, uint64_t* thresholds);

// Adds the rows that `count` ascending thresholds fall on, each with weight_per_draw times its
// draws. Thresholds are relative to all keys.
void addDraws(const Head& head, const uint64_t* thresholds, uint32_t count, float weight_per_draw,
              Selection* selection);

// The same among keys first..last-1 only, thresholds relative to key `first`.
void addDrawsWithin(const Head& head, int first, int last, const uint64_t* thresholds,
                    uint32_t count, float weight_per_draw, Selection* selection);

}  // namespace allot::kernels
