#include "aggregator/report/report.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <sstream>
#include <string_view>
#include <system_error>

#include "aggregator/page/page.h"
#include "aggregator/report/curve_svg.h"
#include "aggregator/report/policy_artefact.h"
#include "aggregator/report/report_tables.h"
#include "allot/kernels/method.h"
#include "core/evaluation/evaluation_plan.h"
#include "core/files/files.h"
#include "core/words.h"

namespace allot {
namespace {

// Size of a plot in the page. Two fit side by side.
constexpr double kWidth = 560;
constexpr double kHeight = 340;

struct Data {
  const std::vector<CurvePoint>& points;
  std::vector<FidelityPoint> fidelity;
  std::vector<FidelityPoint> variance;
  LineStyles styles;
  std::string unit;  // of total budgets (unitOf())
};

std::string section(std::string_view heading, std::string_view note, const std::string& body,
                    bool wide = false) {
  return fmt::format(
      "<section class=\"card figure{}\">\n<h2>{}</h2>\n<p class=\"quiet\">{}</p>\n{}</section>\n",
      wide ? " span" : "", heading, note, body);
}

std::string part(Plot plot) {
  plot.standalone = false;
  plot.width = kWidth;
  plot.height = kHeight;
  return plotSvg(plot);
}

std::string figure(std::string_view heading, std::string_view note, const Plot& plot) {
  if (plot.series.empty()) return "";
  return section(heading, note, plotLegend(plot.series, plot.levels) + part(plot));
}

// Returns 3 for "3", "03" and "3-4"; 0 for words.
double leadingNumber(const std::string& text) {
  double number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

// --- accuracy ---

std::string tasksFigure(const Data& data) {
  std::set<std::string> tasks;
  for (const auto& point : data.points) {
    for (const auto& task : point.tasks) tasks.insert(task.task);
  }
  if (tasks.size() < 2) return "";
  const std::vector<CurvePoint> curve = newestCompletePerSchedule(data.points);
  const Plot all = curvePlot(curve, data.styles);
  if (all.series.empty()) return "";
  std::vector<PlotLevel> dense;
  if (!all.levels.empty()) dense = {{"dense, every row read", 0}};
  std::string body = plotLegend(all.series, dense) + "<div class=\"panels\">\n";
  for (const std::string& task : tasks) {
    Plot plot = curvePlot(curve, data.styles, task);
    plot.title = "accuracy on " + task;
    plot.x.label = "total budget B" + (data.unit.empty() ? "" : "," + data.unit) + " (log scale)";
    body +=
        "<figure><figcaption>" + escapedXml(task) + "</figcaption>" + part(plot) + "</figure>\n";
  }
  return section("Accuracy by task", "held-out questions of each kind, 95 % intervals",
                 body + "</div>\n", true);
}

// Returns the smallest budgets that are as good as dense attention.
std::string asGoodSection(const RunView& view) {
  const std::vector<AsGoodLine> lines = asGoodLines(view);
  if (lines.empty()) return "";
  std::string rows;
  for (const AsGoodLine& line : lines) {
    const auto& [budget, stopped_at, compared] = line.smallest;
    const auto number = [&](const std::optional<uint64_t>& value) {
      return value ? std::to_string(*value) + budgetUnit(view.facts) : std::string("none");
    };
    rows += "<tr><td>" + escapedXml(line.method) + "</td><td>" + escapedXml(line.schedule) +
            "</td><td class=\"r\">" + number(budget) + "</td><td class=\"r\">" +
            number(stopped_at) + (compared ? "" : ", not measured yet") + "</td></tr>\n";
  }
  return section("As good as dense to within " + pointsText(view.margin),
                 "the smallest total budget whose difference to dense attention, on the same "
                 "questions, has a one-sided 95 % lower bound above minus the margin; asked from "
                 "the largest budget down to the first that is not as good, a fixed-sequence test, "
                 "which needs no correction within a line",
                 "<div class=\"scroll\"><table>\n<thead><tr><th>method</th><th>schedule</th>"
                 "<th class=\"r\">smallest budget</th><th class=\"r\">first not found as good</th>"
                 "</tr></thead>\n<tbody>\n" +
                     rows + "</tbody></table></div>\n");
}

std::string shareFigure(const Data& data, CurveShare share, std::string_view heading,
                        std::string_view note) {
  Plot plot = sharePlot(newestCompletePerCell(data.points), data.styles, share);
  plot.title = heading;
  return figure(heading, note, plot);
}

std::string oneHotFigure(const Data& data) {
  const Plot plot = oneHotPlot(newestCompletePerCell(data.points));
  return figure(plot.title,
                "one layer with a single draw, the others with their uniform share; 95 % "
                "intervals",
                plot);
}

// --- fidelity ---

std::string fidelityTitle(const FidelityPoint& point) {
  return fmt::format("{}{}: relative error {:.4g}, cosine {:.4f}, {:.1f} % of the rows",
                     point.method,
                     point.total_budget > 0 ? fmt::format(", budget {}", point.total_budget) : "",
                     point.all.relative_error, point.all.cosine, point.all.density * 100);
}

using Place = std::function<std::optional<double>(const FidelityPoint&)>;

Plot fidelityPlot(const std::vector<FidelityPoint>& points, const LineStyles& styles,
                  const Place& x, const Place& y) {
  Plot plot;
  std::vector<Measured> measured;
  for (const FidelityPoint& point : points) {
    if (isOneHot(point.schedule)) continue;
    const auto at = x(point);
    const auto value = y(point);
    if (!at || *at <= 0 || !value || *value <= 0) continue;
    measured.push_back({point.method,
                        point.schedule,
                        point.total_budget,
                        {*at, *value, *value, *value, fidelityTitle(point)}});
  }
  plot.series = linesByNumber(measured, styles);
  return plot;
}

std::optional<double> samplesOf(const FidelityPoint& point) {
  if (point.reads_per_layer <= 0) return std::nullopt;
  return point.reads_per_layer;
}
std::optional<double> errorOf(const FidelityPoint& point) { return point.all.relative_error; }
std::optional<double> squaredErrorOf(const FidelityPoint& point) {
  return point.all.trace_covariance;
}
std::optional<double> varianceOf(const FidelityPoint& point) { return point.all.variance; }
std::optional<double> rowsOf(const FidelityPoint& point) { return point.all.unique_rows; }
std::optional<double> densityOf(const FidelityPoint& point) { return point.all.density; }

std::optional<double> epsilonOf(const FidelityPoint& point) {
  kernels::MethodOptions options;
  if (kernels::parseMethod(point.method, &options)) return std::nullopt;
  return kernels::hasErrorTarget(options) ? std::optional(options.epsilon) : std::nullopt;
}

std::vector<double> placesOf(const Plot& plot) {
  std::set<double> places;
  for (const auto& series : plot.series) {
    for (const auto& point : series.points) places.insert(point.x);
  }
  return {places.begin(), places.end()};
}

std::string slopesNote(const std::vector<VarianceSlope>& slopes, Measure measure) {
  std::string note;
  for (const VarianceSlope& slope : slopes) {
    if (slope.measure != measure) continue;
    note += fmt::format("{}{} {:.2f}", note.empty() ? "; slopes: " : ", ", escapedXml(slope.method),
                        slope.slope);
  }
  return note;
}

std::string fidelityFigures(const Data& data, const std::vector<VarianceSlope>& slopes) {
  const auto plotOf = [&](const Place& x, const Place& y) {
    return fidelityPlot(data.fidelity, data.styles, x, y);
  };
  Plot error = plotOf(samplesOf, errorOf);
  error.title = "Relative error against samples";
  error.x = {"samples S a layer and head (log scale)", true, false, placesOf(error)};
  error.y = {"mean relative error (log scale)", true};
  Plot variance = plotOf(samplesOf, squaredErrorOf);
  variance.title = "Variance against samples";
  variance.x = error.x;
  variance.y = {"mean squared error (log scale)", true};
  Plot density = plotOf(densityOf, errorOf);
  density.title = "Relative error against rows read";
  density.x = {"share of the value rows that is read (log scale)", true, true};
  density.y = error.y;
  Plot promise = plotOf(epsilonOf, errorOf);
  promise.title = "Relative error against epsilon";
  promise.x = {"epsilon asked for (log scale)", true, false, placesOf(promise)};
  promise.y = error.y;
  promise.diagonal = true;
  const char* const same =
      "same queries, keys and values as dense attention's; mean over layers, "
      "heads and steps";
  std::string html = figure("Relative error against samples", same, error) +
                     figure("Variance against samples",
                            "mean squared error of an output, which for an unbiased method is tr "
                            "Cov" +
                                slopesNote(slopes, Measure::kFidelity),
                            variance) +
                     figure("Relative error against rows read", same, density);
  if (placesOf(promise).size() > 1) {
    html +=
        figure("Relative error against epsilon",
               "mean over layers, heads and steps; dashed: an error of epsilon itself", promise);
  }
  return html;
}

std::string cell(const std::string& text) { return "<td class=\"r\">" + text + "</td>"; }

// Darker where the value is larger, on a logarithmic scale over the whole table.
std::string heatCell(double value, double least, double most) {
  const double share =
      most > least && value > 0 ? std::log(value / least) / std::log(most / least) : 0;
  return fmt::format("<td class=\"r\" style=\"background:rgba(196,80,11,{:.2f})\">{:.3g}</td>",
                     0.04 + 0.5 * std::clamp(share, 0.0, 1.0), value);
}

std::string nameCells(const FidelityPoint& point) {
  const std::string samples =
      point.reads_per_layer > 0 ? fmt::format("{:.4g}", point.reads_per_layer) : "";
  std::string name = escapedXml(point.method);
  if (point.schedule != kUniformSchedule && point.schedule != "adaptive") {
    name += ", " + escapedXml(point.schedule);
  }
  return "<td>" + name + "</td>" + cell(samples);
}

// The heads of nameCells().
const std::string kNameHead = "<th>method</th><th class=\"r\">S</th>";

std::string table(const std::string& head, const std::string& rows) {
  return "<div class=\"scroll\"><table>\n<thead><tr>" + head + "</tr></thead>\n<tbody>\n" + rows +
         "</tbody></table></div>\n";
}

std::string layersNote(AgreementLayers agreement) {
  return std::string(wordAt(agreement, {"all layers", "the last layer alone",
                                        "one layer alone, the mean over the layers"}));
}

std::string fidelityTable(const Data& data) {
  std::string head = kNameHead;
  for (const char* name : {"relative error", "rms", "cosine", "next token", "KL", "over &epsilon;",
                           "own estimate", "squared error", "rows read", "rows", "ESS"}) {
    head += std::string("<th class=\"r\">") + name + "</th>";
  }
  std::string rows;
  for (const FidelityPoint& point : data.fidelity) {
    const FidelityNumbers& n = point.all;
    const auto percent = [](const std::optional<double>& v) {
      return v ? fmt::format("{:.1f} %", *v * 100) : std::string();
    };
    rows += "<tr>" + nameCells(point) + cell(fmt::format("{:.4f}", n.relative_error)) +
            cell(fmt::format("{:.4f}", n.rms_relative_error)) +
            cell(fmt::format("{:.4f}", n.cosine)) + cell(percent(n.agreement)) +
            cell(n.divergence ? fmt::format("{:.3g}", *n.divergence) : "") +
            cell(epsilonOf(point) ? percent(n.exceed_rate) : "") +
            cell(n.estimated_error ? fmt::format("{:.4f}", *n.estimated_error) : "") +
            cell(fmt::format("{:.3g}", n.trace_covariance)) + cell(percent(n.density)) +
            cell(fmt::format("{:.1f}", n.unique_rows)) +
            cell(fmt::format("{:.1f}", n.effective_sample_size)) + "</tr>\n";
  }
  return section("Fidelity in numbers",
                 std::string("S: samples a layer and head; next token: how often it is dense "
                             "attention's with the method in ") +
                     layersNote(data.fidelity.front().agreement) +
                     "; KL: how far its distribution is from dense attention's, in nats; rows: "
                     "value rows read by a head, different ones",
                 table(head, rows), true);
}

// --- variance ---

std::string varianceFigures(const Data& data, const std::vector<VarianceSlope>& slopes) {
  Plot variance = fidelityPlot(data.variance, data.styles, samplesOf, varianceOf);
  variance.title = "Variance at the last prompt position";
  variance.x = {"samples S a layer and head (log scale)", true, false, placesOf(variance)};
  variance.y = {"mean variance of an output, tr Cov (log scale)", true};
  Plot rows = fidelityPlot(data.variance, data.styles, samplesOf, rowsOf);
  rows.title = "Different rows read at the last prompt position";
  rows.x = variance.x;
  rows.y = {"value rows read by a head, different ones (log scale)", true};
  return figure(variance.title,
                fmt::format("of {} outputs at each position, mean over heads, layers and prompts{}",
                            data.variance.front().all.replicates,
                            slopesNote(slopes, Measure::kVariance)),
                variance) +
         figure(rows.title, "mean over heads, layers and prompts", rows);
}

std::string varianceTable(const Data& data) {
  std::string head = kNameHead;
  for (const char* name : {"variance", "closed form", "squared error", "rows", "rows read"}) {
    head += std::string("<th class=\"r\">") + name + "</th>";
  }
  std::string rows;
  for (const FidelityPoint& point : data.variance) {
    const FidelityNumbers& n = point.all;
    const auto number = [](const std::optional<double>& value) {
      return cell(value ? fmt::format("{:.4g}", *value) : "");
    };
    rows += "<tr>" + nameCells(point) + number(n.variance) + number(n.closed_form) +
            number(n.trace_covariance) + cell(fmt::format("{:.1f}", n.unique_rows)) +
            cell(fmt::format("{:.1f} %", n.density * 100)) + "</tr>\n";
  }
  return section("Variance in numbers",
                 "at the last prompt position; S: samples a layer and head; variance: tr Cov by "
                 "replicates; closed form: tr Cov of independent or stratified draws; squared "
                 "error: variance and bias; rows: value rows read by a head, different ones",
                 table(head, rows), true);
}

// --- parts ---

using Parts = std::vector<FidelityNumbers> FidelityPoint::*;
using Value = double (*)(const FidelityNumbers&);

double errorIn(const FidelityNumbers& numbers) { return numbers.relative_error; }
double varianceIn(const FidelityNumbers& numbers) { return numbers.variance.value_or(0); }
double changedIn(const FidelityNumbers& numbers) { return 1 - numbers.agreement.value_or(1); }

std::string heatTable(const std::vector<FidelityPoint>& points, Parts parts, Value value,
                      std::string_view heading, std::string_view note) {
  std::vector<std::string> names;  // in order of appearance
  double least = 0;
  double most = 0;
  for (const FidelityPoint& point : points) {
    for (const FidelityNumbers& one : point.*parts) {
      if (std::find(names.begin(), names.end(), one.name) == names.end()) names.push_back(one.name);
      if (value(one) <= 0) continue;
      least = least == 0 ? value(one) : std::min(least, value(one));
      most = std::max(most, value(one));
    }
  }
  if (names.size() < 2) return "";
  std::stable_sort(names.begin(), names.end(), [](const auto& a, const auto& b) {
    return leadingNumber(a) < leadingNumber(b);
  });
  std::string head = kNameHead;
  for (const std::string& name : names) head += "<th class=\"r\">" + escapedXml(name) + "</th>";
  std::string rows;
  for (const FidelityPoint& point : points) {
    rows += "<tr>" + nameCells(point);
    for (const std::string& name : names) {
      const auto found = std::find_if((point.*parts).begin(), (point.*parts).end(),
                                      [&](const auto& one) { return one.name == name; });
      rows += found == (point.*parts).end() ? cell("") : heatCell(value(*found), least, most);
    }
    rows += "</tr>\n";
  }
  return section(heading, note, table(head, rows), true);
}

std::string fidelityCards(const Data& data, const std::vector<VarianceSlope>& slopes) {
  const std::vector<FidelityPoint>& points = data.fidelity;
  std::string html =
      fidelityFigures(data, slopes) + fidelityTable(data) +
      heatTable(points, &FidelityPoint::layers, errorIn, "Relative error by layer",
                "mean over heads and steps; darker is larger, on a logarithmic scale");
  if (points.front().agreement == AgreementLayers::kEach) {
    html += heatTable(points, &FidelityPoint::layers, changedIn, "Next tokens changed by one layer",
                      "share of the steps whose next token is not dense attention's with the "
                      "method in that layer alone");
  }
  return html + heatTable(points, &FidelityPoint::supports, errorIn,
                          "Relative error by spread of the attention",
                          fmt::format("states by the number of tiles of {} keys that hold 90 % of "
                                      "the mass: how many keys matter",
                                      points.front().support_tile));
}

// A prefill method has one row, or one for each schedule and budget if it draws.
std::string prefillTable(const Data& data) {
  std::string rows;
  std::set<std::string> seen;
  const auto percent = [](const std::optional<double>& share) {
    return cell(share ? fmt::format("{:.2f} %", *share * 100) : "");
  };
  const auto seconds = [](const std::optional<double>& value) {
    return cell(value ? fmt::format("{:.1f} ms", *value * 1e3) : "");
  };
  for (const CurvePoint& point : newestCompletePerCell(data.points)) {
    if (!point.prefill_seconds) continue;
    kernels::MethodOptions options;
    const bool known = !kernels::parseMethod(point.prefill, &options, kernels::Phase::kPrefill);
    const bool draws = !known || kernels::usesBudget(options);
    const std::string name =
        point.prefill +
        (draws ? fmt::format(", {}, budget {}", point.schedule, point.total_budget) : "");
    if (!seen.insert(name).second) continue;
    rows += "<tr><td>" + escapedXml(name) + "</td>" + percent(point.prefill_density) +
            percent(point.prefill_bytes_share) + seconds(point.prefill_seconds) +
            seconds(point.prefill_selection_seconds) + percent(point.prefill_kept_mass) +
            percent(point.prefill_least_kept_mass) + "</tr>\n";
  }
  std::string head = "<th>prefill</th>";
  for (const char* name :
       {"density", "bytes read", "first token", "selection", "mass kept", "least mass kept"}) {
    head += std::string("<th class=\"r\">") + name + "</th>";
  }
  return section("How prompts were read",
                 "means of a prompt; the mass that a query's blocks hold, over queries, heads and "
                 "layers of the first 32 questions",
                 table(head, rows), true);
}

constexpr std::string_view kReport = "/report/";
// The files of writeReport(). No other file of the folder is served.
struct ReportFile {
  std::string_view name;
  const char* type;
};
constexpr ReportFile kReportFiles[] = {{"summary.json", "application/json"},
                                       {"policy.json", "application/json"},
                                       {"report.html", "text/html; charset=utf-8"},
                                       {"curve.csv", "text/csv; charset=utf-8"},
                                       {"curve.svg", "image/svg+xml"},
                                       {"fidelity.csv", "text/csv; charset=utf-8"},
                                       {"variance.csv", "text/csv; charset=utf-8"}};

using nlohmann::json;

// --- the documents ---

std::string dump(const json& value, int indent) {
  return value.dump(indent, ' ', false, json::error_handler_t::replace);
}

// Puts `text` in the place of `mark`, which index.html holds exactly once.
Status put(std::string& html, std::string_view mark, std::string_view text) {
  const size_t at = html.find(mark);
  if (at == std::string::npos || html.find(mark, at + 1) != std::string::npos) {
    return fail(ErrorCode::kInternal, "aggregator/page/index.html must hold exactly one " +
                                          std::string(mark) + ": build again from a clean tree");
  }
  html.replace(at, mark.size(), text);
  return {};
}

// --- writing ---

Status writeFiles(const std::string& dir, const RunView& view) {
  ALLOT_ASSIGN(const std::string html, reportHtml(view));
  std::error_code made;
  std::filesystem::create_directories(dir, made);
  if (made) return fail(ErrorCode::kIo, "cannot make " + dir + ": " + made.message());
  ALLOT_TRY(writeWholeFile(dir + "/report.html", html));
  for (const auto& [name, text] : reportFiles(view)) {
    ALLOT_TRY(writeWholeFile(dir + "/" + name, text));
  }
  return {};
}

}  // namespace

std::string figuresHtml(const RunView& view) {
  const auto& points = view.points;
  const auto fidelity = newestFidelity(view.fidelity);
  const auto variance = newestFidelity(view.variance);
  std::vector<FidelityPoint> compared = fidelity;
  compared.insert(compared.end(), variance.begin(), variance.end());
  const Data data{points, fidelity, variance, LineStyles(points, compared, budgetUnit(view.facts)),
                  budgetUnit(view.facts)};
  std::string html =
      asGoodSection(view) + tasksFigure(data) +
      shareFigure(data, CurveShare::kKvBytes, "Accuracy against KV bytes read",
                  "keys, their shadows and values read while decoding, of what dense "
                  "attention reads; 95 % intervals");
  const bool sparse = std::any_of(points.begin(), points.end(), [](const CurvePoint& point) {
    return !point.prefill.empty() && point.prefill != "dense";
  });
  if (sparse) {
    html += shareFigure(data, CurveShare::kPrefillBlocks, "Accuracy against density of the prefill",
                        "blocks of keys whose values were read for the prompt, of dense "
                        "attention's; 95 % intervals") +
            prefillTable(data);
  }
  const bool features = std::any_of(points.begin(), points.end(), [](const auto& point) {
    return point.method.rfind("bernoulli", 0) == 0;
  });
  if (features) {
    html += shareFigure(data, CurveShare::kKeyBytes, "Accuracy against key features read",
                        "key bytes read while decoding, of what dense attention reads; 95 % "
                        "intervals");
  }
  html += oneHotFigure(data);
  if (!fidelity.empty()) html += fidelityCards(data, view.slopes);
  if (!variance.empty()) {
    html += varianceFigures(data, view.slopes) + varianceTable(data) +
            heatTable(variance, &FidelityPoint::layers, varianceIn, "Variance by layer",
                      "mean over heads and prompts; darker is larger, on a logarithmic scale");
  }
  return html.empty() ? html : "<div class=\"cards\">\n" + html + "</div>\n";
}

bool isReportPath(const std::string& path) { return path.starts_with(kReport); }

HttpReply serveReport(const std::string& path, const std::string& dir) {
  for (const auto& [name, type] : kReportFiles) {
    if (!isReportPath(path) || path.substr(kReport.size()) != name) continue;
    std::ifstream file(dir + "/" + std::string(name), std::ios::binary);
    if (dir.empty() || !file) {
      return plainText(404, "Not there yet: it is written after an evaluation and at the end.");
    }
    std::stringstream text;
    text << file.rdbuf();
    return {200, type, text.str(), kReportLoads};
  }
  return plainText(404, "The report has no such file: its summary is /report/summary.json.");
}

Result<std::string> reportHtml(const RunView& view) {
  // Inside <script> only "<" can start something else (</script, <!--); JSON may write it as an
  // escape, as it stands in strings alone.
  std::string data;
  for (const char c : dump(viewJson(view), -1)) {
    if (c == '<') {
      data += "\\u003c";
    } else {
      data += c;
    }
  }
  const auto element = [](std::string_view open, std::string_view text, std::string_view close) {
    return fmt::format("{}\n{}\n{}", open, text, close);
  };
  std::string html(page::kIndexHtml);
  // Marks are looked for in a text that holds all earlier insertions. In these, texts of a run are
  // escaped.
  ALLOT_TRY(put(
      html, "<link rel=\"icon\" href=\"icon.svg\">",
      fmt::format("<meta http-equiv=\"Content-Security-Policy\" content=\"{}\">", kReportLoads)));
  ALLOT_TRY(put(html, "<link rel=\"stylesheet\" href=\"page.css\">",
                element("<style>", page::kPageCss, "</style>")));
  ALLOT_TRY(put(html, "<div id=\"figures\"></div>",
                "<style>" + std::string(plotStyle()) + "</style>\n<div id=\"figures\">\n" +
                    figuresHtml(view) + "</div>"));
  ALLOT_TRY(put(html, "<script src=\"chart.js\"></script>",
                element("<script>", page::kChartJs, "</script>")));
  ALLOT_TRY(put(html, "<script src=\"page.js\"></script>",
                element("<script type=\"application/json\" id=\"run-view\">", data, "</script>") +
                    "\n" + element("<script>", page::kPageJs, "</script>")));
  return html;
}

std::map<std::string, std::string> reportFiles(const RunView& view) {
  const auto curve = newestCompletePerSchedule(view.points);
  const auto fidelity = newestFidelity(view.fidelity);
  const auto variance = newestFidelity(view.variance);
  std::map<std::string, std::string> files = {
      {"curve.csv", curveCsv(curve, budgetUnit(view.facts))},
      {"curve.svg", curveSvg(view.facts.value("experiment", ""), curve, budgetUnit(view.facts))},
      {"policy.json", dump(policyJson(view), 2) + "\n"},
      {"summary.json", dump(summaryJson(view), 2) + "\n"}};
  if (!fidelity.empty()) files["fidelity.csv"] = fidelityCsv(fidelity);
  if (!variance.empty()) files["variance.csv"] = varianceCsv(variance);
  return files;
}

Status writeReport(const std::string& dir, const RunView& view) {
  try {
    return writeFiles(dir, view);
  } catch (const std::exception& e) {
    return fail(ErrorCode::kInternal, "cannot write the report into " + dir + ": " + e.what());
  }
}

}  // namespace allot
