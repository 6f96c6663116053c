// `allot compare` of two of allot's own runs.
#include "cli/run_comparison.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "tests/results.h"

namespace allot {
namespace {

constexpr uint32_t kQuestions = 300;

RunHead headOf(uint64_t seed = 1) {
  RunHead head;
  v1::Spec& spec = *head.image.spec.experiment.mutable_spec();
  spec.set_seed(seed);
  spec.mutable_task()->set_suite("recall");
  spec.mutable_task()->set_held_out_questions(kQuestions);
  v1::ModelFacts facts;
  facts.set_layers(8);
  facts.set_weights_sha256("aaaabbbbccccdddd");
  facts.set_dataset_sha256("1111222233334444");
  facts.set_model_sha256("5555666677778888");
  head.image.model = facts;
  return head;
}

// The first `right` questions of all are answered rightly.
v1::EvaluationResult answered(const char* schedule, uint64_t version, uint32_t budget,
                              uint32_t right) {
  v1::EvaluationResult result;
  v1::EvaluationUnit& unit = *result.mutable_unit();
  unit.set_method(budget == 0 ? "dense" : "santa");
  unit.set_schedule_name(schedule);
  unit.set_policy_version(version);
  unit.set_total_budget(budget);
  for (uint32_t i = 0; i < kQuestions; ++i) {
    v1::QuestionScore& score = *result.add_scores();
    score.set_question(i);
    score.set_score(i < right ? 1 : 0);
  }
  return result;
}

Result<MeasuredRun> run(const RunHead& head, const std::vector<v1::EvaluationResult>& results,
                        std::optional<uint64_t> version = {}) {
  EvaluationTable table(head.image.spec.experiment);
  for (const v1::EvaluationResult& result : results) table.add(result);
  return measuredRun("runs/x", head, std::move(table), version);
}

TEST(RunComparison, PairsTheSameCellsByQuestion) {
  const auto a =
      valueOf(run(headOf(), {answered("dense", 0, 0, 200), answered("uniform", 0, 8, 150),
                             answered("learned", 5, 8, 160), answered("learned", 9, 8, 170)}));
  const auto b = valueOf(run(headOf(), {answered("dense", 0, 0, 200), answered("uniform", 0, 16, 9),
                                        answered("learned", 7, 8, 190)}));
  const auto compared = valueOf(compareRuns(a, b));
  ASSERT_EQ(compared.rows.size(), 2u);
  EXPECT_EQ(compared.rows[0].task, "dense");
  EXPECT_EQ(compared.rows[0].difference.mean, 0);
  const PredictionRow& learned = compared.rows[1];
  EXPECT_EQ(learned.task, "santa, learned, budget 8");
  EXPECT_EQ(learned.questions, kQuestions);
  EXPECT_NEAR(learned.difference.mean, 20.0 / 300, 1e-12);  // of the newest
  EXPECT_EQ(learned.difference.test, "mcnemar");
  EXPECT_NEAR(learned.difference.p, 2 * std::ldexp(1, -20), 1e-18);
  EXPECT_EQ(learned.difference.family, 2u);
  const auto mirrored = valueOf(compareRuns(b, a)).rows[1].difference;
  EXPECT_EQ(mirrored.interval.low, -learned.difference.interval.high);
  const std::string text = comparisonText(compared, "a", "b", 0.02);
  EXPECT_THAT(text, HasSubstr("as good to within 2 points\n"));
  EXPECT_THAT(text, HasSubstr("as good to within 2 points, and better *\n"));
  EXPECT_THAT(text, HasSubstr("p, of no difference: McNemar's exact test\n"));
  EXPECT_EQ(comparisonJson(compared, 0.02)["rows"][1]["verdict"], "as-good");
  EXPECT_EQ(comparisonJson(compared)["rows"][1]["verdict"], nullptr);
  // A learner's earlier version.
  const auto earlier =
      valueOf(run(headOf(), {answered("learned", 5, 8, 160), answered("learned", 9, 8, 170)}, 5));
  EXPECT_NEAR(valueOf(compareRuns(earlier, b)).rows[0].difference.mean, 0.1, 1e-12);
}

TEST(RunComparison, RefusesOtherDataModelsAndSeeds) {
  const auto of = [](const RunHead& head) {
    return valueOf(run(head, {answered("dense", 0, 0, 200)}));
  };
  const MeasuredRun a = of(headOf());
  const auto refusal = [&](auto change) {
    RunHead head = headOf();
    change(&head);
    return messageOf(compareRuns(a, of(head)));
  };
  EXPECT_EQ(refusal([](RunHead*) {}), "");
  EXPECT_TRUE(modelDifferences(a, a).empty());
  RunHead narrow = headOf();
  narrow.image.spec.experiment.mutable_spec()->mutable_model()->set_kv_dtype("fp8");
  narrow.image.spec.experiment.mutable_spec()->mutable_model()->set_kv_profile(
      R"({"kind": "kv-profile"})");
  EXPECT_TRUE(compareRuns(a, of(narrow)));
  EXPECT_THAT(modelDifferences(a, of(narrow)),
              ElementsAre(HasSubstr("spec.model.kvDtype is"),
                          HasSubstr("none in A and a profile, SHA-256")));
  EXPECT_THAT(
      refusal([](RunHead* head) { head->image.spec.experiment.mutable_spec()->set_seed(2); }),
      HasSubstr("spec.seed is 1 in A and 2 in B"));
  EXPECT_EQ(
      refusal([](RunHead* head) { head->image.spec.experiment.mutable_spec()->set_repetition(3); }),
      "");  // other draws, the same questions
  EXPECT_THAT(refusal([](RunHead* head) {
                head->image.spec.experiment.mutable_spec()->mutable_task()->set_context_tokens(9);
              }),
              HasSubstr("spec.task.contextTokens is 0 in A and 9 in B"));
  EXPECT_THAT(refusal([](RunHead* head) {
                head->image.spec.experiment.mutable_spec()->mutable_policy()->set_step_times(
                    "dense 3, 8 1");
              }),
              HasSubstr("spec.policy.stepTimes is"));
  EXPECT_THAT(refusal([](RunHead* head) { head->image.model->set_dataset_sha256("9999"); }),
              HasSubstr("the dataset's digest is 111122223333 in A and 9999 in B"));
  EXPECT_THAT(refusal([](RunHead* head) { head->image.model->set_weights_sha256("9999"); }),
              HasSubstr("the digest of the model's weights is aaaabbbbcccc in A"));
  EXPECT_EQ(refusal([](RunHead* head) {  // elsewhere, and the same by its digest
              head->image.spec.experiment.mutable_spec()->mutable_task()->set_path("other.jsonl");
            }),
            "");
  EXPECT_THAT(refusal([](RunHead* head) {
                head->image.spec.experiment.mutable_spec()->mutable_task()->set_path("other.jsonl");
                head->image.model->clear_dataset_sha256();
              }),
              HasSubstr("spec.task.path"));
  // Another model or other prompts, unless the digests say that they are the same.
  using Clear = void (v1::ModelFacts::*)();
  const std::pair<const char*, void (*)(v1::Model*)> others[] = {
      {"spec.model.path is", [](v1::Model* model) { model->set_path("other"); }},
      {"spec.model.chatTemplate is", [](v1::Model* model) { model->set_chat_template("none"); }}};
  for (const auto& other : others) {
    const auto without = [&](Clear clear) {
      return refusal([&](RunHead* head) {
        other.second(head->image.spec.experiment.mutable_spec()->mutable_model());
        if (clear != nullptr) (head->image.model.value().*clear)();
      });
    };
    EXPECT_EQ(without(nullptr), "");
    for (const Clear clear :
         {&v1::ModelFacts::clear_dataset_sha256, &v1::ModelFacts::clear_weights_sha256,
          &v1::ModelFacts::clear_model_sha256}) {
      EXPECT_THAT(without(clear), AllOf(HasSubstr(other.first), HasSubstr("is missing")));
    }
  }
  EXPECT_EQ(refusal([](RunHead* head) { head->image.model->clear_model_sha256(); }), "");
  EXPECT_THAT(messageOf(run(headOf(), {answered("learned", 5, 8, 9)}, 4)),
              HasSubstr("run runs/x has no complete evaluation of version 4; it has versions 5"));
  EXPECT_THAT(messageOf(compareRuns(a, valueOf(run(headOf(), {answered("uniform", 0, 8, 9)})))),
              HasSubstr("no method, schedule and budget in common"));
}

}  // namespace
}  // namespace allot
