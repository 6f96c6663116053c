#pragma once
// Updates: a pure function of (settings, state, results in order).
//
// Learners differ in what they learn from results: the policy gradient (core/learning/gradient.h)
// or a surrogate of each total budget (core/learning/budget_learning.h). All else of an update is
// here. It is free of I/O, so that every published policy can be computed again from the history,
// bit for bit. Any thread.
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

// Version 0: the uniform policy, fresh optimiser; of a fork: what its origin holds (`shape` must
// be the origin's then).
v1::AggregatorState initialState(const v1::Experiment& experiment, const ModelShape& shape,
                                 const v1::Origin* origin = nullptr);

// How a fork of `run_id` at `state` begins: its policy, optimiser and moving baseline as they are,
// counted from version 0; counters at zero.
v1::Origin originOf(const std::string& run_id, const v1::AggregatorState& state);

// The outcome of one update. `record.results` are the consumed ones, in the given order.
struct UpdateOutcome {
  v1::AggregatorState state;
  v1::IterationRecord record;
};

// Computes one update.
// Requires: at least one result, and every result passed checkResult().
UpdateOutcome applyUpdate(const v1::Experiment& experiment, const v1::AggregatorState& state,
                          const std::vector<v1::EpisodeResult>& results);

// Fills in what follows from record.policy and the policy before it: digest, divergence, entropy.
void describeStep(const v1::PolicySnapshot& before, v1::IterationRecord* record);
// Leaves out what a record holds of each result, and gives its memory back.
void dropResults(v1::IterationRecord* record);

// True if staleness.mode is drop and the result is too old for an update of `version`.
bool isStale(const v1::Experiment& experiment, uint64_t version, const v1::EpisodeResult& result);

// Classes of AggregatorState.lag_counts: 0, 1, 2, 3-4, 5-8, ..., 129-256, 257 and more.
constexpr size_t kLagBuckets = 11;
size_t lagBucket(uint64_t lag);
std::string lagBucketLabel(size_t bucket);

}  // namespace allot
