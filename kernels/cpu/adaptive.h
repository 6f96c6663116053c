#pragma once
// Attention by heavy keys and a uniform sample of the tail, as many as an error bound asks for:
// what vattention and adaptive-denominator have in common (vAttention, ICLR 2026, Algorithm 2).
// Private to kernels/cpu.
//
// Keys that are not masked are split into
//   I_f   the first `sink`, the last `local` (counts, or shares of all keys, rounded up as all
//         shares here; the authors' public code rounds these down), and of those between the
//         ceil(heavy * count) with the largest scores (q.k, or q.k~ where the options name a
//         shadow; ties go to the older key); always read
//   tail  the other n_s keys
// With e_j = exp(s_j - m) and r_j = e_j v_j, sums over the tail are estimated from a sample of it:
//   1. a pilot of b0 = max(32, ceil(pilot * n_s)) keys gives estimates of D = sum e_j and
//      N = sum r_j over all keys, and of the tail's spread;
//   2. a BudgetRule turns these into b, kept within b0 <= b <= n_s and b <= maxBudget;
//   3. a fresh sample of b keys, uniform without replacement, gives
//      o^ = (N_f + n_s/b sum r_j) / (D_f + n_s/b sum e_j).
// The sample is fresh because b depends on the pilot: a pilot that misses the large keys asks for
// few rows, and if it were part of the sample it would also pull the sums down. Given b, a fresh
// sample's sums are unbiased. If b0 or b reaches n_s every key is read and o^ is exact; no pilot is
// drawn if b0 or maxBudget alone decides b.
//
// Why at least 32 pilots: what a pilot misses, b is not raised for. A set of keys that makes up a
// share f of the tail is missed with probability (1 - f)^b0. Measured over 720 synthetic cases of
// 120 to 4000 keys (flat to Pareto masses, heavy 0.05, exact and 4-bit scores): with 2 pilots
// vattention exceeds epsilon significantly more often than delta in 45 cases; with 8 in none, at
// worst as often as delta; with 32 in none, at worst 0.44 times as often. 8 read 43 % of the value
// rows in the mean, 32 read 51 %. With fewer heavy keys, 0.01 or 0.02, 8 fail in 47 and 23 cases
// and 32 in 10 each. The claim rests on the heavy keys being out of the tail, as the central limit
// theorem does: with heavy = 0 one key of the tail may carry most of the mass, and 32 pilots fail
// in 30 cases.
#include "kernels/adaptive_rule.h"
#include "kernels/cpu/methods.h"

namespace allot::kernels {

struct BudgetRule {
  bool uses_values = false;  // the pilot's value rows are read
  // Rows of the tail to sample, before it is limited; infinity: all.
  double (*rows)(const PilotEstimate&, const MethodOptions&) = nullptr;
};

// The two rules; see their files.
double vAttentionRows(const PilotEstimate& pilot, const MethodOptions& options);
double adaptiveDenominatorRows(const PilotEstimate& pilot, const MethodOptions& options);

void selectAdaptively(const Head& head, const BudgetRule& rule, Selection* selection);

// z with P(Z > z) = tail for a standard normal Z; 0 < tail < 1. Relative accuracy 1e-13 for tail in
// 1e-300 .. 1 - 1e-3 (absolute near 0.5, where z is 0).
double normalUpperQuantile(double tail);

}  // namespace allot::kernels
