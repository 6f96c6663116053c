#pragma once
// MetricRegistry: the metrics of one process, all from the catalogue. Owned by Telemetry; any
// thread.
//
// It wraps prometheus-cpp's core registry, which knows no catalogue. counter(), gauge() and
// histogram(), and replace() for each Sample, throw std::logic_error for a name, kind or set of
// labels that is not in the catalogue. text() adds the labels `experiment` and, once setRun() has
// given an id, `run_id`.
#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/metric_family.h>
#include <prometheus/registry.h>

#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "core/telemetry/metric_catalogue.h"

namespace allot {

// Formats for scrapers: Prometheus's text format 0.0.4, and OpenMetrics 1.0.
enum class Exposition { kPrometheus, kOpenMetrics };

// Returns the format for a request's Accept header: OpenMetrics if the header accepts it by name
// and does not rate it below text/plain.
Exposition expositionFor(std::string_view accept);
const char* expositionType(Exposition format);

class MetricRegistry {
 public:
  using Labels = std::map<std::string, std::string>;
  struct Sample {
    Labels labels;
    double value = 0;
  };

  MetricRegistry();
  MetricRegistry(const MetricRegistry&) = delete;
  MetricRegistry& operator=(const MetricRegistry&) = delete;

  // Return the series with these labels; a new one is 0. The reference is valid until replace() or
  // clear() removes the series.
  prometheus::Counter& counter(std::string_view name, const Labels& labels = {});
  prometheus::Gauge& gauge(std::string_view name, const Labels& labels = {});
  prometheus::Histogram& histogram(std::string_view name, const Labels& labels = {});

  // Sets these series of a gauge, and removes the gauge's other series.
  void replace(std::string_view name, const std::vector<Sample>& samples);
  // Removes all series of a counter or gauge.
  void clear(std::string_view name);

  // run_id: "" as long as the process has no run.
  void setRun(const std::string& experiment, const std::string& run_id);
  // Returns all series in a format. Empty until the experiment is known, because a series without
  // the label `experiment` would be another series.
  std::string text(Exposition format = Exposition::kPrometheus) const;

 private:
  template <typename Metric>
  struct Series {
    prometheus::Family<Metric>* family = nullptr;
    std::map<Labels, Metric*> metrics;
  };
  template <typename Metric>
  using Table = std::map<std::string, Series<Metric>, std::less<>>;

  template <typename Metric, typename Builder, typename... Arguments>
  Metric& find(Table<Metric>* table, Builder builder, const MetricInfo& info, const Labels& labels,
               const Arguments&... arguments);
  template <typename Metric>
  static void keepOnly(Table<Metric>* table, std::string_view name,
                       const std::vector<Labels>& kept);

  mutable std::mutex mutex_;
  prometheus::Registry registry_;
  Table<prometheus::Counter> counters_;
  Table<prometheus::Gauge> gauges_;
  Table<prometheus::Histogram> histograms_;
  std::string experiment_;
  std::string run_id_;
};

}  // namespace allot
