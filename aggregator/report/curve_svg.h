#pragma once
// The plots of a run: curve.svg of its report, the report's other figures, and the pictures of
// documents (`allot plot`).
//
// Pure functions, any thread.
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "aggregator/page/measurements.h"
#include "aggregator/report/plot.h"

namespace allot {

// Gives the lines of a run's plots, known by method and schedule, their styles and names. A name
// has what tells the lines apart: method, schedule, or both.
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

// Makes lines with points by ascending x. One line has the budgets of one method and schedule, or
// methods that differ in one number only (vattention with several epsilons), each measured at one
// budget or without any.
std::vector<PlotSeries> linesByNumber(const std::vector<Measured>& measured,
                                      const LineStyles& styles);

// The name of a method's line: its text without the numeric parameter in which it differs from most
// others, and the name of that parameter. The whole text and "" if no other differs in one only.
struct NumberedName {
  std::string text;
  std::string parameter;
};
NumberedName nameWithoutNumber(const std::string& method, const std::vector<std::string>& methods);

// Returns true for a schedule of evaluation.schedules oneHot. Of the plots only oneHotPlot() shows
// it.
bool isOneHot(const std::string& schedule);

// ---- The plots.

// Accuracy against total budget, a line for each method and schedule, and a level for dense
// attention. Other points without a budget, and one-hot schedules, are left out. task: its scores
// instead of those of all questions.
Plot curvePlot(const std::vector<CurvePoint>& points, const LineStyles& styles,
               const std::string& task = "");

// A share of dense attention's reads.
enum class CurveShare { kKvBytes, kKeyBytes, kPrefillBlocks };

// Accuracy against that share, with linesByNumber(), and a level for dense attention. Points
// without the share or with 0, and one-hot schedules, are left out.
Plot sharePlot(const std::vector<CurvePoint>& points, const LineStyles& styles, CurveShare share);

// Accuracy of the one-hot schedules against the layer that each cuts.
Plot oneHotPlot(const std::vector<CurvePoint>& points);

// A learned schedule as bars. draws: [layers] draws per head and step.
Plot schedulePlot(const std::vector<double>& draws);

// Returns curvePlot() as SVG under "TITLE: accuracy against sample budget".
std::string curveSvg(const std::string& title, const std::vector<CurvePoint>& points);

}  // namespace allot
