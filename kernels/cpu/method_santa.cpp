// SANTA: S independent draws from the softmax, averaged (SANTA paper, Section 2). Unbiased with
// trace of covariance (sum_j a_j |v_j|^2 - |o|^2) / S (Propositions A.2 and A.3).
#include "kernels/cpu/draws.h"

namespace allot::kernels {

void selectSanta(const Head& head, Selection* selection) {
  selection->thresholds.resize(head.budget);
  uint64_t* thresholds = selection->thresholds.data();
  independentThresholds(head, head.weight_total, head.budget, thresholds);
  addDraws(head, thresholds, head.budget, 1.0f / static_cast<float>(head.budget), selection);
}

}  // namespace allot::kernels
