#pragma once
// The plots of a run: curve.svg of its report, the report's other figures, and the pictures of
// documents (`allot plot`). Pure functions, any thread.
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "aggregator/page/measurements.h"
#include "aggregator/report/plot.h"

namespace allot {

// Styles and names of the lines of a run's plots. A method and a schedule make a line. Names have
// what tells the lines apart: the method, the schedule, or both. unit: of total budgets, as
// unitOf() (core/spec/choices.h).
class LineStyles {
 public:
  explicit LineStyles(const std::vector<CurvePoint>& points,
                      const std::vector<FidelityPoint>& fidelity = {}, std::string unit = "");
  std::string name(const std::string& method, const std::string& schedule) const;
  size_t style(const std::string& method, const std::string& schedule) const;
  const std::string& unit() const { return unit_; }

 private:
  std::string unit_;
  bool methods_ = false;    // several
  bool schedules_ = false;  // several
  std::map<std::pair<std::string, std::string>, size_t> styles_;
};

// ---- Which measurements make a line.

// One measurement, with its point in a plot.
struct Measured {
  std::string method;
  std::string schedule;
  uint64_t total_budget = 0;
  PlotPoint point;
};

// Makes lines with points by ascending x. A line joins the budgets of one method and schedule.
// Another kind joins methods that differ in one number only (vattention with several epsilons),
// each measured at one and the same budget or without one.
std::vector<PlotSeries> linesByNumber(const std::vector<Measured>& measured,
                                      const LineStyles& styles);

// The name of a method's line: the method's text without the numeric parameter in which alone it
// differs from the most other methods, and that parameter's name. If there is none: the whole text,
// and "".
struct NumberedName {
  std::string text;
  std::string parameter;
};
NumberedName nameWithoutNumber(const std::string& method, const std::vector<std::string>& methods);

// Returns true for the name of a oneHot schedule. Of the plots only oneHotPlot() shows these
// schedules.
bool isOneHot(const std::string& schedule);

// ---- The plots.

// Accuracy against total budget, a line for each method and schedule, and a level for dense
// attention. Other points without a budget, and one-hot schedules, are left out. task: the one
// whose scores are plotted; "": all questions.
Plot curvePlot(const std::vector<CurvePoint>& points, const LineStyles& styles,
               const std::string& task = "");

// A share of dense attention's reads.
enum class CurveShare { kKvBytes, kKeyBytes, kPrefillBlocks };

// Accuracy against that share, with linesByNumber(), and a level for dense attention. Points whose
// share is absent or 0, and one-hot schedules, are left out.
Plot sharePlot(const std::vector<CurvePoint>& points, const LineStyles& styles, CurveShare share);

// Accuracy of the one-hot schedules against the layer that each cuts to one draw.
Plot oneHotPlot(const std::vector<CurvePoint>& points);

// A learned schedule as bars, with a level for uniform. draws: [layers] draws per head and step.
// has_price: budgets are shares of bytes or time, where uniform is not the mean and has no level. A
// bar of all rows says so and is 1.25 times as high as the highest of the others.
Plot schedulePlot(const std::vector<double>& draws, bool has_price = false);

// Returns curvePlot() as SVG under "TITLE: accuracy against sample budget". unit: as in LineStyles.
std::string curveSvg(const std::string& title, const std::vector<CurvePoint>& points,
                     const std::string& unit = "");

}  // namespace allot
