#include "core/evaluation/fidelity_table.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/evaluation/evaluation_plan.h"
#include "core/evaluation/score_statistics.h"
#include "core/learning/exact_math.h"

namespace allot {
namespace {

std::optional<double> meanOf(double sum, uint64_t count) {
  if (count == 0) return std::nullopt;
  return sum / static_cast<double>(count);
}

}  // namespace

std::string supportLabel(uint32_t support) {
  const auto bucket = std::find(kSupports.begin(), kSupports.end(), support);
  if (bucket == kSupports.end()) return std::to_string(support);
  if (bucket + 1 == kSupports.end()) return std::to_string(support) + "+";
  const uint32_t last = *(bucket + 1) - 1;
  return std::to_string(support) + (last > support ? "-" + std::to_string(last) : "");
}

void FidelitySums::add(const v1::FidelityCell& cell) {
  states += cell.states();
  relative_error += cell.relative_error();
  relative_error_squared += cell.relative_error_squared();
  cosine += cell.cosine();
  squared_error += cell.squared_error();
  estimated_error += cell.estimated_error();
  estimated_states += cell.estimated_states();
  exceeded += cell.exceeded();
  draws += cell.draws();
  unique_rows += cell.unique_rows();
  dense_rows += cell.dense_rows();
  effective_sample_size += cell.effective_sample_size();
  positions += cell.positions();
  variance += cell.variance();
  closed_form_positions += cell.closed_form_positions();
  closed_form += cell.closed_form();
}

void FidelitySums::add(const v1::AgreementCell& cell) {
  steps += cell.steps();
  agreed += cell.agreed();
  if (cell.questions() == 0) return;
  divergence += cell.divergence();
  divergence_steps += cell.steps();
}

double FidelitySums::rmsRelativeError() const {
  return std::sqrt(perState(relative_error_squared));
}

double FidelitySums::density() const {
  return dense_rows > 0 ? static_cast<double>(unique_rows) / static_cast<double>(dense_rows) : 0;
}

std::optional<double> FidelitySums::meanEstimatedError() const {
  return meanOf(estimated_error, estimated_states);
}
std::optional<double> FidelitySums::agreement() const {
  return meanOf(static_cast<double>(agreed), steps);
}
std::optional<double> FidelitySums::meanDivergence() const {
  return meanOf(divergence, divergence_steps);
}
std::optional<double> FidelitySums::meanVariance() const { return meanOf(variance, positions); }
std::optional<double> FidelitySums::meanClosedForm() const {
  return meanOf(closed_form, closed_form_positions);
}

double FidelitySummary::drawsPerLayer() const {
  if (schedule.empty()) return 0;
  return std::accumulate(schedule.begin(), schedule.end(), 0.0) /
         static_cast<double>(schedule.size());
}

FidelityTable::FidelityTable(uint32_t questions, bool keep_newest)
    : of_fidelity_(questions), of_variance_(questions), keep_newest_(keep_newest) {}

FidelityTable::FidelityTable(const v1::Spec& spec, bool keep_newest)
    : of_fidelity_(comparedQuestions(spec, Measure::kFidelity)),
      of_variance_(comparedQuestions(spec, Measure::kVariance)),
      keep_newest_(keep_newest) {}

void FidelityTable::add(const v1::EvaluationResult& result) {
  const v1::EvaluationUnit& unit = result.unit();
  const Measure measure = measureOf(unit);
  if (measure != Measure::kFidelity && measure != Measure::kVariance) return;
  FidelitySummary& summary = summaries_[{measure, unit.policy_version(), methodsName(unit),
                                         unit.schedule_name(), unit.total_budget()}];
  summary.measure = measure;
  summary.version = unit.policy_version();
  summary.method = methodsName(unit);
  summary.schedule_name = unit.schedule_name();
  summary.total_budget = unit.total_budget();
  summary.schedule.assign(unit.schedule().begin(), unit.schedule().end());
  for (const v1::FidelityCell& cell : result.fidelity()) {
    summary.all.add(cell);
    summary.layers[cell.layer()].add(cell);
    summary.supports[cell.support()].add(cell);
    summary.layer_supports[{cell.layer(), cell.support()}].add(cell);
    summary.tasks[cell.task()].add(cell);
  }
  for (const v1::AgreementCell& cell : result.agreement()) {
    std::vector<FidelitySums*> all = {&summary.all, &summary.tasks[cell.task()]};
    if (cell.has_layer()) all.push_back(&summary.layers[cell.layer()]);
    for (FidelitySums* sums : all) sums->add(cell);
  }
  summary.questions += unit.question_count();
  summary.complete =
      summary.questions == (summary.measure == Measure::kVariance ? of_variance_ : of_fidelity_);
  if (keep_newest_ && summary.complete && summary.schedule_name == kLearnedSchedule) {
    dropOld(summary);
  }
}

void FidelityTable::dropOld(const FidelitySummary& completed) {
  const std::string method = completed.method;
  const uint64_t budget = completed.total_budget;
  const Measure measure = completed.measure;
  std::set<uint64_t>& versions = complete_[{measure, method, budget}];
  versions.insert(completed.version);
  if (versions.size() <= 2) return;
  summaries_.erase({measure, *versions.begin(), method, kLearnedSchedule, budget});
  versions.erase(versions.begin());
}

std::vector<FidelitySummary> FidelityTable::summaries() const {
  std::vector<FidelitySummary> summaries;
  for (const auto& [key, summary] : summaries_) summaries.push_back(summary);
  return summaries;
}

std::vector<VarianceSlope> varianceSlopes(const std::vector<FidelitySummary>& summaries) {
  std::map<std::pair<Measure, std::string>, std::vector<std::pair<double, double>>> points;
  for (const FidelitySummary& summary : summaries) {
    const double draws = summary.drawsPerLayer();
    const double variance = summary.measure == Measure::kVariance
                                ? summary.all.meanVariance().value_or(0)
                                : summary.all.traceCovariance();
    if (!summary.complete || summary.schedule_name != kUniformSchedule || draws < 2 ||
        variance <= 0) {
      continue;
    }
    points[{summary.measure, summary.method}].emplace_back(exactLog(draws), exactLog(variance));
  }
  std::vector<VarianceSlope> slopes;
  for (const auto& [key, line] : points) {
    const auto slope = leastSquaresSlope(line);
    if (slope) slopes.push_back({key.second, *slope, line.size(), key.first});
  }
  return slopes;
}

}  // namespace allot
