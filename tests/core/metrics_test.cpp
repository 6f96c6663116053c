// The catalogue's rules, and the registry that holds to it.
#include <algorithm>
#include <regex>
#include <set>
#include <stdexcept>

#include "core/telemetry/registry.h"
#include "tests/readme.h"
#include "tests/results.h"

namespace allot {
namespace {

bool endsWith(std::string_view text, std::string_view end) { return text.ends_with(end); }

TEST(MetricCatalogue, NamesAndLabelsFollowPrometheus) {
  const std::regex name("allot(_[a-z0-9]+)+"), label("[a-z][a-z_]*");
  std::set<std::string_view> names;
  for (const MetricInfo& metric : metricCatalogue()) {
    const std::string text(metric.name);
    EXPECT_TRUE(std::regex_match(text, name)) << text;
    EXPECT_TRUE(names.insert(metric.name).second) << text << " is there twice";
    EXPECT_EQ(endsWith(text, "_total"), metric.kind == MetricKind::kCounter) << text;
    for (const char* derived : {"_count", "_sum", "_bucket"}) {
      EXPECT_FALSE(endsWith(text, derived)) << text;
    }
    EXPECT_GE(metric.help.size(), 10u) << text;
    EXPECT_TRUE(endsWith(metric.help, ".")) << text;
    EXPECT_THAT(std::string(metric.help), Not(HasSubstr("|"))) << "it stands in a table";
    EXPECT_THAT(metric.process, AnyOf("worker", "aggregator", "both")) << text;
    EXPECT_EQ(metric.kind == MetricKind::kHistogram, !metric.buckets.empty()) << text;
    EXPECT_TRUE(std::is_sorted(metric.buckets.begin(), metric.buckets.end())) << text;
    for (const std::string_view one : metric.labels) {
      EXPECT_TRUE(std::regex_match(std::string(one), label)) << text << " " << one;
    }
  }
}

TEST(MetricCatalogue, UnitsAreBaseUnits) {
  for (const MetricInfo& metric : metricCatalogue()) {
    for (const char* unit : {"milliseconds", "_ms", "minutes", "hours", "percent", "kib", "mib",
                             "megabytes", "kilobytes"}) {
      EXPECT_THAT(std::string(metric.name), Not(HasSubstr(unit)));
    }
    // What is a time says seconds, what is a share says ratio.
    const std::string name(metric.name);
    for (const char* time : {"_duration", "_age", "_timestamp"}) {
      EXPECT_TRUE(name.find(time) == std::string::npos || endsWith(name, "_seconds")) << name;
    }
    for (const char* share : {"_accuracy", "_reward", "_probability", "_baseline"}) {
      EXPECT_TRUE(name.find(share) == std::string::npos || endsWith(name, "_ratio")) << name;
    }
  }
}

TEST(MetricCatalogue, NoLabelIsUnbounded) {
  for (const MetricInfo& metric : metricCatalogue()) {
    for (const std::string_view label : metric.labels) {
      const bool one_a_process = metric.name.ends_with("_info");
      for (const char* unbounded : {"version", "policy_version", "run_id", "worker", "result",
                                    "ticket", "pod", "experiment", "le", "instance", "job"}) {
        if (one_a_process && (label == "version" || label == "run_id")) continue;
        // What a question's result was: one of three.
        if (metric.name == "allot_worker_questions_total" && label == "result") continue;
        EXPECT_NE(label, unbounded) << metric.name;
      }
    }
  }
}

TEST(MetricCatalogue, ItsTableHasEveryMetric) {
  const std::string table = metricsMarkdown();
  EXPECT_EQ(static_cast<size_t>(std::count(table.begin(), table.end(), '\n')),
            metricCatalogue().size() + 2);
  EXPECT_THAT(table, HasSubstr("| `allot_worker_memory_bytes` | gauge | worker | kind | Memory"));
  // The document has it as it is: `allot metrics`.
  EXPECT_THAT(readSource("k8s/README.md"),
              HasSubstr("<!-- metrics: begin -->\n" + table + "<!-- metrics: end -->"));
}

template <typename Call>
std::string mistake(const Call& call) {
  try {
    call();
  } catch (const std::logic_error& error) {
    return error.what();
  }
  return "(no mistake)";
}

TEST(MetricRegistry, TakesOnlyWhatTheCatalogueHas) {
  MetricRegistry metrics;
  EXPECT_THAT(mistake([&] { metrics.gauge("allot_nonsense"); }), HasSubstr("allot_nonsense"));
  EXPECT_THAT(mistake([&] { metrics.counter("allot_leader"); }), HasSubstr("is a gauge"));
  EXPECT_THAT(mistake([&] { metrics.gauge("allot_leader", {{"x", "y"}}); }), HasSubstr("none"));
  EXPECT_THAT(mistake([&] { metrics.counter("allot_results_total"); }), HasSubstr("outcome"));
  EXPECT_THAT(mistake([&] {
                metrics.counter("allot_results_total", {{"outcom", "x"}});
              }),
              HasSubstr("its labels are: outcome"));
  EXPECT_THAT(mistake([&] {
                metrics.counter("allot_results_total", {{"outcome", "x"}, {"worker", "w"}});
              }),
              HasSubstr("outcome"));
  EXPECT_THAT(mistake([&] {
                metrics.replace("allot_results_total", {{{}, 1}});
              }),
              HasSubstr("counter"));
  metrics.setRun("e", "");
  EXPECT_EQ(metrics.text(), "");  // none of these left anything behind
}

TEST(MetricRegistry, WritesHelpTypeAndTheExperimentWithEachSeries) {
  MetricRegistry metrics;
  metrics.gauge("allot_leader").Set(1);
  metrics.counter("allot_results_total", {{"outcome", "stale"}}).Increment(2);
  metrics.counter("allot_results_total", {{"outcome", "stale"}}).Increment();
  EXPECT_EQ(metrics.text(), "");  // nobody knows the experiment yet
  metrics.setRun("recall", "");
  const std::string text = metrics.text();
  EXPECT_EQ(text.find("# HELP allot_leader 1 while this aggregator"), 0u);
  EXPECT_THAT(text,
              HasSubstr("# TYPE allot_leader gauge\nallot_leader{experiment=\"recall\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("# TYPE allot_results_total counter\n"
                              "allot_results_total{experiment=\"recall\",outcome=\"stale\"} 3\n"));
}

TEST(MetricRegistry, TakesBucketsFromTheCatalogue) {
  MetricRegistry metrics;
  metrics.setRun("e", "");
  metrics.histogram("allot_result_policy_lag_updates").Observe(3);
  const std::string text = metrics.text();
  EXPECT_THAT(text, HasSubstr("_bucket{experiment=\"e\",le=\"2\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("_bucket{experiment=\"e\",le=\"4\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("_bucket{experiment=\"e\",le=\"+Inf\"} 1\n"));
}

TEST(MetricRegistry, AHostileLabelValueStaysInItsQuotes) {
  MetricRegistry metrics;
  metrics.setRun("e", "");
  metrics.counter("allot_worker_seconds_total", {{"device", "a\"} 1\nallot_leader 1\\"}});
  EXPECT_THAT(metrics.text(), HasSubstr("device=\"a\\\"} 1\\nallot_leader 1\\\\\"} 0\n"));
}

TEST(Exposition, IsOpenMetricsForWhoLikesItNoLessThanPlainText) {
  const auto open = [](const char* accept) {
    return expositionFor(accept) == Exposition::kOpenMetrics;
  };
  EXPECT_FALSE(open(""));
  EXPECT_FALSE(open("*/*"));
  EXPECT_FALSE(open("text/plain"));
  EXPECT_FALSE(open("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"));
  EXPECT_TRUE(open("application/openmetrics-text"));
  EXPECT_TRUE(open("application/openmetrics-text; version=1.0.0; charset=utf-8"));
  // Prometheus 2.42.
  EXPECT_TRUE(
      open("application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;"
           "q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"));
  EXPECT_FALSE(open("application/openmetrics-text;q=0.1 , text/plain; q=0.5"));
  EXPECT_FALSE(open("application/openmetrics-text;q=0"));
  EXPECT_FALSE(open("application/openmetrics-textual"));
  EXPECT_FALSE(open(";;;,,,;q=;q=x,"));
}

TEST(Exposition, OpenMetricsNamesCountersByFamilyAndEnds) {
  MetricRegistry metrics;
  EXPECT_EQ(metrics.text(Exposition::kOpenMetrics), "");  // not even an end
  metrics.setRun("a\"b\\c\nd", "01RUN");
  metrics.counter("allot_results_total", {{"outcome", "stale"}}).Increment(2);
  metrics.gauge("allot_leader").Set(1);
  metrics.histogram("allot_result_policy_lag_updates").Observe(3);
  const std::string text = metrics.text(Exposition::kOpenMetrics);
  const std::string run = "experiment=\"a\\\"b\\\\c\\nd\",run_id=\"01RUN\"";
  EXPECT_THAT(text, HasSubstr("# TYPE allot_results counter\n# HELP allot_results Results taken"));
  EXPECT_THAT(text, HasSubstr("\nallot_results_total{" + run + ",outcome=\"stale\"} 2.0\n"));
  EXPECT_THAT(text, HasSubstr("# TYPE allot_leader gauge\n"));
  EXPECT_THAT(text, HasSubstr("\nallot_leader{" + run + "} 1.0\n"));
  EXPECT_THAT(text, HasSubstr("_lag_updates_bucket{" + run + ",le=\"2.0\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("_lag_updates_bucket{" + run + ",le=\"4.0\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("_lag_updates_bucket{" + run + ",le=\"+Inf\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("_lag_updates_count{" + run + "} 1\n"));
  EXPECT_THAT(text, HasSubstr("_lag_updates_sum{" + run + "} 3.0\n"));
  EXPECT_TRUE(text.ends_with("\n# EOF\n"));
  EXPECT_EQ(text.find("# EOF"), text.rfind("# EOF"));
}

TEST(MetricRegistry, ReplacesAndClearsSeries) {
  MetricRegistry metrics;
  metrics.setRun("e", "");
  const auto layer = [](const char* name) { return MetricRegistry::Labels{{"layer", name}}; };
  metrics.replace("allot_policy_layer_reads", {{layer("0"), 1}, {layer("1"), 2}});
  metrics.replace("allot_policy_layer_reads", {{layer("1"), 3}, {layer("2"), 4}});
  std::string text = metrics.text();
  EXPECT_THAT(text, Not(HasSubstr("layer=\"0\"")));
  EXPECT_THAT(text, HasSubstr("layer=\"1\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("layer=\"2\"} 4\n"));
  metrics.counter("allot_worker_seconds_total", {{"device", "cpu"}}).Increment();
  metrics.clear("allot_worker_seconds_total");
  metrics.clear("allot_policy_layer_reads");
  EXPECT_EQ(metrics.text(), "");  // no family without a series
  EXPECT_EQ(metrics.counter("allot_worker_seconds_total", {{"device", "cpu"}}).Value(), 0);
}

}  // namespace
}  // namespace allot
