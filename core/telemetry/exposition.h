#pragma once
// How metrics are written down for whoever scrapes them: Prometheus's text format 0.0.4, or
// OpenMetrics 1.0 where the client asks for it. Pure functions, any thread.
#include <prometheus/metric_family.h>

#include <string>
#include <string_view>
#include <vector>

namespace allot {

enum class Exposition { kPrometheus, kOpenMetrics };

// By the request's Accept header: OpenMetrics if it is named there and liked no less than plain
// text.
Exposition expositionFor(std::string_view accept);
// As a Content-Type.
const char* expositionType(Exposition format);
std::string expositionText(const std::vector<prometheus::MetricFamily>& families,
                           Exposition format);

}  // namespace allot
