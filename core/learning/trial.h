#pragma once
// The trial at a total budget: a schedule is published once it is known to beat uniform.
//
// While there is a candidate, a question set has an episode under the uniform schedule and one
// under the candidate. A question that both have answered is a pair, free of its difficulty.
// Without a surrogate the candidate is published once the mean difference of kLeastPairs or more
// sets is `bar` standard errors above 0, and given up once it is kLoses below. The bar of the first
// candidate is kBeats, which uniform itself would pass in 7 of 100 looks. The bar of the k-th is
// sqrt(kBeats^2 + 2 ln k), so that the chance to pass by luck falls about as 1 / k. With a
// surrogate the trial is one of two measurements (core/learning/budget_learning.cpp). Pure; any
// thread.
//
// The standard error counts questions: sets walk through the same training questions again, and the
// answers to one question share what the schedules are to it. Answers are summed by question number
// modulo kQuestionGroups, which bounds the state.
//
// Episodes of a question set reach the learner in any order and in different updates. After an
// update sums are kept for the kOpenSets newest sets. A later episode of an older set opens it
// anew.
#include <cstdint>

#include "allot/v1/policy.pb.h"
#include "allot/v1/result.pb.h"
#include "core/learning/schedule.h"

namespace allot {

inline constexpr double kBeats = 1.5;
inline constexpr double kLoses = 1.0;
inline constexpr uint64_t kLeastPairs = 2;

// Groups of questions whose answers are summed apart: one for each of as many training questions.
inline constexpr uint32_t kQuestionGroups = 256;

// Adds an episode to the sums of its question set, and to the trial's sums if its schedule is
// `uniform` or the candidate and there is a candidate.
void countEpisode(const v1::EpisodeResult& result, uint64_t set, const SampleSchedule& uniform,
                  v1::LearnerState* state);

// What is known of the candidate.
struct Verdict {
  uint64_t pairs = 0;   // sets with an episode of each
  double mean = 0;      // the candidate's reward less uniform's
  double error = 0;     // standard error of the mean, by group of questions
  double bar = kBeats;  // without a surrogate
  bool beats() const { return pairs >= kLeastPairs && mean > bar * error; }
  bool loses() const { return pairs >= kLeastPairs && mean < -kLoses * error; }
};
// questions: answers whose mean is a reward.
Verdict verdictOf(const v1::LearnerState& state, uint32_t questions);

// Begins the trial of another candidate; empty: of none. Answers until then are forgotten.
void tryNext(const SampleSchedule& candidate, v1::LearnerState* state);

// Most sets that stay open after an update.
inline constexpr int kOpenSets = 16;

// Returns the open set of this number; adds one with sums of 0 if there is none. The pointer is
// valid until the state's sets change.
v1::QuestionSet* openSet(uint64_t number, v1::LearnerState* state);

// Removes the oldest sets beyond kOpenSets.
void closeOldSets(v1::LearnerState* state);

}  // namespace allot
