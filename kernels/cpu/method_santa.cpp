// SANTA: S independent draws from the softmax, averaged (SANTA paper, Section 3.1). Unbiased with
// trace of covariance (sum_j a_j |v_j|^2 - |o|^2) / S.
#include <algorithm>

#include "kernels/cpu/methods.h"

namespace allot::kernels {

void selectSanta(const HeadProbabilities& head, Selection* selection) {
  double* thresholds = selection->thresholds;
  for (uint32_t s = 0; s < head.budget; s += 2) {
    const auto words = head.random(s / 2);
    thresholds[s] = uniformDouble(words[0], words[1]) * head.total;
    if (s + 1 < head.budget) thresholds[s + 1] = uniformDouble(words[2], words[3]) * head.total;
  }
  std::sort(thresholds, thresholds + head.budget);

  const float weight = 1.0f / static_cast<float>(head.budget);
  double before = 0;
  uint32_t next = 0;
  for (int b = 0; next < head.budget; ++b) {
    const double after = before + blockSum(head.mass, b);
    const bool final_block = after >= head.total;
    if (thresholds[next] < after || final_block) {
      const int last = lastPositive(head.mass, b);
      double prefix = before;
      for (int j = b * kBlock; j <= last && next < head.budget; ++j) {
        prefix += head.mass[j];
        // The block's last key takes what rounding left over.
        const double reached = j == last ? after : prefix;
        const uint32_t first = next;
        while (next < head.budget && (thresholds[next] < reached || (final_block && j == last))) {
          ++next;
        }
        if (next > first) selection->add(j, static_cast<float>(next - first) * weight);
      }
    }
    before = after;
  }
  selection->draws = head.budget;
}

}  // namespace allot::kernels
