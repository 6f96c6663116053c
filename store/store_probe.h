#pragma once
// StoreProbe: exports metrics of the requests to Redis, and reports to health whether Redis
// answers. Owned by main(); called on the store's thread.
#include <array>
#include <map>
#include <string>

#include "core/telemetry/health.h"
#include "core/telemetry/registry.h"
#include "store/store_observer.h"

namespace allot {

class StoreProbe final : public StoreObserver {
 public:
  // Processes that exist in large numbers have totals only.
  enum class Detail { kByCommand, kTotals };

  // Requires: metrics and health outlive the probe.
  StoreProbe(MetricRegistry* metrics, Health* health, Detail detail = Detail::kByCommand);

  void requested(std::string_view command, RequestOutcome outcome,
                 std::optional<double> seconds) override;
  void reconnected() override;

 private:
  // The series of one command, made at its first request (kByCommand), or of all commands
  // (kTotals).
  struct Series {
    std::string name;                              // as a label
    std::array<prometheus::Counter*, 3> outcomes;  // by RequestOutcome
    prometheus::Histogram* histogram = nullptr;    // with kByCommand, from the first answer on
    prometheus::Counter* total = nullptr;          // with kTotals
  };
  Series& seriesOf(std::string_view command);
  void observe(Series* series, double seconds);

  MetricRegistry& metrics_;
  Health& health_;
  const Detail detail_;
  prometheus::Counter& reconnects_;
  std::map<std::string, Series, std::less<>> series_;
};

}  // namespace allot
