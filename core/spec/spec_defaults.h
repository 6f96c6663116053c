#pragma once
// Defaults that follow from other keys, and rules that join keys: those of spec.task by its suite,
// and those of steps by the learner. Part of core/spec; pure functions, any thread.
#include <optional>
#include <string>

#include "allot/v1/experiment.pb.h"

namespace allot {

// Sets the keys of the task that are missing and that its suite decides. Clears keys that have
// their default and no meaning for the suite, and the default split: equal experiments have equal
// bytes.
void deriveTaskDefaults(v1::Task& task);

struct SpecProblem {
  std::string path;  // "spec.task.tasks[1]"
  std::string what;
};
// Returns the first problem of the task; nothing without one.
// Requires: the catalogue has its suite.
std::optional<SpecProblem> taskProblem(const v1::Task& task);

// Sets optimizer, learningRate, baseline and staleness.mode by the learner, where they are unset.
void deriveSteps(v1::Spec& spec);

// Returns the first key by which learner santa would differ from Algorithm 1 of the SANTA paper,
// which leaves open only its rate and its number of episodes. Nothing for other learners.
std::optional<SpecProblem> santaProblem(const v1::Spec& spec);

// Returns the first of learningRate and entropyBonus that has another value than its default
// although the learner takes no steps.
std::optional<SpecProblem> idleStepProblem(const v1::Spec& spec);

}  // namespace allot
