#include "aggregator/learner/aggregator_probe.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <tuple>

#include "core/evaluation/score_statistics.h"
#include "core/learning/policy.h"
#include "core/spec/choices.h"
#include "core/spec/prices.h"
#include "core/worker_beats.h"

namespace allot {
namespace {

// A device's name comes from workers and may be anything: at most kMostDevices get a series.
constexpr size_t kMostDevices = 8;
constexpr size_t kLongestDevice = 64;
constexpr const char* kOtherDevice = "other";

double secondsOf(uint64_t ms) { return static_cast<double>(ms) / 1000; }

// "07", so that layers sort as text, too.
std::string layerLabel(size_t layer, size_t layers) {
  const std::string number = std::to_string(layer);
  const size_t width = std::max<size_t>(2, std::to_string(layers - 1).size());
  return std::string(width - std::min(width, number.size()), '0') + number;
}

double entropyOf(const std::vector<double>& probabilities) {
  double entropy = 0;
  for (const double p : probabilities) entropy -= p > 0 ? p * std::log(p) : 0;
  return entropy;
}

}  // namespace

AggregatorProbe::AggregatorProbe(MetricRegistry* metrics, Health* health,
                                 std::function<uint64_t()> unix_now)
    : metrics_(*metrics),
      health_(*health),
      unix_now_(std::move(unix_now)),
      leader_(metrics->gauge("allot_leader")),
      updates_(metrics->counter("allot_policy_updates_total")),
      accepted_(metrics->counter("allot_results_total", {{"outcome", "accepted"}})),
      stale_(metrics->counter("allot_results_total", {{"outcome", "stale"}})),
      superseded_(metrics->counter("allot_results_total", {{"outcome", "superseded"}})),
      invalid_(metrics->counter("allot_results_total", {{"outcome", "invalid"}})),
      update_seconds_(metrics->histogram("allot_update_duration_seconds")),
      rewards_(metrics->histogram("allot_rollout_reward_ratio")),
      lags_(metrics->histogram("allot_result_policy_lag_updates")),
      in_flight_seconds_(metrics->histogram("allot_result_age_seconds", {{"stage", "in_flight"}})),
      queued_seconds_(metrics->histogram("allot_result_age_seconds", {{"stage", "queued"}})) {}

void AggregatorProbe::set(std::string_view name, double value) { metrics_.gauge(name).Set(value); }

void AggregatorProbe::doNotLead(const std::string& why) {
  health_.unready(why);
  leader_.Set(0);
  if (!leads_) return;
  leads_ = false;
  for (const MetricInfo& metric : metricCatalogue()) {
    const bool of_the_run = metric.process == "aggregator" && metric.kind == MetricKind::kGauge;
    if (of_the_run && metric.name != "allot_leader") metrics_.clear(metric.name);
  }
  metrics_.clear("allot_worker_seconds_total");
}

void AggregatorProbe::lead(const RunSnapshot& snapshot) {
  leads_ = true;
  leader_.Set(1);
  if (snapshot.phase == Phase::kStarting) {
    health_.unready("no worker has loaded the model yet");
  } else {
    health_.ready();
  }
  showSettings(snapshot);
  showPolicy(snapshot);
  if (!snapshot.history.empty()) showNewestUpdate(snapshot.history.back());
  if (!snapshot.history.empty()) {
    std::vector<double> rewards;
    for (const auto& record : snapshot.history) rewards.push_back(record.mean_reward());
    set("allot_update_baseline_ratio", movingAverages(rewards).back());
  }
  showEvaluations(snapshot);
  showWorkers(snapshot);
  showWorkerSeconds(snapshot);
  if (snapshot.told) showAudits(snapshot.told->audits());
}

void AggregatorProbe::showSettings(const RunSnapshot& snapshot) {
  const v1::Spec& spec = snapshot.experiment.spec();
  const std::filesystem::path model = spec.model().path();
  metrics_.replace("allot_experiment_info",
                   {{{{"model", (model.has_filename() ? model : model.parent_path()).filename()},
                      {"method", methodsName(spec.attention())},
                      {"staleness_mode", spec.staleness().mode()}},
                     1}});
  for (const Phase phase : kAllOf<Phase>) {
    metrics_.gauge("allot_experiment_state", {{"state", std::string(wordOf(phase))}})
        .Set(snapshot.phase == phase ? 1 : 0);
  }
  set("allot_experiment_updates_max", spec.update().max_updates());
  set("allot_experiment_episodes_per_update", spec.update().episodes_per_update());
  // A share of dense attention's price is no number of reads.
  if (!hasPrices(spec.policy())) {
    set("allot_experiment_total_budget_reads", spec.policy().total_budget());
  }
  set("allot_experiment_edit_refused", snapshot.edit_refused.empty() ? 0 : 1);
}

void AggregatorProbe::showPolicy(const RunSnapshot& snapshot) {
  const v1::PolicySnapshot& policy = snapshot.state.policy();
  if (policy.logits().empty()) return;  // nobody knows the model's layers yet
  const v1::Spec& spec = snapshot.experiment.spec();
  const std::vector<double> shares = layerShares(policy);
  const auto drawsAt = [&](uint32_t total) {
    std::vector<double> draws = layerDraws(publishedSchedule(spec, policy, total), shares.size());
    // All rows are those of the longest context.
    for (double& of_layer : draws) {
      if (of_layer >= kAllRows) of_layer = spec.task().context_tokens();
    }
    return draws;
  };
  const std::vector<double> draws = drawsAt(spec.policy().total_budget());
  for (size_t layer = 0; layer < shares.size(); ++layer) {
    const MetricRegistry::Labels labels = {{"layer", layerLabel(layer, shares.size())}};
    metrics_.gauge("allot_policy_layer_probability_ratio", labels).Set(shares[layer]);
    metrics_.gauge("allot_policy_layer_reads", labels).Set(draws[layer]);
  }
  for (const v1::BudgetPolicy& budget : policy.frontier().budgets()) {
    const std::string total = std::to_string(budget.total_budget());
    const std::vector<double> published = drawsAt(budget.total_budget());
    for (size_t layer = 0; layer < shares.size(); ++layer) {
      metrics_
          .gauge("allot_policy_budget_reads",
                 {{"total_budget", total}, {"layer", layerLabel(layer, shares.size())}})
          .Set(published[layer]);
    }
    metrics_.gauge("allot_policy_beats_uniform", {{"total_budget", total}})
        .Set(budget.beats_uniform() ? 1 : 0);
  }
  set("allot_policy_version", static_cast<double>(policy.version()));
  set("allot_policy_entropy_nats", entropyOf(shares));
  set("allot_policy_published_timestamp_seconds",
      secondsOf(snapshot.history.empty() ? snapshot.run.started_unix_ms
                                         : snapshot.history.back().committed_unix_ms()));
}

void AggregatorProbe::showNewestUpdate(const v1::IterationRecord& record) {
  set("allot_policy_step_kl_nats", record.step_kl_nats());
  set("allot_policy_gradient_norm", record.gradient_norm());
  set("allot_update_reward_ratio", record.mean_reward());
  set("allot_update_effective_sample_size_ratio", record.effective_sample_size_ratio());
}

void AggregatorProbe::showEvaluations(const RunSnapshot& snapshot) {
  using Key = std::tuple<std::string, std::string, uint64_t>;
  std::map<Key, const EvaluationCell*> newest;
  for (const EvaluationCell& cell : snapshot.cells) {
    if (!cell.complete) continue;
    const EvaluationCell*& best = newest[{cell.method, cell.schedule_name, cell.total_budget}];
    if (best == nullptr || best->version < cell.version) best = &cell;
  }
  for (const auto& [key, cell] : newest) {
    const MetricRegistry::Labels labels = {{"method", cell->method},
                                           {"schedule", cell->schedule_name},
                                           {"total_budget", std::to_string(cell->total_budget)}};
    const auto show = [&](const char* name, double value) {
      metrics_.gauge(name, labels).Set(value);
    };
    show("allot_evaluation_accuracy_ratio", cell->all.mean());
    show("allot_evaluation_accuracy_low_ratio", cell->all.interval.low);
    show("allot_evaluation_accuracy_high_ratio", cell->all.interval.high);
    show("allot_evaluation_questions", static_cast<double>(cell->questions()));
    if (cell->decode_steps > 0) {
      show("allot_evaluation_decode_seconds_per_token",
           cell->decode_seconds / static_cast<double>(cell->decode_steps));
    }
    if (const double share = cell->reads.bytesShare(); share >= 0) {
      show("allot_evaluation_kv_read_ratio", share);
    }
    const PrefillReads& prompts = cell->prompts;
    for (const auto& [name, value] :
         {std::pair{"allot_evaluation_prefill_seconds", prompts.seconds()},
          {"allot_evaluation_prefill_selection_seconds", prompts.selectionSeconds()},
          {"allot_evaluation_prefill_density_ratio", prompts.density()},
          {"allot_evaluation_prefill_kept_mass_ratio", prompts.keptMass()},
          {"allot_evaluation_prefill_least_kept_mass_ratio", prompts.leastKeptMass()}}) {
      if (value >= 0) show(name, value);
    }
  }
}

void AggregatorProbe::showWorkers(const RunSnapshot& snapshot) {
  for (const WorkerState state : kAllOf<WorkerState>) {
    const auto count =
        std::count_if(snapshot.workers.begin(), snapshot.workers.end(),
                      [&](const v1::WorkerBeat& beat) { return stateOf(beat) == state; });
    metrics_.gauge("allot_workers", {{"state", std::string(wordOf(state))}})
        .Set(static_cast<double>(count));
  }
  set("allot_inbox_entries", static_cast<double>(snapshot.inbox_entries));
  if (!snapshot.run.synchronous) {
    const auto tickets = unansweredTickets(snapshot.tickets_reached, snapshot.state.episodes(), 0);
    set("allot_tickets_reached", static_cast<double>(tickets.tickets));
    set("allot_tickets_unanswered", static_cast<double>(tickets.unanswered));
  }
  set("allot_inbox_capacity_entries",
      static_cast<double>(inboxCapacity(kInboxEntries, snapshot.experiment)));
  if (snapshot.store_fill.used_bytes > 0) {
    set("allot_store_used_bytes", static_cast<double>(snapshot.store_fill.used_bytes));
    set("allot_store_limit_bytes", static_cast<double>(snapshot.store_fill.limit_bytes));
  }
  set("allot_evaluation_units", static_cast<double>(snapshot.open_units));
}

// The run's total is known, although other aggregators may have consumed the episodes. What others
// consumed before is booked on the device that is first heard of here.
void AggregatorProbe::showWorkerSeconds(const RunSnapshot& snapshot) {
  std::map<std::string, double> seconds = consumed_seconds_;
  double before = snapshot.state.worker_seconds();
  for (const auto& [device, consumed] : consumed_seconds_) before -= consumed;
  if (first_device_.empty() && !consumed_seconds_.empty()) {
    first_device_ = consumed_seconds_.begin()->first;
  }
  if (first_device_.empty() && !snapshot.workers.empty()) {
    first_device_ = deviceLabel(snapshot.workers.front().device());
  }
  if (!first_device_.empty()) seconds[first_device_] += std::max(0.0, before);
  for (const auto& [device, total] : seconds) {
    prometheus::Counter& counter =
        metrics_.counter("allot_worker_seconds_total", {{"device", device}});
    counter.Increment(total - counter.Value());  // never down
  }
}

void AggregatorProbe::showAudits(const v1::AuditStatus& audits) {
  for (const auto& [outcome, count] : {std::pair{"equal", audits.audited() - audits.differing()},
                                       {"differing", audits.differing()},
                                       {"dropped", audits.dropped()},
                                       {"undecided", audits.undecided()}}) {
    prometheus::Counter& counter = metrics_.counter("allot_audits_total", {{"outcome", outcome}});
    counter.Increment(std::max(0.0, static_cast<double>(count) - counter.Value()));
  }
  set("allot_audit_liars", static_cast<double>(audits.liars()));
}

std::string AggregatorProbe::deviceLabel(const std::string& device) {
  if (devices_.contains(device)) return device;
  const bool plain =
      !device.empty() && device.size() <= kLongestDevice &&
      std::all_of(device.begin(), device.end(), [](char c) { return c >= ' ' && c <= '~'; });
  if (!plain || devices_.size() == kMostDevices) return kOtherDevice;
  devices_.insert(device);
  return device;
}

void AggregatorProbe::updated(const v1::IterationRecord& record, double seconds) {
  updates_.Increment();
  update_seconds_.Observe(seconds);
  accepted_.Increment(record.results_size());
  const uint64_t now = unix_now_();
  for (const v1::EpisodeResult& result : record.results()) {
    rewards_.Observe(result.reward());
    lags_.Observe(static_cast<double>(record.version() - 1 - result.policy_version()));
    in_flight_seconds_.Observe(result.seconds());
    // The worker's clock may be ahead of ours.
    queued_seconds_.Observe(secondsOf(now - std::min(now, result.finished_unix_ms())));
    consumed_seconds_[deviceLabel(result.device())] += result.seconds();
  }
}

void AggregatorProbe::refused(RefusalKind kind) {
  switch (kind) {
    case RefusalKind::kUndecodable:
    case RefusalKind::kOversized:
    case RefusalKind::kInvalid:
      return invalid_.Increment();
    case RefusalKind::kStale:
      return stale_.Increment();
    case RefusalKind::kSuperseded:
      return superseded_.Increment();
  }
}

}  // namespace allot
