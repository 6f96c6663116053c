#pragma once
// WorkerProbe: exports the metrics of one worker, and reports its progress to Health.
//
// Owned by main(); called by the loop and the engine on their thread.
#include <array>

#include "core/telemetry/health.h"
#include "core/telemetry/registry.h"
#include "worker/loop/worker_events.h"

namespace allot {

class WorkerProbe final : public WorkerEvents {
 public:
  // Requires: metrics and health outlive the probe.
  WorkerProbe(MetricRegistry* metrics, Health* health);

  void episode(WorkOutcome outcome, const v1::EpisodeResult* result) override;
  void unit(WorkOutcome outcome, const v1::EvaluationResult* result) override;
  void progress(const WorkerNow& now) override;
  void prefill(size_t tokens) override;
  void decoded(std::string_view method, size_t rows, double seconds) override;
  void memory(size_t weights_bytes, size_t kv_bytes) override;
  void saturated(uint64_t numbers) override;

  // Returns true if an episode or unit was aborted or failed.
  bool hasLost() const;

 private:
  using Counter = prometheus::Counter;
  using Gauge = prometheus::Gauge;
  using Outcomes = std::array<Counter*, 3>;  // by WorkOutcome
  static Outcomes outcomesOf(MetricRegistry* metrics, const char* name);
  static Counter& counterOf(const Outcomes& outcomes, WorkOutcome outcome) {
    return *outcomes[static_cast<size_t>(outcome)];
  }

  void addReads(const v1::DecodeCounts& counts);

  Health& health_;
  Outcomes episodes_;
  Outcomes units_;
  Counter& correct_;
  Counter& partial_;
  Counter& incorrect_;
  Counter& prefill_tokens_;
  Counter& decode_tokens_;
  Counter& rows_read_;
  Counter& rows_dense_;
  Counter& saturated_;
  prometheus::Histogram& episode_seconds_;
  prometheus::Histogram& step_seconds_;
  Gauge& policy_version_;
  Gauge& held_results_;
  Gauge& draining_;
  Gauge& weights_bytes_;
  Gauge& kv_bytes_;
};

}  // namespace allot
