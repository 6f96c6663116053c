// What is kept of an answer, and how much room there is for answers.
#include "core/evaluation/answers.h"

#include "core/evaluation/evaluation_check.h"
#include "core/spec/spec.h"
#include "core/utf8.h"
#include "tests/results.h"

namespace allot {
namespace {

const std::vector<std::string> kExpected = {"21"};

v1::Answer kept(const std::string& text) {
  const std::vector<int32_t> tokens = {7, 8};
  return answerOf(
      {.question = 3, .text = text, .tokens = tokens, .prompt = "How old?", .expected = kExpected});
}

bool isUtf8(std::string_view text) {
  while (!text.empty()) {
    const size_t length = utf8Length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

TEST(Answers, AShortOneIsKeptWhole) {
  v1::GraderReading reading;
  reading.set_grader("number-llama");
  reading.set_taken("3");
  const v1::Answer answer = answerOf({.question = 3,
                                      .text = "in 3 years 21",
                                      .tokens = {},
                                      .prompt = "How old?",
                                      .expected = kExpected,
                                      .readings = {reading}});
  EXPECT_EQ(answer.question(), 3u);
  EXPECT_EQ(answer.text(), "in 3 years 21");
  EXPECT_EQ(answer.left_out(), 0u);
  EXPECT_EQ(answer.end(), "");
  EXPECT_EQ(answer.prompt_end(), "How old?");
  EXPECT_EQ(answer.prompt_left_out(), 0u);
  EXPECT_THAT(answer.expected(), ElementsAre("21"));
  EXPECT_EQ(answer.readings(0).taken(), "3");
  EXPECT_THAT(answer.tokens(), IsEmpty());
}

TEST(Answers, OfALongOneTheBeginningAndMoreOfTheEnd) {
  const std::string text = "begins" + std::string(5000, 'x') + "é\\boxed{21}";
  const v1::Answer answer = kept(text);
  EXPECT_THAT(answer.text(), StartsWith("begins"));
  EXPECT_THAT(answer.end(), EndsWith("é\\boxed{21}"));
  EXPECT_EQ(answer.text().size(), kLongestAnswer / 4);
  EXPECT_EQ(answer.end().size(), kLongestAnswer - kLongestAnswer / 4);
  EXPECT_EQ(answer.text().size() + answer.left_out() + answer.end().size(), text.size());
  EXPECT_EQ(kept(std::string(kLongestAnswer, 'x')).left_out(), 0u);
}

// Whatever is cut, and wherever, protobuf and JSON take it.
TEST(Answers, AreUtf8WhereverTheyAreCut) {
  for (size_t shift = 0; shift < 4; ++shift) {
    std::string text(shift, 'a');
    for (int i = 0; i < 2000; ++i) text += "\U0001F600";
    const std::vector<std::string> expected = {text};
    const v1::Answer answer =
        answerOf({.question = 0, .text = text, .tokens = {}, .prompt = text, .expected = expected});
    for (const auto& part : {answer.text(), answer.end(), answer.prompt_end(), answer.expected(0)})
      EXPECT_TRUE(isUtf8(part)) << shift;
    EXPECT_LE(answer.text().size() + answer.end().size(), kLongestAnswer);
    EXPECT_LE(answer.prompt_end().size(), kLongestPromptEnd);
    EXPECT_EQ(answer.prompt_end().size() + answer.prompt_left_out(), text.size());
    EXPECT_LE(answer.expected(0).size(), kLongestExpected);
    EXPECT_EQ(answer.expected(0).size() + answer.expected_left_out(), text.size());
  }
  EXPECT_EQ(kept("a\xff\xe2\x82z\xc3").text(), "a\uFFFD\uFFFD\uFFFDz\uFFFD");
  EXPECT_EQ(kept(std::string("a\0\x1b[2J", 6)).text(), std::string("a\0\x1b[2J", 6));
  v1::Answer back;
  EXPECT_TRUE(back.ParseFromString(kept(std::string(9000, '\xff')).SerializeAsString()));
}

TEST(Answers, ThatAreNoTextAreTokens) {
  EXPECT_THAT(kept("").tokens(), ElementsAre(7u, 8u));
  EXPECT_THAT(kept("x").tokens(), IsEmpty());
  const std::vector<int32_t> many(4000, 5);
  EXPECT_EQ(answerOf({.question = 0, .text = "", .tokens = many, .prompt = "", .expected = {}})
                .tokens_size(),
            kMostTokensKept);
}

TEST(Answers, AreKeptAsTheExperimentSays) {
  const auto keeps = [](const char* word, double score, std::optional<double> other) {
    v1::Evaluation evaluation;
    evaluation.set_answers(word);
    v1::QuestionScore graded;
    graded.set_score(score);
    if (other) graded.set_other_score(*other);
    return isKept(evaluation, graded);
  };
  EXPECT_FALSE(keeps("", 0, std::nullopt));  // missing
  EXPECT_FALSE(keeps("none", 0, std::nullopt));
  EXPECT_TRUE(keeps("wrong", 0, std::nullopt));
  EXPECT_TRUE(keeps("wrong", 0.75, std::nullopt));
  EXPECT_FALSE(keeps("wrong", 1, std::nullopt));
  EXPECT_FALSE(keeps("wrong", 1, 1));
  EXPECT_TRUE(keeps("wrong", 1, 0.5));  // one of the graders may be wrong
  EXPECT_TRUE(keeps("all", 1, std::nullopt));
}

TEST(Answers, AreCutAlikeAndThenLeftOutWhereThereIsNoRoom) {
  std::vector<v1::Answer> answers;
  for (uint32_t i = 0; i < 32; ++i) {
    v1::Answer answer = kept("begins" + std::string(3000, 'x') + "ends");
    answer.set_question(i);
    answers.push_back(answer);
  }
  uint64_t before = UINT64_MAX;
  for (const uint64_t room : {1'000'000u, 50'000u, 20'000u, 9'000u, 700u, 3u}) {
    const v1::EvaluationAnswers all = fitted(answers, room);
    EXPECT_LT(all.ByteSizeLong(), before);
    before = all.ByteSizeLong();
    EXPECT_EQ(static_cast<uint32_t>(all.answers_size()) + all.left_out(), 32u) << room;
    EXPECT_EQ(all.left_out() == 0, room >= 9'000) << room;
    // To say that there was no room takes no more than two bytes.
    EXPECT_LE(all.ByteSizeLong(), std::max<uint64_t>(room, 4)) << room;
    for (const v1::Answer& answer : all.answers()) {
      EXPECT_THAT(answer.text(), StartsWith("begins"));
      EXPECT_THAT(answer.end(), EndsWith("ends"));
      EXPECT_EQ(answer.text().size() + answer.left_out() + answer.end().size(), 3010u) << room;
      EXPECT_EQ(answer.text().size(), all.answers(0).text().size());
    }
  }
  EXPECT_EQ(fitted(answers, 700).answers(0).question(), 0u);
  EXPECT_EQ(fitted({}, 700).ByteSizeLong(), 0u);
}

v1::Experiment tinyWith(const std::vector<std::string>& set) {
  return valueOf(parseExperiment(
      "apiVersion: allot.dev/v1alpha1\nkind: Experiment\nmetadata: {name: tiny}\nspec:\n"
      "  model: {path: m}\n  task: {tasks: [niah]}\n  policy: {totalBudget: 8}\n",
      "tiny.yaml", set));
}

TEST(Answers, OfARunHaveABound) {
  // 15 units each of dense, of uniform, and six times of learned.
  const std::string learning = "spec.update.maxUpdates=150";
  EXPECT_EQ(roomForAnswers(tinyWith({learning}), 8), kLargestAnswers);
  const v1::Experiment longer =
      tinyWith({"spec.update.maxUpdates=100000", "spec.evaluation.budgets=[8, 16, 32, 64, 128]"});
  const uint64_t units = 15 + 5 * 15 + 4000 * 5 * 15;
  EXPECT_EQ(roomForAnswers(longer, 8), kAnswersOfARun / units);
  // Evaluated at the end alone, and never again; fidelity has no answers.
  EXPECT_EQ(roomForAnswers(tinyWith({"spec.update.maxUpdates=100000",
                                     "spec.evaluation={everyUpdates: 0, measures: [accuracy, "
                                     "fidelity], budgets: [8]}",
                                     "spec.task.heldOutQuestions=12800"}),
                           8),
            kAnswersOfARun / 1200);
  EXPECT_EQ(roomForAnswers(tinyWith({"spec.task.heldOutQuestions=32000"}), 8),
            kAnswersOfARun / 2000);  // a sweep
  // A grid that no aggregator takes is not planned: it would fill the memory.
  EXPECT_EQ(roomForAnswers(tinyWith({"spec.evaluation.schedules=[oneHot]"}), 1u << 30), 0u);
}

TEST(EvaluationCheck, RefusesAnswersThatCannotBe) {
  const auto why = [](auto change) {
    v1::EvaluationResult result;
    result.mutable_unit()->set_first_question(32);
    result.mutable_unit()->set_question_count(2);
    for (uint32_t q = 32; q < 34; ++q) {
      result.add_scores()->set_question(q);
      v1::Answer answer = kept("21");
      answer.set_question(q);
      *result.mutable_answers()->add_answers() = answer;
    }
    change(&result);
    return whyImpossible(result, {1, 3}).value_or("");
  };
  const std::string answers = "has answers that cannot be";
  EXPECT_EQ(why([](auto*) {}), "");
  EXPECT_EQ(why([](auto* r) { r->clear_answers(); }), "");  // an older worker's
  EXPECT_EQ(why([](auto* r) { r->mutable_answers()->mutable_answers()->RemoveLast(); }), "");
  EXPECT_EQ(why([](auto* r) { r->mutable_answers()->mutable_answers(0)->set_question(33); }),
            answers);  // twice
  EXPECT_EQ(why([](auto* r) { r->mutable_answers()->mutable_answers(0)->set_question(34); }),
            answers);  // of another unit
  EXPECT_EQ(why([](auto* r) { r->mutable_answers()->set_left_out(1); }), answers);
  EXPECT_EQ(why([](auto* r) { r->mutable_answers()->set_left_out(UINT32_MAX); }), answers);
  const auto sized = [](size_t bytes) {
    return [bytes](v1::EvaluationResult* r) {
      r->mutable_answers()->mutable_answers(0)->set_text(std::string(bytes, 'x'));
    };
  };
  EXPECT_EQ(why(sized(kLargestAnswers - 1000)), "");
  EXPECT_EQ(why(sized(kLargestAnswers)), answers);
  // A unit of fidelity answers nothing.
  EXPECT_EQ(why([](auto* r) {
              r->mutable_unit()->set_measure("fidelity");
              r->clear_scores();
            }),
            answers);
}

}  // namespace
}  // namespace allot
