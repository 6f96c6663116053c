#pragma once
// What the beats of a run's workers come to, in sentences for people. Pure, any thread.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "allot/v1/result.pb.h"
#include "core/words.h"

namespace allot {

// What a worker does (WorkerBeat.state).
enum class WorkerState { kLoading, kIdle, kRollout, kEvaluation, kDraining, kFailed };
constexpr std::string_view wordOf(WorkerState value) {
  switch (value) {
    case WorkerState::kLoading:
      return "loading";
    case WorkerState::kIdle:
      return "idle";
    case WorkerState::kRollout:
      return "rollout";
    case WorkerState::kEvaluation:
      return "evaluation";
    case WorkerState::kDraining:
      return "draining";
    case WorkerState::kFailed:
      return "failed";
  }
  return "";
}

// Nothing if a worker, which may be of another build, says something else: then it is alive, and no
// more is known.
inline std::optional<WorkerState> stateOf(const v1::WorkerBeat& beat) {
  return fromWord<WorkerState>(beat.state());
}

// A worker that ended with an error leaves one last beat, of kFailed; so long it is kept.
inline constexpr uint64_t kFailureKeptMs = 600'000;

inline bool isAlive(const v1::WorkerBeat& beat) { return stateOf(beat) != WorkerState::kFailed; }
// An episode or a unit is in hand: a result will come of it.
bool isAtWork(const v1::WorkerBeat& beat);

size_t aliveWorkers(const std::vector<v1::WorkerBeat>& beats);

// Why none of them can do anything: none is alive (and how the newest failure ended), or all that
// are alive load the model still. Empty if one can. It holds words of workers, which may be
// anything.
std::string whyNobodyCanWork(const std::vector<v1::WorkerBeat>& beats);

// "loading 3.1 of 16.1 GB" if the worker says how far it is; else its state.
std::string stateText(const v1::WorkerBeat& beat);

}  // namespace allot
