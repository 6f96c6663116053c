#pragma once
// The best schedule for additive values: how a total is spread so that the sum over layers of what
// each layer's draws are worth is largest. An exact dynamic programme; pure, any thread.
#include <cstdint>
#include <functional>

#include "core/learning/schedule.h"

namespace allot {

// Draws go in steps: with large totals a layer has 0, step, 2 * step, ... of them beyond
// min_per_layer, so that a programme has at most this many of them.
inline constexpr uint32_t kAllotmentSteps = 128;
uint32_t allotmentStep(uint32_t free_draws);

// The schedule with the largest sum of value(layer, draws), ties to fewer draws in the later layer.
// `value` is asked for each layer and each number of draws that it may have, once. What the step
// does not divide goes to the layer with the most draws (the lowest such).
// Requires layers > 0 and layers * min_per_layer <= total.
SampleSchedule bestSchedule(uint32_t layers, uint32_t total, uint32_t min_per_layer,
                            const std::function<double(uint32_t layer, uint32_t draws)>& value);

}  // namespace allot
