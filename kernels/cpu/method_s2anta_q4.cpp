// Our method: systematic draws from the softmax of the shadow's scores s~, corrected by the exact
// scores of the drawn rows alone. Importance weights exp(s - s~) are self-normalised. Keys cost
// their shadow and the drawn rows; weights=exact, for analysis, reads all.
//
// The shadow's scores leave out the mean key, one number for every key. The weights do not depend
// on it, and the estimate of the normaliser includes it: sum_j a~_j exp(s_j - s~_j) = sum_j
// exp(s_j) / sum_j exp(s~_j), whatever was added to every s~_j.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/draws.h"

namespace allot::kernels {
void selectS2antaQ4(const Head& head, Selection* selection) {
  selection->thresholds.resize(head.budget);
  uint64_t* thresholds = selection->thresholds.data();
  systematicThresholds(head.weight_total, head.budget, offsetOf(head.random(0)[0]), thresholds);
  addDraws(head, thresholds, head.budget, 1.0f, selection);

  const bool exact = head.options->weights == Weights::kExact;
  const double proposal_lse = head.top + std::log(head.exp_weight_total);
  const double exact_lse = exact ? exactLse(head, selection) : std::numeric_limits<double>::max();
  scoreDrawn(head, selection);
  // log of the importance weight of one draw, up to a constant; the largest is taken out, so that
  // the exponentials neither overflow nor all vanish.
  const auto& scores = selection->buffer;
  const auto& rows = selection->rows;
  double top = -std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < rows.size(); ++i) {
    top = std::max(top, static_cast<double>(scores[i]) - head.scores[rows[i]]);
  }
  auto& sums = selection->sums;
  sums.resize(rows.size());
  double total = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    const double gap = static_cast<double>(scores[i]) - head.scores[rows[i]];
    total += sums[i] = selection->counts[i] * std::exp(gap - top);
  }
  const double estimate = proposal_lse + top + std::log(total / head.budget);
  selection->sets_lse = true;
  selection->lse = static_cast<float>(estimate);
  double factor = 1 / total;
  if (exact) {
    // count_j / S * a_j / a~_j: unbiased, and the weights need not sum to 1.
    factor = std::exp(proposal_lse + top - exact_lse) / head.budget;
    selection->lse = static_cast<float>(exact_lse);
    selection->key_rows = static_cast<uint64_t>(head.keys());
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    selection->weights[i] = static_cast<float>(sums[i] * factor);
  }
}

}  // namespace allot::kernels
