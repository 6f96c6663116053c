// Stratified sampling: one independent draw in each of S strata of equal weight (SANTA paper,
// Section 2.1). Unbiased, and never of more variance than independent draws (Theorem A.6).
#include "kernels/cpu/draws.h"

namespace allot::kernels {

void selectS2antaStrat(const Head& head, Selection* selection) {
  __extension__ using Wide = unsigned __int128;
  const uint32_t samples = head.budget;
  selection->thresholds.resize(samples);
  const uint64_t divisor = static_cast<uint64_t>(samples) << 32;
  std::array<uint32_t, 4> words{};
  for (uint32_t m = 0; m < samples; ++m) {
    if (m % 4 == 0) words = head.random(m / 4);
    const Wide place = (static_cast<uint64_t>(m) << 32) | words[m % 4];
    selection->thresholds[m] = static_cast<uint64_t>(place * head.weight_total / divisor);
  }
  addDraws(head, selection->thresholds.data(), samples, 1.0f / static_cast<float>(samples),
           selection);
}

}  // namespace allot::kernels
