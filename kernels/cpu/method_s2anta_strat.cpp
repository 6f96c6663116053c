// Stratified sampling: one independent draw in each of S strata of equal weight (SANTA paper,
// Section 2.1). Unbiased, and never of more variance than independent draws (Theorem A.6).
#include "kernels/cpu/draws.h"

namespace allot::kernels {

void selectS2antaStrat(const Head& head, Selection* selection) {
  selection->thresholds.resize(head.budget);
  uint64_t* thresholds = selection->thresholds.data();
  stratifiedThresholds(head, head.weight_total, head.budget, thresholds);
  addDraws(head, thresholds, head.budget, 1.0f / static_cast<float>(head.budget), selection);
}

}  // namespace allot::kernels
