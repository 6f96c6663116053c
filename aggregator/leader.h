#pragma once
// The leader's loop of allot-aggregator: the learner's ticks, and between them the updates of page,
// report and metrics. One thread.
#include <atomic>
#include <cstdint>
#include <string>

#include "aggregator/learner/aggregator_probe.h"
#include "aggregator/learner/experiment_file.h"
#include "aggregator/page/shared_view.h"
#include "core/result.h"
#include "core/telemetry/telemetry.h"
#include "store/store_probe.h"

namespace allot {

constexpr uint64_t kStoreTimeoutMs = 5000;  // of a request to the store

struct LeadOptions {
  std::string redis;
  std::string run_id;
  std::string dir;  // of report and export; "": none are written
  uint64_t lease_ms = 15'000;
  bool stay = false;
};

struct LeaderTelemetry {
  explicit LeaderTelemetry(Telemetry* of);
  Telemetry& telemetry;
  StoreProbe store;
  AggregatorProbe aggregator;
};

// Leads until `draining` is set or, without `stay`, the run ends; then releases the lease and
// writes the files of report and export. Goes on after ticks that fail with kUnavailable. Returns
// other errors of ticks at once, as kFenced if another aggregator leads. Starts again whenever
// `file` replaces the run.
Status leadRun(const LeadOptions& options, RunSpec run, Store* store, ExperimentFile* file,
               SharedView* shared, LeaderTelemetry* shown, const std::atomic<bool>& draining);

}  // namespace allot
