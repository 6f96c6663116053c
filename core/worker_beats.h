#pragma once
// The states of a run's workers by their heartbeats, and sentences about them. Pure, any thread.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "allot/v1/result.pb.h"
#include "core/words.h"

namespace allot {

// The activity of a worker (WorkerBeat.state).
enum class WorkerState { kLoading, kIdle, kRollout, kEvaluation, kDraining, kFailed };
constexpr std::string_view wordOf(WorkerState value) {
  return wordAt(value, {"loading", "idle", "rollout", "evaluation", "draining", "failed"});
}

// Returns nothing for an unknown state, which a live worker of another build may send.
inline std::optional<WorkerState> stateOf(const v1::WorkerBeat& beat) {
  return fromWord<WorkerState>(beat.state());
}

// The time for which a worker counts as alive after its last beat.
inline constexpr uint64_t kBeatTtlMs = 45'000;
// The time for which the last beat (kFailed) of a worker that ended with an error is kept.
inline constexpr uint64_t kFailureKeptMs = 600'000;

inline bool isAlive(const v1::WorkerBeat& beat) { return stateOf(beat) != WorkerState::kFailed; }
// Returns true if the state is rollout or evaluation. A draining worker may have work in hand, too.
bool isAtWork(const v1::WorkerBeat& beat);

size_t aliveWorkers(const std::vector<v1::WorkerBeat>& beats);

// Returns why no worker can work: none is alive, or all live ones still load the model; with the
// newest failure, if any. Empty if a live worker is in another state. The text quotes a worker's
// error, which may hold any bytes.
std::string whyNobodyCanWork(const std::vector<v1::WorkerBeat>& beats);

// Returns the beat's state, as in "idle"; of a loading worker that reports bytes "loading 3.1 of
// 16.1 GB".
std::string stateText(const v1::WorkerBeat& beat);

}  // namespace allot
