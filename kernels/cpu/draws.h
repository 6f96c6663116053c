#pragma once
// Exact draws from integer weights. A draw is a threshold t in 0..total-1 and selects the key j
// whose prefix sums satisfy P_{j-1} <= t < P_j. Private to kernels/cpu. Pure functions, any thread.
#include <cstdint>

#include "kernels/cpu/methods.h"
#include "kernels/systematic.h"

namespace allot::kernels {

// Writes thresholds [samples] of systematic sampling, ascending. With S = samples and u = offset /
// 2^24, key j has floor(S P_j / total + u) - floor(S P_{j-1} / total + u) draws, in exact
// arithmetic.
// Requires: total and samples are above 0.
void systematicThresholds(uint64_t total, uint32_t samples, uint32_t offset, uint64_t* thresholds);

// Selects the rows of `count` ascending thresholds, each with weight_per_draw times its draws. Adds
// `count` to selection->draws. Prefix sums begin at the head's first key.
void addDraws(const Head& head, const uint64_t* thresholds, uint32_t count, float weight_per_draw,
              Selection* selection);

// Does the same among keys first..last-1. Prefix sums begin at key `first`.
void addDrawsWithin(const Head& head, int first, int last, const uint64_t* thresholds,
                    uint32_t count, float weight_per_draw, Selection* selection);

}  // namespace allot::kernels
