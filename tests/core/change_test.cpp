// Live settings, replay and the classes of lag.
#include <algorithm>
#include <limits>

#include "core/learning/policy.h"
#include "core/learning/replay.h"
#include "core/learning/update.h"
#include "core/spec/spec.h"
#include "core/spec/spec_change.h"
#include "tests/readme.h"
#include "tests/tiny_experiment.h"

namespace allot {
namespace {

v1::Experiment parsed(const std::vector<std::string>& settings = {}) {
  const std::string text = readSource("experiments/recall-layer-budget/experiment.yaml");
  return valueOf(parseExperiment(text, "test", settings));
}

TEST(SpecChange, TheFileOfAnExperimentParsesToTheSameExperiment) {
  for (const auto& settings : std::vector<std::vector<std::string>>{
           {},
           {"spec.model.path='a \"b\\\\c: {d}'", "spec.update.learningRate=0.1",
            "spec.stop.goal=0.3333333333333333"},
           {"spec.evaluation.schedules=[[1, 2, 5], uniform]", "spec.seed=9223372036854775807"}}) {
    const v1::Experiment experiment = parsed(settings);
    const auto again = valueOf(parseExperiment(experimentYaml(experiment), "again"));
    EXPECT_EQ(specDigest(again), specDigest(experiment)) << experimentYaml(experiment);
  }
  v1::Experiment sweep = parsed({"spec.evaluation.schedules=[uniform]"});
  sweep.mutable_spec()->clear_update();
  EXPECT_EQ(specDigest(*parseExperiment(experimentYaml(sweep), "again")), specDigest(sweep));
}

TEST(SpecChange, EverySettingIsEitherLiveOrRefusedWithReasonAndMend) {
  const v1::Experiment before = parsed();
  size_t live = 0;
  for (const std::string setting :
       {"spec.seed=8", "spec.model.path=other", "spec.task.tasks=[niah]",
        "spec.policy.totalBudget=9", "spec.rollout.episodesPerPull=2", "spec.update.optimizer=sgd",
        "spec.update.baseline=moving-average", "spec.evaluation.budgets=[8]",
        "spec.evaluation.schedules=[uniform]", "spec.update.episodesPerUpdate=11",
        "spec.update.maxUpdates=151", "spec.update.learningRate=0.06",
        "spec.update.entropyBonus=0.1", "spec.staleness.mode=none", "spec.staleness.rhoBar=2",
        "spec.staleness.maxLag=5", "spec.evaluation.everyUpdates=26", "spec.stop.goal=0.5",
        "spec.stop.maxWorkerHours=1"}) {
    const auto after = valueOf(withSettings(before, {setting}));
    const auto changes = specChanges(before, after);
    ASSERT_EQ(changes.size(), 1u) << setting;
    EXPECT_EQ(changes[0].path, setting.substr(0, setting.find('=')));
    const Status allowed = checkLiveChanges(before, after, false);
    EXPECT_EQ(allowed.has_value(), changes[0].live);
    live += changes[0].live;
    if (allowed) continue;
    EXPECT_THAT(allowed,
                isError(ErrorCode::kUsage, AllOf(HasSubstr(changes[0].path + " cannot change from"),
                                                 HasSubstr("allot fork"))));
  }
  EXPECT_EQ(live, 10u);
  const auto faster = withSettings(before, {"spec.update.episodesPerUpdate=11"});
  EXPECT_FALSE(checkLiveChanges(before, *faster, true));
  EXPECT_FALSE(withSettings(before, {"spec.update.learningRate=-1"}));
  EXPECT_FALSE(withSettings(before, {"spec.update.learnRate=1"}));
}

// As a build may have stored it that did not refuse it.
TEST(SpecChange, ARunWithAGoalOutOfReachGoesOnAndOthersGetNone) {
  const v1::Experiment good = parsed({"spec.stop.goal=0.5"});
  v1::Experiment old = good;
  old.mutable_spec()->mutable_evaluation()->clear_budgets();
  old.mutable_spec()->mutable_evaluation()->add_budgets(16);
  EXPECT_EQ(valueOf(withSettings(old, {"spec.update.maxUpdates=151"})).spec().stop().goal(), 0.5);
  EXPECT_TRUE(withSettings(old, {}));
  EXPECT_TRUE(withSettings(old, {"spec.stop.goal=''"}));
  EXPECT_THAT(withSettings(good, {"spec.evaluation.everyUpdates=0"}),
              isError(HasSubstr("spec.stop.goal: it cannot be reached")));
}

TEST(SpecChange, ARunWithATemplateWithoutEffectGoesOnAndOthersGetNone) {
  v1::Experiment old = parsed();
  old.mutable_spec()->mutable_model()->set_chat_template("qwen2");  // of suite recall
  const auto changed = valueOf(withSettings(old, {"spec.update.maxUpdates=151"}));
  EXPECT_EQ(changed.spec().model().chat_template(), "qwen2");
  EXPECT_FALSE(withSettings(parsed(), {"spec.model.chatTemplate=qwen2"}));
}

TEST(SpecChange, AnEditedFileChangesWhatWasEditedInIt) {
  const v1::Experiment file = parsed();
  const v1::Experiment in_force = *withSettings(file, {"spec.update.maxUpdates=200"});
  const v1::Experiment edited =
      *withSettings(file, {"spec.update.learningRate=0.01", "spec.evaluation.budgets=[8]"});
  const v1::Experiment merged = mergeChanges(in_force, file, edited);
  EXPECT_EQ(merged.spec().update().max_updates(), 200u);
  EXPECT_EQ(merged.spec().update().learning_rate(), 0.01);
  EXPECT_EQ(merged.spec().evaluation().budgets_size(), 1);
  EXPECT_EQ(specDigest(mergeChanges(in_force, file, file)), specDigest(in_force));
}

TEST(Lag, ClassesCoverEveryLagOnce) {
  const std::vector<std::string> labels = {"0",     "1",     "2",      "3-4",     "5-8", "9-16",
                                           "17-32", "33-64", "65-128", "129-256", "257+"};
  ASSERT_EQ(labels.size(), kLagBuckets);
  for (size_t bucket = 0; bucket < kLagBuckets; ++bucket) {
    EXPECT_EQ(lagBucketLabel(bucket), labels[bucket]);
  }
  constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();
  for (const auto& [lag, bucket] : std::map<uint64_t, size_t>{{0, 0},
                                                              {1, 1},
                                                              {2, 2},
                                                              {3, 3},
                                                              {4, 3},
                                                              {5, 4},
                                                              {8, 4},
                                                              {9, 5},
                                                              {256, 9},
                                                              {257, 10},
                                                              {kMost, 10}}) {
    EXPECT_EQ(lagBucket(lag), bucket) << lag;
  }
}

// Forty updates over four layers, the reward rising with layer 1's share; lags of up to three.
class ReplayTest : public testing::Test {
 protected:
  ReplayTest()
      : experiment_(
            parsed({"spec.update.episodesPerUpdate=3", "spec.rollout.questionsPerEpisode=4"})),
        initial_(initialState(experiment_, 4)) {
    std::tie(records_, final_) = lateHistory(experiment_, initial_, 40);
  }
  std::string refusal(const std::vector<v1::IterationRecord>& records) const {
    return replayRefusal({experiment_, initial_, false}, records, final_);
  }

