// Graders that find a number or a letter first, each against a table of completions that a
// careless one gets wrong.
#include <optional>

#include "tests/worker/grader_cases.h"
#include "worker/tasks/number.h"
#include "worker/tasks/task.h"

namespace allot {
namespace {

TEST(Graders, NumberLlama) {
  check("number-llama",
        {{{"42"}, "Step 1: 6 times 7.\n42", 1},
         {{"42"}, "Step 1.\n42\n\n  \n", 1},
         {{"42"}, "Step 1.\n42.", 1},
         {{"42"}, "**42**", 1},
         {{"42"}, "#### 42", 1},
         {{"42"}, "$42", 1},
         {{"42"}, "$42.00", 1},
         {{"42"}, "42.0", 1},
         {{"42"}, "42.5", 0},  // not cut to 42
         {{"42"}, "42 apples", 1},
         {{"42"}, "So she has 42 apples left.", 1},
         {{"42"}, "6 * 7 = 42", 0},  // the first number of the line: Appendix O
         {{"42"}, "-42", 0},
         {{"-42"}, "-42", 1},
         {{"-42"}, "\u221242", 1},
         {{"-42"}, "- 42", 0},
         {{"1000"}, "1,000", 1},
         {{"1000"}, "1000.0", 1},
         {{"1000"}, "$1,000", 1},
         {{"1000"}, "1e3", 1},
         {{"1,000"}, "1000", 1},
         {{"1000"},
          "1\xc2\xa0"
          "000",
          1},
         {{"1000000"},
          "1\xe2\x80\xaf"
          "000\xe2\x80\xaf"
          "000",
          1},
         {{"1000000"}, "1,000,000 people", 1},
         {{"1000"}, "1, 000", 0},
         {{"50"}, "50%", 1},
         {{"50%"}, "50", 1},
         {{"50"}, "0.5", 0},
         {{"0.5"}, "1/2", 1},
         {{"1.5"}, "1 1/2", 1},
         {{"3"}, "6/2", 1},
         {{"3"}, "3/0", 0},
         {{"42"}, "", 0},
         {{"42"}, " \n \n", 0},
         {{"42"}, "forty-two", 0},
         {{"42"}, "The answer is 42, I think\nHope this helps!", 1},  // the last 25 words
         {{"42"},
          "42 " + std::string("word ") + "a b c d e f g h i j k l m n o p q r s t u v w\nend",
          0},  // 25 words end before it
         {{"42"}, "a\r\n42\r\n", 1},
         {{"42"}, "x42", 0},  // hangs on a letter
         {{"42"}, "x = 42", 1},
         {{"42"}, "\u20ac42", 1},
         {{"42", "43"}, "43", 1},
         {{}, "42", 0},
         {{"none"}, "42", 0},
         {{"42"}, "042", 1},
         {{"42"}, "42e", 1},
         {{"12"}, "12/25/2020", 1}});
}

TEST(Graders, NumberDeepseek) {
  check("number-deepseek", {{{"42"}, "so \\boxed{42}.", 1},
                            {{"42"}, "\\boxed{41} no, \\boxed{42}", 1},
                            {{"42"}, "\\boxed{42} no, \\boxed{41}", 0},
                            {{"42"}, "\\boxed{\\text{42}}", 1},
                            {{"42"}, "\\boxed{42\\text{ dollars}}", 1},
                            {{"42"}, "\\boxed{\\$42}", 1},
                            {{"42"}, "\\boxed{\\$42.00}", 1},
                            {{"42"}, "\\boxed{x = 42}", 1},
                            {{"42"}, "\\boxed{6 \\times 7 = 42}", 1},
                            {{"42"}, "\\boxed{6 \\times 7}", 0},
                            {{"42"}, "\\boxed{ 42 }", 1},
                            {{"42"}, "\\boxed {42}", 1},
                            {{"42"}, "\\boxed{\\boxed{42}}", 1},
                            {{"42"}, "\\boxed{42} then \\boxed{4", 1},  // the last that balances
                            {{"42"}, "then \\boxed{42", 1},  // none does: the last 200 characters
                            {{"42"}, "\\boxed{}", 0},
                            {{"42"}, "42 but \\boxed{}", 0},
                            {{"42"}, "\\boxed{42 or 43}", 0},
                            {{"42"}, "\\boxed{42}\\boxed{none}", 0},
                            {{"1000"}, "\\boxed{1,000}", 1},
                            {{"1000"}, "\\boxed{1{,}000}", 1},
                            {{"1000"}, "\\boxed{1\\,000}", 1},
                            {{"1000"}, "\\boxed{10^3}", 0},
                            {{"0.5"}, "\\boxed{\\frac{1}{2}}", 1},
                            {{"0.5"}, "\\boxed{\\dfrac12}", 1},
                            {{"1.5"}, "\\boxed{1\\frac{1}{2}}", 1},
                            {{"50"}, "\\boxed{50\\%}", 1},
                            {{"-3"}, "\\boxed{-3}", 1},
                            {{"3"}, "\\boxed{-3}", 0},
                            {{"2"}, "\\boxed{\\sqrt{4}}", 0},
                            {{"2"}, "\\boxed{x^2}", 0},
                            {{"42"}, "The answer is 42.", 1},
                            {{"42"}, "First 41, then 42", 1},
                            {{"42"}, "42, first 41", 0},
                            {{"42"}, "42" + std::string(198, ' '), 1},
                            {{"42"}, "42" + std::string(200, ' '), 0},
                            {{"2"}, "42" + std::string(199, ' '), 0},  // cut in half is no number
                            {{"42"}, "42" + std::string(99, ' ') + std::string(99, '.'), 1},
                            {{"42"},
                             [] {
                               std::string text = "42";
                               for (int i = 0; i < 198; ++i)
                                 text += "\xc3\xa9";  // characters, not bytes
                               return text;
                             }(),
                             1},
                            {{"42"}, "", 0},
                            {{"42"}, "no number", 0},
                            {{}, "\\boxed{42}", 0}});
}

TEST(Graders, ChoiceLlama) {
  check("choice-llama",
        {{{"B"}, "Reasoning.\nB", 1},
         {{"B"}, "Reasoning.\nB\n", 1},
         {{"B"}, "Reasoning.\n\nB.\n\n", 1},
         {{"B"}, "Reasoning.\n(B)", 1},
         {{"B"}, "Reasoning.\n**B**", 1},
         {{"B"}, "B", 1},
         {{"B"}, "b", 1},
         {{"b"}, "B", 1},
         {{"B"}, "The answer is B", 1},
         {{"B"}, "The answer is b", 1},
         {{"A"}, "The answer is B", 0},  // the letters of words are no choice
         {{"B"}, "It is a clear B", 1},  // nor is the article
         {{"A"}, "It is a clear B", 0},
         {{"A"}, "a", 1},
         {{"B"}, "B or C", 1},
         {{"C"}, "B or C", 0},
         {{"C"}, "A is wrong.\nC", 1},
         {{"A"}, "A is wrong.\nC", 0},
         {{"D"}, "E", 0},
         {{"D"}, "the answer is D\nI hope this helps", 1},  // among the last ten words
         {{"D"}, "A or D\nI hope this helps", 1},           // from the right
         {{"A"}, "A or D\nI hope this helps", 0},
         {{"D"}, "D is it and I am very sure of that\nno doubt there", 0},  // ten words end before
         {{"B"}, "", 0},
         {{"B"}, "\n\n", 0},
         {{"B"}, "Because", 0},
         {{"B"}, "B1", 0},
         {{"B"}, "1B", 0},
         {{"B"}, "B: mitochondria", 1},
         {{"B"}, "answer:B", 1},
         {{"B"}, "Vitamin B's role", 0},
         {{"B"}, "reason\r\nB\r\n", 1},
         {{"B"}, "\\boxed{B}", 1},
         {{"B"}, "\u201cB\u201d", 1},
         {{}, "B", 0},
         {{"B"}, "B" + kNul, 1}});
}

TEST(Graders, ChoiceDeepseek) {
  check("choice-deepseek",
        {{{"B"}, "\\boxed{B}", 1},
         {{"B"}, "\\boxed{b}", 1},
         {{"B"}, "\\boxed{\\text{B}}", 1},
         {{"B"}, "\\boxed{\\textbf{(B)}}", 1},
         {{"B"}, "\\boxed{\\mathrm{B}}", 1},
         {{"B"}, "\\boxed{B. mitochondria}", 1},  // backwards, an a of the word would be first
         {{"B"}, "\\boxed{ B }", 1},
         {{"B"}, "\\boxed{A} wait \\boxed{B}", 1},
         {{"A"}, "\\boxed{A} wait \\boxed{B}", 0},
         {{"C"}, "\\boxed{B, C}", 1},  // scanned backwards
         {{"B"}, "\\boxed{B, C}", 0},
         {{"B"}, "\\boxed{B} then \\boxed{C", 1},  // the last that balances
         {{"C"}, "then \\boxed{C", 1},
         {{"B"}, "\\boxed{}", 0},
         {{"B"}, "The answer is B. \\boxed{42}", 0},  // a box without a letter
         {{"B"}, "\\boxed{E}", 0},
         {{"B"}, "The answer is B.", 1},
         {{"B"}, "The answer is (B) because of magnetism", 1},
         {{"C"}, "B is wrong, so C", 1},
         {{"C"}, "C, not B", 0},  // backwards
         {{"B"}, "B, not C", 0},
         {{"C"}, "It must be c", 1},
         {{"C"}, "It is C, a gas", 1},
         {{"A"}, "It is C, a gas", 0},
         {{"B"}, "B" + std::string(299, '.'), 1},
         {{"B"}, "B" + std::string(300, '.'), 0},
         {{"B"}, "", 0},
         {{"B"}, "Because", 0},
         {{"B"}, "no letter here", 0},
         {{"b"}, "\\boxed{B}", 1},
         {{"B"}, "\\boxed{\\{B\\}}", 1},
         {{"B"}, "\\boxed B", 1},
         {{}, "\\boxed{B}", 0},
         {{"D"}, "\\boxed{\\boxed{D}}", 1}});
}

TEST(Graders, LongbenchChoice) {
  check("longbench-choice",
        {{{"A"}, "The correct answer is (A)", 1},
         {{"A"}, "The correct answer is (A).", 1},
         {{"A"}, "The correct answer is A", 1},
         {{"A"}, "The correct answer is A.", 1},
         {{"A"}, "**The correct answer is (A)**", 1},
         {{"A"}, "The correct answer is **(A)**", 1},
         {{"A"}, "The correct answer is (**A**)", 1},
         {{"A"}, "The correct answer is *A*", 1},
         {{"A"}, "I think. The correct answer is (A) because ...", 1},
         {{"A"}, "The correct answer is (B)", 0},
         {{"A"}, "The correct answer is (A) The correct answer is (B)", 1},
         {{"B"}, "The correct answer is (A) The correct answer is (B)", 0},
         {{"B"}, "The correct answer is A ... The correct answer is (B)", 1},  // brackets first
         {{"A"}, "The correct answer is (a)", 0},
         {{"A"}, "the correct answer is (A)", 0},
         {{"A"}, "The correct answer is: (A)", 0},
         {{"A"}, "The correct answer is (A", 0},
         {{"A"}, "The correct answer is ( A )", 0},
         {{"A"}, "The correct answer is  (A)", 0},
         {{"A"}, "The correct answer is (E)", 0},
         {{"A"}, "(A)", 0},
         {{"A"}, "A", 0},
         {{"A"}, "Answer: A", 0},
         {{"A"}, "", 0},
         {{"A"}, "The correct answer is ", 0},
         {{"A"}, "The correct answer is (", 0},
         {{"B"}, "The correct answer is Because", 0},
         {{"A"}, "The correct answer is A1", 0},
         {{"A"}, "The correct answer is (insert answer here)\nThe correct answer is (A)", 1},
         {{"D"}, "The correct answer is (D) \xe2\x80\x93 Oslo", 1},
         {{"a"}, "The correct answer is (A)", 1},
         {{}, "The correct answer is (A)", 0},
         {{"C"}, "The correct answer is\n(C)", 0}});
}

TEST(Numbers, AreFoundWithTheirEnds) {
  const auto ends = [](const std::string& text) {
    std::vector<std::string> parts;
    for (const TextNumber& number : findNumbers(text)) {
      parts.push_back(text.substr(number.begin, number.end - number.begin));
    }
    return parts;
  };
  using Parts = std::vector<std::string>;
  EXPECT_EQ(ends("3, 1,000 and -2.5e3%"), (Parts{"3", "1,000", "-2.5e3%"}));
  EXPECT_EQ(ends("1,2,3"), (Parts{"1", "2", "3"}));
  EXPECT_EQ(ends("12,345,67"), (Parts{"12,345", "67"}));
  EXPECT_EQ(ends("3-5 x-7 (-9)"), (Parts{"3", "5", "7", "-9"}));
  EXPECT_EQ(ends("-$5 $-6 .5 1..2"), (Parts{"-$5", "-6", ".5", "1", "2"}));
  EXPECT_EQ(ends("12/25/2020"), (Parts{"12", "25/2020"}));
  EXPECT_EQ(ends("2 1/2 2 5/2"), (Parts{"2 1/2", "2", "5/2"}));
  EXPECT_EQ(ends("1e 1e+ 1e5x H2O"), (Parts{"1", "1", "1e5"}));
  EXPECT_FALSE(sameNumber(findNumber("1e999")->value, findNumber("1e999")->value));
  EXPECT_TRUE(sameNumber(0.1 + 0.2, 0.3));
  EXPECT_FALSE(sameNumber(1000000, 1000001));
}

// What a person is told beside the score.
TEST(Graders, SayWhatTheyTakeOfAnAnswer) {
  const std::string sentence = "Thus, in 3 years, he will be \\(\\boxed{21}\\) years old.";
  struct Row {
    const char* grader;
    std::string completion;
    std::optional<std::string> taken;
  };
  for (const Row& row :
       std::vector<Row>{{"number-llama", sentence, "3"},
                        {"number-deepseek", sentence, "21"},
                        {"number-deepseek", "\\boxed{x = 1,000 \\text{ m}}", "1,000"},
                        {"number-deepseek", "at last $4", "$4"},
                        {"number-llama", "no line\nof this has one", ""},
                        {"number-llama", "", ""},
                        {"choice-llama", "The answer is b", "B"},
                        {"choice-llama", "none of these", ""},
                        {"choice-deepseek", "\\boxed{C}", "C"},
                        {"longbench-choice", "The correct answer is **(D)**", "D"},
                        {"longbench-choice", "D", ""},
                        {"exact", "  48213 \nQuestion", "48213"},
                        {"exact", "\n48213", ""},
                        {"santa-niah", "7, 007, 12 and 3, 4, 5", "7, 12, 3, 4"},
                        {"ruler-all", sentence, std::nullopt},
                        {"contains-any", "", std::nullopt},
                        {"nonsense", "x", std::nullopt}}) {
    EXPECT_EQ(extractedAnswer(row.grader, row.completion), row.taken)
        << row.grader << ": " << row.completion;
  }
}

// Of a question of the suite ruler both are told.
TEST(Graders, OfAScoreAndOfTheOtherScoreAreToldInThisOrder) {
  v1::Task task;
  task.set_suite("ruler");
  const Question asked{.task = "niah_single_1", .prompt = "", .prompt_ids = {}, .answers = {"42"}};
  const auto all = readings(task, asked, "It is 42.");
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].grader(), "ruler-all");
  EXPECT_TRUE(all[0].whole());
  EXPECT_EQ(all[1].grader(), "santa-niah");
  EXPECT_EQ(all[1].taken(), "42");
  EXPECT_EQ(grade(task, asked, "It is 42.").other, 1.0);
  task.set_suite("gsm8k");
  EXPECT_EQ(
      readings(task, {.task = "gsm8k", .prompt = "", .prompt_ids = {}, .answers = {}}, "x").size(),
      1u);
}

}  // namespace
}  // namespace allot
