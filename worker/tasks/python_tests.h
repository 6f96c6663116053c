#pragma once
// Grader python-tests: an answer is Python code, and it is right if its tests pass. They are run in
// the sandbox (worker/tasks/sandbox.h), by this machine's python3 with its standard library alone.
//
// The references of a question are the program's text before the answer and the text behind it,
// which tests, or the latter alone; one of another number is never right. Protocol and program are
// those of HumanEval (Chen et al. 2021, section 3.2, and its published execution.py): the answer is
// cut at the first stop sequence, the whole is executed as one module in an empty name space, and
// whatever is raised, SystemExit too, is a failure. Unlike there: the limits are of CPU time (3 s)
// rather than of time on the clock (12 s, there 3 s), so that a grade does not hang on what else
// the machine does; of memory, 512 MiB; and a program that leaves processes behind fails.
// Functions without state: any thread.
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace allot {

// The answer up to the first of "\nclass", "\ndef", "\n#", "\nif", "\nprint".
std::string_view untilStop(std::string_view completion);
// That it has one of them: all that comes is cut.
bool hasStop(const std::string& completion);

// The program that tests the answer; "" if the references are of another kind.
std::string testProgram(const std::vector<std::string>& references, std::string_view completion);

// For each program 1 if it runs to its end, else 0; a few are run at the same time. `go_on` is
// asked every fifth of a second, and its error ends what runs. Errors: its own; kInternal, if a
// sandbox does not come up, since that says nothing of the program.
Result<std::vector<double>> runPrograms(const std::vector<std::string>& programs,
                                        const std::function<Status()>& go_on);

// Whether programs can be run here: tries the sandbox and its limits. kUsage: a sentence that says
// what is missing.
Status checkPrograms();

}  // namespace allot
