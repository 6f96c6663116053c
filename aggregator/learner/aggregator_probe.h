#pragma once
// AggregatorProbe: the metrics of one aggregator and of the run that it leads. Only an aggregator
// that leads (Aggregator::leads()) exports the run's series. Other aggregators remove them, and
// their allot_leader is 0. Counts of what this process did stay, so that sums over processes remain
// right. One thread.
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>

#include "aggregator/learner/aggregator.h"
#include "aggregator/learner/aggregator_events.h"
#include "core/telemetry/health.h"
#include "core/telemetry/registry.h"

namespace allot {

class AggregatorProbe final : public AggregatorEvents {
 public:
  // unix_now: Unix time, ms.
  // Requires: metrics and health outlive the probe.
  AggregatorProbe(MetricRegistry* metrics, Health* health, std::function<uint64_t()> unix_now);

  // Exports the run. Called about once a second while this process leads.
  void lead(const RunSnapshot& snapshot);
  // Removes the run's series. /readyz answers with the sentence `why`.
  void doNotLead(const std::string& why);

  void updated(const v1::IterationRecord& record, double seconds) override;
  void refused(RefusalKind kind) override;

 private:
  void showSettings(const RunSnapshot& snapshot);
  void showPolicy(const RunSnapshot& snapshot);
  void showNewestUpdate(const v1::IterationRecord& record);
  void showEvaluations(const RunSnapshot& snapshot);
  void showWorkers(const RunSnapshot& snapshot);
  void showWorkerSeconds(const RunSnapshot& snapshot);
  void showAudits(const v1::AuditStatus& audits);
  void set(std::string_view name, double value);
  std::string deviceLabel(const std::string& device);

  MetricRegistry& metrics_;
  Health& health_;
  std::function<uint64_t()> unix_now_;
  bool leads_ = false;
  prometheus::Gauge& leader_;
  prometheus::Counter& updates_;
  prometheus::Counter& accepted_;
  prometheus::Counter& stale_;
  prometheus::Counter& superseded_;
  prometheus::Counter& invalid_;
  prometheus::Histogram& update_seconds_;
  prometheus::Histogram& rewards_;
  prometheus::Histogram& lags_;
  prometheus::Histogram& in_flight_seconds_;
  prometheus::Histogram& queued_seconds_;
  std::set<std::string> devices_;                   // names that have a series
  std::string first_device_;                        // see showWorkerSeconds
  std::map<std::string, double> consumed_seconds_;  // by device, in updates of this process
};

}  // namespace allot
