#pragma once
// Writes metrics for a scraper: in Prometheus's text format 0.0.4, or in OpenMetrics 1.0 if the
// client asks for it. Pure functions, any thread.
#include <prometheus/metric_family.h>

#include <string>
#include <string_view>
#include <vector>

namespace allot {

enum class Exposition { kPrometheus, kOpenMetrics };

// Chooses the format by the request's Accept header: OpenMetrics if it is named there and not rated
// below plain text.
Exposition expositionFor(std::string_view accept);
// Returns the Content-Type of a format.
const char* expositionType(Exposition format);
std::string expositionText(const std::vector<prometheus::MetricFamily>& families,
                           Exposition format);

}  // namespace allot
