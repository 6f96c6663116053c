#pragma once
// Defaults and rules of keys that depend on other keys: those of spec.task on its suite, and those
// of the learner's steps on spec.update.learner. Part of core/spec; pure functions, any thread.
#include <optional>
#include <string>

#include "allot/v1/experiment.pb.h"

namespace allot {

// Sets the keys of the task that are missing and that its suite decides. Clears keys that have
// their default and no meaning for the suite, and the default split, so that equal experiments have
// equal bytes.
void deriveTaskDefaults(v1::Task& task);

struct SpecProblem {
  std::string path;  // "spec.task.tasks[1]"
  std::string what;
};
// Returns the first problem of the task; nothing without one.
// Requires: the catalogue has its suite.
std::optional<SpecProblem> taskProblem(const v1::Task& task);

// Sets those of optimizer, learningRate, baseline and staleness.mode that are unset, by the
// learner.
void deriveSteps(v1::Spec& spec);

// Returns the first key by which learner santa would differ from Algorithm 1 of the SANTA paper,
// which leaves open only the learning rate and the number of episodes. Nothing for other learners.
std::optional<SpecProblem> santaProblem(const v1::Spec& spec);

// Returns the first of learningRate and entropyBonus that has another value than its default
// although the learner takes no steps.
std::optional<SpecProblem> idleStepProblem(const v1::Spec& spec);

}  // namespace allot
