// skip-softmax (BLASST, arXiv 2512.12087). Blocks of keys are visited in order, oldest first. A
// block's values are dropped if all its weights, relative to the running maximum, are below a
// threshold. All keys are read. The method is biased, with a promise: no key of attention
// `threshold` or more is dropped, since a dropped key's weight relative to all of the row's scores
// is smaller still.
//
// Blocks are the prefill's: 64 positions, counted from position 0; the window's first and the
// newest block may be shorter. The order matters: some blocks before a large score are read that
// would be dropped after it. Weights are the softmax over the kept keys. The sample budget is
// ignored.
//
// Choices: a block whose keys are all masked is dropped at any threshold. The running maximum is
// one head's: heads of a group drop blocks separately, and a value row that any of them keeps is
// read.
#include <algorithm>
#include <cmath>
#include <limits>

#include "allot/kernels/prefill.h"
#include "kernels/cpu/methods.h"

namespace allot::kernels {

void selectSkipSoftmax(const Head& head, Selection* selection) {
  constexpr float kMasked = -std::numeric_limits<float>::infinity();
  constexpr int kKeys = KeyBlocks{}.key_block;
  const float log_threshold = std::log(static_cast<float>(head.options->threshold));
  float top = kMasked;
  double total = 0;
  for (int start = head.first / kKeys * kKeys; start < head.n; start += kKeys) {
    const int from = std::max(start, head.first), end = std::min(start + kKeys, head.n);
    const float largest = *std::max_element(head.scores + from, head.scores + end);
    if (largest == kMasked || largest - top < log_threshold) continue;
    top = std::max(top, largest);
    for (int j = from; j < end; ++j) {
      selection->add(j, head.exp_weights[j], 1);
      total += static_cast<double>(head.exp_weights[j]);
    }
  }
  // The largest score's block is kept, and its weight is 1.
  for (float& weight : selection->weights) {
    weight = static_cast<float>(static_cast<double>(weight) / total);
  }
  selection->draws += selection->rows.size();
  selection->error_known = false;
  selection->sets_lse = true;
  selection->lse = head.top + static_cast<float>(std::log(total));
}

}  // namespace allot::kernels
