#include "aggregator/curve_svg.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string_view>
#include <utility>

namespace allot {
namespace {

constexpr double kWidth = 760;
constexpr double kHeight = 440;
constexpr double kLeft = 74;
constexpr double kRight = kWidth - 28;
constexpr double kTop = 92;
constexpr double kBottom = kHeight - 62;
constexpr double kWhisker = 5;  // half the width of a whisker's end
constexpr size_t kColours = 6;
constexpr size_t kMaxTicks = 14;

// Wong's colour-blind safe palette, darker on light paper; shapes tell the lines apart as well.
constexpr std::string_view kStyle = R"css(
text{font:13px system-ui,-apple-system,"Segoe UI",Helvetica,Arial,sans-serif;fill:#46525e}
.title{font-size:16px;font-weight:600;fill:#16202a}.value{font-size:12px}
.paper{fill:#fff;stroke:#d9dfe5}.grid{stroke:#e8ecf0}.axis{stroke:#8794a1}
.line{fill:none;stroke-width:2.25;stroke-linejoin:round}.whisker{fill:none;stroke-width:1.4}
.dense{stroke:#5a6773;stroke-width:2;stroke-dasharray:7 5}
.s0{stroke:#0067a5}.f0{fill:#0067a5}.s1{stroke:#c4500b}.f1{fill:#c4500b}
.s2{stroke:#00795c}.f2{fill:#00795c}.s3{stroke:#a8508a}.f3{fill:#a8508a}
.s4{stroke:#8a6a00}.f4{fill:#8a6a00}.s5{stroke:#3b7fa6}.f5{fill:#3b7fa6}
@media (prefers-color-scheme:dark){
text{fill:#a9b6c2}.title{fill:#e8eef4}.paper{fill:#151b22;stroke:#2b3540}
.grid{stroke:#242d37}.axis{stroke:#6b7986}.dense{stroke:#a9b6c2}
.s0{stroke:#56b4e9}.f0{fill:#56b4e9}.s1{stroke:#f09a4a}.f1{fill:#f09a4a}
.s2{stroke:#2fc49a}.f2{fill:#2fc49a}.s3{stroke:#dc92c0}.f3{fill:#dc92c0}
.s4{stroke:#e6c84a}.f4{fill:#e6c84a}.s5{stroke:#9ccbe6}.f5{fill:#9ccbe6}}
)css";

struct Line {
  std::string name;
  size_t colour = 0;
  std::vector<CurvePoint> points;  // by budget
};

struct Scales {
  double low_budget = 1;  // log2
  double high_budget = 2;
  double low = 0;  // accuracy
  double high = 1;

  double x(double budget) const {
    const double share = (std::log2(budget) - low_budget) / (high_budget - low_budget);
    return kLeft + share * (kRight - kLeft);
  }
  double y(double accuracy) const {
    return kBottom - (accuracy - low) / (high - low) * (kBottom - kTop);
  }
};

// XML text; control characters, which XML cannot hold, become spaces.
std::string escaped(std::string_view text) {
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
        out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return out;
}

bool isDense(const CurvePoint& point) { return point.schedule == "dense"; }

// The lines; the method is named only where there are several.
std::vector<Line> linesOf(const std::vector<CurvePoint>& points) {
  std::map<std::pair<std::string, std::string>, Line> lines;
  std::set<std::string> methods;
  for (const auto& point : points) {
    if (isDense(point) || point.total_budget == 0) continue;  // a logarithm has no place for 0
    methods.insert(point.method);
    lines[{point.schedule, point.method}].points.push_back(point);
  }
  std::vector<Line> ordered;
  size_t others = 2;
  for (auto& [key, line] : lines) {
    const auto& [schedule, method] = key;
    line.name = methods.size() > 1 ? schedule + ", " + method : schedule;
    line.colour = schedule == "learned" && methods.size() == 1   ? 0
                  : schedule == "uniform" && methods.size() == 1 ? 1
                                                                 : others++ % kColours;
    std::sort(line.points.begin(), line.points.end(),
              [](const auto& a, const auto& b) { return a.total_budget < b.total_budget; });
    ordered.push_back(std::move(line));
  }
  return ordered;
}

// A round step that gives four to nine ticks.
double tickStep(double span) {
  for (const double step : {0.01, 0.02, 0.05, 0.1}) {
    if (span / step <= 8) return step;
  }
  return 0.2;
}

Scales scalesOf(const std::vector<Line>& lines, const std::vector<CurvePoint>& points) {
  Scales scales;
  std::set<uint64_t> budgets;
  for (const auto& line : lines) {
    for (const auto& point : line.points) budgets.insert(point.total_budget);
  }
  if (!budgets.empty()) {
    const double first = std::log2(static_cast<double>(*budgets.begin()));
    const double last = std::log2(static_cast<double>(*budgets.rbegin()));
    const double pad = last > first ? 0.06 * (last - first) : 1;
    scales.low_budget = first - pad;
    scales.high_budget = last + pad;
  }
  if (points.empty()) return scales;
  double low = 1;
  double high = 0;
  for (const auto& point : points) {
    low = std::min(low, point.low);
    high = std::max(high, point.high);
  }
  const double step = tickStep(high - low + 0.02);
  scales.low = std::max(0.0, std::floor((low - 0.005) / step) * step);
  scales.high = std::min(1.0, std::ceil((high + 0.005) / step) * step);
  if (scales.high - scales.low < step) scales.low = std::max(0.0, scales.high - step);
  return scales;
}

std::string gridAndAxes(const std::vector<Line>& lines, const Scales& scales) {
  std::string svg;
  const double step = tickStep(scales.high - scales.low);
  const auto first = static_cast<int>(std::ceil(scales.low / step - 1e-9));
  for (int i = first; i * step <= scales.high + 1e-9; ++i) {
    const double y = scales.y(i * step);
    svg += fmt::format(
        "<path class=\"grid\" d=\"M{:.1f} {:.1f}H{:.1f}\"/>"
        "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">{:.0f} %</text>\n",
        kLeft, y, kRight, kLeft - 10, y + 4.5, i * step * 100);
  }
  std::set<uint64_t> budgets;
  for (const auto& line : lines) {
    for (const auto& point : line.points) budgets.insert(point.total_budget);
  }
  const size_t every = (budgets.size() + kMaxTicks - 1) / kMaxTicks;
  size_t index = 0;
  for (const uint64_t budget : budgets) {
    if (index++ % every != 0) continue;
    const double x = scales.x(static_cast<double>(budget));
    svg += fmt::format(
        "<path class=\"axis\" d=\"M{:.1f} {:.1f}v6\"/>"
        "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>\n",
        x, kBottom, x, kBottom + 23, budget);
  }
  svg +=
      fmt::format("<path class=\"axis\" d=\"M{:.1f} {:.1f}H{:.1f}\"/>\n", kLeft, kBottom, kRight);
  svg += fmt::format(
      "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">total budget B (value-row draws per "
      "head and step, all layers, log scale)</text>\n",
      (kLeft + kRight) / 2, kHeight - 15);
  svg += fmt::format(
      "<text transform=\"translate(22 {:.1f}) rotate(-90)\" text-anchor=\"middle\">held-out "
      "accuracy</text>\n",
      (kTop + kBottom) / 2);
  return svg;
}

// A filled mark; the shape goes with the colour.
std::string mark(size_t colour, double x, double y) {
  switch (colour % 3) {
    case 0:
      return fmt::format("<circle class=\"f{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4.6\"/>", colour, x,
                         y);
    case 1:
      return fmt::format(
          "<rect class=\"f{}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"8.4\" height=\"8.4\"/>", colour,
          x - 4.2, y - 4.2);
    default:
      return fmt::format("<path class=\"f{}\" d=\"M{:.1f} {:.1f}l5.4 9.2h-10.8z\"/>", colour, x,
                         y - 5.8);
  }
}

std::string drawLine(const Line& line, const Scales& scales) {
  std::string path;
  std::string whiskers;
  std::string marks;
  for (const auto& point : line.points) {
    const double x = scales.x(static_cast<double>(point.total_budget));
    const double y = scales.y(point.accuracy);
    path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", x, y);
    whiskers +=
        fmt::format("M{0:.1f} {2:.1f}h{4}M{1:.1f} {2:.1f}V{3:.1f}M{0:.1f} {3:.1f}h{4}",
                    x - kWhisker, x, scales.y(point.low), scales.y(point.high), 2 * kWhisker);
    marks += fmt::format(
        "<g>{}<title>{}, budget {}: {:.1f} % ({:.1f} to {:.1f}), n = {}, version {}</title></g>\n",
        mark(line.colour, x, y), escaped(line.name), point.total_budget, point.accuracy * 100,
        point.low * 100, point.high * 100, point.n, point.version);
  }
  return fmt::format(
      "<path class=\"whisker s{0}\" d=\"{1}\"/>\n<path class=\"line s{0}\" d=\"{2}\"/>\n{3}",
      line.colour, whiskers, path, marks);
}

std::string drawDense(const CurvePoint& dense, const Scales& scales) {
  return fmt::format("<path class=\"dense\" d=\"M{:.1f} {:.1f}H{:.1f}\"/>\n", kLeft,
                     scales.y(dense.accuracy), kRight);
}

// One row; what does not fit is left to the marks' own titles.
std::string legend(const std::vector<Line>& lines, const CurvePoint* dense) {
  std::string svg;
  double x = kLeft;
  const double y = 64;
  const auto entry = [&](const std::string& sample, const std::string& name) {
    const double width = 44 + 7.2 * static_cast<double>(name.size());
    if (x + width > kRight) return;
    svg += fmt::format("{}<text x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", sample, x + 34, y + 4.5,
                       escaped(name));
    x += width + 14;
  };
  for (const auto& line : lines) {
    entry(fmt::format("<path class=\"line s{}\" d=\"M{:.1f} {:.1f}h26\"/>{}", line.colour, x, y,
                      mark(line.colour, x + 13, y)),
          line.name);
  }
  if (dense != nullptr) {
    entry(fmt::format("<path class=\"dense\" d=\"M{:.1f} {:.1f}h26\"/>", x, y),
          fmt::format("dense, every row read ({:.1f} %)", dense->accuracy * 100));
  }
  return svg;
}

}  // namespace

std::string curveSvg(const std::string& title, const std::vector<CurvePoint>& points) {
  const auto lines = linesOf(points);
  const auto scales = scalesOf(lines, points);
  const auto dense_at = std::find_if(points.begin(), points.end(), isDense);
  const CurvePoint* dense = dense_at == points.end() ? nullptr : &*dense_at;
  const std::string heading =
      (title.empty() ? "" : escaped(title) + ": ") + "accuracy against sample budget";

  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" "
      "viewBox=\"0 0 {0} {1}\" role=\"img\" aria-labelledby=\"t\">\n<title id=\"t\">{2}</title>\n"
      "<style>{3}</style>\n"
      "<rect class=\"paper\" x=\".5\" y=\".5\" width=\"{4}\" height=\"{5}\" rx=\"10\"/>\n"
      "<text class=\"title\" x=\"{6}\" y=\"36\">{2}</text>\n",
      kWidth, kHeight, heading, kStyle, kWidth - 1, kHeight - 1, kLeft);
  svg += legend(lines, dense);
  svg += gridAndAxes(lines, scales);
  if (dense != nullptr) svg += drawDense(*dense, scales);
  for (const auto& line : lines) svg += drawLine(line, scales);
  if (points.empty()) {
    svg += fmt::format(
        "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">No evaluation was finished."
        "</text>\n",
        (kLeft + kRight) / 2, (kTop + kBottom) / 2);
  }
  return svg + "</svg>\n";
}

}  // namespace allot
