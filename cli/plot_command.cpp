// allot plot.
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "aggregator/report/curve_svg.h"
#include "aggregator/report/report_tables.h"
#include "cli/commands.h"
#include "cli/terminal.h"
#include "core/files/files.h"

namespace allot {
namespace {

constexpr uint64_t kMostBytes = uint64_t{64} << 20;

struct PlotOptions {
  std::string file, title, out;
  std::string over = "budget";
};

Plot plotOver(const std::string& over, const std::vector<CurvePoint>& points) {
  const LineStyles styles(points);
  if (over == "bytes") return sharePlot(points, styles, CurveShare::kKvBytes);
  if (over == "prefill") return sharePlot(points, styles, CurveShare::kPrefillBlocks);
  return over == "layer" ? oneHotPlot(points) : curvePlot(points, styles);
}

// The schedule of the smallest total budget.
Result<std::vector<double>> readsOf(const std::string& text, const std::string& file) {
  const auto policy = nlohmann::json::parse(text, nullptr, false);
  try {
    const nlohmann::json& frontier = policy.at("frontier");
    return frontier.empty() ? policy.at("learned_schedule").get<std::vector<double>>()
                            : frontier.at(0).at("layer_reads").get<std::vector<double>>();
  } catch (const nlohmann::json::exception&) {
    return fail(ErrorCode::kData, file + " is no policy.json of a run");
  }
}

Status draw(const PlotOptions& options) {
  ALLOT_ASSIGN(const std::string text, readWholeFile(options.file, kMostBytes));
  Plot plot;
  if (options.file.ends_with(".json")) {
    ALLOT_ASSIGN(const std::vector<double> draws, readsOf(text, options.file));
    plot = schedulePlot(draws);
  } else {
    ALLOT_ASSIGN(const std::vector<CurvePoint> points, curvePointsOf(text, options.file));
    plot = plotOver(options.over, points);
  }
  if (!options.title.empty()) plot.title = options.title;
  const std::string svg = plotSvg(plot);
  if (!options.out.empty()) return writeWholeFile(options.out, svg);
  std::printf("%s", svg.c_str());
  return {};
}

}  // namespace

void addPlotCommand(CLI::App* app, Action* action) {
  auto options = std::make_shared<PlotOptions>();
  auto* plot = app->add_subcommand(
      "plot", "Draw a run's curve.csv or policy.json as SVG, as its report does");
  plot->group(kKeepGroup);
  plot->add_option("FILE", options->file, "curve.csv or policy.json of a run's folder")->required();
  plot->add_option(
          "--over", options->over,
          "What accuracy stands over: the total budget, the share of the KV bytes that was "
          "read, the share of the prefill's blocks, or the layer that is cut [budget]")
      ->check(CLI::IsMember({"budget", "bytes", "prefill", "layer"}));
  plot->add_option("--title", options->title, "Text above the picture");
  plot->add_option("--out", options->out, "File to write [stdout]");
  plot->footer(
      "Examples:\n"
      "  allot plot runs/a/curve.csv --out curve.svg\n"
      "  allot plot runs/a/curve.csv --over bytes --title \"RULER at 8k\" --out bytes.svg\n"
      "  allot plot runs/a/policy.json --out schedule.svg");
  plot->callback([=] { *action = [options] { return exitCodeOf(draw(*options)); }; });
}

}  // namespace allot
