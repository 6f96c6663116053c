#pragma once
// ChildProcess: a child process of `allot run`. One thread.
//
// It dies with its parent (PR_SET_PDEATHSIG) and writes to a log file. It has its own process
// group, so that Ctrl-C reaches only the parent, which stops children in order.
#include <sys/types.h>

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"

namespace allot {

struct Command {
  std::string program;  // a path, or a name looked up in PATH
  std::vector<std::string> arguments;
  std::map<std::string, std::string> environment;  // added to the parent's
};

class ChildProcess {
 public:
  // Starts it with both outputs appended to `log`. kUsage if the log cannot be opened, kIo if the
  // system refuses. A missing program shows as exit code 127.
  static Result<ChildProcess> start(const Command& command, const std::string& log);

  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&& other) noexcept;
  ~ChildProcess();  // kills what is still running

  pid_t pid() const { return pid_; }
  // Returns the exit status once it has ended: its exit code, or 128 + signal.
  std::optional<int> poll();
  // Waits for `time` at most; then as poll().
  std::optional<int> waitFor(std::chrono::milliseconds time);
  void signal(int number);

 private:
  ChildProcess() = default;
  pid_t pid_ = -1;
  std::optional<int> status_;
};

struct Output {
  int status = 0;
  std::string out;
  std::string err;
};

// Runs a command to its end and returns its output. kData if the output exceeds the limit; the
// command is then ended.
Result<Output> capture(const Command& command);

// Replaces this process by the program; returns only if the system refuses.
Error become(const Command& command);

// Returns the path of a program of this project, beside the running one.
std::string siblingProgram(const std::string& name);

// Returns the path of a program in PATH.
std::optional<std::string> findProgram(const std::string& name);

// Return the last line of a text or file that is not blank.
std::string lastLine(const std::string& text);
std::string lastLineOfFile(const std::string& path);

}  // namespace allot
