#pragma once
// The trial: no schedule is published that is not known to beat uniform.
//
// In every question set one episode answers under the uniform schedule and one under the candidate,
// so that their difference is free of the questions' difficulty. The candidate is published once
// the mean of these differences is enough standard errors above 0, and given up once it is kLoses
// of them below. The bar is kBeats for the first candidate, as which uniform itself would pass in 7
// of 100 trials of one look, and sqrt(kBeats^2 + 2 ln k) for the k-th, by which a candidate's
// chance to pass by luck falls as 1 / k. Where there is a surrogate, which has heard of all
// episodes, the trial is one of two measurements (core/learning/budget_learning.cpp). Pure; any
// thread.
//
// Episodes of a question set reach the learner in any order and in different updates. Sums are kept
// for the kOpenSets newest sets. Older sets are closed: a later episode of one begins a set of its
// own, and is compared only with episodes that come after it.
#include <cstdint>

#include "allot/v1/policy.pb.h"
#include "core/learning/schedule.h"

namespace allot {

inline constexpr double kBeats = 1.5;
inline constexpr double kLoses = 1.0;
inline constexpr uint64_t kLeastPairs = 2;

// Counts an episode of `set`.
void countEpisode(const SampleSchedule& schedule, const SampleSchedule& uniform, double reward,
                  const v1::Trial& trial, v1::QuestionSet* set);

// What is known of the candidate: over the sets that are closed and those that are open.
struct Verdict {
  uint64_t pairs = 0;
  double mean = 0;      // the candidate's reward above uniform's
  double error = 0;     // its standard error
  double bar = kBeats;  // without a surrogate
  bool beats() const { return pairs >= kLeastPairs && mean > bar * error; }
  bool loses() const { return pairs >= kLeastPairs && mean < -kLoses * error; }
};
Verdict verdictOf(const v1::LearnerState& state, uint32_t questions);

// A set gets no more results.
void closeSet(const v1::QuestionSet& set, v1::Trial* trial);

// Another candidate; empty: none. What the open sets had of the one before is forgotten.
void tryNext(const SampleSchedule& candidate, v1::LearnerState* state);

// Enough for results that are as many updates late as REINFORCE bears.
inline constexpr int kOpenSets = 16;

// Returns the sums of a set, which begin at 0. Valid until the state's sets change.
v1::QuestionSet* openSet(uint64_t number, v1::LearnerState* state);

// Removes the oldest set beyond kOpenSets. Returns false if there is none.
bool closeOldest(v1::LearnerState* state, v1::QuestionSet* closed);

// Closes all sets, in the order of their numbers, and counts their pairs in the trial.
void closeAll(v1::LearnerState* state);

}  // namespace allot
