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

namespace allot {

// Version 0: uniform is published, and the learner's first proposals stand. state->policy() has its
// logits already.
void beginBudgets(const v1::Experiment& experiment, v1::AggregatorState* state);

// Whether a state that came from outside is one of this experiment and a model of so many layers;
// of a run that does not learn by budgets, whether it has none. kData says what is wrong.
Status checkBudgets(const v1::Experiment& experiment, uint32_t layers,
                    const v1::AggregatorState& state);

// state->policy() is of the version that this update makes; its budgets are those of the version
// before. Fills record's weights, baselines and gradient norm.
void updateBudgets(const v1::Experiment& experiment, const std::vector<v1::EpisodeResult>& results,
                   v1::AggregatorState* state, v1::IterationRecord* record);

}  // namespace allot
