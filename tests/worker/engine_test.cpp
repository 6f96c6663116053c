#include "worker/engine/engine.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/learning/learning_checks.h"
#include "core/learning/policy.h"
#include "core/learning/update.h"
#include "tests/results.h"
#include "tests/temp_folder.h"
#include "tests/worker/engine_fixture.h"

namespace allot {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

class EngineByKvDtype : public testing::TestWithParam<const char*> {
 protected:
  // MiB for so many in float32.
  static size_t mib(size_t of_float32) {
    const std::string dtype = GetParam();
    return dtype == "fp8" ? of_float32 / 4 : dtype == "bfloat16" ? of_float32 / 2 : of_float32;
  }
};

TEST_P(EngineByKvDtype, AnEpisodeIsTheSameAloneTogetherAndWithoutMemoryToSpare) {
  const auto e = experiment(small(64, 8, {std::string("spec.model.kvDtype=") + GetParam()}));
  const auto roomy = load(e, 512);
  const auto cramped = load(e, mib(60));   // holds two episodes' prompts and no more
  const auto wretched = load(e, mib(12));  // not even one's: its questions are asked in parts
  const auto policy = initialState(e, 8).policy();
  const auto together = valueOf(roomy->rollOut(policy, "x", {0, 1, 2, 3}));
  for (uint64_t ticket : {3, 0, 2, 1, 3}) {
    for (Engine* engine : {roomy.get(), cramped.get(), wretched.get()}) {
      const auto alone = valueOf(engine->rollOut(policy, "x", {ticket}));
      const v1::EpisodeResult &a = alone.front(), &b = together[ticket];
      EXPECT_EQ(a.reward(), b.reward());
      EXPECT_EQ(a.counts().draws(), b.counts().draws());
      EXPECT_EQ(a.counts().unique_rows(), b.counts().unique_rows());
      EXPECT_EQ(scoresOf(a), scoresOf(b));
      v1::EpisodeResult named = a;
      named.set_result_id("r");
      named.set_policy_sha256(policyDigest(policy));
      EXPECT_TRUE(checkResult(e, initialState(e, 8), named, &policy));
      // 8 draws over the layers, each head, each decoded token but the first.
      EXPECT_EQ(a.counts().draws(), a.counts().decode_steps() * 8 * 8);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Of, EngineByKvDtype, testing::Values("bfloat16", "float32", "fp8"),
                         [](const auto& of) { return std::string(of.param); });

// A schedule whose heads have the same is the layers' schedule; and one that is learned by heads
// has an entry for each.
TEST(Engine, SchedulesMayHaveAnEntryForEachHead) {
  const auto e = experiment(small(64, 8));
  const auto engine = load(e, 256);
  const SampleSchedule layers{0, 2, 1, 0, 3, 0, 1, 1};
  SampleSchedule heads, kv_heads;
  for (const uint32_t draws : layers) {
    heads.insert(heads.end(), 8, draws);
    kv_heads.insert(kv_heads.end(), 2, draws);
  }
  const std::vector<uint32_t> questions{0, 1, 2, 3, 4, 5, 6, 7};
  const auto answered = valueOf(engine->answerUnder(
      {{5, layers, questions}, {5, heads, questions}, {5, kv_heads, questions}}));
  for (size_t i : {1, 2}) {
    EXPECT_EQ(answered[i].counts().draws(), answered.front().counts().draws());
    EXPECT_EQ(answered[i].counts().unique_rows(), answered.front().counts().unique_rows());
    EXPECT_EQ(answered[i].reward(), answered.front().reward());
  }
  EXPECT_FALSE(engine->answerUnder({{5, SampleSchedule(9, 1), questions}}));

  const auto learning =
      experiment(small(64, 8,
                       {"spec.policy.granularity=head", "spec.update={learner: additive}",
                        "spec.policy.zeroReads=mean-value"}));
  const auto other = load(learning, 256);
  const auto state = initialState(learning, shapeOf(other->facts()));
  const auto results =
      valueOf(other->rollOut(state.policy(), policyDigest(state.policy()), {0, 3}));
  for (v1::EpisodeResult result : results) {
    EXPECT_EQ(result.schedule_size(), 64);
    result.set_result_id("r");
    EXPECT_THAT(checkResult(learning, state, result, &state.policy()), succeeds());
  }
  // What a store may hold is checked before schedules are taken from it.
  auto short_of_one = state.policy();
  short_of_one.mutable_frontier()->mutable_budgets()->RemoveLast();
  EXPECT_FALSE(other->rollOut(short_of_one, "x", {0}));
  EXPECT_FALSE(other->rollOut(initialState(e, 8).policy(), "x", {0}));
  // zeroReads is the pool's, which is made with the model.
  EXPECT_FALSE(other->switchTo(e));
}

// An audit asks for a part of an episode or of a unit.
TEST(Engine, APartHasTheAnswersThatItHasAmongAll) {
  const auto e = experiment(small(64, 8, {"spec.generation.temperature=1"}));
  const auto engine = load(e, 256);
  const SampleSchedule schedule{0, 2, 1, 0, 3, 0, 1, 1};
  const std::vector<uint32_t> questions{9, 3, 12, 1, 0, 7, 5, 2};
  const auto all = valueOf(engine->answerUnder({{5, schedule, questions}})).front();
  ASSERT_EQ(all.scores_size(), 8);
  v1::EvaluationUnit unit;
  unit.set_unit_id("u");
  unit.set_method("s2anta-sys");
  unit.set_measure("accuracy");
  *unit.mutable_schedule() = {schedule.begin(), schedule.end()};
  unit.set_question_count(8);
  const auto whole = valueOf(engine->evaluate(unit));
  const auto expectPart = [](const auto& part, const auto& of, int first, int count) {
    ASSERT_EQ(part.scores_size(), count);
    for (int i = 0; i < count; ++i) {
      EXPECT_EQ(part.scores(i).SerializeAsString(), of.scores(first + i).SerializeAsString());
    }
  };
  for (const auto& [first, count] : {std::pair{0u, 1u}, {3u, 1u}, {7u, 1u}, {2u, 4u}}) {
    EpisodeEngine::Episode episode{5, schedule, questions, first, count};
    const auto part = valueOf(engine->answerUnder({episode})).front();
    expectPart(part, all, static_cast<int>(first), static_cast<int>(count));
    v1::EvaluationUnit of_unit = unit;
    of_unit.set_first_question(first);
    of_unit.set_question_count(count);
    expectPart(valueOf(engine->evaluate(of_unit)), whole, static_cast<int>(first),
               static_cast<int>(count));
  }
}

// The mean of the values is another answer than none, and costs no reads.
TEST(Engine, ALayerWithoutReadsGivesWhatZeroReadsSays) {
  const SampleSchedule schedule{0, 0, 0, 0, 4, 4, 0, 0};
  std::map<std::string, v1::EpisodeResult> by;
  for (const char* zero : {"off", "mean-value", "window"}) {
    const auto e = experiment(small(64, 8, {std::string("spec.policy.zeroReads=") + zero}));
    const auto engine = load(e, 256);
    const auto answered =
        valueOf(engine->answerUnder({{5, schedule, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}}}));
    by[zero] = answered.front();
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
    std::filesystem::copy(kRecall7m + "/" + name, folder.path());
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
  folder.write("chat_template.jinja", "{{ messages[0].content | no_filter }}");
  EXPECT_THAT(why({ruler + "contextTokens: 1024}"}), StartsWith("spec.model.chatTemplate: "));
  std::filesystem::remove(folder.path() + "/chat_template.jinja");
  auto config = nlohmann::json::parse(readFile(folder.path() + "/config.json"));
  config["vocab_size"] = 40;
  folder.write("config.json", config.dump());
  EXPECT_THAT(why({}), HasSubstr("embedding for the first 40 only"));
  std::filesystem::remove(folder.path() + "/config.json");
  EXPECT_THAT(why({}), StartsWith("spec.model.path: "));
}

// At a temperature, too, a question's answer depends on the episode and the question alone.
TEST(Engine, ATemperatureDrawsTheSameAnswersInAnyBatch) {
  auto set = small(32, 8, {"spec.generation.temperature=8"});
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

// The answers stand in the prompts: who may hardly repeat these answers little.
TEST(Engine, ARepetitionPenaltyIsTheExperiments) {
  const auto engine = load(experiment(small(16, 16)), 256);
  const auto right = [&] {
    return sumOfScores(valueOf(engine->evaluate(unitOf("dense", std::nullopt, 16))));
  };
  EXPECT_GT(right(), 12);
  ASSERT_TRUE(
      engine->switchTo(experiment(small(16, 16, {"spec.generation.repetitionPenalty=10"}))));
  EXPECT_LT(right(), 4);
}

TEST(Engine, ARepetitionAsksTheSameQuestionsAndDrawsAnew) {
  const auto again = small(32, 32, {"spec.repetition=5"});
  const auto first = load(experiment(small(32, 32)), 256);
  const auto repeated = load(experiment(again), 256);
  EXPECT_EQ(first->facts().dataset_sha256(), repeated->facts().dataset_sha256());
  const auto answered = [](Engine* engine, const v1::EvaluationUnit& unit) {
    const auto result = valueOf(engine->evaluate(unit));
    return std::pair(result.counts().unique_rows(), scoresOf(result));
  };
  const auto dense = unitOf("dense", std::nullopt, 32), sampled = unitOf("s2anta-sys", 1, 32);
  EXPECT_EQ(answered(first.get(), dense), answered(repeated.get(), dense));
  EXPECT_EQ(answered(first.get(), sampled), answered(first.get(), sampled));
  EXPECT_NE(answered(first.get(), sampled), answered(repeated.get(), sampled));
  // No reason to load anything again.
  ASSERT_TRUE(first->switchTo(experiment(again)));
  EXPECT_EQ(answered(first.get(), sampled), answered(repeated.get(), sampled));
}

TEST(Engine, EpisodesReadTheirPromptsAsTheExperimentSays) {
  const auto e = experiment(small(64, 8, {"spec.attention.prefill=s2anta-sys"}));
  const auto roomy = load(e, 512), cramped = load(e, 12);
  const auto policy = initialState(e, 8).policy();
  const auto together = roomy->rollOut(policy, "x", {0, 1});
  const auto densely = load(experiment(small(64, 8)), 512)->rollOut(policy, "x", {1});
  ASSERT_TRUE(together && densely);
  for (Engine* engine : {roomy.get(), cramped.get()}) {
    const auto alone = valueOf(engine->rollOut(policy, "x", {1}));
    const v1::EpisodeResult &a = alone.front(), &b = (*together)[1];
    EXPECT_EQ(scoresOf(a), scoresOf(b));
    // The schedule is the same; what is read under it in the prefill is not.
    EXPECT_EQ(a.schedule_size(), densely->front().schedule_size());
    EXPECT_NE(a.counts().unique_rows(), densely->front().counts().unique_rows());
  }
}

// Keys and values are kept as the key says, whatever a worker has loaded before.
TEST(Engine, KeysAndValuesAreKeptAsTheExperimentSays) {
  const auto of = [](const std::string& dtype) {
    auto e = experiment(small(32, 8));
    e.mutable_spec()->mutable_model()->set_kv_dtype(dtype);
    return e;
  };
  std::map<std::string, std::string> results;
  std::map<std::string, size_t> least;
  const std::map<std::string, kernels::Element> elements = {
      {"", kernels::Element::kBFloat16},
      {"bfloat16", kernels::Element::kBFloat16},
      {"float32", kernels::Element::kFloat32},
      {"fp8", kernels::Element::kE4M3}};
  for (const auto& [dtype, element] : elements) {
    const auto engine = load(of(dtype), 64);
    auto unit = unitOf("s2anta-sys", 8, 8);
    const auto result = valueOf(engine->evaluate(unit));
    results[dtype] = timeless(result).SerializeAsString();
    least[dtype] = engine->leastKvBytes();
    EXPECT_EQ(engine->decoder().pool().layer(0).element, element);
    const auto again = valueOf(load(of(dtype), 64)->evaluate(unit));
    EXPECT_EQ(timeless(again).SerializeAsString(), results[dtype]);
    EXPECT_EQ(engine->switchTo(of("float32")).has_value(), dtype == "float32");
  }
  EXPECT_EQ(results[""], results["bfloat16"]);
  EXPECT_NE(results["bfloat16"], results["float32"]);  // its bytes, for one
  EXPECT_NE(results["bfloat16"], results["fp8"]);
  EXPECT_EQ(least["float32"], 2 * least["bfloat16"]);
  EXPECT_EQ(least["bfloat16"], 2 * least["fp8"]);
}

TEST(Engine, RefusesMethodsItDoesNotKnow) {
  const auto e = experimentOf({"s2anta-q4 bits=5"}, {"spec.task.trainQuestions=16"});
  EXPECT_THAT(Engine::load(e, {.model_folder = kRecall7m}),
              isError(HasSubstr("spec.evaluation.methods: s2anta-q4 bits=5: ")));
}

TEST(Engine, TooLittleMemoryIsSaidNotDied) {
  const auto e = experiment({"spec.task.contextTokens=512", "spec.task.trainQuestions=16",
                             "spec.task.heldOutQuestions=8"});
  const auto engine = load(e, 1);
  EXPECT_THAT(engine->rollOut(initialState(e, 8).policy(), "x", {0}),
              isError(HasSubstr("--kv-memory")));
}

// Asked between prompts and between decode steps; what is in memory by then stays good.
TEST(Engine, WorkThatIsGivenUpLeavesNothingBehind) {
  const auto e =
      experimentOf({"s2anta-sys"}, small(32, 8, {"spec.evaluation.measures=[fidelity]"}));
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
  const auto alone = valueOf(load(e, 128)->rollOut(policy, "x", {0, 1}));
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
  const auto again = valueOf(engine->rollOut(policy, "x", {0, 1}));
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(again[i].reward(), alone[i].reward());
    EXPECT_EQ(again[i].counts().draws(), alone[i].counts().draws());
  }
}

TEST(Engine, TakesUpAnotherExperimentOnTheSameModelAndQuestions) {
  const auto with = [](const std::vector<std::string>& more) {
    return experimentOf({"s2anta-sys"}, small(32, 8, more));
  };
  const auto engine = load(with({}), 128);
  const auto other = with({"spec.policy.totalBudget=16", "spec.attention.decode=santa",
                           "spec.rollout.questionsPerEpisode=4"});
  const auto policy = initialState(other, 8).policy();
  ASSERT_TRUE(engine->rollOut(policy, "x", {5}));
  ASSERT_THAT(engine->switchTo(other), succeeds());
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
