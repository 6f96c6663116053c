// vAttention (ICLR 2026), Algorithm 2 with its guarantee: P(|o^ - o| > epsilon |o|) <= delta, by
// the central limit theorem. The rule bounds both numerator and denominator.
#include "kernels/cpu/adaptive.h"

namespace allot::kernels {

// With b of n_s tail keys, sampled without replacement, the estimates' standard errors are
//   n_s sigma_X sqrt(1/b - 1/n_s),
// X = D (sigma_D the deviation of e_j) or N (sigma_N^2 the trace of the covariance of r_j). Let c_X
// = n_s sigma_X / |X| and h = sqrt(1/b - 1/n_s). By the paper's lemma on sums, X is off by more
// than eps_X |X| with probability at most delta_X if
//   eps_X >= z_X h c_X,  z_X = Phi^-1(1 - delta_X / 2).
// Lemma 4.2: o^ = N^/D^ is then off by at most 2 (eps_N + eps_D) |o|, except with probability
// delta_N + delta_D; so eps_N + eps_D = epsilon / 2 and delta_N + delta_D = delta. How both are
// split is free (Theorem 4.3). Whatever the deltas, the larger of the two budgets is least where
// both are equal, that is eps_N / eps_D = z_N c_N / (z_D c_D); then
//   h (z_N c_N + z_D c_D) = epsilon / 2, or
//   1/b - 1/n_s = (epsilon / 2 / (z_N c_N + z_D c_D))^2.
// Where 1/n_s is left out this is b = ((z_N c_N + z_D c_D) / (epsilon / 2))^2; with it, b <= n_s.
// The best delta_N has no closed form. Of a few splits that are fixed beforehand, each with the
// promise, the one with the fewest rows is used: the smaller share of delta is a half, a quarter,
// ... a 256th. That is at most 1.5 % more rows than the best (tests/kernels/vattention_test.cpp); a
// half alone (split=half) takes up to 31 % more at delta = 0.05 and 42 % more at 0.1, where c_D is
// far below c_N.
//
// An addition to the paper: if the pilot cannot tell N from 0, its estimate says nothing of |N|,
// and every row is wanted (cancelling=all). cancelling=estimate takes the estimate, as the paper
// does, and the promise is then that of heads whose values do not cancel.
//
// For vectors the lemma on sums holds where z_N >= 1.24, up to delta_N = 0.215: among normal
// vectors of one trace, those along a line have the heaviest tail of |X| beyond 1.24 deviations
// (Szekely and Bakirov, 2003). Other splits with a smaller z_N are left out. Halves are always
// kept, though above delta = 0.43 their z_N is smaller, too.
namespace {

constexpr double kLineIsWorst = 1.24;
constexpr int kHalvings = 8;
static_assert(kDeltaSplits == 2 * kHalvings - 1);

void addSplit(double numerator, double denominator, VAttentionRule* rule) {
  const double z = normalUpperQuantile(numerator / 2);
  if (rule->count > 0 && z < kLineIsWorst) return;
  rule->splits[rule->count++] = {z, normalUpperQuantile(denominator / 2) / z};
}

VAttentionRule ruleOf(const MethodOptions& options) {
  VAttentionRule rule{.epsilon = options.epsilon,
                      .z = normalUpperQuantile(options.delta / 4),
                      .trusts_numerator = options.trusts_numerator};
  double small = options.delta / 2;
  addSplit(small, small, &rule);
  for (int i = 1; i < kHalvings && !options.half_delta; ++i) {
    small /= 2;
    addSplit(options.delta - small, small, &rule);
    addSplit(small, options.delta - small, &rule);
  }
  return rule;
}

}  // namespace

const VAttentionRule& vAttentionRule(const MethodOptions& options) {
  thread_local MethodOptions known;
  thread_local VAttentionRule rule = ruleOf(known);
  if (known == options) return rule;
  rule = ruleOf(options);
  known = options;
  return rule;
}

double vAttentionRows(const PilotEstimate& pilot, const MethodOptions& options) {
  return vAttentionRows(pilot, vAttentionRule(options));
}

void selectVAttention(const Head& head, Selection* selection) {
  selectAdaptively(head, budgetRuleOf(Method::kVAttention), selection);
}

}  // namespace allot::kernels