  v1::Experiment experiment_;
  v1::AggregatorState initial_, final_;
  std::vector<v1::IterationRecord> records_;
};

TEST_F(ReplayTest, ComputesEveryPolicyAgain) { EXPECT_EQ(refusal(records_), ""); }

TEST_F(ReplayTest, FindsWhateverWasChanged) {
  using Change = std::function<void(std::vector<v1::IterationRecord>&)>;
  const std::vector<std::pair<const char*, Change>> changes = {
      {"update 21:", [](auto& r) { r.erase(r.begin() + 20); }},
      {"update 21:", [](auto& r) { std::swap(r[20], r[21]); }},
      {"update 21:", [](auto& r) { r.insert(r.begin() + 20, r[19]); }},
      {"reward is not the mean", [](auto& r) { r[20].mutable_results(1)->set_reward(0.9); }},
      // (A swap of two results with equal weights computes to the same, and is the same.)
      {"weights",
       [](auto& r) {
         const auto uneven = std::find_if(r.begin(), r.end(), [](const auto& record) {
           return record.weights(0) != record.weights(1);
         });
         uneven->mutable_results()->SwapElements(0, 1);
       }},
      {"was consumed before", [](auto& r) { *r[20].mutable_results(1) = r[19].results(0); }},
      {"instead of 3", [](auto& r) { r[20].mutable_results()->RemoveLast(); }},
      {"computes to policy", [](auto& r) { r[20].mutable_update()->set_learning_rate(0.06); }},
      {"optimizer cannot change", [](auto& r) { r[20].mutable_update()->set_optimizer("sgd"); }},
      {"policy.logits[2]",
       [](auto& r) {
         auto* policy = r[20].mutable_policy();
         policy->set_logits(2, policy->logits(2) + 1e-9);
       }},
      {"mean_reward", [](auto& r) { r[20].set_mean_reward(0.25 + r[20].mean_reward()); }},
      {"weights", [](auto& r) { r[20].set_weights(0, 0.125); }},
      {"log-probability", [](auto& r) { r[20].mutable_results(0)->set_behaviour_log_prob(-1.0); }},
      {"digest", [](auto& r) { r[20].mutable_results(0)->set_policy_sha256("x"); }},
      {"questions are not those", [](auto& r) { r[20].mutable_results(0)->set_ticket(7777); }},
      {"has not been published",
       [](auto& r) { r[20].mutable_results(0)->set_policy_version(21); }}};
  for (const auto& [expected, change] : changes) {
    auto records = records_;
    change(records);
    EXPECT_THAT(refusal(records), HasSubstr(expected));
  }
}

}  // namespace
}  // namespace allot
