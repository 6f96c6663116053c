#pragma once
// Aggregator: the one learner of a run.
//
// Takes results from the store's inbox, updates the policy, publishes it, plans evaluations and
// says when the run is over. Everything it knows is in the store: it may be killed at any moment
// and started again. One thread; tick() never blocks for longer than `wait_ms` and the store's
// deadline.
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "aggregator/evaluation_plan.h"
#include "core/result.h"
#include "store/store.h"

namespace allot {

struct AggregatorOptions {
  std::string holder;  // names this process in the lease
  uint64_t lease_ms = 15'000;
  uint64_t wait_ms = 200;         // longest wait for results in one tick
  uint64_t reissue_ms = 10'000;   // synchronous: silence after which missing tickets are reissued
  std::function<uint64_t()> now;  // monotonic milliseconds
  std::function<uint64_t()> unix_now;
};

// What a reader of the run (page, report, terminal) gets to see. A copy, free to keep.
struct RunSnapshot {
  RunSpec run;
  std::optional<v1::ModelFacts> model;
  std::string phase;  // starting, running, evaluating, paused, stopped, finished
  v1::AggregatorState state;
  std::vector<v1::IterationRecord> history;  // results left out
  std::vector<EvaluationCell> cells;
  std::vector<v1::WorkerBeat> workers;
  uint64_t rejected = 0;
};

class Aggregator {
 public:
  Aggregator(Store* store, RunSpec run, AggregatorOptions options);

  // One round: lease, results, update, evaluation. True while there is more to do. Errors:
  // kUnavailable (call again later), kFenced (another aggregator leads: leave), others final.
  Result<bool> tick();

  // The run as of the last tick. Reads the list of workers.
  RunSnapshot snapshot();
  bool finished() const { return phase_ == "finished" || phase_ == "stopped"; }

 private:
  Status lead();
  Status load();
  Result<bool> start();
  Status collect();
  Status take(const InboxEntry& entry);
  Status reject(const InboxEntry& entry, const std::string& reason);
  bool batchReady() const;
  Status update();
  Status planIfDue();
  Status readEvaluations();
  Status reissueMissing();
  Result<bool> finishIfDone();
  bool goalReached() const;
  uint64_t maxUpdates() const;

  struct Held {
    InboxEntry entry;
    v1::EpisodeResult result;
  };

  Store& store_;
  const RunSpec run_;
  const AggregatorOptions options_;
  std::string phase_ = "starting";
  uint64_t epoch_ = 0;
  uint64_t lease_renewed_ = 0;
  bool loaded_ = false;
  std::optional<v1::ModelFacts> model_;
  v1::AggregatorState state_;
  std::vector<v1::IterationRecord> history_;
  EvaluationTable evaluations_;
  std::string evaluations_read_;  // entry id
  uint64_t open_units_ = 0;
  // Results waiting for their update: by order of arrival, or by ticket in a synchronous run.
  std::map<uint64_t, Held> held_;
  std::set<std::string> held_ids_;
  uint64_t arrivals_ = 0;
  uint64_t last_progress_ = 0;
  uint64_t rejected_ = 0;
};

}  // namespace allot
