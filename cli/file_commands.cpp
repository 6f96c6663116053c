// allot serve, plot, compare: those that read files, and compare also runs.
#include <signal.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "aggregator/page/run_view.h"
#include "aggregator/report/curve_svg.h"
#include "aggregator/report/report_tables.h"
#include "cli/commands.h"
#include "cli/history.h"
#include "cli/prediction_comparison.h"
#include "cli/run_comparison.h"
#include "cli/run_folder.h"
#include "cli/terminal.h"
#include "core/files/files.h"
#include "core/spec/spec_yaml.h"
#include "core/telemetry/http_server.h"

namespace allot {
namespace {

constexpr uint64_t kMostBytes = uint64_t{64} << 20;

struct PlotOptions {
  std::string file, title, out;
  std::string over = "budget";
};

Plot plotOver(const std::string& over, const std::vector<CurvePoint>& points,
              const std::string& unit) {
  const LineStyles styles(points, {}, unit);
  if (over == "bytes") return sharePlot(points, styles, CurveShare::kKvBytes);
  if (over == "prefill") return sharePlot(points, styles, CurveShare::kPrefillBlocks);
  return over == "layer" ? oneHotPlot(points) : curvePlot(points, styles);
}

// Returns the plot of policy.json: the first schedule of the frontier or, without one, the learned
// schedule.
Result<Plot> policyPlot(const std::string& text, const std::string& file) {
  const auto policy = nlohmann::json::parse(text, nullptr, false);
  try {
    const nlohmann::json& frontier = policy.at("frontier");
    const auto reads = frontier.empty()
                           ? policy.at("learned_schedule").get<std::vector<double>>()
                           : frontier.at(0).at("layer_reads").get<std::vector<double>>();
    return schedulePlot(reads, !budgetUnit(policy).empty());
  } catch (const nlohmann::json::exception&) {
    return fail(ErrorCode::kData, file + " is no policy.json of a run");
  }
}

Status draw(const PlotOptions& options) {
  ALLOT_ASSIGN(const std::string text, readWholeFile(options.file, kMostBytes));
  Plot plot;
  if (options.file.ends_with(".json")) {
    ALLOT_ASSIGN(plot, policyPlot(text, options.file));
  } else {
    ALLOT_ASSIGN(const std::vector<CurvePoint> points, curvePointsOf(text, options.file));
    plot = plotOver(options.over, points, curveUnitOf(text));
  }
  if (!options.title.empty()) plot.title = options.title;
  const std::string svg = plotSvg(plot);
  if (!options.out.empty()) return writeWholeFile(options.out, svg);
  std::printf("%s", svg.c_str());
  return {};
}

constexpr uint16_t kUsualPort = 9480;

struct ServeOptions {
  std::string folder = "runs";
  std::optional<uint16_t> port;
};

Status serve(const ServeOptions& options) {
  ALLOT_ASSIGN(const std::string folder, existingFolder(options.folder));
  // Blocked before the server's thread starts, which would else receive them.
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGINT);
  sigaddset(&ends, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &ends, nullptr);
  RunHistory history(folder);
  const size_t runs = history.find().size();
  const auto answer = [&](const HttpRequest& request) { return history.answer(request); };
  auto server = HttpServer::start("127.0.0.1", options.port.value_or(kUsualPort), answer);
  if (!server && !options.port) server = HttpServer::start("127.0.0.1", 0, answer);
  if (!server) return tl::unexpected(server.error());
  std::printf("http://127.0.0.1:%u/ shows %s in %s (Ctrl-C ends it)\n", (*server)->port(),
              counted(runs, "run").c_str(), folder.c_str());
  std::fflush(stdout);
  int ended = 0;
  sigwait(&ends, &ended);
  return {};
}

struct CompareOptions {
  std::string a, b;
  PredictionFields fields;
  RunChoice runs;  // where runs are looked for
  std::optional<double> margin;
  OutputFormat format = OutputFormat::kTable;
};

// Returns true if the text names a run: a folder, with or without a version, or anything in a store
// or a cluster.
bool namesRun(const CompareOptions& options, const std::string& text) {
  if (!options.runs.redis.empty() || !options.runs.context.empty()) return true;
  std::error_code ignored;
  return std::filesystem::is_directory(text, ignored) ||
         std::filesystem::is_directory(text.substr(0, text.rfind('@')), ignored);
}

Result<PredictionComparison> compareTwo(const CompareOptions& options) {
  const bool run_a = namesRun(options, options.a), run_b = namesRun(options, options.b);
  if (run_a != run_b) {
    const std::string& run = run_a ? options.a : options.b;
    return badInput(run + " is a folder of a run and " + (run_a ? options.b : options.a) +
                    " is a file: name two runs, or two files of graded answers");
  }
  if (run_a) {
    ALLOT_ASSIGN(const MeasuredRun a, readMeasuredRun(options.runs, options.a));
    ALLOT_ASSIGN(const MeasuredRun b, readMeasuredRun(options.runs, options.b));
    for (const std::string& difference : modelDifferences(a, b)) {
      std::fprintf(stderr, "allot: %s\n", difference.c_str());
    }
    return compareRuns(a, b);
  }
  ALLOT_ASSIGN(const Predictions a, readPredictions(options.a, options.fields));
  ALLOT_ASSIGN(const Predictions b, readPredictions(options.b, options.fields));
  return comparePredictions(a, b);
}

Status compare(const CompareOptions& options) {
  ALLOT_ASSIGN(const PredictionComparison comparison, compareTwo(options));
  printAs(options.format, "Comparison", comparisonJson(comparison, options.margin),
          comparisonText(comparison, options.a, options.b, options.margin));
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

void addHistoryCommands(CLI::App* app, Action* action) {
  auto options = std::make_shared<ServeOptions>();
  auto* command =
      app->add_subcommand("serve", "Show all runs of a folder in a browser, from their files");
  command->group(kWatchGroup);
  command->add_option("FOLDER", options->folder, "Folder of run folders and exports [runs]")
      ->option_text(" ");
  command->add_option("--port", options->port,
                      "Port on 127.0.0.1; 0: any free one [9480, or any free one]");
  command->footer(
      "Neither Redis nor a cluster is needed: it reads what runs and `allot export` have "
      "written.\n\n"
      "Examples:\n"
      "  allot serve\n"
      "  allot serve backup --port 8000");
  command->callback([=] { *action = [options] { return exitCodeOf(serve(*options)); }; });
}

void addCompareCommand(CLI::App* app, Action* action) {
  auto options = std::make_shared<CompareOptions>();
  auto* command = app->add_subcommand(
      "compare", "Which of two runs, or files of graded answers, is better, question by question");
  command->group(kLookUpGroup);
  command
      ->add_option("A", options->a,
                   "A run, as RUN or RUN@VERSION: a folder, or with --redis or --context a run id; "
                   "or a file of any tool: one JSON object a question, a line each")
      ->required();
  command->add_option("B", options->b, "The other, of the same questions")->required();
  command->add_option("--id", options->fields.id,
                      "Member that names the question [id, prompt_id, question_id or doc_id]");
  command->add_option(
      "--score", options->fields.score,
      "Member with the score, 0 to 1 [score, exact_match, acc, accuracy or correct]");
  addMargin(command, &options->margin, "A");
  command->add_option("--redis", options->runs.redis,
                      "Store of the runs: unix:/path/redis.sock or redis://host:port");
  command->add_option(
      "--context", options->runs.context,
      "Cluster of the runs: this context of kubectl (current: the one it is set to)");
  command->add_option("--namespace", options->runs.name_space,
                      "With --context: the experiment's namespace [named as the experiment]");
  command->add_option("--experiment", options->runs.experiment,
                      "With --context: the experiment that the runs are of");
  command->add_option("--redis-server", options->runs.redis_server,
                      "redis-server to read an ended run's folder with [from PATH]");
  addOutput(command, &options->format);
  command->footer(
      "Of two runs each method, schedule and budget that both have measured is a row. Without a "
      "version it is the newest complete measurement. Runs whose questions, model or seed differ "
      "are refused.\n\n"
      "Differences are taken on the questions that both files answer, with the intervals of "
      "allot's own tables: a bootstrap over questions, and not distinguishable where the interval "
      "holds 0. Several lines of one question count as their mean. A member `task` makes a row of "
      "each, and * marks rows that differ also by Holm's rule among all rows. Answers (answer, "
      "prediction, response) are counted where they are the same.\n\n"
      "p is McNemar's exact test if each question has one answer that is right or wrong, and a "
      "sign-flip test by question elsewhere. With --margin each row says whether B is as good as A "
      "to within the margin: the one-sided 95 % lower bound of the difference is above minus the "
      "margin. Else B is worse, by at most what is said, or not told apart.\n\n"
      "Examples:\n"
      "  allot compare runs/a runs/b\n"
      "  allot compare runs/a@50 runs/a@100 --margin 0.02\n"
      "  allot compare dense.jsonl sparse.jsonl\n"
      "  allot compare samples_a.jsonl samples_b.jsonl --id doc_id --score exact_match -o json");
  command->callback([=] { *action = [options] { return exitCodeOf(compare(*options)); }; });
}

}  // namespace allot
