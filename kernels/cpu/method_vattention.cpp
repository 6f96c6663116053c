// vAttention (ICLR 2026), Algorithm 2 with its guarantee: P(|o^ - o| > epsilon |o|) <= delta, by
// the central limit theorem. Numerator and denominator both, unlike adaptive-denominator.
#include "kernels/cpu/adaptive.h"

namespace allot::kernels {

// With b of n_s tail keys, sampled without replacement, the estimates' standard errors are
//   n_s sigma_X sqrt(1/b - 1/n_s),
// X = D (sigma_D the deviation of e_j) or N (sigma_N^2 the trace of the covariance of r_j). Let c_X
// = n_s sigma_X / |X| and h = sqrt(1/b - 1/n_s). By the paper's lemma on sums, X is off by more
// than eps_X |X| with probability at most delta_X if
//   eps_X >= z h c_X,  z = Phi^-1(1 - delta_X / 2).
// Lemma 4.2: o^ = N^/D^ is then off by at most 2 (eps_N + eps_D) |o| but for delta_N + delta_D; so
// eps_N + eps_D = epsilon / 2 and delta_N = delta_D = delta / 2, z = Phi^-1(1 - delta / 4).
// The split of epsilon is free (Theorem 4.3). The larger of the two budgets is least where both are
// equal, that is eps_N / eps_D = c_N / c_D; then z h (c_N + c_D) = epsilon / 2, or
//   1/b - 1/n_s = (epsilon / 2 / (z (c_N + c_D)))^2.
// Where 1/n_s is left out this is b = (z (c_N + c_D) / (epsilon / 2))^2; with it, b <= n_s.
//
// For vectors the lemma on sums holds up to delta = 0.43: among normal vectors of one trace, those
// along a line have the heaviest tail of |X| beyond 1.24 deviations (Szekely and Bakirov, 2003).
double vAttentionRows(const PilotEstimate& pilot, const MethodOptions& options) {
  return vAttentionRows(pilot, normalUpperQuantile(options.delta / 4), options.epsilon);
}

void selectVAttention(const Head& head, Selection* selection) {
  selectAdaptively(head, {.uses_values = true, .rows = vAttentionRows}, selection);
}

}  // namespace allot::kernels
