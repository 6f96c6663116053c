#pragma once
// Which measurements make a line. Pure functions, any thread.
#include <cstdint>
#include <string>
#include <vector>

#include "aggregator/report/curve_svg.h"

namespace allot {

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

}  // namespace allot
