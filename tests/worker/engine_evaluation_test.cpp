// Evaluation units on recall-7m: accuracy, and results that depend on nothing but the unit.
#include <gmock/gmock.h>

#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "core/evaluation/evaluation_check.h"
#include "core/evaluation/evaluation_plan.h"
#include "core/learning/update.h"
#include "tests/results.h"
#include "tests/worker/engine_fixture.h"

namespace allot {
namespace {

using testing::HasSubstr;

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
    const auto result = valueOf(engine->evaluate(unit));
    for (const auto& score : result.scores()) {
      const std::string& task = engine->dataset().held_out[score.question()].task;
      EXPECT_EQ(e.spec().task().tasks(static_cast<int>(score.task())), task);
      right[task] += score.score();
    }
  }
  ASSERT_EQ(right.size(), 3u);
  for (const auto& [task, count] : right) EXPECT_GE(count, 99) << task << " of 100";
}

// Where prompts or answers are drawn, the same questions are answered by other draws; what draws
// nothing answers alike. The first of them is what a unit without repeats is.
TEST(Engine, ARepeatHasDrawsOfItsOwn) {
  const std::string evaluation =
      "spec.evaluation={repeats: 3, prefills: [dense, s2anta-sys], methods: [dense, s2anta-sys, "
      "top-k]}";
  const std::string on_cpu = "spec.model.device=cpu";  // top-k is for the CPU alone
  const auto e = experiment(small(32, 16, {evaluation, on_cpu}));
  const auto engine = load(e, 256);
  const auto repeated = [&](Engine* by, v1::EvaluationUnit unit, uint32_t repeat,
                            const char* prefill = "") {
    unit.set_prefill(prefill);
    unit.set_repeat(repeat);
    v1::EvaluationResult bare = timeless(valueOf(by->evaluate(unit)));
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
  const auto once = load(experiment(small(32, 16, {on_cpu})), 256);
  EXPECT_EQ(repeated(once.get(), sampled, 0), repeated(engine.get(), sampled, 0));
  // Tokens that are sampled are others in each repeat, whatever the method.
  const auto warm = load(experiment(small(32, 16, {"spec.generation.temperature=1.5"})), 256);
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
  const auto e = experiment(small(32, 40));
  const size_t least = load(e, 64)->leastKvBytes();
  const auto policy = initialState(e, 8).policy();
  const auto cramped = valueOf(Engine::load(e, {.model_folder = kRecall7m, .kv_bytes = least}));
  EXPECT_TRUE(cramped->rollOut(policy, "x", {0, 1}));
  const auto less = valueOf(Engine::load(e, {.model_folder = kRecall7m, .kv_bytes = least / 2}));
  EXPECT_FALSE(less->rollOut(policy, "x", {0, 1}));
  // Fidelity compares a chunk of questions side by side.
  auto f =
      experimentOf({"dense", "s2anta-sys"}, small(32, 40, {"spec.evaluation.measures=[fidelity]"}));
  const size_t more = load(f, 64)->leastKvBytes();
  EXPECT_GT(more, 16 * least);
  const auto enough = valueOf(Engine::load(f, {.model_folder = kRecall7m, .kv_bytes = more}));
  auto unit = unitOf("s2anta-sys", 8, 32);
  unit.set_measure("fidelity");
  EXPECT_THAT(enough->evaluate(unit), succeeds());
}

TEST(Engine, EveryMethodWithEnoughBudgetAnswersAsDenseDoes) {
  std::vector<std::string> methods;
  for (const std::string_view name : kernels::methodNames()) {
    // Bernoulli's scores are estimates whatever the budget.
    if (name != "bernoulli") methods.emplace_back(name);
  }
  const auto e = experimentOf(methods, small(16, 16));
  const auto engine = load(e, 256);
  const auto dense = valueOf(engine->evaluate(unitOf("dense", std::nullopt, 16)));
  EXPECT_EQ(dense.counts().key_bytes() + dense.counts().value_bytes(),
            dense.counts().dense_bytes());
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
    EXPECT_EQ(scoresOf(*all), scoresOf(dense)) << method;
    EXPECT_EQ(all->counts().unique_rows(), dense.counts().unique_rows()) << method;
  }
}

