#pragma once
// Schedules: how a total budget is spread over the layers, and the policy they are drawn from.
//
// A schedule has one entry, a number of draws, for each layer; except with oneHotSchedule() the
// entries sum to the total budget. If spec.policy.granularity is kv-head or head, schedules of
// episodes have an entry for each of these heads, layer by layer. The entries then sum to the total
// budget times the number of these heads in a layer, so that a budget stays draws per head. A
// policy with logits is a softmax over entries. A drawn schedule gives every entry minPerLayer and
// spreads the other draws multinomially (SANTA paper, Appendix K). Pure functions, any thread.
//
// The reads of a schedule within a price have no given sum: core/learning/priced_schedule.h.
#include <cstdint>
#include <functional>
#include <vector>

#include "core/random_stream.h"

namespace allot {

using SampleSchedule = std::vector<uint32_t>;  // [layers], or [layers * heads of a layer]

// [logits] Returns softmax(logits).
// Requires: logits is not empty.
std::vector<double> softmax(const std::vector<double>& logits);

// Returns the schedule that `ticket` draws, with the sum `total`. It depends on the arguments
// alone.
// Requires: probabilities.size() * min_per_layer <= total.
SampleSchedule drawSchedule(const std::vector<double>& probabilities, uint32_t total,
                            uint32_t min_per_layer, const RunStreams& streams, uint64_t ticket);

// Returns sum_l (n_l - min_per_layer) log pi_l in nats, with pi = softmax(logits). The multinomial
// coefficient is left out: it is equal under every policy and cancels in ratios.
double logProbability(const SampleSchedule& schedule, const std::vector<double>& logits,
                      uint32_t min_per_layer);

// Returns the schedule with `entries_per_layer` entries for each layer, all total / layers. If the
// division leaves a rest, the layers whose entries get one more are spread evenly over the depth.
SampleSchedule uniformSchedule(uint32_t total, uint32_t layers, uint32_t entries_per_layer = 1);

// Returns the expected schedule of `trained_total` draws, rounded by largest remainder (ties to the
// lower layer), and scaled to `total` (scaledSchedule).
// Requires: probabilities.size() * min_per_layer <= trained_total.
SampleSchedule learnedSchedule(const std::vector<double>& probabilities, uint32_t total,
                               uint32_t min_per_layer, uint32_t trained_total);

// Returns the schedule's shares of `total`, rounded by largest remainder. A layer without draws
// stays without draws.
// Requires: a layer has draws, or `total` is 0.
SampleSchedule scaledSchedule(const SampleSchedule& schedule, uint32_t total);

// Returns the uniform schedule of `total`, but with `reads` draws in `layer` (SANTA paper, Appendix
// J, where they are 1).
SampleSchedule oneHotSchedule(uint32_t total, uint32_t layers, uint32_t layer, uint32_t reads = 1);

// ---- The best schedule for additive values, by an exact dynamic programme ----

// The programme gives draws in steps: beyond min_per_layer a layer gets 0, step, 2 * step, ...
// draws. The step is free_draws / kAllotmentSteps, rounded up, and at least 1. free_draws: those
// beyond the minima.
inline constexpr uint32_t kAllotmentSteps = 128;
uint32_t allotmentStep(uint32_t free_draws);

// Returns the schedule of whole steps with the largest sum of value(layer, draws). With entries by
// heads, `layers` and `layer` count entries. Ties go to fewer draws in the later layer. `value` is
// called once for each layer and each number of draws that the layer may have. The draws left over,
// less than a step, go to the layer with the most draws (the lowest of several).
// Requires: layers > 0 and layers * min_per_layer <= total.
SampleSchedule bestSchedule(uint32_t layers, uint32_t total, uint32_t min_per_layer,
                            const std::function<double(uint32_t layer, uint32_t draws)>& value);

}  // namespace allot
