#include "core/worker_beats.h"

#include <algorithm>
#include <cstdio>

namespace allot {
namespace {

// Returns "3.1 of 16.1 GB"; empty if the worker reports no bytes.
std::string loadedText(const v1::WorkerBeat& beat) {
  if (beat.total_bytes() == 0) return "";
  const double unit = beat.total_bytes() >= 1'000'000'000 ? 1e9 : 1e6;
  char text[64];
  std::snprintf(text, sizeof text, "%.1f of %.1f %s",
                static_cast<double>(beat.loaded_bytes()) / unit,
                static_cast<double>(beat.total_bytes()) / unit, unit == 1e9 ? "GB" : "MB");
  return text;
}

}  // namespace

bool isAtWork(const v1::WorkerBeat& beat) {
  const auto state = stateOf(beat);
  return state == WorkerState::kRollout || state == WorkerState::kEvaluation;
}

size_t aliveWorkers(const std::vector<v1::WorkerBeat>& beats) {
  return static_cast<size_t>(std::count_if(beats.begin(), beats.end(), isAlive));
}

std::string whyNobodyCanWork(const std::vector<v1::WorkerBeat>& beats) {
  const v1::WorkerBeat* failed = nullptr;   // the newest
  const v1::WorkerBeat* loading = nullptr;  // the one with the most bytes
  size_t loading_ones = 0;
  for (const v1::WorkerBeat& beat : beats) {
    if (!isAlive(beat)) {
      if (failed == nullptr || failed->seen_unix_ms() <= beat.seen_unix_ms()) failed = &beat;
      continue;
    }
    if (stateOf(beat) != WorkerState::kLoading) return "";
    ++loading_ones;
    if (loading == nullptr || loading->loaded_bytes() < beat.loaded_bytes()) loading = &beat;
  }
  const std::string ended =
      failed == nullptr ? "" : "; the last one ended: " + failed->last_error();
  if (loading == nullptr) return "no worker is alive" + ended;
  const std::string far = loadedText(*loading);
  return std::to_string(loading_ones) + (loading_ones == 1 ? " worker" : " workers") +
         " still loading the model" + (far.empty() ? "" : " (" + far + ")") + ended;
}

std::string stateText(const v1::WorkerBeat& beat) {
  const std::string far = stateOf(beat) == WorkerState::kLoading ? loadedText(beat) : "";
  return far.empty() ? beat.state() : beat.state() + " " + far;
}

}  // namespace allot
