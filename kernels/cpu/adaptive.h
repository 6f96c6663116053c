#pragma once
// Attention over all heavy keys and a uniform sample of the others. The sample size follows from an
// error bound. vattention and adaptive-denominator share this code (vAttention, ICLR 2026,
// Algorithm 2). Private to kernels/cpu. Pure functions, any thread.
//
// Keys that are not masked are split into
//   I_f   always read: the first `sink`, the last `local`, and of the `count` keys between them the
//         ceil(heavy * count) with the largest scores. Keys are ranked by their scores, from the
//         shadow if the options name one; ties go to the older key. Shares are rounded up; the
//         authors' public code rounds sink and local down.
//   tail  the other n_s keys
// s_j is the exact score of key j and v_j its value. e_j = exp(s_j - m) and r_j = e_j v_j, where m
// is the largest score among I_f and the pilot in step 1, among I_f and the new sample in step 3.
// Sums over the tail are estimated from samples:
//   1. A pilot of b0 = max(32, ceil(pilot * n_s)) keys of the tail estimates D = sum e_j over all
//      keys and the standard deviation of e_j over the tail. If the rule uses values, it also
//      estimates N = sum r_j and the standard deviation of r_j.
//   2. A BudgetRule computes b from these. b is at least b0 and at most n_s. maxBudget, unless it
//      is 0, limits b even below b0.
//   3. A new sample of b keys, uniform without replacement, gives
//      o^ = (N_f + n_s/b sum r_j) / (D_f + n_s/b sum e_j), with sums N_f, D_f over I_f and the
//      others over the sample.
// The sample is new because b depends on the pilot. If the pilot misses the large keys, b is too
// small; a sample that contained this pilot would also have too small sums. Given b, the sums of a
// new sample are unbiased. If b = n_s, every key is read and o^ is exact. If b0 is at least the
// largest possible b (n_s, or a smaller maxBudget above 0), no pilot is drawn and b is the largest.
//
// Why a pilot has at least 32 keys: keys that a pilot misses do not raise b. A set of keys that
// makes up a share f of the tail is missed with probability (1 - f)^b0 or less. vattention was
// measured over 720 synthetic cases of 120 to 4000 keys, with flat to Pareto weights, exact and
// 4-bit scores. A case fails if the error exceeds epsilon significantly more often than delta.
//   keys of a pilot                                   2    8    32
//   failed cases, heavy = 0.05                       45    0     0
//   failed cases, heavy = 0.02                            23    10
//   failed cases, heavy = 0.01                            47    10
//   worst (rate of such errors) / delta, heavy = 0.05     1.0   0.44
//   value rows read, heavy = 0.05                         43 %  51 %
// The guarantee rests on the central limit theorem for sums over the tail, and so needs the heavy
// keys outside of the tail. With heavy = 0 one key of the tail may have most of the weight, and
// pilots of 32 keys fail in 30 cases.
#include "kernels/adaptive_rule.h"
#include "kernels/cpu/methods.h"

namespace allot::kernels {

// Computes the sample size b of a method.
struct BudgetRule {
  bool uses_values = false;  // the pilot's value rows are read
  // Returns b before its limits; infinity: all keys of the tail.
  double (*rows)(const PilotEstimate&, const MethodOptions&) = nullptr;
};

// Return b before its limits by the methods' rules, as BudgetRule::rows does.
double vAttentionRows(const PilotEstimate& pilot, const MethodOptions& options);
double adaptiveDenominatorRows(const PilotEstimate& pilot, const MethodOptions& options);

// Selects I_f and a sample of the tail, whose size the rule computes, or a larger one of `at_least`
// keys. Heavy keys are those of the largest Head::rank, if there is one.
void selectAdaptively(const Head& head, const BudgetRule& rule, Selection* selection,
                      int at_least = 0);

// Returns the size of that sample by the rule alone. Overwrites the selection.
int adaptiveSample(const Head& head, const BudgetRule& rule, Selection* selection);

// Returns the rule of vattention or of adaptive-denominator.
const BudgetRule& budgetRuleOf(Method method);

// Returns z with P(Z > z) = probability for a standard normal Z. The relative error is below 1e-13
// for probabilities of 1e-300 .. 1 - 1e-3; near 0.5, where z is near 0, the absolute error is.
// Requires: 0 < probability < 1.
double normalUpperQuantile(double probability);

}  // namespace allot::kernels
