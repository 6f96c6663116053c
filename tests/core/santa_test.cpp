// Learner santa: one step against the paper's formula, then whole runs in worlds whose best
// schedule is known (planted_run.h).
#include <algorithm>

#include "core/learning/replay.h"
#include "core/learning/schedule.h"
#include "core/learning/update.h"
#include "core/spec/spec_change.h"
#include "tests/core/planted_run.h"

namespace allot {
namespace {

TEST(Santa, IsAlgorithmOneByHand) {
  const v1::Experiment experiment = experimentOf("{totalBudget: 4}", "{learner: santa}");
  const v1::AggregatorState before = initialState(experiment, 2);
  std::vector<v1::EpisodeResult> results(3);
  const uint32_t schedules[3][2] = {{4, 0}, {1, 3}, {2, 2}};
  const double rewards[] = {1, 0.25, 0.25};  // b = .5
  for (size_t k = 0; k < 3; ++k) {
    for (const uint32_t s : schedules[k]) results[k].add_schedule(s);
    results[k].set_reward(rewards[k]);
    // As if the policy had moved far since: Algorithm 1 does not ask.
    results[k].set_behaviour_log_prob(-20);
  }
  const UpdateOutcome outcome = applyUpdate(experiment, before, results);
  // 1/3 (.5 (2, -2) - .25 (-1, 1) - .25 (0, 0))
  EXPECT_EQ(outcome.state.policy().logits(0), 0.02 * (1.25 / 3));
  EXPECT_EQ(outcome.state.policy().logits(1), -0.02 * (1.25 / 3));
  for (int k = 0; k < 3; ++k) {
    EXPECT_EQ(outcome.record.weights(k), 1);
    EXPECT_EQ(outcome.record.baselines(k), 0.5);
  }
}

TEST(Santa, WhatItLeavesOpenAndWhatNot) {
  const v1::Experiment plain = experimentOf("{totalBudget: 8}", "{learner: santa}");
  const v1::Spec& spec = plain.spec();
  EXPECT_EQ(optimizerOf(spec.update()), Optimizer::kSgd);
  EXPECT_EQ(spec.update().learning_rate(), 0.02);
  EXPECT_EQ(baselineOf(spec.update()), Baseline::kBatchMean);
  EXPECT_EQ(modeOf(spec.staleness()), StalenessMode::kNone);
  EXPECT_FALSE(learnsByBudgets(spec));
  const v1::Experiment faster =
      experimentOf("{totalBudget: 8}", "{learner: santa, learningRate: 0.5, optimizer: sgd}");
  EXPECT_EQ(faster.spec().update().learning_rate(), 0.5);
  const auto refusal = [&](const std::string& setting) {
    return messageOf(withSettings(plain, {setting}));
  };
  EXPECT_EQ(refusal("spec.update.episodesPerUpdate=50"), "");
  EXPECT_THAT(refusal("spec.update.optimizer=adam"),
              HasSubstr("spec.update.optimizer: spec.update.learner santa is Algorithm 1 to the "
                        "letter, which has sgd here: leave this key out, or choose learner "
                        "reinforce"));
  EXPECT_THAT(refusal("spec.update.baseline=leave-one-out"), HasSubstr("has batch-mean here"));
  EXPECT_THAT(refusal("spec.update.entropyBonus=0.1"), HasSubstr("has 0 here"));
  EXPECT_THAT(refusal("spec.staleness.mode=drop"), HasSubstr("has none here"));
  EXPECT_THAT(refusal("spec.policy.totalBudgets=[8, 16]"), HasSubstr("has one total budget here"));
  EXPECT_THAT(refusal("spec.policy.granularity=head"), HasSubstr("has layer here"));
  EXPECT_THAT(refusal("spec.rollout.episodesPerQuestionSet=10"), HasSubstr("has 1 here"));
  // The others' defaults.
  const v1::Spec others = experimentOf("{totalBudget: 8}", "{learner: reinforce}").spec();
  EXPECT_EQ(others.update().learning_rate(), 0.05);
  EXPECT_EQ(others.update().optimizer(), "adam");
  EXPECT_EQ(modeOf(others.staleness()), StalenessMode::kTruncatedIs);
}

// As many results as there are, though no fewer than episodesPerUpdate; others take just that many.
TEST(Santa, AnUpdateOfMoreResultsIsComputedAgain) {
  const auto replayed = [](const char* learner, const std::vector<uint32_t>& more) {
    Learning run(experimentOf("{totalBudget: 8}",
                              std::string("{learner: ") + learner + ", episodesPerUpdate: 5}"),
                 planted, 4);
    for (const uint32_t beyond : more) run.update(beyond);
    return replayRefusal({run.experiment(), run.initial(), false}, run.records(), run.state());
  };
  EXPECT_EQ(replayed("santa", {0, 3, 40, 0, 1}), "");
  EXPECT_THAT(replayed("reinforce", {0, 3}), HasSubstr("8 results instead of 5"));
  Learning run(experimentOf("{totalBudget: 8}", "{learner: santa}"), planted, 4);
  run.update();
  run.records()[0].mutable_results()->RemoveLast();
  Replay replay(run.experiment(), run.initial(), false);
  EXPECT_THAT(replay.next(run.records()[0]), isError(HasSubstr("9 results instead of 10")));
}

// Layers 2 and 6 are worth something together, and two reads each are better than one.
double joint(const SampleSchedule& n) {
  const auto read = [](uint32_t reads) { return reads == 0 ? 0.0 : 1 - 0.5 / reads; };
  return -1.5 + 5 * read(n[2]) * read(n[6]);
}

double jointShare(const SampleSchedule& schedule, uint32_t total) {
  double best = -1e9;
  SampleSchedule begun;
  eachSchedule(8, total, 0, &begun,
               [&](const SampleSchedule& each) { best = std::max(best, joint(each)); });
  const double uniform = probability(joint(uniformSchedule(total, 8)), 0);
  return (probability(joint(schedule), 0) - uniform) / (probability(best, 0) - uniform);
}

// Of ten seeds: how many publish a schedule with .7 or more of the best one's gain over uniform.
int found(const std::string& update, int updates, const World& world,
          double (*share)(const SampleSchedule&, uint32_t)) {
  int runs = 0;
  for (uint64_t seed = 0; seed < 10; ++seed) {
    Learning run(experimentOf("{totalBudget: 8}", update, "{}", seed + 1), world, seed);
    run.updates(updates);
    runs += share(run.published(8), 8) > 0.7 ? 1 : 0;
  }
  return runs;
}

TEST(Santa, FindsWhatIsPlantedIn80000Answers) {
  EXPECT_GE(found("{learner: santa, maxUpdates: 500}", 500, planted, shareOfGain), 9);
  EXPECT_GE(found("{learner: santa, maxUpdates: 500}", 500, joint, jointShare), 9);
}

}  // namespace
}  // namespace allot
