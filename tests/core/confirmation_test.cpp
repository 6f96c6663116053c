// Confirmations: which answers count, in which order, and how often a run claims what is not so.
#include "core/learning/confirmation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <set>

#include "core/learning/betting.h"
#include "core/learning/measured.h"
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
}

// ---- How often a run is wrong ----

struct WorldOf {
  const char* name;
  World world;
};
// Worlds in which no schedule of 32 reads is better than uniform.
std::vector<WorldOf> worldsWithoutGain() {
  const auto sum = [](const SampleSchedule& n, const std::function<double(uint32_t)>& loss) {
    double all = 0;
    for (const uint32_t reads : n) all += loss(reads);
    return all;
  };
  return {
      {"null", [](const SampleSchedule&) { return 1.0; }},
      {"cliff", [](const SampleSchedule& n) { return n == uniformSchedule(32, 8) ? 1.0 : 0.88; }},
      {"flat",
       [sum](const SampleSchedule& n) {
         return 1 - 0.06 * sum(n, [](uint32_t reads) { return reads < 4 ? 4.0 - reads : 0; });
       }},
      {"smooth",
       [sum](const SampleSchedule& n) {
         return 1 -
                0.5 * sum(n, [](uint32_t reads) { return reads > 0 ? 1.0 / reads - 0.25 : 1.5; });
       }},
      {"worst",
       [](const SampleSchedule& n) {
         double worst = 0;
         for (const uint32_t reads : n) worst = std::max(worst, reads > 0 ? 1.0 / reads : 1.6);
         return 1.25 - worst;
       }},
  };
}

double meanReward(const World& world, const SampleSchedule& schedule) {
  double sum = 0;
  for (int question = 0; question < 256; ++question) {
    sum += probability(world(schedule), std::sin(question * 12.9898) * 1.5);
  }
  return sum / 256;
}

// Runs that at any time call a schedule better than uniform that is not.
int falseRuns(const World& world, int runs, int updates, const char* update, const char* rollout) {
  const double uniform = meanReward(world, uniformSchedule(32, 8));
  int wrong = 0;
  for (int r = 0; r < runs; ++r) {
    v1::Experiment experiment =
        experimentOf("{totalBudget: 32}", update, rollout, static_cast<uint64_t>(r) + 1);
    experiment.mutable_spec()->mutable_task()->set_confirm_questions(16384);
    Learning run(experiment, world, static_cast<uint64_t>(r));
    bool claims = false;
    for (int u = 0; u < updates; ++u) {
      run.update();
      claims |= run.state().policy().frontier().budgets(0).beats_uniform() &&
                meanReward(world, run.published(32)) <= uniform + 1e-12;
    }
    wrong += claims ? 1 : 0;
  }
  return wrong;
}

// ALLOT_PUBLICATION_RUNS: in place of 40. A twentieth may be wrong by the promise. In 40 runs more
// than 8 are then wrong in one of 10,000 changes of the seeds; in fact there is none in most
// worlds.
int publicationRuns() {
  const char* given = std::getenv("ALLOT_PUBLICATION_RUNS");
  return given != nullptr ? std::atoi(given) : 40;
}

TEST(Publication, IsRarelyWrongInWorldsWithoutGain) {
  const int runs = publicationRuns();
  const int most = runs / 20 + 6 * runs / 40;
  for (const auto& [name, world] : worldsWithoutGain()) {
    const int wrong = falseRuns(world, runs, 30, "{learner: additive, episodesPerUpdate: 20}",
                                "{questionsPerEpisode: 8}");
    const int later =
        falseRuns(world, runs / 8, 150, "{learner: additive, episodesPerUpdate: 10}", "{}");
    std::printf("%s: %d of %d runs of 30 updates, %d of %d of 150\n", name, wrong, runs, later,
                runs / 8);
    EXPECT_LE(wrong, most) << name;
    EXPECT_LE(later, 3) << name;
  }
}

