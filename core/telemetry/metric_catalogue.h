#pragma once
// The catalogue: every metric that a process of allot exports, in one place. `allot metrics` prints
// it, k8s/README.md holds it as a table, dashboards and alert rules may name nothing else (tests
// hold all of them to it). Pure, any thread.
#include <string>
#include <string_view>
#include <vector>

namespace allot {

enum class MetricKind { kCounter, kGauge, kHistogram };

struct MetricInfo {
  std::string_view name;
  MetricKind kind;
  std::string_view process;  // worker, aggregator, or both
  // Beside `experiment` and `run_id`, which every metric has; never anything unbounded (version,
  // worker, result).
  std::vector<std::string_view> labels = {};
  std::string_view help = {};
  std::vector<double> buckets = {};  // of a histogram, ascending, without +Inf
};

const std::vector<MetricInfo>& metricCatalogue();
// nullptr if there is none of that name.
const MetricInfo* findMetric(std::string_view name);
std::string_view metricKindName(MetricKind kind);
// The catalogue as a table for documents.
std::string metricsMarkdown();

}  // namespace allot
