#include "core/learning/allotment.h"

#include <algorithm>
#include <cassert>
#include <vector>

namespace allot {

uint32_t allotmentStep(uint32_t free_draws) {
  return std::max<uint32_t>(1, (free_draws + kAllotmentSteps - 1) / kAllotmentSteps);
}

SampleSchedule bestSchedule(uint32_t layers, uint32_t total, uint32_t min_per_layer,
                            const std::function<double(uint32_t layer, uint32_t draws)>& value) {
  assert(layers > 0 && uint64_t{layers} * min_per_layer <= total);
  const uint32_t free_draws = total - layers * min_per_layer, step = allotmentStep(free_draws);
  const uint32_t steps = free_draws / step;
  // best[t]: of the layers so far, with t steps in all; taken[l][t]: how many of them layer l has.
  std::vector<double> best(steps + 1), before, worth(steps + 1);
  std::vector<std::vector<uint32_t>> taken(layers, std::vector<uint32_t>(steps + 1));
  for (uint32_t l = 0; l < layers; ++l) {
    for (uint32_t n = 0; n <= steps; ++n) worth[n] = value(l, min_per_layer + n * step);
    if (l == 0) {
      best = worth;
      for (uint32_t t = 0; t <= steps; ++t) taken[0][t] = t;
      continue;
    }
    before = best;
    for (uint32_t t = 0; t <= steps; ++t) {
      best[t] = before[t] + worth[0];
      taken[l][t] = 0;
      for (uint32_t n = 1; n <= t; ++n) {
        const double sum = before[t - n] + worth[n];
        if (sum > best[t]) {
          best[t] = sum;
          taken[l][t] = n;
        }
      }
    }
  }
  SampleSchedule schedule(layers);
  uint32_t left = steps;
  for (uint32_t l = layers; l-- > 0;) {
    schedule[l] = min_per_layer + taken[l][left] * step;
    left -= taken[l][left];
  }
  *std::max_element(schedule.begin(), schedule.end()) += free_draws - steps * step;
  return schedule;
}

}  // namespace allot
