#pragma once
// Graders: score a completion by the right answers. Pure functions, any thread.
//
// A grader reads the references and the decoded text after the prompt. Names are those of
// core/spec/task_catalogue.h. Sources: RULER's scripts/eval/synthetic/constants.py
// (string_match_all, string_match_part), Appendix O of the SANTA paper, LongBench v2's pred.py, and
// the sources that benchmark_graders.h names.
// Comparisons ignore the case of ASCII letters only.
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
// Returns the part of a completion that the grader compares with the references, verbatim; "" if it
// finds none. Returns nothing for a grader that reads the whole text.
std::optional<std::string> extractedAnswer(std::string_view name, std::string_view completion);
std::vector<std::string> implementedGraders();

}  // namespace allot
