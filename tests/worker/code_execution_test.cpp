// The engine and answers that are graded by running them (worker/tasks/python_tests.h).
#include <gmock/gmock.h>

#include <cstdlib>

#include "core/spec/spec.h"
#include "tests/results.h"
#include "worker/engine/engine.h"
#include "worker/tasks/python_tests.h"

namespace allot {
namespace {

using testing::HasSubstr;

// No experiment can give the leave that this needs. What the model of this repository writes is no
// program.
TEST(CodeExecution, NeedsLeave) {
  const char* const yaml =
      "apiVersion: allot.dev/v1alpha1\nkind: Experiment\nmetadata: {name: code}\nspec:\n"
      "  model: {path: m}\n"
      "  task: {suite: humaneval, path: f, trainQuestions: 0, heldOutQuestions: 4,"
      " contextTokens: 512, maxNewTokens: 8}\n"
      "  policy: {totalBudget: 8}\n  evaluation: {answers: all}\n";
  const auto e = valueOf(parseExperiment(yaml, "code.yaml", {}));
  EngineOptions options{.model_folder = ALLOT_SOURCE_DIR "/experiments/models/recall-7m",
                        .task_path = ALLOT_SOURCE_DIR "/tests/worker/humaneval/problems.jsonl",
                        .kv_bytes = size_t{256} << 20};
  v1::EvaluationUnit unit;
  unit.set_method("dense");
  unit.set_question_count(4);
  auto engine = Engine::load(e, options);
  ASSERT_TRUE(engine) << engine.error().message;
  EXPECT_THAT((*engine)->evaluate(unit),
              isError(ErrorCode::kUsage, HasSubstr("--allow-code-execution")));

  if (const auto can = checkPrograms(); !can) {
    ASSERT_EQ(std::getenv("ALLOT_CI"), nullptr) << can.error().message;
    GTEST_SKIP() << can.error().message;
  }
  options.allow_code_execution = true;
  engine = Engine::load(e, options);
  ASSERT_TRUE(engine) << engine.error().message;
  const auto result = valueOf((*engine)->evaluate(unit));
  ASSERT_EQ(result.scores_size(), 4);
  for (const auto& score : result.scores()) EXPECT_EQ(score.score(), 0);
  EXPECT_GT((*engine)->times().grading, 0.01) << "nothing was run";
  ASSERT_EQ(result.answers().answers_size(), 4);
  EXPECT_EQ(result.answers().answers(0).readings(0).grader(), "python-tests");
}

}  // namespace
}  // namespace allot
