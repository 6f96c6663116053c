// The report's files and the choice of rows for the curve.
#include "aggregator/report/report.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <sstream>

#include "aggregator/report/curve_svg.h"
#include "aggregator/report/report_tables.h"
#include "tests/e2e/sample_view.h"
#include "tests/readme.h"
#include "tests/results.h"
#include "tests/temp_folder.h"

namespace allot {
namespace {

using nlohmann::json;

std::vector<std::string> labels(const std::vector<CurvePoint>& points) {
  std::vector<std::string> out;
  for (const auto& p : points) {
    out.push_back(p.schedule + "@" + std::to_string(p.total_budget) + "v" +
                  std::to_string(p.version));
  }
  return out;
}

size_t countOf(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(Report, CurveIsOnePolicyPerScheduleAndCellsAreTheNewest) {
  const std::vector<CurvePoint> points = {
      sampleCell("m", "learned", 25, 8, 0.5), sampleCell("m", "learned", 25, 16, 0.5),
      sampleCell("m", "learned", 50, 8, 0.6), sampleCell("m", "learned", 50, 16, 0.6),
      sampleCell("m", "learned", 75, 8, 0.7), sampleCell("m", "learned", 75, 16, 0.7, 16),
      sampleCell("m", "uniform", 0, 8, 0.4),  sampleCell("dense", "dense", 0, 0, 0.9),
  };
  EXPECT_THAT(labels(newestCompletePerSchedule(points)),
              ElementsAre("dense@0v0", "learned@8v50", "learned@16v50", "uniform@8v0"));
  EXPECT_THAT(labels(newestCompletePerCell(points)),
              ElementsAre("dense@0v0", "learned@8v75", "learned@16v50", "uniform@8v0"));
}

// A cell of `n` questions, half of them right.
EvaluationCell cellOf(const std::string& schedule, uint64_t version, uint64_t budget, uint64_t n) {
  EvaluationCell cell;
  cell.version = version;
  cell.method = "m";
  cell.schedule_name = schedule;
  cell.total_budget = budget;
  cell.all = {n, static_cast<double>(n) / 2, {}, {0.4, 0.6}};
  cell.complete = n == 480;
  return cell;
}

TEST(Report, PointsAreTheSnapshotsCompleteCells) {
  RunSnapshot snapshot;
  snapshot.experiment.mutable_spec()->mutable_task()->add_tasks("niah");
  EvaluationCell whole = cellOf("uniform", 2, 8, 480);
  whole.schedule = {3, 5};
  whole.tasks[0] = {240, 180, {}, {0.8, 0.9}};  // an interval is kept around its own accuracy
  whole.tasks[1] = {240, 60, {}, {0.2, 0.3}};
  whole.reads.dense_rows = 8;
  whole.reads.unique_rows = 2;
  whole.other = {480, 120, {}, {0.2, 0.3, "wilson"}};
  snapshot.cells = {cellOf("uniform", 1, 8, 96), whole};
  const auto points = evaluationPoints(snapshot);
  ASSERT_THAT(points, SizeIs(1));
  EXPECT_EQ(points[0].version, 2u);
  EXPECT_EQ(points[0].low, 0.4);
  EXPECT_EQ(points[0].accuracy, 0.5);
  EXPECT_EQ(points[0].samples, (SampleSchedule{3, 5}));
  ASSERT_THAT(points[0].tasks, SizeIs(2));
  EXPECT_EQ(points[0].tasks[0].task, "niah");
  EXPECT_EQ(points[0].tasks[0].low, 0.75);
  EXPECT_EQ(points[0].tasks[1].task, "task 1");
  EXPECT_EQ(points[0].value_rows_share, 0.25);
  EXPECT_EQ(points[0].kv_bytes_share, std::nullopt);  // nothing was counted
  EXPECT_EQ(points[0].other->accuracy, 0.25);
  const json row = viewJson(runView(snapshot, 0, ""))["evaluations"][0];
  EXPECT_EQ(row["other_grader"],
            (json{{"n", 480}, {"accuracy", 0.25}, {"ci95", {0.2, 0.3}}, {"interval", "wilson"}}));
  EXPECT_EQ(row["samples"], (json{3, 5}));
  EXPECT_EQ(row["kv_bytes_share"], nullptr);
  EXPECT_EQ(row["repeats"], 1);
  for (const char* unknown :
       {"repeat_sd", "answer_tokens", "prompt_tokens", "over_dense", "over_uniform"}) {
    EXPECT_EQ(row[unknown], nullptr) << unknown;
  }
}

// A point counts questions, whatever the number of their answers.
TEST(Report, RepeatsAreNoMoreQuestions) {
  RunSnapshot snapshot;
  EvaluationCell cell = cellOf("learned", 2, 8, 480);
  cell.repeats = 3;
  cell.all.n = 1440;
  cell.all.sum = 720;
  cell.tasks[0] = {720, 360, {}, {0.4, 0.6}};
  cell.other = {1440, 360, {}, {0.2, 0.3}};
  cell.repeat_sums = {216, 240, 264};
  cell.answer_tokens = 14400;
  cell.prompts.sums.set_prompts(1440);
  cell.prompts.sums.set_tokens(144000);
  cell.over_uniform = {0.25, {0.125, 0.375, "bootstrap"}, 480, 0.001, 0.04, 40};
  snapshot.cells = {cell};
  const CurvePoint point = evaluationPoints(snapshot).at(0);
  EXPECT_EQ(point.n, 480u);
  EXPECT_EQ(point.accuracy, 0.5);
  EXPECT_EQ(point.tasks.at(0).n, 240u);
  EXPECT_EQ(point.other->n, 480u);
  const json row = viewJson(runView(snapshot, 0, ""))["evaluations"][0];
  EXPECT_EQ(row["n"], 480);
  EXPECT_EQ(row["repeats"], 3);
  EXPECT_DOUBLE_EQ(row["repeat_sd"], 0.05);
  EXPECT_EQ(row["answer_tokens"], 10);
  EXPECT_EQ(row["prompt_tokens"], 100);
  EXPECT_EQ(row["over_uniform"],
            (json{{"mean", 0.25},
                  {"ci95", {0.125, 0.375}},
                  {"interval", "bootstrap"},
                  {"questions", 480},
                  {"lower95", -1.0},
                  {"p", 0.001},
                  {"test", ""},
                  {"holm", {{"p", 0.04}, {"family", 40}, {"differs", true}}}}));
  EXPECT_EQ(row["over_dense"], nullptr);
}

// The places of these schedules and budgets among the view's evaluations.
json placesOf(const RunView& view, const std::vector<std::string>& wanted) {
  json places = json::array();
  const auto all = labels(view.points);
  for (const std::string& label : wanted) {
    places.push_back(std::find(all.begin(), all.end(), label) - all.begin());
  }
  return places;
}

TEST(Report, TheViewSaysWhichEvaluationsAreShownByTheirPlaces) {
  const RunView view = sampleView();
  const json document = viewJson(view);
  ASSERT_THAT(document["evaluations"], SizeIs(view.points.size()));
  ASSERT_THAT(document["lines"], SizeIs(3));
  EXPECT_EQ(document["lines"][1]["schedule"], "learned");
  EXPECT_EQ(document["lines"][1]["rows"],
            placesOf(view, {"learned@8v100", "learned@16v100", "learned@32v100", "learned@64v100",
                            "learned@128v100"}));
  EXPECT_EQ(document["learning"]["lines"][0]["rows"],
            placesOf(view, {"learned@8v25", "learned@8v50", "learned@8v75", "learned@8v100",
                            "learned@8v125"}));
  const json at = placesOf(view, {"learned@8v100", "uniform@8v0", "dense@0v0"});
  EXPECT_EQ(document["learning"]["uniform"], at[1]);
  EXPECT_EQ(document["headline"], (json{{"learned", at[0]}, {"uniform", at[1]}, {"dense", at[2]}}));
}

TEST(Report, TheHeadlineIsOfTheMethodThatTheRunDecodesWith) {
  const std::vector<CurvePoint> points = {
      sampleCell("a", "learned", 1, 8, 0.5), sampleCell("b", "learned", 1, 8, 0.6),
      sampleCell("b", "learned", 2, 8, 0.7), sampleCell("a", "uniform", 0, 8, 0.4),
      sampleCell("b", "learned", 2, 16, 0.8)};
  const auto lines = newestCompleteLines(points);
  EXPECT_EQ(headlinePoints(points, lines, 8, "b").learned, 2u);
  EXPECT_EQ(headlinePoints(points, lines, 8, "a").learned, 0u);
  EXPECT_EQ(headlinePoints(points, lines, 8, "c").learned, 0u);  // the first that there is
  EXPECT_EQ(headlinePoints(points, lines, 8, "b").uniform, 3u);
  EXPECT_EQ(headlinePoints(points, lines, 32, "b").learned, std::nullopt);
  EXPECT_EQ(headlinePoints(points, lines, 8, "b").dense, std::nullopt);
  // Two methods learn: no one uniform schedule is what they are to be compared with.
  EXPECT_THAT(learningCurve(points, lines, 8).lines, SizeIs(2));
  EXPECT_EQ(learningCurve(points, lines, 8).uniform, std::nullopt);
  EXPECT_THAT(learningCurve(points, lines, 16).lines, SizeIs(0));  // one version alone
}

TEST(Report, CsvIsExactAndQuoted) {
  const CurvePoint point{"a,\"b\"", "[1,2]", 25, 8, 480, 0.1, 0.05, 0.15};
  EXPECT_EQ(curveCsv({point}),
            "method,schedule,total_budget,n,accuracy,ci_low,ci_high,version,task,kv_bytes_share,"
            "key_share,value_rows_share,prefill,prefill_density,prefill_bytes_share,"
            "prefill_seconds,prefill_selection_seconds,prefill_kept_mass,prefill_least_kept_mass,"
            "repeats,repeat_sd,answer_tokens,prompt_tokens,over_dense,over_dense_low,"
            "over_dense_high,over_uniform,over_uniform_low,over_uniform_high,interval,"
            "over_dense_interval,over_dense_p,over_dense_holm_p,over_dense_family,"
            "over_uniform_interval,over_uniform_p,over_uniform_holm_p,over_uniform_family,"
            "price\n"
            "\"a,\"\"b\"\"\",\"[1,2]\",8,480,0.1,0.05,0.15,25,all,,,,,,,,,,,1,,,,,,,,,,,,,,,,,,,"
            "reads\n");
}

TEST(Report, CsvHasTheCellsFirstThenTheirTasks) {
  CurvePoint point{"top-k scores=q4", "uniform", 0, 8, 480, 0.5, 0.45, 0.55};
  point.tasks = {{"niah", 240, 0.75, 0.7, 0.8, "wilson"}};
  point.interval = "bootstrap";
  point.kv_bytes_share = 0.25;
  point.key_share = 0.5;
  point.value_rows_share = 0.125;
  point.prefill = "sale tau=0.1";
  point.prefill_density = 0.75;
  point.prefill_bytes_share = 0.625;
  point.prefill_seconds = 2;
  point.prefill_selection_seconds = 1;
  point.prefill_kept_mass = 0.875;
  point.prefill_least_kept_mass = 0.5;
  point.repeats = 3;
  point.repeat_sd = 0.0625;
  point.answer_tokens = 6.5;
  point.prompt_tokens = 512;
  point.over_dense = {-0.25, {-0.375, -0.125, "normal"}, 480, 0.001, 0.04, 40};
  point.over_uniform = {0.125, {-0.125, 0.375, "exact"}, 480, 0.5};
  const std::string csv = curveCsv({point, point});
  const std::string all =
      "top-k scores=q4,uniform,8,480,0.5,0.45,0.55,0,all,0.25,0.5,0.125,"
      "sale tau=0.1,0.75,0.625,2,1,0.875,0.5,3,0.0625,6.5,512,-0.25,-0.375,-0.125,0.125,-0.125,"
      "0.375,bootstrap,normal,0.001,0.04,40,exact,0.5,,,reads\n";
  const std::string task =
      "top-k "
      "scores=q4,uniform,8,240,0.75,0.7,0.8,0,niah,,,,,,,,,,,3,,,,,,,,,,wilson,,,,,,,,,reads\n";
  EXPECT_EQ(csv.substr(csv.find('\n') + 1), all + all + task + task);
}

TEST(Report, FidelityIsWrittenPartByPart) {
  const auto points = newestFidelity(methodsView().fidelity);
  ASSERT_THAT(points, SizeIs(9 * 9 + 4));
  const std::string csv = fidelityCsv(points);
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 1 + 85 * (1 + 8 + 5));
  EXPECT_THAT(csv, HasSubstr("\ns2anta-sys,uniform,16,2,layer,3,4800,"));
  EXPECT_THAT(csv, HasSubstr("\nvattention heavy=0.025 epsilon=0.1 delta=0.1,adaptive,0,0,tiles,"
                             "9+,4800,"));
  const json summary = summaryJson(methodsView());
  EXPECT_THAT(summary["fidelity"], SizeIs(85));
  EXPECT_THAT(summary["fidelity"][0]["layers"], SizeIs(8));
  EXPECT_EQ(summary["variance_slopes"][1]["slope"], -1.41);
  EXPECT_THAT(summary["evaluations"][0]["tasks"], SizeIs(4));
  EXPECT_EQ(summary["fidelity"][0]["layers"][3]["layer"], "3");
  EXPECT_EQ(viewJson(methodsView())["fidelity"][0]["layers"][3]["layer"], 3);
  // Each row says how it was measured.
  EXPECT_THAT(csv, HasSubstr(",version,support_tile,agreement_layers\n"));
  EXPECT_THAT(csv, HasSubstr(",0,32,all-layers\n"));
  EXPECT_EQ(summary["fidelity"][0]["support_tile"], 32);
  EXPECT_EQ(summary["fidelity"][0]["agreement_layers"], "all-layers");
  std::vector<FidelityPoint> newer = {points[0], points[0], points[0]};
  newer[1].version = 3;
  newer[1].all.relative_error = 0.125;
  ASSERT_THAT(newestFidelity(newer), SizeIs(1));
  EXPECT_EQ(newestFidelity(newer)[0].all.relative_error, 0.125);
}

TEST(Report, TheProtocolOfFidelityIsInItsTables) {
  RunView view = methodsView();
  for (FidelityPoint& point : view.fidelity) {
    point.support_tile = 256;
    point.agreement = AgreementLayers::kLast;
  }
  view.fidelity[0].layer_supports = {view.fidelity[0].supports[2]};
  view.fidelity[0].layer_supports[0].name = "7/3-4";
  EXPECT_THAT(fidelityCsv(view.fidelity), HasSubstr(",0,256,last-layer\n"));
  EXPECT_THAT(fidelityCsv(view.fidelity), HasSubstr(",layer/tiles,7/3-4,4800,"));
  std::string html = figuresHtml(view);
  EXPECT_THAT(html, HasSubstr("states by the number of tiles of 256 keys"));
  EXPECT_THAT(html, HasSubstr("with the method in the last layer alone;"));
  EXPECT_THAT(html, Not(HasSubstr("Next tokens changed by one layer")));
  for (FidelityPoint& point : view.fidelity) point.agreement = AgreementLayers::kEach;
  html = figuresHtml(view);
  EXPECT_THAT(html, HasSubstr("with the method in one layer alone, the mean over the layers;"));
  EXPECT_THAT(html, HasSubstr("Next tokens changed by one layer"));
}

TEST(Report, VarianceHasATableAndFiguresOfItsOwn) {
  RunView view = methodsView();
  EXPECT_THAT(figuresHtml(view), Not(HasSubstr("Variance in numbers")));
  view.variance = view.fidelity;
  for (FidelityPoint& point : view.variance) {
    const auto fill = [](FidelityNumbers& numbers) {
      numbers.positions = 300;
      numbers.replicates = 16;
      numbers.variance = 0.75 * numbers.trace_covariance;
    };
    fill(point.all);
    if (point.method == "santa") point.all.closed_form = 0.0625;
    for (FidelityNumbers& layer : point.layers) fill(layer);
    for (FidelityNumbers& tiles : point.supports) fill(tiles);
  }
  view.slopes.push_back({"santa", -1.03, 8, Measure::kVariance});
  const std::string csv = varianceCsv(newestFidelity(view.variance));
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 1 + 85 * (1 + 8 + 5));
  EXPECT_THAT(csv, HasSubstr("\nsanta,uniform,16,2,all,,300,16,"));
  EXPECT_THAT(csv, HasSubstr("\nsanta,uniform,16,2,layer,3,300,16,"));
  const json summary = summaryJson(view);
  ASSERT_THAT(summary["variance"], SizeIs(85));
  for (const json& row : summary["variance"]) {
    EXPECT_EQ(row["replicates"], 16);
    EXPECT_EQ(row["closed_form"].is_null(), row["method"] != "santa");
    EXPECT_EQ(row["variance"].get<double>(), 0.75 * row["squared_error"].get<double>());
  }
  EXPECT_EQ(summary["variance_slopes"][0]["measure"], "fidelity");
  EXPECT_EQ(summary["variance_slopes"][2]["measure"], "variance");
  EXPECT_EQ(viewJson(view)["variance"][0]["layers"][3]["layer"], 3);
  const std::string html = figuresHtml(view);
  for (const char* heading : {"Variance at the last prompt position", "Variance by layer",
                              "Different rows read at the last prompt position",
                              "Variance in numbers", "Fidelity in numbers"}) {
    EXPECT_THAT(html, HasSubstr("<h2>" + std::string(heading) + "</h2>"));
  }
  // Slopes stand beside the measure that they are of.
  EXPECT_THAT(html, HasSubstr("is tr Cov; slopes: santa -1.00, s2anta-sys -1.41</p>"));
  EXPECT_THAT(html, HasSubstr("layers and prompts; slopes: santa -1.03</p>"));
}

TEST(Report, MethodsThatDifferInOneNumberMakeALine) {
  const std::vector<std::string> methods = {"vattention", "vattention epsilon=0.1",
                                            "vattention epsilon=0.2 delta=0.1",
                                            "vattention epsilon=0.1 delta=0.1", "bernoulli"};
  const auto name = [&](const std::string& method) {
    const NumberedName named = nameWithoutNumber(method, methods);
    return named.text + "|" + named.parameter;
  };
  EXPECT_EQ(name("bernoulli"), "bernoulli|");
  EXPECT_EQ(name("vattention epsilon=0.2 delta=0.1"), "vattention delta=0.1|epsilon");
  EXPECT_EQ(nameWithoutNumber("quest", {"quest", "quest pageSize=32", "quest pageSize=64"}).text,
            "quest");
  EXPECT_EQ(nameWithoutNumber("top-k scores=q4", {"top-k scores=q4", "top-k"}).parameter, "");

  // Budgets of one method make a line; so do single budgets of methods that differ in a number.
  std::vector<Measured> measured;
  for (uint64_t budget : {16, 8}) {
    measured.push_back({"santa", "uniform", budget, {static_cast<double>(budget), 1, 1, 1}});
  }
  for (const char* method : {"vattention epsilon=0.2", "vattention"}) {
    measured.push_back({method, "adaptive", 0, {static_cast<double>(measured.size()), 1, 1, 1}});
  }
  const auto lines = linesByNumber(measured, LineStyles(methodsView().points));
  ASSERT_THAT(lines, SizeIs(2));
  EXPECT_EQ(lines[0].name, "santa");
  EXPECT_EQ(lines[0].points[0].x, 8);
  EXPECT_EQ(lines[1].name, "vattention, by epsilon");
  EXPECT_THAT(lines[1].points, SizeIs(2));
}

TEST(Report, LinesKeepTheirLooksFromPlotToPlot) {
  const auto points = methodsView().points;
  const LineStyles styles(points);
  const Plot all = curvePlot(points, styles);
  const Plot task = curvePlot(points, styles, "niah");
  ASSERT_EQ(all.series.size(), 9u);  // no vattention, no oneHot: they have no place on this axis
  std::set<size_t> looks;
  for (size_t i = 0; i < all.series.size(); ++i) {
    EXPECT_EQ(all.series[i].name, task.series[i].name);
    EXPECT_EQ(all.series[i].style, task.series[i].style);
    looks.insert(all.series[i].style);
  }
  EXPECT_EQ(looks.size(), 9u);
  // Nine names in the legend, in rows that make the picture higher.
  const std::string svg = curveSvg("", points);
  for (const auto& line : all.series) EXPECT_THAT(svg, HasSubstr(">" + line.name + "</text>"));
  EXPECT_THAT(svg, Not(HasSubstr("height=\"440\"")));
}

TEST(Report, FiguresEscapeNamesAndSurviveOddNumbers) {
  RunView view = methodsView();
  view.points[1].method = "<script>alert(1)</script>";
  view.points[1].tasks[0].task = "<b>";
  view.fidelity[0].method = "<i>";
  view.fidelity[0].layers[0].relative_error = 0;
  view.fidelity[1].all.relative_error = 1e300;
  view.fidelity[2].all.trace_covariance = 5e-324;
  view.slopes[0].method = "<u>";
  const std::string html = figuresHtml(view);
  for (const char* odd : {"<script", "<b>", "<i>", "<u>", "nan", "inf"}) {
    EXPECT_THAT(html, Not(HasSubstr(odd))) << odd;
  }
  EXPECT_THAT(html, HasSubstr("&lt;script&gt;"));
  // An ordinary run has its page, and what is as good as dense where that was measured.
  EXPECT_THAT(figuresHtml(sampleView()), HasSubstr("As good as dense to within 2 points"));
  RunView without = sampleView();
  for (CurvePoint& point : without.points) point.over_dense.reset();
  EXPECT_EQ(figuresHtml(without), "");
  EXPECT_EQ(figuresHtml({}), "");
}

TEST(Report, SvgEscapesItsWordsAndDrawsEveryPoint) {
  const auto points = newestCompletePerSchedule(sampleView().points);
  const std::string svg = curveSvg("<b>&\x01", points);
  EXPECT_THAT(svg, HasSubstr("&lt;b&gt;&amp; "));
  EXPECT_THAT(svg, Not(HasSubstr("<b>")));
  EXPECT_THAT(svg, HasSubstr("learned, budget 128: 88.8 % (85.9 to 91.6), n = 480, version 100"));
  EXPECT_EQ(countOf(svg, "</title></g>"), 10u);
  // The axis is logarithmic: twice the budget is the same distance everywhere.
  const auto x = [&](int budget) {
    const std::string end = "\" y=\"401.0\" text-anchor=\"middle\">" + std::to_string(budget) + "<";
    const size_t at = svg.find(end);
    EXPECT_NE(at, std::string::npos) << budget;
    return std::stod(svg.substr(svg.rfind("x=\"", at) + 3));
  };
  EXPECT_NEAR(x(16) - x(8), x(128) - x(64), 0.11);
  EXPECT_GT(x(16) - x(8), 100);
}

TEST(Report, CurveCsvIsReadBackAndDrawnAlike) {
  auto points = newestCompletePerSchedule(sampleView().points);
  points.push_back(sampleCell("a \"b\", c", "uniform", 0, 8, 0.25));
  points.back().kv_bytes_share = 0.5;
  points.back().tasks = {{"niah", 7, 0.5, 0.25, 0.75}};
  const auto read = valueOf(curvePointsOf(curveCsv(points), "curve.csv"));
  ASSERT_EQ(read.size(), points.size());
  EXPECT_EQ(curveSvg("x", read), curveSvg("x", points));
  EXPECT_EQ(read.back().method, "a \"b\", c");
  EXPECT_EQ(read.back().kv_bytes_share, 0.5);
  ASSERT_THAT(read.back().tasks, SizeIs(1));
  EXPECT_EQ(read.back().tasks[0].accuracy, 0.5);
  EXPECT_THAT(curvePointsOf("method,schedule,total_budget,n,accuracy\nm,s,8,3,x\n", "c.csv"),
              isError(ErrorCode::kData, HasSubstr("c.csv, line 2: ")));
  EXPECT_THAT(plotSvg(curvePlot(*curvePointsOf("", "c.csv"), LineStyles({}))),
              HasSubstr("No evaluation was finished."));
}

TEST(Report, CurveCsvKeepsTheUnitOfItsBudgets) {
  const auto points = newestCompletePerSchedule(sampleView().points);
  const std::string csv = curveCsv(points, " %");
  EXPECT_EQ(curveUnitOf(csv), " %");
  EXPECT_EQ(curveUnitOf(curveCsv(points)), "");
  const std::string timed = curveCsv(points, " % of time");
  EXPECT_EQ(curveUnitOf(timed), " % of time");
  const std::string of_time =
      curveSvg("x", valueOf(curvePointsOf(timed, "c.csv")), curveUnitOf(timed));
  EXPECT_THAT(of_time, HasSubstr("total budget B (% of dense attention's time, log scale)"));
  EXPECT_THAT(of_time, HasSubstr("learned, budget 128 % of time: 88.8 %"));
  EXPECT_EQ(curveUnitOf("method,schedule,total_budget\nm,s,8\n"), "");  // of earlier versions
  EXPECT_EQ(curveUnitOf(""), "");
  const std::string svg = curveSvg("x", valueOf(curvePointsOf(csv, "c.csv")), curveUnitOf(csv));
  EXPECT_THAT(svg, HasSubstr("total budget B (% of dense attention's bytes, log scale)"));
  EXPECT_THAT(svg, HasSubstr("learned, budget 128 %: 88.8 %"));
  EXPECT_THAT(svg, Not(HasSubstr("reads per head")));
}

TEST(Report, BarsOfAllRowsSayAllAndHideNoOthers) {
  const Plot plot = schedulePlot({4, 1'000'000, 0}, true);
  EXPECT_EQ(plot.series[0].points[1].y, 5);
  EXPECT_THAT(plot.levels, SizeIs(0));
  const std::string svg = plotSvg(plot);
  EXPECT_THAT(svg, HasSubstr(">all</text><title>layer 1: all rows</title>"));
  EXPECT_THAT(svg, Not(HasSubstr("1000000")));
  EXPECT_EQ(schedulePlot({1'000'000}, true).series[0].points[0].y, 1);
}

TEST(Report, BarsStandOnZero) {
  const std::string svg = plotSvg(schedulePlot({4, 2, 0, 6}));
  EXPECT_THAT(svg, HasSubstr("layer 3: 6 draws"));
  EXPECT_THAT(svg, HasSubstr("uniform (3)"));
  const auto bottom = [&](size_t at) {
    const auto number = [&](const std::string& name) {
      return std::stod(svg.substr(svg.find(name, at) + name.size()));
    };
    return number(" y=\"") + number("height=\"");
  };
  size_t bars = 0;
  const size_t first = svg.find("<rect class=\"f0\"");
  for (size_t at = first; at != std::string::npos; at = svg.find("<rect class=\"f0\"", at + 1)) {
    EXPECT_NEAR(bottom(at), bottom(first), 0.11);
    ++bars;
  }
  EXPECT_EQ(bars, 4u);
}

TEST(Report, SvgOfNothingAndOfOddPointsHoldsNoBadNumber) {
  const CurvePoint zero{"m", "uniform", 0, 0, 1, 0, 0, 0};
  const CurvePoint one{"m", "learned", 0, 8, 1, 1, 1, 1};
  const CurvePoint huge{"m", "learned", 0, 1ULL << 53, 1, 0, 0, 1};
  for (const auto& points :
       std::vector<std::vector<CurvePoint>>{{}, {zero}, {one}, {huge}, {one, huge, zero}}) {
    const std::string svg = curveSvg("", points);
    EXPECT_THAT(svg, Not(HasSubstr("nan")));
    EXPECT_THAT(svg, Not(HasSubstr("inf")));
    EXPECT_THAT(svg, HasSubstr("</svg>"));
  }
}

TEST(Report, HtmlHoldsTheViewAndNothingElseThatRuns) {
  const auto html = valueOf(reportHtml(sampleView()));
  const std::string data =
      between(html, "<script type=\"application/json\" id=\"run-view\">", "</script>");
  EXPECT_THAT(data, Not(HasSubstr("<")));
  EXPECT_EQ(json::parse(data), viewJson(sampleView()));
  for (const char* outside : {"src=\"", "href=\""}) EXPECT_THAT(html, Not(HasSubstr(outside)));
  // Data, Chart.js and the page: no fourth script came out of the worker's name.
  EXPECT_EQ(countOf(html, "</script>"), 3u);
}

TEST(Report, WritesEveryFile) {
  const TempFolder folder;
  const std::string dir = folder.path() + "/new/run";
  RunView view = sampleView();
  view.facts["experiment"] = "bad \xff text";  // not UTF-8: replaced, never thrown
  ASSERT_TRUE(writeReport(dir, view));
  ASSERT_TRUE(writeReport(dir, sampleView()));

  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(dir)) {
    names.push_back(entry.path().filename());
  }
  std::sort(names.begin(), names.end());
  EXPECT_THAT(names,
              ElementsAre("curve.csv", "curve.svg", "policy.json", "report.html", "summary.json"));
  EXPECT_EQ(readFile(folder.path() + "/new/run/report.html"), *reportHtml(sampleView()));

