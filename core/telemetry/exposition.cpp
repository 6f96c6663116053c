#include "core/telemetry/exposition.h"

#include <prometheus/text_serializer.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdlib>

namespace allot {
namespace {

using prometheus::MetricFamily;
using prometheus::MetricType;
using Labels = std::vector<prometheus::ClientMetric::Label>;

constexpr std::string_view kOpenMetricsName = "application/openmetrics-text";

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front()))) {
    text.remove_prefix(1);
  }
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back()))) {
    text.remove_suffix(1);
  }
  return text;
}

// Takes the part before `separator` off the text.
std::string_view nextPart(std::string_view* text, char separator) {
  const size_t end = text->find(separator);
  const std::string_view part = trimmed(text->substr(0, end));
  *text = end == std::string_view::npos ? "" : text->substr(end + 1);
  return part;
}

// How much the client likes a media type, 0 to 1; the most of its entries.
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

std::string quoted(std::string_view text) {
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

// In the shortest digits that are read back the same, and never as an integer: OpenMetrics wants a
// bucket's bound so.
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
    inside += (inside.empty() ? "" : ",") + label.name + "=\"" + quoted(label.value) + "\"";
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

// A counter's family is named without _total, its samples with it.
void addFamily(std::string* out, const MetricFamily& family) {
  constexpr std::string_view kTotal = "_total";
  std::string name = family.name;
  const bool counter = family.type == MetricType::Counter;
  const bool histogram = family.type == MetricType::Histogram;
  if (counter && name.ends_with(kTotal)) name.resize(name.size() - kTotal.size());
  *out += "# TYPE " + name + (counter ? " counter\n" : histogram ? " histogram\n" : " gauge\n");
  *out += "# HELP " + name + " " + quoted(family.help) + "\n";
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

std::string expositionText(const std::vector<MetricFamily>& families, Exposition format) {
  if (families.empty()) return "";
  if (format == Exposition::kPrometheus) return prometheus::TextSerializer().Serialize(families);
  std::string text;
  for (const MetricFamily& family : families) addFamily(&text, family);
  return text + "# EOF\n";
}

}  // namespace allot
