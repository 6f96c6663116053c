#pragma once
// The policy-gradient update: a pure function of (settings, state, results in order).
//
// REINFORCE on the layer schedule (SANTA paper, Appendix K) with truncated importance weights for
// results of older policies (the paper corrects nothing and is about 49 updates stale):
//   w_i = min(rhoBar, exp(log pi_now(n_i) - log pi_then(n_i)))
//   g   = sum_i w_i (R_i - b_i) (n_i / B - pi) / sum_i w_i  +  entropyBonus * dH/dlogits
// Pure and free of I/O, so every published policy can be computed again from the history, bit for
// bit. Any thread.
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

// Requires at least one result, each of which passed checkResult.
UpdateOutcome applyUpdate(const v1::Experiment& experiment, const v1::AggregatorState& state,
                          const std::vector<v1::EpisodeResult>& results);

// ---- Parts of an update that learners share ----

// The weight of a result of an older policy under `logits`, by spec.staleness.
double importanceWeight(const v1::Spec& spec, const google::protobuf::RepeatedField<double>& logits,
                        const v1::EpisodeResult& result);

struct GradientTerm {
  SampleSchedule schedule;
  double weight = 1;
  double advantage = 0;  // reward above the baseline
};
// g above, with the entropy's part, for schedules of this total. [layers]
std::vector<double> policyGradient(const v1::Spec& spec,
                                   const google::protobuf::RepeatedField<double>& logits,
                                   uint32_t total, const std::vector<GradientTerm>& terms);

// A result of one policy, beside the reward that it is compared with.
struct ComparedResult {
  const v1::EpisodeResult* result;
  int index;           // among the update's
  double advantage;    // reward above the baseline
  bool drawn = true;   // from the logits; a schedule that was proposed has no gradient
  bool alone = false;  // nothing was compared with it: it has a weight and no gradient
};
// Logits and Adam's moments that a step moves, and the total of the schedules drawn from them.
struct Ascended {
  uint32_t total;
  google::protobuf::RepeatedField<double>* logits;
  google::protobuf::RepeatedField<double>* first_moment;
  google::protobuf::RepeatedField<double>* second_moment;
};
// Takes the `steps`th step uphill. Fills the weights of what was drawn. Returns |g|^2.
double ascend(const v1::Spec& spec, uint64_t steps, const std::vector<ComparedResult>& results,
              const Ascended& of, google::protobuf::RepeatedField<double>* weights);

// Fills in what follows from record.policy and the policy before it: digest, divergence, entropy.
void describeStep(const v1::PolicySnapshot& before, v1::IterationRecord* record);
// Leaves out what a record holds of each result, and gives its memory back.
void dropResults(v1::IterationRecord* record);

// How far a logit moves for one more in its gradient: from the state after the step.
double stepPerGradient(const v1::Update& update, const v1::AggregatorState& after, int layer);

// A worker is untrusted input: is this result one that this run can have produced? `kData` with the
// reason otherwise. behaviour: the policy of the version that the result names, if it is at hand;
// without it the log-probability and the digest are taken on trust.
Status checkResult(const v1::Experiment& experiment, const v1::AggregatorState& state,
                   const v1::EpisodeResult& result, const v1::PolicySnapshot* behaviour);

// Whether results are weighted by how likely the present policy is to draw their schedules.
bool weighsResults(StalenessMode mode);

// True if staleness.mode is drop and the result is too old for an update of `version`.
bool isStale(const v1::Experiment& experiment, uint64_t version, const v1::EpisodeResult& result);

// Classes of AggregatorState.lag_counts: 0, 1, 2, 3-4, 5-8, ..., 129-256, 257 and more.
constexpr size_t kLagBuckets = 11;
size_t lagBucket(uint64_t lag);
std::string lagBucketLabel(size_t bucket);

// Hex SHA-256 of the snapshot's deterministic bytes.
std::string policyDigest(const v1::PolicySnapshot& policy);

}  // namespace allot
