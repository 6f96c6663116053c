#pragma once
// Accuracy against what was read: curve.svg of a run's report, its other figures, and the pictures
// of documents (`allot plot`).
//
// Pure functions, any thread.
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "aggregator/page/measurements.h"
#include "aggregator/report/plot.h"

namespace allot {

// How each line looks in every plot of a run: by its method, or where there is one method only by
// its schedule. Names what tells the lines apart: method, schedule, or both.
class LineStyles {
 public:
  explicit LineStyles(const std::vector<CurvePoint>& points,
                      const std::vector<FidelityPoint>& fidelity = {});
  std::string name(const std::string& method, const std::string& schedule) const;
  size_t style(const std::string& method, const std::string& schedule) const;

 private:
  bool methods_ = false;    // several
  bool schedules_ = false;  // several
  std::map<std::pair<std::string, std::string>, size_t> styles_;
};

// ---- Which measurements make a line.

// One measurement, with its place in some plot.
struct Measured {
  std::string method;
  std::string schedule;
  uint64_t total_budget = 0;
  PlotPoint point;
};

// Joined by x: the budgets of one method and schedule; and methods that differ in one number only,
// as vattention with several epsilons, where each has been measured at one budget (or has none).
std::vector<PlotSeries> linesByNumber(const std::vector<Measured>& measured,
                                      const LineStyles& styles);

// The name of a method's line: its text without the parameter in which it differs from most others,
// and that parameter's name; the text and "" where there is no such other.
struct NumberedName {
  std::string text;
  std::string parameter;
};
NumberedName nameWithoutNumber(const std::string& method, const std::vector<std::string>& methods);

// A schedule that spends everything in one layer: not a point of a line, but of the profile by
// layer.
bool isOneHot(const std::string& schedule);

// ---- The plots.

// Points of one method and schedule make one line; those without a budget are left out. With a
// task, its scores instead of all.
Plot curvePlot(const std::vector<CurvePoint>& points, const LineStyles& styles,
               const std::string& task = "");

// What of dense attention's reads a cell made.
enum class CurveShare { kKvBytes, kKeyBytes, kPrefillBlocks };

// Accuracy against that share. Methods that differ in one number make one line.
Plot sharePlot(const std::vector<CurvePoint>& points, const LineStyles& styles, CurveShare share);

// Accuracy of the schedules that cut one layer, layer by layer.
Plot oneHotPlot(const std::vector<CurvePoint>& points);

// A learned schedule as bars. draws: [layers] draws per head and step
Plot schedulePlot(const std::vector<double>& draws);

// `title` goes above the picture.
std::string curveSvg(const std::string& title, const std::vector<CurvePoint>& points);

}  // namespace allot
