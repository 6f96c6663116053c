// Top-k: the S keys of the largest scores, renormalised. The biased baseline; ties go to the older
// key. With scores from a shadow the keys kept are read and weighted exactly.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "kernels/cpu/methods.h"

namespace allot::kernels {

void selectTopK(const Head& head, Selection* selection) {
  auto& order = selection->order;
  order.resize(static_cast<size_t>(head.keys()));
  std::iota(order.begin(), order.end(), head.first);
  const auto heavier = [&](int32_t a, int32_t b) {
    return head.scores[a] != head.scores[b] ? head.scores[a] > head.scores[b] : a < b;
  };
  const auto kept = order.begin() + head.budget;
  std::nth_element(order.begin(), kept - 1, order.end(), heavier);
  std::sort(order.begin(), kept);
  const bool exact = head.options->scores == KeyScores::kExact;
  auto& scores = selection->buffer;
  scores.resize(head.budget);
  float top = -std::numeric_limits<float>::infinity();
  for (uint32_t i = 0; i < head.budget; ++i) {
    scores[i] = exact ? head.scores[order[i]] : head.exactScore(order[i]);
    top = std::max(top, scores[i]);
  }
  selection->error_known = false;
  selection->draws += head.budget;
  if (!exact) selection->key_rows += head.budget;
  double total = 0;
  if (std::isfinite(top)) {
    for (float& score : scores) total += score = std::exp(score - top);
  }
  for (uint32_t i = 0; i < head.budget; ++i) {
    const double weight = total > 0 ? scores[i] / total : 0.0;
    selection->add(order[i], static_cast<float>(weight), 1);
  }
  if (!exact) {
    selection->sets_lse = true;
    selection->lse = top + static_cast<float>(std::log(total));
  }
}

}  // namespace allot::kernels
