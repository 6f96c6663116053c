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

json optionalJson(const std::optional<double>& value) { return value ? json(*value) : json(); }

json scoresJson(const std::vector<TaskScore>& tasks) {
  json rows = json::array();
  for (const TaskScore& task : tasks) {
    rows.push_back({{"task", task.task},
                    {"n", task.n},
                    {"accuracy", task.accuracy},
                    {"ci95", {task.low, task.high}}});
  }
  return rows;
}

json evaluationsJson(const std::vector<CurvePoint>& points) {
  json rows = json::array();
  for (const auto& point : points) {
    rows.push_back({{"method", point.method},
                    {"schedule", point.schedule},
                    {"total_budget", point.total_budget},
                    {"n", point.n},
                    {"accuracy", point.accuracy},
                    {"ci95", {point.low, point.high}},
                    {"version", point.version},
                    {"tasks", scoresJson(point.tasks)},
                    {"kv_bytes_share", optionalJson(point.kv_bytes_share)},
                    {"key_share", optionalJson(point.key_share)},
                    {"value_rows_share", optionalJson(point.value_rows_share)}});
  }
  return rows;
}

json numbersJson(const FidelityNumbers& numbers) {
  return {{"states", numbers.states},
          {"relative_error", numbers.relative_error},
          {"rms_relative_error", numbers.rms_relative_error},
          {"cosine", numbers.cosine},
          {"agreement", optionalJson(numbers.agreement)},
          {"trace_covariance", numbers.trace_covariance},
          {"estimated_error", optionalJson(numbers.estimated_error)},
          {"exceed_rate", numbers.exceed_rate},
          {"draws", numbers.draws},
          {"unique_rows", numbers.unique_rows},
          {"density", numbers.density},
          {"effective_sample_size", numbers.effective_sample_size}};
}

json partsJson(const std::vector<FidelityNumbers>& parts, const char* key) {
  json rows = json::array();
  for (const FidelityNumbers& part : parts) {
    rows.push_back(numbersJson(part));
    rows.back()[key] = part.name;
  }
  return rows;
}

json fidelityJson(const std::vector<FidelityPoint>& points) {
  json rows = json::array();
  for (const FidelityPoint& point : points) {
    json row = numbersJson(point.all);
    row.update({{"method", point.method},
                {"schedule", point.schedule},
                {"total_budget", point.total_budget},
                {"samples_per_layer", point.samples_per_layer},
                {"version", point.version}});
    row["layers"] = partsJson(point.layers, "layer");
    row["supports"] = partsJson(point.supports, "tiles");
    row["tasks"] = partsJson(point.tasks, "task");
    rows.push_back(std::move(row));
  }
  return rows;
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
      "key_share,value_rows_share\n";
  const auto row = [&](const CurvePoint& p, const auto& score, const std::string& task) {
    csv += fmt::format("{},{},{},{},{},{},{},{},{}", csvField(p.method), csvField(p.schedule),
                       p.total_budget, score.n, score.accuracy, score.low, score.high, p.version,
                       csvField(task));
  };
  for (const CurvePoint& p : points) {
    row(p, p, "all");
    csv += fmt::format(",{},{},{}\n", csvNumber(p.kv_bytes_share), csvNumber(p.key_share),
                       csvNumber(p.value_rows_share));
  }
  for (const CurvePoint& p : points) {
    for (const TaskScore& task : p.tasks) {
      row(p, task, task.task);
      csv += ",,,\n";
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

json summaryJson(const json& view) {
  json summary = json::object();
  for (const char* key :
       {"run_id", "experiment", "state", "synchronous", "started_unix_ms", "updates", "max_updates",
        "episodes", "wall_seconds", "episodes_per_second", "total_budget", "layers",
        "learned_schedule", "model"}) {
    summary[key] = viewField(view, key);
  }
  summary["evaluations"] = evaluationsJson(newestCompletePerCell(evaluationPoints(view)));
  summary["fidelity"] = fidelityJson(fidelityPoints(view));
  const json& slopes = viewField(view, "variance_slopes");
  summary["variance_slopes"] = slopes.is_array() ? slopes : json::array();
  return summary;
}

}  // namespace allot
