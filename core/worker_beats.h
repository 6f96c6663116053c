#pragma once
// What the beats of a run's workers come to, in sentences for people. Pure, any thread.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "allot/v1/result.pb.h"

namespace allot {

// A worker that ended with an error leaves one last beat, of state "failed"; so long it is kept.
inline constexpr uint64_t kFailureKeptMs = 600'000;

inline bool isAlive(const v1::WorkerBeat& beat) { return beat.state() != "failed"; }
// An episode or a unit is in hand: a result will come of it.
inline bool isAtWork(const v1::WorkerBeat& beat) {
  return beat.state() == "rollout" || beat.state() == "evaluation";
}

size_t aliveWorkers(const std::vector<v1::WorkerBeat>& beats);

// Why none of them can do anything: none is alive (and how the newest failure ended), or all that
// are alive load the model still. Empty if one can. It holds words of workers, which may be
// anything.
std::string whyNobodyCanWork(const std::vector<v1::WorkerBeat>& beats);

// "loading 3.1 of 16.1 GB" if the worker says how far it is; else its state.
std::string stateText(const v1::WorkerBeat& beat);

}  // namespace allot
