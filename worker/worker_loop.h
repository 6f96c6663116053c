#pragma once
// WorkerLoop: pulls work from the store, has the engine do it, pushes results.
//
// Stateless: whatever is killed here costs at most the episodes in flight. The store being away
// makes it wait, never fail. One thread; `draining` may be set by a signal handler. Time comes from
// the options alone, so that a simulation can run many of these in one thread.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <random>
#include <string>

#include "core/result.h"
#include "store/store.h"
#include "worker/episode_engine.h"

namespace allot {

struct WorkerOptions {
  std::string name;          // unique among the run's workers, ever: results are named after it
  std::string build;         // what the results say they were made with
  uint64_t inbox_cap = 256;  // results waiting in the inbox before workers hold theirs back
  uint64_t jitter_seed = 0;
  std::function<uint64_t()> now;  // monotonic milliseconds
  std::function<uint64_t()> unix_now;
};

class WorkerLoop {
 public:
  WorkerLoop(Store* store, EpisodeEngine* engine, RunSpec run, WorkerOptions options,
             const std::atomic<bool>* draining);

  // Works until the run ends or draining is set; the episode in hand is finished and pushed first.
  // Errors are those that waiting cannot mend.
  Status run();

  // One round of the above: push what is held, then one unit or one episode. How long to rest
  // before the next one; nothing once it is over. The store being away is no error.
  Result<std::optional<std::chrono::milliseconds>> step();

  // Results made and not yet pushed.
  size_t heldResults() const { return held_.size(); }

 private:
  enum class Tick { kWorked, kIdle, kEnded };

  Result<Tick> tick();
  Result<std::optional<std::chrono::milliseconds>> away(const Error& error);
  Status readControl();
  Status pushHeld();
  Result<bool> evaluateUnits();
  Status evaluateUnit(const v1::EvaluationUnit& unit);
  Result<bool> rollOut();
  Status beat(const std::string& state);
  void hold(v1::EpisodeResult result);
  void leave();
  // Sleeps, but not for long once draining.
  void rest(std::chrono::milliseconds time) const;

  Store& store_;
  EpisodeEngine& engine_;
  const RunSpec run_;
  const WorkerOptions options_;
  const std::atomic<bool>& draining_;
  Control control_;  // as last read
  std::minstd_rand jitter_;
  std::deque<v1::EpisodeResult> held_;  // made, not yet pushed
  uint64_t results_ = 0;
  uint64_t episodes_ = 0;
  uint64_t policy_version_ = 0;
  uint64_t claim_ms_ = 60'000;
  std::string last_error_;
  std::string beaten_state_;
  std::optional<uint64_t> beaten_ms_;
  std::optional<uint64_t> away_since_ms_;
  std::chrono::milliseconds wait_;
};

}  // namespace allot
