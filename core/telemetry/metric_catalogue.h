#pragma once
// The catalogue of all metrics that a process of allot exports. `allot metrics` prints it;
// documents, dashboards and alert rules may name no other metrics of allot. Pure, any thread.
#include <string>
#include <string_view>
#include <vector>

namespace allot {

enum class MetricKind { kCounter, kGauge, kHistogram };

struct MetricInfo {
  std::string_view name;
  MetricKind kind;
  std::string_view process;  // worker, aggregator, or both
  // Labels beside `experiment` and `run_id`, which the registry adds. None may have unbounded
  // values (a policy's version, worker, result).
  std::vector<std::string_view> labels = {};
  std::string_view help = {};
  std::vector<double> buckets = {};  // upper bounds of a histogram, ascending, without +Inf
};

const std::vector<MetricInfo>& metricCatalogue();
// Returns nullptr if there is no metric of that name.
const MetricInfo* findMetric(std::string_view name);
std::string_view metricKindName(MetricKind kind);
std::string metricsMarkdown();

}  // namespace allot
