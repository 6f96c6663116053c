// The report's files and the choice of rows for the curve.
#include "aggregator/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

#include "tests/e2e/sample_view.h"

namespace allot {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;

class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "allot-report-XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string path(const std::string& name) const { return path_ + "/" + name; }
  std::string read(const std::string& name) const {
    std::ifstream file(path(name), std::ios::binary);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }

 private:
  std::string path_;
};

std::vector<std::string> labels(const std::vector<CurvePoint>& points) {
  std::vector<std::string> out;
  for (const auto& p : points) {
    out.push_back(p.schedule + "@" + std::to_string(p.total_budget) + "v" +
                  std::to_string(p.version));
  }
  return out;
}

std::string between(const std::string& text, const std::string& open, const std::string& close) {
  const size_t from = text.find(open);
  if (from == std::string::npos) return {};
  const size_t begin = from + open.size();
  return text.substr(begin, text.find(close, begin) - begin);
}

json evaluationsOf(std::vector<json> rows) { return {{"evaluations", std::move(rows)}}; }

TEST(Report, CurveIsOnePolicyPerScheduleAndCellsAreTheNewest) {
  const auto points = evaluationPoints(evaluationsOf({
      sampleCell("m", "learned", 25, 8, 0.5),
      sampleCell("m", "learned", 25, 16, 0.5),
      sampleCell("m", "learned", 50, 8, 0.6),
      sampleCell("m", "learned", 50, 16, 0.6),
      sampleCell("m", "learned", 75, 8, 0.7),
      sampleCell("m", "learned", 75, 16, 0.7, 16),
      sampleCell("m", "uniform", 0, 8, 0.4),
      sampleCell("dense", "dense", 0, 0, 0.9),
  }));
  EXPECT_THAT(labels(newestCompletePerSchedule(points)),
              ElementsAre("dense@0v0", "learned@8v50", "learned@16v50", "uniform@8v0"));
  EXPECT_THAT(labels(newestCompletePerCell(points)),
              ElementsAre("dense@0v0", "learned@8v75", "learned@16v50", "uniform@8v0"));
}

TEST(Report, BadRowsAreLeftOut) {
  const json good = sampleCell("m", "uniform", 0, 8, 0.5);
  std::vector<json> rows = {good, nullptr, 7, "row", json::array({1, 2})};
  for (const json& bad : {json("0.5"), json(1.5), json(-0.1), json(nullptr),
                          json(std::numeric_limits<double>::infinity())}) {
    rows.push_back(good);
    rows.back()["accuracy"] = bad;
  }
  for (const json& bad : {json(-8), json("8"), json(1e300)}) {
    rows.push_back(good);
    rows.back()["total_budget"] = bad;
  }
  rows.push_back(good);
  rows.back()["n"] = 0;
  EXPECT_THAT(evaluationPoints(evaluationsOf(rows)), SizeIs(1));
  for (const json& view : {json(), json(3), json::array(), json{{"evaluations", "none"}}}) {
    EXPECT_THAT(evaluationPoints(view), SizeIs(0));
  }
  json odd = good;
  odd["ci95"] = {2.0, "x"};  // an interval is kept around its own accuracy
  const auto point = evaluationPoints(evaluationsOf({odd})).at(0);
  EXPECT_EQ(point.low, 0.5);
  EXPECT_EQ(point.high, 0.5);
}

TEST(Report, CsvIsExactAndQuoted) {
  const CurvePoint point{"a,\"b\"", "[1,2]", 25, 8, 480, 0.1, 0.05, 0.15};
  EXPECT_EQ(curveCsv({point}),
            "method,schedule,total_budget,n,accuracy,ci_low,ci_high,version\n"
            "\"a,\"\"b\"\"\",\"[1,2]\",8,480,0.1,0.05,0.15,25\n");
}

