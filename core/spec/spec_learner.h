#pragma once
// What the steps of each learner are made of, where the file leaves it open, and what learner santa
// leaves open. Part of core/spec; pure functions, any thread.
#include <optional>

#include "allot/v1/experiment.pb.h"
#include "core/spec/spec_task.h"

namespace allot {

// Fills optimizer, learningRate, baseline and staleness.mode where they are unset, by the learner.
void deriveSteps(v1::Spec& spec);

// The first key by which a run of learner santa would be something else than Algorithm 1 of the
// SANTA paper, which leaves nothing open but its rate and its number of episodes.
std::optional<SpecProblem> santaProblem(const v1::Spec& spec);

// The first key of a step that the learner does not make, given another value than its default.
// Only of the keys that may change while a run goes on.
std::optional<SpecProblem> idleStepProblem(const v1::Spec& spec);

}  // namespace allot
