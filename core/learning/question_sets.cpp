#include "core/learning/question_sets.h"

#include <utility>

#include "core/learning/trial.h"

namespace allot {

v1::QuestionSet* openSet(uint64_t number, v1::LearnerState* state) {
  auto& sets = *state->mutable_sets();
  for (v1::QuestionSet& set : sets) {
    if (set.number() == number) return &set;
  }
  v1::QuestionSet* made = sets.Add();
  made->set_number(number);
  int place = sets.size() - 1;
  for (; place > 0 && sets[place - 1].number() > number; --place) {
    sets.SwapElements(place, place - 1);
  }
  return sets.Mutable(place);
}

bool closeOldest(v1::LearnerState* state, v1::QuestionSet* closed) {
  auto& sets = *state->mutable_sets();
  if (sets.size() <= kOpenSets) return false;
  *closed = std::move(sets[0]);
  sets.DeleteSubrange(0, 1);
  return true;
}

void closeAll(v1::LearnerState* state) {
  for (const v1::QuestionSet& set : state->sets()) closeSet(set, state->mutable_trial());
  state->clear_sets();
}

}  // namespace allot
