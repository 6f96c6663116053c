#include "aggregator/page/measurements.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "core/evaluation/evaluation_plan.h"

namespace allot {
namespace {

std::string taskName(const v1::Spec& spec, uint32_t task) {
  const auto index = static_cast<int>(task);
  return index < spec.task().tasks_size() ? spec.task().tasks(index)
                                          : "task " + std::to_string(task);
}

TaskScore scoreOf(const std::string& task, const EvaluationCell& cell, const ScoreTally& tally) {
  const double mean = tally.mean();
  return {task,
          cell.questionsOf(tally),
          mean,
          std::min(tally.interval.low, mean),
          std::max(tally.interval.high, mean),
          std::string(tally.interval.name)};
}

// Returns nothing for a negative value: nothing was counted.
std::optional<double> countedOf(double value) {
  return value < 0 ? std::nullopt : std::optional(value);
}

CurvePoint curvePoint(const EvaluationCell& cell, const v1::Spec& spec) {
  const TaskScore all = scoreOf("", cell, cell.all);
  CurvePoint point{cell.method, cell.schedule_name, cell.version, cell.total_budget,
                   all.n,       all.accuracy,       all.low,      all.high};
  for (const auto& [task, tally] : cell.tasks) {
    point.tasks.push_back(scoreOf(taskName(spec, task), cell, tally));
  }
  point.kv_bytes_share = countedOf(cell.reads.bytesShare());
  point.key_share = countedOf(cell.reads.keyShare());
  point.value_rows_share = countedOf(cell.reads.valueRowsShare());
  point.prefill = cell.prefill;
  point.prefill_seconds = countedOf(cell.prompts.seconds());
  point.prefill_selection_seconds = countedOf(cell.prompts.selectionSeconds());
  point.prefill_density = countedOf(cell.prompts.density());
  point.prefill_bytes_share = countedOf(cell.prompts.bytesShare());
  point.prefill_kept_mass = countedOf(cell.prompts.keptMass());
  point.prefill_least_kept_mass = countedOf(cell.prompts.leastKeptMass());
  point.samples = cell.schedule;
  if (cell.other.n > 0) point.other = scoreOf("", cell, cell.other);
  point.repeats = cell.repeats;
  point.repeat_sd = cell.repeatDeviation();
  point.answer_tokens = countedOf(cell.answerTokens());
  point.prompt_tokens = countedOf(cell.promptTokens());
  point.over_dense = cell.over_dense;
  point.over_uniform = cell.over_uniform;
  point.interval = all.interval;
  return point;
}

uint64_t fullCount(const std::vector<CurvePoint>& points) {
  uint64_t full = 0;
  for (const auto& point : points) full = std::max(full, point.n);
  return full;
}

FidelityNumbers numbersOf(const std::string& name, const FidelitySums& sums) {
  FidelityNumbers numbers;
  numbers.name = name;
  numbers.states = sums.states;
  numbers.relative_error = sums.meanRelativeError();
  numbers.rms_relative_error = sums.rmsRelativeError();
  numbers.cosine = sums.meanCosine();
  numbers.agreement = sums.agreement();
  numbers.divergence = sums.meanDivergence();
  numbers.trace_covariance = sums.traceCovariance();
  numbers.estimated_error = sums.meanEstimatedError();
  numbers.exceed_rate = sums.exceedRate();
  numbers.draws = sums.drawsMade();
  numbers.unique_rows = sums.uniqueRows();
  numbers.density = sums.density();
  numbers.effective_sample_size = sums.effectiveSampleSize();
  numbers.positions = sums.positions;
  numbers.replicates = sums.replicates();
  numbers.variance = sums.meanVariance();
  numbers.closed_form = sums.meanClosedForm();
  return numbers;
}

template <typename Part, typename Name>
std::vector<FidelityNumbers> partsOf(const std::map<Part, FidelitySums>& parts, Name name) {
  std::vector<FidelityNumbers> numbers;
  for (const auto& [part, sums] : parts) {
    if (sums.states > 0) numbers.push_back(numbersOf(name(part), sums));
  }
  return numbers;
}

}  // namespace

std::vector<CurvePoint> evaluationPoints(const RunSnapshot& snapshot) {
  std::vector<CurvePoint> points;
  for (const EvaluationCell& cell : snapshot.cells) {
    if (cell.complete) points.push_back(curvePoint(cell, snapshot.experiment.spec()));
  }
  return points;
}

std::vector<CurveLine> newestCompleteLines(const std::vector<CurvePoint>& points) {
  using Row = std::map<uint64_t, size_t>;  // by budget
  const uint64_t full = fullCount(points);
  std::map<std::pair<std::string, std::string>, std::map<uint64_t, Row>> lines;  // by version
  for (size_t i = 0; i < points.size(); ++i) {
    const CurvePoint& point = points[i];
    lines[{point.method, point.schedule}][point.version][point.total_budget] = i;
  }
  std::vector<CurveLine> chosen;
  for (const auto& [line, versions] : lines) {
    const Row* best = &versions.begin()->second;
    std::pair<size_t, size_t> best_rank;
    for (const auto& [version, row] : versions) {  // ascending: the newest of equals wins
      const auto complete = static_cast<size_t>(std::count_if(
          row.begin(), row.end(), [&](const auto& cell) { return points[cell.second].n == full; }));
      const std::pair rank(complete, row.size());
      if (rank >= best_rank) {
        best = &row;
        best_rank = rank;
      }
    }
    chosen.push_back({line.first, line.second, {}});
    for (const auto& [budget, point] : *best) chosen.back().points.push_back(point);
  }
  return chosen;
}

std::vector<CurvePoint> newestCompletePerSchedule(const std::vector<CurvePoint>& points) {
  std::vector<CurvePoint> chosen;
  for (const CurveLine& line : newestCompleteLines(points)) {
    for (const size_t point : line.points) chosen.push_back(points[point]);
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

LearningCurve learningCurve(const std::vector<CurvePoint>& points,
                            const std::vector<CurveLine>& newest, uint64_t total_budget) {
  const uint64_t full = fullCount(points);
  std::map<std::string, std::map<uint64_t, size_t>> methods;  // by version
  std::set<uint64_t> versions;
  for (size_t i = 0; i < points.size(); ++i) {
    const CurvePoint& point = points[i];
    if (point.schedule != kLearnedSchedule || point.n != full ||
        point.total_budget != total_budget) {
      continue;
    }
    methods[point.method][point.version] = i;
    versions.insert(point.version);
  }
  LearningCurve curve;
  if (versions.size() < 2) return curve;
  for (const auto& [method, by_version] : methods) {
    curve.lines.push_back({method, kLearnedSchedule, {}});
    for (const auto& [version, point] : by_version) curve.lines.back().points.push_back(point);
  }
  if (methods.size() > 1) return curve;
  for (const CurveLine& line : newest) {
    if (line.schedule != kUniformSchedule || line.method != methods.begin()->first) continue;
    for (const size_t point : line.points) {
      if (points[point].total_budget == total_budget) curve.uniform = point;
    }
  }
  return curve;
}

HeadlinePoints headlinePoints(const std::vector<CurvePoint>& points,
                              const std::vector<CurveLine>& newest, uint64_t total_budget,
                              const std::string& decode) {
  HeadlinePoints headline;
  for (const CurveLine& line : newest) {
    if (line.schedule == kDenseSchedule && !headline.dense) headline.dense = line.points.front();
    if (line.schedule != kLearnedSchedule && line.schedule != kUniformSchedule) continue;
    auto& place = line.schedule == kLearnedSchedule ? headline.learned : headline.uniform;
    for (const size_t point : line.points) {
      if (points[point].total_budget != total_budget) continue;
      if (!place || line.method == decode) place = point;
    }
  }
  return headline;
}

std::vector<FidelityPoint> fidelityPoints(const RunSnapshot& snapshot, Measure measure) {
  const v1::Spec& spec = snapshot.experiment.spec();
  const MeasureOptions options = measureOptions(spec.evaluation(), measure);
  std::vector<FidelityPoint> points;
  for (const FidelitySummary& summary : snapshot.fidelity) {
    if (!summary.complete || summary.measure != measure) continue;
    points.push_back({summary.method, summary.schedule_name, summary.version, summary.total_budget,
                      summary.drawsPerLayer(), summary.questions, numbersOf("", summary.all),
                      partsOf(summary.layers, [](uint32_t part) { return std::to_string(part); }),
                      partsOf(summary.supports, supportLabel),
                      partsOf(summary.tasks, [&](uint32_t part) { return taskName(spec, part); }),
                      partsOf(summary.layer_supports,
                              [](const auto& part) {
                                return std::to_string(part.first) + "/" + supportLabel(part.second);
                              }),
                      options.tile, options.agreement});
  }
  return points;
}

std::vector<FidelityPoint> newestFidelity(const std::vector<FidelityPoint>& points) {
  std::map<std::tuple<std::string, std::string, uint64_t>, const FidelityPoint*> newest;
  for (const FidelityPoint& point : points) {
    const FidelityPoint*& known = newest[{point.method, point.schedule, point.total_budget}];
    if (known == nullptr || point.version >= known->version) known = &point;
  }
  std::vector<FidelityPoint> chosen;
  for (const auto& [key, point] : newest) chosen.push_back(*point);
  return chosen;
}

}  // namespace allot
