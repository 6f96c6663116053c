#pragma once
// The integers that a group's draws are made from (cpu/group_draws.h has the definition). One text
// for CPU and GPU, so that both select the same keys if their weights are equal. Private to
// kernels/. Pure functions, host and device, any thread.
#include <cmath>
#include <cstdint>

#include "allot/kernels/philox.h"

namespace allot::kernels {

constexpr int kPieceKeys = 256;
constexpr int kWeightBits = 30;  // of the weight 1
constexpr int kKeptBits = 9;     // binary digits of W_h below a weight's unit
constexpr int kLostGap = 48;     // a piece this far below the head's largest weight has no weight
// Keys of a row from which on W_h might have more than 63 binary digits.
constexpr int kTooManyKeys = 1 << 24;

// Returns a piece's sum of weights in the unit of W_h: weight 2^(kKeptBits - gap), rounded to
// nearest, ties up; 0 from a gap of kLostGap on. gap: E_h - E_ht, 0 to 63.
// Requires: weight is below 2^54.
ALLOT_HOST_DEVICE inline uint64_t inHeadUnits(uint64_t weight, int gap) {
  const uint64_t half = (uint64_t{1} << gap) >> 1;
  const uint64_t rounded = ((weight << kKeptBits) + half) >> gap;
  return gap < kLostGap ? rounded : 0;
}

// Returns U_h = ceil(2^69 b_h / B / W_h). total: W_h.
// Requires: total is at least 2^38, as that of a head with a weight above 1/2 is.
ALLOT_HOST_DEVICE inline uint32_t headFactor(double budget_share, uint64_t total) {
  return static_cast<uint32_t>(std::ceil(budget_share * 0x1p69 / static_cast<double>(total)));
}

// Returns U_ht = ceil(U_h / 2^gap); 0 from a gap of kLostGap on.
ALLOT_HOST_DEVICE inline uint32_t pieceFactor(uint32_t factor, int gap) {
  const uint32_t divided = (gap < 32 ? (factor - 1) >> gap : 0) + 1;
  return factor > 0 && gap < kLostGap ? divided : 0;
}

}  // namespace allot::kernels
