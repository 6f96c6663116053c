#include "core/telemetry/registry.h"

#include <prometheus/text_serializer.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <stdexcept>

namespace allot {
namespace {

using prometheus::MetricFamily;
using prometheus::MetricType;
using Labels = std::vector<prometheus::ClientMetric::Label>;

constexpr std::string_view kOpenMetricsName = "application/openmetrics-text";

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\n\v\f\r";
  text.remove_prefix(std::min(text.find_first_not_of(kBlanks), text.size()));
  return text.substr(0, text.find_last_not_of(kBlanks) + 1);
}

// Removes the part up to `separator` from the text, and returns the part without blanks around it.
std::string_view nextPart(std::string_view* text, char separator) {
  const size_t end = text->find(separator);
  const std::string_view part = trimmed(text->substr(0, end));
  *text = end == std::string_view::npos ? "" : text->substr(end + 1);
  return part;
}

// Returns the largest weight (q) that the Accept header gives a media type; 0 if it has none.
double liking(std::string_view accept, std::string_view wanted) {
  double most = 0;
  while (!accept.empty()) {
    std::string_view entry = nextPart(&accept, ',');
    if (nextPart(&entry, ';') != wanted) continue;
    double weight = 1;
    while (!entry.empty()) {
      const std::string_view parameter = nextPart(&entry, ';');
      if (parameter.starts_with("q=")) {
        weight = std::strtod(std::string(parameter.substr(2)).c_str(), nullptr);
      }
    }
    most = std::max(most, weight);
  }
  return most;
}

std::string escapedValue(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\n') {
      out += "\\n";
    } else {
      if (c == '\\' || c == '"') out += '\\';
      out += c;
    }
  }
  return out;
}

// Returns the shortest text that reads back as the same number, with a point or exponent, which
// OpenMetrics requires of a bucket's bound.
std::string number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  char text[64];
  const auto end = std::to_chars(text, text + sizeof text, value);
  std::string digits(text, end.ptr);
  if (digits.find_first_of(".e") == std::string::npos) digits += ".0";
  return digits;
}

void addSample(std::string* out, const std::string& name, const Labels& labels,
               const std::string& bound, const std::string& value) {
  std::string inside;
  for (const auto& label : labels) {
    inside += (inside.empty() ? "" : ",") + label.name + "=\"" + escapedValue(label.value) + "\"";
  }
  if (!bound.empty()) inside += (inside.empty() ? "le=\"" : ",le=\"") + bound + "\"";
  *out += name + (inside.empty() ? "" : "{" + inside + "}") + " " + value + "\n";
}

void addHistogram(std::string* out, const std::string& name,
                  const prometheus::ClientMetric& metric) {
  const auto& histogram = metric.histogram;
  const std::string count = std::to_string(histogram.sample_count);
  double last = 0;
  for (const auto& bucket : histogram.bucket) {
    addSample(out, name + "_bucket", metric.label, number(bucket.upper_bound),
              std::to_string(bucket.cumulative_count));
    last = bucket.upper_bound;
  }
  if (!std::isinf(last)) addSample(out, name + "_bucket", metric.label, "+Inf", count);
  addSample(out, name + "_count", metric.label, "", count);
  addSample(out, name + "_sum", metric.label, "", number(histogram.sample_sum));
}

// Adds a family. OpenMetrics names a counter's family without _total, and its samples with it.
void addFamily(std::string* out, const MetricFamily& family) {
  constexpr std::string_view kTotal = "_total";
  std::string name = family.name;
  const bool counter = family.type == MetricType::Counter;
  const bool histogram = family.type == MetricType::Histogram;
  if (counter && name.ends_with(kTotal)) name.resize(name.size() - kTotal.size());
  *out += "# TYPE " + name + (counter ? " counter\n" : histogram ? " histogram\n" : " gauge\n");
  *out += "# HELP " + name + " " + escapedValue(family.help) + "\n";
  for (const auto& metric : family.metric) {
    if (histogram) {
      addHistogram(out, name, metric);
    } else if (counter) {
      addSample(out, name + std::string(kTotal), metric.label, "", number(metric.counter.value));
    } else {
      addSample(out, name, metric.label, "", number(metric.gauge.value));
    }
  }
}

// Returns the catalogue's entry. Throws std::logic_error if it has none of this kind and labels.
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

std::string expositionText(const std::vector<MetricFamily>& families, Exposition format) {
  if (families.empty()) return "";
  if (format == Exposition::kPrometheus) return prometheus::TextSerializer().Serialize(families);
  std::string text;
  for (const MetricFamily& family : families) addFamily(&text, family);
  return text + "# EOF\n";
}

}  // namespace

Exposition expositionFor(std::string_view accept) {
  const double open = liking(accept, kOpenMetricsName);
  const bool wanted = open > 0 && open >= liking(accept, "text/plain");
  return wanted ? Exposition::kOpenMetrics : Exposition::kPrometheus;
}

const char* expositionType(Exposition format) {
  return format == Exposition::kOpenMetrics
             ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
             : "text/plain; version=0.0.4; charset=utf-8";
}

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
  // A family without series is left out.
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
