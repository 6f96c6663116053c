#pragma once
// WorkerEvents: the interface through which WorkerLoop and Engine report to metrics and health.
// Called on the loop's thread. Each call must be short.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "allot/v1/result.pb.h"

namespace allot {

enum class WorkOutcome {
  kPushed,   // the store has it
  kAborted,  // given up on SIGTERM, or released because another unit failed: it has no result
  kFailed,   // an error ended the work, or the result was not pushed before the worker left
};

struct WorkerNow {
  uint64_t policy_version = 0;  // last read for episodes; 0 before
  size_t held_results = 0;      // made and not yet pushed
  bool draining = false;
};

class WorkerEvents {
 public:
  virtual ~WorkerEvents() = default;
  // Reports the end of an episode or unit that was taken. result: as pushed; null if not pushed.
  virtual void episode(WorkOutcome /*outcome*/, const v1::EpisodeResult* /*result*/) {}
  virtual void unit(WorkOutcome /*outcome*/, const v1::EvaluationResult* /*result*/) {}
  // Reports progress: after a round of the loop; before each prefill and decode step; while
  // programs are graded; while the loop rests. A watchdog acts on its absence.
  virtual void progress(const WorkerNow& /*now*/) {}

  // Events of the engine.
  // The prefilled part of a prompt, of `tokens` tokens, is about to be read.
  virtual void prefill(size_t /*tokens*/) {}
  // A decode step was made. method: its name without parameters. Same-state comparisons are not
  // reported.
  virtual void decoded(std::string_view /*method*/, size_t /*rows*/, double /*seconds*/) {}
  // Memory in use by weights, and by the pages of keys and values.
  virtual void memory(size_t /*weights_bytes*/, size_t /*kv_bytes*/) {}
  // Numbers of keys and values beyond the range of fp8 so far, which were saturated.
  virtual void saturated(uint64_t /*numbers*/) {}
};

}  // namespace allot
