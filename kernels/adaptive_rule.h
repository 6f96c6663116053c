#pragma once
// The arithmetic of adaptive budgets, the same on the CPU and the GPU: how many keys are heavy, how
// many are sampled for a pilot, what the pilot says, and the budgets of vattention and of
// adaptive-denominator. What it is for stands in kernels/cpu/adaptive.h. Private to kernels/; host
// and device.
#include <cmath>
#include <cstdint>

#include "allot/kernels/philox_streams.h"

namespace allot::kernels {

struct MethodOptions;

constexpr int kMinimumPilot = 32;

// ceil(share * count), where a share such as 0.07 of 100 is not to become 8 by rounding.
ALLOT_HOST_DEVICE inline int shareOf(double share, int count) {
  const double wanted = ceil(share * count - 1e-9);
  return wanted < count ? static_cast<int>(wanted) : count;
}

// So many of n keys; or of a share above 0, that share of them, rounded up.
ALLOT_HOST_DEVICE inline int countOrShare(uint32_t count, double share, int n) {
  if (share > 0) return shareOf(share, n);
  return count < static_cast<uint32_t>(n) ? static_cast<int>(count) : n;
}

// What is known of one head before its tail is sampled.
struct PilotEstimate {
  double tail = 0;                // n_s
  double denominator = 0;         // D, estimated
  double denominator_spread = 0;  // standard deviation of e_j over the tail
  // If the rule uses values:
  double numerator_square = 0;  // |N^|^2
  double numerator_noise = 0;   // E|N^ - N|^2
  double numerator_spread = 0;  // sqrt(Tr Cov r_j) over the tail
};

// Sums over a pilot of `rows` keys of the tail's n_s.
struct PilotSums {
  double tail = 0;
  double rows = 0;
  double fixed = 0;    // sum of e over the keys that are always read
  double exp_sum = 0;  // of e over the pilot
  double squares = 0;  // of e^2
  // With values alone:
  double norms = 0;       // of |r|^2
  double pilot_norm = 0;  // |sum of r|^2
  double whole_norm = 0;  // |sum of r over I_f + n_s / rows sum of r over the pilot|^2
};

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

// A way to share delta between numerator and denominator.
struct DeltaSplit {
  double z;      // of the numerator, Phi^-1(1 - delta_N / 2)
  double ratio;  // the denominator's z over that
};
constexpr int kDeltaSplits = 15;

// vattention's rule for one claim (kernels/cpu/method_vattention.cpp makes and derives it).
struct VAttentionRule {
  double epsilon = 0;
  double z = 0;  // Phi^-1(1 - delta / 4)
  bool trusts_numerator = false;
  int count = 0;  // of splits, at least one
  DeltaSplit splits[kDeltaSplits] = {};
};

// |N| by the pilot.
ALLOT_HOST_DEVICE inline double numeratorOf(const PilotEstimate& pilot,
                                            const VAttentionRule& rule) {
  const double square = pilot.numerator_square, noise = pilot.numerator_noise;
  if (rule.trusts_numerator) return sqrt(square);
  // E|N^|^2 = |N|^2 + E|N^ - N|^2, and the second is known. Left in, it would make values that
  // nearly cancel look large, and their relative error small. A sum that the pilot cannot tell from
  // 0 (by the bound that the claim rests on) may be 0: then no sample will do.
  return square > (1 + rule.z * rule.z) * noise ? sqrt(square - noise) : 0.0;
}

// Rows of the tail that vattention samples (vAttention, ICLR 2026, Algorithm 2), before it is
// limited.
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

// adaptive-denominator's rule for one claim (kernels/cpu/method_adaptive_denominator.cpp).
struct DenominatorRule {
  double epsilon = 0;
  double z = 0;  // Phi^-1(1 - delta), 0 where that is negative
};

// Rows of the tail that adaptive-denominator samples, before it is limited; infinity: all.
ALLOT_HOST_DEVICE inline double denominatorRows(const PilotEstimate& pilot,
                                                const DenominatorRule& rule) {
  if (!(pilot.denominator > 0)) return HUGE_VAL;
  const double deviations =
      rule.z * pilot.denominator_spread * pilot.tail / (rule.epsilon * pilot.denominator);
  return deviations * deviations;
}

// The rows that are sampled where `wanted` would be right: at least the pilot's, at most `most`.
ALLOT_HOST_DEVICE inline int limitedRows(double wanted, int pilots, int most) {
  const double rows = ceil(wanted);
  if (!(rows < most)) return most;
  return rows > pilots ? static_cast<int>(rows) : pilots;
}

// What vattention's options ask for. The last one is remembered by each thread: a step has it for
// every head.
const VAttentionRule& vAttentionRule(const MethodOptions& options);

// The same of adaptive-denominator's.
DenominatorRule denominatorRule(const MethodOptions& options);

}  // namespace allot::kernels
