#pragma once
// What a policy says: a ticket's schedule and questions, and the published schedules. Pure
// functions, any thread.
//
// Episodes come in question sets: spec.rollout.episodesPerQuestionSet tickets in a row answer the
// same questions. Within a set the tickets take the total budgets in turn. At each budget the first
// tickets of a set use the policy's proposals in order; the others draw from the budget's logits. A
// policy without budgets has no proposals: tickets draw from its logits.
//
// The first episodes of a set at a budget are fresh pairs: two tickets with the same questions,
// which no other ticket of the run asks (core/learning/confirmation.h). The first of them is
// proposed uniform, the second the candidate. The fresh questions are the training questions from
// spec.task.trainQuestions on, spec.task.confirmQuestions of them; of a fork, those that its origin
// has not asked. They are shuffled, so that each budget is asked of all tasks alike. Once all have
// been asked, these tickets answer their set's questions.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "allot/v1/experiment.pb.h"
#include "allot/v1/policy.pb.h"
#include "core/learning/schedule.h"

namespace allot {

inline SampleSchedule scheduleFrom(const google::protobuf::RepeatedField<uint32_t>& samples) {
  return {samples.begin(), samples.end()};
}

// Returns the entries of a layer in the schedules of the policy's total budgets; 1 without budgets.
uint32_t entriesPerLayer(const v1::PolicySnapshot& policy);

// The place of a ticket.
struct TicketPlace {
  uint64_t set = 0;       // number of its question set
  uint32_t budget = 0;    // index in spec.policy.totalBudgets; 0 if that is empty
  uint32_t proposal = 0;  // place among the set's episodes at that budget
};
TicketPlace placeOf(const v1::Spec& spec, uint64_t ticket);

// Returns the episodes of one question set at one total budget.
uint32_t episodesOfSet(const v1::Spec& spec);

// Returns the fresh pairs of one question set at one total budget: a fifth of the number of its
// episodes, and at least one. A pair is two episodes.
uint32_t freshPairs(const v1::Spec& spec);
// Returns the index of the first fresh question. `policy` is any of the run.
uint64_t firstFreshQuestion(const v1::Spec& spec, const v1::PolicySnapshot& policy);
// Returns what names the training questions: equal if a question's index names the same question.
std::string questionsDigest(const v1::Spec& spec);
// Returns how many fresh pairs a budget has questions for. `policy` is any of the run.
uint64_t pairsWithQuestions(const v1::Spec& spec, const v1::PolicySnapshot& policy);

// One of the two episodes of a fresh pair.
struct FreshPair {
  uint64_t number = 0;  // among those of its budget: set * freshPairs() + place in the set
  bool of_candidate = false;
};
// Returns nothing for a ticket that answers the questions of its set.
std::optional<FreshPair> freshPairOf(const v1::Spec& spec, const v1::PolicySnapshot& policy,
                                     uint64_t ticket);

// Returns the training questions of a ticket: those of its fresh pair, or of its question set.
std::vector<uint32_t> questionsOf(const v1::Spec& spec, const v1::PolicySnapshot& policy,
                                  uint64_t ticket);

struct Proposed {
  SampleSchedule schedule;
  double log_probability = 0;  // in nats (logProbability); 0 for one of the policy's proposals
};
// Returns a ticket's schedule under `policy`.
// Requires: the policy is one of this experiment (checkFrontier).
Proposed scheduleOf(const v1::Spec& spec, const v1::PolicySnapshot& policy, uint64_t ticket);

// Returns the published schedule at a total budget. A policy with budgets has one for each: a
// schedule that is confirmed to beat uniform or, without one, the best guess: uniform or measured.
// Another total belongs to the budget whose ratio to it is nearest to 1. It has that budget's
// confirmed schedule, scaled; if that budget has none, it has the uniform schedule. A policy
// without budgets has its learnedSchedule(). With prices no schedule is scaled: a total that is no
// budget has its uniform schedule or, without one, zeros.
SampleSchedule publishedSchedule(const v1::Spec& spec, const v1::PolicySnapshot& policy,
                                 uint32_t total);

// [layers] Returns the draws per head in each layer, the mean over its heads.
// Requires: layers > 0.
std::vector<double> layerDraws(const SampleSchedule& schedule, size_t layers);

// [layers] Returns the softmax of the logits at the `budget`th total budget, summed over a layer's
// heads; without logits the shares of the published schedule, with prices those of its price.
std::vector<double> layerShares(const v1::PolicySnapshot& policy, int budget = 0);

// Returns the SHA-256 of the snapshot's deterministic bytes, in hex.
std::string policyDigest(const v1::PolicySnapshot& policy);

}  // namespace allot
