// `allot compare` on files as other tools write them.
#include "cli/prediction_comparison.h"

#include <nlohmann/json.hpp>

#include "tests/results.h"
#include "tests/temp_folder.h"

namespace allot {
namespace {

class PredictionFiles : public testing::Test {
 protected:
  std::string refusal(const std::string& text, const PredictionFields& fields = {}) {
    return messageOf(readPredictions(folder_.write("bad", text), fields));
  }

  TempFolder folder_;
};

TEST_F(PredictionFiles, DifferencesAreTakenOnTheQuestionsOfBoth) {
  std::string a, b;
  for (int i = 0; i < 200; ++i) {
    const std::string id = std::to_string(i);
    const bool right_a = i % 2 == 0, right_b = right_a || i % 5 == 0;
    // One tool's file and another's: numbers and texts as ids, scores as numbers and booleans.
    a += "{\"doc_id\": " + id + ", \"exact_match\": " + (right_a ? "1.0" : "0.0") + "}\n";
    b += "{\"prompt_id\": \"" + id + "\", \"score\": " + (right_b ? "true" : "false") + "}\r\n\n";
  }
  b += R"({"prompt_id": "more", "score": 1})";  // without a newline at its end
  const auto left = readPredictions(folder_.write("a", a), {});
  const auto right = readPredictions(folder_.write("b", b), {});
  ASSERT_TRUE(left && right);
  const auto compared = valueOf(comparePredictions(*left, *right));
  EXPECT_EQ(compared.only_a, 0u);
  EXPECT_EQ(compared.only_b, 1u);
  ASSERT_EQ(compared.rows.size(), 1u);
  const PredictionRow& row = compared.rows[0];
  EXPECT_EQ(row.questions, 200u);
  EXPECT_NEAR(row.a.accuracy, .5, 1e-12);
  EXPECT_NEAR(row.b.accuracy, .6, 1e-12);
  EXPECT_NEAR(row.difference.mean, .1, 1e-12);
  EXPECT_TRUE(row.difference.differs());
  EXPECT_FALSE(row.same_answer);
  // Files in the other order give the mirror image, and the same files nothing.
  const auto mirrored = comparePredictions(*right, *left);
  EXPECT_EQ(mirrored->rows[0].difference.interval.low, -row.difference.interval.high);
  const auto equal = comparePredictions(*left, *left);
  EXPECT_EQ(equal->rows[0].difference.mean, 0);
  EXPECT_FALSE(equal->rows[0].difference.differs());
  const std::string text = comparisonText(compared, "a.jsonl", "b.jsonl");
  EXPECT_THAT(text, HasSubstr("+0.100"));
  EXPECT_THAT(text, HasSubstr("better"));
  EXPECT_THAT(text, HasSubstr("left out: 0 questions that only A answers, 1 that only B does"));
  EXPECT_THAT(text, HasSubstr("95 % intervals: wilson; of differences: bootstrap\n"));
  EXPECT_THAT(text, Not(HasSubstr("Holm")));  // one comparison
}

TEST_F(PredictionFiles, TasksRepeatsAndAnswers) {
  const std::string a =
      "{\"id\": \"x\", \"score\": 1, \"task\": \"one\", \"answer\": \"7\"}\n"
      "{\"id\": \"x\", \"score\": 0, \"task\": \"one\", \"answer\": \"8\"}\n"
      "{\"id\": \"y\", \"score\": 0.25, \"task\": \"two\", \"answer\": \"9\"}\n";
  const std::string b =
      "{\"id\": \"y\", \"score\": 1, \"answer\": \"9\"}\n"
      "{\"id\": \"x\", \"score\": 1, \"answer\": \"6\"}\n";
  const auto left = readPredictions(folder_.write("a", a), {});
  const auto right = readPredictions(folder_.write("b", b), {});
  ASSERT_TRUE(left && right);
  const auto compared = valueOf(comparePredictions(*left, *right));
  ASSERT_EQ(compared.rows.size(), 3u);
  EXPECT_NEAR(compared.rows[0].a.accuracy, .375, 1e-12);
  EXPECT_EQ(compared.rows[0].same_answer, .5);
  EXPECT_EQ(compared.rows[1].task, "one");
  EXPECT_NEAR(compared.rows[1].a.accuracy, .5, 1e-12);
  EXPECT_EQ(compared.rows[2].task, "two");
  const auto json = comparisonJson(compared);
  EXPECT_EQ(json["rows"][2]["b_over_a"]["mean"], .75);
}

// 20 tasks, in one of which B is better at 6 of 60 questions, by chance: no task stands out.
TEST_F(PredictionFiles, ATaskAmongManyDiffersByHolmsRuleToo) {
  Predictions a, b;
  for (int task = 0; task < 20; ++task) {
    for (int i = 0; i < 60; ++i) {
      Prediction one{std::to_string(i), 0, 1, "", "task" + std::to_string(task), ""};
      a[one.task + "\n" + one.id] = one;
      if ((task == 0 && i < 6) || (task == 1 && i < 30)) one.score_sum = 1;
      b[one.task + "\n" + one.id] = one;
    }
  }
  const auto compared = valueOf(comparePredictions(a, b));
  ASSERT_EQ(compared.rows.size(), 21u);
  const auto of = [&](const std::string& task) {
    for (const PredictionRow& row : compared.rows) {
      if (row.task == task) return row.difference;
    }
    return PairedDifference();
  };
  EXPECT_TRUE(of("task0").differs());
  EXPECT_FALSE(of("task0").differsByHolm());
  EXPECT_TRUE(of("task1").differsByHolm());
  EXPECT_TRUE(of("all").differsByHolm());
  const std::string text = comparisonText(compared, "a", "b");
  EXPECT_THAT(text, HasSubstr("  better\n"));
  EXPECT_THAT(text, HasSubstr("  better *\n"));
  EXPECT_THAT(text, HasSubstr("which asks all comparisons at once: 21 rows\n"));
  const auto json = comparisonJson(compared)["rows"][0]["b_over_a"];
  EXPECT_EQ(json["interval"], "bootstrap");
  EXPECT_EQ(json["holm"]["family"], 21);
}

// As lm-eval counts: each task's questions from 0.
TEST_F(PredictionFiles, AnIdIsOfItsTask) {
  std::string a, b;
  for (int i = 0; i < 50; ++i) {
    for (const bool first : {true, false}) {
      const std::string start = "{\"doc_id\": " + std::to_string(i) + ", \"task\": \"" +
                                (first ? "one" : "two") + "\", \"acc\": ";
      a += start + (first ? "0}\n" : "1}\n");
      b += start + (first ? "1}\n" : "0}\n");
    }
  }
  const auto left = readPredictions(folder_.write("a", a), {}),
             right = readPredictions(folder_.write("b", b), {});
  ASSERT_TRUE(left && right);
  const auto compared = valueOf(comparePredictions(*left, *right));
  ASSERT_EQ(compared.rows.size(), 3u);
  EXPECT_EQ(compared.rows[0].questions, 100u);
  EXPECT_EQ(compared.rows[1].difference.mean, 1);
  EXPECT_EQ(compared.rows[2].difference.mean, -1);
  const auto bare = readPredictions(folder_.write("c", "{\"doc_id\": 7, \"acc\": 1}\n"), {});
  EXPECT_THAT(comparePredictions(*left, *bare), isError(HasSubstr("in several tasks of one file")));
  EXPECT_THAT(refusal("{\"id\": 1, \"score\": 1, \"filter\": \"strict\"}\n"
                      "{\"id\": 1, \"score\": 0, \"filter\": \"flexible\"}\n"),
              HasSubstr("keep the lines of one filter"));
}

TEST_F(PredictionFiles, WhatIsWrongIsSaidWithItsLine) {
  EXPECT_THAT(refusal(""), HasSubstr("holds no answer"));
  EXPECT_THAT(refusal("[1]\n"), HasSubstr("line 1: is no JSON object"));
  EXPECT_THAT(refusal("{\"id\": 1, \"score\": 1}\nnonsense\n"), HasSubstr("line 2"));
  EXPECT_THAT(refusal("{\"key\": 1, \"score\": 1}\n"),
              HasSubstr("no member names the question; say with --id which of these does: key"));
  EXPECT_THAT(refusal("{\"id\": 1, \"f1\": 1}\n"), HasSubstr("say with --score"));
  EXPECT_EQ(refusal("{\"id\": 1, \"f1\": 1}\n", {.id = "", .score = "f1"}), "");
  EXPECT_THAT(refusal("{\"id\": 1, \"score\": 1}\n", {.id = "", .score = "f1"}),
              HasSubstr("no member 'f1'"));
  EXPECT_THAT(refusal("{\"id\": 1, \"score\": 87.5}\n"), HasSubstr("from 0 to 1"));
  EXPECT_THAT(refusal("{\"id\": 1, \"score\": null}\n"), HasSubstr("'score' is null"));
  EXPECT_THAT(refusal("{\"id\": 1.5, \"score\": 1}\n"), HasSubstr("no whole number"));
  EXPECT_THAT(refusal("{\"id\": 1, \"score\": 1}\n{\"id\": 2}\n"), HasSubstr("line 2: has no"));
  const auto one = readPredictions(folder_.write("a", "{\"id\": 1, \"score\": 1}\n"), {});
  const auto other = readPredictions(folder_.write("b", "{\"id\": 2, \"score\": 1}\n"), {});
  EXPECT_THAT(comparePredictions(*one, *other), isError(HasSubstr("no question is in both files")));
}

}  // namespace
}  // namespace allot
