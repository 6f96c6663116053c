#pragma once
// The state of a run: the desired one, and the aggregator's phase. Pure, any thread.
#include <string_view>

#include "core/words.h"

namespace allot {

// The desired state of a run (Control::desired). People set it, except kFinished, which the
// aggregator sets when nothing is left to do or spec.stop.maxWorkerHours is spent.
enum class Desired { kRunning, kPaused, kStopped, kFinished };
constexpr std::string_view wordOf(Desired value) {
  return wordAt(value, {"running", "paused", "stopped", "finished"});
}

// Returns true if the run is stopped or finished: its workers exit, or wait if they have --stay.
// False for a paused run, whose workers wait.
constexpr bool isOver(Desired desired) {
  return desired == Desired::kStopped || desired == Desired::kFinished;
}

// The activity of the run's aggregator (AggregatorStatus.phase).
enum class Phase { kStarting, kRunning, kEvaluating, kPaused, kStopped, kFinished };
constexpr std::string_view wordOf(Phase value) {
  return wordAt(value, {"starting", "running", "evaluating", "paused", "stopped", "finished"});
}

}  // namespace allot
