#pragma once
// The two Python programs that grade an answer, each in a sandbox of its own
// (worker/tasks/sandbox.h). The judge holds the tests and decides; the answer's process holds the
// answer and serves the judge's questions. They share two pipes and nothing else.
//
// Messages are lines of JSON. A question is [number, what, ...], where `number` is random; its
// reply is [number, exception's class names or null, value, changed arguments or null]. Values
// cross as plain data of exact types, so that no method of the answer runs in the judge. Any other
// object stays in its process and crosses as a number, which the other side may call.
#include <string>

namespace allot {

// Reads the answer's program from standard input and says that it is ready. Once the judge has
// begun, runs the program and serves its names until the judge ends.
std::string answerProgram();

// Reads the length of the text before the answer, "\n", that text and the tests from standard
// input. Writes kJudgeBegan once the answer's process is ready, and lets that run the answer then.
// The exit status is kTestsPassed, kTestsUnfit or another one: failed. With kTestsUnfit the last
// line of the output says why the tests cannot be judged; no act of an answer leads to it.
std::string judgeProgram();

inline constexpr char kJudgeBegan[] = "began\n";
inline constexpr int kTestsPassed = 0;
inline constexpr int kTestsUnfit = 3;

}  // namespace allot
