#include "core/learning/trial.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/learning/exact_math.h"
#include "core/learning/policy.h"

namespace allot {
namespace {

// A guess of the variance of one answer's score. Twice that counts as the variance that was found
// in the answers of kPriorPairs sets.
constexpr double kAnswerVariance = 0.2;
constexpr double kPriorPairs = 4;

bool isSame(const google::protobuf::RepeatedField<uint32_t>& candidate,
            const SampleSchedule& schedule) {
  return std::equal(candidate.begin(), candidate.end(), schedule.begin(), schedule.end());
}

}  // namespace

void countEpisode(const v1::EpisodeResult& result, uint64_t number, const SampleSchedule& uniform,
                  v1::LearnerState* state) {
  v1::QuestionSet* set = openSet(number, state);
  set->set_episodes(set->episodes() + 1);
  set->set_rewards(set->rewards() + result.reward());
  v1::Trial& trial = *state->mutable_trial();
  if (trial.candidate().empty()) return;
  const auto count = [&](auto* answers, auto* scores) {
    for (const v1::QuestionScore& score : result.scores()) {
      const auto group = static_cast<int>(score.question() % kQuestionGroups);
      if (answers->size() <= group) answers->Resize(group + 1, 0);
      if (scores->size() <= group) scores->Resize(group + 1, 0.0);
      (*answers)[group] += 1;
      (*scores)[group] += score.score();
    }
  };
  const SampleSchedule schedule = scheduleFrom(result.schedule());
  if (schedule == uniform) count(trial.mutable_uniform_answers(), trial.mutable_uniform_scores());
  if (isSame(trial.candidate(), schedule)) {
    count(trial.mutable_candidate_answers(), trial.mutable_candidate_scores());
  }
}

Verdict verdictOf(const v1::LearnerState& state, uint32_t questions) {
  const v1::Trial& trial = state.trial();
  struct Group {
    double weight, difference;  // pairs of answers, and their mean difference
  };
  std::vector<Group> groups;
  double pairs = 0, sum = 0, squares = 0;  // of weights; of weights squared
  // An unverified export may hold anything.
  const int both = std::min({trial.uniform_answers_size(), trial.uniform_scores_size(),
                             trial.candidate_answers_size(), trial.candidate_scores_size()});
  for (int g = 0; g < both; ++g) {
    const double others = trial.uniform_answers(g), own = trial.candidate_answers(g);
    const double weight = std::min(others, own);
    if (weight == 0) continue;
    groups.push_back({weight, trial.candidate_scores(g) / own - trial.uniform_scores(g) / others});
    pairs += weight;
    sum += weight * groups.back().difference;
    squares += weight * weight;
  }
  if (questions == 0 || pairs < questions) return {};
  const double mean = sum / pairs;
  double spread = 0;
  for (const Group& group : groups) {
    const double off = group.weight * (group.difference - mean);
    spread += off * off;
  }
  // Of one pair of answers. It is larger if the pairs of a question go the same way.
  const double prior = kPriorPairs * questions;
  const double variance =
      (prior * 2 * kAnswerVariance + spread) / (prior + pairs - squares / pairs);
  const double bar = std::sqrt(kBeats * kBeats + 2 * exactLog(std::max(1u, trial.candidates())));
  return {static_cast<uint64_t>(pairs) / questions, mean, std::sqrt(variance / pairs), bar};
}

void tryNext(const SampleSchedule& candidate, v1::LearnerState* state) {
  v1::Trial next;
  next.set_candidates(state->trial().candidates() + (candidate.empty() ? 0 : 1));
  *state->mutable_trial() = next;
  *state->mutable_trial()->mutable_candidate() = {candidate.begin(), candidate.end()};
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

void closeOldSets(v1::LearnerState* state) {
  auto& sets = *state->mutable_sets();
  sets.DeleteSubrange(0, std::max(0, sets.size() - kOpenSets));
}

}  // namespace allot
