#include "core/telemetry/metric_catalogue.h"

#include <algorithm>
#include <utility>

#include "core/words.h"

namespace allot {
namespace {

using Labels = std::vector<std::string_view>;

MetricInfo counter(std::string_view name, std::string_view process, std::string_view help,
                   Labels labels = {}) {
  return {name, MetricKind::kCounter, process, std::move(labels), help};
}
MetricInfo gauge(std::string_view name, std::string_view process, std::string_view help,
                 Labels labels = {}) {
  return {name, MetricKind::kGauge, process, std::move(labels), help};
}
MetricInfo histogram(std::string_view name, std::string_view process, std::string_view help,
                     const std::vector<double>& buckets, Labels labels = {}) {
  return {name, MetricKind::kHistogram, process, std::move(labels), help, buckets};
}

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
const Labels kCell = {"method", "schedule", "total_budget"};
const std::vector<double> kLags = {0, 1, 2, 4, 8, 16, 32, 64, 128, 256};

}  // namespace

const std::vector<MetricInfo>& metricCatalogue() {
  static const std::vector<MetricInfo> catalogue = {
      // --- every process
      gauge("allot_build_info", "both", "1; what was built, as labels.", {"version", "compiler"}),
      gauge("allot_process_start_timestamp_seconds", "both",
            "Unix time at which the process began."),
      counter("allot_redis_commands_total", "both",
              "Requests to Redis by script or command, on workers all together as command all; "
              "outcome ok, error (an answer that is one) or unavailable (no answer).",
              {"command", "outcome"}),
      histogram(
          "allot_redis_command_duration_seconds", "aggregator",
          "Time from sending a request to Redis to having its answer; blocking reads are left out.",
          kSeconds, {"command"}),
      counter("allot_redis_command_seconds_total", "worker",
              "The same time, of all requests that were answered; over allot_redis_commands_total "
              "it is their mean."),
      counter("allot_redis_reconnects_total", "both",
              "Connections to Redis opened after the first one."),
      // --- aggregator: the run
      gauge("allot_leader", "aggregator",
            "1 while this aggregator holds the lease of the run, 0 while it waits for it."),
      gauge("allot_experiment_info", "aggregator", "1; the run's fixed settings, as labels.",
            {"model", "method", "staleness_mode"}),
      gauge("allot_experiment_state", "aggregator",
            "1 for the state that the run is in, 0 for every other: starting, running, evaluating, "
            "paused, stopped, finished.",
            {"state"}),
      gauge("allot_experiment_updates_max", "aggregator",
            "Updates after which the run ends (spec.update.maxUpdates in force)."),
      gauge("allot_experiment_episodes_per_update", "aggregator",
            "Results that one update consumes (spec.update.episodesPerUpdate in force)."),
      gauge("allot_experiment_total_budget_reads", "aggregator",
            "Reads per head and decode step, summed over the layers, that schedules are learned "
            "for."),
      gauge("allot_experiment_edit_refused", "aggregator",
            "1 while the experiment file holds an edit that a run cannot take; allot status says "
            "which."),
      // --- aggregator: learning
      gauge("allot_policy_version", "aggregator", "Updates behind the published policy."),
      gauge("allot_policy_published_timestamp_seconds", "aggregator",
            "Unix time of the newest update; before the first one, of the run's start."),
      counter("allot_policy_updates_total", "aggregator", "Updates committed by this process."),
      gauge("allot_policy_layer_probability_ratio", "aggregator",
            "Share of the total budget that the policy gives the layer.", {"layer"}),
      gauge("allot_policy_layer_reads", "aggregator",
            "Reads of the layer in the learned schedule, in the mean over its heads.", {"layer"}),
      gauge("allot_policy_budget_reads", "aggregator",
            "Reads of the layer in the schedule published at the total budget, in the mean over "
            "its heads.",
            {"total_budget", "layer"}),
      gauge("allot_policy_beats_uniform", "aggregator",
            "1: the schedule that is published is known to be better than its rival (uniform or, "
            "where a price buys no uniform schedule, measured); 0: it is the best guess, uniform "
            "or measured.",
            {"total_budget"}),
      gauge("allot_policy_entropy_nats", "aggregator", "Entropy of the policy over layers."),
      gauge("allot_policy_step_kl_nats", "aggregator",
            "Kullback-Leibler divergence of the newest update's step."),
      gauge("allot_policy_gradient_norm", "aggregator",
            "Euclidean norm of the newest update's gradient."),
      gauge("allot_update_reward_ratio", "aggregator",
            "Mean reward of the newest update's episodes."),
      gauge("allot_update_baseline_ratio", "aggregator",
            "Moving average, 0.9 a step, of the mean rewards before the newest update: what to "
            "compare its reward with."),
      gauge("allot_update_effective_sample_size_ratio", "aggregator",
            "Effective sample size of the newest update's importance weights over its episodes."),
      histogram("allot_update_duration_seconds", "aggregator",
                "Time to compute and commit one update.", kSeconds),
      histogram("allot_rollout_reward_ratio", "aggregator", "Rewards of consumed episodes.",
                sixteenths()),
      counter("allot_results_total", "aggregator",
              "Results taken from the inbox: accepted, stale, superseded, invalid (with "
              "undecodable and oversized ones, and refused evaluations).",
              {"outcome"}),
      histogram("allot_result_policy_lag_updates", "aggregator",
                "Updates between the version that an episode used and the one that consumed it.",
                kLags),
      histogram("allot_result_age_seconds", "aggregator",
                "Age of consumed results: in_flight while the episode ran, queued from its end to "
                "the commit.",
                kLongSeconds, {"stage"}),
      gauge("allot_inbox_entries", "aggregator", "Results that wait in the inbox."),
      gauge("allot_tickets_reached", "aggregator",
            "Tickets up to the highest one that has counted, of an asynchronous run."),
      gauge("allot_tickets_unanswered", "aggregator",
            "Of these, those without a result that counts."),
      gauge("allot_inbox_capacity_entries", "aggregator",
            "Results that the inbox takes before workers hold theirs back."),
      gauge("allot_store_used_bytes", "aggregator", "Memory that Redis has taken."),
      gauge("allot_store_limit_bytes", "aggregator",
            "Memory that Redis may take (maxmemory); 0: without a limit."),
      gauge("allot_workers", "aggregator",
            "Workers heard of in the last 45 s, by state: loading, idle, rollout, evaluation, "
            "draining; failed: ended with an error in the last ten minutes.",
            {"state"}),
      counter(
          "allot_worker_seconds_total", "aggregator",
          "Time that workers spent on consumed episodes, since the run began; GPU worker hours are "
          "this over 3600 where the device is a GPU. What another process consumed before is "
          "booked on the device that this one first heard of; at most 8 devices, then other.",
          {"device"}),
      counter("allot_audits_total", "aggregator",
              "Answers that a second worker was to give again (spec.audit), since the run began: "
              "equal, differing, dropped (nobody answered); undecided: disputes that no majority "
              "decided.",
              {"outcome"}),
      gauge("allot_audit_liars", "aggregator",
            "Workers whose scores are not what two others measure; allot status names them."),
      // --- aggregator: held-out evaluation
      gauge("allot_evaluation_accuracy_ratio", "aggregator",
            "Held-out accuracy of the newest complete evaluation of the cell.", kCell),
      gauge("allot_evaluation_accuracy_low_ratio", "aggregator",
            "Lower end of its 95 % interval; summary.json names its kind.", kCell),
      gauge("allot_evaluation_accuracy_high_ratio", "aggregator",
            "Upper end of its 95 % interval; summary.json names its kind.", kCell),
      gauge("allot_evaluation_questions", "aggregator", "Questions behind that accuracy.", kCell),
      gauge(
          "allot_evaluation_decode_seconds_per_token", "aggregator",
          "Decode time of the same evaluation over the tokens decoded, on whatever workers did it.",
          kCell),
      gauge("allot_evaluation_kv_read_ratio", "aggregator",
            "Bytes of keys and values read over those that dense attention reads.", kCell),
      gauge("allot_evaluation_prefill_seconds", "aggregator",
            "Time to the first token of the same evaluation's prompts, mean of a prompt, on "
            "whatever workers read them.",
            kCell),
      gauge("allot_evaluation_prefill_selection_seconds", "aggregator",
            "Of that, choosing blocks of keys.", kCell),
      gauge("allot_evaluation_prefill_density_ratio", "aggregator",
            "Blocks of keys whose values were read in the prefill, over those of dense attention; "
            "where each query is sampled for itself, value rows.",
            kCell),
      gauge("allot_evaluation_prefill_kept_mass_ratio", "aggregator",
            "Share of a query's exact attention that is on the blocks kept in the prefill "
            "(cumulative residual attention), mean over queries, heads and layers of the first 32 "
            "questions.",
            kCell),
      gauge("allot_evaluation_prefill_least_kept_mass_ratio", "aggregator",
            "The least of these shares.", kCell),
      gauge("allot_evaluation_units", "aggregator", "Evaluation units planned and not done."),
      // --- worker
      counter("allot_worker_episodes_total", "worker",
              "Episodes begun: pushed, aborted (dropped whole on SIGTERM), failed.", {"outcome"}),
      counter("allot_worker_units_total", "worker",
              "Evaluation units taken: pushed, aborted (given back), failed.", {"outcome"}),
      counter("allot_worker_questions_total", "worker",
              "Questions of episodes by score: correct (1), partial, incorrect (0).", {"result"}),
      counter("allot_worker_tokens_total", "worker",
              "Tokens through the model: prefill, decode (same-state comparisons left out).",
              {"phase"}),
      histogram("allot_worker_decode_step_duration_seconds", "worker",
                "Time of one decode step of a batch: all rows, all layers, of whatever method; "
                "same-state comparisons left out.",
                kStepSeconds),
      histogram("allot_worker_episode_duration_seconds", "worker",
                "Time of one episode, prompts that had to be prefilled included.", kLongSeconds),
      gauge("allot_worker_policy_version", "worker", "Version of the policy last used."),
      gauge("allot_worker_held_results", "worker", "Results made and not yet pushed."),
      gauge("allot_worker_draining", "worker", "1 once SIGTERM has come."),
      counter("allot_worker_value_rows_read_total", "worker",
              "Value rows read, a head's distinct ones, by pushed episodes and units."),
      counter("allot_worker_value_rows_dense_total", "worker",
              "Value rows that dense attention would have read for the same tokens."),
      counter("allot_worker_kv_saturated_total", "worker",
              "Numbers of keys and values beyond the range of fp8, written as its largest number "
              "(spec.model.kvDtype)."),
      gauge("allot_worker_memory_bytes", "worker",
            "Memory by use: weights, kv (pages of the pool that hold something).", {"kind"}),
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
    table += "| `" + std::string(metric.name) + "` | " + std::string(metricKindName(metric.kind)) +
             " | " + std::string(metric.process) + " | " + joined(metric.labels) + " | " +
             std::string(metric.help) + " |\n";
  }
  return table;
}

std::string_view metricKindName(MetricKind kind) {
  return wordAt(kind, {"counter", "gauge", "histogram"});
}

}  // namespace allot
