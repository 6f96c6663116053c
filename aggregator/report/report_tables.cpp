#include "aggregator/report/report_tables.h"

#include <spdlog/fmt/fmt.h>

namespace allot {
namespace {

using nlohmann::json;

std::string csvField(const std::string& value) {
  if (value.find_first_of(",\"\r\n") == std::string::npos) return value;
  std::string quoted = "\"";
  for (const char c : value) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + '"';
}

std::string csvNumber(const std::optional<double>& value) {
  return value ? fmt::format("{}", *value) : "";
}

std::string fidelityRow(const FidelityPoint& point, const char* part,
                        const FidelityNumbers& numbers) {
  return fmt::format(
      "{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}\n", csvField(point.method),
      csvField(point.schedule), point.total_budget, point.samples_per_layer, part,
      csvField(numbers.name), numbers.states, numbers.relative_error, numbers.rms_relative_error,
      numbers.cosine, csvNumber(numbers.agreement), numbers.trace_covariance,
      csvNumber(numbers.estimated_error), numbers.exceed_rate, numbers.draws, numbers.unique_rows,
      numbers.density, numbers.effective_sample_size, point.version);
}

}  // namespace

std::string curveCsv(const std::vector<CurvePoint>& points) {
  std::string csv =
      "method,schedule,total_budget,n,accuracy,ci_low,ci_high,version,task,kv_bytes_share,"
      "key_share,value_rows_share,prefill,prefill_density,prefill_bytes_share,prefill_seconds,"
      "prefill_selection_seconds,prefill_kept_mass,prefill_least_kept_mass\n";
  const auto row = [&](const CurvePoint& p, const auto& score, const std::string& task) {
    csv += fmt::format("{},{},{},{},{},{},{},{},{}", csvField(p.method), csvField(p.schedule),
                       p.total_budget, score.n, score.accuracy, score.low, score.high, p.version,
                       csvField(task));
  };
  for (const CurvePoint& p : points) {
    row(p, p, "all");
    csv += fmt::format(",{},{},{},{},{},{},{},{},{},{}\n", csvNumber(p.kv_bytes_share),
                       csvNumber(p.key_share), csvNumber(p.value_rows_share), csvField(p.prefill),
                       csvNumber(p.prefill_density), csvNumber(p.prefill_bytes_share),
                       csvNumber(p.prefill_seconds), csvNumber(p.prefill_selection_seconds),
                       csvNumber(p.prefill_kept_mass), csvNumber(p.prefill_least_kept_mass));
  }
  for (const CurvePoint& p : points) {
    for (const TaskScore& task : p.tasks) {
      row(p, task, task.task);
      csv += ",,,,,,,,,,\n";
    }
  }
  return csv;
}

std::string fidelityCsv(const std::vector<FidelityPoint>& points) {
  std::string csv =
      "method,schedule,total_budget,samples_per_layer,part,name,states,relative_error,"
      "rms_relative_error,cosine,agreement,trace_covariance,estimated_error,exceed_rate,draws,"
      "unique_rows,density,effective_sample_size,version\n";
  for (const FidelityPoint& point : points) csv += fidelityRow(point, "all", point.all);
  for (const FidelityPoint& point : points) {
    for (const auto& part : point.layers) csv += fidelityRow(point, "layer", part);
    for (const auto& part : point.supports) csv += fidelityRow(point, "tiles", part);
    for (const auto& part : point.tasks) csv += fidelityRow(point, "task", part);
  }
  return csv;
}

json summaryJson(const RunView& view) {
  json summary = json::object();
  for (const char* key :
       {"run_id", "experiment", "state", "synchronous", "started_unix_ms", "updates", "max_updates",
        "episodes", "wall_seconds", "episodes_per_second", "total_budget", "layers", "granularity",
        "learned_schedule", "layer_draws", "frontier", "model"}) {
    summary[key] = view.facts.value(key, json());
  }
  summary["evaluations"] = json::array();
  for (const CurvePoint& point : newestCompletePerCell(view.points)) {
    summary["evaluations"].push_back(cellView(point));
  }
  summary["fidelity"] = json::array();
  for (const FidelityPoint& point : newestFidelity(view.fidelity)) {
    summary["fidelity"].push_back(fidelityView(point));
  }
  summary["variance_slopes"] = slopesView(view.slopes);
  return summary;
}

}  // namespace allot
