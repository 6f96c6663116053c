// Confirmations: which answers count, and in which order; and the tickets that ask for them.
#include "core/learning/confirmation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "core/learning/betting.h"
#include "core/learning/learning_checks.h"
#include "core/learning/policy.h"
#include "tests/core/planted_run.h"

namespace allot {
namespace {

const SampleSchedule kUniform{2, 2}, kCandidate{3, 1}, kOther{1, 3};
constexpr uint32_t kPairs = 2;      // of a set
constexpr uint32_t kQuestions = 4;  // of a pair

// An episode of the `number`th pair, whose answers have these scores.
void answer(v1::LearnerState* state, uint64_t number, bool of_candidate,
            const SampleSchedule& schedule, std::vector<double> scores) {
  v1::EpisodeResult result;
  *result.mutable_schedule() = {schedule.begin(), schedule.end()};
  for (const double score : scores) result.add_scores()->set_score(score);
  countEpisode(result, number / kPairs, FreshPair{number, of_candidate}, kUniform, state);
}
void answerBoth(v1::LearnerState* state, uint64_t number, double above) {
  answer(state, number, false, kUniform, std::vector<double>(kQuestions, 0.25));
  answer(state, number, true, kCandidate, std::vector<double>(kQuestions, 0.25 + above));
}
Evidence taken(v1::LearnerState* state, uint64_t end = 1000) {
  takePairs(end, kPairs, kQuestions, state);
  closeOldSets(state);
  return evidenceOf(state->confirmation());
}

TEST(Confirmation, ItsErrorsSumToThatOfTheRun) {
  double sum = 0;
  for (uint32_t k = 1; k <= 1000; ++k) sum += errorOf(k);
  EXPECT_LT(sum, kErrorRate);
  EXPECT_GT(sum, 0.998 * kErrorRate);
  EXPECT_EQ(errorOf(1), kErrorRate / 2);
}

TEST(Confirmation, CountsADifferenceForEachQuestion) {
  v1::LearnerState state;
  confirmNext(kCandidate, 1, kPairs, &state);
  answer(&state, 0, false, kUniform, {0, 1, 0, 0.5});
  EXPECT_EQ(taken(&state).questions, 0u);
  answer(&state, 0, true, kCandidate, {1, 1, 0, 1});
  const Evidence evidence = taken(&state);
  EXPECT_EQ(evidence.questions, 4u);
  EXPECT_NEAR(evidence.mean, 1.5 / 4, 1e-12);
  EXPECT_EQ(evidence.error, errorOf(1));
  EXPECT_EQ(evidence.low,
            lowerBound({state.confirmation().counts().begin(), state.confirmation().counts().end()},
                       errorOf(1)));
  EXPECT_FALSE(state.confirmation().rounded());
}

// Pairs count in the order of their numbers: those that come first do not decide.
TEST(Confirmation, PairsAreTakenInOrder) {
  v1::LearnerState state;
  confirmNext(kCandidate, 1, kPairs, &state);
  for (uint64_t number = 1; number < 6; ++number) answerBoth(&state, number, 0.5);
  EXPECT_EQ(taken(&state).questions, 0u);
  answerBoth(&state, 0, -0.25);
  EXPECT_EQ(taken(&state).questions, 6 * kQuestions);
  EXPECT_NEAR(taken(&state).mean, (5 * 0.5 - 0.25) / 6, 1e-12);
}

// Answers of before the candidate was named, and of another candidate, say nothing of this one.
TEST(Confirmation, TakesOnlyWhatWasAskedForIt) {
  v1::LearnerState state;
  for (uint64_t number = 0; number < 4; ++number) answerBoth(&state, number, 0.5);
  confirmNext(kCandidate, 2, kPairs, &state);
  EXPECT_EQ(taken(&state).questions, 0u);
  // A worker that has not heard of it yet.
  answer(&state, 4, false, kUniform, {0, 0, 0, 0});
  answer(&state, 4, true, kOther, {1, 1, 1, 1});
  answerBoth(&state, 5, 0.25);
  EXPECT_EQ(taken(&state).questions, kQuestions);
  EXPECT_NEAR(taken(&state).mean, 0.25, 1e-12);
  // Questions are at an end.
  answerBoth(&state, 6, 0.25);
  EXPECT_EQ(taken(&state, 6).questions, kQuestions);
  EXPECT_EQ(taken(&state, 7).questions, 2 * kQuestions);
}

// Who answers only what turns out well gains nothing: the rest counts as lost.
TEST(Confirmation, WhatIsNotAnsweredIsLost) {
  v1::LearnerState state;
  confirmNext(kCandidate, 1, kPairs, &state);
  answer(&state, 0, false, kUniform, {0, 0, 0, 0});  // and never the candidate's
  const uint64_t reach = kLeastOpenSets * kPairs;
  for (uint64_t number = 1; number < reach; ++number) answerBoth(&state, number, 0.5);
  EXPECT_EQ(taken(&state).questions, 0u);
  answerBoth(&state, reach, 0.5);
  EXPECT_EQ(taken(&state).questions, (reach + 1) * kQuestions);
  EXPECT_EQ(state.confirmation().lost(), kQuestions);
  EXPECT_NEAR(taken(&state).mean, (0.5 * static_cast<double>(reach) - 1) / (reach + 1.0), 1e-12);
  // For the upper bound it counts as won: had it been, the bound would be the same.
  v1::Confirmation won = state.confirmation();
  won.set_lost(0);
  won.set_counts(0, 0);
  won.set_counts(kDifferenceValues - 1, won.counts(kDifferenceValues - 1) + kQuestions);
  EXPECT_EQ(taken(&state).high, evidenceOf(won).high);
  EXPECT_LT(taken(&state).low, evidenceOf(won).low);
}

// With many workers results come many sets late; sets stay open for them.
TEST(Confirmation, SetsStayOpenAsLongAsResultsAreLate) {
  v1::LearnerState state;
  confirmNext(kCandidate, 1, kPairs, &state);
  constexpr uint64_t kLate = 200 * kPairs;
  uint64_t lost = 0;
  for (uint64_t number = 0; number < 5 * kLate; ++number) {
    answer(&state, number, false, kUniform, {0, 0, 0, 0});
    if (number >= kLate) answer(&state, number - kLate, true, kCandidate, {1, 1, 1, 1});
    taken(&state);
    if (number == 2 * kLate) lost = state.confirmation().lost();
  }
  // The first results show how late results are.
  EXPECT_EQ(state.confirmation().lost(), lost);
  EXPECT_LE(static_cast<uint64_t>(state.sets_size()), 2 * 2 * kLate);
  EXPECT_GT(evidenceOf(state.confirmation()).questions, 2 * kLate * kQuestions);
}

// ---- Tickets ----

TEST(FreshPairs, AskEachFreshQuestionTwiceAndNothingElse) {
  const auto experiment = experimentOf("{totalBudgets: [8, 16]}", "{episodesPerUpdate: 20}",
                                       "{questionsPerEpisode: 8}");
  v1::Spec spec = experiment.spec();
  spec.mutable_task()->set_confirm_questions(400);
  const v1::PolicySnapshot policy = initialState(experiment, 8).policy();
  std::map<uint32_t, std::vector<std::pair<uint32_t, bool>>> asked;  // by question
  uint64_t others = 0;
  for (uint64_t ticket = 0; ticket < 2000; ++ticket) {
    const auto pair = freshPairOf(spec, policy, ticket);
    const auto questions = questionsOf(spec, policy, ticket);
    EXPECT_EQ(questions.size(), 8u);
    for (const uint32_t question : questions) {
      EXPECT_EQ(question >= 256, pair.has_value());
      if (pair) asked[question].push_back({placeOf(spec, ticket).budget, pair->of_candidate});
    }
    others += pair ? 0 : 1;
  }
  EXPECT_EQ(asked.size(), 400u);
  for (const auto& [question, by] : asked) {
    ASSERT_EQ(by.size(), 2u);
    EXPECT_EQ(by[0].first, by[1].first);
    EXPECT_NE(by[0].second, by[1].second);
  }
  EXPECT_EQ(others, 2000u - 2 * 400 / 8);
}

TEST(FreshPairs, AForkAsksOthers) {
  const auto experiment =
      experimentOf("{totalBudget: 8}", "{learner: additive}", "{questionsPerEpisode: 4}");
  Learning run(experiment, planted, 3);
  run.updates(4);
  const v1::Spec& spec = experiment.spec();
  const v1::Origin origin = originOf(experiment, "01J", run.state());
  const v1::AggregatorState& first = origin.state();
  EXPECT_FALSE(first.policy().frontier().budgets(0).beats_uniform());
  EXPECT_TRUE(first.learners(0).confirmation().candidate().empty());
  std::set<uint32_t> before, after;
  const auto fresh = [&](const v1::PolicySnapshot& policy, uint64_t tickets) {
    std::set<uint32_t> asked;
    for (uint64_t ticket = 0; ticket < tickets; ++ticket) {
      if (!freshPairOf(spec, policy, ticket)) continue;
      for (const uint32_t question : questionsOf(spec, policy, ticket)) asked.insert(question);
    }
    return asked;
  };
  before = fresh(run.state().policy(), 44);  // those of four updates of ten, and some in flight
  after = fresh(first.policy(), 100000);
  EXPECT_FALSE(after.empty());
  EXPECT_EQ(before.size() + after.size(), 4096u);
  for (const uint32_t question : after) EXPECT_FALSE(before.contains(question));
  // A fork with fewer training questions asks none that its origin learned from.
  v1::Experiment fewer = experiment;
  fewer.mutable_spec()->mutable_task()->set_train_questions(128);
  ASSERT_TRUE(checkBudgets(fewer, 8, first));
  for (uint64_t ticket = 0; ticket < 1000; ++ticket) {
    if (!freshPairOf(fewer.spec(), first.policy(), ticket)) continue;
    for (const uint32_t question : questionsOf(fewer.spec(), first.policy(), ticket)) {
      EXPECT_GE(question, first.policy().frontier().asked_before());
    }
  }
  // Of another task or seed nobody knows which questions are new.
  v1::Experiment other = experiment;
  other.mutable_spec()->set_seed(99);
  EXPECT_THAT(messageOf(checkBudgets(other, 8, first)), HasSubstr("keep spec.seed and spec.task"));
  // No file may bring a claim along.
  v1::AggregatorState claiming = first;
  claiming.mutable_policy()->mutable_frontier()->mutable_budgets(0)->set_beats_uniform(true);
  claiming.mutable_policy()->mutable_frontier()->mutable_budgets(0)->mutable_claim();
  EXPECT_FALSE(checkBudgets(experiment, 8, claiming));
  v1::AggregatorState trying = first;
  trying.set_confirmations(1);
  confirmNext(uniformSchedule(8, 8), 1, 1, trying.mutable_learners(0));
  EXPECT_THAT(messageOf(checkBudgets(experiment, 8, trying)), HasSubstr("begun a confirmation"));
}

// Questions of tasks come in turn; each budget is asked of all of them alike.
TEST(FreshPairs, EachBudgetAsksAllTasks) {
  for (const auto& [tasks, count] : {std::pair(2u, 1u), std::pair(6u, 3u), std::pair(4u, 1u)}) {
    v1::Spec spec = experimentOf("{totalBudgets: [8, 16]}", "{episodesPerUpdate: 20}").spec();
    spec.mutable_task()->clear_tasks();
    for (uint32_t t = 0; t < tasks; ++t) spec.mutable_task()->add_tasks(std::to_string(t));
    spec.mutable_task()->set_confirm_questions(4800);
    spec.mutable_rollout()->set_questions_per_episode(count);
    std::map<std::pair<uint32_t, uint32_t>, double> asked;  // by budget and task
    double all = 0;
    for (uint64_t ticket = 0; ticket < 40'000; ++ticket) {
      if (!freshPairOf(spec, {}, ticket)) continue;
      for (const uint32_t question : questionsOf(spec, {}, ticket)) {
        asked[{placeOf(spec, ticket).budget, (question - 256) % tasks}] += 1;
        all += 1;
      }
    }
    EXPECT_EQ(asked.size(), 2 * tasks);
    EXPECT_EQ(all, 9600);
    // Five standard deviations of independent draws: false alarm below 1e-5.
    const double each = all / (2 * tasks);
    for (const auto& [of, number] : asked) EXPECT_NEAR(number, each, 5 * std::sqrt(2 * each));
  }
}

}  // namespace
}  // namespace allot
