// What the processes of a real run export: real binaries, a real redis-server, the real model,
// scraped where their target files say. Needs promtool (Debian's prometheus).
#include <signal.h>

#include <functional>
#include <map>
#include <set>
#include <sstream>
#include <thread>

#include "core/telemetry/metric_catalogue.h"
#include "tests/e2e/programs.h"
#include "tests/http_get.h"

namespace allot {
namespace {

using test::httpGet;

// One metric of an exposition.
struct Family {
  std::string help, type;
  std::map<std::string, double> series;  // by name and labels, as written
};

// The name of a line's metric; that of a histogram's series without _bucket, _sum, _count.
std::string nameOf(const std::string& line, const std::map<std::string, Family>& known) {
  std::string name = line.substr(0, line.find_first_of("{ "));
  for (const std::string suffix : {"_bucket", "_sum", "_count"}) {
    if (!name.ends_with(suffix)) continue;
    const std::string base = name.substr(0, name.size() - suffix.size());
    const auto family = known.find(base);
    if (family != known.end() && family->second.type == "histogram") return base;
  }
  return name;
}

std::map<std::string, Family> parse(const std::string& text) {
  std::map<std::string, Family> families;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string hash, keyword, name;
    if (line.starts_with("# ")) {
      words >> hash >> keyword >> name >> std::ws;
      std::string rest;
      std::getline(words, rest);
      (keyword == "HELP" ? families[name].help : families[name].type) = rest;
      continue;
    }
    const size_t space = line.rfind(' ');
    EXPECT_NE(space, std::string::npos) << line;
    if (space == std::string::npos) continue;
    families[nameOf(line, families)].series[line.substr(0, space)] =
        std::strtod(line.c_str() + space, nullptr);
  }
  return families;
}

size_t seriesIn(const std::string& text) {
  size_t count = 0;
  for (const auto& [name, family] : parse(text)) count += family.series.size();
  return count;
}

class RunMetrics : public FolderTest {
 protected:
  void SetUp() override { ASSERT_TRUE(findProgram("promtool")) << "install prometheus"; }
  void TearDown() override {
    run_.reset();
    if (HasFailure()) temp_.printLogs();
  }

  // Few and short prompts, every measure, and no end before the test says so.
  void startRun() {
    auto run = valueOf(
        ChildProcess::start({kAllot,
                             {"run",         kRecall,
                              "--dir",       folder_ + "/run",
                              "--workers",   "2",
                              "--kv-memory", "256",
                              "--set",       "spec.task.contextTokens=192",
                              "--set",       "spec.task.trainQuestions=32",
                              "--set",       "spec.task.heldOutQuestions=40",
                              "--set",       "spec.update.maxUpdates=1000000",
                              "--set",       "spec.update.episodesPerUpdate=4",
                              "--set",       "spec.rollout.episodesPerQuestionSet=4",
                              "--set",       "spec.evaluation.everyUpdates=1000",
                              "--set",       "spec.evaluation.budgets=[8]",
                              "--set",       "spec.evaluation.prefills=[dense, skip-softmax]"},
                             {}},
                            folder_ + "/run.log"));
    run_.emplace(std::move(run));
  }
  // The port in a process's target file; 0 until there is one.
  uint16_t portOf(const std::string& process) const {
    const json targets =
        json::parse(readFile(folder_ + "/run/targets/" + process + ".json"), nullptr, false);
    if (!targets.is_array()) return 0;
    const std::string at = targets[0]["targets"][0];
    EXPECT_TRUE(at.starts_with("127.0.0.1:")) << at;
    return static_cast<uint16_t>(std::stoi(at.substr(at.find(':') + 1)));
  }
  // What a process exports, once `enough` is content.
  std::string scrape(const std::string& process,
                     const std::function<bool(const std::map<std::string, Family>&)>& enough) {
    std::string text;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(120);
    while (std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      const uint16_t port = portOf(process);
      if (port == 0) continue;
      const auto answer = httpGet(port, "/metrics");
      if (answer.status != 200) continue;
      EXPECT_THAT(answer.head, HasSubstr("text/plain; version=0.0.4; charset=utf-8"));
      text = answer.body;
      if (enough(parse(text))) return text;
    }
    ADD_FAILURE() << process << " does not get so far; last seen:\n" << text;
    return text;
  }

  // Metrics of the catalogue that this kind of process has.
  static std::set<std::string> promised(std::string_view process) {
    std::set<std::string> names;
    for (const MetricInfo& metric : metricCatalogue()) {
      if (metric.process == process || metric.process == "both") names.emplace(metric.name);
    }
    return names;
  }
  static std::set<std::string> missing(const std::map<std::string, Family>& families,
                                       const std::set<std::string>& wanted) {
    std::set<std::string> names;
    for (const std::string& name : wanted) {
      if (!families.contains(name) || families.at(name).series.empty()) names.insert(name);
    }
    return names;
  }
  void checkExposition(const std::string& text, const std::set<std::string>& promised) {
    const auto families = parse(text);
    EXPECT_EQ(missing(families, promised), std::set<std::string>());
    for (const auto& [name, family] : families) {
      EXPECT_TRUE(promised.contains(name)) << name << " is not in the catalogue of this process";
      const MetricInfo* metric = findMetric(name);
      if (metric == nullptr) continue;
      EXPECT_EQ(family.help, metric->help) << name;
      EXPECT_EQ(family.type, metricKindName(metric->kind)) << name;
      for (const auto& [series, value] : family.series) {
        EXPECT_THAT(series, HasSubstr("{experiment=\"recall-layer-budget\",run_id=\"")) << name;
      }
    }
    const std::string file = folder_ + "/scraped.prom";
    std::ofstream(file) << text;
    const auto checked =
        valueOf(capture({"/bin/sh", {"-c", "promtool check metrics < " + file}, {}}));
    EXPECT_EQ(checked.status, 0) << checked.out << checked.err;
    EXPECT_EQ(checked.out + checked.err, "");
  }

