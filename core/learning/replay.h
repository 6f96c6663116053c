#pragma once
// Replay: computes every update of a run again, from its history.
//
// An update is a pure function of (settings, state, results in order). A record has the results and
// the settings that may change; the experiment, the first state and earlier records give the rest.
// Each published policy can therefore be computed again, bit for bit, on any x86-64 processor by
// any build of the same arithmetic (core/learning/exact_math.h). One thread; memory grows by about
// 120 bytes for each result.
#include <deque>
#include <string>
#include <unordered_set>

#include "allot/v1/experiment.pb.h"
#include "allot/v1/policy.pb.h"
#include "core/learning/ticket_set.h"
#include "core/result.h"

namespace allot {

// The number of newest policies that results are checked against. The aggregator and Replay refuse
// results of older policies.
inline constexpr uint64_t kPolicyWindow = 1024;

class Replay {
 public:
  // experiment: as the run was created; initial: the state of version 0. synchronous: as in
  // checkLiveChanges(). window: only tests give another number than kPolicyWindow.
  Replay(v1::Experiment experiment, v1::AggregatorState initial, bool synchronous,
         uint64_t window = kPolicyWindow);

  // Computes the next update and compares it with `record`, in all fields except the time and the
  // settings, which are taken from `record`. kData names the version and the first fault: a version
  // out of order, settings or results that this run cannot have, or a field that differs. After an
  // error the object must not be used further.
  Status next(const v1::IterationRecord& record);

  // Returns the state after the last record. evaluated_version and has_evaluation, which no update
  // writes, are those of `initial`, and so is the measurement before the first record.
  const v1::AggregatorState& state() const { return state_; }

 private:
  Status checkResults(const v1::IterationRecord& record);
  Status takeMeasurement(const v1::IterationRecord& record);

  v1::Experiment experiment_;
  v1::AggregatorState state_;
  const bool synchronous_;
  const uint64_t window_;
  std::deque<v1::PolicySnapshot> policies_;   // the newest ones
  std::unordered_set<std::string> consumed_;  // ids of results
  TicketSet tickets_;                         // of the consumed results
};

}  // namespace allot
