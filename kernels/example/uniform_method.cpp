// Uniform sampling: one draw in each of S equal stretches of the keys, whatever their scores. A key
// is drawn S / n times on average, so that a weight of a_j n / S a draw makes the mean o.
#include "kernels/example/uniform_method.h"

#include <algorithm>

#include "kernels/cpu/methods.h"

namespace allot::kernels {

void selectUniform(const Head& head, Selection* selection) {
  const int n = head.keys();  // of the window, which begins at head.first
  const uint32_t samples = head.budget;
  std::array<uint32_t, 4> words{};
  for (uint32_t m = 0; m < samples; ++m) {
    if (m % 4 == 0) words = head.random(m / 4);  // Philox, of this sequence, step, layer and head
    const double place = (m + words[m % 4] * 0x1p-32) * n / samples;
    const int key = head.first + std::min(static_cast<int>(place), n - 1);
    const double share = head.exp_weights[key] / head.exp_weight_total;  // a_j
    const auto weight = static_cast<float>(share * n / samples);
    // Rows are distinct; equal draws are neighbours, since stretches ascend.
    if (!selection->rows.empty() && selection->rows.back() == key) {
      selection->weights.back() += weight;
      ++selection->counts.back();
    } else {
      selection->add(key, weight, 1);
    }
  }
  selection->draws = samples;
}

}  // namespace allot::kernels
