// The budget rule of the sparse-attention-hub's AdaptiveSampling, the public code of vAttention's
// authors, under a name of its own: it bounds the denominator's error alone, and on one side, so it
// does not claim what the paper's Algorithm 2 and vattention here do.
//   b = (Phi^-1(1 - delta) sigma_D n_s / (epsilon D^))^2
// All else is vattention's, so that a comparison is one of rules. What the hub's code does besides
// and is not reproduced here: keys are drawn with replacement and duplicates collapse while their
// weight stays n_s / b, which loses (1 - (1 - e^-f) / f) of the tail at f = b / n_s; sink, local
// and heavy keys stay in the population, so draws are spent on them, they inflate sigma and they
// count twice in D^; weights are rounded to the model's element; two pilots are enough.
#include <cmath>

#include "kernels/cpu/adaptive.h"

namespace allot::kernels {

DenominatorRule denominatorRule(const MethodOptions& options) {
  // The quantile is negative if delta > 1/2: then any sample is large enough.
  return {options.epsilon, std::fmax(0.0, normalUpperQuantile(options.delta))};
}

double adaptiveDenominatorRows(const PilotEstimate& pilot, const MethodOptions& options) {
  return denominatorRows(pilot, denominatorRule(options));
}

void selectAdaptiveDenominator(const Head& head, Selection* selection) {
  selectAdaptively(head, budgetRuleOf(Method::kAdaptiveDenominator), selection);
}

}  // namespace allot::kernels