TEST(Publication, OfAMovingPolicyIsNoOtherRule) {
  const int wrong =
      falseRuns(worldsWithoutGain()[0].world, 20, 30,
                "{learner: reinforce, learningRate: 0.15, episodesPerUpdate: 20, maxUpdates: 300}",
                "{questionsPerEpisode: 8, episodesPerQuestionSet: 20}");
  EXPECT_LE(wrong, 6);  // more by chance in 1 of 10,000
}

// What the layers of the planted world lose, each loss with an error of 30 %.
v1::Measurement plantedLosses(uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> error(0, 0.3);
  constexpr double kLeast = 1e-4;
  v1::Measurement measurement;
  for (const uint32_t reads : kMeasuredReads) {
    for (uint32_t layer = 0; layer < 8; ++layer) {
      const auto loss = [&](double most, double missed) {
        return reads == 0 ? most : missed / reads;
      };
      const double exact = layer == 1   ? loss(2.2, 1.6)
                           : layer == 4 ? loss(2.0, 1.2)
                           : layer == 5 ? loss(0.4, 1.0)
                                        : kLeast;
      v1::LayerLoss& one = *measurement.add_losses();
      one.set_layer(layer);
      one.set_reads(reads);
      one.set_questions(64);
      one.set_steps(640);
      const double of_question = 10 * exact * std::exp(error(random));
      one.set_divergence(64 * of_question);
      one.set_divergence_squared(64 * of_question * of_question);
    }
  }
  return measurement;
}

// What the rule costs: the share of the gain that is published after 4,800 answers, with a first
// candidate that is measured or without one.
TEST(Publication, FindsMostOfTheGainIn4800Answers) {
  const struct {
    uint32_t total;
    bool measured;
    double least;
  } cases[] = {{8, false, 0.92}, {16, false, 0.78}, {8, true, 0.95}, {16, true, 0.8}};
  for (const auto& [total, measured, least] : cases) {
    double sum = 0;
    for (uint64_t seed = 0; seed < 20; ++seed) {
      v1::Experiment experiment = experimentOf("{totalBudget: " + std::to_string(total) + "}",
                                               "{learner: additive}", "{}", seed + 1);
      experiment.mutable_spec()->mutable_task()->set_confirm_questions(4096);
      v1::AggregatorState state = initialState(experiment, 8);
      if (measured) *state.mutable_measurement() = plantedLosses(seed);
      Learning run(experiment, planted, seed, 8, state);
      run.updates(30);
      sum += shareOfGain(run.published(total), total);
    }
    std::printf("%u reads%s: %.3f of the gain\n", total, measured ? ", measured" : "", sum / 20);
    EXPECT_GT(sum / 20, least);
  }
}

// A claim says what its evidence was, and its bounds only narrow.
TEST(Publication, AClaimKeepsItsEvidence) {
  v1::Experiment experiment = experimentOf("{totalBudget: 8}", "{learner: additive}");
  experiment.mutable_spec()->mutable_task()->set_confirm_questions(4096);
  Learning run(experiment, planted, 1);
  v1::Claim before;
  int claims = 0;
  for (int u = 0; u < 40; ++u) {
    run.update();
    const v1::BudgetPolicy& budget = run.state().policy().frontier().budgets(0);
    EXPECT_EQ(budget.beats_uniform(), budget.has_claim());
    if (!budget.has_claim()) continue;
    const v1::Claim& claim = budget.claim();
    EXPECT_GT(claim.low(), 0);
    EXPECT_LE(claim.low(), claim.mean());
    EXPECT_GE(claim.high(), claim.mean());
    EXPECT_EQ(claim.error(), errorOf(claim.confirmation()));
    if (claim.confirmation() == before.confirmation()) {
      EXPECT_GE(claim.low(), before.low());
      EXPECT_LE(claim.high(), before.high());
      EXPECT_GE(claim.questions(), before.questions());
      EXPECT_EQ(claim.version(), before.version());
    } else {
      ++claims;
    }
    before = claim;
  }
  EXPECT_GT(claims, 0);
}

}  // namespace
}  // namespace allot
