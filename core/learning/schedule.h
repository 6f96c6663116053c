#pragma once
// Schedules: how a total budget is spread over the layers, and the policy they are drawn from.
//
// A schedule is one sample budget per layer; its entries sum to the total budget B. The policy is a
// softmax over layers; a drawn schedule gives every layer minPerLayer and spreads the other
// B - L * minPerLayer draws multinomially (SANTA paper, Appendix K). Where spec.policy.granularity
// is a kind of head, each layer has an entry for each of them, layer by layer, and they sum to B
// times that many: a budget stays draws per head. Pure functions, any thread.
#include <cstdint>
#include <functional>
#include <vector>

#include "core/random_stream.h"

namespace allot {

using SampleSchedule = std::vector<uint32_t>;  // [layers], or [layers * entries of a layer]

// softmax(logits), [layers].
std::vector<double> softmax(const std::vector<double>& logits);

// The schedule of `ticket`: a function of its arguments alone.
// Requires probabilities.size() * min_per_layer <= total.
SampleSchedule drawSchedule(const std::vector<double>& probabilities, uint32_t total,
                            uint32_t min_per_layer, const RunStreams& streams, uint64_t ticket);

// sum_l (n_l - minPerLayer) log pi_l, in nats. The multinomial coefficient is left out: it is the
// same under every policy and cancels in ratios.
double logProbability(const SampleSchedule& schedule, const std::vector<double>& logits,
                      uint32_t min_per_layer);

// The same for every layer as far as integers go; what remains is spread evenly over the depth.
// `total` is B. Each layer has `entries_per_layer` equal entries.
SampleSchedule uniformSchedule(uint32_t total, uint32_t layers, uint32_t entries_per_layer = 1);

// The learned schedule: what the policy expects of trained_total draws, rounded by largest
// remainder (ties to the lower layer). At another total that schedule's shares are scaled, so a
// layer that was given nothing stays at nothing. How shares ought to change with the budget is more
// than a policy trained at one budget knows.
SampleSchedule learnedSchedule(const std::vector<double>& probabilities, uint32_t total,
                               uint32_t min_per_layer, uint32_t trained_total);

// A schedule's shares at another sum of entries, rounded by largest remainder: a layer that has
// nothing stays at nothing. Requires that some layer has something, or that `total` is 0.
SampleSchedule scaledSchedule(const SampleSchedule& schedule, uint32_t total);

// SANTA paper, Appendix J: `layer` at one draw, every other layer at its uniform share of total.
SampleSchedule oneHotSchedule(uint32_t total, uint32_t layers, uint32_t layer);

// ---- The best schedule for additive values, by an exact dynamic programme ----

// Draws go in steps: with large totals a layer has 0, step, 2 * step, ... of them beyond
// min_per_layer, so that a programme has at most this many of them.
inline constexpr uint32_t kAllotmentSteps = 128;
uint32_t allotmentStep(uint32_t free_draws);

// Returns the schedule with the largest sum of value(layer, draws). Ties go to fewer draws in the
// later layer. `value` is called once for each layer and each number of draws that it may have.
// The remainder of the step goes to the layer with the most draws, the lowest of several.
// Requires: layers > 0 and layers * min_per_layer <= total.
SampleSchedule bestSchedule(uint32_t layers, uint32_t total, uint32_t min_per_layer,
                            const std::function<double(uint32_t layer, uint32_t draws)>& value);

}  // namespace allot
