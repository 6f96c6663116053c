#include "aggregator/report/curve_svg.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <set>

#include "core/evaluation/evaluation_plan.h"

namespace allot {
namespace {

bool isDense(const CurvePoint& point) { return point.schedule == kDenseSchedule; }

// The scores of a task in a cell, or of all of it.
std::optional<TaskScore> scoreOf(const CurvePoint& point, const std::string& task) {
  if (task.empty()) return TaskScore{"", point.n, point.accuracy, point.low, point.high};
  for (const TaskScore& score : point.tasks) {
    if (score.task == task) return score;
  }
  return std::nullopt;
}

PlotPoint plotPoint(const CurvePoint& point, const TaskScore& score, const std::string& name) {
  return {static_cast<double>(point.total_budget), score.accuracy, score.low, score.high,
          fmt::format("{}, budget {}: {:.1f} % ({:.1f} to {:.1f}), n = {}, version {}", name,
                      point.total_budget, score.accuracy * 100, score.low * 100, score.high * 100,
                      score.n, point.version)};
}

}  // namespace

bool isOneHot(const std::string& schedule) { return schedule.rfind("oneHot-", 0) == 0; }

LineStyles::LineStyles(const std::vector<CurvePoint>& points,
                       const std::vector<FidelityPoint>& fidelity) {
  std::set<std::string> methods;
  std::set<std::string> schedules;
  std::set<std::pair<std::string, std::string>> lines;
  const auto add = [&](const std::string& method, const std::string& schedule, uint64_t budget) {
    if (schedule == kDenseSchedule || isOneHot(schedule)) return;
    methods.insert(method);
    if (budget > 0) schedules.insert(schedule);
    lines.emplace(method, schedule);
  };
  for (const auto& point : points) add(point.method, point.schedule, point.total_budget);
  for (const auto& point : fidelity) add(point.method, point.schedule, point.total_budget);
  methods_ = methods.size() > 1;
  schedules_ = schedules.size() > 1;
  size_t next = methods_ ? 0 : 2;
  for (const auto& [method, schedule] : lines) {
    const bool known = !methods_ && (schedule == kLearnedSchedule || schedule == kUniformSchedule);
    styles_[{method, schedule}] = known ? (schedule == kLearnedSchedule ? 0 : 1) : next++;
  }
}

std::string LineStyles::name(const std::string& method, const std::string& schedule) const {
  if (!methods_) return schedule;
  return schedules_ && schedule != "adaptive" ? method + ", " + schedule : method;
}

size_t LineStyles::style(const std::string& method, const std::string& schedule) const {
  const auto found = styles_.find({method, schedule});
  return found == styles_.end() ? 0 : found->second;
}

Plot curvePlot(const std::vector<CurvePoint>& points, const LineStyles& styles,
               const std::string& task) {
  Plot plot;
  plot.x = {"total budget B (reads per head and step, all layers, log scale)", true};
  plot.y = {"held-out accuracy", false, true};
  plot.empty = "No evaluation was finished.";
  std::map<std::pair<std::string, std::string>, PlotSeries> lines;
  for (const CurvePoint& point : points) {
    const auto score = scoreOf(point, task);
    if (!score) continue;
    if (isDense(point)) {
      plot.levels = {{fmt::format("dense, every row read ({:.1f} %)", score->accuracy * 100),
                      score->accuracy}};
      continue;
    }
    if (point.total_budget == 0 || isOneHot(point.schedule)) continue;
    PlotSeries& line = lines[{point.schedule, point.method}];
    line.name = styles.name(point.method, point.schedule);
    line.style = styles.style(point.method, point.schedule);
    line.points.push_back(plotPoint(point, *score, line.name));
  }
  std::set<double> budgets;
  for (auto& [key, line] : lines) {
    std::sort(line.points.begin(), line.points.end(),
              [](const auto& a, const auto& b) { return a.x < b.x; });
    for (const PlotPoint& point : line.points) budgets.insert(point.x);
    plot.series.push_back(std::move(line));
  }
  plot.x.ticks.assign(budgets.begin(), budgets.end());
  return plot;
}

std::string curveSvg(const std::string& title, const std::vector<CurvePoint>& points) {
  Plot plot = curvePlot(points, LineStyles(points));
  plot.title = (title.empty() ? "" : title + ": ") + "accuracy against sample budget";
  return plotSvg(plot);
}

}  // namespace allot
