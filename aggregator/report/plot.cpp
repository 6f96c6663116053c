#include "aggregator/report/plot.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace allot {
namespace {

constexpr size_t kColours = 8;
constexpr size_t kShapes = 5;
constexpr size_t kFew = 4;  // with more lines intervals are faint
constexpr double kWhisker = 4;
constexpr double kLetter = 7.3;        // about the width of a letter, in pixels
constexpr double kLargeLetter = 10.5;  // in a page, whose style enlarges it on a phone
constexpr double kLegendRow = 22;

// Colours after Wong's colour-blind safe palette, darker on light paper.
constexpr std::string_view kStyle = R"css(
.plot-svg text{font:13px system-ui,-apple-system,"Segoe UI",Helvetica,Arial,sans-serif;fill:#46525e}
.plot-svg .title{font-size:16px;font-weight:600;fill:#16202a}
.plot-svg .paper{fill:#fff;stroke:#d9dfe5}.plot-svg .grid{stroke:#e8ecf0}
.plot-svg .axis{stroke:#8794a1}.plot-svg .level{stroke:#5a6773;stroke-width:2;stroke-dasharray:7 5}
.plot-svg .line{fill:none;stroke-width:2.25;stroke-linejoin:round}
.plot-svg .d1{stroke-dasharray:8 4}.plot-svg .d2{stroke-dasharray:2 4}
.plot-svg .whisker{fill:none;stroke-width:1.4}.plot-svg .many{opacity:.4}
.s0{stroke:#0067a5}.f0{fill:#0067a5}.s1{stroke:#c4500b}.f1{fill:#c4500b}
.s2{stroke:#00795c}.f2{fill:#00795c}.s3{stroke:#a8508a}.f3{fill:#a8508a}
.s4{stroke:#8a6a00}.f4{fill:#8a6a00}.s5{stroke:#3b8fc2}.f5{fill:#3b8fc2}
.s6{stroke:#6a4fb0}.f6{fill:#6a4fb0}.s7{stroke:#4f5a64}.f7{fill:#4f5a64}
@media (prefers-color-scheme:dark){
.plot-svg text{fill:#a9b6c2}.plot-svg .title{fill:#e8eef4}
.plot-svg .paper{fill:#151b22;stroke:#2b3540}.plot-svg .grid{stroke:#242d37}
.plot-svg .axis{stroke:#6b7986}.plot-svg .level{stroke:#a9b6c2}
.s0{stroke:#56b4e9}.f0{fill:#56b4e9}.s1{stroke:#f09a4a}.f1{fill:#f09a4a}
.s2{stroke:#2fc49a}.f2{fill:#2fc49a}.s3{stroke:#dc92c0}.f3{fill:#dc92c0}
.s4{stroke:#e6c84a}.f4{fill:#e6c84a}.s5{stroke:#a9d4f0}.f5{fill:#a9d4f0}
.s6{stroke:#b3a0ee}.f6{fill:#b3a0ee}.s7{stroke:#c3ccd5}.f7{fill:#c3ccd5}}
)css";

// Maps values of an axis to pixels.
struct Scale {
  double low = 0;  // of the axis, in log2 where it is logarithmic
  double high = 1;
  bool logarithmic = false;
  double from = 0;  // pixels
  double to = 1;

  bool holds(double value) const { return std::isfinite(value) && (!logarithmic || value > 0); }
  double at(double value) const {
    const double v = logarithmic ? std::log2(value) : value;
    return from + (v - low) / (high - low) * (to - from);
  }
};

struct Frame {
  double left, right, top, bottom;
};

bool isDrawn(const Plot& plot, const PlotPoint& point) {
  const Scale x{.logarithmic = plot.x.logarithmic};
  const Scale y{.logarithmic = plot.y.logarithmic};
  return x.holds(point.x) && y.holds(point.y);
}

std::vector<double> valuesOf(const Plot& plot, bool of_x) {
  std::vector<double> values;
  const bool logarithmic = of_x ? plot.x.logarithmic : plot.y.logarithmic;
  for (const PlotSeries& series : plot.series) {
    if (series.bars && !of_x) values.push_back(0);
    for (const PlotPoint& point : series.points) {
      if (!isDrawn(plot, point)) continue;
      // The y axis covers the values of x as well if there is a diagonal.
      if (of_x || plot.diagonal) values.push_back(point.x);
      for (const double y : {point.low, point.y, point.high}) {
        if (!of_x && std::isfinite(y) && (!logarithmic || y > 0)) values.push_back(y);
      }
    }
  }
  for (const PlotLevel& level : plot.levels) {
    if (!of_x && std::isfinite(level.y) && (!logarithmic || level.y > 0)) values.push_back(level.y);
  }
  return values;
}

// Returns a round step. The span has 3 to 8 of them.
double tickStep(double span) {
  double step = std::pow(10, std::floor(std::log10(span / 8)));
  for (const double factor : {1.0, 2.0, 5.0, 10.0}) {
    if (span / (step * factor) <= 8) return step * factor;
  }
  return step * 10;
}

Scale scaleOf(const PlotAxis& axis, const std::vector<double>& values, double from, double to) {
  Scale scale{0, 1, axis.logarithmic, from, to};
  if (values.empty()) return scale;
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  if (axis.logarithmic) {
    const double low = std::log2(*least);
    const double high = std::log2(*most);
    const double pad = high > low ? 0.06 * (high - low) : 1;
    scale.low = low - pad;
    scale.high = high + pad;
    return scale;
  }
  if (axis.percent) {
    const double step = tickStep(*most - *least + 0.02);
    scale.low = std::max(0.0, std::floor((*least - 0.005) / step) * step);
    scale.high = std::min(1.0, std::ceil((*most + 0.005) / step) * step);
    if (scale.high - scale.low < step) scale.low = std::max(0.0, scale.high - step);
    if (scale.high <= scale.low) scale.high = scale.low + 1;
    return scale;
  }
  const double pad = *most > *least ? 0.06 * (*most - *least) : 1;
  scale.low = *least - pad;
  scale.high = *most + pad;
  return scale;
}

// Returns round numbers between the ends. On a logarithmic axis they are 1, 2 and 5 times powers of
// ten. From 3.5 decades on they are the powers alone, below one decade at most ten multiples of a
// round step.
std::vector<double> roundTicks(const Scale& scale) {
  std::vector<double> ticks;
  if (!scale.logarithmic) {
    const double step = tickStep(scale.high - scale.low);
    const auto first = static_cast<int64_t>(std::ceil(scale.low / step - 1e-9));
    for (int64_t i = first; static_cast<double>(i) * step <= scale.high + 1e-9; ++i) {
      ticks.push_back(static_cast<double>(i) * step);
    }
    return ticks;
  }
  const double decades = (scale.high - scale.low) * std::log10(2.0);
  if (decades < 1) {
    const double step = tickStep(std::exp2(scale.high) - std::exp2(scale.low));
    for (double tick = std::ceil(std::exp2(scale.low) / step) * step;
         tick <= std::exp2(scale.high) && ticks.size() < 10; tick += step) {
      ticks.push_back(tick);
    }
    return ticks;
  }
  const auto first = static_cast<int>(std::floor(scale.low * std::log10(2.0)));
  for (int power = first; power <= first + static_cast<int>(decades) + 1; ++power) {
    for (const double factor : {1.0, 2.0, 5.0}) {
      const double tick = factor * std::pow(10, power);
      const bool wanted = factor == 1.0 || decades < 3.5;
      if (wanted && std::log2(tick) >= scale.low && std::log2(tick) <= scale.high) {
        ticks.push_back(tick);
      }
    }
  }
  return ticks;
}

std::string numberText(double value, const PlotAxis& axis) {
  if (axis.percent) return fmt::format("{:.3g} %", value * 100);
  return fmt::format("{:.6g}", value);
}

std::string xTicks(const Plot& plot, const Scale& scale, const Frame& frame) {
  std::string svg;
  double free_from = 0;
  std::vector<double> ticks = plot.x.ticks.empty() ? roundTicks(scale) : plot.x.ticks;
  std::sort(ticks.begin(), ticks.end());
  for (const double tick : ticks) {
    if (!scale.holds(tick)) continue;
    const std::string label = numberText(tick, plot.x);
    const double x = scale.at(tick);
    const double letter = plot.standalone ? kLetter : kLargeLetter;
    const double half = (static_cast<double>(label.size()) * letter + 12) / 2;
    if (x < frame.left - 1 || x > frame.right + 1 || x - half < free_from) continue;
    free_from = x + half;
    svg += fmt::format(
        "<path class=\"axis\" d=\"M{:.1f} {:.1f}v6\"/>"
        "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>\n",
        x, frame.bottom, x, frame.bottom + 23, label);
  }
  return svg;
}

std::string yTicks(const Plot& plot, const Scale& scale, const Frame& frame) {
  std::string svg;
  double free_below = frame.bottom + 100;
  for (const double tick : plot.y.ticks.empty() ? roundTicks(scale) : plot.y.ticks) {
    if (!scale.holds(tick)) continue;
    const double y = scale.at(tick);
    if (y < frame.top - 1 || y > frame.bottom + 1 || y > free_below) continue;
    free_below = y - (plot.standalone ? 18 : 24);
    svg += fmt::format(
        "<path class=\"grid\" d=\"M{:.1f} {:.1f}H{:.1f}\"/>"
        "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>\n",
        frame.left, y, frame.right, frame.left - 10, y + 4.5, numberText(tick, plot.y));
  }
  return svg;
}

// Draws the label up the axis, or in a part of a page above it, where there is more room.
std::string yLabel(const Plot& plot, const Frame& frame) {
  const std::string label = escapedXml(plot.y.label);
  if (!plot.standalone) return fmt::format("<text x=\"6\" y=\"20\">{}</text>\n", label);
  return fmt::format(
      "<text transform=\"translate(20 {:.1f}) rotate(-90)\" text-anchor=\"middle\">{}</text>\n",
      (frame.top + frame.bottom) / 2, label);
}

std::string axes(const Plot& plot, const Scale& x, const Scale& y, const Frame& frame) {
  return yTicks(plot, y, frame) + xTicks(plot, x, frame) +
         fmt::format("<path class=\"axis\" d=\"M{:.1f} {:.1f}H{:.1f}\"/>\n", frame.left,
                     frame.bottom, frame.right) +
         fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>\n",
                     (frame.left + frame.right) / 2, frame.bottom + 47, escapedXml(plot.x.label)) +
         yLabel(plot, frame);
}

// Draws a filled mark, whose shape and colour are the style's.
std::string mark(size_t style, double x, double y) {
  const size_t colour = style % kColours;
  const auto path = [&](std::string_view steps, double dx, double dy) {
    return fmt::format("<path class=\"f{}\" d=\"M{:.1f} {:.1f}{}z\"/>", colour, x + dx, y + dy,
                       steps);
  };
  switch (style % kShapes) {
    case 0:
      return fmt::format("<circle class=\"f{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4.6\"/>", colour, x,
                         y);
    case 1:
      return path("h8.4v8.4h-8.4", -4.2, -4.2);
    case 2:
      return path("l5.4 9.2h-10.8", 0, -5.8);
    case 3:
      return path("l5.6 5.6l-5.6 5.6l-5.6 -5.6", 0, -5.6);
    default:
      return path("l-5.4 -9.2h10.8", 0, 5.8);
  }
}

std::string_view dashOf(size_t style) {
  static constexpr std::array<std::string_view, 3> kDashes = {"", " d1", " d2"};
  return kDashes[style / kColours % kDashes.size()];
}

std::string bar(size_t style, const PlotPoint& point, const Scale& x, const Scale& y) {
  const double left = x.at(point.x - 0.41);
  const double top = y.at(std::max(point.y, 0.0));
  return fmt::format(
      "<rect class=\"f{}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\"/>",
      style % kColours, left, top, x.at(point.x + 0.41) - left, y.at(std::min(point.y, 0.0)) - top);
}

std::string drawSeries(const Plot& plot, const PlotSeries& series, const Scale& x_scale,
                       const Scale& y_scale) {
  std::string path;
  std::string whiskers;
  std::string marks;
  for (const PlotPoint& point : series.points) {
    if (!isDrawn(plot, point)) continue;
    const double x = x_scale.at(point.x);
    const double y = y_scale.at(point.y);
    path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", x, y);
    if (point.low < point.high && y_scale.holds(point.low) && y_scale.holds(point.high)) {
      whiskers +=
          fmt::format("M{0:.1f} {2:.1f}h{4}M{1:.1f} {2:.1f}V{3:.1f}M{0:.1f} {3:.1f}h{4}",
                      x - kWhisker, x, y_scale.at(point.low), y_scale.at(point.high), 2 * kWhisker);
    }
    std::string label;
    if (!point.label.empty()) {
      label = fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>", x,
                          y - 4, escapedXml(point.label));
    }
    marks += fmt::format(
        "<g>{}{}<title>{}</title></g>\n",
        series.bars ? bar(series.style, point, x_scale, y_scale) : mark(series.style, x, y), label,
        escapedXml(point.title));
  }
  const size_t colour = series.style % kColours;
  std::string svg;
  if (!whiskers.empty()) {
    svg += fmt::format("<path class=\"whisker s{}{}\" d=\"{}\"/>\n", colour,
                       plot.series.size() > kFew ? " many" : "", whiskers);
  }
  if (series.joined && !path.empty()) {
    svg +=
        fmt::format("<path class=\"line s{}{}\" d=\"{}\"/>\n", colour, dashOf(series.style), path);
  }
  return svg + marks;
}

std::string sampleOf(const PlotSeries& series, double x, double y) {
  const size_t style = series.style;
  if (series.bars) {
    return fmt::format("<path class=\"f{}\" d=\"M{:.1f} {:.1f}h12v11h-12z\"/>", style % kColours,
                       x + 7, y - 5.5);
  }
  return fmt::format("<path class=\"line s{}{}\" d=\"M{:.1f} {:.1f}h26\"/>{}", style % kColours,
                     dashOf(style), x, y, mark(style, x + 13, y));
}

// Draws the legend of a standalone picture in rows from `*bottom` down. Sets `*bottom` to the last
// row.
std::string legendRows(const Plot& plot, double left, double right, double* bottom) {
  std::string svg;
  double x = left;
  double y = *bottom;
  const auto entry = [&](const std::string& name, auto sample) {
    const double width = 44 + kLetter * static_cast<double>(name.size());
    if (x > left && x + width > right) {
      x = left;
      y += kLegendRow;
    }
    svg += fmt::format("{}<text x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", sample(x, y), x + 34,
                       y + 4.5, escapedXml(name));
    x += width + 14;
  };
  for (const PlotSeries& series : plot.series) {
    entry(series.name, [&](double at, double row) { return sampleOf(series, at, row); });
  }
  for (const PlotLevel& level : plot.levels) {
    entry(level.name, [](double at, double row) {
      return fmt::format("<path class=\"level\" d=\"M{:.1f} {:.1f}h26\"/>", at, row);
    });
  }
  *bottom = y;
  return svg;
}

std::string drawReferences(const Plot& plot, const Scale& x, const Scale& y, const Frame& frame) {
  std::string svg;
  for (const PlotLevel& level : plot.levels) {
    if (!y.holds(level.y)) continue;
    svg += fmt::format("<path class=\"level\" d=\"M{:.1f} {:.1f}H{:.1f}\"/>\n", frame.left,
                       y.at(level.y), frame.right);
  }
  if (plot.diagonal && x.logarithmic == y.logarithmic) {
    const double low = std::max(x.low, y.low);
    const double high = std::min(x.high, y.high);
    const auto value = [&](double v) { return x.logarithmic ? std::exp2(v) : v; };
    if (low < high) {
      svg += fmt::format("<path class=\"level\" d=\"M{:.1f} {:.1f}L{:.1f} {:.1f}\"/>\n",
                         x.at(value(low)), y.at(value(low)), x.at(value(high)), y.at(value(high)));
    }
  }
  return svg;
}

}  // namespace

std::string escapedXml(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? ' ' : c;
    }
  }
  return out;
}

std::string_view plotStyle() { return kStyle; }

std::string plotLegend(const std::vector<PlotSeries>& series,
                       const std::vector<PlotLevel>& levels) {
  std::string html = "<ul class=\"legend\">";
  const auto entry = [&](const std::string& sample, const std::string& name) {
    html += fmt::format(
        "<li><svg class=\"plot-svg sample\" width=\"26\" height=\"14\" viewBox=\"0 0 26 14\" "
        "aria-hidden=\"true\">{}</svg>{}</li>",
        sample, escapedXml(name));
  };
  for (const PlotSeries& one : series) entry(sampleOf(one, 0, 7), one.name);
  for (const PlotLevel& level : levels) entry("<path class=\"level\" d=\"M0 7h26\"/>", level.name);
  return html + "</ul>\n";
}

std::string plotSvg(const Plot& plot) {
  Frame frame{74, plot.width - 28, plot.standalone ? 92.0 : 42.0, 0};
  double legend_bottom = 64;
  std::string head;
  if (plot.standalone) {
    head = legendRows(plot, frame.left, frame.right, &legend_bottom);
    frame.top += legend_bottom - 64;
  }
  const double height = plot.height + (plot.standalone ? legend_bottom - 64 : 0);
  frame.bottom = height - 62;
  const Scale x = scaleOf(plot.x, valuesOf(plot, true), frame.left, frame.right);
  Scale y = scaleOf(plot.y, valuesOf(plot, false), frame.bottom, frame.top);
  if (std::any_of(plot.series.begin(), plot.series.end(),
                  [](const auto& one) { return one.bars; })) {
    y.low = std::max(y.low, 0.0);  // bars stand on the axis, and none is below
  }
  const std::string title = escapedXml(plot.title);
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"plot-svg\" {2}viewBox=\"0 0 {0} {1}\" "
      "role=\"img\" aria-label=\"{3}\">\n",
      plot.width, height,
      plot.standalone ? fmt::format("width=\"{}\" height=\"{}\" ", plot.width, height) : "", title);
  if (plot.standalone) {
    svg += fmt::format(
        "<title>{0}</title>\n<style>{1}</style>\n"
        "<rect class=\"paper\" x=\".5\" y=\".5\" width=\"{2}\" height=\"{3}\" rx=\"10\"/>\n"
        "<text class=\"title\" x=\"{4}\" y=\"36\">{0}</text>\n",
        title, kStyle, plot.width - 1, height - 1, frame.left);
  }
  svg += head + axes(plot, x, y, frame) + drawReferences(plot, x, y, frame);
  for (const PlotSeries& series : plot.series) svg += drawSeries(plot, series, x, y);
  if (valuesOf(plot, false).empty()) {
    svg += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n",
                       (frame.left + frame.right) / 2, (frame.top + frame.bottom) / 2,
                       escapedXml(plot.empty));
  }
  return svg + "</svg>\n";
}

}  // namespace allot
