#pragma once
// Updates: a pure function of (settings, state, results in order), so that every published policy
// can be computed again, bit for bit (core/learning/replay.h). Any thread.
//
// Learning itself is elsewhere: the policy gradient in core/learning/gradient.h, learning by total
// budgets in core/learning/budget_learning.h.
#include <cstdint>
#include <string>
#include <vector>

#include "allot/v1/experiment.pb.h"
#include "allot/v1/policy.pb.h"
#include "allot/v1/result.pb.h"
#include "core/learning/schedule.h"
#include "core/result.h"
#include "core/spec/choices.h"
#include "core/spec/model_shape.h"

namespace allot {

// Returns the state of version 0: the uniform policy and a fresh optimiser. With `origin` (a fork)
// it is the state in `origin`, without a measurement that is of other settings
// (inheritsMeasurement), and `shape` is not used.
v1::AggregatorState initialState(const v1::Experiment& experiment, const ModelShape& shape,
                                 const v1::Origin* origin = nullptr);

// Returns the origin of a fork of `run_id` at `state`. Policy, optimiser, moving baseline, learners
// and the layers' measurement are those of `state`, with all question sets closed. Version,
// episodes, worker seconds and lag counts are 0. Claims and confirmations end, since the fork may
// be of another experiment: the fork claims no schedule before it has confirmed one, on questions
// that the run has not asked. Its version 0 publishes the rival of each budget (rivalSchedule).
// experiment: of the run.
v1::Origin originOf(const v1::Experiment& experiment, const std::string& run_id,
                    const v1::AggregatorState& state);

struct UpdateOutcome {
  v1::AggregatorState state;
  v1::IterationRecord record;  // complete except for committed_unix_ms
};

// Computes one update.
// Requires: at least one result, and every result passed checkResult().
UpdateOutcome applyUpdate(const v1::Experiment& experiment, const v1::AggregatorState& state,
                          const std::vector<v1::EpisodeResult>& results);

// Sets policy_sha256, step_kl_nats and entropy_nats from record.policy and the policy before that
// one.
void describeStep(const v1::PolicySnapshot& before, v1::IterationRecord* record);
// Removes results, weights and baselines from the record and frees their memory.
void dropResults(v1::IterationRecord* record);

// Returns true if staleness.mode is drop and the result is more than maxLag updates older than the
// policy `version`.
bool isStale(const v1::Experiment& experiment, uint64_t version, const v1::EpisodeResult& result);

// Classes of AggregatorState.lag_counts: 0, 1, 2, 3-4, 5-8, ..., 129-256, 257 and more updates.
constexpr size_t kLagBuckets = 11;
size_t lagBucket(uint64_t lag);
// Returns "2", "3-4" or "257+".
std::string lagBucketLabel(size_t bucket);

}  // namespace allot
