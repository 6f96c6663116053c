#include "core/evaluation/evaluation_plan.h"

#include <map>
#include <set>

#include "core/learning/measured.h"
#include "core/spec/choices.h"
#include "tests/core/evaluation_results.h"
#include "tests/results.h"

namespace allot {
namespace {

TEST(EvaluationPlan, MethodsWithoutABudgetHaveOneCell) {
  v1::Experiment e = gridOf(32,
                            {"dense", "santa", "vattention epsilon=0.1 delta=0.1", "bernoulli",
                             "bernoulli values=s2anta-sys"},
                            {"uniform", "oneHot"}, {6, 12});
  std::map<std::string, int> cells;  // by method
  for (const auto& unit : planEvaluation(e, threeLayers())) {
    ++cells[unit.method()];
    EXPECT_EQ(unit.measure(), "accuracy");
    if (unit.total_budget() > 0) continue;
    EXPECT_TRUE(unit.schedule().empty());
    EXPECT_EQ(unit.schedule_name(), unit.method() == "dense" ? "dense" : "adaptive");
  }
  EXPECT_EQ(cells, (std::map<std::string, int>{{"dense", 1},
                                               {"santa", 8},
                                               {"vattention epsilon=0.1 delta=0.1", 1},
                                               {"bernoulli", 1},
                                               {"bernoulli values=s2anta-sys", 8}}));
}

TEST(EvaluationPlan, TheWholeGridIsMeasuredWithEachPrefill) {
  v1::Experiment e = gridOf(64, {"dense", "s2anta-sys"}, {"uniform", "oneHot"}, {6});
  v1::Evaluation* evaluation = e.mutable_spec()->mutable_evaluation();
  const std::vector<std::string> densely = [&] {
    std::vector<std::string> ids;
    for (const auto& unit : planEvaluation(e, threeLayers())) ids.push_back(unit.unit_id());
    return ids;
  }();
  for (const char* prefill : {"dense", "sale tau=0.1", "s2anta-sys"}) {
    evaluation->add_prefills(prefill);
  }
  std::vector<std::string> ids;
  std::map<std::string, int> cells;  // by what tables call their methods
  for (const auto& unit : planEvaluation(e, threeLayers())) {
    if (unit.prefill().empty()) ids.push_back(unit.unit_id());
    if (unit.chunk() == 0) ++cells[methodsName(unit)];
    if (methodsName(unit) == "sale tau=0.1 + dense") {
      EXPECT_EQ(unit.schedule_name(), "adaptive");
    }
    // Sampled prompts need the layers' draws, whatever answers read.
    if (unit.prefill() == "s2anta-sys") {
      EXPECT_EQ(unit.schedule_size(), 3);
    }
  }
  EXPECT_EQ(ids, densely);
  EXPECT_EQ(cells, (std::map<std::string, int>{{"dense", 1},
                                               {"s2anta-sys", 4},
                                               {"sale tau=0.1 + dense", 1},
                                               {"sale tau=0.1 + s2anta-sys", 4},
                                               {"s2anta-sys + dense", 4},
                                               {"s2anta-sys + s2anta-sys", 4}}));
  EXPECT_TRUE(checkGrid(e, 3));
  // 10 + 8 cells of methods and prefills a layer and one, times 25,000 chunks.
  e.mutable_spec()->mutable_task()->set_held_out_questions(800'000);
  EXPECT_THAT(checkGrid(e, 3),
              isError(HasSubstr("2 methods and 3 prefills with 4 schedules and budgets each "
                                "(the model has 3 layers) are 18 cells")));
  // Fidelity compares answers' attention with dense.
  evaluation->clear_measures();
  evaluation->add_measures("fidelity");
  for (const auto& unit : planEvaluation(e, threeLayers())) EXPECT_NE(unit.method(), "dense");
}

TEST(EvaluationPlan, SmallerChunksCoverTheSameQuestions) {
  v1::Experiment e = gridOf(100, {"dense", "santa"}, {"uniform"}, {6});
  v1::Evaluation* evaluation = e.mutable_spec()->mutable_evaluation();
  evaluation->add_measures("fidelity");
  for (const uint32_t each : {1u, 7u, 24u, 32u}) {
    evaluation->set_chunk_questions(each);
    std::map<std::pair<std::string, std::string>, std::set<uint32_t>> asked;
    size_t questions = 0;
    for (const auto& unit : planEvaluation(e, threeLayers())) {
      EXPECT_EQ(unit.first_question(), unit.chunk() * each);
      EXPECT_LE(unit.question_count(), each);
      for (uint32_t i = 0; i < unit.question_count(); ++i) {
        asked[{unit.measure(), unit.method()}].insert(unit.first_question() + i);
      }
      questions += unit.question_count();
    }
    const uint32_t compared = (64 + each - 1) / each * each;  // whole chunks
    EXPECT_EQ(comparedQuestions(e.spec(), Measure::kFidelity), compared);
    EXPECT_THAT(asked, SizeIs(3)) << each;
    EXPECT_THAT((asked[{"accuracy", "dense"}]), SizeIs(100));
    EXPECT_THAT((asked[{"accuracy", "santa"}]), SizeIs(100));
    EXPECT_THAT((asked[{"fidelity", "santa"}]), SizeIs(compared));
    EXPECT_EQ(questions, 200 + compared);  // each once
  }
}

TEST(EvaluationPlan, LayersAreMeasuredOnTrainingQuestionsAndMeasuredCellsFollow) {
  v1::Experiment e = gridOf(40, {"dense", "s2anta-sys"}, {"uniform", "measured"}, {6, 12});
  v1::Spec& spec = *e.mutable_spec();
  spec.mutable_attention()->set_prefill("dense");
  spec.mutable_attention()->set_decode("s2anta-sys");
  spec.mutable_task()->set_train_questions(40);
  EXPECT_TRUE(planLayerLosses(e, 3).empty());
  spec.mutable_policy()->set_measure_questions(64);  // there are 40
  const auto units = planLayerLosses(e, 3);
  ASSERT_EQ(units.size(), 2 * kMeasuredReads.size());
  uint32_t questions = 0;
  for (const auto& unit : units) {
    EXPECT_EQ(unit.measure(), "layer-loss");
    EXPECT_GE(unit.chunk(), 2u);  // after those of the held-out questions
    EXPECT_EQ(unit.total_budget(), 3 * unit.schedule(0));
    if (unit.schedule(0) == 32) questions += unit.question_count();
  }
  EXPECT_EQ(units.back().unit_id(), "v000000/c0003/s2anta-sys/uniform/96/layer-loss");
  EXPECT_EQ(questions, 40u);

  v1::Measurement measurement;
  for (const uint32_t reads : kMeasuredReads) {
    for (uint32_t layer = 0; layer < 3; ++layer) {
      v1::LayerLoss& loss = *measurement.add_losses();
      loss.set_layer(layer);
      loss.set_reads(reads);
      loss.set_steps(100);
      loss.set_questions(10);
      loss.set_divergence((layer == 1 ? 90.0 : 9.0) / (1 + reads));
    }
  }
  const auto cells = [&](const Measuring& measuring, const v1::PolicySnapshot& policy) {
    std::map<std::string, size_t> counts;
    for (const auto& unit : planEvaluation(e, policy, measuring)) {
      ++counts[unit.measure() + " " + unit.schedule_name()];
      if (unit.schedule_name() != "measured" || unit.total_budget() != 12) continue;
      EXPECT_GT(unit.schedule(1), unit.schedule(0));
      EXPECT_EQ(unit.schedule(0) + unit.schedule(1) + unit.schedule(2), 12u);
    }
    return counts;
  };
  using Counts = std::map<std::string, size_t>;
  Counts counts{{"accuracy dense", 2}, {"accuracy uniform", 4}, {"layer-loss uniform", 14}};
  EXPECT_EQ(cells({}, threeLayers()), counts);
  counts["accuracy measured"] = 4;
  EXPECT_EQ(cells({&measurement}, threeLayers()), counts);
  counts.erase("layer-loss uniform");
  EXPECT_EQ(cells({&measurement, true}, threeLayers()), counts);
  v1::PolicySnapshot later = threeLayers();
  later.set_version(2);
  EXPECT_TRUE(cells({&measurement}, later).empty());
}

TEST(EvaluationPlan, OneHotCutsALayerToTheReadsThatItIsTold) {
  v1::Experiment e = gridOf(1, {"s2anta-sys"}, {"oneHot", "oneHot"}, {6});
  e.mutable_spec()->mutable_evaluation()->mutable_schedules(1)->set_reads(0);
  std::vector<std::string> cells;
  for (const auto& unit : planEvaluation(e, threeLayers())) {
    std::string text = unit.schedule_name();
    for (const uint32_t draws : unit.schedule()) text += " " + std::to_string(draws);
    cells.push_back(text);
  }
  EXPECT_THAT(cells, ElementsAre("oneHot-00 1 2 2", "oneHot-01 2 1 2", "oneHot-02 2 2 1",
                                 "oneHot-00-reads-0 0 2 2", "oneHot-01-reads-0 2 0 2",
                                 "oneHot-02-reads-0 2 2 0"));
}

TEST(EvaluationPlan, AGridOfMoreThan200000UnitsIsRefusedWithItsArithmetic) {
  v1::Experiment e = gridOf(kMostChunkQuestions, {"dense", "santa", "top-k", "bernoulli"},
                            {"uniform", "oneHot", "explicit"}, {6, 12});
  v1::Evaluation* evaluation = e.mutable_spec()->mutable_evaluation();
  for (int l = 0; l < 3; ++l) evaluation->mutable_schedules(2)->add_samples(1);
  const size_t cells = planEvaluation(e, threeLayers()).size();
  const uint32_t most = static_cast<uint32_t>(kMostUnits / cells);
  e.mutable_spec()->mutable_task()->set_held_out_questions(most * kMostChunkQuestions);
  EXPECT_TRUE(checkGrid(e, 3));
  e.mutable_spec()->mutable_task()->set_held_out_questions(most * kMostChunkQuestions + 1);
  EXPECT_THAT(checkGrid(e, 3),
              isError(HasSubstr(std::to_string(cells) + " cells, times " +
                                std::to_string(most + 1) + " chunks of 32 held-out questions " +
                                std::to_string((most + 1) * cells) + " units")));
  evaluation->add_measures("fidelity");  // on two chunks, and not of dense
  EXPECT_THAT(checkGrid(e, 3).error().message,
              HasSubstr(std::to_string((most + 1) * cells + 2 * (cells - 1))));
}

TEST(EvaluationPlan, FidelityCoversTheFirstChunksOfAllButDense) {
  v1::Experiment e =
      gridOf(150, {"dense", "santa", "vattention epsilon=0.1 delta=0.1"}, {"uniform"}, {6});
  e.mutable_spec()->mutable_evaluation()->add_measures("fidelity");
  std::vector<std::string> fidelity;
  std::map<std::string, uint32_t> questions;
  for (const auto& unit : planEvaluation(e, threeLayers())) {
    questions[unit.measure() + " " + unit.method()] += unit.question_count();
    if (unit.measure() == "fidelity") fidelity.push_back(unit.unit_id());
    EXPECT_EQ(versionOfUnit(unit.unit_id()), 0u);
  }
  EXPECT_THAT(fidelity,
              ElementsAre("v000000/c0000/santa/uniform/6/fidelity",
                          "v000000/c0000/vattention epsilon=0.1 delta=0.1/adaptive/0/fidelity",
                          "v000000/c0001/santa/uniform/6/fidelity",
                          "v000000/c0001/vattention epsilon=0.1 delta=0.1/adaptive/0/fidelity"));
  EXPECT_EQ(questions,
            (std::map<std::string, uint32_t>{{"accuracy dense", 150},
                                             {"accuracy santa", 150},
                                             {"accuracy vattention epsilon=0.1 delta=0.1", 150},
                                             {"fidelity santa", 64},
                                             {"fidelity vattention epsilon=0.1 delta=0.1", 64}}));
}

TEST(EvaluationPlan, FidelityAndVarianceTakeTheQuestionsThatTheyAreGiven) {
  v1::Experiment e = gridOf(150, {"dense", "santa"}, {"uniform"}, {6});
  v1::Evaluation* evaluation = e.mutable_spec()->mutable_evaluation();
  // Asked for, and in whole chunks of 32; 0: the parameter is left out.
  for (const auto& [asked, measured] : std::map<uint32_t, uint32_t>{
           {0, 64}, {1, 32}, {32, 32}, {33, 64}, {129, 150}, {1000, 150}, {1'000'000, 150}}) {
    evaluation->clear_measures();
    const std::string questions_asked = asked > 0 ? " questions=" + std::to_string(asked) : "";
    evaluation->add_measures("fidelity" + questions_asked);
    evaluation->add_measures("variance questions=100");
    EXPECT_EQ(comparedQuestions(e.spec(), Measure::kFidelity), measured) << asked;
    EXPECT_EQ(comparedQuestions(e.spec(), Measure::kVariance), 128u);
    std::map<std::string, uint32_t> questions;
    for (const auto& unit : planEvaluation(e, threeLayers())) {
      questions[unit.measure() + " " + unit.method()] += unit.question_count();
      EXPECT_TRUE(unit.unit_id().ends_with("/" + unit.measure()));
    }
    EXPECT_EQ(questions, (std::map<std::string, uint32_t>{{"fidelity santa", measured},
                                                          {"variance santa", 128}}));
    EXPECT_TRUE(checkGrid(e, 3));
  }
}

TEST(EvaluationPlan, TellsTheVersionInTheIdOfAUnit) {
  EXPECT_EQ(versionOfUnit("v000012/c0001/dense/dense/0"), 12u);
  EXPECT_EQ(versionOfUnit("v1234567/c0001/dense/dense/0"), 1234567u);
  for (const char* id :
       {"", "v", "v/", "/", "v12", "12/", "v-1/", "v1x/", "v99999999999999999999/"}) {
    EXPECT_EQ(versionOfUnit(id), std::nullopt) << id;
  }
}

TEST(EvaluationPlan, CoversEveryQuestionOnceForEveryCell) {
  v1::Experiment e = gridOf(70, {"dense", "santa"}, {"uniform", "oneHot", "explicit"}, {6, 12});
  setFields("samples: [5, 0, 1]", e.mutable_spec()->mutable_evaluation()->mutable_schedules(2));
  v1::PolicySnapshot policy = threeLayers();
  std::map<std::string, std::set<uint32_t>> questions;
  std::set<std::string> ids;
  for (const auto& unit : planEvaluation(e, policy)) {
    EXPECT_TRUE(ids.insert(unit.unit_id()).second);
    for (uint32_t i = 0; i < unit.question_count(); ++i) {
      const std::string cell =
          unit.method() + " " + unit.schedule_name() + " " + std::to_string(unit.total_budget());
      EXPECT_TRUE(questions[cell].insert(unit.first_question() + i).second);
    }
  }
  // dense; uniform and three oneHot at two budgets each; one explicit
  EXPECT_EQ(questions.size(), 1u + 2 * 4 + 1);
  EXPECT_TRUE(questions.contains("santa explicit-00 6"));
  for (const auto& [cell, asked] : questions) EXPECT_EQ(asked.size(), 70u) << cell;
  policy.set_version(5);
  EXPECT_TRUE(planEvaluation(e, policy).empty());
}

}  // namespace
}  // namespace allot
