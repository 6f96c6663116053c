#include "aggregator/report/report_data.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

namespace allot {
namespace {

using nlohmann::json;

std::optional<double> number(const json& value) {
  if (!value.is_number()) return std::nullopt;
  const double number = value.get<double>();
  return std::isfinite(number) ? std::optional(number) : std::nullopt;
}

double numberOr0(const json& object, const char* key) {
  return number(viewField(object, key)).value_or(0);
}

// A count that a double holds exactly.
std::optional<uint64_t> count(const json& value) {
  const auto real = number(value);
  if (!real || *real < 0 || *real > 9007199254740992.0) return std::nullopt;
  return static_cast<uint64_t>(*real);
}

// {n, accuracy, ci95}, of a cell or of a task in it.
template <typename Score>
bool readScore(const json& row, Score* score) {
  const auto accuracy = number(viewField(row, "accuracy"));
  const auto n = count(viewField(row, "n"));
  if (!accuracy || *accuracy < 0 || *accuracy > 1 || !n || *n == 0) return false;
  score->n = *n;
  score->accuracy = score->low = score->high = *accuracy;
  const json& interval = viewField(row, "ci95");
  if (interval.is_array() && interval.size() == 2) {
    score->low = std::clamp(number(interval[0]).value_or(*accuracy), 0.0, *accuracy);
    score->high = std::clamp(number(interval[1]).value_or(*accuracy), *accuracy, 1.0);
  }
  return true;
}

std::optional<double> share(const json& row, const char* key) {
  const auto value = number(viewField(row, key));
  return value && *value >= 0 ? value : std::nullopt;
}

std::optional<CurvePoint> evaluationPoint(const json& row) {
  CurvePoint point;
  const auto budget = count(viewField(row, "total_budget"));
  if (!budget || !readScore(row, &point)) return std::nullopt;
  point.method = viewText(row, "method");
  point.schedule = viewText(row, "schedule");
  point.version = count(viewField(row, "version")).value_or(0);
  point.total_budget = *budget;
  point.kv_bytes_share = share(row, "kv_bytes_share");
  point.key_share = share(row, "key_share");
  point.value_rows_share = share(row, "value_rows_share");
  const json& tasks = viewField(row, "tasks");
  for (size_t i = 0; tasks.is_array() && i < tasks.size(); ++i) {
    TaskScore task;
    task.task = viewText(tasks[i], "task");
    if (readScore(tasks[i], &task)) point.tasks.push_back(std::move(task));
  }
  return point;
}

uint64_t fullCount(const std::vector<CurvePoint>& points) {
  uint64_t full = 0;
  for (const auto& point : points) full = std::max(full, point.n);
  return full;
}

std::optional<FidelityNumbers> fidelityNumbers(const json& row) {
  const auto states = count(viewField(row, "states"));
  const auto error = number(viewField(row, "relative_error"));
  if (!states || *states == 0 || !error || *error < 0) return std::nullopt;
  FidelityNumbers numbers;
  numbers.states = *states;
  numbers.relative_error = *error;
  numbers.rms_relative_error = numberOr0(row, "rms_relative_error");
  numbers.cosine = numberOr0(row, "cosine");
  numbers.agreement = number(viewField(row, "agreement"));
  numbers.trace_covariance = numberOr0(row, "trace_covariance");
  numbers.estimated_error = number(viewField(row, "estimated_error"));
  numbers.exceed_rate = numberOr0(row, "exceed_rate");
  numbers.draws = numberOr0(row, "draws");
  numbers.unique_rows = numberOr0(row, "unique_rows");
  numbers.density = numberOr0(row, "density");
  numbers.effective_sample_size = numberOr0(row, "effective_sample_size");
  return numbers;
}

std::vector<FidelityNumbers> fidelityParts(const json& rows, const char* key) {
  std::vector<FidelityNumbers> parts;
  for (size_t i = 0; rows.is_array() && i < rows.size(); ++i) {
    auto part = fidelityNumbers(rows[i]);
    if (!part) continue;
    const json& name = viewField(rows[i], key);
    part->name = name.is_string() ? name.get<std::string>() : name.dump();
    parts.push_back(std::move(*part));
  }
  return parts;
}

}  // namespace

const json& viewField(const json& object, const char* key) {
  static const json kNothing;
  if (!object.is_object()) return kNothing;
  const auto it = object.find(key);
  return it == object.end() ? kNothing : *it;
}

std::string viewText(const json& object, const char* key) {
  const json& value = viewField(object, key);
  return value.is_string() ? value.get<std::string>() : std::string();
}

std::vector<CurvePoint> evaluationPoints(const json& view) {
  std::vector<CurvePoint> points;
  const json& rows = viewField(view, "evaluations");
  if (!rows.is_array()) return points;
  for (const json& row : rows) {
    if (auto point = evaluationPoint(row)) points.push_back(std::move(*point));
  }
  return points;
}

std::vector<CurvePoint> newestCompletePerSchedule(const std::vector<CurvePoint>& points) {
  using Line = std::pair<std::string, std::string>;
  using Row = std::map<uint64_t, const CurvePoint*>;  // by budget
  const uint64_t full = fullCount(points);
  std::map<Line, std::map<uint64_t, Row>> lines;  // by version
  for (const auto& point : points) {
    lines[{point.method, point.schedule}][point.version][point.total_budget] = &point;
  }
  std::vector<CurvePoint> chosen;
  for (const auto& [line, versions] : lines) {
    const Row* best = nullptr;
    std::pair<size_t, size_t> best_rank;
    for (const auto& [version, row] : versions) {  // ascending: the newest of equals wins
      const auto complete = static_cast<size_t>(std::count_if(
          row.begin(), row.end(), [&](const auto& cell) { return cell.second->n == full; }));
      const std::pair rank(complete, row.size());
      if (best == nullptr || rank >= best_rank) {
        best = &row;
        best_rank = rank;
      }
    }
    if (best == nullptr) continue;
    for (const auto& [budget, point] : *best) chosen.push_back(*point);
  }
  return chosen;
}

std::vector<CurvePoint> newestCompletePerCell(const std::vector<CurvePoint>& points) {
  const uint64_t full = fullCount(points);
  std::map<std::tuple<std::string, std::string, uint64_t>, const CurvePoint*> cells;
  for (const auto& point : points) {
    const auto rank = [&](const CurvePoint& p) { return std::pair(p.n == full, p.version); };
    auto& cell = cells[{point.method, point.schedule, point.total_budget}];
    if (cell == nullptr || rank(point) >= rank(*cell)) cell = &point;
  }
  std::vector<CurvePoint> chosen;
  for (const auto& [key, point] : cells) chosen.push_back(*point);
  return chosen;
}

std::vector<FidelityPoint> fidelityPoints(const json& view) {
  std::map<std::tuple<std::string, std::string, uint64_t>, FidelityPoint> newest;
  const json& rows = viewField(view, "fidelity");
  for (size_t i = 0; rows.is_array() && i < rows.size(); ++i) {
    const json& row = rows[i];
    const auto all = fidelityNumbers(row);
    const auto budget = count(viewField(row, "total_budget"));
    if (!all || !budget) continue;
    FidelityPoint point{viewText(row, "method"),
                        viewText(row, "schedule"),
                        count(viewField(row, "version")).value_or(0),
                        *budget,
                        std::max(0.0, numberOr0(row, "samples_per_layer")),
                        *all,
                        fidelityParts(viewField(row, "layers"), "layer"),
                        fidelityParts(viewField(row, "supports"), "tiles"),
                        fidelityParts(viewField(row, "tasks"), "task")};
    auto& known = newest[{point.method, point.schedule, point.total_budget}];
    if (known.all.states == 0 || point.version >= known.version) known = std::move(point);
  }
  std::vector<FidelityPoint> points;
  for (auto& [key, point] : newest) points.push_back(std::move(point));
  return points;
}

}  // namespace allot