TEST(Engine, UnitsAreTheSameAloneAndTogether) {
  const auto e =
      experimentOf({"dense", "s2anta-sys"},
                   small(32, 16,
                         {"spec.evaluation.prefills=[dense, s2anta-sys]",
                          "spec.evaluation.repeats=2", "spec.generation.temperature=0.7"}));
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
      const auto together = valueOf(engine->evaluateTogether(units));
      ASSERT_EQ(together.size(), units.size());
      double seconds = 0;
      for (size_t i = 0; i < units.size(); ++i) {
        const auto alone = valueOf(roomy->evaluate(units[i]));
        EXPECT_EQ(timeless(together[i]).SerializeAsString(), timeless(alone).SerializeAsString());
        EXPECT_GT(together[i].counts().decode_seconds(), 0);
        seconds += together[i].counts().decode_seconds();
      }
      EXPECT_LE(seconds, together[0].seconds() * static_cast<double>(units.size()));
    }
  }
  auto other = unitOf("dense", std::nullopt, 8);
  EXPECT_FALSE(answeredTogether(other, unitOf("s2anta-sys", 2, 8)));
  other.set_measure("fidelity");
  EXPECT_FALSE(answeredTogether(other, other));
}

TEST(Engine, PromptsAreReadAsTheUnitSaysWhateverWasReadBefore) {
  const std::string text = "sample-attention alphaColumn=0.3 alphaSlash=0.3 block=16";
  const auto e =
      experimentOf({"dense", "s2anta-sys"},
                   small(32, 16, {"spec.evaluation.prefills=[dense, " + text + ", s2anta-sys]"}));
  const auto roomy = load(e, 256), cramped = load(e, 12);
  const auto measured = [](Engine* engine, v1::EvaluationUnit unit, const std::string& prefill,
                           uint32_t chunk) {
    unit.set_prefill(prefill);
    unit.set_chunk(chunk);
    unit.set_first_question(8 * chunk);
    return timeless(valueOf(engine->evaluate(unit)));
  };
  const auto dense = unitOf("dense", std::nullopt, 8), sampled = unitOf("s2anta-sys", 2, 8);
  for (Engine* engine : {cramped.get(), roomy.get()}) {
    for (const uint32_t chunk : {0u, 1u}) {
      const auto plain = measured(engine, dense, "", chunk);
      const auto sparse = measured(engine, dense, text, chunk);
      const auto drawn = measured(engine, sampled, "s2anta-sys", chunk);
      EXPECT_EQ(plain.prefill().prompts(), 8u);
      EXPECT_EQ(plain.prefill().blocks(), plain.prefill().dense_blocks());
      EXPECT_LT(sparse.prefill().blocks(), sparse.prefill().dense_blocks());
      EXPECT_EQ(sparse.prefill().kept_queries() > 0, chunk == 0);
      EXPECT_GT(drawn.prefill().dense_rows(), 0u);
      EXPECT_LT(drawn.prefill().unique_rows() * 4, drawn.prefill().dense_rows());
      // Two draws a layer in both phases are far too few.
      EXPECT_LT(sumOfScores(drawn), sumOfScores(plain) - 2);
      // Once more, now that others have been in memory.
      EXPECT_EQ(measured(engine, dense, "", chunk).SerializeAsString(), plain.SerializeAsString());
      const auto again = measured(roomy.get(), sampled, "s2anta-sys", chunk);
      EXPECT_EQ(again.SerializeAsString(), drawn.SerializeAsString());
    }
  }
  auto unit = dense;
  unit.set_prefill("quest");
  EXPECT_THAT(roomy->evaluate(unit), isError(HasSubstr("quest does not read prompts")));
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
    const double right = sumOfScores(*result);
    // Another machine may round otherwise: as wide as 32 other questions could be in 1 of 2000
    // cases, and half a question.
    const double p = measured.accuracy;
    EXPECT_NEAR(right / 32, p, 3.5 * std::sqrt(p * (1 - p) / 32) + 0.5 / 32)
        << measured.method << " at " << measured.budget;
    const auto& counts = result->counts();
    EXPECT_LT(counts.key_bytes() + counts.value_bytes(), counts.dense_bytes()) << measured.method;
  }
}

