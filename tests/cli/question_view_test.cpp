// What `allot show question` says, without processes.
#include "cli/question_view.h"

#include <sstream>

#include "cli/terminal.h"
#include "core/spec/spec.h"
#include "tests/results.h"

namespace allot {
namespace {

constexpr uint32_t kQuestion = 17;

v1::Experiment experimentOf(const std::vector<std::string>& set = {}) {
  return valueOf(parseExperiment(
      "apiVersion: allot.dev/v1alpha1\nkind: Experiment\nmetadata: {name: sums}\nspec:\n"
      "  model: {path: m}\n  task: {suite: gsm8k, path: q.jsonl, maxNewTokens: 300}\n"
      "  policy: {totalBudget: 8}\n  update: {}\n",
      "sums.yaml", set));
}

v1::EvaluationResult resultOf(const std::string& schedule, uint64_t version, double score,
                              const std::string& text = "") {
  v1::EvaluationResult result;
  v1::EvaluationUnit& unit = *result.mutable_unit();
  unit.set_policy_version(version);
  const bool dense = schedule == "dense";
  unit.set_method(dense ? "dense" : "s2anta-sys");
  unit.set_schedule_name(schedule);
  unit.set_total_budget(dense ? 0 : 8);
  result.set_worker("worker-1");
  for (uint32_t q = kQuestion - 1; q <= kQuestion + 1; ++q) {
    v1::QuestionScore& of = *result.add_scores();
    of.set_question(q);
    of.set_score(q == kQuestion ? score : 0.125);
    of.set_tokens(41);
    if (q == kQuestion && text.empty()) continue;
    v1::Answer& answer = *result.mutable_answers()->add_answers();
    answer.set_question(q);
    answer.set_text(q == kQuestion ? text : "of another question");
    answer.set_prompt_end("How old will he be?");
    answer.set_prompt_left_out(1200);
    answer.add_expected("21");
    v1::GraderReading& reading = *answer.add_readings();
    reading.set_grader("number-llama");
    reading.set_taken("3");
  }
  return result;
}

std::string textOf(const QuestionView& view) { return view.text("01RUN", false); }

TEST(QuestionView, ShowsPromptAnswerAndWhatTheGraderTook) {
  QuestionView view(experimentOf(), {.question = kQuestion});
  EXPECT_TRUE(view.empty());
  view.add(resultOf("uniform", 0, 0, "Thus, in 3 years, he will be\n\\boxed{21} years old."));
  view.add(resultOf("dense", 0, 1));
  EXPECT_FALSE(view.empty());
  EXPECT_EQ(textOf(view),
            "sums  run 01RUN\n"
            "question 17 of 0..479, task gsm8k\n"
            "prompt, its end (1200 bytes are before it):\n"
            "  | How old will he be?\n"
            "expected:\n"
            "  | 21\n"
            "\n"
            "  score  method      schedule  budget  version  tokens  answer\n"
            "  1.000  dense       dense             0        41      right\n"
            "  0.000  s2anta-sys  uniform   8       0        41      1\n"
            "\n"
            "answer 1: s2anta-sys, uniform, budget 8, version 0\n"
            "  | Thus, in 3 years, he will be\n"
            "  | \\boxed{21} years old.\n"
            "  number-llama: 0.000, for it took \"3\"\n"
            "\n"
            "  right: not kept, for spec.evaluation.answers is wrong; all keeps these, too.\n");
  const auto json = view.json();
  EXPECT_EQ(json["question"], 17);
  EXPECT_EQ(json["prompt_end"], "How old will he be?");
  EXPECT_EQ(json["evaluations"][0]["kept"], "right");
  EXPECT_EQ(json["evaluations"][1]["kept"], "kept");
  EXPECT_EQ(json["evaluations"][1]["answer"]["graders"][0]["taken"], "3");
}

TEST(QuestionView, ShowsEachRepeat) {
  QuestionView view(experimentOf(), {.question = kQuestion});
  for (const uint32_t repeat : {1u, 0u}) {
    auto result = resultOf("uniform", 0, repeat == 0 ? 1 : 0, repeat == 0 ? "" : "another time");
    result.mutable_unit()->set_repeat(repeat);
    view.add(result);
  }
  EXPECT_THAT(textOf(view),
              HasSubstr("  score  repeat  method      schedule  budget  version  tokens  answer\n"
                        "  1.000  0       s2anta-sys  uniform   8       0        41      right\n"
                        "  0.000  1       s2anta-sys  uniform   8       0        41      1\n"
                        "\n"
                        "answer 1: s2anta-sys, uniform, budget 8, version 0, repeat 1\n"));
  EXPECT_EQ(view.json()["evaluations"][0]["repeat"], 0);
  EXPECT_EQ(view.json()["evaluations"][1]["repeat"], 1);
}

TEST(QuestionView, ShowsOfEachCellTheNewestUnlessAskedForAnother) {
  const auto shown = [](const QuestionChoice& choice) {
    QuestionView view(experimentOf(), choice);
    view.add(resultOf("learned", 50, 0, "from 50"));
    view.add(resultOf("learned", 25, 0, "from 25"));
    view.add(resultOf("learned", 75, 1));
    view.add(resultOf("dense", 0, 0, "from dense"));
    return view.empty() ? "nothing" : textOf(view);
  };
  const std::string newest = shown({.question = kQuestion});
  EXPECT_THAT(newest, HasSubstr("8       75       41      right\n"));
  EXPECT_THAT(newest, HasSubstr("from dense"));
  EXPECT_THAT(newest, Not(HasSubstr("from 50")));
  EXPECT_THAT(newest, HasSubstr("How old will he be?"));  // known from an answer that is not shown
  const std::string older = shown({.question = kQuestion, .version = 25});
  EXPECT_THAT(older, HasSubstr("from 25"));
  EXPECT_THAT(older, Not(HasSubstr("dense")));
  EXPECT_THAT(shown({.question = kQuestion, .budget = 8}), Not(HasSubstr("dense")));
  EXPECT_EQ(shown({.question = kQuestion, .budget = 9}), "nothing");
  EXPECT_EQ(shown({.question = 400}), "nothing");
}

TEST(QuestionView, SaysWhyAnAnswerIsNotThere) {
  const auto shown = [](const std::string& answers, v1::EvaluationResult result) {
    QuestionView view(experimentOf({"spec.evaluation.answers=" + answers}),
                      {.question = kQuestion});
    view.add(result);
    return textOf(view);
  };
  EXPECT_THAT(shown("none", resultOf("uniform", 0, 0)), HasSubstr("  none: this run keeps no"));
  EXPECT_THAT(shown("wrong", resultOf("uniform", 0, 1)), HasSubstr("  right: not kept"));
  EXPECT_THAT(shown("wrong", resultOf("uniform", 0, 0)), HasSubstr("  missing: it should be"));
  EXPECT_THAT(shown("all", resultOf("uniform", 0, 1)), HasSubstr("  missing: it should be"));
  v1::EvaluationResult crowded = resultOf("uniform", 0, 0);
  crowded.mutable_answers()->set_left_out(1);
  EXPECT_THAT(shown("wrong", crowded), HasSubstr("  no room: the answers of a run have 64 MiB"));
  EXPECT_THAT(shown("wrong", crowded), HasSubstr("prompt and expected answer: not known here"));
}

TEST(QuestionView, SaysWhatIsCutAndWhatIsNoText) {
  QuestionView view(experimentOf(), {.question = kQuestion});
  v1::EvaluationResult result = resultOf("uniform", 0, 0, "begins");
  v1::Answer& answer = *result.mutable_answers()->mutable_answers(1);
  answer.set_left_out(3000);
  answer.set_end("ends");
  answer.mutable_readings(0)->set_taken("");
  v1::GraderReading& other = *answer.add_readings();
  other.set_grader("contains-any");
  other.set_whole(true);
  result.mutable_scores(1)->set_other_score(0.5);
  result.mutable_scores(1)->set_tokens(300);
  view.add(result);
  v1::EvaluationResult empty = resultOf("dense", 0, 0, "x");
  empty.mutable_answers()->mutable_answers(1)->set_text("");
  empty.mutable_answers()->mutable_answers(1)->add_tokens(2);
  view.add(empty);
  const std::string text = textOf(view);
  EXPECT_THAT(text, HasSubstr("  | begins\n  ... 3000 bytes are left out ...\n  | ends\n"
                              "  number-llama: 0.000, for it found no answer in the text\n"
                              "  contains-any: 0.500, of the whole text\n"
                              "  it has all the 300 tokens that spec.task.maxNewTokens allows"));
  EXPECT_THAT(text, HasSubstr("  (no text; its tokens, the first 1: 2)\n"));
  EXPECT_THAT(text, HasSubstr("  score  other  method"));
}

TEST(QuestionView, WhatModelsAndStrangersWriteDoesNothingToATerminal) {
  const std::string hostile = "\x1b[2J\x07\r\u009b31m\u202e\xff\x7f" + std::string(500, 'w');
  QuestionView view(experimentOf(), {.question = kQuestion});
  v1::EvaluationResult result = resultOf("uniform", 0, 0, hostile);
  result.mutable_unit()->set_method(hostile);
  result.mutable_unit()->set_schedule_name(hostile);
  result.set_worker(hostile);
  v1::Answer& answer = *result.mutable_answers()->mutable_answers(1);
  answer.set_prompt_end(hostile);
  answer.set_expected(0, hostile);
  answer.mutable_readings(0)->set_grader(hostile);
  answer.mutable_readings(0)->set_taken(hostile);
  view.add(result);
  const std::string text = textOf(view);
  for (const unsigned char c : text) EXPECT_TRUE(c == '\n' || (c >= 0x20 && c < 0x7f)) << int{c};
  EXPECT_THAT(text, HasSubstr("  | <1b>[2J<07><0d><c2><9b>31m<e2><80><ae><ff><7f>www"));
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    EXPECT_TRUE(line.size() <= 80 || line.starts_with("answer 1: ")) << line;
  }
  const std::string json = view.json().dump(2, ' ', true, nlohmann::json::error_handler_t::replace);
  for (const unsigned char c : json) EXPECT_TRUE(c == '\n' || (c >= 0x20 && c < 0x7f)) << int{c};
}

TEST(LegibleLines, AreNoWiderThanTheyMayBe) {
  EXPECT_THAT(legibleLines("", 10), ElementsAre(""));
  EXPECT_THAT(legibleLines("a\n\nb", 10), ElementsAre("a", "", "b"));
  EXPECT_THAT(legibleLines("one two three", 9), ElementsAre("one two ", "three"));
  EXPECT_THAT(legibleLines("abcdefghijkl", 5), ElementsAre("abcde", "fghij", "kl"));
  EXPECT_THAT(legibleLines("a bcdefghijkl", 5), ElementsAre("a ", "bcdef", "ghijk", "l"));
  EXPECT_THAT(legibleLines("漢字漢字", 5), ElementsAre("漢字", "漢字"));
  EXPECT_THAT(legibleLines("ééééé", 5), ElementsAre("ééééé"));
  EXPECT_THAT(legibleLines("a\tb", 5), ElementsAre("a<09>", "b"));
}

}  // namespace
}  // namespace allot
