#pragma once
// Plots as SVG: points with intervals, lines and bars on linear or logarithmic axes. Pure
// functions, any thread. A picture follows the viewer's light or dark theme; shapes, and dashes
// from the ninth style on, tell lines apart as well as colours. All text is escaped. Points that
// are not finite, or not above 0 on a logarithmic axis, are left out.
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace allot {

struct PlotPoint {
  double x = 0;
  double y = 0;
  double low = 0;  // ends of an interval, which is drawn if low < high
  double high = 0;
  std::string title = {};  // shown under the pointer
  std::string label = {};  // over a bar
};

struct PlotSeries {
  std::string name;
  size_t style = 0;  // which colour, shape and dash; equal numbers look equal in every plot
  std::vector<PlotPoint> points;  // by x, if joined
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
  bool percent = false;  // values are shares: ticks read "40 %", and a linear axis is cut to 0..1
  std::vector<double> ticks = {};  // where numbers may stand; empty: at round values
};

struct Plot {
  std::string title;
  PlotAxis x;
  PlotAxis y;
  std::vector<PlotSeries> series;
  std::vector<PlotLevel> levels;
  bool diagonal = false;                        // dashed where y = x
  std::string empty = "Nothing was measured.";  // shown in a plot without values
  double width = 760;
  double height = 440;     // without the second and later rows of the legend
  bool standalone = true;  // a file with title, legend and style of its own, or a part of a page
};

std::string plotSvg(const Plot& plot);

// Return the style sheet of plots that are parts of a page, and their lines and levels as an HTML
// list.
std::string_view plotStyle();
std::string plotLegend(const std::vector<PlotSeries>& series, const std::vector<PlotLevel>& levels);

// Escapes text for XML. ASCII control characters become spaces.
std::string escapedXml(std::string_view text);

}  // namespace allot