TEST(Report, SvgEscapesItsWordsAndDrawsEveryPoint) {
  const auto points = newestCompletePerSchedule(evaluationPoints(sampleView()));
  const std::string svg = curveSvg("<b>&\x01", points);
  EXPECT_THAT(svg, HasSubstr("&lt;b&gt;&amp; "));
  EXPECT_THAT(svg, Not(HasSubstr("<b>")));
  EXPECT_THAT(svg, HasSubstr("learned, budget 128: 88.8 % (85.9 to 91.6), n = 480, version 100"));
  size_t marks = 0;
  for (size_t at = svg.find("</title></g>"); at != std::string::npos;
       at = svg.find("</title></g>", at + 1)) {
    ++marks;
  }
  EXPECT_EQ(marks, 10u);
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
  const auto html = reportHtml(sampleView());
  ASSERT_TRUE(html) << html.error().message;
  const std::string data =
      between(*html, "<script type=\"application/json\" id=\"run-view\">", "</script>");
  EXPECT_THAT(data, Not(HasSubstr("<")));
  EXPECT_EQ(json::parse(data), sampleView());
  for (const char* outside : {"src=\"", "href=\""}) EXPECT_THAT(*html, Not(HasSubstr(outside)));
  // Data, Chart.js and the page: no fourth script came out of the worker's name.
  size_t scripts = 0;
  for (size_t at = html->find("</script>"); at != std::string::npos;
       at = html->find("</script>", at + 1)) {
    ++scripts;
  }
  EXPECT_EQ(scripts, 3u);
}

TEST(Report, WritesEveryFile) {
  const Folder folder;
  const std::string dir = folder.path("new/run");
  json view = sampleView();
  view["experiment"] = "bad \xff text";  // not UTF-8: replaced, never thrown
  ASSERT_TRUE(writeReport(dir, view));
  ASSERT_TRUE(writeReport(dir, sampleView()));

  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(dir)) {
    names.push_back(entry.path().filename());
  }
  std::sort(names.begin(), names.end());
  EXPECT_THAT(names,
              ElementsAre("curve.csv", "curve.svg", "policy.json", "report.html", "summary.json"));
  EXPECT_EQ(folder.read("new/run/report.html"), *reportHtml(sampleView()));

  const json policy = json::parse(folder.read("new/run/policy.json"));
  EXPECT_EQ(policy, (json{{"experiment", "recall-layer-budget"},
                          {"run_id", "01JGFJJZ005QXH2M4N6P7R8S9T"},
                          {"version", 137},
                          {"total_budget", 8},
                          {"layers", 8},
                          {"probabilities", sampleView()["policy_probabilities"]},
                          {"learned_schedule", {0, 3, 0, 0, 2, 2, 1, 0}}}));
  const json summary = json::parse(folder.read("new/run/summary.json"));
  for (const char* key : {"run_id", "experiment", "state", "updates", "episodes", "wall_seconds",
                          "episodes_per_second", "learned_schedule"}) {
    EXPECT_EQ(summary.at(key), sampleView().at(key)) << key;
  }
  ASSERT_THAT(summary["evaluations"], SizeIs(11));
  const json& dense = summary["evaluations"][0];
  EXPECT_EQ(dense["accuracy"], 0.91);
  EXPECT_EQ(dense["ci95"], sampleView()["evaluations"][0]["ci95"]);
  std::istringstream csv(folder.read("new/run/curve.csv"));
  EXPECT_EQ(std::count(std::istreambuf_iterator<char>(csv), {}, '\n'), 12);
}

TEST(Report, ErrorsNameTheFileAndLeaveTheOldOneAlone) {
  const Folder folder;
  const std::string dir = folder.path("run");
  ASSERT_TRUE(writeReport(dir, sampleView()));
  std::filesystem::remove(dir + "/curve.svg");
  std::filesystem::create_directories(dir + "/curve.svg/in-the-way");
  const Status blocked = writeReport(dir, sampleView());
  ASSERT_FALSE(blocked);
  EXPECT_EQ(blocked.error().code, ErrorCode::kIo);
  EXPECT_THAT(blocked.error().message, HasSubstr("cannot write " + dir + "/curve.svg: "));
  for (const auto& entry : std::filesystem::directory_iterator(dir)) {
    EXPECT_NE(entry.path().filename().string().front(), '.') << "a temporary file stayed";
  }

  std::ofstream(folder.path("file")) << "x";
  const Status no_folder = writeReport(folder.path("file") + "/run", sampleView());
  ASSERT_FALSE(no_folder);
  EXPECT_THAT(no_folder.error().message, HasSubstr(folder.path("file")));
}

TEST(Report, AnyJsonIsWritten) {
  const Folder folder;
  for (const json& view : {json(), json::array(), json("text"), json{{"evaluations", {1, 2}}}}) {
    EXPECT_TRUE(writeReport(folder.path("odd"), view)) << view.dump();
    EXPECT_TRUE(json::accept(folder.read("odd/summary.json")));
  }
}

}  // namespace
}  // namespace allot
