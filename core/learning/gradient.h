#pragma once
// The policy gradient, and the steps that a policy takes along it.
//
// REINFORCE on the schedule (SANTA paper, Appendix K), with truncated importance weights for
// results of older policies if spec.staleness.mode is truncated-is:
//   w_i = min(rhoBar, exp(log pi_now(n_i) - log pi_then(n_i)))
//   g   = sum_i w_i (R_i - b_i) ((n_i - m) / N - pi) / sum_i w_i  +  entropyBonus * dH/dlogits
// n_i, R_i and b_i are schedule, reward and baseline of result i, pi = softmax(logits), H the
// entropy of pi, m = minPerLayer, and N the draws beyond the minima. Learner santa has n_i - m - N
// pi in the bracket. Pure; any thread.
#include <cstdint>
#include <vector>

#include "allot/v1/experiment.pb.h"
#include "allot/v1/policy.pb.h"
#include "allot/v1/result.pb.h"
#include "core/learning/schedule.h"
#include "core/spec/choices.h"

namespace allot {

struct GradientTerm {
  SampleSchedule schedule;
  double weight = 1;
  double advantage = 0;  // reward less the baseline
};
// [logits] Returns g for schedules that sum to `total`.
std::vector<double> policyGradient(const v1::Spec& spec,
                                   const google::protobuf::RepeatedField<double>& logits,
                                   uint32_t total, const std::vector<GradientTerm>& terms);

struct ComparedResult {
  const v1::EpisodeResult* result;
  int index;           // among the update's results
  double advantage;    // reward less the baseline
  bool drawn = true;   // from the logits; a proposed schedule keeps weight 1 and has no gradient
  bool alone = false;  // nothing to compare it with: it has a weight and no gradient
};
// What a step moves: logits and Adam's moments. total: the sum of a schedule drawn from the logits.
struct Ascended {
  uint32_t total;
  google::protobuf::RepeatedField<double>* logits;
  google::protobuf::RepeatedField<double>* first_moment;
  google::protobuf::RepeatedField<double>* second_moment;
};
// Takes step number `steps` uphill. Writes the weights of drawn results to `weights`, at
// ComparedResult::index. Returns |g|^2.
// Requires: steps > 0, and moments as long as the logits.
double ascend(const v1::Spec& spec, uint64_t steps, const std::vector<ComparedResult>& results,
              const Ascended& of, google::protobuf::RepeatedField<double>* weights);

// Returns the entropy of a distribution in nats.
double entropy(const std::vector<double>& probabilities);

}  // namespace allot
