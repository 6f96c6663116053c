#pragma once
// WorkerLoop: pulls work from the store, has the engine do it, pushes results.
//
// Stateless: whatever is killed here costs at most the episodes in flight. The store being away
// makes it wait, never fail. One thread; `draining` may be set by a signal handler.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <string>

#include "core/result.h"
#include "store/store.h"
#include "worker/engine.h"

namespace allot {

struct WorkerOptions {
  std::string name;          // unique among the run's workers
  uint64_t inbox_cap = 256;  // results waiting in the inbox before workers hold theirs back
};

class WorkerLoop {
 public:
  WorkerLoop(Store* store, Engine* engine, RunSpec run, WorkerOptions options,
             const std::atomic<bool>* draining);

  // Works until the run ends or draining is set; the episode in hand is finished and pushed first.
  // Errors are those that waiting cannot mend.
  Status run();

 private:
  enum class Tick { kWorked, kIdle, kEnded };

  Result<Tick> tick();
  Status pushHeld();
  Result<bool> evaluateUnits();
  Status evaluateUnit(const v1::EvaluationUnit& unit);
  Result<bool> rollOut();
  Status beat(const std::string& state);
  void hold(v1::EpisodeResult result);
  // Sleeps, but not for long once draining.
  void rest(std::chrono::milliseconds time) const;

  Store& store_;
  Engine& engine_;
  const RunSpec run_;
  const WorkerOptions options_;
  const std::atomic<bool>& draining_;
  std::deque<v1::EpisodeResult> held_;  // made, not yet pushed
  uint64_t results_ = 0;
  uint64_t episodes_ = 0;
  uint64_t policy_version_ = 0;
  uint64_t claim_ms_ = 60'000;
  std::string beaten_state_;
  std::chrono::steady_clock::time_point beaten_{};
};

}  // namespace allot
