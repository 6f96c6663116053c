// The worker's engine on the real model: dense accuracy, and results that depend on nothing but
// what was asked.
#include "worker/engine/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <sstream>

#include "core/evaluation/evaluation_check.h"
#include "core/learning/learning_checks.h"
#include "core/learning/policy.h"
#include "core/learning/update.h"
#include "core/spec/spec.h"
#include "tests/temp_folder.h"

namespace allot {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

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

// All of a result but the clock.
v1::EvaluationResult timeless(v1::EvaluationResult result) {
  result.clear_seconds();
  result.mutable_counts()->clear_prefill_seconds();
  result.mutable_counts()->clear_decode_seconds();
  result.mutable_prefill()->clear_seconds();
  result.mutable_prefill()->clear_selection_seconds();
  return result;
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
      const std::string& task = engine->dataset().held_out[score.question()].task;
      EXPECT_EQ(e.spec().task().tasks(static_cast<int>(score.task())), task);
      right[task] += score.score();
    }
  }
  ASSERT_EQ(right.size(), 3u);
  for (const auto& [task, count] : right) EXPECT_GE(count, 99) << task << " of 100";
}

class EngineByKvDtype : public testing::TestWithParam<const char*> {
 protected:
  // MiB for so many in float32.
  static size_t mib(size_t of_float32) {
    return std::string(GetParam()) == "bfloat16" ? of_float32 / 2 : of_float32;
  }
};

