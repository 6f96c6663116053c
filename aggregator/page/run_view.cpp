#include "aggregator/page/run_view.h"

#include <google/protobuf/util/json_util.h>

#include <algorithm>

#include "core/learning/policy_gradient.h"
#include "core/worker_beats.h"

namespace allot {
namespace {

using nlohmann::json;

constexpr size_t kMaxPoints = 1000;

json historyView(const std::vector<v1::IterationRecord>& history) {
  json points = json::array();
  const size_t stride = history.size() / kMaxPoints + 1;
  const std::vector<double> baselines = shownBaselines(history);
  for (size_t i = 0; i < history.size(); ++i) {
    const v1::IterationRecord& record = history[i];
    if (i % stride == 0 || i + 1 == history.size()) {
      points.push_back({{"version", record.version()},
                        {"mean_reward", record.mean_reward()},
                        {"mean_baseline", baselines[i]},
                        {"gradient_norm", record.gradient_norm()},
                        {"step_kl", record.step_kl_nats()},
                        {"entropy", record.entropy_nats()},
                        {"ess", record.effective_sample_size_ratio()},
                        {"lag", record.mean_lag_updates()}});
    }
  }
  return points;
}

// Null where nothing was counted.
json shareView(double share) { return share < 0 ? json() : json(share); }

json tallyView(const ScoreTally& tally) {
  return {{"n", tally.n},
          {"accuracy", tally.mean()},
          {"ci95", {tally.interval.low, tally.interval.high}}};
}

std::string taskName(const v1::Spec& spec, uint32_t task) {
  const auto index = static_cast<int>(task);
  return index < spec.task().tasks_size() ? spec.task().tasks(index)
                                          : "task " + std::to_string(task);
}

json evaluationsView(const std::vector<EvaluationCell>& cells, const v1::Spec& spec) {
  json rows = json::array();
  for (const EvaluationCell& cell : cells) {
    if (!cell.complete) continue;
    json row = tallyView(cell.all);
    row.update({{"version", cell.version},
                {"method", cell.method},
                {"schedule", cell.schedule_name},
                {"total_budget", cell.total_budget},
                {"samples", cell.schedule},
                {"kv_bytes_share", shareView(cell.reads.bytesShare())},
                {"key_share", shareView(cell.reads.keyShare())},
                {"value_rows_share", shareView(cell.reads.valueRowsShare())},
                {"tasks", json::array()}});
    for (const auto& [task, tally] : cell.tasks) {
      json one = tallyView(tally);
      one["task"] = taskName(spec, task);
      row["tasks"].push_back(std::move(one));
    }
    if (cell.other.n > 0) row["other_grader"] = tallyView(cell.other);
    rows.push_back(std::move(row));
  }
  return rows;
}

json optionalView(const std::optional<double>& value) { return value ? json(*value) : json(); }

json fidelityNumbers(const FidelitySums& sums) {
  return {{"states", sums.states},
          {"relative_error", sums.meanRelativeError()},
          {"rms_relative_error", sums.rmsRelativeError()},
          {"cosine", sums.meanCosine()},
          {"agreement", optionalView(sums.agreement())},
          {"trace_covariance", sums.traceCovariance()},
          {"estimated_error", optionalView(sums.meanEstimatedError())},
          {"exceed_rate", sums.exceedRate()},
          {"draws", sums.drawsMade()},
          {"unique_rows", sums.uniqueRows()},
          {"density", sums.density()},
          {"effective_sample_size", sums.effectiveSampleSize()}};
}

// The parts of one cell, each under its name: "layer", "support" or "task".
template <typename Name>
json fidelityParts(const std::map<uint32_t, FidelitySums>& parts, const char* key, Name name) {
  json rows = json::array();
  for (const auto& [number, sums] : parts) {
    json row = fidelityNumbers(sums);
    row[key] = name(number);
    rows.push_back(std::move(row));
  }
  return rows;
}

json fidelityView(const std::vector<FidelitySummary>& summaries, const v1::Spec& spec) {
  json rows = json::array();
  for (const FidelitySummary& summary : summaries) {
    if (!summary.complete) continue;
    json row = fidelityNumbers(summary.all);
    row.update({{"version", summary.version},
                {"method", summary.method},
                {"schedule", summary.schedule_name},
                {"total_budget", summary.total_budget},
                {"samples_per_layer", summary.drawsPerLayer()},
                {"questions", summary.questions}});
    row["layers"] = fidelityParts(summary.layers, "layer", [](uint32_t layer) { return layer; });
    row["supports"] = fidelityParts(summary.supports, "tiles", supportLabel);
    row["tasks"] =
        fidelityParts(summary.tasks, "task", [&](uint32_t task) { return taskName(spec, task); });
    rows.push_back(std::move(row));
  }
  return rows;
}

json slopesView(const std::vector<FidelitySummary>& summaries) {
  json rows = json::array();
  for (const VarianceSlope& slope : varianceSlopes(summaries)) {
    rows.push_back({{"method", slope.method}, {"slope", slope.slope}, {"budgets", slope.budgets}});
  }
  return rows;
}

// Leaves of the experiment's JSON form as ["spec.a.b", "value"].
void flatten(const json& node, const std::string& path, json* rows) {
  if (node.is_object()) {
    for (const auto& [key, child] : node.items()) flatten(child, path + "." + key, rows);
  } else {
    rows->push_back({path, node.is_string() ? node.get<std::string>() : node.dump()});
  }
}

json settingsView(const v1::Experiment& experiment) {
  std::string text;
  google::protobuf::util::JsonPrintOptions options;
  options.always_print_primitive_fields = true;
  json rows = json::array();
  if (google::protobuf::util::MessageToJsonString(experiment.spec(), &text, options).ok()) {
    flatten(json::parse(text), "spec", &rows);
  }
  return rows;
}

json workersView(const std::vector<v1::WorkerBeat>& workers) {
  json rows = json::array();
  for (const v1::WorkerBeat& beat : workers) {
    rows.push_back({{"worker", beat.worker()},
                    {"state", stateText(beat)},
                    {"last_error", beat.last_error()},
                    {"device", beat.device()},
                    {"policy_version", beat.policy_version()},
                    {"episodes", beat.episodes()},
                    {"seen_unix_ms", beat.seen_unix_ms()}});
  }
  return rows;
}

// Consumed results by lag, from the first class to the last that has any.
json lagView(const v1::AggregatorState& state) {
  json rows = json::array();
  int last = 0;
  for (int bucket = 0; bucket < state.lag_counts_size(); ++bucket) {
    if (state.lag_counts(bucket) > 0) last = bucket;
  }
  for (int bucket = 0; bucket <= last && bucket < state.lag_counts_size(); ++bucket) {
    rows.push_back({{"lag", lagBucketLabel(static_cast<size_t>(bucket))},
                    {"results", state.lag_counts(bucket)}});
  }
  return rows;
}

// Episodes per second of rollouts over the last updates, pauses for evaluation left out: the median
// time between two updates is not moved by the few long ones.
double episodesPerSecond(const RunSnapshot& snapshot) {
  const auto& history = snapshot.history;
  if (history.size() < 3) return 0;
  std::vector<double> gaps;
  const size_t first = history.size() > 100 ? history.size() - 100 : 1;
  for (size_t i = first; i < history.size(); ++i) {
    gaps.push_back(static_cast<double>(history[i].committed_unix_ms()) -
                   static_cast<double>(history[i - 1].committed_unix_ms()));
  }
  std::nth_element(gaps.begin(), gaps.begin() + static_cast<std::ptrdiff_t>(gaps.size() / 2),
                   gaps.end());
  const double gap = gaps[gaps.size() / 2];
  const double episodes = snapshot.experiment.spec().update().episodes_per_update();
  return gap > 0 ? 1000.0 * episodes / gap : 0;
}

}  // namespace

std::vector<double> shownBaselines(const std::vector<v1::IterationRecord>& history) {
  std::vector<double> baselines;
  double baseline = history.empty() ? 0 : history.front().mean_reward();
  for (const v1::IterationRecord& record : history) {
    baselines.push_back(baseline);
    baseline = 0.9 * baseline + 0.1 * record.mean_reward();
  }
  return baselines;
}

json runView(const RunSnapshot& snapshot, uint64_t now_unix_ms, const std::string& run_id) {
  const v1::Spec& spec = snapshot.experiment.spec();
  uint64_t refused = 0;
  for (const auto& [kind, count] : snapshot.refused) refused += count;
  const auto& policy = snapshot.state.policy();
  const auto layers = static_cast<uint32_t>(policy.logits_size());
  json view = {
      {"run_id", run_id},
      {"experiment", snapshot.run.experiment.name()},
      {"state", wordOf(snapshot.phase)},
      {"started_unix_ms", snapshot.run.started_unix_ms},
      {"now_unix_ms", now_unix_ms},
      // The clock that the start was told by may be ahead of ours.
      {"wall_seconds",
       static_cast<double>(now_unix_ms - std::min(now_unix_ms, snapshot.run.started_unix_ms)) /
           1000.0},
      {"synchronous", snapshot.run.synchronous},
      {"updates", policy.version()},
      // An edited file may ask for fewer than there are: none is taken back.
      {"max_updates",
       spec.has_update() ? std::max<uint64_t>(spec.update().max_updates(), policy.version()) : 0},
      {"episodes", snapshot.state.episodes()},
      {"episodes_per_second", episodesPerSecond(snapshot)},
      {"rejected_results", refused},
      {"refused", snapshot.refused},
      {"waiting", snapshot.waiting},
      {"last_error", snapshot.last_error},
      {"edit_refused", snapshot.edit_refused},
      {"lag_histogram", lagView(snapshot.state)},
      {"total_budget", spec.policy().total_budget()},
      {"layers", layers},
      {"history", historyView(snapshot.history)},
      {"evaluations", evaluationsView(snapshot.cells, spec)},
      {"fidelity", fidelityView(snapshot.fidelity, spec)},
      {"variance_slopes", slopesView(snapshot.fidelity)},
      {"workers", workersView(snapshot.workers)},
      {"settings", settingsView(snapshot.experiment)},
      {"policy_probabilities", json::array()},
      {"learned_schedule", json::array()},
      {"model", nullptr}};
  if (layers > 0) {
    const auto probabilities = softmax({policy.logits().begin(), policy.logits().end()});
    view["policy_probabilities"] = probabilities;
    view["learned_schedule"] =
        learnedSchedule(probabilities, spec.policy().total_budget(), spec.policy().min_per_layer(),
                        spec.policy().total_budget());
  }
  if (snapshot.model) {
    view["model"] = {{"architecture", snapshot.model->architecture()},
                     {"layers", snapshot.model->layers()},
                     {"heads", snapshot.model->heads()},
                     {"kv_heads", snapshot.model->kv_heads()},
                     {"head_dim", snapshot.model->head_dim()},
                     {"parameters", snapshot.model->parameters()}};
  }
  return view;
}

}  // namespace allot
