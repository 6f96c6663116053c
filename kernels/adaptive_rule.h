#pragma once
// The arithmetic of adaptive budgets, for the CPU and the GPU: the numbers of heavy keys and of
// pilot keys, the pilot's estimates, and the budgets of vattention and adaptive-denominator.
// kernels/cpu/adaptive.h describes the algorithm.
//
// Private to kernels/. Any thread.
#include <cmath>
#include <cstdint>

#include "allot/kernels/philox_streams.h"

namespace allot::kernels {

struct MethodOptions;

constexpr int kMinimumPilot = 32;

// Returns ceil(share * count - 1e-9), at most count: 0.07 of 100 is 7 in spite of rounding.
ALLOT_HOST_DEVICE inline int shareOf(double share, int count) {
  const double wanted = ceil(share * count - 1e-9);
  return wanted < count ? static_cast<int>(wanted) : count;
}

// Returns `share` of n, rounded up, if share > 0, else `count`; at most n.
ALLOT_HOST_DEVICE inline int countOrShare(uint32_t count, double share, int n) {
  if (share > 0) return shareOf(share, n);
  return count < static_cast<uint32_t>(n) ? static_cast<int>(count) : n;
}

// What a pilot estimates for one head. Symbols are those of kernels/cpu/adaptive.h.
struct PilotEstimate {
  double tail = 0;                // n_s
  double denominator = 0;         // D, estimated
  double denominator_spread = 0;  // standard deviation of e_j over the tail
  // If the rule uses values:
  double numerator_square = 0;  // |N^|^2
  double numerator_noise = 0;   // E|N^ - N|^2
  double numerator_spread = 0;  // sqrt(Tr Cov r_j) over the tail
};

// Sums over a pilot of `rows` keys of the tail. Symbols are those of kernels/cpu/adaptive.h.
struct PilotSums {
  double tail = 0;  // n_s
  double rows = 0;
  double fixed = 0;    // sum of e over the keys that are always read
  double exp_sum = 0;  // sum of e over the pilot
  double squares = 0;  // sum of e^2 over the pilot
  // If the rule uses values:
  double norms = 0;       // sum of |r|^2 over the pilot
  double pilot_norm = 0;  // |sum of r over the pilot|^2
  double whole_norm = 0;  // |sum of r over I_f + n_s / rows sum of r over the pilot|^2
};

// Computes the estimates from a pilot's sums.
ALLOT_HOST_DEVICE inline PilotEstimate estimateOf(const PilotSums& s, bool uses_values) {
  const double scale = s.tail / s.rows;
  PilotEstimate estimate;
  estimate.tail = s.tail;
  estimate.denominator = s.fixed + scale * s.exp_sum;
  estimate.denominator_spread =
      sqrt(fmax(0.0, s.squares - s.exp_sum * s.exp_sum / s.rows) / (s.rows - 1));
  if (!uses_values) return estimate;
  const double trace = fmax(0.0, s.norms - s.pilot_norm / s.rows) / (s.rows - 1);
  estimate.numerator_square = s.whole_norm;
  estimate.numerator_noise = scale * (s.tail - s.rows) * trace;
  estimate.numerator_spread = sqrt(trace);
  return estimate;
}

// One split of delta between numerator and denominator.
struct DeltaSplit {
  double z;      // the numerator's: Phi^-1(1 - delta_N / 2), delta_N its part of delta
  double ratio;  // the denominator's z over the numerator's
};
constexpr int kDeltaSplits = 15;

// vattention's rule for one epsilon and delta (kernels/cpu/method_vattention.cpp derives it).
struct VAttentionRule {
  double epsilon = 0;
  double z = 0;  // Phi^-1(1 - delta / 4)
  bool trusts_numerator = false;
  int count = 0;  // of splits, at least 1
  DeltaSplit splits[kDeltaSplits] = {};
};

// Returns the pilot's estimate of |N|.
ALLOT_HOST_DEVICE inline double numeratorOf(const PilotEstimate& pilot,
                                            const VAttentionRule& rule) {
  const double square = pilot.numerator_square, noise = pilot.numerator_noise;
  if (rule.trusts_numerator) return sqrt(square);
  // E|N^|^2 = |N|^2 + E|N^ - N|^2, and `noise` estimates the last term. Without subtracting it, a
  // sum of values that nearly cancel would look large and its relative error small. If the square
  // is within 1 + z^2 times the noise, N may be 0, and no sample is enough.
  return square > (1 + rule.z * rule.z) * noise ? sqrt(square - noise) : 0.0;
}

// Returns how many keys of the tail vattention samples (vAttention, ICLR 2026, Algorithm 2), before
// limitedRows().
ALLOT_HOST_DEVICE inline double vAttentionRows(const PilotEstimate& pilot,
                                               const VAttentionRule& rule) {
  const double n = pilot.numerator_spread > 0
                       ? pilot.tail * pilot.numerator_spread / numeratorOf(pilot, rule)
                       : 0.0;
  const double d = pilot.denominator_spread > 0
                       ? pilot.tail * pilot.denominator_spread / pilot.denominator
                       : 0.0;
  double least = rule.splits[0].z * (n + d * rule.splits[0].ratio);
  for (int i = 1; i < rule.count; ++i) {
    least = fmin(least, rule.splits[i].z * (n + d * rule.splits[i].ratio));
  }
  const double h = least / (rule.epsilon / 2);
  return 1 / (1 / (h * h) + 1 / pilot.tail);
}

// adaptive-denominator's rule for one epsilon and delta
// (kernels/cpu/method_adaptive_denominator.cpp).
struct DenominatorRule {
  double epsilon = 0;
  double z = 0;  // Phi^-1(1 - delta), or 0 if that is negative
};

// Returns how many keys of the tail adaptive-denominator samples, before limitedRows(); infinity:
// all.
ALLOT_HOST_DEVICE inline double denominatorRows(const PilotEstimate& pilot,
                                                const DenominatorRule& rule) {
  if (!(pilot.denominator > 0)) return HUGE_VAL;
  const double deviations =
      rule.z * pilot.denominator_spread * pilot.tail / (rule.epsilon * pilot.denominator);
  return deviations * deviations;
}

// Returns `wanted`, rounded up, at least `pilots` and at most `most`.
ALLOT_HOST_DEVICE inline int limitedRows(double wanted, int pilots, int most) {
  const double rows = ceil(wanted);
  if (!(rows < most)) return most;
  return rows > pilots ? static_cast<int>(rows) : pilots;
}

// Returns the rule of vattention's options, valid until the calling thread's next call.
const VAttentionRule& vAttentionRule(const MethodOptions& options);

// Returns the rule of adaptive-denominator's options.
DenominatorRule denominatorRule(const MethodOptions& options);

}  // namespace allot::kernels
