#pragma once
// The fixture of the sandbox's tests. They need bubblewrap and user namespaces; without them they
// say so and skip, where ALLOT_CI is set they fail.
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

#include "worker/tasks/python_tests.h"

namespace allot {

inline Status goOn() { return {}; }

inline double secondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// A function whose right answer is 42.
inline std::vector<std::string> answer42() {
  return {"def f():\n", "\n\ndef check(candidate):\n    assert candidate() == 42\n\ncheck(f)"};
}

// Of a function body.
inline double gradeOf(const std::string& body) {
  const auto scores = runPrograms({testProgram(answer42(), body)}, goOn);
  EXPECT_TRUE(scores) << scores.error().message;
  return scores ? scores->front() : -1;
}

// Sets PATH until its end.
class Path {
 public:
  explicit Path(const std::string& path) : before_(std::getenv("PATH")) {
    setenv("PATH", path.c_str(), 1);
  }
  ~Path() { setenv("PATH", before_.c_str(), 1); }
  Path(const Path&) = delete;
  Path& operator=(const Path&) = delete;

 private:
  std::string before_;
};

class Sandbox : public testing::Test {
 protected:
  void SetUp() override {
    static const Status here = checkPrograms();
    if (!here && std::getenv("ALLOT_CI") != nullptr) FAIL() << here.error().message;
    if (!here) GTEST_SKIP() << here.error().message;
    // Whatever outlives what started it becomes a child of this process.
    ASSERT_EQ(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
  }

  // Of a sandbox nothing is there once it has given its answer.
  void TearDown() override {
    EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "a process is left";
    EXPECT_EQ(errno, ECHILD);
  }
};

}  // namespace allot
