#pragma once
// MetricRegistry: the metrics of one process, made only from the catalogue.
//
// A thin owner of prometheus-cpp's core registry, which would take any name, any labels, and other
// buckets without a word. A name or a set of labels that the catalogue does not have is a mistake
// in the program: std::logic_error, which names it. Every series carries the labels `experiment`
// and, once it is known, `run_id`.
// Any thread.
#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "core/telemetry/exposition.h"
#include "core/telemetry/metric_catalogue.h"

namespace allot {

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

  // The series of these labels, new at 0 if it is not there yet. The reference is good until
  // replace() or clear() of that name.
  prometheus::Counter& counter(std::string_view name, const Labels& labels = {});
  prometheus::Gauge& gauge(std::string_view name, const Labels& labels = {});
  prometheus::Histogram& histogram(std::string_view name, const Labels& labels = {});

  // A gauge's series from now on: these and no others.
  void replace(std::string_view name, const std::vector<Sample>& samples);
  // Takes all series of a counter or gauge away.
  void clear(std::string_view name);

  // run_id: "" while there is none.
  void setRun(const std::string& experiment, const std::string& run_id);
  // The exposition; empty until the experiment is known, because a series without that label would
  // be another one.
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
