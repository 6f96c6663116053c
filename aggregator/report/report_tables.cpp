#include "aggregator/report/report_tables.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <sstream>
#include <tuple>

#include "aggregator/report/curve_svg.h"
#include "core/spec/choices.h"

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

// Splits a line of a CSV file.
// Requires: no field holds a newline.
std::vector<std::string> csvFields(const std::string& line) {
  std::vector<std::string> fields(1);
  bool quoted = false;
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (quoted && c == '"' && line[i + 1] == '"') {
      fields.back() += line[++i];
    } else if (c == '"') {
      quoted = !quoted;
    } else if (c == ',' && !quoted) {
      fields.emplace_back();
    } else if (c != '\r') {
      fields.back() += c;
    }
  }
  return fields;
}

// A line of curve.csv, by the names in the first line.
class CurveLineReader {
 public:
  CurveLineReader(const std::vector<std::string>& names, const std::vector<std::string>& fields)
      : names_(names), fields_(fields) {}

  // Returns a field; "" if the line has none under this name.
  std::string text(const char* name) const {
    const auto at = std::find(names_.begin(), names_.end(), name) - names_.begin();
    return static_cast<size_t>(at) < fields_.size() ? fields_[at] : "";
  }
  std::optional<double> optional(const char* name) {
    const std::string field = text(name);
    double value = 0;
    const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
    if (!field.empty() && error == std::errc() && end == field.data() + field.size()) return value;
    if (!field.empty()) wrong_ = name;
    return std::nullopt;
  }
  double number(const char* name) {
    const std::optional<double> value = optional(name);
    if (!value) wrong_ = name;
    return value.value_or(0);
  }
  // Returns a column that should have a number, or "".
  const std::string& wrong() const { return wrong_; }

 private:
  const std::vector<std::string>& names_;
  const std::vector<std::string>& fields_;
  std::string wrong_;
};

// The columns of a difference: behind each other's mean and interval, those of its test.
std::string csvDifference(const std::optional<PairedDifference>& paired) {
  if (!paired) return ",,";
  return fmt::format("{},{},{}", paired->mean, paired->interval.low, paired->interval.high);
}
std::string csvTest(const std::optional<PairedDifference>& paired) {
  if (!paired) return ",,,";
  const std::string holm =
      paired->family > 0 ? fmt::format("{},{}", paired->holm_p, paired->family) : ",";
  return fmt::format("{},{},{}", paired->interval.name, paired->p, holm);
}

std::string partName(const FidelityPoint& point, const char* part, const FidelityNumbers& numbers) {
  return fmt::format("{},{},{},{},{},{}", csvField(point.method), csvField(point.schedule),
                     point.total_budget, point.reads_per_layer, part, csvField(numbers.name));
}

std::string fidelityRow(const FidelityPoint& point, const char* part,
                        const FidelityNumbers& numbers) {
  return fmt::format("{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}\n",
                     partName(point, part, numbers), numbers.states, numbers.relative_error,
                     numbers.rms_relative_error, numbers.cosine, csvNumber(numbers.agreement),
                     csvNumber(numbers.divergence), numbers.trace_covariance,
                     csvNumber(numbers.estimated_error), numbers.exceed_rate, numbers.draws,
                     numbers.unique_rows, numbers.density, numbers.effective_sample_size,
                     point.version, point.support_tile, wordOf(point.agreement));
}

std::string varianceRow(const FidelityPoint& point, const char* part,
                        const FidelityNumbers& numbers) {
  return fmt::format("{},{},{},{},{},{},{},{},{},{},{},{},{}\n", partName(point, part, numbers),
                     numbers.positions, numbers.replicates, csvNumber(numbers.variance),
                     csvNumber(numbers.closed_form), numbers.trace_covariance,
                     numbers.relative_error, numbers.cosine, numbers.draws, numbers.unique_rows,
                     numbers.density, point.version, point.support_tile);
}

using Row = std::string (*)(const FidelityPoint& point, const char* part,
                            const FidelityNumbers& numbers);

