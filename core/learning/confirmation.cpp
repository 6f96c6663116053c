#include "core/learning/confirmation.h"

#include <algorithm>
#include <cassert>
#include <cmath>

#include "core/learning/betting.h"
#include "core/learning/policy.h"

namespace allot {
namespace {

// How late results are is kept in parts of a set. It follows a later result by a sixteenth of the
// difference and an earlier one by a 64th: of exponential times it is some 1.6 times the mean.
constexpr uint64_t kParts = 256, kRise = 16, kFall = 64;
// Sets stay open for this many times that long: of exponential times 1 result in 120 is later.
constexpr uint64_t kPatience = 3;

uint64_t openSets(const v1::LearnerState& state) {
  return std::clamp(kPatience * state.lateness() / kParts, kLeastOpenSets, kMostOpenSets);
}

// Returns the number of the oldest set that stays open.
uint64_t oldestOpen(const v1::LearnerState& state) {
  const uint64_t open = openSets(state);
  return state.sets_seen() > open ? state.sets_seen() - open : 0;
}

// Notes how far behind the newest set a result comes.
void noteSet(uint64_t set, v1::LearnerState* state) {
  const uint64_t seen = std::max(state->sets_seen(), set + 1);
  state->set_sets_seen(seen);
  const uint64_t late = std::min(seen - 1 - set, kMostOpenSets) * kParts;
  const uint64_t before = state->lateness();
  state->set_lateness(late > before ? before + (late - before) / kRise
                                    : before - (before - late) / kFall);
}

// pair: a fresh pair's number and 1, or 0.
v1::QuestionSet* findSet(uint64_t number, uint64_t pair,
                         google::protobuf::RepeatedPtrField<v1::QuestionSet>& sets) {
  for (v1::QuestionSet& set : sets) {
    if (set.number() == number && set.pair() == pair) return &set;
  }
  return nullptr;
}

void addDifference(double difference, v1::Confirmation* confirmation) {
  auto& counts = *confirmation->mutable_counts();
  if (counts.empty()) counts.Resize(kDifferenceValues, 0);
  const int step = stepOf(difference);
  counts[step] += 1;
  confirmation->set_sum(confirmation->sum() + difference);
  if (differenceAt(step) != difference) confirmation->set_rounded(true);
}

}  // namespace

double errorOf(uint32_t number) {
  assert(number > 0);
  return kErrorRate / (static_cast<double>(number) * (number + 1.0));
}

Evidence evidenceOf(const v1::Confirmation& confirmation) {
  Evidence evidence;
  // An unverified export may hold anything.
  if (confirmation.counts_size() != kDifferenceValues || confirmation.number() == 0) {
    return evidence;
  }
  const DifferenceCounts counts(confirmation.counts().begin(), confirmation.counts().end());
  double squares = 0;
  for (int step = 0; step < kDifferenceValues; ++step) {
    const uint64_t count = counts[static_cast<size_t>(step)];
    evidence.questions += count;
    squares += static_cast<double>(count) * differenceAt(step) * differenceAt(step);
  }
  if (evidence.questions == 0) return {};
  const double questions = static_cast<double>(evidence.questions);
  evidence.error = errorOf(confirmation.number());
  evidence.mean = confirmation.sum() / questions;
  evidence.mean_error =
      std::sqrt(std::max(0.0, squares / questions - evidence.mean * evidence.mean) / questions);
  evidence.low = lowerBound(counts, evidence.error);
  // For the upper bound lost questions count as won.
  DifferenceCounts most = counts;
  const uint64_t lost = std::min(confirmation.lost(), most.front());
  most.front() -= lost;
  most.back() += lost;
  evidence.high = std::min(1.0, upperBound(most, evidence.error) +
                                    (confirmation.rounded() ? 1.0 / kDifferenceSteps : 0));
  return evidence;
}

void confirmNext(const SampleSchedule& candidate, uint32_t number, uint32_t pairs,
                 v1::LearnerState* state) {
  v1::Confirmation next;
  if (!candidate.empty()) {
    *next.mutable_candidate() = {candidate.begin(), candidate.end()};
    next.set_number(number);
    next.set_next_pair(state->sets_seen() * pairs);
  }
  *state->mutable_confirmation() = next;
}

void countEpisode(const v1::EpisodeResult& result, uint64_t number,
                  const std::optional<FreshPair>& pair, const SampleSchedule& uniform,
                  v1::LearnerState* state) {
  noteSet(number, state);
  v1::QuestionSet* set = openSet(number, pair, state);
  set->set_episodes(set->episodes() + 1);
  set->set_rewards(set->rewards() + result.reward());
  if (!pair) return;
  const SampleSchedule wanted =
      pair->of_candidate ? scheduleFrom(state->confirmation().candidate()) : uniform;
  if (scheduleFrom(result.schedule()) != wanted) {
    set->set_other(true);
    return;
  }
  auto& scores = *(pair->of_candidate ? set->mutable_candidate() : set->mutable_uniform());
  scores.Clear();
  for (const v1::QuestionScore& score : result.scores()) scores.Add(score.score());
}

void takePairs(uint64_t end, uint32_t pairs, uint32_t questions, v1::LearnerState* state) {
  v1::Confirmation& confirmation = *state->mutable_confirmation();
  if (confirmation.candidate().empty()) return;
  const uint64_t oldest = oldestOpen(*state);
  for (uint64_t next = confirmation.next_pair(); next < std::min(end, state->sets_seen() * pairs);
       ++next, confirmation.set_next_pair(next)) {
    const v1::QuestionSet* set = findSet(next / pairs, next + 1, *state->mutable_sets());
    if (set != nullptr && set->other()) continue;
    if (set != nullptr && !set->uniform().empty() && set->uniform_size() == set->candidate_size()) {
      for (int i = 0; i < set->uniform_size(); ++i) {
        addDifference(set->candidate(i) - set->uniform(i), &confirmation);
      }
      continue;
    }
    if (next / pairs >= oldest) return;
    for (uint32_t i = 0; i < questions; ++i) addDifference(-1, &confirmation);
    confirmation.set_lost(confirmation.lost() + questions);
  }
}

v1::QuestionSet* openSet(uint64_t number, const std::optional<FreshPair>& pair,
                         v1::LearnerState* state) {
  const uint64_t pair_number = pair ? pair->number + 1 : 0;
  if (v1::QuestionSet* found = findSet(number, pair_number, *state->mutable_sets())) return found;
  auto& sets = *state->mutable_sets();
  v1::QuestionSet* made = sets.Add();
  made->set_number(number);
  made->set_pair(pair_number);
  int place = sets.size() - 1;
  for (; place > 0 && sets[place - 1].number() > number; --place) {
    sets.SwapElements(place, place - 1);
  }
  return sets.Mutable(place);
}

void closeOldSets(v1::LearnerState* state) {
  auto& sets = *state->mutable_sets();
  const uint64_t oldest = oldestOpen(*state);
  const auto open = std::find_if(
      sets.begin(), sets.end(), [&](const v1::QuestionSet& set) { return set.number() >= oldest; });
  sets.erase(sets.begin(), open);
}

}  // namespace allot
