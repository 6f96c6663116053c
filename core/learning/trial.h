#pragma once
// The trial at a total budget: a schedule is published once it is known to beat uniform.
//
// While there is a candidate, each question set has an episode under the uniform schedule and one
// under the candidate. The difference of their rewards is a pair, free of the questions'
// difficulty. Without a surrogate the candidate is published once the mean of kLeastPairs or more
// pairs is `bar` standard errors above 0, and given up once that mean is kLoses standard errors
// below 0. The bar of the first candidate is kBeats. A candidate as good as uniform passes that bar
// in 7 of 100 looks. The bar of the k-th candidate is sqrt(kBeats^2 + 2 ln k), so that the chance
// to pass by luck falls about as 1 / k. With a surrogate the trial is one of two measurements
// (core/learning/budget_learning.cpp). Pure; any thread.
//
// Episodes of a question set reach the learner in any order and in different updates. After an
// update sums are kept for the kOpenSets newest sets; older sets are closed. A later episode of a
// closed set opens it anew.
#include <cstdint>

#include "allot/v1/policy.pb.h"
#include "core/learning/schedule.h"

namespace allot {

inline constexpr double kBeats = 1.5;
inline constexpr double kLoses = 1.0;
inline constexpr uint64_t kLeastPairs = 2;

// Adds an episode to the sums of its question set: to those of all episodes, and to those of
// uniform, or of the trial's candidate, if `schedule` is that one.
void countEpisode(const SampleSchedule& schedule, const SampleSchedule& uniform, double reward,
                  const v1::Trial& trial, v1::QuestionSet* set);

// What is known of the candidate, from closed and open sets.
struct Verdict {
  uint64_t pairs = 0;   // sets with episodes of both schedules
  double mean = 0;      // the candidate's reward less uniform's
  double error = 0;     // standard error of the mean
  double bar = kBeats;  // used without a surrogate only
  bool beats() const { return pairs >= kLeastPairs && mean > bar * error; }
  bool loses() const { return pairs >= kLeastPairs && mean < -kLoses * error; }
};
// questions: answers whose mean is a reward.
Verdict verdictOf(const v1::LearnerState& state, uint32_t questions);

// Adds the pair of a set, if it has one, to the trial.
void closeSet(const v1::QuestionSet& set, v1::Trial* trial);

// Begins the trial of another candidate, or of none if `candidate` is empty. Pairs of the previous
// candidate are forgotten.
void tryNext(const SampleSchedule& candidate, v1::LearnerState* state);

// Most sets that stay open after an update.
inline constexpr int kOpenSets = 16;

// Returns the open set of this number; adds one with sums of 0 if there is none. The pointer is
// valid until the state's sets change.
v1::QuestionSet* openSet(uint64_t number, v1::LearnerState* state);

// If more than kOpenSets sets are open, moves the oldest one to `closed` and returns true. Else
// returns false.
bool closeOldest(v1::LearnerState* state, v1::QuestionSet* closed);

// Closes all sets in the order of their numbers.
void closeAll(v1::LearnerState* state);

}  // namespace allot
