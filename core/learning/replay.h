#pragma once
// Replay: every update of a run again, from its history.
//
// An update is a pure function of (settings, state, results in order), and the history holds all
// three, so each published policy can be computed again, bit for bit, on any x86-64 processor by
// any build of the same arithmetic (core/learning/exact_math.h). One thread; memory grows by about
// 64 bytes for each result.
#include <deque>
#include <string>
#include <unordered_set>

#include "allot/v1/experiment.pb.h"
#include "allot/v1/policy.pb.h"
#include "core/learning/ticket_set.h"
#include "core/result.h"

namespace allot {

// The newest policies that are at hand to check what a result says of the one it was made under.
// The aggregator and Replay refuse results of older ones.
inline constexpr uint64_t kPolicyWindow = 1024;

class Replay {
 public:
  // experiment: as the run was created; initial: its version 0; window: other than kPolicyWindow in
  // tests only.
  Replay(v1::Experiment experiment, v1::AggregatorState initial, bool synchronous,
         uint64_t window = kPolicyWindow);

  // Computes the next update and compares it with its record, all fields except the time. kData
  // names the version and the difference: a version out of order, settings that a run cannot
  // change, a result that cannot be, was consumed before or is a second one of its ticket, another
  // policy.
  Status next(const v1::IterationRecord& record);

  // After the last record. What no update makes (evaluated_version) is not in it.
  const v1::AggregatorState& state() const { return state_; }

 private:
  Status checkResults(const v1::IterationRecord& record);

  v1::Experiment experiment_;
  v1::AggregatorState state_;
  const bool synchronous_;
  const uint64_t window_;
  std::deque<v1::PolicySnapshot> policies_;  // the newest ones
  std::unordered_set<std::string> consumed_;
  TicketSet tickets_;  // of the consumed results
};

}  // namespace allot
