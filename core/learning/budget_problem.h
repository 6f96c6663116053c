#pragma once
// What an experiment says of learning at one total budget. Pure; any thread.
#include <cstdint>

#include "allot/v1/experiment.pb.h"
#include "core/learning/additive.h"
#include "core/spec/choices.h"

namespace allot {

AdditiveProblem problemOf(const v1::Spec& spec, uint32_t layers, uint32_t per_layer,
                          uint32_t total_budget);

// Whether a learner keeps logits at each total budget, and the moments of a gradient's steps.
bool hasLogits(Learner learner);
bool hasMoments(Learner learner);

// Proposals of a question set that are the learner's own.
uint32_t ownProposals(const v1::Spec& spec);

}  // namespace allot