  const json policy = json::parse(readFile(folder.path() + "/new/run/policy.json"));
  const json stated = {{"experiment", "recall-layer-budget"},
                       {"run_id", "01JGFJJZ005QXH2M4N6P7R8S9T"},
                       {"version", 137},
                       {"total_budget", 8},
                       {"layers", 8},
                       {"granularity", "layer"},
                       {"probabilities", sampleView().facts["policy_probabilities"]},
                       {"learned_schedule", {0, 3, 0, 0, 2, 2, 1, 0}},
                       {"frontier", sampleView().facts["frontier"]}};
  for (const auto& [key, value] : stated.items()) EXPECT_EQ(policy.at(key), value) << key;
  const json summary = json::parse(readFile(folder.path() + "/new/run/summary.json"));
  for (const char* key : {"run_id", "experiment", "state", "updates", "episodes", "wall_seconds",
                          "episodes_per_second", "learned_schedule"}) {
    EXPECT_EQ(summary.at(key), sampleView().facts.at(key)) << key;
  }
  ASSERT_THAT(summary["evaluations"], SizeIs(11));
  const json& dense = summary["evaluations"][0];
  EXPECT_EQ(dense["accuracy"], 0.91);
  EXPECT_EQ(dense["ci95"], (json{sampleView().points[0].low, sampleView().points[0].high}));
  std::istringstream csv(readFile(folder.path() + "/new/run/curve.csv"));
  EXPECT_EQ(std::count(std::istreambuf_iterator<char>(csv), {}, '\n'), 12);
  ASSERT_TRUE(writeReport(dir, methodsView()));
  EXPECT_EQ(readFile(folder.path() + "/new/run/fidelity.csv"),
            fidelityCsv(newestFidelity(methodsView().fidelity)));
  EXPECT_FALSE(std::filesystem::exists(folder.path() + "/new/run/variance.csv"));
  RunView variance = methodsView();
  variance.variance.swap(variance.fidelity);
  ASSERT_TRUE(writeReport(folder.path() + "/variance", variance));
  EXPECT_FALSE(std::filesystem::exists(folder.path() + "/variance/fidelity.csv"));
  EXPECT_EQ(readFile(folder.path() + "/variance/variance.csv"),
            varianceCsv(newestFidelity(variance.variance)));
}

TEST(Report, ErrorsNameTheFileAndLeaveTheOldOneAlone) {
  const TempFolder folder;
  const std::string dir = folder.path() + "/run";
  ASSERT_TRUE(writeReport(dir, sampleView()));
  std::filesystem::remove(dir + "/curve.svg");
  std::filesystem::create_directories(dir + "/curve.svg/in-the-way");
  EXPECT_THAT(writeReport(dir, sampleView()),
              isError(ErrorCode::kIo, HasSubstr("cannot write " + dir + "/curve.svg: ")));
  for (const auto& entry : std::filesystem::directory_iterator(dir)) {
    EXPECT_NE(entry.path().filename().string().front(), '.') << "a temporary file stayed";
  }

  const std::string file = folder.write("file", "x");
  EXPECT_THAT(writeReport(file + "/run", sampleView()), isError(HasSubstr(file)));
}

TEST(Report, ARunOfWhichNothingIsKnownIsWritten) {
  const TempFolder folder;
  ASSERT_TRUE(writeReport(folder.path() + "/new", {}));
  EXPECT_TRUE(json::accept(readFile(folder.path() + "/new/summary.json")));
}

}  // namespace
}  // namespace allot
