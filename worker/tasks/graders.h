#pragma once
// Graders: score a completion by the right answers. Pure functions, any thread.
//
// A grader reads what is expected and the decoded text after the prompt. Names are those of
// core/spec/task_catalogue.h. Sources: RULER's scripts/eval/synthetic/constants.py
// (string_match_all, string_match_part), Appendix O of the SANTA paper, LongBench v2's pred.py, and
// the sources that benchmark_graders.h names. Graders that ignore case compare lowerCase() of both
// texts (worker/model/nfc.h); santa-fwe lowers only the ASCII letters of the completion.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace allot {

// The data of a question that graders need.
struct Expected {
  std::vector<std::string> answers;       // the references
  std::vector<std::string> classes = {};  // all possible answers, of a classification question
};

// Returns a score in 0..1; 0 without references.
using Grader = double (*)(const Expected& expected, std::string_view completion);

// Returns null for an unknown name, and for python-tests, whose answers are run
// (worker/tasks/python_tests.h).
Grader findGrader(std::string_view name);
// Returns the answer that the grader takes from a completion: letters of choices in upper case,
// santa-niah's integers without leading zeros; "" if it finds none. Returns nothing for an unknown
// name, and for a grader that takes the whole text or a part that is not recorded.
std::optional<std::string> extractedAnswer(std::string_view name, std::string_view completion);
std::vector<std::string> implementedGraders();

}  // namespace allot
