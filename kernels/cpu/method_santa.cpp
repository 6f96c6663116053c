// SANTA: S independent draws from the softmax, averaged (SANTA paper, Section 2). Unbiased with
// trace of covariance (sum_j a_j |v_j|^2 - |o|^2) / S (Propositions A.2 and A.3).
#include <algorithm>

#include "kernels/cpu/draws.h"

namespace allot::kernels {

void selectSanta(const Head& head, Selection* selection) {
  __extension__ using Wide = unsigned __int128;
  const uint32_t samples = head.budget;
  auto& thresholds = selection->thresholds;
  thresholds.resize(samples);
  std::array<uint32_t, 4> words{};
  for (uint32_t m = 0; m < samples; ++m) {
    if (m % 2 == 0) words = head.random(m / 2);
    const uint64_t random = static_cast<uint64_t>(words[m % 2 * 2]) << 32 | words[m % 2 * 2 + 1];
    thresholds[m] = static_cast<uint64_t>(static_cast<Wide>(random) * head.weight_total >> 64);
  }
  std::sort(thresholds.begin(), thresholds.end());
  addDraws(head, thresholds.data(), samples, 1.0f / static_cast<float>(samples), selection);
}

}  // namespace allot::kernels
