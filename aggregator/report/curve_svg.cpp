#include "aggregator/report/curve_svg.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <charconv>
#include <numeric>
#include <set>
#include <tuple>

#include "core/evaluation/evaluation_plan.h"
#include "core/spec/prices.h"
#include "core/words.h"

namespace allot {
namespace {

// Returns the words of a method's text: its name and its key=value pairs.
std::vector<std::string> wordsOf(const std::string& text) {
  std::vector<std::string> words;
  for (size_t from = 0; from <= text.size();) {
    const size_t space = std::min(text.find(' ', from), text.size());
    words.push_back(text.substr(from, space - from));
    from = space + 1;
  }
  return words;
}

// Returns "epsilon" for "epsilon=0.1"; "" if there is no number after "=".
std::string numericKey(const std::string& word) {
  const size_t equals = word.find('=');
  if (equals == std::string::npos) return "";
  double value = 0;
  const char* end = word.data() + word.size();
  const auto parsed = std::from_chars(word.data() + equals + 1, end, value);
  return parsed.ec == std::errc() && parsed.ptr == end ? word.substr(0, equals) : "";
}

// Removes a numeric parameter. A method's text omits defaults, so that the rest is the method with
// the default.
std::string without(const std::string& text, const std::string& key) {
  std::string rest;
  for (const std::string& word : wordsOf(text)) {
    if (numericKey(word) == key) continue;
    rest += (rest.empty() ? "" : " ") + word;
  }
  return rest;
}

bool isDense(const CurvePoint& point) { return point.schedule == kDenseSchedule; }

std::optional<TaskScore> scoreOf(const CurvePoint& point, const std::string& task) {
  if (task.empty())
    return TaskScore{"", point.n, point.accuracy, point.low, point.high, point.interval};
  for (const TaskScore& score : point.tasks) {
    if (score.task == task) return score;
  }
  return std::nullopt;
}

PlotPoint plotPoint(const CurvePoint& point, const TaskScore& score, const std::string& name,
                    const std::string& unit) {
  return {static_cast<double>(point.total_budget), score.accuracy, score.low, score.high,
          fmt::format("{}, budget {}{}: {:.1f} % ({:.1f} to {:.1f}), n = {}, version {}", name,
                      point.total_budget, unit, score.accuracy * 100, score.low * 100,
                      score.high * 100, score.n, point.version)};
}

// Returns "held-out accuracy, 95 % intervals (bootstrap, wilson)".
std::string accuracyLabel(const std::vector<CurvePoint>& points, const std::string& task = "") {
  std::set<std::string> kinds;
  for (const CurvePoint& point : points) {
    if (const auto score = scoreOf(point, task)) kinds.insert(score->interval);
  }
  std::string text;
  for (const std::string& kind : kinds) {
    if (!kind.empty()) text += (text.empty() ? " (" : ", ") + kind;
  }
  return "held-out accuracy, 95 % intervals" + (text.empty() ? "" : text + ")");
}

std::optional<double> shareOf(const CurvePoint& point, CurveShare share) {
  switch (share) {
    case CurveShare::kKvBytes:
      return point.kv_bytes_share;
    case CurveShare::kKeyBytes:
      return point.key_share;
    case CurveShare::kPrefillBlocks:
      return point.prefill_density;
  }
  return std::nullopt;
}

std::string labelOf(CurveShare share) {
  return std::string(wordAt(share, {"KV bytes read, of dense attention's (log scale)",
                                    "key bytes read, of dense attention's (log scale)",
                                    "share of the blocks read in the prefill (log scale)"}));
}

PlotLevel denseLevel(const CurvePoint& point) {
  return {fmt::format("dense ({:.1f} %)", point.accuracy * 100), point.accuracy};
}

constexpr std::string_view kOneHot = "oneHot-";

}  // namespace

NumberedName nameWithoutNumber(const std::string& method, const std::vector<std::string>& methods) {
  std::set<std::string> keys;
  for (const std::string& other : methods) {
    for (const std::string& word : wordsOf(other)) keys.insert(numericKey(word));
  }
  keys.erase("");
  NumberedName best{method, ""};
  std::ptrdiff_t most = 1;
  for (const std::string& key : keys) {
    const std::string rest = without(method, key);
    const auto alike = std::count_if(methods.begin(), methods.end(), [&](const auto& other) {
      return without(other, key) == rest;
    });
    if (alike > most) {
      most = alike;
      best = {rest, key};
    }
  }
  return best;
}

std::vector<PlotSeries> linesByNumber(const std::vector<Measured>& measured,
                                      const LineStyles& styles) {
  std::map<std::pair<std::string, std::string>, std::set<uint64_t>> budgets;
  for (const Measured& one : measured) {
    budgets[{one.method, one.schedule}].insert(one.total_budget);
  }
  std::map<std::pair<std::string, uint64_t>, std::vector<std::string>> single;  // methods
  for (const auto& [line, values] : budgets) {
    if (values.size() == 1) single[{line.second, *values.begin()}].push_back(line.first);
  }
  std::map<std::tuple<std::string, std::string, uint64_t>, PlotSeries> lines;
  for (const Measured& one : measured) {
    const bool many = budgets[{one.method, one.schedule}].size() > 1;
    const NumberedName name =
        many ? NumberedName{one.method, ""}
             : nameWithoutNumber(one.method, single[{one.schedule, one.total_budget}]);
    const uint64_t budget = many ? 0 : one.total_budget;
    PlotSeries& line = lines[{name.text, one.schedule, budget}];
    if (line.points.empty()) {
      line.name = styles.name(name.text, one.schedule);
      if (!name.parameter.empty()) line.name += ", by " + name.parameter;
      line.style = styles.style(one.method, one.schedule);
    }
    line.points.push_back(one.point);
  }
  std::vector<PlotSeries> series;
  for (auto& [key, line] : lines) {
    std::sort(line.points.begin(), line.points.end(),
              [](const auto& a, const auto& b) { return a.x < b.x; });
    series.push_back(std::move(line));
  }
  return series;
}

bool isOneHot(const std::string& schedule) { return schedule.starts_with(kOneHot); }

LineStyles::LineStyles(const std::vector<CurvePoint>& points,
                       const std::vector<FidelityPoint>& fidelity, std::string unit)
    : unit_(std::move(unit)) {
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
  const Price price = priceWith(styles.unit());
  plot.x = {
      price == Price::kReads
          ? std::string("total budget B (reads per head and step, all layers, log scale)")
          : "total budget B (% of dense attention's " + std::string(wordOf(price)) + ", log scale)",
      true};
  plot.y = {accuracyLabel(points, task), false, true};
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
    line.points.push_back(plotPoint(point, *score, line.name, styles.unit()));
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

Plot sharePlot(const std::vector<CurvePoint>& points, const LineStyles& styles, CurveShare share) {
  Plot plot;
  plot.x = {labelOf(share), true, true};
  plot.y = {accuracyLabel(points), false, true};
  std::vector<Measured> measured;
  for (const CurvePoint& point : points) {
    const std::optional<double> read = shareOf(point, share);
    if (isDense(point)) {
      plot.levels = {denseLevel(point)};
    } else if (read && *read > 0 && !isOneHot(point.schedule)) {
      const std::string budget =
          point.total_budget > 0 ? fmt::format(", budget {}{}", point.total_budget, styles.unit())
                                 : "";
      measured.push_back(
          {point.method,
           point.schedule,
           point.total_budget,
           {*read, point.accuracy, point.low, point.high,
            fmt::format("{}{}: {:.1f} % ({:.1f} to {:.1f}) with {:.1f} % read",
                        styles.name(point.method, point.schedule), budget, point.accuracy * 100,
                        point.low * 100, point.high * 100, *read * 100)}});
    }
  }
  plot.series = linesByNumber(measured, styles);
  return plot;
}

Plot oneHotPlot(const std::vector<CurvePoint>& points) {
  Plot plot;
  plot.title = "Accuracy by layer that is cut";
  plot.x = {"the layer with one draw (0 comes first)"};
  plot.y = {accuracyLabel(points), false, true};
  std::map<std::pair<std::string, uint64_t>, PlotSeries> lines;
  std::set<double> layers;
  for (const CurvePoint& point : points) {
    // A level shows the schedule that cuts no layer, for comparison.
    if (point.schedule == kUniformSchedule) {
      plot.levels = {{fmt::format("uniform ({:.1f} %)", point.accuracy * 100), point.accuracy}};
    } else if (isDense(point) && plot.levels.empty()) {
      plot.levels = {denseLevel(point)};
    }
    if (!isOneHot(point.schedule)) continue;
    double layer = 0;
    std::from_chars(point.schedule.data() + kOneHot.size(),
                    point.schedule.data() + point.schedule.size(), layer);
    layers.insert(layer);
    PlotSeries& line = lines[{point.method, point.total_budget}];
    line.joined = false;
    line.name = fmt::format("{}, total budget {}", point.method, point.total_budget);
    line.points.push_back(
        {layer, point.accuracy, point.low, point.high,
         fmt::format("layer {} cut, {}: {:.1f} % ({:.1f} to {:.1f})", layer, line.name,
                     point.accuracy * 100, point.low * 100, point.high * 100)});
  }
  plot.x.ticks.assign(layers.begin(), layers.end());
  for (auto& [key, line] : lines) {
    line.style = plot.series.size();
    // Beside each other rather than on top.
    const double shift =
        0.12 * (static_cast<double>(line.style) - 0.5 * static_cast<double>(lines.size() - 1));
    for (PlotPoint& point : line.points) point.x += shift;
    plot.series.push_back(std::move(line));
  }
  return plot;
}

Plot schedulePlot(const std::vector<double>& draws, bool has_price) {
  Plot plot;
  plot.title = "Learned schedule";
  plot.x = {"layer (0 comes first)"};
  plot.y = {"draws per head and step"};
  plot.empty = "No schedule was learned.";
  if (draws.empty()) return plot;
  PlotSeries bars{.name = "learned", .style = 0, .points = {}, .joined = false, .bars = true};
  double most = 0;  // of the layers that do not read all rows
  for (const double each : draws) {
    if (each < kAllRows) most = std::max(most, each);
  }
  const double all = most > 0 ? 1.25 * most : 1;
  for (size_t layer = 0; layer < draws.size(); ++layer) {
    const auto x = static_cast<double>(layer);
    plot.x.ticks.push_back(x);
    if (draws[layer] >= kAllRows) {
      bars.points.push_back({x, all, all, all, fmt::format("layer {}: all rows", layer), "all"});
      continue;
    }
    bars.points.push_back({x, draws[layer], draws[layer], draws[layer],
                           fmt::format("layer {}: {:.4g} draws", layer, draws[layer])});
  }
  plot.series = {std::move(bars)};
  if (has_price) return plot;
  const double mean =
      std::accumulate(draws.begin(), draws.end(), 0.0) / static_cast<double>(draws.size());
  plot.levels = {{fmt::format("uniform ({:.4g})", mean), mean}};
  return plot;
}

std::string curveSvg(const std::string& title, const std::vector<CurvePoint>& points,
                     const std::string& unit) {
  Plot plot = curvePlot(points, LineStyles(points, {}, unit));
  plot.title = (title.empty() ? "" : title + ": ") + "accuracy against sample budget";
  return plotSvg(plot);
}

}  // namespace allot
