// Systematic sampling: one offset u for draws at equal distances (SANTA paper, Section 2.1). Counts
// are c_j = floor(S F_j + u) - floor(S F_{j-1} + u): floor or ceil of S a_j, summing to S.
#include "kernels/cpu/draws.h"

namespace allot::kernels {

void selectS2antaSys(const Head& head, Selection* selection) {
  selection->thresholds.resize(head.budget);
  uint64_t* thresholds = selection->thresholds.data();
  systematicThresholds(head.weight_total, head.budget, offsetOf(head.random(0)[0]), thresholds);
  addDraws(head, thresholds, head.budget, 1.0f / static_cast<float>(head.budget), selection);
}

}  // namespace allot::kernels
