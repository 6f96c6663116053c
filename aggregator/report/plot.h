#pragma once
// Plots as SVG: lines of points with intervals on linear or logarithmic axes.
//
// Pure functions, any thread. A picture follows the viewer's light or dark theme; shapes, and
// dashes where there are many lines, tell lines apart as well as colours. All text is escaped, and
// points that an axis has no place for are left out.
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace allot {

struct PlotPoint {
  double x = 0;
  double y = 0;
  double low = 0;  // interval; none if not below high
  double high = 0;
  std::string title = {};  // shown under the pointer
};

struct PlotSeries {
  std::string name;
  size_t style = 0;  // which colour, shape and dash; equal numbers look equal in every plot
  std::vector<PlotPoint> points;  // by x
  bool joined = true;             // by a line
  bool bars = false;              // from 0 up, one unit of x apart, instead of marks
};

// A dashed line over the whole width.
struct PlotLevel {
  std::string name;
  double y = 0;
};

struct PlotAxis {
  std::string label;
  bool logarithmic = false;
  bool percent = false;  // values are shares: ticks read "40 %", and a linear axis ends at 1
  std::vector<double> ticks = {};  // where numbers may stand; empty: where they are round
};

struct Plot {
  std::string title;
  PlotAxis x;
  PlotAxis y;
  std::vector<PlotSeries> series;
  std::vector<PlotLevel> levels;
  bool diagonal = false;  // dashed where y = x
  std::string empty = "Nothing was measured.";
  double width = 760;
  double height = 440;     // without the legend's further rows
  bool standalone = true;  // a file with title, legend and style of its own, or a part of a page
};

std::string plotSvg(const Plot& plot);

// For pages with parts: their style, and the names of lines and levels as a list.
std::string_view plotStyle();
std::string plotLegend(const std::vector<PlotSeries>& series, const std::vector<PlotLevel>& levels);

// What XML cannot hold becomes a space.
std::string escapedXml(std::string_view text);

}  // namespace allot
