#pragma once
// Grader python-tests: an answer is Python code, and it is right if its tests pass. Answer and
// tests run in a sandbox each (worker/tasks/python_judge.h), by this machine's python3 with its
// standard library alone. Functions without state: any thread.
//
// A question has two references, the program's text before the answer and the tests behind it, or
// the tests alone. With another number of references no answer is right. Protocol and program are
// those of HumanEval (Chen et al. 2021, section 3.2, and its published execution.py). The answer is
// cut at the first stop sequence, and executed behind its prompt as one module in an empty name
// space. Any exception is a failure, SystemExit included.
// Four things differ. Tests run in another process, and see the answer's values and not its
// objects. The limit is 3 s of CPU time and 12 s of wall time (there 3 s), so that a grade does not
// depend on the machine's load. Memory is limited to 512 MiB. A program that leaves processes
// behind fails, unless it hides them.
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace allot {

// Returns the answer up to the first of "\nclass", "\ndef", "\n#", "\nif", "\nprint".
std::string_view untilStop(std::string_view completion);
// Returns true if the answer has one of them: all further text is cut.
bool hasStop(const std::string& completion);

struct TestProgram {
  std::string before;  // the program's text before the answer
  std::string answer;  // the cut answer and a line end; "": there is nothing to run
  std::string tests;
};

// Returns the program that tests the answer; an empty one if there are not one or two references.
TestProgram testProgram(const std::vector<std::string>& references, std::string_view completion);

// Returns for each program 1 if its tests run to their end, else 0; an empty one has 0. Up to 8 run
// at the same time. `go_on` is called every 0.2 s; its error ends the programs and the call. Other
// errors: runPair()'s, kInternal if a sandbox does not start, and kData if tests cannot be judged.
Result<std::vector<double>> runPrograms(const std::vector<TestProgram>& programs,
                                        const std::function<Status()>& go_on);

// Checks that programs can be run here, by trying the sandbox and its limits. kUsage says what is
// missing; other errors are runPair()'s.
Status checkPrograms();

}  // namespace allot