TEST_P(EngineByKvDtype, AnEpisodeIsTheSameAloneTogetherAndWithoutMemoryToSpare) {
  const auto e =
      experiment({"spec.task.contextTokens=192", "spec.task.trainQuestions=64",
                  "spec.task.heldOutQuestions=8", std::string("spec.model.kvDtype=") + GetParam()});
  const auto roomy = load(e, 512);
  const auto cramped = load(e, mib(60));   // holds two episodes' prompts and no more
  const auto wretched = load(e, mib(12));  // not even one's: its questions are asked in parts
  const auto policy = initialState(e, 8).policy();
  const auto together = roomy->rollOut(policy, "x", {0, 1, 2, 3});
  ASSERT_TRUE(together) << together.error().message;
  for (uint64_t ticket : {3, 0, 2, 1, 3}) {
    for (Engine* engine : {roomy.get(), cramped.get(), wretched.get()}) {
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

INSTANTIATE_TEST_SUITE_P(Of, EngineByKvDtype, testing::Values("bfloat16", "float32"),
                         [](const auto& of) { return std::string(of.param); });

// A schedule whose heads have the same is the layers' schedule; and one that is learned by heads
// has an entry for each.
TEST(Engine, SchedulesMayHaveAnEntryForEachHead) {
  const std::vector<std::string> small{"spec.task.contextTokens=192", "spec.task.trainQuestions=64",
                                       "spec.task.heldOutQuestions=8"};
  const auto e = experiment(small);
  const auto engine = load(e, 256);
  const SampleSchedule layers{0, 2, 1, 0, 3, 0, 1, 1};
  SampleSchedule heads, kv_heads;
  for (const uint32_t draws : layers) {
    heads.insert(heads.end(), 8, draws);
    kv_heads.insert(kv_heads.end(), 2, draws);
  }
  const std::vector<uint32_t> questions{0, 1, 2, 3, 4, 5, 6, 7};
  const auto answered = engine->answerUnder(
      {{5, layers, questions}, {5, heads, questions}, {5, kv_heads, questions}});
  ASSERT_TRUE(answered) << answered.error().message;
  for (size_t i : {1, 2}) {
    EXPECT_EQ((*answered)[i].counts().draws(), answered->front().counts().draws());
    EXPECT_EQ((*answered)[i].counts().unique_rows(), answered->front().counts().unique_rows());
    EXPECT_EQ((*answered)[i].reward(), answered->front().reward());
  }
  EXPECT_FALSE(engine->answerUnder({{5, SampleSchedule(9, 1), questions}}));

  auto set = small;
  set.insert(set.end(), {"spec.policy.granularity=head", "spec.update={learner: additive}",
                         "spec.policy.zeroReads=mean-value"});
  const auto learning = experiment(set);
  const auto other = load(learning, 256);
  const auto state = initialState(learning, shapeOf(other->facts()));
  const auto results = other->rollOut(state.policy(), policyDigest(state.policy()), {0, 3});
  ASSERT_TRUE(results) << results.error().message;
  for (v1::EpisodeResult result : *results) {
    EXPECT_EQ(result.schedule_size(), 64);
    result.set_result_id("r");
    const Status fits = checkResult(learning, state, result, &state.policy());
    EXPECT_TRUE(fits) << fits.error().message;
  }
  // What a store may hold is checked before schedules are taken from it.
  auto short_of_one = state.policy();
  short_of_one.mutable_frontier()->mutable_budgets()->RemoveLast();
  EXPECT_FALSE(other->rollOut(short_of_one, "x", {0}));
  EXPECT_FALSE(other->rollOut(initialState(e, 8).policy(), "x", {0}));
  // zeroReads is the pool's, which is made with the model.
  EXPECT_FALSE(other->switchTo(e));
}

// The mean of the values is another answer than none, and costs no reads.
TEST(Engine, ALayerWithoutReadsGivesWhatZeroReadsSays) {
  const SampleSchedule schedule{0, 0, 0, 0, 4, 4, 0, 0};
  std::map<std::string, v1::EpisodeResult> by;
  for (const char* zero : {"off", "mean-value", "window"}) {
    const auto e =
        experiment({"spec.task.contextTokens=192", "spec.task.trainQuestions=64",
                    "spec.task.heldOutQuestions=8", std::string("spec.policy.zeroReads=") + zero});
    const auto engine = load(e, 256);
    const auto answered = engine->answerUnder({{5, schedule, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}}});
    ASSERT_TRUE(answered) << answered.error().message;
    by[zero] = answered->front();
  }
  EXPECT_EQ(by["off"].counts().value_bytes() > 0, true);
  const auto rows = [&](const char* zero) {
    const auto& counts = by[zero].counts();
    return static_cast<double>(counts.unique_rows()) / static_cast<double>(counts.decode_steps());
  };
  EXPECT_NEAR(rows("off"), rows("mean-value"), 0.25 * rows("off"));
  EXPECT_GT(rows("window"), 4 * rows("off"));
}

// The folder has no weights at all: what is wrong beside them is told first.
TEST(Engine, WhatShowsWithoutTheWeightsIsToldBeforeTheyAreRead) {
  const TempFolder folder;
  for (const char* name : {"config.json", "tokenizer.json"}) {
    std::filesystem::copy(kModel + "/" + name, folder.path());
  }
  const auto why = [&](const std::vector<std::string>& set) {
    const auto engine = Engine::load(experiment(set), {.model_folder = folder.path()});
    EXPECT_FALSE(engine);
    return engine ? std::string() : engine.error().message;
  };
  const std::string ruler = "spec.task={suite: ruler, tasks: [vt], maxNewTokens: 64, ";
  EXPECT_THAT(why({}), HasSubstr("model.safetensors"));
  EXPECT_THAT(why({"spec.task.contextTokens=9000"}), HasSubstr("8192 positions"));
  EXPECT_THAT(why({"spec.task.contextTokens=16"}), StartsWith("spec.task.contextTokens: "));
  EXPECT_THAT(why({"spec.policy.minPerLayer=2"}), StartsWith("spec.policy.minPerLayer: "));
  EXPECT_THAT(why({ruler + "path: " + folder.path() + "}"}), StartsWith("spec.task.path: "));
  folder.write("chat_template.jinja", "{{ '<|user|>' + messages[0]['content'] }}");
  EXPECT_THAT(why({ruler + "contextTokens: 1024}"}), StartsWith("spec.model.chatTemplate: "));
  std::filesystem::remove(folder.path() + "/config.json");
  EXPECT_THAT(why({}), StartsWith("spec.model.path: "));
}

// At a temperature, too, a question's answer depends on the episode and the question alone.
TEST(Engine, ATemperatureDrawsTheSameAnswersInAnyBatch) {
  std::vector<std::string> set{"spec.task.contextTokens=192", "spec.task.trainQuestions=32",
                               "spec.task.heldOutQuestions=8", "spec.generation.temperature=8"};
  const auto hot = load(experiment(set), 256);
  const auto cramped = load(experiment(set), 12);
  set.push_back("spec.generation.topK=1");
  const auto greedy = load(experiment(set), 256);
  const auto policy = initialState(experiment(set), 8).policy();
  const auto together = hot->rollOut(policy, "x", {0, 1, 2});
  const auto one = cramped->rollOut(policy, "x", {2});
  const auto likeliest = greedy->rollOut(policy, "x", {2});
  ASSERT_TRUE(together && one && likeliest);
  int drawn_otherwise = 0;
  for (int i = 0; i < 16; ++i) {
    EXPECT_EQ(one->front().scores(i).SerializeAsString(),
              (*together)[2].scores(i).SerializeAsString());
    drawn_otherwise += one->front().scores(i).SerializeAsString() !=
                       likeliest->front().scores(i).SerializeAsString();
  }
  EXPECT_GT(drawn_otherwise, 4);
}

// A unit on the first questions, with the same budget in every layer; none: an empty schedule.
v1::EvaluationUnit unitOf(const std::string& method, std::optional<uint32_t> budget,
                          uint32_t questions) {
  v1::EvaluationUnit unit;
  unit.set_unit_id("u");
  unit.set_method(method);
  unit.set_question_count(questions);
  for (int l = 0; budget && l < 8; ++l) unit.add_schedule(*budget);
  return unit;
}

// The answers stand in the prompts: who may hardly repeat these answers little.
TEST(Engine, ARepetitionPenaltyIsTheExperiments) {
  const std::vector<std::string> set{"spec.task.contextTokens=192", "spec.task.trainQuestions=16",
                                     "spec.task.heldOutQuestions=16"};
  auto penalised = set;
  penalised.emplace_back("spec.generation.repetitionPenalty=10");
  const auto engine = load(experiment(set), 256);
  const auto right = [&] {
    const auto result = engine->evaluate(unitOf("dense", std::nullopt, 16));
    EXPECT_TRUE(result) << result.error().message;
    double sum = 0;
    for (const auto& score : result->scores()) sum += score.score();
    return sum;
  };
  EXPECT_GT(right(), 12);
  ASSERT_TRUE(engine->switchTo(experiment(penalised)));
  EXPECT_LT(right(), 4);
}

// spec.evaluation.methods: what a pool holds is decided by them.
v1::Experiment experimentOf(const std::vector<std::string>& methods,
                            const std::vector<std::string>& set) {
  v1::Experiment e = experiment(set);
  e.mutable_spec()->mutable_evaluation()->clear_methods();
  for (const auto& method : methods) e.mutable_spec()->mutable_evaluation()->add_methods(method);
  return e;
}

TEST(Engine, ARepetitionAsksTheSameQuestionsAndDrawsAnew) {
  const std::vector<std::string> set{"spec.task.contextTokens=192", "spec.task.trainQuestions=32",
                                     "spec.task.heldOutQuestions=32"};
  auto again = set;
  again.emplace_back("spec.repetition=5");
  const auto first = load(experiment(set), 256);
  const auto repeated = load(experiment(again), 256);
  EXPECT_EQ(first->facts().dataset_sha256(), repeated->facts().dataset_sha256());
  const auto scoresOf = [](Engine* engine, const v1::EvaluationUnit& unit) {
    const auto result = engine->evaluate(unit);
    EXPECT_TRUE(result) << result.error().message;
    std::string scores = std::to_string(result->counts().unique_rows());
    for (const auto& score : result->scores()) scores += score.SerializeAsString();
    return scores;
  };
  const auto dense = unitOf("dense", std::nullopt, 32), sampled = unitOf("s2anta-sys", 1, 32);
  EXPECT_EQ(scoresOf(first.get(), dense), scoresOf(repeated.get(), dense));
  EXPECT_EQ(scoresOf(first.get(), sampled), scoresOf(first.get(), sampled));
  EXPECT_NE(scoresOf(first.get(), sampled), scoresOf(repeated.get(), sampled));
  // No reason to load anything again.
  ASSERT_TRUE(first->switchTo(experiment(again)));
  EXPECT_EQ(scoresOf(first.get(), sampled), scoresOf(repeated.get(), sampled));
}

// Where prompts or answers are drawn, the same questions are answered by other draws; what draws
// nothing answers alike. The first of them is what a unit without repeats is.
TEST(Engine, ARepeatHasDrawsOfItsOwn) {
  const std::vector<std::string> set = {
      "spec.task.contextTokens=192", "spec.task.trainQuestions=32", "spec.task.heldOutQuestions=16",
      "spec.evaluation={repeats: 3, prefills: [dense, s2anta-sys], methods: [dense, s2anta-sys, "
      "top-k]}"};
  const auto e = experiment(set);
  const auto engine = load(e, 256);
  const auto repeated = [&](Engine* by, v1::EvaluationUnit unit, uint32_t repeat,
                            const char* prefill = "") {
    unit.set_prefill(prefill);
    unit.set_repeat(repeat);
    const auto result = by->evaluate(unit);
    EXPECT_TRUE(result) << result.error().message;
    v1::EvaluationResult bare = timeless(*result);
    bare.clear_unit();
    bare.clear_answers();
    return bare.SerializeAsString();
  };
  const auto sampled = unitOf("s2anta-sys", 1, 16);
  std::set<std::string> draws, prompts;
  for (const uint32_t repeat : {2u, 0u, 1u}) {
    draws.insert(repeated(engine.get(), sampled, repeat));
    prompts.insert(repeated(engine.get(), unitOf("dense", 1, 16), repeat, "s2anta-sys"));
    for (const auto& fixed : {unitOf("dense", std::nullopt, 16), unitOf("top-k", 1, 16)}) {
      EXPECT_EQ(repeated(engine.get(), fixed, repeat), repeated(engine.get(), fixed, 0));
    }
  }
  EXPECT_EQ(draws.size(), 3u);
  EXPECT_EQ(prompts.size(), 3u);
  const auto once = load(experiment({set[0], set[1], set[2]}), 256);
  EXPECT_EQ(repeated(once.get(), sampled, 0), repeated(engine.get(), sampled, 0));
  // Tokens that are sampled are others in each repeat, whatever the method.
  const auto warm =
      load(experiment({set[0], set[1], set[2], "spec.generation.temperature=1.5"}), 256);
  std::set<std::string> tokens;
  for (const uint32_t repeat : {0u, 1u, 2u}) {
    tokens.insert(repeated(warm.get(), unitOf("dense", std::nullopt, 16), repeat));
  }
  EXPECT_EQ(tokens.size(), 3u);
  v1::EvaluationUnit beyond = sampled;
  beyond.set_repeat(100);
  EXPECT_FALSE(engine->evaluate(beyond));
}

TEST(Engine, WithTheLeastMemoryEveryQuestionIsAnswered) {
  const auto e = experiment({"spec.task.contextTokens=192", "spec.task.trainQuestions=32",
                             "spec.task.heldOutQuestions=40"});
  const size_t least = load(e, 64)->leastKvBytes();
  const auto policy = initialState(e, 8).policy();
  const auto cramped = Engine::load(e, {.model_folder = kModel, .kv_bytes = least});
  ASSERT_TRUE(cramped) << cramped.error().message;
  EXPECT_TRUE((*cramped)->rollOut(policy, "x", {0, 1}));
  const auto less = Engine::load(e, {.model_folder = kModel, .kv_bytes = least / 2});
  ASSERT_TRUE(less) << less.error().message;
  EXPECT_FALSE((*less)->rollOut(policy, "x", {0, 1}));
  // Fidelity compares a chunk of questions side by side.
  auto f = experimentOf({"dense", "s2anta-sys"},
                        {"spec.task.contextTokens=192", "spec.task.trainQuestions=32",
                         "spec.task.heldOutQuestions=40", "spec.evaluation.measures=[fidelity]"});
  const size_t more = load(f, 64)->leastKvBytes();
  EXPECT_GT(more, 16 * least);
  const auto enough = Engine::load(f, {.model_folder = kModel, .kv_bytes = more});
  ASSERT_TRUE(enough) << enough.error().message;
  auto unit = unitOf("s2anta-sys", 8, 32);
  unit.set_measure("fidelity");
  const auto measured = (*enough)->evaluate(unit);
  EXPECT_TRUE(measured) << measured.error().message;
}

TEST(Engine, EveryMethodWithEnoughBudgetAnswersAsDenseDoes) {
  std::vector<std::string> methods;
  for (const std::string_view name : kernels::methodNames()) {
    // Bernoulli's scores are estimates whatever the budget.
    if (name != "bernoulli") methods.emplace_back(name);
  }
  const auto e =
      experimentOf(methods, {"spec.task.contextTokens=192", "spec.task.trainQuestions=16",
                             "spec.task.heldOutQuestions=16"});
  const auto engine = load(e, 256);
  const auto dense = engine->evaluate(unitOf("dense", std::nullopt, 16));
  ASSERT_TRUE(dense) << dense.error().message;
  EXPECT_EQ(dense->counts().key_bytes() + dense->counts().value_bytes(),
            dense->counts().dense_bytes());
  for (std::string method : methods) {
    kernels::MethodOptions options;
    ASSERT_FALSE(kernels::parseMethod(method, &options));
    const bool budgeted = kernels::usesBudget(options);
    // What has no budget may still be told to read all: a pilot of all tail rows is one.
    if (method == "skip-softmax")
      method += " threshold=0";
    else if (!budgeted && method != "dense")
      method += " pilot=1";
    const auto all =
        engine->evaluate(unitOf(method, budgeted ? std::optional(100000) : std::nullopt, 16));
    ASSERT_TRUE(all) << method << ": " << all.error().message;
    ASSERT_EQ(all->scores_size(), 16);
    for (int i = 0; i < 16; ++i) {
      EXPECT_EQ(all->scores(i).SerializeAsString(), dense->scores(i).SerializeAsString()) << method;
    }
    EXPECT_EQ(all->counts().unique_rows(), dense->counts().unique_rows()) << method;
  }
}

TEST(Engine, UnitsAreTheSameAloneAndTogether) {
  const auto e =
      experimentOf({"dense", "s2anta-sys"},
                   {"spec.task.contextTokens=192", "spec.task.trainQuestions=32",
                    "spec.task.heldOutQuestions=16", "spec.evaluation.prefills=[dense, s2anta-sys]",
                    "spec.evaluation.repeats=2", "spec.generation.temperature=0.7"});
  const auto roomy = load(e, 256), cramped = load(e, 12);
  for (const char* const prefill : {"dense", "s2anta-sys"}) {
    std::vector<v1::EvaluationUnit> units;
    for (const uint32_t budget : {2u, 8u, 64u}) {
      for (const uint32_t repeat : {0u, 1u}) {
        v1::EvaluationUnit& unit = units.emplace_back(unitOf("s2anta-sys", budget, 8));
        unit.set_unit_id(std::to_string(units.size()));
        unit.set_prefill(prefill);
        unit.set_repeat(repeat);
        EXPECT_TRUE(answeredTogether(units.front(), unit));
      }
    }
    for (Engine* engine : {cramped.get(), roomy.get()}) {
      const auto together = engine->evaluateTogether(units);
      ASSERT_TRUE(together) << together.error().message;
      ASSERT_EQ(together->size(), units.size());
      double seconds = 0;
      for (size_t i = 0; i < units.size(); ++i) {
        const auto alone = roomy->evaluate(units[i]);
        ASSERT_TRUE(alone) << alone.error().message;
        EXPECT_EQ(timeless((*together)[i]).SerializeAsString(),
                  timeless(*alone).SerializeAsString());
        EXPECT_GT((*together)[i].counts().decode_seconds(), 0);
        seconds += (*together)[i].counts().decode_seconds();
      }
      EXPECT_LE(seconds, (*together)[0].seconds() * static_cast<double>(units.size()));
    }
  }
  auto other = unitOf("dense", std::nullopt, 8);
  EXPECT_FALSE(answeredTogether(other, unitOf("s2anta-sys", 2, 8)));
  other.set_measure("fidelity");
  EXPECT_FALSE(answeredTogether(other, other));
}

TEST(Engine, PromptsAreReadAsTheUnitSaysWhateverWasReadBefore) {
  const auto e = experimentOf({"dense", "s2anta-sys"},
                              {"spec.task.contextTokens=192", "spec.task.trainQuestions=32",
                               "spec.task.heldOutQuestions=16",
                               "spec.evaluation.prefills=[dense, sample-attention alphaColumn=0.3 "
                               "alphaSlash=0.3 block=16, s2anta-sys]"});
  const auto roomy = load(e, 256), cramped = load(e, 12);
  const auto measured = [](Engine* engine, v1::EvaluationUnit unit, const char* prefill,
                           uint32_t chunk) {
    unit.set_prefill(prefill);
    unit.set_chunk(chunk);
    unit.set_first_question(8 * chunk);
    auto result = engine->evaluate(unit);
    EXPECT_TRUE(result) << result.error().message;
    return timeless(*result);
  };
  const auto dense = unitOf("dense", std::nullopt, 8), sampled = unitOf("s2anta-sys", 2, 8);
  for (Engine* engine : {cramped.get(), roomy.get()}) {
    for (const uint32_t chunk : {0u, 1u}) {
      const auto plain = measured(engine, dense, "", chunk);
      const auto sparse = measured(
          engine, dense, "sample-attention alphaColumn=0.3 alphaSlash=0.3 block=16", chunk);
      const auto drawn = measured(engine, sampled, "s2anta-sys", chunk);
      EXPECT_EQ(plain.prefill().prompts(), 8u);
      EXPECT_EQ(plain.prefill().blocks(), plain.prefill().dense_blocks());
      EXPECT_LT(sparse.prefill().blocks(), sparse.prefill().dense_blocks());
      EXPECT_EQ(sparse.prefill().kept_queries() > 0, chunk == 0);
      EXPECT_GT(drawn.prefill().dense_rows(), 0u);
      EXPECT_LT(drawn.prefill().unique_rows() * 4, drawn.prefill().dense_rows());
      // Two draws a layer in both phases are far too few.
      const auto sum = [](const v1::EvaluationResult& result) {
        double sum = 0;
        for (const auto& score : result.scores()) sum += score.score();
        return sum;
      };
      EXPECT_LT(sum(drawn), sum(plain) - 2);
      // Once more, now that others have been in memory.
      EXPECT_EQ(measured(engine, dense, "", chunk).SerializeAsString(), plain.SerializeAsString());
      const auto again = measured(roomy.get(), sampled, "s2anta-sys", chunk);
      EXPECT_EQ(again.SerializeAsString(), drawn.SerializeAsString());
    }
  }
  auto unit = dense;
  unit.set_prefill("quest");
  const auto refused = roomy->evaluate(unit);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("quest does not read prompts"));
}

TEST(Engine, EpisodesReadTheirPromptsAsTheExperimentSays) {
  const std::vector<std::string> set = {
      "spec.task.contextTokens=192", "spec.task.trainQuestions=64", "spec.task.heldOutQuestions=8",
      "spec.attention.prefill=s2anta-sys"};
  const auto e = experiment(set);
  const auto roomy = load(e, 512), cramped = load(e, 12);
  const auto policy = initialState(e, 8).policy();
  const auto together = roomy->rollOut(policy, "x", {0, 1});
  const auto densely = load(experiment({set[0], set[1], set[2]}), 512)->rollOut(policy, "x", {1});
  ASSERT_TRUE(together && densely);
  for (Engine* engine : {roomy.get(), cramped.get()}) {
    const auto alone = engine->rollOut(policy, "x", {1});
    ASSERT_TRUE(alone) << alone.error().message;
    const v1::EpisodeResult &a = alone->front(), &b = (*together)[1];
    ASSERT_EQ(a.scores_size(), b.scores_size());
    for (int i = 0; i < a.scores_size(); ++i) {
      EXPECT_EQ(a.scores(i).SerializeAsString(), b.scores(i).SerializeAsString());
    }
    // The schedule is the same; what is read under it in the prefill is not.
    EXPECT_EQ(a.schedule_size(), densely->front().schedule_size());
    EXPECT_NE(a.counts().unique_rows(), densely->front().counts().unique_rows());
  }
}

// Held-out accuracy at 512 tokens of context as measured over 128 questions (dense: 0.930).
struct Measured {
  const char* method;
  uint32_t budget;  // in every layer; 0: the method has none
  double accuracy;
};
constexpr Measured kMeasured[] = {{"santa", 8, 0.891},
                                  {"s2anta-strat", 16, 0.906},
                                  {"s2anta-sys", 1, 0.352},
                                  {"s2anta-sys", 2, 0.711},
                                  {"s2anta-sys", 16, 0.891},
                                  {"s2anta-prop", 16, 0.891},
                                  {"s2anta-flash tileSize=64", 4, 0.625},
                                  {"s2anta-flash", 16, 0.930},
                                  {"s2anta-q4", 16, 0.891},
                                  {"s2anta-q4 bits=3", 1, 0.320},
                                  {"s2anta-q4 bits=8", 64, 0.930},
                                  {"top-k", 1, 0.461},
                                  {"top-k scores=q4", 16, 0.883},
                                  {"quest", 16, 0.305},
                                  {"quest", 64, 0.758},
                                  {"quest newest=within", 16, 0},
                                  {"quest newest=within", 64, 0.688},
                                  {"vattention epsilon=0.5", 0, 0.930},
                                  {"adaptive-denominator epsilon=0.5", 0, 0.922},
                                  {"bernoulli featureSamples=1 meanGroupQuery=true", 0, 0.312},
                                  {"bernoulli featureSamples=4", 0, 0.914}};

TEST(Engine, EveryMethodAnswersAsWellAsItDidWhenMeasured) {
  std::vector<std::string> methods;
  for (const Measured& measured : kMeasured) methods.emplace_back(measured.method);
  const auto e =
      experimentOf(methods, {"spec.task.trainQuestions=16", "spec.task.heldOutQuestions=32"});
  const auto engine = load(e, 512);
  for (const Measured& measured : kMeasured) {
    const auto result = engine->evaluate(unitOf(
        measured.method, measured.budget ? std::optional(measured.budget) : std::nullopt, 32));
    ASSERT_TRUE(result) << measured.method << ": " << result.error().message;
    double right = 0;
    for (const auto& score : result->scores()) right += score.score();
    // Another machine may round otherwise: as wide as 32 other questions could be in 1 of 2000
    // cases, and half a question.
    const double p = measured.accuracy;
    EXPECT_NEAR(right / 32, p, 3.5 * std::sqrt(p * (1 - p) / 32) + 0.5 / 32)
        << measured.method << " at " << measured.budget;
    const auto& counts = result->counts();
    EXPECT_LT(counts.key_bytes() + counts.value_bytes(), counts.dense_bytes()) << measured.method;
  }
}

// Keys and values are kept as the key says, whatever a worker has loaded before.
TEST(Engine, KeysAndValuesAreKeptAsTheExperimentSays) {
  const auto of = [](const std::string& dtype) {
    auto e = experiment({"spec.task.contextTokens=192", "spec.task.trainQuestions=32",
                         "spec.task.heldOutQuestions=8"});
    e.mutable_spec()->mutable_model()->set_kv_dtype(dtype);
    return e;
  };
  std::map<std::string, std::string> results;
  std::map<std::string, size_t> least;
  for (const std::string dtype : {"", "float32", "bfloat16"}) {
    const auto engine = load(of(dtype), 64);
    auto unit = unitOf("s2anta-sys", 8, 8);
    const auto result = engine->evaluate(unit);
    ASSERT_TRUE(result) << result.error().message;
    results[dtype] = timeless(*result).SerializeAsString();
    least[dtype] = engine->leastKvBytes();
    const auto prompt = engine->decoder().pool().layer(0).element;
    EXPECT_EQ(prompt == kernels::Element::kBFloat16, dtype != "float32");
    EXPECT_EQ(engine->switchTo(of("float32")).has_value(), dtype == "float32");
  }
  EXPECT_EQ(results[""], results["bfloat16"]);
  EXPECT_NE(results["bfloat16"], results["float32"]);  // its bytes, for one
  EXPECT_EQ(least["float32"], 2 * least["bfloat16"]);
}

TEST(Engine, AUnitIsTheSameWhateverWasComputedBefore) {
  const std::vector<std::string> methods = {"s2anta-q4", "quest", "vattention epsilon=0.3"};
  const auto e =
      experimentOf(methods, {"spec.task.contextTokens=192", "spec.task.trainQuestions=64",
                             "spec.task.heldOutQuestions=16"});
  const auto used = load(e, 256), cramped = load(e, 40);  // holds one unit's prompts and no more
  std::vector<v1::EvaluationUnit> units;
  for (const auto& method : methods) {
    const bool budgeted = method.find("vattention") != 0;
    for (const char* measure : {"accuracy", "fidelity", "variance"}) {
      units.push_back(unitOf(method, budgeted ? std::optional(20) : std::nullopt, 8));
      units.back().set_measure(measure);
    }
  }
  const auto resultOf = [](Engine* engine, const v1::EvaluationUnit& unit) {
    auto result = engine->evaluate(unit);
    EXPECT_TRUE(result) << result.error().message;
    return timeless(*result).SerializeAsString();
  };
  for (const auto& unit : units) {
    const std::string fresh = resultOf(load(e, 256).get(), unit);
    EXPECT_EQ(resultOf(used.get(), unit), fresh) << unit.method() << ", " << unit.measure();
    v1::EvaluationUnit other = unit;
    other.set_first_question(8);
    resultOf(cramped.get(), other);  // its pages are used again
    EXPECT_EQ(resultOf(cramped.get(), unit), fresh) << unit.method() << ", " << unit.measure();
  }
}

TEST(Engine, AFidelityUnitHasCellsInsteadOfScores) {
  const auto e =
      experimentOf({"s2anta-sys"}, {"spec.task.contextTokens=192", "spec.task.trainQuestions=16",
                                    "spec.task.heldOutQuestions=8"});
  const auto engine = load(e, 128);
  v1::EvaluationUnit unit = unitOf("s2anta-sys", 16, 8);
  unit.set_measure("fidelity");
  const auto result = engine->evaluate(unit);
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(result->scores_size(), 0);
  uint64_t states = 0, steps = 0;
  for (const auto& cell : result->fidelity()) {
    EXPECT_LT(cell.task(), 4u);
    states += cell.states();
  }
  ASSERT_EQ(result->agreement_size(), 4);
  for (const auto& cell : result->agreement()) {
    EXPECT_LE(cell.agreed(), cell.steps());
    steps += cell.steps();
  }
  EXPECT_EQ(result->counts().decode_steps(), steps);
  EXPECT_EQ(states, steps * 8 * 8);
  EXPECT_EQ(result->counts().draws(), steps * 8 * 8 * 16);
  EXPECT_EQ(whyImpossible(*result, boundsOf(e, 8)), std::nullopt);
  unit.set_measure("nonsense");
  EXPECT_FALSE(engine->evaluate(unit));
}

TEST(Engine, ComparesAsTheExperimentSays) {
  const std::vector<std::string> few = {
      "spec.task.contextTokens=192", "spec.task.trainQuestions=16", "spec.task.heldOutQuestions=8"};
  const auto with = [&](const std::string& evaluation) {
    auto set = few;
    set.push_back("spec.evaluation={methods: [dense, s2anta-sys], " + evaluation + "}");
    return experiment(set);
  };
  const auto last = with("measures: [fidelity tile=256 agreement=last-layer]");
  const auto engine = load(last, 128);
  v1::EvaluationUnit unit = unitOf("s2anta-sys", 16, 8);
  const auto evaluated = [&](const char* measure, const v1::Experiment& e) {
    EXPECT_TRUE(engine->switchTo(e));
    unit.set_measure(measure);
    auto result = engine->evaluate(unit);
    EXPECT_TRUE(result) << result.error().message;
    EXPECT_EQ(whyImpossible(*result, boundsOf(e, 8)), std::nullopt);
    return *result;
  };
  const auto in_last = evaluated("fidelity", last);
  ASSERT_EQ(in_last.agreement_size(), 4);
  for (const auto& cell : in_last.agreement()) EXPECT_EQ(cell.layer(), 7u);
  for (const auto& cell : in_last.fidelity()) EXPECT_EQ(cell.support(), 1u);  // of 192 tokens
  const auto each = with("measures: [fidelity agreement=each-layer]");
  const auto in_each = evaluated("fidelity", each);
  EXPECT_EQ(in_each.agreement_size(), 4 * 8);
  EXPECT_NE(whyImpossible(in_each, boundsOf(last, 8)), std::nullopt);
  EXPECT_EQ(in_each.counts().decode_steps(), 8 * in_last.counts().decode_steps());
  const auto variance = evaluated("variance", with("measures: [variance replicates=3]"));
  EXPECT_EQ(variance.scores_size() + variance.agreement_size(), 0);
  uint64_t positions = 0;
  for (const auto& cell : variance.fidelity()) {
    EXPECT_EQ(cell.states(), 3 * cell.positions());
    positions += cell.positions();
  }
  EXPECT_EQ(positions, 8u * 8 * 8);
  EXPECT_EQ(variance.counts().decode_steps(), 8u * 3);
  EXPECT_EQ(variance.counts().draws(), positions * 3 * 16);
}

TEST(Engine, AnswersAreKeptAsAskedFor) {
  const std::vector<std::string> few = {
      "spec.task.contextTokens=192", "spec.task.trainQuestions=16", "spec.task.heldOutQuestions=8"};
  const auto with = [&](const std::string& answers) {
    auto set = few;
    set.push_back("spec.evaluation.answers=" + answers);
    return experiment(set);
  };
  const auto engine = load(with("all"), 256);
  v1::EvaluationUnit unit = unitOf("s2anta-sys", 8, 8);
  const auto evaluated = [&] {
    auto result = engine->evaluate(unit);
    EXPECT_TRUE(result) << result.error().message;
    EXPECT_EQ(whyImpossible(*result, {}), std::nullopt);
    return *result;
  };
  const v1::EvaluationResult all = evaluated();
  ASSERT_EQ(all.answers().answers_size(), 8);
  uint32_t wrong = 0;
  for (int i = 0; i < 8; ++i) {
    const v1::Answer& answer = all.answers().answers(i);
    const Question& asked = engine->dataset().held_out[answer.question()];
    EXPECT_EQ(all.scores(i).question(), answer.question());
    EXPECT_TRUE(asked.prompt.ends_with(answer.prompt_end()));
    EXPECT_THAT(answer.prompt_end(), testing::EndsWith("Answer:"));
    EXPECT_EQ(answer.prompt_end().size() + answer.prompt_left_out(), asked.prompt.size());
    EXPECT_EQ(std::vector<std::string>(answer.expected().begin(), answer.expected().end()),
              asked.answers);
    // The text is what was graded, and what the grader took of it what it was compared with.
    EXPECT_EQ(grade(with("all").spec().task(), asked, answer.text()).score, all.scores(i).score());
    ASSERT_EQ(answer.readings_size(), 1);
    EXPECT_EQ(answer.readings(0).grader(), "exact");
    EXPECT_EQ(answer.readings(0).taken() == asked.answers[0], all.scores(i).score() == 1);
    wrong += all.scores(i).score() < 1 ? 1 : 0;
  }
  ASSERT_TRUE(engine->switchTo(with("wrong")));
  const v1::EvaluationResult some = evaluated();
  EXPECT_EQ(some.answers().answers_size(), static_cast<int>(wrong));
  EXPECT_GT(wrong, 0u);
  EXPECT_LT(wrong, 8u);
  unit.set_measure("fidelity");
  EXPECT_FALSE(evaluated().has_answers());
  unit.set_measure("accuracy");
  ASSERT_TRUE(engine->switchTo(with("none")));
  EXPECT_FALSE(evaluated().has_answers());
  // Training says nothing but its scores.
  v1::PolicySnapshot policy;
  for (uint32_t l = 0; l < engine->facts().layers(); ++l) policy.add_logits(0);
  ASSERT_TRUE(engine->switchTo(with("all")));
  EXPECT_TRUE(engine->rollOut(policy, "", {0}));
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
  // The pool holds no shadows: no method of this experiment reads them.
  const auto foreign = engine->evaluate(unitOf("s2anta-q4", 1, 4));
  ASSERT_FALSE(foreign);
  EXPECT_EQ(foreign.error().code, ErrorCode::kData);
  EXPECT_FALSE(engine->evaluate(unitOf("s2anta-sys", std::nullopt, 4)));
}

TEST(Engine, RefusesMethodsItDoesNotKnow) {
  const auto e = experimentOf({"s2anta-q4 bits=5"}, {"spec.task.trainQuestions=16"});
  const auto engine = Engine::load(e, {.model_folder = kModel});
  ASSERT_FALSE(engine);
  EXPECT_NE(engine.error().message.find("spec.evaluation.methods: s2anta-q4 bits=5: "),
            std::string::npos)
      << engine.error().message;
}

TEST(Engine, TooLittleMemoryIsSaidNotDied) {
  const auto e = experiment({"spec.task.contextTokens=512", "spec.task.trainQuestions=16",
                             "spec.task.heldOutQuestions=8"});
  const auto engine = load(e, 1);
  const auto result = engine->rollOut(initialState(e, 8).policy(), "x", {0});
  ASSERT_FALSE(result);
  EXPECT_NE(result.error().message.find("--kv-memory"), std::string::npos);
}

// Asked between prompts and between decode steps; what is in memory by then stays good.
TEST(Engine, WorkThatIsGivenUpLeavesNothingBehind) {
  const auto e = experimentOf(
      {"s2anta-sys"}, {"spec.task.contextTokens=192", "spec.task.trainQuestions=32",
                       "spec.task.heldOutQuestions=8", "spec.evaluation.measures=[fidelity]"});
  const auto engine = load(e, 128);
  const auto policy = initialState(e, 8).policy();
  v1::EvaluationUnit fidelity = unitOf("s2anta-sys", 4, 8);
  fidelity.set_measure("fidelity");
  v1::EvaluationUnit variance = fidelity;
  variance.set_measure("variance");
  const std::function<bool()> works[] = {
      [&] {
        return engine->rollOut(policy, "x", {0, 1}).has_value();
      },
      [&] { return engine->evaluate(unitOf("s2anta-sys", 4, 8)).has_value(); },
      [&] { return engine->evaluate(fidelity).has_value(); },
      [&] { return engine->evaluate(variance).has_value(); }};
  const auto alone = load(e, 128)->rollOut(policy, "x", {0, 1});
  ASSERT_TRUE(alone);
  for (const auto& work : works) {
    int asked = 0, most = 3;
    engine->interruptWhen([&] { return ++asked > most; });  // while there are prompts to read
    EXPECT_FALSE(work());
    EXPECT_EQ(asked, 4);
    most = 1'000'000;
    EXPECT_TRUE(work());
    const size_t free = engine->decoder().pool().freePages();
    asked = 0;
    EXPECT_TRUE(work());
    most = asked - 1;  // up to the last step
    ASSERT_GT(most, 1);
    asked = 0;
    EXPECT_FALSE(work());
    EXPECT_EQ(engine->decoder().pool().freePages(), free);
    engine->interruptWhen(nullptr);
    EXPECT_TRUE(work());
    EXPECT_EQ(engine->decoder().pool().freePages(), free);
  }
  const auto again = engine->rollOut(policy, "x", {0, 1});
  ASSERT_TRUE(again);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ((*again)[i].reward(), (*alone)[i].reward());
    EXPECT_EQ((*again)[i].counts().draws(), (*alone)[i].counts().draws());
  }
}

