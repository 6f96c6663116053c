#pragma once
// Question sets: what the episodes that answered the same questions came to, while more may come.
//
// Episodes of a set reach the learner in any order and in different updates. Sums are kept for the
// newest sets; older ones are closed, and what comes of them later begins a set of its own, which
// tells nothing but to whoever comes with it. Pure; any thread.
#include <cstdint>

#include "allot/v1/policy.pb.h"

namespace allot {

// Enough for results that are as many updates late as REINFORCE bears.
inline constexpr int kOpenSets = 16;

// The set's sums, of nothing if they are not there. Valid until the state's sets change.
v1::QuestionSet* openSet(uint64_t number, v1::LearnerState* state);

// Of the sets beyond kOpenSets, the oldest one, taken out; false if there is none to close.
bool closeOldest(v1::LearnerState* state, v1::QuestionSet* closed);

// Closes all of them, in the order of their numbers (core/learning/trial.h counts what they had).
void closeAll(v1::LearnerState* state);

}  // namespace allot
