// What updates require of their callers: each violation ends the process at the border, and not as
// a wrong policy some updates later.
#include <cmath>
#include <functional>

#include "core/learning/additive.h"
#include "core/learning/budget_learning.h"
#include "core/learning/gradient.h"
#include "core/learning/history_summary.h"
#include "core/learning/learning_checks.h"
#include "core/learning/logistic_update.h"
#include "core/learning/policy.h"
#include "core/learning/replay.h"
#include "core/learning/update.h"
#include "tests/core/planted_run.h"

namespace allot {
namespace {

// A run of one policy, and one with two budgets, with a result each.
struct PlantedRun {
  explicit PlantedRun(const char* policy, const char* update)
      : run(experimentOf(policy, update), planted, 1), state(run.state()) {
    results = {run.episode(state.policy(), 0), run.episode(state.policy(), 1)};
  }
  void apply() { applyUpdate(run.experiment(), state, results); }

  Learning run;
  v1::AggregatorState state;
  std::vector<v1::EpisodeResult> results;
};

void expectDeath(const std::function<void(PlantedRun*)>& change) {
  for (const char* policy : {"{totalBudget: 8}", "{totalBudgets: [8, 16]}"}) {
    PlantedRun run(policy, "{learner: reinforce}");
    run.apply();  // as it is, nothing is wrong
    change(&run);
    EXPECT_DEATH(run.apply(), "Assertion") << policy;
  }
}

TEST(BordersDeathTest, AnUpdateNeedsResultsOfItsPolicyOrAnOlderOne) {
  expectDeath([](PlantedRun* run) { run->results.clear(); });
  expectDeath([](PlantedRun* run) { run->results[1].set_policy_version(1); });
  expectDeath([](PlantedRun* run) { run->results[0].add_schedule(0); });
  expectDeath([](PlantedRun* run) { run->results[0].set_reward(NAN); });
  expectDeath([](PlantedRun* run) { run->results[0].set_behaviour_log_prob(-INFINITY); });
  expectDeath([](PlantedRun* run) { run->results[0].set_behaviour_log_prob(0.5); });
}

TEST(BordersDeathTest, AnUpdateNeedsAStateWhosePartsFit) {
  expectDeath([](PlantedRun* run) { run->state.mutable_policy()->clear_logits(); });
  expectDeath([](PlantedRun* run) { run->state.add_first_moment(0); });
  expectDeath([](PlantedRun* run) { run->state.mutable_second_moment()->RemoveLast(); });
  expectDeath([](PlantedRun* run) { run->state.add_learners(); });
  expectDeath([](PlantedRun* run) { run->state.clear_lag_counts(); });
  PlantedRun run("{totalBudget: 8}", "{learner: reinforce}");
  run.state.clear_first_moment();
  EXPECT_DEATH(originOf(run.run.experiment(), "01J", run.state), "Assertion");
}

TEST(BordersDeathTest, WhatAnUpdateGivesIsFinite) {
  PlantedRun run("{totalBudget: 8}", "{learner: reinforce}");
  run.state.mutable_policy()->set_logits(0, NAN);
  EXPECT_DEATH(run.apply(), "Assertion");
}

TEST(BordersDeathTest, AStepNeedsMomentsOfItsLogits) {
  const v1::Spec spec = experimentOf("{totalBudget: 8}", "{learner: reinforce}").spec();
  google::protobuf::RepeatedField<double> logits, first, second, weights;
  for (auto* each : {&logits, &first, &second}) each->Resize(3, 0.0);
  const auto step = [&](uint64_t steps) {
    ascend(spec, steps, {}, {8, &logits, &first, &second}, &weights);
  };
  step(1);
  EXPECT_DEATH(step(0), "Assertion");
  first.Add(0);
  EXPECT_DEATH(step(1), "Assertion");
  first.RemoveLast();
  second.RemoveLast();
  EXPECT_DEATH(step(1), "Assertion");
  EXPECT_DEATH(policyGradient(spec, logits, 8, {{{4, 4}, 1, 1}}), "Assertion");
}

TEST(BordersDeathTest, SchedulesFitTheModel) {
  EXPECT_DEATH(softmax({}), "Assertion");
  EXPECT_DEATH(drawSchedule({0.5, 0.5}, 3, 2, {1}, 0), "Assertion");
  EXPECT_DEATH(logProbability({1, 2}, {0, 0, 0}, 0), "Assertion");
  EXPECT_DEATH(uniformSchedule(8, 0), "Assertion");
  EXPECT_DEATH(uniformSchedule(8, 2, 0), "Assertion");
  EXPECT_DEATH(learnedSchedule({0.5, 0.5}, 8, 2, 3), "Assertion");
  EXPECT_DEATH(scaledSchedule({0, 0}, 8), "Assertion");
  EXPECT_DEATH(oneHotSchedule(8, 4, 4), "Assertion");
  const auto nothing = [](uint32_t, uint32_t) { return 0.0; };
  EXPECT_DEATH(bestSchedule(0, 8, 0, nothing), "Assertion");
  EXPECT_DEATH(bestSchedule(4, 7, 2, nothing), "Assertion");
  EXPECT_DEATH(layerDraws({1, 2}, 0), "Assertion");
}

TEST(BordersDeathTest, ASurrogateNeedsSchedulesAndSumsOfItsProblem) {
  const v1::Spec spec = experimentOf("{totalBudget: 8, minPerLayer: 2}", "{}").spec();
  EXPECT_DEATH(problemOf(spec, 5, 1, 8), "Assertion");
  EXPECT_DEATH(problemOf(spec, 0, 1, 8), "Assertion");
  EXPECT_DEATH(problemOf(spec, 4, 0, 8), "Assertion");
  const AdditiveProblem problem = problemOf(spec, 4, 1, 16);
  v1::LearnerState state;
  beginAdditive(problem, &state);
  EXPECT_DEATH(observe(problem, {{{4, 4, 8}, 1, 0}}, &state), "Assertion");
  EXPECT_DEATH(observe(problem, {{{4, 4, 4, 8}, 1, 0}}, &state), "Assertion");
  state.add_evidence(0);
  EXPECT_DEATH(observe(problem, {}, &state), "Assertion");
  EXPECT_DEATH(AdditivePosterior(problem, state), "Assertion");
}

TEST(BordersDeathTest, TrianglesHaveTheSizeOfTheirVectors) {
  EXPECT_DEATH(factorOf({1, 0}, 2), "Assertion");
  std::vector<double> y{1, 1};
  EXPECT_DEATH(solveLower({1}, &y), "Assertion");
  EXPECT_DEATH(solveUpper({1, 0, 1, 0, 0, 1}, &y), "Assertion");
}

TEST(BordersDeathTest, ABudgetIsLearnedIntoARecordOfAllResults) {
  PlantedRun run("{totalBudgets: [8, 16]}", "{learner: additive}");
  v1::IterationRecord record;
  EXPECT_DEATH(learnBudget(run.run.experiment(), run.results, 0, &run.state, &record), "Assertion");
  record.mutable_weights()->Resize(2, 1.0);
  EXPECT_DEATH(learnBudget(run.run.experiment(), run.results, 0, &run.state, &record), "Assertion");
}

TEST(BordersDeathTest, TicketsBelongToABudgetOfThePolicy) {
  PlantedRun run("{totalBudgets: [8, 16]}", "{learner: additive}");
  run.state.mutable_policy()->mutable_frontier()->mutable_budgets()->RemoveLast();
  EXPECT_DEATH(scheduleOf(run.run.experiment().spec(), run.state.policy(), 1), "Assertion");
}

TEST(BordersDeathTest, AStepIsOfOneModel) {
  PlantedRun run("{totalBudget: 8}", "{learner: reinforce}");
  v1::IterationRecord record;
  *record.mutable_policy() = run.state.policy();
  record.mutable_policy()->add_logits(0);
  EXPECT_DEATH(describeStep(run.state.policy(), &record), "Assertion");
}

TEST(BordersDeathTest, AHistoryHasAnOrderAndAReplayAWindow) {
  HistorySample sample;
  v1::IterationRecord record;
  record.set_version(2);
  sample.add(record);
  EXPECT_DEATH(sample.add(record), "Assertion");
  PlantedRun run("{totalBudget: 8}", "{learner: reinforce}");
  EXPECT_DEATH(Replay(run.run.experiment(), run.state, false, 0), "Assertion");
}

// Stores and exports are no callers: what they hold is refused with a sentence before an update
// requires it.
TEST(Borders, AStateFromOutsideIsRefused) {
  for (const char* policy : {"{totalBudget: 8}", "{totalBudgets: [8, 16]}"}) {
    const PlantedRun run(policy, "{learner: reinforce}");
    const auto refusal = [&](const std::function<void(v1::AggregatorState*)>& change) {
      v1::AggregatorState state = run.state;
      change(&state);
      return messageOf(checkLearners(run.run.experiment(), 8, state));
    };
    EXPECT_EQ(refusal([](auto*) {}), "");
    for (const std::function<void(v1::AggregatorState*)>& change :
         std::vector<std::function<void(v1::AggregatorState*)>>{
             [](auto* state) { state->mutable_policy()->add_logits(0); },
             [](auto* state) { state->mutable_policy()->set_logits(0, NAN); },
             [](auto* state) { state->clear_first_moment(); },
             [](auto* state) { state->set_first_moment(1, INFINITY); },
             [](auto* state) { state->add_second_moment(0); },
             [](auto* state) { state->set_second_moment(1, -1); },
             [](auto* state) { state->add_lag_counts(0); },
             [](auto* state) { state->set_moving_baseline(NAN); }}) {
      EXPECT_EQ(refusal(change), "its state does not fit a model of 8 layers") << policy;
    }
  }
}

// A fork's file may ask for more in each layer than its origin's budget has.
TEST(Borders, AStateBelowTheLeastOfItsFileIsRefused) {
  const PlantedRun run("{totalBudgets: [8, 16]}", "{learner: additive}");
  const auto file = experimentOf("{totalBudgets: [8, 16], minPerLayer: 2}", "{learner: additive}");
  EXPECT_THAT(checkLearners(file, 8, run.state),
              isError("its policy is not one of its experiment: at total budget 8"));
}

}  // namespace
}  // namespace allot
