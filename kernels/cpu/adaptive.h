#pragma once
// Attention by heavy keys and a uniform sample of the tail, whose size follows from an error bound:
// the common part of vattention and adaptive-denominator (vAttention, ICLR 2026, Algorithm 2).
// Private to kernels/cpu. Pure functions, any thread.
//
// Keys that are not masked are split into
//   I_f   always read: the first `sink`, the last `local`, and of the keys between them the
//         ceil(heavy * count) with the largest scores. Scores are q.k, or q.k~ if the options name
//         a shadow; ties go to the older key. Shares are rounded up; the authors' public code
//         rounds sink and local down.
//   tail  the other n_s keys
// With e_j = exp(s_j - m) and r_j = e_j v_j, sums over the tail are estimated from a sample:
//   1. A pilot of b0 = max(32, ceil(pilot * n_s)) keys gives estimates of D = sum e_j and
//      N = sum r_j over all keys, and of the tail's spread.
//   2. A BudgetRule computes b from these; b0 <= b <= n_s and b <= maxBudget.
//   3. A new sample of b keys, uniform without replacement, gives
//      o^ = (N_f + n_s/b sum r_j) / (D_f + n_s/b sum e_j).
// The sample is new because b depends on the pilot. A pilot that misses the large keys asks for few
// keys; as a part of the sample it would also lower the sums. Given b, a new sample's sums are
// unbiased. If b0 or b reaches n_s, every key is read and o^ is exact. No pilot is drawn if b0 or
// maxBudget alone decides b.
//
// Why at least 32 pilots: keys that a pilot misses do not raise b. A set of keys that makes up a
// share f of the tail is missed with probability (1 - f)^b0. Measured over 720 synthetic cases of
// 120 to 4000 keys (flat to Pareto weights, heavy 0.05, exact and 4-bit scores), vattention exceeds
// epsilon significantly more often than delta in 45 cases with 2 pilots, and in none with 8 (at
// worst as often as delta) or 32 (at worst 0.44 times as often). 8 pilots read 43 % of the value
// rows in the mean, 32 read 51 %. With fewer heavy keys, 0.01 or 0.02, 8 pilots fail in 47 and 23
// cases, 32 in 10 each. The guarantee, like the central limit theorem, needs the heavy keys outside
// of the tail. With heavy = 0 one key of the tail may have most of the weight, and 32 pilots fail
// in 30 cases.
#include "kernels/adaptive_rule.h"
#include "kernels/cpu/methods.h"

namespace allot::kernels {

// A rule for b.
struct BudgetRule {
  bool uses_values = false;  // the pilot's value rows are read
  // Returns how many keys of the tail to sample, before limits; infinity: all.
  double (*rows)(const PilotEstimate&, const MethodOptions&) = nullptr;
};

// The rules of the two methods; see their files.
double vAttentionRows(const PilotEstimate& pilot, const MethodOptions& options);
double adaptiveDenominatorRows(const PilotEstimate& pilot, const MethodOptions& options);

// Selects I_f and a sample of the tail by the rule.
void selectAdaptively(const Head& head, const BudgetRule& rule, Selection* selection);

// Returns z with P(Z > z) = tail for a standard normal Z. The relative accuracy is 1e-13 for tail
// in 1e-300 .. 1 - 1e-3 (absolute near 0.5, where z is 0). Requires: 0 < tail < 1.
double normalUpperQuantile(double tail);

}  // namespace allot::kernels
