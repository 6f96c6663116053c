#pragma once
// The policy gradient, and the steps that a policy takes along it.
//
// REINFORCE on the schedule (SANTA paper, Appendix K) with truncated importance weights for results
// of older policies (the paper corrects nothing and is about 49 updates stale):
//   w_i = min(rhoBar, exp(log pi_now(n_i) - log pi_then(n_i)))
//   g   = sum_i w_i (R_i - b_i) (n_i / B - pi) / sum_i w_i  +  entropyBonus * dH/dlogits
// Pure; any thread.
#include <cstdint>
#include <vector>

#include "allot/v1/experiment.pb.h"
#include "allot/v1/policy.pb.h"
#include "allot/v1/result.pb.h"
#include "core/learning/schedule.h"
#include "core/spec/choices.h"

namespace allot {

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

// The entropy of a distribution, in nats.
double entropy(const std::vector<double>& probabilities);

// Returns true if results are weighted by how likely the present policy is to draw their schedules.
bool weighsResults(StalenessMode mode);

}  // namespace allot
