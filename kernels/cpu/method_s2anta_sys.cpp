// Systematic sampling: one offset u, thresholds (u + m) / S, m = 0..S-1 (SANTA paper, Section 3.2).
// Counts are c_j = floor(S F_j + u) - floor(S F_{j-1} + u): floor or ceil of S a_j, summing to S.
#include <cmath>

#include "kernels/cpu/methods.h"

namespace allot::kernels {

void selectS2antaSys(const HeadProbabilities& head, Selection* selection) {
  const double u = uniformFloat(head.random(0)[0]);
  const double samples = head.budget;
  const double rate = samples / head.total;
  const float weight = 1.0f / static_cast<float>(head.budget);
  double before = 0;  // mass of the blocks passed
  double taken = 0;   // floor(S F + u) so far; floor(u) = 0
  for (int b = 0; taken < samples; ++b) {
    const double after = before + blockSum(head.mass, b);
    // Where all mass is passed the count is S: u < 1 says so, and rounding must not say otherwise.
    const double block_end = after >= head.total ? samples : std::floor(after * rate + u);
    if (block_end > taken) {
      const int last = lastPositive(head.mass, b);
      double prefix = before;
      for (int j = b * kBlock; taken < block_end; ++j) {
        prefix += head.mass[j];
        // The block's last key closes it, so that blocks agree at the seam.
        const double reached =
            j == last ? block_end : std::fmin(std::floor(prefix * rate + u), block_end);
        if (reached > taken) {
          selection->add(j, static_cast<float>(reached - taken) * weight);
          taken = reached;
        }
      }
    }
    before = after;
  }
  selection->draws = head.budget;
}

}  // namespace allot::kernels
