#include "core/learning/trial.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/learning/exact_math.h"

namespace allot {
namespace {

// A guess of the variance of one answer's score. Twice that, over the number of questions, counts
// as the variance of kPriorPairs pairs.
constexpr double kAnswerVariance = 0.2;
constexpr double kPriorPairs = 4;

struct Sums {
  uint64_t pairs = 0;
  double difference = 0;
  double squared = 0;
};

void addPair(const v1::QuestionSet& set, Sums* sums) {
  if (set.uniform_episodes() == 0 || set.candidate_episodes() == 0) return;
  const double difference = set.candidate_rewards() / set.candidate_episodes() -
                            set.uniform_rewards() / set.uniform_episodes();
  ++sums->pairs;
  sums->difference += difference;
  sums->squared += difference * difference;
}

bool isSame(const google::protobuf::RepeatedField<uint32_t>& candidate,
            const SampleSchedule& schedule) {
  return std::equal(candidate.begin(), candidate.end(), schedule.begin(), schedule.end());
}

}  // namespace

void countEpisode(const SampleSchedule& schedule, const SampleSchedule& uniform, double reward,
                  const v1::Trial& trial, v1::QuestionSet* set) {
  set->set_episodes(set->episodes() + 1);
  set->set_rewards(set->rewards() + reward);
  if (schedule == uniform) {
    set->set_uniform_episodes(set->uniform_episodes() + 1);
    set->set_uniform_rewards(set->uniform_rewards() + reward);
  }
  if (isSame(trial.candidate(), schedule)) {
    set->set_candidate_episodes(set->candidate_episodes() + 1);
    set->set_candidate_rewards(set->candidate_rewards() + reward);
  }
}

Verdict verdictOf(const v1::LearnerState& state, uint32_t questions) {
  const v1::Trial& trial = state.trial();
  Sums sums{trial.pairs(), trial.difference(), trial.squared_difference()};
  for (const v1::QuestionSet& set : state.sets()) addPair(set, &sums);
  if (sums.pairs == 0) return {};
  const auto pairs = static_cast<double>(sums.pairs);
  const double mean = sums.difference / pairs;
  const double spread = std::max(0.0, sums.squared - pairs * mean * mean);
  const double expected = 2 * kAnswerVariance / questions;
  const double variance = (kPriorPairs * expected + spread) / (kPriorPairs + pairs - 1);
  const double bar = std::sqrt(kBeats * kBeats + 2 * exactLog(std::max(1u, trial.candidates())));
  return {sums.pairs, mean, std::sqrt(variance / pairs), bar};
}

void closeSet(const v1::QuestionSet& set, v1::Trial* trial) {
  Sums sums{trial->pairs(), trial->difference(), trial->squared_difference()};
  addPair(set, &sums);
  trial->set_pairs(sums.pairs);
  trial->set_difference(sums.difference);
  trial->set_squared_difference(sums.squared);
}

void tryNext(const SampleSchedule& candidate, v1::LearnerState* state) {
  v1::Trial next;
  next.set_candidates(state->trial().candidates() + (candidate.empty() ? 0 : 1));
  *state->mutable_trial() = next;
  *state->mutable_trial()->mutable_candidate() = {candidate.begin(), candidate.end()};
  for (v1::QuestionSet& set : *state->mutable_sets()) {
    set.clear_candidate_episodes();
    set.clear_candidate_rewards();
  }
}

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
