#pragma once
// What a policy says: which schedule a ticket is answered under, on which questions, and which
// schedule is published. Pure functions, any thread.
//
// Episodes come in question sets: `rollout.episodesPerQuestionSet` tickets in a row answer the same
// questions. Within a set tickets go round the total budgets, and at each budget through the
// policy's proposals in order.
#include <cstdint>
#include <string>
#include <vector>

#include "allot/v1/experiment.pb.h"
#include "allot/v1/policy.pb.h"
#include "core/learning/schedule.h"

namespace allot {

// Entries that a layer has in the schedules of its total budgets.
uint32_t entriesPerLayer(const v1::PolicySnapshot& policy);

// Where a ticket belongs.
struct TicketPlace {
  uint64_t set = 0;       // of questions
  uint32_t budget = 0;    // index in spec.policy.totalBudgets
  uint32_t proposal = 0;  // place among the set's episodes at that budget
};
TicketPlace placeOf(const v1::Spec& spec, uint64_t ticket);

// Episodes of one set at one budget.
uint32_t episodesOfSet(const v1::Spec& spec);

// The training questions of a ticket: those of its set.
std::vector<uint32_t> questionsOf(const v1::Spec& spec, uint64_t ticket);

// A ticket's schedule under `policy`, and the logarithm of its probability in nats (0 where it is a
// proposal). Requires a policy of this experiment.
struct Proposed {
  SampleSchedule schedule;
  double log_probability = 0;
};
Proposed scheduleOf(const v1::Spec& spec, const v1::PolicySnapshot& policy, uint64_t ticket);

// The learned schedule at a total budget; at one that was not learned, that of the nearest one in
// proportion, scaled.
SampleSchedule publishedSchedule(const v1::Spec& spec, const v1::PolicySnapshot& policy,
                                 uint32_t total);

// Draws per head in each layer, in the mean over its heads. Requires layers > 0. [layers]
std::vector<double> layerDraws(const SampleSchedule& schedule, size_t layers);

// Each layer's share of the reads at the `budget`th total budget, as curves show it: the softmax
// where schedules are drawn from one, else the published schedule's shares; of all its heads
// together. [layers]
std::vector<double> layerShares(const v1::PolicySnapshot& policy, int budget = 0);

// Hex SHA-256 of the snapshot's deterministic bytes.
std::string policyDigest(const v1::PolicySnapshot& policy);

}  // namespace allot
