#pragma once
// Defaults that follow from other keys, and rules that join keys: of spec.task for its suite, and
// of the steps of each learner. Part of core/spec; pure functions, any thread.
#include <optional>
#include <string>

#include "allot/v1/experiment.pb.h"

namespace allot {

// Fills what the file leaves out and the suite decides. Keys that mean nothing for a suite stay
// empty, so that equal experiments have equal bytes.
void deriveTaskDefaults(v1::Task& task);

struct SpecProblem {
  std::string path;  // "spec.task.tasks[1]"
  std::string what;
};
std::optional<SpecProblem> taskProblem(const v1::Task& task);

// Fills optimizer, learningRate, baseline and staleness.mode where they are unset, by the learner.
void deriveSteps(v1::Spec& spec);

// The first key by which a run of learner santa would be something else than Algorithm 1 of the
// SANTA paper, which leaves nothing open but its rate and its number of episodes.
std::optional<SpecProblem> santaProblem(const v1::Spec& spec);

// The first key of a step that the learner does not make, given another value than its default.
// Only of the keys that may change while a run goes on.
std::optional<SpecProblem> idleStepProblem(const v1::Spec& spec);

}  // namespace allot
