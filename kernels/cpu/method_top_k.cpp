// Top-k: the S largest probabilities, renormalised. The biased baseline; ties go to the older key.
#include <algorithm>
#include <numeric>

#include "kernels/cpu/methods.h"

namespace allot::kernels {

void selectTopK(const HeadProbabilities& head, Selection* selection) {
  int32_t* order = selection->order;
  std::iota(order, order + head.n, 0);
  const auto heavier = [&](int32_t a, int32_t b) {
    return head.mass[a] != head.mass[b] ? head.mass[a] > head.mass[b] : a < b;
  };
  std::nth_element(order, order + head.budget - 1, order + head.n, heavier);
  std::sort(order, order + head.budget);
  double kept = 0;
  for (uint32_t i = 0; i < head.budget; ++i) kept += head.mass[order[i]];
  for (uint32_t i = 0; i < head.budget; ++i) {
    selection->add(order[i], static_cast<float>(head.mass[order[i]] / kept));
  }
  selection->draws = head.budget;
}

}  // namespace allot::kernels
