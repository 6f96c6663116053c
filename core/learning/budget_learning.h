#pragma once
// An update of a run that learns by total budgets (learnsByBudgets, core/learning/policy.h): what
// applyUpdate does where the policy holds budgets. For each of them the results are added to their
// question sets, the learner hears of them, the trial decides what is published, and the next
// episodes' schedules are proposed. Pure; any thread.
#include <cstdint>
#include <vector>

#include "allot/v1/experiment.pb.h"
#include "allot/v1/policy.pb.h"
#include "allot/v1/result.pb.h"
#include "core/result.h"
#include "core/spec/model_shape.h"

namespace allot {

// Version 0: uniform is published, and the learner's first proposals stand. state->policy() has its
// logits already.
void beginBudgets(const v1::Experiment& experiment, const ModelShape& shape,
                  v1::AggregatorState* state);

// What the surrogate believes a layer's reads to be worth at one total budget.
struct LayerWorth {
  uint32_t draws = 0;  // of each of its heads: the uniform schedule's, or 1
  // Reward that a layer without any would lose, and its 95 % interval.
  double mean = 0;
  double low = 0;
  double high = 0;
};
// [layers]; empty of a learner that has no surrogate. Costs what AdditivePosterior does.
std::vector<LayerWorth> layerWorths(const v1::Spec& spec, const v1::AggregatorState& state,
                                    int budget);

// Learns from the results of one total budget: state->policy() is of the version that this update
// makes, its budget that of the version before. Fills record's weights and baselines of those
// results. Returns the square of the gradient's norm, 0 without one.
double learnBudget(const v1::Experiment& experiment, const std::vector<v1::EpisodeResult>& results,
                   int budget, v1::AggregatorState* state, v1::IterationRecord* record);

}  // namespace allot
