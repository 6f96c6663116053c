#pragma once
// Confirmations: a schedule is claimed to be better than uniform once it is known to be.
//
// What a search has seen of a schedule only makes it the candidate. Whether it beats uniform is
// asked of questions that no episode has asked before. Some episodes of a question set are fresh
// pairs (core/learning/policy.h): both answer the same new questions, one under uniform and one
// under the candidate. Each question gives one difference of scores. Pairs are taken in the order
// of their numbers, and not of arrival. The candidate is claimed once its lower bound
// (core/learning/betting.h) is above 0. Without a claim the best guess is published
// (core/learning/budget_learning.cpp).
//
// The error of a claim is shared by the whole run. Its k-th confirmation, of whatever total budget,
// has kErrorRate / (k (k + 1)), in sum kErrorRate. So in at most kErrorRate of runs a schedule is
// ever called better than uniform whose mean is not.
//
// Where a price buys no uniform schedule (core/learning/priced_schedule.h), the measured one stands
// for uniform.
//
// A question that was asked and not answered within the reach of late results counts as lost: -1;
// for the upper bound, as won. So a worker gains nothing by silence. What it answers falsely is for
// audits to find; a pair whose candidate was answered under an older policy says nothing and is
// left out.
//
// Pure; any thread.
#include <cstdint>
#include <optional>

#include "allot/v1/policy.pb.h"
#include "allot/v1/result.pb.h"
#include "core/learning/policy.h"
#include "core/learning/schedule.h"

namespace allot {

// The chance that a run ever calls a schedule better than uniform that is not.
inline constexpr double kErrorRate = 0.05;
// Returns the error of the run's `number`th confirmation.
// Requires: number > 0.
double errorOf(uint32_t number);

// What a confirmation has found so far.
struct Evidence {
  uint64_t questions = 0;  // differences, those of lost questions included
  double mean = 0;         // the candidate's score less uniform's
  double mean_error = 0;   // standard error of the mean, for the search alone
  double error = 0;        // of each of the two bounds, over all looks
  double low = -1;
  double high = 1;  // with lost questions as won
};
// Returns the evidence for the candidate. Costs 8 logarithms for each value that came and each of
// 44 steps.
Evidence evidenceOf(const v1::Confirmation& confirmation);

// Begins the confirmation of another candidate: the `number`th of the run. Without a candidate: of
// none. It takes pairs of sets that no result has been seen of. pairs: of a set (freshPairs).
void confirmNext(const SampleSchedule& candidate, uint32_t number, uint32_t pairs,
                 v1::LearnerState* state);

// Adds an episode to the sums of its question set. pair: of the episode, if it is of one.
void countEpisode(const v1::EpisodeResult& result, uint64_t set,
                  const std::optional<FreshPair>& pair, const SampleSchedule& uniform,
                  v1::LearnerState* state);
// Takes the pairs below `end` that are complete, or that are waited for no longer. pairs: of a set.
// questions: of a pair.
void takePairs(uint64_t end, uint32_t pairs, uint32_t questions, v1::LearnerState* state);

// ---- Question sets ----

// The sums of what a set's episodes came to; those of a fresh pair are summed apart. Sets stay open
// for late results, three times as long as results are late, or for kLeastOpenSets sets.
inline constexpr uint64_t kLeastOpenSets = 16;
inline constexpr uint64_t kMostOpenSets = 4096;

// Returns the open sums; adds one with sums of 0 if there is none. The pointer is valid until the
// state's sets change.
v1::QuestionSet* openSet(uint64_t set, const std::optional<FreshPair>& pair,
                         v1::LearnerState* state);
// Removes sets that no result is expected of any more.
void closeOldSets(v1::LearnerState* state);

}  // namespace allot
