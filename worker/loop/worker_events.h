#pragma once
// WorkerEvents: what a WorkerLoop and its Engine tell whoever watches them (metrics, health).
// Called on the loop's thread, between two steps of the work; each call must be short.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "allot/v1/result.pb.h"

namespace allot {

enum class WorkOutcome {
  kPushed,   // the store has it
  kAborted,  // given up whole on SIGTERM: nothing of it was pushed
  kFailed,   // the engine failed, or the result could not be pushed before the worker left
};

struct WorkerNow {
  uint64_t policy_version = 0;  // last used
  size_t held_results = 0;      // made and not yet pushed
  bool draining = false;
};

class WorkerEvents {
 public:
  virtual ~WorkerEvents() = default;
  // One episode or unit that was begun is done with. result: what was pushed; null otherwise.
  virtual void episode(WorkOutcome /*outcome*/, const v1::EpisodeResult* /*result*/) {}
  virtual void unit(WorkOutcome /*outcome*/, const v1::EvaluationResult* /*result*/) {}
  // Something has moved: a round of the loop, a decode step, a prefilled prompt. Its absence is
  // what a watchdog looks for; waiting for the store counts as moving.
  virtual void progress(const WorkerNow& /*now*/) {}

  // The engine: a prompt of so many tokens is about to be prefilled; one decode step of `rows` rows
  // was made (method: its name without parameters; same-state comparisons are left out); memory in
  // use, by weights and by the pages of keys and values.
  virtual void prefill(size_t /*tokens*/) {}
  virtual void decoded(std::string_view /*method*/, size_t /*rows*/, double /*seconds*/) {}
  virtual void memory(size_t /*weights_bytes*/, size_t /*kv_bytes*/) {}
};

}  // namespace allot
