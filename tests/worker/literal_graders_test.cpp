// The graders of the SANTA paper's Appendix O to the letter, each against a table of completions
// taken from its wording, with what the sensible grader of the same name takes where they differ.
#include "tests/worker/grader_cases.h"

namespace allot {
namespace {

const std::string kTwentyFive = "a b c d e f g h i j k l m n o p q r s t u v w x y";

TEST(LiteralGraders, NumberLlama) {
  check("number-llama-literal",
        {// "The last non-empty line of the response."
         {{"18"}, "3 eggs are eaten.\n18", 1},
         {{"18"}, "18", 1},
         {{"18"}, "18\n", 1},
         {{"18"}, "18\n\n  \n\t\n", 1},
         {{"18"}, "18\n3", 0},
         {{"18"}, "3\r\n18\r\n", 1},
         // "If that fails, the final 25 whitespace-separated tokens."
         {{"18"}, "It is 18, I think.\nI hope that helps!", 1},
         {{"18"}, "18 " + kTwentyFive, 1},  // one line, whatever its length
         {{"18"}, "18\n" + kTwentyFive, 0},
         {{"18"}, "18\nb c d e f g h i j k l m n o p q r s t u v w x y", 1},
         {{"18"}, "5\n18 b c d e f g h i j k l m n o p q r s t u v w x y\nend", 0},
         {{"18"}, "5 of them\n18\nend", 0},  // of the tokens the first
                                             // "The first integer-looking token."
         {{"18"}, "18 of 24", 1},
         {{"24"}, "18 of 24", 0},
         {{"18"}, "6 * 3 = 18", 0},
         {{"18"}, "$18", 1},
         {{"18"}, "$18.00", 1},
         {{"18"}, "18.5", 1},  // number-llama: 18.5
         {{"18"}, "0.18", 0},  // 0
         {{"0"}, "0.18", 1},
         {{"1"}, "1/2", 1},    // number-llama: one half
         {{"18"}, "x18y", 1},  // number-llama: none, it hangs on a letter
         {{"18"}, "**18**", 1},
         {{"18"}, "18%", 1},
         {{"10"}, "10^3", 1},
         {{"18"}, "eighteen", 0},
         // "Commas allowed."
         {{"1234"}, "1,234", 1},
         {{"1,234"}, "1234", 1},
         {{"1234567"}, "1,234,567 people", 1},
         {{"18"}, "18, and no more", 1},
         {{"12"}, "1,2", 0},  // PRM800K's grader knows commas of thousands alone
         {{"1"}, "1,2", 0},
         {{"1"}, "1,,2", 1},
         // "Optional leading minus."
         {{"-18"}, "-18", 1},
         {{"18"}, "-18", 0},
         {{"-18"}, "- 18", 0},
         {{"-5"}, "x-5", 1},  // number-llama: 5
         {{"18"},
          "\xe2\x88\x92"
          "18",
          1},  // U+2212 is no such minus
         {{"18"}, "--18", 0},
         // "Numeric equality; every question is counted, blank or unparsable answers score 0."
         {{"18"}, "018", 1},
         {{"18.0"}, "18", 1},
         {{"18.5"}, "18.5", 0},
         {{"$18"}, "18", 1},
         {{"17", "18"}, "18", 1},
         {{}, "18", 0},
         {{"18"}, "", 0},
         {{"18"}, " \n \n", 0},
         {{"0"}, "", 0},
         {{"18"}, kNul + "18", 1},
         {{"18"},
          "\xff"
          "18\xff",
          1},
         {{"1"}, std::string(400, '1'), 0}});  // beyond a double
}

TEST(LiteralGraders, NumberDeepseek) {
  const std::string word = "word ", filler(199, '.');
  check(
      "number-deepseek-literal",
      {// "A brace-balanced search for the last occurrence of \boxed{...}, robust to nested braces."
       {{"18"}, "So \\boxed{18}.", 1},
       {{"18"}, "\\boxed{3} and then \\boxed{18}", 1},
       {{"3"}, "\\boxed{3} and then \\boxed{18}", 0},
       {{"18"}, "\\boxed{18} and 24 more", 1},
       {{"18"}, "\\boxed{\\text{18}}", 1},
       {{"18"}, "\\boxed{{18}}", 1},
       {{"18"}, "\\boxed{18} \\boxed{19", 1},  // the last whose braces balance
       {{"18"}, "\\boxed 18", 1},              // no box; PRM800K's grader drops the command
                                               // "Numeric equality judged by the PRM800K grader."
       {{"18"}, "\\boxed{18.0}", 1},
       {{"18"}, "\\boxed{18.00000001}", 1},
       {{"18"}, "\\boxed{18.5}", 0},
       {{"18"}, "\\boxed{$18}", 1},
       {{"18"}, "\\boxed{\\$18.00}", 1},
       {{"50"}, "\\boxed{50\\%}", 1},
       {{"1000"}, "\\boxed{1,000}", 1},
       {{"1000"}, "\\boxed{1{,}000}", 1},
       {{"1000"}, "\\boxed{1\\,000}", 0},
       {{"10000"}, "\\boxed{10,\\!000}", 1},
       {{"18"}, "\\boxed{x = 18}", 1},
       {{"18"}, "\\boxed{x=18}", 1},
       {{"18"}, "\\boxed{total = 18}", 0},  // number-deepseek: 18
       {{"18"}, "\\boxed{a=b=18}", 0},
       {{"18"}, "\\boxed{18 \\text{ apples}}", 1},
       {{"18"}, "\\boxed{18 apples}", 0},  // number-deepseek: 18
       {{"18"}, "\\boxed{18 hours}", 1},
       {{"18"}, "\\boxed{18 feet}", 1},
       {{"18"}, "\\boxed{18 inches}", 1},
       {{"18"}, "\\boxed{18 meters^2}", 1},
       {{"18"}, "\\boxed{18^\\circ}", 1},
       {{"18"}, "\\boxed{(18)}", 1},
       {{"18"}, "\\boxed{\\mathbf{18}}", 1},
       {{"18"}, "\\boxed{18\\,\\text{cm}}", 1},
       {{"1234"}, "\\boxed{x = 1234}", 1},
       {{"1234"}, "\\boxed{x = 1,234}", 0},  // it knows one or the other
       {{"18"}, "\\boxed{18\\text{ a}\\text{ b}}", 0},
       {{"18"}, "\\boxed{17 2/2}", 0},
       {{"18"}, "\\boxed{36/2}", 0},  // a whole number is not computed first
       {{"18"}, "\\boxed{\\frac{36}{2}}", 0},
       {{"18"}, "\\boxed{-18}", 0},
       {{"-18"}, "\\boxed{- 18}", 1},
       {{"18"}, "\\boxed{+18}", 1},
       {{"1000"}, "\\boxed{1e3}", 1},
       {{"18"}, "\\boxed{18, 19}", 0},
       {{"18"}, "\\boxed{}", 0},
       {{"18"}, "18 \\boxed{none}", 0},  // the box is the answer
       {{"18"}, "\\boxed{1\n8}", 1},
       // "If none is found, fall back to the final ~200 characters."
       {{"18"}, "18", 1},
       {{"18"}, " $18$ \n", 1},
       {{"18"}, "The answer is 18", 0},  // number-deepseek: 18
       {{"18"}, std::string(300, ' ') + "18", 1},
       {{"18"}, word + std::string(198, ' ') + "18", 1},  // just these 200
       {{"18"}, word + std::string(197, ' ') + "18", 1},
       {{"18"}, "x" + std::string(197, ' ') + "18", 0},
       {{"18"}, std::string(199, '1') + "18", 0},
       // "Blank or unparsable predictions score 0."
       {{"18"}, "", 0},
       {{"18"}, "  \n", 0},
       {{}, "\\boxed{18}", 0},
       {{"17", "18"}, "\\boxed{18}", 1},
       {{"18"}, "\\boxed{inf}", 0},
       {{"18"}, "\\boxed{nan}", 0},
       {{"18"}, "\\boxed{1" + std::string(400, '0') + "}", 0},
       {{"18"}, "\\boxed{18\xff}", 0},
       {{"18"}, "\\boxed{0x12}", 0}});
}

TEST(LiteralGraders, ChoiceLlama) {
  check("choice-llama-literal",
        {// "The substring after the last newline, left-to-right for the first capital A-D
         // (case-insensitive)."
         {{"B"}, "Because.\nB", 1},
         {{"B"}, "B", 1},  // no newline: the whole answer
         {{"B"}, "because.\nB", 1},
         {{"B"}, "x\n(B)", 1},
         {{"B"}, "x\nB. blue", 1},
         {{"B"}, "x\n b", 1},
         {{"C"}, "x\nThe correct answer is B", 1},  // choice-llama: B
         {{"B"}, "x\nThe correct answer is B", 0},
         {{"A"}, "x\nAnswer: D", 1},
         {{"D"}, "x\nAnswer: D", 0},
         {{"B"}, "x\nIt is B, not C", 1},
         {{"A"}, "x\nThe answer: B", 1},
         {{"B"}, "x\nI go for B or C", 1},
         {{"A"}, "x\nOption B is a choice", 0},
         {{"B"}, "x\nOption B is a choice", 1},
         {{"B"}, "x\n**B**", 1},
         {{"B"}, "x\n\\boxed{B}", 1},
         {{"D"}, "x\n\\boxed{B}", 0},
         {{"D"}, "x\n\\mathrm{B}", 0},
         {{"A"}, "x\n\\mathrm{B}", 1},
         // "If none is found, the final 10 whitespace-separated tokens of the whole response,
         // right-to-left."
         {{"B"}, "It is (B)\n", 1},  // nothing is behind the last newline
         {{"C"}, "It is (B)\nnot (C)\n", 1},
         {{"B"}, "It is (B)\n???", 1},
         {{"B"}, "It is (B)\n1 2 3 4 5 6 7 8 9", 1},
         {{"B"}, "It is (B)\n1 2 3 4 5 6 7 8 9 10", 0},
         {{"D"}, "B is good\n123", 1},  // the d of "good"
         {{"B"}, "a b\n\n", 1},
         {{"A"}, "b a\n\n", 1},
         {{"B"}, "BAD\n", 0},
         {{"D"}, "BAD\n", 1},
         // "Predicted letter (upper-cased); no valid letter: 0."
         {{"b"}, "x\nB", 1},
         {{"B"}, "", 0},
         {{"B"}, "\n\n", 0},
         {{"B"}, "x\nnone", 0},
         {{"E"}, "x\nE", 0},
         {{"B"}, "x\r\nB\r", 1},
         {{"B"}, "x\rB", 1},
         {{}, "B", 0},
         {{"B"}, "\xff\nB\xff", 1},
         {{"A", "B"}, "B", 1},
         {{"B"}, "x\n\xce\x92", 0}});  // a Greek capital
}

TEST(LiteralGraders, ChoiceDeepseek) {
  const std::string filler(299, 'x');
  check("choice-deepseek-literal",
        {// "Brace-balanced search for the last occurrence of \boxed{...}", scanned backwards.
         {{"B"}, "\\boxed{B}", 1},
         {{"B"}, "\\boxed{A} no, \\boxed{B}", 1},
         {{"A"}, "\\boxed{A} no, \\boxed{B}", 0},
         {{"B"}, "\\boxed{B} so A", 1},
         {{"B"}, "\\boxed{\\text{B}}", 1},
         {{"B"}, "\\boxed{\\text{(B)}}", 1},
         {{"C"}, "\\boxed{B. cyclic}", 1},  // choice-deepseek: B
         {{"D"}, "\\boxed{B and D}", 1},
         {{"D"}, "\\boxed{B and}", 1},
         {{"B"}, "\\boxed{b}", 1},
         {{"B"}, "\\boxed{{B}}", 1},
         {{"B"}, "\\boxed{B} and \\boxed{C", 1},
         {{"B"}, "B \\boxed{E}", 0},  // the box has no letter, and is the region
         {{"B"}, "B \\boxed{}", 0},
         {{"A"}, "\\boxed{\\mathrm{}}", 1},
         // "If none is found, the final ~300 characters. Scan backwards, the first A-D
         // (case-insensitive), upper case."
         {{"B"}, "B", 1},
         {{"B"}, "The answer is B", 1},
         {{"B"}, "The answer is B.", 1},
         {{"D"}, "B is what I found", 1},  // the d of "found"
         {{"B"}, "B is it", 1},
         {{"A"}, "B, I say", 1},
         {{"B"}, "b", 1},
         {{"B"}, "A, then B", 1},
         {{"B"}, "B" + filler, 1},
         {{"B"}, "B" + filler + "x", 0},
         {{"C"}, "\\boxed C", 1},
         {{"D"}, "\\boxed", 1},
         // Characters, not bytes.
         {{"B"},
          "B" + std::string(299 * 2, '\0')
                    .replace(0, 299 * 2,
                             [] {
                               std::string text;
                               for (int i = 0; i < 299; ++i) text += "\xc3\xa9";
                               return text;
                             }()),
          1},
         // "No valid letter, or blank: 0; otherwise 1 when the letters match (case-insensitive)."
         {{"b"}, "\\boxed{B}", 1},
         {{"B"}, "", 0},
         {{"B"}, " \n", 0},
         {{"B"}, "none", 0},
         {{"E"}, "\\boxed{E}", 0},
         {{}, "\\boxed{B}", 0},
         {{"B"}, "\\boxed{B\xff}", 1},
         {{"B"}, "\\boxed{B" + kNul + "}", 1}});
}

// What `allot show question` says of them.
TEST(LiteralGraders, SayWhatTheyTake) {
  EXPECT_EQ(extractedAnswer("number-llama-literal", "So it is\n$1,234.50!"), "1,234");
  EXPECT_EQ(extractedAnswer("number-llama-literal", "none"), "");
  EXPECT_EQ(extractedAnswer("number-deepseek-literal", "a \\boxed{x=3} b"), "x=3");
  EXPECT_EQ(extractedAnswer("number-deepseek-literal", "It is 3"), "It is 3");
  EXPECT_EQ(extractedAnswer("choice-llama-literal", "The correct answer is B"), "C");
  EXPECT_EQ(extractedAnswer("choice-deepseek-literal", "\\boxed{E}"), "");
}

}  // namespace
}  // namespace allot
