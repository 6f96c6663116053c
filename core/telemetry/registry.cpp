#include "core/telemetry/registry.h"

#include <algorithm>
#include <stdexcept>

namespace allot {
namespace {

// The catalogue's entry, if it has one of this kind with these labels.
const MetricInfo& known(std::string_view name, MetricKind kind,
                        const MetricRegistry::Labels& labels) {
  const MetricInfo* info = findMetric(name);
  const auto wrong = [&](const std::string& why) {
    return std::logic_error("metric " + std::string(name) + ": " + why);
  };
  if (info == nullptr) throw wrong("the catalogue has none of this name");
  if (info->kind != kind) {
    throw wrong("it is a " + std::string(metricKindName(info->kind)) + ", not a " +
                std::string(metricKindName(kind)));
  }
  const bool same = labels.size() == info->labels.size() &&
                    std::all_of(info->labels.begin(), info->labels.end(),
                                [&](auto label) { return labels.contains(std::string(label)); });
  if (same) return *info;
  std::string wanted;
  for (const std::string_view label : info->labels) wanted += " " + std::string(label);
  throw wrong("its labels are:" + (wanted.empty() ? " none" : wanted));
}

}  // namespace

MetricRegistry::MetricRegistry() : registry_(prometheus::Registry::InsertBehavior::Throw) {}

template <typename Metric, typename Builder, typename... Arguments>
Metric& MetricRegistry::find(Table<Metric>* table, Builder builder, const MetricInfo& info,
                             const Labels& labels, const Arguments&... arguments) {
  const std::lock_guard lock(mutex_);
  const auto found = table->find(info.name);
  Series<Metric>& series = found != table->end() ? found->second : (*table)[std::string(info.name)];
  if (series.family == nullptr) {
    series.family =
        &builder.Name(std::string(info.name)).Help(std::string(info.help)).Register(registry_);
  }
  Metric*& metric = series.metrics[labels];
  if (metric == nullptr) metric = &series.family->Add(labels, arguments...);
  return *metric;
}

prometheus::Counter& MetricRegistry::counter(std::string_view name, const Labels& labels) {
  return find(&counters_, prometheus::BuildCounter(), known(name, MetricKind::kCounter, labels),
              labels);
}

prometheus::Gauge& MetricRegistry::gauge(std::string_view name, const Labels& labels) {
  return find(&gauges_, prometheus::BuildGauge(), known(name, MetricKind::kGauge, labels), labels);
}

prometheus::Histogram& MetricRegistry::histogram(std::string_view name, const Labels& labels) {
  const MetricInfo& info = known(name, MetricKind::kHistogram, labels);
  return find(&histograms_, prometheus::BuildHistogram(), info, labels, info.buckets);
}

template <typename Metric>
void MetricRegistry::keepOnly(Table<Metric>* table, std::string_view name,
                              const std::vector<Labels>& kept) {
  const auto found = table->find(name);
  if (found == table->end()) return;
  std::erase_if(found->second.metrics, [&](const auto& entry) {
    if (std::find(kept.begin(), kept.end(), entry.first) != kept.end()) return false;
    found->second.family->Remove(entry.second);
    return true;
  });
}

void MetricRegistry::replace(std::string_view name, const std::vector<Sample>& samples) {
  std::vector<Labels> kept;
  for (const Sample& sample : samples) {
    gauge(name, sample.labels).Set(sample.value);
    kept.push_back(sample.labels);
  }
  const std::lock_guard lock(mutex_);
  keepOnly(&gauges_, name, kept);
}

void MetricRegistry::clear(std::string_view name) {
  const std::lock_guard lock(mutex_);
  keepOnly(&gauges_, name, {});
  keepOnly(&counters_, name, {});
}

void MetricRegistry::setRun(const std::string& experiment, const std::string& run_id) {
  const std::lock_guard lock(mutex_);
  experiment_ = experiment;
  run_id_ = run_id;
}

std::string MetricRegistry::text(Exposition format) const {
  const std::lock_guard lock(mutex_);
  if (experiment_.empty()) return {};
  auto families = registry_.Collect();
  // In order, and nothing of a family that has no series now.
  std::erase_if(families, [](const auto& family) { return family.metric.empty(); });
  std::sort(families.begin(), families.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  for (auto& family : families) {
    for (auto& metric : family.metric) {
      if (!run_id_.empty()) metric.label.insert(metric.label.begin(), {"run_id", run_id_});
      metric.label.insert(metric.label.begin(), {"experiment", experiment_});
    }
    std::sort(family.metric.begin(), family.metric.end(),
              [](const auto& a, const auto& b) { return a.label < b.label; });
  }
  return expositionText(families, format);
}

}  // namespace allot
