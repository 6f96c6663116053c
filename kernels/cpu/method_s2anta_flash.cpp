// One pass over tiles, normalised at the end (SANTA paper, Section 3.3 and Algorithms 6 to 8). Each
// tile of weight W_t makes S_t = max(1, floor(S / T)) systematic draws with its own offset, each of
// weight W_t / S_t. Unbiased, with variance sum_t W_t^2 Var_t(S_t). The reported draws are S_t a
// tile with weight, not S. The paper says S / T "rounded"; its authors' code rounds down, to at
// least one. Tiles have tileSize keys; with tileSize=auto they have 32, 64 or 256 by the row's
// length, as in the authors' kernels.
#include <algorithm>

#include "kernels/cpu/draws.h"

namespace allot::kernels {

void selectS2antaFlash(const Head& head, Selection* selection) {
  const int tile = tileKeys(*head.options, head.keys());
  const auto begin = static_cast<uint32_t>(head.first / tile);  // tiles before have no key
  const auto end = static_cast<uint32_t>((head.n + tile - 1) / tile);
  const uint32_t samples = std::max<uint32_t>(1, head.budget / (end - begin));
  selection->thresholds.resize(samples);
  uint64_t* thresholds = selection->thresholds.data();
  for (uint32_t t = begin; t < end; ++t) {
    const int start = static_cast<int>(t) * tile;
    const int first = std::max(start, head.first), last = std::min(start + tile, head.n);
    uint64_t weight = 0;
    for (int j = first; j < last; ++j) weight += head.weights[j];
    if (weight == 0) continue;  // every key masked, or too light to be drawn from
    systematicThresholds(weight, samples, offsetOf(head.random(t)[0]), thresholds);
    const double share = static_cast<double>(weight) / static_cast<double>(head.weight_total);
    addDrawsWithin(head, first, last, thresholds, samples, static_cast<float>(share / samples),
                   selection);
  }
}

}  // namespace allot::kernels
