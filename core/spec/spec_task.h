#pragma once
// What spec.task may be for its suite: defaults that follow from the suite, and rules that join
// its keys. Part of core/spec; pure functions, any thread.
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

}  // namespace allot
