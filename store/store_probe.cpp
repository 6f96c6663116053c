#include "store/store_probe.h"

#include <algorithm>
#include <cctype>

namespace allot {

StoreProbe::StoreProbe(MetricRegistry* metrics, Health* health, Detail detail)
    : metrics_(*metrics),
      health_(*health),
      detail_(detail),
      reconnects_(metrics_.counter("allot_redis_reconnects_total")) {
  if (detail_ == Detail::kTotals) (void)seriesOf("all");
}

StoreProbe::Series& StoreProbe::seriesOf(std::string_view command) {
  const auto found = series_.find(command);
  if (found != series_.end()) return found->second;
  std::string name(command);  // Redis commands are in capitals
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const auto counter = [&](const char* outcome) {
    return &metrics_.counter("allot_redis_commands_total",
                             {{"command", name}, {"outcome", outcome}});
  };
  Series series{name, {counter("ok"), counter("error"), counter("unavailable")}};
  if (detail_ == Detail::kTotals) {
    series.total = &metrics_.counter("allot_redis_command_seconds_total");
  }
  return series_.emplace(command, series).first->second;
}

void StoreProbe::requested(std::string_view command, RequestOutcome outcome,
                           std::optional<double> seconds) {
  Series& series = seriesOf(detail_ == Detail::kTotals ? "all" : command);
  series.outcomes[static_cast<size_t>(outcome)]->Increment();
  if (seconds && outcome != RequestOutcome::kUnavailable) observe(&series, *seconds);
  // A server that answers with errors (loading its data, out of memory) counts as away.
  if (outcome == RequestOutcome::kOk) {
    health_.storeAnswered();
  } else {
    health_.storeDidNotAnswer();
  }
}

void StoreProbe::observe(Series* series, double seconds) {
  if (series->total != nullptr) return series->total->Increment(seconds);
  if (series->histogram == nullptr) {
    series->histogram =
        &metrics_.histogram("allot_redis_command_duration_seconds", {{"command", series->name}});
  }
  series->histogram->Observe(seconds);
}

void StoreProbe::reconnected() { reconnects_.Increment(); }

}  // namespace allot
