#pragma once
// What the SANTA paper's graders of GSM8K and MMLU take of an answer, to the letter of its Appendix
// O (tables 21 to 24). The graders without -literal (graders.cpp) take what a reader would: 18.5 of
// "18.5", B of "The correct answer is B"; these take 18, and the c of "correct". Where the paper's
// wording leaves something open, the .cpp says what was chosen. Pure functions, any thread.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace allot {

// Table 23; the token as it stands. "": there is none.
std::string_view literalNumberForLlama(std::string_view completion);
// Table 21: what is in the box, or the end of the answer.
std::string_view literalNumberForDeepseek(std::string_view completion);
// Whether PRM800K's grader takes it for one of the references, which are numbers.
double gradePrm800k(const std::vector<std::string>& references, std::string_view given);

// Tables 24 and 22: upper case.
std::optional<char> literalChoiceForLlama(std::string_view completion);
std::optional<char> literalChoiceForDeepseek(std::string_view completion);

}  // namespace allot
