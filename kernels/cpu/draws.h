#pragma once
// Exact draws from integer weights, and the exact keys of drawn rows. A draw is a threshold t in
// 0..total-1 and selects the key j whose prefix sums satisfy P_{j-1} <= t < P_j. Private to
// kernels/cpu. Pure functions, any thread.
#include <cstdint>

#include "kernels/cpu/methods.h"
#include "kernels/systematic.h"

namespace allot::kernels {

// Writes thresholds [samples] of systematic sampling, ascending. With S = samples and u = offset /
// 2^24, key j has floor(S P_j / total + u) - floor(S P_{j-1} / total + u) draws, in exact
// arithmetic.
// Requires: total and samples are above 0.
void systematicThresholds(uint64_t total, uint32_t samples, uint32_t offset, uint64_t* thresholds);

// Writes thresholds [samples] of independent and of stratified draws, ascending, by the head's
// random stream.
// Requires: as above.
void independentThresholds(const Head& head, uint64_t total, uint32_t samples,
                           uint64_t* thresholds);
void stratifiedThresholds(const Head& head, uint64_t total, uint32_t samples, uint64_t* thresholds);

// Selects the rows of `count` ascending thresholds, each with weight_per_draw times its draws. Adds
// `count` to selection->draws. Prefix sums begin at the head's first key.
void addDraws(const Head& head, const uint64_t* thresholds, uint32_t count, float weight_per_draw,
              Selection* selection);

// Does the same among keys first..last-1. Prefix sums begin at key `first`.
void addDrawsWithin(const Head& head, int first, int last, const uint64_t* thresholds,
                    uint32_t count, float weight_per_draw, Selection* selection);

// Writes the exact scores of the rows selected, bias included, to selection->buffer, and counts
// their keys.
void scoreDrawn(const Head& head, Selection* selection);

// Returns log sum_j exp(s_j) over every key of the head. Overwrites selection->buffer.
double exactLse(const Head& head, Selection* selection);

}  // namespace allot::kernels
