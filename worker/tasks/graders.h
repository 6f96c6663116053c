#pragma once
// Graders: how good a completion is, given the right answers.
//
// Each is a pure function of the references and of the decoded text after the prompt; the names are
// those of core/spec/task_catalogue.h. Sources: RULER's scripts/eval/synthetic/constants.py
// (string_match_all, string_match_part), Appendix O of the SANTA paper, LongBench v2's pred.py, and
// those that benchmark_graders.h names.
// Letters are compared without their case in ASCII alone: beyond it, as written. Any thread.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace allot {

// What is known of a question when its answer is graded.
struct Expected {
  std::vector<std::string> answers;       // the references
  std::vector<std::string> classes = {};  // all that could be answered, of a question that says so
};

// 0..1; 0 where there is no reference.
using Grader = double (*)(const Expected& expected, std::string_view completion);

// Null for a name that is not there, and for python-tests, whose answers are run
// (worker/tasks/python_tests.h).
Grader findGrader(std::string_view name);
// What the grader takes of a completion to compare with the references, as the completion has it;
// "" where it finds nothing. Nothing for a grader that looks at the whole text.
std::optional<std::string> takenBy(std::string_view name, std::string_view completion);
std::vector<std::string> implementedGraders();

}  // namespace allot