  std::optional<ChildProcess> run_;
};

TEST_F(RunMetrics, AreThoseOfTheCatalogueAndAllOfThem) {
  startRun();
  const auto complete = [&](std::string_view process) {
    return [wanted = promised(process)](const auto& families) {
      return missing(families, wanted).empty();
    };
  };
  const std::string aggregator = scrape("aggregator", complete("aggregator"));
  checkExposition(aggregator, promised("aggregator"));
  const std::string worker = scrape("worker-1", complete("worker"));
  checkExposition(worker, promised("worker"));
  // There may be a thousand of them.
  EXPECT_LE(seriesIn(worker), 60u);
  checkExposition(scrape("worker-2", complete("worker")), promised("worker"));

  for (const char* process : {"aggregator", "worker-1", "worker-2"}) {
    EXPECT_EQ(httpGet(portOf(process), "/livez").status, 200) << process;
    EXPECT_EQ(httpGet(portOf(process), "/readyz").body, "ready\n") << process;
  }
  // They agree with each other and with what `allot status` says.
  const auto families = parse(aggregator);
  const auto status = valueOf(capture({kAllot, {"status", folder_ + "/run", "--json"}, {}}));
  const std::string run = json::parse(status.out)["run_id"];
  const auto value = [&](const std::string& name, const std::string& labels) {
    const auto& series = families.at(name).series;
    const auto found = series.find(name + "{experiment=\"recall-layer-budget\",run_id=\"" + run +
                                   "\"" + labels + "}");
    return found == series.end() ? -1 : found->second;
  };
  EXPECT_EQ(value("allot_leader", ""), 1);
  EXPECT_EQ(value("allot_experiment_state", ",state=\"finished\""), 0);
  EXPECT_GE(value("allot_policy_version", ""), 1);
  // An update may come in the middle of a scrape.
  EXPECT_NEAR(4 * value("allot_policy_updates_total", ""),
              value("allot_results_total", ",outcome=\"accepted\""), 4);
  EXPECT_EQ(value("allot_evaluation_questions",
                  ",method=\"s2anta-sys\",schedule=\"uniform\",total_budget=\"8\""),
            40);
  // Who is stopped tells of itself no more.
  run_->signal(SIGINT);
  ASSERT_TRUE(run_->waitFor(std::chrono::seconds(60)));
  EXPECT_FALSE(fs::exists(folder_ + "/run/targets"));
}

// Each line is one event, and the last one says why it ends; so does the termination file.
TEST_F(RunMetrics, AProcessThatEndsLeavesItsReason) {
  const std::string bin = ALLOT_BIN_DIR;
  const std::string words = folder_ + "/termination";
  const std::map<std::string, std::string> environment = {{"ALLOT_TERMINATION_LOG", words}};
  std::ofstream(folder_ + "/bad.yaml") << "apiVersion: v9\nkind: \"a\\nb\"\n";
  const std::vector<Command> commands = {
      {bin + "/allot-worker", {"--redis", "unix:/none", "--log-format", "json"}, environment},
      {bin + "/allot-worker",
       {"--redis", "/none", "--run", "X", "--log-format", "json"},
       environment},
      {bin + "/allot-aggregator",
       {"--redis", "unix:/none", "--experiment", folder_ + "/bad.yaml", "--log-format", "json"},
       environment}};
  for (const Command& command : commands) {
    fs::remove(words);
    const auto output = valueOf(capture(command));
    EXPECT_EQ(output.status, 64);
    const json last = json::parse(lastLine(output.err), nullptr, false);
    ASSERT_TRUE(last.is_object()) << output.err;
    EXPECT_EQ(last["level"], "critical");
    EXPECT_EQ(last["message"], readFile(words));
    EXPECT_NE(readFile(words), "");
  }
  // Also where the command line is wrong.
  fs::remove(words);
  const auto output =
      valueOf(capture({bin + "/allot-worker", {"--log-format", "xml"}, environment}));
  EXPECT_EQ(output.status, 64);
  EXPECT_THAT(readFile(words), HasSubstr("--log-format"));
}

TEST_F(RunMetrics, TheCommandPrintsTheCatalogue) {
  const auto printed = valueOf(capture({kAllot, {"metrics"}, {}}));
  EXPECT_EQ(printed.status, 0);
  EXPECT_EQ(printed.out, metricsMarkdown());
}

}  // namespace
}  // namespace allot
