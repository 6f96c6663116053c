// The worker's engine on the real model: dense accuracy, and results that depend on nothing but
// what was asked.
#include "worker/engine.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <sstream>

#include "core/policy_gradient.h"
#include "core/spec.h"

namespace allot {
namespace {

const std::string kModel = std::string(ALLOT_SOURCE_DIR) + "/experiments/models/recall-7m";

v1::Experiment experiment(const std::vector<std::string>& set) {
  const std::string path =
      std::string(ALLOT_SOURCE_DIR) + "/experiments/recall-layer-budget/experiment.yaml";
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  auto parsed = parseExperiment(text.str(), path, set);
  EXPECT_TRUE(parsed) << parsed.error().message;
  return *parsed;
}

std::unique_ptr<Engine> load(const v1::Experiment& e, size_t kv_mib) {
  auto engine = Engine::load(e, {.model_folder = kModel, .kv_bytes = kv_mib << 20});
  EXPECT_TRUE(engine) << engine.error().message;
  return std::move(*engine);
}

TEST(Engine, DenseAccuracyAt512TokensIsThatOfTheModel) {
  const auto e = experiment({"spec.seed=1", "spec.task.tasks=[niah, multi, track]",
                             "spec.task.trainQuestions=16", "spec.task.heldOutQuestions=300"});
  const auto engine = load(e, 512);
  std::map<std::string, double> right;
  for (uint32_t first = 0; first < 300; first += 50) {
    v1::EvaluationUnit unit;
    unit.set_method("dense");
    unit.set_first_question(first);
    unit.set_question_count(50);
    const auto result = engine->evaluate(unit);
    ASSERT_TRUE(result) << result.error().message;
    for (const auto& score : result->scores()) {
      right[engine->dataset().held_out[score.question()].task] += score.score();
    }
  }
  ASSERT_EQ(right.size(), 3u);
  for (const auto& [task, count] : right) EXPECT_GE(count, 99) << task << " of 100";
}

TEST(Engine, AnEpisodeIsTheSameAloneTogetherAndWithoutMemoryToSpare) {
  const auto e = experiment({"spec.task.contextTokens=192", "spec.task.trainQuestions=64",
                             "spec.task.heldOutQuestions=8"});
  const auto roomy = load(e, 512);
  const auto cramped = load(e, 60);  // holds two episodes' prompts and no more
  const auto policy = initialState(e, 8).policy();
  const auto together = roomy->rollOut(policy, "x", {0, 1, 2, 3});
  ASSERT_TRUE(together) << together.error().message;
  for (uint64_t ticket : {3, 0, 2, 1, 3}) {
    for (Engine* engine : {roomy.get(), cramped.get()}) {
      const auto alone = engine->rollOut(policy, "x", {ticket});
      ASSERT_TRUE(alone) << alone.error().message;
      const v1::EpisodeResult &a = alone->front(), &b = (*together)[ticket];
      EXPECT_EQ(a.reward(), b.reward());
      EXPECT_EQ(a.counts().draws(), b.counts().draws());
      EXPECT_EQ(a.counts().unique_rows(), b.counts().unique_rows());
      for (int i = 0; i < a.scores_size(); ++i) {
        EXPECT_EQ(a.scores(i).SerializeAsString(), b.scores(i).SerializeAsString());
      }
      v1::EpisodeResult named = a;
      named.set_result_id("r");
      named.set_policy_sha256(policyDigest(policy));
      EXPECT_TRUE(checkResult(e, initialState(e, 8), named, &policy));
      // 8 draws over the layers, each head, each decoded token but the first.
      EXPECT_EQ(a.counts().draws(), a.counts().decode_steps() * 8 * 8);
    }
  }
}

TEST(Engine, RefusesUnitsThatDoNotFit) {
  const auto e = experiment({"spec.task.contextTokens=192", "spec.task.trainQuestions=16",
                             "spec.task.heldOutQuestions=8"});
  const auto engine = load(e, 128);
  v1::EvaluationUnit unit;
  unit.set_method("s2anta-sys");
  unit.set_first_question(4);
  unit.set_question_count(5);
  for (int l = 0; l < 8; ++l) unit.add_schedule(1);
  EXPECT_FALSE(engine->evaluate(unit));
  unit.set_question_count(4);
  EXPECT_TRUE(engine->evaluate(unit));
  unit.add_schedule(1);
  EXPECT_FALSE(engine->evaluate(unit));
  unit.set_method("nonsense");
  EXPECT_FALSE(engine->evaluate(unit));
}

TEST(Engine, TooLittleMemoryIsSaidNotDied) {
  const auto e = experiment({"spec.task.contextTokens=192", "spec.task.trainQuestions=16",
                             "spec.task.heldOutQuestions=8"});
  const auto engine = load(e, 8);
  const auto result = engine->rollOut(initialState(e, 8).policy(), "x", {0});
  ASSERT_FALSE(result);
  EXPECT_NE(result.error().message.find("--kv-memory"), std::string::npos);
}

}  // namespace
}  // namespace allot
