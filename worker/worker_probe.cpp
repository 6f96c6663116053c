#include "worker/worker_probe.h"

namespace allot {

WorkerProbe::Outcomes WorkerProbe::outcomesOf(MetricRegistry* metrics, const char* name) {
  const auto counter = [&](const char* outcome) {
    return &metrics->counter(name, {{"outcome", outcome}});
  };
  return {counter("pushed"), counter("aborted"), counter("failed")};
}

WorkerProbe::WorkerProbe(MetricRegistry* metrics, Health* health)
    : health_(*health),
      episodes_(outcomesOf(metrics, "allot_worker_episodes_total")),
      units_(outcomesOf(metrics, "allot_worker_units_total")),
      correct_(metrics->counter("allot_worker_questions_total", {{"result", "correct"}})),
      partial_(metrics->counter("allot_worker_questions_total", {{"result", "partial"}})),
      incorrect_(metrics->counter("allot_worker_questions_total", {{"result", "incorrect"}})),
      prefill_tokens_(metrics->counter("allot_worker_tokens_total", {{"phase", "prefill"}})),
      decode_tokens_(metrics->counter("allot_worker_tokens_total", {{"phase", "decode"}})),
      rows_read_(metrics->counter("allot_worker_value_rows_read_total")),
      rows_dense_(metrics->counter("allot_worker_value_rows_dense_total")),
      saturated_(metrics->counter("allot_worker_kv_saturated_total")),
      episode_seconds_(metrics->histogram("allot_worker_episode_duration_seconds")),
      step_seconds_(metrics->histogram("allot_worker_decode_step_duration_seconds")),
      policy_version_(metrics->gauge("allot_worker_policy_version")),
      held_results_(metrics->gauge("allot_worker_held_results")),
      draining_(metrics->gauge("allot_worker_draining")),
      weights_bytes_(metrics->gauge("allot_worker_memory_bytes", {{"kind", "weights"}})),
      kv_bytes_(metrics->gauge("allot_worker_memory_bytes", {{"kind", "kv"}})) {}

void WorkerProbe::addReads(const v1::DecodeCounts& counts) {
  rows_read_.Increment(static_cast<double>(counts.unique_rows()));
  rows_dense_.Increment(static_cast<double>(counts.dense_rows()));
}

void WorkerProbe::episode(WorkOutcome outcome, const v1::EpisodeResult* result) {
  counterOf(episodes_, outcome).Increment();
  if (result == nullptr) return;
  episode_seconds_.Observe(result->seconds());
  for (const v1::QuestionScore& score : result->scores()) {
    (score.score() >= 1 ? correct_ : score.score() > 0 ? partial_ : incorrect_).Increment();
  }
  addReads(result->counts());
}

void WorkerProbe::unit(WorkOutcome outcome, const v1::EvaluationResult* result) {
  counterOf(units_, outcome).Increment();
  if (result != nullptr) addReads(result->counts());
}

void WorkerProbe::progress(const WorkerNow& now) {
  health_.progress();
  policy_version_.Set(static_cast<double>(now.policy_version));
  held_results_.Set(static_cast<double>(now.held_results));
  draining_.Set(now.draining ? 1 : 0);
}

void WorkerProbe::prefill(size_t tokens) { prefill_tokens_.Increment(static_cast<double>(tokens)); }

void WorkerProbe::decoded(std::string_view, size_t rows, double seconds) {
  decode_tokens_.Increment(static_cast<double>(rows));
  step_seconds_.Observe(seconds);
}

void WorkerProbe::memory(size_t weights_bytes, size_t kv_bytes) {
  weights_bytes_.Set(static_cast<double>(weights_bytes));
  kv_bytes_.Set(static_cast<double>(kv_bytes));
}

void WorkerProbe::saturated(uint64_t numbers) {
  saturated_.Increment(static_cast<double>(numbers) - saturated_.Value());
}

bool WorkerProbe::hasLost() const {
  double lost = 0;
  for (const Outcomes* of : {&episodes_, &units_})
    lost += counterOf(*of, WorkOutcome::kAborted).Value() +
            counterOf(*of, WorkOutcome::kFailed).Value();
  return lost > 0;
}

}  // namespace allot
