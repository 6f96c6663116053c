#pragma once
// The integers that a group's draws are made from (cpu/group_draws.h has the definition): masses of
// pieces and keys, and the key that a threshold selects. One text for CPU and GPU, so that both
// select the same keys if their mixtures are equal. Private to kernels/. Pure functions, host and
// device, any thread.
#include <cmath>
#include <cstdint>

#include "allot/kernels/philox.h"
#include "kernels/draw_thresholds.h"

namespace allot::kernels {

constexpr int kPieceKeys = 256;
constexpr double kPieceUnits = 0x1p30;  // of all pieces together
constexpr double kKeyUnits = 0x1p24;    // of the keys of one piece
constexpr int kPieceShift = 31;         // binary digits of a piece's unit: the total is below 2^62

// Returns b_h / B for one unit of the head's integer weights, whose sum is `total`.
ALLOT_HOST_DEVICE inline double mixtureUnit(double budget_share, uint64_t total) {
  return budget_share / static_cast<double>(total);
}
// Return the piece's share with a head's part added, and a key's p_j with a head's part added.
ALLOT_HOST_DEVICE inline double addToPiece(double unit, uint64_t weight, double share) {
  return std::fma(unit, static_cast<double>(weight), share);
}
ALLOT_HOST_DEVICE inline float addToKey(float unit, float weight, float proposal) {
  return std::fma(unit, weight, proposal);
}

// Returns M_t = ceil(2^30 P_t).
ALLOT_HOST_DEVICE inline uint64_t pieceMass(double share) {
  return static_cast<uint64_t>(std::ceil(kPieceUnits * share));
}
// Returns the units of a key in its piece for one of p_j.
ALLOT_HOST_DEVICE inline float keyUnits(double piece_share) {
  return static_cast<float>(kKeyUnits / piece_share);
}
// Returns m_j. Requires: proposal is at most twice the piece's share.
ALLOT_HOST_DEVICE inline uint32_t keyMass(float proposal, float units) {
#ifdef __CUDA_ARCH__
  return __float2uint_ru(proposal * units);
#else
  return static_cast<uint32_t>(std::ceil(proposal * units));
#endif
}

// Returns floor(mass 2^31 prefix / piece_total): the piece's integers up to a key whose prefix sum
// is `prefix`. inverse = 1 / piece_total. Requires: mass <= 2^31; prefix <= piece_total < 2^32, and
// piece_total > 0.
ALLOT_HOST_DEVICE inline uint64_t integersUpTo(uint64_t mass, uint64_t prefix, uint64_t piece_total,
                                               double inverse) {
  const uint64_t product = mass * prefix, whole = quotient(product, piece_total, inverse);
  const uint64_t rest = product - whole * piece_total;
  return (whole << kPieceShift) + quotient(rest << kPieceShift, piece_total, inverse);
}

// Returns the smallest product of mass and prefix whose key, or an earlier one, has the integer
// `place` of the piece: integersUpTo() > place exactly if mass * prefix >= productFor().
// Requires: place < mass 2^31; as above.
ALLOT_HOST_DEVICE inline uint64_t productFor(uint64_t place, uint64_t piece_total) {
  const uint64_t next = place + 1, whole = next >> kPieceShift;
  const uint64_t rest = next - (whole << kPieceShift);
  return whole * piece_total +
         ((rest * piece_total + ((uint64_t{1} << kPieceShift) - 1)) >> kPieceShift);
}

}  // namespace allot::kernels
