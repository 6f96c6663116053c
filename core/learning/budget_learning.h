#pragma once
// An update of a run that learns by total budgets (learnsByBudgets in core/spec/choices.h). At each
// budget the results are added to their question sets, the learner learns from the results, the
// confirmation decides what is claimed, and the schedules of the next episodes are proposed. Pure;
// any thread.
#include <cstdint>
#include <vector>

#include "allot/v1/experiment.pb.h"
#include "allot/v1/policy.pb.h"
#include "allot/v1/result.pb.h"
#include "core/learning/additive.h"
#include "core/learning/schedule.h"
#include "core/result.h"
#include "core/spec/model_shape.h"

namespace allot {

// Returns the schedule that a candidate has to beat at a total budget: uniform or, if no uniform
// schedule has the price, the measured one; before layers are measured, the surrogate's reference.
// Requires: the problem is of that budget; checkMeasurement() accepts the state's measurement.
SampleSchedule rivalSchedule(const AdditiveProblem& problem, const v1::AggregatorState& state,
                             uint32_t total_budget);

// Adds the budgets and learners of version 0: each budget publishes its rivalSchedule(), and each
// learner's first proposals are set.
// Requires: state->policy() has its logits.
void beginBudgets(const v1::Experiment& experiment, const ModelShape& shape,
                  v1::AggregatorState* state);

// What the surrogate believes a layer's reads to be worth at one total budget.
struct LayerWorth {
  uint32_t draws = 0;  // of each of its heads: as under the uniform schedule, at least 1
  // Reward that would be lost without these draws, and that one standard deviation of the
  // surrogate's belief to either side. Layers are not quite additive, so that these are no
  // confidence bounds.
  double mean = 0;
  double low = 0;
  double high = 0;
};
// [layers] Returns the worth of each layer at the `budget`th total budget. Empty if the learner has
// no surrogate or the state's sizes do not fit. Constructs an AdditivePosterior.
// Requires: the state has a learner and a policy of that budget.
std::vector<LayerWorth> layerWorths(const v1::Spec& spec, const v1::AggregatorState& state,
                                    int budget);

// Learns from the results of the `budget`th (from 0) total budget. Fills record's baselines of
// these results and, if schedules are drawn from logits, their weights. Returns the squared norm of
// the gradient, 0 without one.
// Requires: state->policy() has the version that this update makes; its `budget`th budget has the
// content of the version before. `record` has a weight and a baseline for each result.
double learnBudget(const v1::Experiment& experiment, const std::vector<v1::EpisodeResult>& results,
                   int budget, v1::AggregatorState* state, v1::IterationRecord* record);

}  // namespace allot