TEST(Engine, TakesUpAnotherExperimentOnTheSameModelAndQuestions) {
  const std::vector<std::string> set = {
      "spec.task.contextTokens=192", "spec.task.trainQuestions=32", "spec.task.heldOutQuestions=8"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), set.begin(), set.end());
    return experimentOf({"s2anta-sys"}, more);
  };
  const auto engine = load(with({}), 128);
  const auto other = with({"spec.policy.totalBudget=16", "spec.attention.decode=santa",
                           "spec.rollout.questionsPerEpisode=4"});
  const auto policy = initialState(other, 8).policy();
  ASSERT_TRUE(engine->rollOut(policy, "x", {5}));
  const Status taken = engine->switchTo(other);
  ASSERT_TRUE(taken) << taken.error().message;
  const auto here = engine->rollOut(policy, "x", {5});
  const auto fresh = load(other, 128)->rollOut(policy, "x", {5});
  ASSERT_TRUE(here && fresh);
  EXPECT_EQ(here->front().scores_size(), 4);
  EXPECT_EQ(here->front().reward(), fresh->front().reward());
  EXPECT_EQ(here->front().counts().draws(), fresh->front().counts().draws());
  for (const char* change :
       {"spec.seed=8", "spec.task.contextTokens=256", "spec.task.maxNewTokens=9",
        "spec.model.path=elsewhere", "spec.attention.decode=s2anta-q4",
        "spec.attention.decode=quest", "spec.model.kvDtype=float32"}) {
    const Status refused = engine->switchTo(with({change}));
    ASSERT_FALSE(refused) << change;
    EXPECT_EQ(refused.error().code, ErrorCode::kFenced) << change;
  }
}

}  // namespace
}  // namespace allot
