#pragma once
// Where a run stands. Pure, any thread.
#include <string_view>

#include "core/words.h"

namespace allot {

// What its aggregator does (AggregatorStatus.phase). After kStopped and kFinished it does nothing
// until a person lets the run go on.
enum class Phase { kStarting, kRunning, kEvaluating, kPaused, kStopped, kFinished };
constexpr std::string_view wordOf(Phase value) {
  switch (value) {
    case Phase::kStarting:
      return "starting";
    case Phase::kRunning:
      return "running";
    case Phase::kEvaluating:
      return "evaluating";
    case Phase::kPaused:
      return "paused";
    case Phase::kStopped:
      return "stopped";
    case Phase::kFinished:
      return "finished";
  }
  return "";
}

}  // namespace allot
