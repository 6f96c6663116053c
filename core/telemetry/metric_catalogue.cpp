#include "core/telemetry/metric_catalogue.h"
#include "core/words.h"

#include <algorithm>

namespace allot {
namespace {

constexpr MetricKind kCounter = MetricKind::kCounter;
constexpr MetricKind kGauge = MetricKind::kGauge;
constexpr MetricKind kHistogram = MetricKind::kHistogram;

std::vector<double> sixteenths() {
  std::vector<double> bounds;
  for (int i = 0; i <= 16; ++i) bounds.push_back(i / 16.0);
  return bounds;
}
const std::vector<double> kSeconds = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25,
                                      0.5,   1,      2.5,   5,    10,    30,   60,  300};
const std::vector<double> kStepSeconds = {0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01,
                                          0.025,  0.05,    0.1,    0.25,  0.5,    1};
const std::vector<double> kLongSeconds = {0.1, 0.25, 0.5, 1,    2.5,  5,   10,
                                          30,  60,   300, 1200, 3600, 7200};
const std::vector<double> kLags = {0, 1, 2, 4, 8, 16, 32, 64, 128, 256};

}  // namespace

const std::vector<MetricInfo>& metricCatalogue() {
  static const std::vector<MetricInfo> catalogue = {
      // --- every process
      {"allot_build_info",
       kGauge,
       "both",
       {"version", "compiler"},
       "1; what was built, as labels."},
      {"allot_process_start_timestamp_seconds",
       kGauge,
       "both",
       {},
       "Unix time at which the process began."},
      {"allot_redis_commands_total",
       kCounter,
       "both",
       {"command", "outcome"},
       "Requests to Redis by script or command, on workers all together as command all; outcome "
       "ok, "
       "error (an answer that is one) or unavailable (no answer).",
       {}},
      {"allot_redis_command_duration_seconds",
       kHistogram,
       "aggregator",
       {"command"},
       "Time from sending a request to Redis to having its answer; blocking reads are left out.",
       kSeconds},
      {"allot_redis_command_seconds_total",
       kCounter,
       "worker",
       {},
       "The same time, of all requests that were answered; over allot_redis_commands_total it is "
       "their mean."},
      {"allot_redis_reconnects_total",
       kCounter,
       "both",
       {},
       "Connections to Redis opened after the first one."},

      // --- aggregator: the run
      {"allot_leader",
       kGauge,
       "aggregator",
       {},
       "1 while this aggregator holds the lease of the run, 0 while it waits for it."},
      {"allot_experiment_info",
       kGauge,
       "aggregator",
       {"model", "method", "staleness_mode"},
       "1; the run's fixed settings, as labels."},
      {"allot_experiment_state",
       kGauge,
       "aggregator",
       {"state"},
       "1 for the state that the run is in, 0 for every other: starting, running, evaluating, "
       "paused, stopped, finished."},
      {"allot_experiment_updates_max",
       kGauge,
       "aggregator",
       {},
       "Updates after which the run ends (spec.update.maxUpdates in force)."},
      {"allot_experiment_episodes_per_update",
       kGauge,
       "aggregator",
       {},
       "Results that one update consumes (spec.update.episodesPerUpdate in force)."},
      {"allot_experiment_total_budget_reads",
       kGauge,
       "aggregator",
       {},
       "Reads per head and decode step, summed over the layers, that schedules are learned for."},
      {"allot_experiment_edit_refused",
       kGauge,
       "aggregator",
       {},
       "1 while the experiment file holds an edit that a run cannot take; allot status says "
       "which."},

      // --- aggregator: learning
      {"allot_policy_version", kGauge, "aggregator", {}, "Updates behind the published policy."},
      {"allot_policy_published_timestamp_seconds",
       kGauge,
       "aggregator",
       {},
       "Unix time of the newest update; before the first one, of the run's start."},
      {"allot_policy_updates_total",
       kCounter,
       "aggregator",
       {},
       "Updates committed by this process."},
      {"allot_policy_layer_probability_ratio",
       kGauge,
       "aggregator",
       {"layer"},
       "Share of the total budget that the policy gives the layer."},
      {"allot_policy_layer_reads",
       kGauge,
       "aggregator",
       {"layer"},
       "Reads of the layer in the learned schedule, in the mean over its heads."},
      {"allot_policy_budget_reads",
       kGauge,
       "aggregator",
       {"total_budget", "layer"},
       "Reads of the layer in the schedule published at the total budget, in the mean over its "
       "heads."},
      {"allot_policy_beats_uniform",
       kGauge,
       "aggregator",
       {"total_budget"},
       "1: the schedule that is published has beaten the uniform one on the training questions; 0: "
       "it is the uniform one."},
      {"allot_policy_entropy_nats", kGauge, "aggregator", {}, "Entropy of the policy over layers."},
      {"allot_policy_step_kl_nats",
       kGauge,
       "aggregator",
       {},
       "Kullback-Leibler divergence of the newest update's step."},
      {"allot_policy_gradient_norm",
       kGauge,
       "aggregator",
       {},
       "Euclidean norm of the newest update's gradient."},
      {"allot_update_reward_ratio",
       kGauge,
       "aggregator",
       {},
       "Mean reward of the newest update's episodes."},
      {"allot_update_baseline_ratio",
       kGauge,
       "aggregator",
       {},
       "Moving average, 0.9 a step, of the mean rewards before the newest update: what to compare "
       "its reward with."},
      {"allot_update_effective_sample_size_ratio",
       kGauge,
       "aggregator",
       {},
       "Effective sample size of the newest update's importance weights over its episodes."},
      {"allot_update_duration_seconds",
       kHistogram,
       "aggregator",
       {},
       "Time to compute and commit one update.",
       kSeconds},
      {"allot_rollout_reward_ratio",
       kHistogram,
       "aggregator",
       {},
       "Rewards of consumed episodes.",
       sixteenths()},
      {"allot_results_total",
       kCounter,
       "aggregator",
       {"outcome"},
       "Results taken from the inbox: accepted, stale, superseded, invalid (with undecodable and "
       "oversized ones, and refused evaluations)."},
      {"allot_result_policy_lag_updates",
       kHistogram,
       "aggregator",
       {},
       "Updates between the version that an episode used and the one that consumed it.",
       kLags},
      {"allot_result_age_seconds",
       kHistogram,
       "aggregator",
       {"stage"},
       "Age of consumed results: in_flight while the episode ran, queued from its end to the "
       "commit.",
       kLongSeconds},
      {"allot_inbox_entries", kGauge, "aggregator", {}, "Results that wait in the inbox."},
      {"allot_inbox_capacity_entries",
       kGauge,
       "aggregator",
       {},
       "Results that the inbox takes before workers hold theirs back."},
      {"allot_store_used_bytes", kGauge, "aggregator", {}, "Memory that Redis has taken."},
      {"allot_store_limit_bytes",
       kGauge,
       "aggregator",
       {},
       "Memory that Redis may take (maxmemory); 0: without a limit."},
      {"allot_workers",
       kGauge,
       "aggregator",
       {"state"},
       "Workers heard of in the last 45 s, by state: loading, idle, rollout, evaluation, draining; "
       "failed: ended with an error in the last ten minutes."},
      {"allot_worker_seconds_total",
       kCounter,
       "aggregator",
       {"device"},
       "Time that workers spent on consumed episodes, since the run began; GPU worker hours are "
       "this over 3600 where the device is a GPU. What another process consumed before is booked "
       "on the device that this one first heard of; at most 8 devices, then other."},

      // --- aggregator: held-out evaluation
      {"allot_evaluation_accuracy_ratio",
       kGauge,
       "aggregator",
       {"method", "schedule", "total_budget"},
       "Held-out accuracy of the newest complete evaluation of the cell."},
      {"allot_evaluation_accuracy_low_ratio",
       kGauge,
       "aggregator",
       {"method", "schedule", "total_budget"},
       "Lower end of its 95 % interval."},
      {"allot_evaluation_accuracy_high_ratio",
       kGauge,
       "aggregator",
       {"method", "schedule", "total_budget"},
       "Upper end of its 95 % interval."},
      {"allot_evaluation_questions",
       kGauge,
       "aggregator",
       {"method", "schedule", "total_budget"},
       "Questions behind that accuracy."},
      {"allot_evaluation_decode_seconds_per_token",
       kGauge,
       "aggregator",
       {"method", "schedule", "total_budget"},
       "Decode time of the same evaluation over the tokens decoded, on whatever workers did it."},
      {"allot_evaluation_kv_read_ratio",
       kGauge,
       "aggregator",
       {"method", "schedule", "total_budget"},
       "Bytes of keys and values read over those that dense attention reads."},
      {"allot_evaluation_prefill_seconds",
       kGauge,
       "aggregator",
       {"method", "schedule", "total_budget"},
       "Time to the first token of the same evaluation's prompts, mean of a prompt, on whatever "
       "workers read them."},
      {"allot_evaluation_prefill_selection_seconds",
       kGauge,
       "aggregator",
       {"method", "schedule", "total_budget"},
       "Of that, choosing blocks of keys."},
      {"allot_evaluation_prefill_density_ratio",
       kGauge,
       "aggregator",
       {"method", "schedule", "total_budget"},
       "Blocks of keys whose values were read in the prefill, over those of dense attention; where "
       "each query is sampled for itself, value rows."},
      {"allot_evaluation_prefill_kept_mass_ratio",
       kGauge,
       "aggregator",
       {"method", "schedule", "total_budget"},
       "Share of a query's exact attention that is on the blocks kept in the prefill (cumulative "
       "residual attention), mean over queries, heads and layers of the first 32 questions."},
      {"allot_evaluation_prefill_least_kept_mass_ratio",
       kGauge,
       "aggregator",
       {"method", "schedule", "total_budget"},
       "The least of these shares."},
      {"allot_evaluation_units",
       kGauge,
       "aggregator",
       {},
       "Evaluation units planned and not done."},

      // --- worker
      {"allot_worker_episodes_total",
       kCounter,
       "worker",
       {"outcome"},
       "Episodes begun: pushed, aborted (dropped whole on SIGTERM), failed."},
      {"allot_worker_units_total",
       kCounter,
       "worker",
       {"outcome"},
       "Evaluation units taken: pushed, aborted (given back), failed."},
      {"allot_worker_questions_total",
       kCounter,
       "worker",
       {"result"},
       "Questions of episodes by score: correct (1), partial, incorrect (0)."},
      {"allot_worker_tokens_total",
       kCounter,
       "worker",
       {"phase"},
       "Tokens through the model: prefill, decode (same-state comparisons left out)."},
      {"allot_worker_decode_step_duration_seconds",
       kHistogram,
       "worker",
       {},
       "Time of one decode step of a batch: all rows, all layers, of whatever method; same-state "
       "comparisons left out.",
       kStepSeconds},
      {"allot_worker_episode_duration_seconds",
       kHistogram,
       "worker",
       {},
       "Time of one episode, prompts that had to be prefilled included.",
       kLongSeconds},
      {"allot_worker_policy_version", kGauge, "worker", {}, "Version of the policy last used."},
      {"allot_worker_held_results", kGauge, "worker", {}, "Results made and not yet pushed."},
      {"allot_worker_draining", kGauge, "worker", {}, "1 once SIGTERM has come."},
      {"allot_worker_value_rows_read_total",
       kCounter,
       "worker",
       {},
       "Value rows read, a head's distinct ones, by pushed episodes and units."},
      {"allot_worker_value_rows_dense_total",
       kCounter,
       "worker",
       {},
       "Value rows that dense attention would have read for the same tokens."},
      {"allot_worker_memory_bytes",
       kGauge,
       "worker",
       {"kind"},
       "Memory by use: weights, kv (pages of the pool that hold something)."},
  };
  return catalogue;
}

const MetricInfo* findMetric(std::string_view name) {
  const auto& catalogue = metricCatalogue();
  const auto found = std::find_if(catalogue.begin(), catalogue.end(),
                                  [&](const MetricInfo& metric) { return metric.name == name; });
  return found == catalogue.end() ? nullptr : &*found;
}

std::string metricsMarkdown() {
  std::string table =
      "| metric | type | of | labels | meaning |\n| --- | --- | --- | --- | --- |\n";
  for (const MetricInfo& metric : metricCatalogue()) {
    std::string labels;
    for (const std::string_view label : metric.labels) {
      labels += (labels.empty() ? "" : ", ") + std::string(label);
    }
    table += "| `" + std::string(metric.name) + "` | " + std::string(metricKindName(metric.kind)) +
             " | " + std::string(metric.process) + " | " + labels + " | " +
             std::string(metric.help) + " |\n";
  }
  return table;
}

std::string_view metricKindName(MetricKind kind) {
  return wordAt(kind, {"counter", "gauge", "histogram"});
}

}  // namespace allot