std::string rowsOf(const std::vector<FidelityPoint>& points, Row row) {
  std::string csv;
  for (const FidelityPoint& point : points) csv += row(point, "all", point.all);
  for (const FidelityPoint& point : points) {
    for (const auto& part : point.layers) csv += row(point, "layer", part);
    for (const auto& part : point.supports) csv += row(point, "tiles", part);
    for (const auto& part : point.layer_supports) csv += row(point, "layer/tiles", part);
    for (const auto& part : point.tasks) csv += row(point, "task", part);
  }
  return csv;
}

}  // namespace

std::string curveCsv(const std::vector<CurvePoint>& points, const std::string& unit) {
  const std::string price(wordOf(priceWith(unit)));
  std::string csv =
      "method,schedule,total_budget,n,accuracy,ci_low,ci_high,version,task,kv_bytes_share,"
      "key_share,value_rows_share,prefill,prefill_density,prefill_bytes_share,prefill_seconds,"
      "prefill_selection_seconds,prefill_kept_mass,prefill_least_kept_mass,repeats,repeat_sd,"
      "answer_tokens,prompt_tokens,over_dense,over_dense_low,over_dense_high,over_uniform,"
      "over_uniform_low,over_uniform_high,interval,over_dense_interval,over_dense_p,"
      "over_dense_holm_p,over_dense_family,over_uniform_interval,over_uniform_p,"
      "over_uniform_holm_p,over_uniform_family,price\n";
  const auto row = [&](const CurvePoint& p, const auto& score, const std::string& task) {
    csv += fmt::format("{},{},{},{},{},{},{},{},{}", csvField(p.method), csvField(p.schedule),
                       p.total_budget, score.n, score.accuracy, score.low, score.high, p.version,
                       csvField(task));
  };
  for (const CurvePoint& p : points) {
    row(p, p, "all");
    csv += fmt::format(",{},{},{},{},{},{},{},{},{},{}", csvNumber(p.kv_bytes_share),
                       csvNumber(p.key_share), csvNumber(p.value_rows_share), csvField(p.prefill),
                       csvNumber(p.prefill_density), csvNumber(p.prefill_bytes_share),
                       csvNumber(p.prefill_seconds), csvNumber(p.prefill_selection_seconds),
                       csvNumber(p.prefill_kept_mass), csvNumber(p.prefill_least_kept_mass));
    csv += fmt::format(",{},{},{},{},{},{},{},{},{},{}\n", p.repeats, csvNumber(p.repeat_sd),
                       csvNumber(p.answer_tokens), csvNumber(p.prompt_tokens),
                       csvDifference(p.over_dense), csvDifference(p.over_uniform), p.interval,
                       csvTest(p.over_dense), csvTest(p.over_uniform), price);
  }
  for (const CurvePoint& p : points) {
    for (const TaskScore& task : p.tasks) {
      row(p, task, task.task);
      csv += fmt::format(",,,,,,,,,,,{},,,,,,,,,,{},,,,,,,,,{}\n", p.repeats, task.interval, price);
    }
  }
  return csv;
}