TEST(Engine, AUnitIsTheSameWhateverWasComputedBefore) {
  const std::vector<std::string> methods = {"s2anta-q4", "quest", "vattention epsilon=0.3"};
  const auto e = experimentOf(methods, small(64, 16));
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
    return timeless(valueOf(engine->evaluate(unit))).SerializeAsString();
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
  const auto e = experimentOf({"s2anta-sys"}, small(16, 8));
  const auto engine = load(e, 128);
  v1::EvaluationUnit unit = unitOf("s2anta-sys", 16, 8);
  unit.set_measure("fidelity");
  const auto result = valueOf(engine->evaluate(unit));
  EXPECT_EQ(result.scores_size(), 0);
  uint64_t states = 0, steps = 0;
  for (const auto& cell : result.fidelity()) {
    EXPECT_LT(cell.task(), 4u);
    states += cell.states();
  }
  ASSERT_EQ(result.agreement_size(), 4);
  for (const auto& cell : result.agreement()) {
    EXPECT_LE(cell.agreed(), cell.steps());
    steps += cell.steps();
  }
  EXPECT_EQ(result.counts().decode_steps(), steps);
  EXPECT_EQ(states, steps * 8 * 8);
  EXPECT_EQ(result.counts().draws(), steps * 8 * 8 * 16);
  EXPECT_EQ(whyImpossible(result, boundsOf(e, 8)), std::nullopt);
  unit.set_measure("nonsense");
  EXPECT_FALSE(engine->evaluate(unit));
}

TEST(Engine, ALayerLossUnitIsOfTrainingQuestionsAndOfSingleLayers) {
  const auto e = experiment(small(16, 8, {"spec.policy.measureQuestions=8"}));
  const auto engine = load(e, 128);
  std::vector<double> losses;  // of layer 0, by reads
  for (const v1::EvaluationUnit& unit : planLayerLosses(e, 8)) {
    const auto result = valueOf(engine->evaluate(unit));
    EXPECT_EQ(whyImpossible(result, boundsOf(e, 8)), std::nullopt);
    uint64_t steps = 0, questions = 0;
    double divergence = 0;
    for (const auto& cell : result.agreement()) {
      steps += cell.steps();
      if (cell.layer() != 0) continue;
      questions += cell.questions();
      divergence += cell.divergence();
    }
    EXPECT_EQ(questions, 8u);
    EXPECT_EQ(result.counts().decode_steps(), steps);
    losses.push_back(divergence);
    v1::EvaluationUnit beyond = unit;
    beyond.set_first_question(12);
    EXPECT_THAT(engine->evaluate(beyond), isError(HasSubstr("questions beyond the training set")));
  }
  ASSERT_EQ(losses.size(), 7u);
  EXPECT_GT(losses[0], 100 * losses[3]);  // off, and at 4 reads
  EXPECT_GT(losses[3], losses[6]);
}

TEST(Engine, ComparesAsTheExperimentSays) {
  const auto with = [](const std::string& evaluation) {
    return experiment(
        small(16, 8, {"spec.evaluation={methods: [dense, s2anta-sys], " + evaluation + "}"}));
  };
  const auto last = with("measures: [fidelity tile=256 agreement=last-layer]");
  const auto engine = load(last, 128);
  v1::EvaluationUnit unit = unitOf("s2anta-sys", 16, 8);
  const auto evaluated = [&](const char* measure, const v1::Experiment& e) {
    EXPECT_TRUE(engine->switchTo(e));
    unit.set_measure(measure);
    auto result = valueOf(engine->evaluate(unit));
    EXPECT_EQ(whyImpossible(result, boundsOf(e, 8)), std::nullopt);
    return result;
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
  const auto with = [](const std::string& answers) {
    return experiment(small(16, 8, {"spec.evaluation.answers=" + answers}));
  };
  const auto engine = load(with("all"), 256);
  v1::EvaluationUnit unit = unitOf("s2anta-sys", 8, 8);
  const auto evaluated = [&] {
    auto result = valueOf(engine->evaluate(unit));
    EXPECT_EQ(whyImpossible(result, {}), std::nullopt);
    return result;
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
  const auto e = experiment(small(16, 8));
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
  EXPECT_EQ(codeOf(engine->evaluate(unitOf("s2anta-q4", 1, 4))), ErrorCode::kData);
  EXPECT_FALSE(engine->evaluate(unitOf("s2anta-sys", std::nullopt, 4)));
}

}  // namespace
}  // namespace allot
