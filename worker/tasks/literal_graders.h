#pragma once
// Finds the answers to GSM8K and MMLU questions literally as the SANTA paper's Appendix O (tables
// 21 to 24) says. Pure functions, any thread.
//
// The graders without -literal (graders.cpp) find the answer that a reader would: 18.5 in "18.5", B
// in "The correct answer is B". The functions below find 18, and the c of "correct". The .cpp says
// how they resolve ambiguities of the paper.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace allot {

// Returns the token of table 23, verbatim; "" if there is none.
std::string_view literalNumberForLlama(std::string_view completion);
// Returns the answer of table 21: the content of the last box, else the last 200 characters.
std::string_view literalNumberForDeepseek(std::string_view completion);
// Returns 1 if PRM800K's grader accepts `given` for one of the references, which are numbers; else
// 0.
double gradePrm800k(const std::vector<std::string>& references, std::string_view given);

// Return the letter of tables 24 and 22, in upper case.
std::optional<char> literalChoiceForLlama(std::string_view completion);
std::optional<char> literalChoiceForDeepseek(std::string_view completion);

}  // namespace allot
