#pragma once
// Where a run stands. Pure, any thread.
#include <string_view>

#include "core/words.h"

namespace allot {

// What is wanted of it (Control::desired): by people, but for kFinished, which its aggregator sets
// when nothing is left to do.
enum class Desired { kRunning, kPaused, kStopped, kFinished };
constexpr std::string_view wordOf(Desired value) {
  switch (value) {
    case Desired::kRunning:
      return "running";
    case Desired::kPaused:
      return "paused";
    case Desired::kStopped:
      return "stopped";
    case Desired::kFinished:
      return "finished";
  }
  return "";
}

// Whether nobody is to work on it, until a person lets it go on.
constexpr bool isOver(Desired desired) {
  switch (desired) {
    case Desired::kRunning:
    case Desired::kPaused:
      return false;
    case Desired::kStopped:
    case Desired::kFinished:
      return true;
  }
  return false;
}

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
