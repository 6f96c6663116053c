// Systematic sampling from per-tile masses, as a GPU does it (SANTA paper, Section 3.2, but not its
// rounding). With C_t = S times the mass of tiles 0..t, tile t makes
// floor(C_t + u) - floor(C_{t-1} + u) draws and continues the count inside. A tile needs its own
// weights and one prefix sum over tiles, and the draws are those of global systematic sampling.
// The paper's Algorithms 4 and 5 round S W_t to S_t by largest remainder instead, and give each
// tile an offset of its own: a tile's weight is then S_t / S whatever the offsets, which is not
// W_t, so that estimator is biased. Its figures for prop are those of another method than this one.
#include <algorithm>

#include "kernels/cpu/draws.h"

namespace allot::kernels {

void selectS2antaProp(const Head& head, Selection* selection) {
  const uint32_t samples = head.budget;
  const uint32_t offset = offsetOf(head.random(0)[0]);
  selection->thresholds.resize(samples);
  uint64_t* thresholds = selection->thresholds.data();
  systematicThresholds(head.weight_total, samples, offset, thresholds);
  const int tile = static_cast<int>(head.options->tile_size);
  const float weight = 1.0f / static_cast<float>(samples);
  uint64_t before = 0;  // weight of the tiles passed
  for (int start = head.first / tile * tile; start < head.n; start += tile) {
    const int first = std::max(start, head.first), last = std::min(start + tile, head.n);
    uint64_t mass = 0;
    for (int j = first; j < last; ++j) mass += head.weights[j];
    const uint32_t from = systematicDrawsBelow(before, head.weight_total, samples, offset);
    const uint32_t to = systematicDrawsBelow(before + mass, head.weight_total, samples, offset);
    for (uint32_t m = from; m < to; ++m) thresholds[m] -= before;
    addDrawsWithin(head, first, last, thresholds + from, to - from, weight, selection);
    before += mass;
  }
}

}  // namespace allot::kernels
