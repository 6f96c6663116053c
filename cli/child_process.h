#pragma once
// ChildProcess: a child process that writes to a log file. One thread. The child gets SIGTERM if
// its parent dies (PR_SET_PDEATHSIG). It has its own process group, so that Ctrl-C reaches only the
// parent.
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
  std::map<std::string, std::string> environment;  // added to the parent's, which it overrides
};

class ChildProcess {
 public:
  // Starts the command; its stdout and stderr are appended to the file `log`. kUsage if the log
  // cannot be opened, kIo if the system cannot fork. A program that cannot be executed ends with
  // status 127.
  static Result<ChildProcess> start(const Command& command, const std::string& log);

  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&& other) noexcept;
  ~ChildProcess();  // kills the child if it still runs

  pid_t pid() const { return pid_; }
  // Returns the exit status once the child has ended: its exit code, or 128 + signal.
  std::optional<int> poll();
  // Waits up to `time` for the child's end, then returns poll().
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

// Runs a command to its end and returns its output. If the output exceeds 64 MiB, kills the process
// group of the command and returns kData. kIo if the system cannot fork or make pipes.
Result<Output> capture(const Command& command);

// Replaces this process by the program; returns, with the reason, only if the system refuses.
Error become(const Command& command);

// Returns the path of a program of this project, beside the running one.
std::string siblingProgram(const std::string& name);

// Returns the path of an executable program: from PATH, or `name` itself if it has a slash.
std::optional<std::string> findProgram(const std::string& name);

// Return the last line that is not blank, of a text or of a file; "" without one.
std::string lastLine(const std::string& text);
std::string lastLineOfFile(const std::string& path);

}  // namespace allot