Result<std::vector<CurvePoint>> curvePointsOf(const std::string& csv, const std::string& place) {
  std::istringstream lines(csv);
  std::string line;
  std::getline(lines, line);
  const std::vector<std::string> names = csvFields(line);
  std::vector<CurvePoint> points;
  std::map<std::tuple<std::string, std::string, uint64_t, uint64_t>, size_t> places;
  for (size_t number = 2; std::getline(lines, line); ++number) {
    const std::vector<std::string> fields = csvFields(line);
    CurveLineReader reader(names, fields);
    CurvePoint point;
    point.method = reader.text("method");
    point.schedule = reader.text("schedule");
    point.total_budget =
        static_cast<uint64_t>(std::clamp(reader.number("total_budget"), 0.0, 1e15));
    point.version = static_cast<uint64_t>(std::clamp(reader.number("version"), 0.0, 1e15));
    point.n = static_cast<uint64_t>(std::clamp(reader.number("n"), 0.0, 1e15));
    point.accuracy = reader.number("accuracy");
    point.low = reader.number("ci_low");
    point.high = reader.number("ci_high");
    point.kv_bytes_share = reader.optional("kv_bytes_share");
    point.key_share = reader.optional("key_share");
    point.prefill = reader.text("prefill");
    point.prefill_density = reader.optional("prefill_density");
    point.interval = reader.text("interval");
    if (!reader.wrong().empty()) {
      return fail(ErrorCode::kData, fmt::format("{}, line {}: {} is no number, or not there", place,
                                                number, reader.wrong()));
    }
    const std::string task = reader.text("task");
    const auto [at, is_new] = places.try_emplace(
        {point.method, point.schedule, point.version, point.total_budget}, points.size());
    if (is_new && task == "all") {
      points.push_back(std::move(point));
    } else if (is_new) {
      places.erase(at);
    } else if (task != "all") {
      points[at->second].tasks.push_back(
          {task, point.n, point.accuracy, point.low, point.high, point.interval});
    }
  }
  return points;
}

std::string curveUnitOf(const std::string& csv) {
  std::istringstream lines(csv);
  std::string head, first;
  std::getline(lines, head);
  std::getline(lines, first);
  const std::vector<std::string> names = csvFields(head), fields = csvFields(first);
  const auto price = fromWord<Price>(CurveLineReader(names, fields).text("price"));
  return unitOf(price.value_or(Price::kReads));
}

std::string fidelityCsv(const std::vector<FidelityPoint>& points) {
  return "method,schedule,total_budget,reads_per_layer,part,name,states,relative_error,"
         "rms_relative_error,cosine,agreement,divergence,trace_covariance,estimated_error,exceed_"
         "rate,"
         "draws,unique_rows,density,effective_sample_size,version,support_tile,agreement_layers\n" +
         rowsOf(points, fidelityRow);
}

std::string varianceCsv(const std::vector<FidelityPoint>& points) {
  return "method,schedule,total_budget,reads_per_layer,part,name,positions,replicates,variance,"
         "closed_form,squared_error,relative_error,cosine,draws,unique_rows,density,version,"
         "support_tile\n" +
         rowsOf(points, varianceRow);
}

std::vector<AsGoodLine> asGoodLines(const RunView& view) {
  LineDifferences lines;
  bool compared = false;
  for (const CurvePoint& point : newestCompletePerCell(view.points)) {
    compared = compared || point.over_dense;
    if (point.total_budget == 0 || isOneHot(point.schedule)) continue;
    lines[{point.method, point.schedule}][point.total_budget] = point.over_dense;
  }
  return compared ? asGoodLines(lines, view.margin) : std::vector<AsGoodLine>();
}

json summaryJson(const RunView& view) {
  json summary = json::object();
  for (const char* key :
       {"run_id", "experiment", "state", "synchronous", "started_unix_ms", "updates", "max_updates",
        "episodes", "wall_seconds", "episodes_per_second", "total_budget", "price", "layers",
        "granularity", "learned_schedule", "layer_reads", "frontier", "model"}) {
    summary[key] = view.facts.value(key, json());
  }
  summary["evaluations"] = json::array();
  for (const CurvePoint& point : newestCompletePerCell(view.points)) {
    summary["evaluations"].push_back(cellView(point));
  }
  summary["margin"] = view.margin;
  summary["as_good_as_dense"] = asGoodView(asGoodLines(view));
  summary["fidelity"] = json::array();
  for (const FidelityPoint& point : newestFidelity(view.fidelity)) {
    summary["fidelity"].push_back(fidelityView(point));
  }
  summary["variance"] = json::array();
  for (const FidelityPoint& point : newestFidelity(view.variance)) {
    summary["variance"].push_back(varianceView(point));
  }
  summary["variance_slopes"] = slopesView(view.slopes);
  return summary;
}

}  // namespace allot
