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
#include "kernels/cpu/key_scores.h"

namespace allot::kernels {
namespace {

// Writes the exact scores of the rows drawn, bias included, to selection->buffer.
void scoreDrawn(const Head& head, Selection* selection) {
  const auto& rows = selection->rows;
  auto& scores = selection->buffer;
  scores.resize(rows.size());
  const KeyRange keys{head.kv, head.pages, head.kv_head, head.n, head.first};
  exactScoresOf(keys, head.query, head.scale, rows.data(), static_cast<int>(rows.size()),
                scores.data());
  for (size_t i = 0; head.bias && i < rows.size(); ++i) scores[i] += head.bias[rows[i]];
  selection->key_rows += rows.size();
}

// Returns log sum_j exp(s_j) over every key.
double exactLse(const Head& head, Selection* selection) {
  auto& scores = selection->buffer;
  scores.resize(static_cast<size_t>(head.n));
  exactScores({head.kv, head.pages, head.kv_head, head.n, head.first}, head.query, 1, head.scale,
              scores.data(), head.n);
  float top = -std::numeric_limits<float>::infinity();
  for (int j = head.first; j < head.n; ++j) {
    if (head.bias) scores[j] += head.bias[j];
    top = std::max(top, scores[j]);
  }
  double total = 0;
  for (int j = head.first; j < head.n; ++j) total += std::exp(static_cast<double>(scores[j]) - top);
  return top + std::log(total);
}

}  // namespace

void selectS2antaQ4(const Head& head, Selection* selection) {
  selection->thresholds.resize(head.budget);
  uint64_t* thresholds = selection->thresholds.data();
  systematicThresholds(head.weight_total, head.budget, offsetOf(head.random(0)[0]), thresholds);
  addDraws(head, thresholds, head.budget, 1.0f, selection);

  const double proposal_lse = head.top + std::log(head.exp_weight_total);
  const double exact_lse =
      head.options->exact_weights ? exactLse(head, selection) : std::numeric_limits<double>::max();
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
  if (head.options->exact_weights) {
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
