// Grader python-tests and its sandbox: what is right and wrong, what is in reach and what is not.
#include "worker/tasks/sandbox.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "tests/results.h"
#include "tests/temp_folder.h"
#include "tests/worker/sandbox_fixture.h"
#include "worker/tasks/python_tests.h"
#include "worker/tasks/task.h"

namespace allot {
namespace {

using testing::HasSubstr;

// ---- what is right and what is wrong ----

struct Case {
  std::vector<std::string> references;
  std::string completion;
  double score;
};

std::vector<Case> gradedCases() {
  const auto r = answer42();
  return {
      {r, "    return 42", 1},
      {r, "    return 42\n", 1},
      {r, "    return 41", 0},
      {r, "    return 42.0", 1},
      {r, "    return '42'", 0},
      {r, "", 0},
      {r, "\n", 0},
      {r, "return 42", 0},  // not indented
      {r, "\treturn 42", 1},
      {r, "    return 42\n\ndef g(:", 1},  // cut where the next function begins
      {r, "    return 42\nclass A", 1},
      {r, "    return 42\n# and so on", 1},
      {r, "    return 42\nif True: raise", 1},
      {r, "    return 42\nprint(1/0)", 1},
      {r, "    return 42\nimport nothing", 0},  // no stop sequence
      {r, "    return 42\n  # less indented", 1},
      {r, "    if True:\n        return 42\n    print(1)", 1},
      {r, "    return 4\ndef f(): return 42", 0},
      {r, "    return (42", 0},
      {r, "    x = 4\n    x += 38\n    return x", 1},
      {r, "    raise ValueError", 0},
      {r, "    raise SystemExit(0)", 0},
      {r, "    import sys\n    sys.exit(0)", 0},
      {r, "    import os\n    os._exit(0)", 0},
      {r, "    return f()", 0},  // without end
      {r, "    import math\n    return math.comb(7, 2) * 2", 1},
      {r, "    print('x' * 10000)\n    return 42", 1},
      {r, "    return input()", 0},
      {r, "    import numpy\n    return 42", 0},  // the standard library alone
      {r, "    return '\xff' and 42", 1},         // becomes a character
      {r, std::string("    return 42 # \0", 17), 0},
      {r, "    return '\xc3\xa9'.encode() == b'\\xc3\\xa9' and 42", 1},
      {r, "    global __name__\n    return 42 if __name__ == 'builtins' else 0", 1},
      {r, "    import subprocess\n    return int(subprocess.check_output(['echo', '42']))", 1},
      {r, "    import threading\n    threading.Thread(target=input).start()\n    return 42", 1},
      {r,
       "    import sys, threading\n"
       "    talk = lambda: [print('x', file=sys.stderr) for _ in iter(int, 1)]\n"
       "    threading.Thread(target=talk, daemon=True).start()\n    return 42",
       1},
      {r, "    open('/tmp/a', 'w').write('42')\n    return int(open('/tmp/a').read())", 1},
      {{"assert x == 1"}, "x = 1\n", 1},
      {{"assert x == 1"}, "x = 1", 1},  // the tests stand on lines of their own
      {{"assert x == 1"}, "x = 2\n", 0},
      {{}, "x = 1", 0},
      {{"x = 1\n", "", ""}, "", 0},
  };
}

TEST_F(Sandbox, GradesAsItShould) {
  const std::vector<Case> cases = gradedCases();
  ASSERT_GE(cases.size(), 30u);
  std::vector<TestProgram> programs;
  for (const Case& c : cases) programs.push_back(testProgram(c.references, c.completion));
  const auto scores = valueOf(runPrograms(programs, goOn));
  for (size_t i = 0; i < cases.size(); ++i) {
    EXPECT_EQ(scores[i], cases[i].score) << cases[i].completion;
  }
}

TEST_F(Sandbox, CanonicalSolutionsPass) {
  const char* const other = std::getenv("ALLOT_HUMANEVAL");
  std::ifstream file(other != nullptr ? other
                                      : ALLOT_SOURCE_DIR "/tests/worker/humaneval/problems.jsonl");
  std::vector<std::string> ids;
  std::vector<TestProgram> right, nothing;
  for (std::string line; std::getline(file, line);) {
    const auto json = nlohmann::json::parse(line);
    const auto text = [&](const char* field) { return json[field].get<std::string>(); };
    const std::vector<std::string> around = {
        text("prompt"), "\n" + text("test") + "\ncheck(" + text("entry_point") + ")"};
    ids.push_back(text("task_id"));
    right.push_back(testProgram(around, text("canonical_solution")));
    nothing.push_back(testProgram(around, "    return None"));
  }
  ASSERT_GE(ids.size(), 4u);
  const auto start = std::chrono::steady_clock::now();
  const auto passed = runPrograms(right, goOn);
  RecordProperty("seconds", std::to_string(secondsSince(start)));
  const auto failed = runPrograms(nothing, goOn);
  ASSERT_TRUE(passed && failed);
  for (size_t i = 0; i < ids.size(); ++i) {
    EXPECT_EQ((*passed)[i], 1) << ids[i];
    EXPECT_EQ((*failed)[i], 0) << ids[i];
  }
}

// As the engine asks for it: each answer has its own score, beside those of other graders.
TEST_F(Sandbox, AnswersOfABatchHaveTheirOwnScores) {
  v1::Task task;
  task.set_suite("humaneval");
  const Question asked{.task = "humaneval", .prompt = "", .prompt_ids = {}, .answers = answer42()};
  const std::string right = "    return 42\n\ndef", wrong = "    return 41";
  const std::vector<Completion> batch = {
      {&asked, &wrong}, {&asked, &right}, {&asked, &wrong}, {&asked, &right}};
  const auto grades = valueOf(gradeAll(task, batch, goOn));
  ASSERT_EQ(grades.size(), 4u);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(grades[i].score, i % 2) << i;
  EXPECT_FALSE(grades.front().other);
  task.set_suite("ruler");
  task.set_grader("python-tests");
  const Question needle{
      .task = "niah_single_1", .prompt = "", .prompt_ids = {}, .answers = answer42()};
  const std::string both = "    return 42\n" + answer42()[0] + answer42()[1];
  const auto two = valueOf(gradeAll(task, std::vector<Completion>{{&needle, &both}}, goOn));
  EXPECT_EQ(two.front().score, 1);
  EXPECT_EQ(two.front().other.value(), 1);  // RULER's: the text holds both answers
}

TEST_F(Sandbox, WhatIsToBeGivenUpIsGivenUp) {
  const std::vector<TestProgram> programs(20, {"", "import time\ntime.sleep(1000)", ""});
  const auto start = std::chrono::steady_clock::now();
  EXPECT_THAT(runPrograms(programs, [] { return badInput("enough"); }), isError("enough"));
  EXPECT_LT(secondsSince(start), 10);
}

// Beside each way that is barred, one that is open: what is barred is not barred by accident.
TEST_F(Sandbox, WhatProgramsNeedIsThere) {
  EXPECT_EQ(gradeOf(R"(
    import os, socket, subprocess, threading
    assert os.listdir("/tmp") == [] and os.getcwd() == "/tmp"
    open("/tmp/file", "wb").write(b"x" * (7 << 20))
    os.symlink("/tmp/file", "/tmp/link")
    assert len(open("/tmp/link", "rb").read()) == 7 << 20
    assert open("/usr/bin/env", "rb").read(4) == b"\x7fELF"
    assert len(bytearray(300 << 20)) == 300 << 20
    assert subprocess.run(["/bin/sh", "-c", "exit 3"]).returncode == 3
    ends = socket.socketpair()
    server = socket.socket(socket.AF_UNIX)
    server.bind("/tmp/socket")
    server.listen()
    socket.socket(socket.AF_UNIX).connect("/tmp/socket")
    return 42
)"),
            1);
}

// The test's own socket, file, environment and descriptors: a sandbox reaches none of them.
TEST_F(Sandbox, WhatIsTheWorkersIsOutOfReach) {
  const int server = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(bind(server, reinterpret_cast<sockaddr*>(&at), sizeof at), 0);
  ASSERT_EQ(listen(server, 1), 0);
  socklen_t size = sizeof at;
  getsockname(server, reinterpret_cast<sockaddr*>(&at), &size);
  EXPECT_EQ(gradeOf("    import socket\n    socket.create_connection(('127.0.0.1', " +
                    std::to_string(ntohs(at.sin_port)) + "), 2)\n    return 42"),
            0);

  const int abstract = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  const std::string text = "allot-" + std::to_string(getpid());
  text.copy(name.sun_path + 1, text.size());
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  ASSERT_EQ(bind(abstract, reinterpret_cast<sockaddr*>(&name), length), 0);
  ASSERT_EQ(listen(abstract, 1), 0);
  EXPECT_EQ(gradeOf("    import socket\n    socket.socket(socket.AF_UNIX).connect('\\0" + text +
                    "')\n    return 42"),
            0);

  const TempFolder folder;
  const std::string secret = folder.path() + "/secret";
  std::ofstream(secret) << "42";
  std::filesystem::permissions(folder.path(), std::filesystem::perms::all);
  std::filesystem::permissions(secret, std::filesystem::perms::all);
  EXPECT_EQ(gradeOf("    return int(open('" + secret + "').read())"), 0);
  EXPECT_EQ(gradeOf("    open('" + secret + "', 'w').write('41')\n    return 42"), 0);

  // Not closed on exec, as many a library leaves its own.
  const int open_file = open(secret.c_str(), O_RDWR);
  ASSERT_EQ(dup2(open_file, 40), 40);
  ASSERT_EQ(setenv("ALLOT_SECRET", "42", 1), 0);
  // Two pipes to the judge, and no other.
  EXPECT_EQ(gradeOf(R"(
    import os, stat
    others = []
    for fd in range(3, 64):
        try:
            others.append(os.fstat(fd).st_mode)
        except OSError:
            pass
    return 42 if len(others) > 2 or not all(map(stat.S_ISFIFO, others)) else 0
)"),
            0);
  EXPECT_EQ(gradeOf(R"(
    import os
    return 42 if set(os.environ) - {"PATH", "HOME", "LANG", "PYTHONHASHSEED", "PWD"} else 0
)"),
            0);
  for (const int fd : {server, abstract, open_file, 40}) close(fd);
  unsetenv("ALLOT_SECRET");
  std::stringstream kept;
  kept << std::ifstream(secret).rdbuf();
  EXPECT_EQ(kept.str(), "42");
}

TEST_F(Sandbox, OfAWorkerThatIsKilledNothingIsLeft) {
  const pid_t worker = fork();
  if (worker == 0) {
    (void)runPrograms({{"", "import time\ntime.sleep(1000)", ""}, {"", "while True: pass", ""}},
                      goOn);
    _exit(0);
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  kill(worker, SIGKILL);
  // All of them come to this process, and end.
  int ended = 0;
  const auto start = std::chrono::steady_clock::now();
  for (pid_t pid; (pid = waitpid(-1, nullptr, WNOHANG)) >= 0 && secondsSince(start) < 10;) {
    ended += pid > 0 ? 1 : 0;
    if (pid == 0) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_GE(ended, 2) << "no sandbox ran";
}

TEST_F(Sandbox, LimitsAreTheCallers) {
  const std::atomic<bool> stop{false}, stopped{true};
  SandboxLimits limits;
  limits.wall = std::chrono::milliseconds(300);
  const std::vector<std::string> sleep = {"/usr/bin/sleep", "1000"};
  EXPECT_EQ(runInSandbox({sleep, ""}, limits, stop)->why, SandboxEnd::Why::kTimedOut);
  limits.wall = std::chrono::seconds(30);
  EXPECT_EQ(runInSandbox({sleep, ""}, limits, stopped)->why, SandboxEnd::Why::kStopped);
  limits.output_bytes = 100;
  const auto much = runInSandbox({{"/usr/bin/yes"}, ""}, limits, stop);
  EXPECT_EQ(much->why, SandboxEnd::Why::kWroteTooMuch);
  EXPECT_EQ(much->output.size(), 100u);
  const auto echoed = runInSandbox({{"/usr/bin/cat"}, "in and out"}, limits, stop);
  EXPECT_EQ(echoed->output, "in and out");
  EXPECT_EQ(echoed->status, 0);
  EXPECT_EQ(runInSandbox({{"/usr/bin/false"}, ""}, limits, stop)->status, 1);
  // By the CPU's time, however busy the machine is; the kernel's signal is no program's to ignore.
  limits.wall = std::chrono::seconds(100);
  limits.cpu_seconds = 1;
  const auto spun = runInSandbox(
      {{"/usr/bin/python3", "-c", "import signal\nsignal.signal(24, 1)\nwhile True: pass"}, ""},
      limits, stop);
  EXPECT_EQ(spun->why, SandboxEnd::Why::kEnded);
  EXPECT_EQ(spun->status, 128 + SIGKILL);
}

// ---- where it cannot be ----

TEST(NoSandbox, IsOneSentence) {
  TempFolder folder;
  {
    const Path path(folder.path());
    EXPECT_EQ(checkPrograms().error().message,
              "--allow-code-execution: programs cannot be run here, for there is no bwrap in PATH "
              "(Debian package bubblewrap)");
  }
  // As bubblewrap ends where the kernel refuses it a user namespace.
  const std::string program = folder.path() + "/bwrap";
  std::ofstream(program) << "#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\n"
                            "exit 1\n";
  std::filesystem::permissions(folder.path(), std::filesystem::perms::all);
  std::filesystem::permissions(program, std::filesystem::perms::all);
  const Path path(folder.path() + ":/usr/bin:/bin");
  if (const auto missing = missingForSandbox({}); !missing.empty()) {
    ASSERT_EQ(std::getenv("ALLOT_CI"), nullptr) << missing;
    GTEST_SKIP() << missing;
  }
  EXPECT_EQ(missingForSandbox({{"/usr/bin/no-such-python", "p"}}),
            "there is no /usr/bin/no-such-python (Debian package p)");
  EXPECT_THAT(
      checkPrograms(),
      isError(
          ErrorCode::kUsage,
          "--allow-code-execution: programs cannot be run here, for the sandbox does not come up "
          "(bwrap: No permissions to create new namespace): the kernel and, in a container, its "
          "seccomp profile must allow user namespaces"));
  // While answers are graded, that is no wrong answer.
  EXPECT_THAT(runPrograms({{"", "x = 1", ""}}, goOn),
              isError(ErrorCode::kInternal, HasSubstr("No permissions")));
}

}  // namespace
}  // namespace allot
