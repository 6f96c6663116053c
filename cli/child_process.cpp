#include "cli/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>
#include <utility>

namespace allot {
namespace {

constexpr size_t kMostCaptured = size_t{64} << 20;

// Everything the child needs, made before fork: after it only async-signal-safe calls are allowed.
struct Prepared {
  std::vector<std::string> arguments;
  std::vector<std::string> environment;
  std::vector<char*> argv;
  std::vector<char*> envp;
  std::string path;

  explicit Prepared(const Command& command) {
    path = findProgram(command.program).value_or(command.program);
    arguments.push_back(command.program);
    arguments.insert(arguments.end(), command.arguments.begin(), command.arguments.end());
    for (char** entry = environ; *entry; ++entry) {
      const std::string text = *entry;
      if (!command.environment.contains(text.substr(0, text.find('=')))) {
        environment.push_back(text);
      }
    }
    for (const auto& [key, value] : command.environment) environment.push_back(key + "=" + value);
    for (auto& text : arguments) argv.push_back(text.data());
    for (auto& text : environment) envp.push_back(text.data());
    argv.push_back(nullptr);
    envp.push_back(nullptr);
  }
};

Result<pid_t> spawn(const Command& command, int out, int err) {
  Prepared prepared(command);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) {
    return fail(ErrorCode::kIo, "cannot start " + command.program + ": " + std::strerror(errno));
  }
  if (pid == 0) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(0);  // the parent died before the line above
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    dup2(out, STDOUT_FILENO);
    dup2(err, STDERR_FILENO);
    const int null = open("/dev/null", O_RDONLY);
    if (null >= 0) dup2(null, STDIN_FILENO);
    execve(prepared.path.c_str(), prepared.argv.data(), prepared.envp.data());
    _exit(127);
  }
  return pid;
}

int exitStatus(int status) {
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

Result<ChildProcess> ChildProcess::start(const Command& command, const std::string& log) {
  const int file = open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (file < 0) return badInput("cannot write " + log + ": " + std::strerror(errno));
  const Result<pid_t> pid = spawn(command, file, file);
  close(file);
  if (!pid) return tl::unexpected(pid.error());
  ChildProcess process;
  process.pid_ = *pid;
  return process;
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept { *this = std::move(other); }

ChildProcess& ChildProcess::operator=(ChildProcess&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(status_, other.status_);
  return *this;
}

ChildProcess::~ChildProcess() {
  if (pid_ > 0 && !poll()) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
}

std::optional<int> ChildProcess::poll() {
  if (status_ || pid_ <= 0) return status_;
  int status = 0;
  if (waitpid(pid_, &status, WNOHANG) == pid_) status_ = exitStatus(status);
  return status_;
}

std::optional<int> ChildProcess::waitFor(std::chrono::milliseconds time) {
  const auto end = std::chrono::steady_clock::now() + time;
  while (!poll() && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return status_;
}

void ChildProcess::signal(int number) {
  if (pid_ > 0 && !poll()) kill(pid_, number);
}

Result<Output> capture(const Command& command) {
  int out[2], err[2];
  if (pipe2(out, O_CLOEXEC) != 0) return fail(ErrorCode::kIo, "cannot make a pipe");
  if (pipe2(err, O_CLOEXEC) != 0) {
    close(out[0]);
    close(out[1]);
    return fail(ErrorCode::kIo, "cannot make a pipe");
  }
  const Result<pid_t> pid = spawn(command, out[1], err[1]);
  close(out[1]);
  close(err[1]);
  Output output;
  bool too_much = false;
  if (pid) {
    pollfd ends[2] = {{out[0], POLLIN, 0}, {err[0], POLLIN, 0}};
    std::string* texts[2] = {&output.out, &output.err};
    int open_ends = 2;
    while (open_ends > 0 && (::poll(ends, 2, -1) >= 0 || errno == EINTR)) {
      for (int i = 0; i < 2; ++i) {
        if (ends[i].fd < 0 || !(ends[i].revents & (POLLIN | POLLHUP | POLLERR))) continue;
        char buffer[4096];
        const ssize_t got = read(ends[i].fd, buffer, sizeof buffer);
        if (got > 0 && texts[i]->size() < kMostCaptured) {
          texts[i]->append(buffer, static_cast<size_t>(got));
        } else if (got > 0) {
          if (!too_much) kill(-*pid, SIGKILL);  // its group: see spawn
          too_much = true;
        } else {
          ends[i].fd = -1;
          --open_ends;
        }
      }
    }
    int status = 0;
    while (waitpid(*pid, &status, 0) < 0 && errno == EINTR) {
    }
    output.status = exitStatus(status);
  }
  close(out[0]);
  close(err[0]);
  if (!pid) return tl::unexpected(pid.error());
  if (too_much) {
    return fail(ErrorCode::kData, command.program + " was ended: it wrote more than " +
                                      std::to_string(kMostCaptured >> 20) + " MiB");
  }
  return output;
}

Error become(const Command& command) {
  Prepared prepared(command);
  execve(prepared.path.c_str(), prepared.argv.data(), prepared.envp.data());
  return {ErrorCode::kIo, "cannot start " + command.program + ": " + std::strerror(errno)};
}

std::string siblingProgram(const std::string& name) {
  std::error_code ignored;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", ignored);
  return (self.parent_path() / name).string();
}

std::optional<std::string> findProgram(const std::string& name) {
  if (name.find('/') != std::string::npos) {
    if (access(name.c_str(), X_OK) == 0) return name;
    return std::nullopt;
  }
  const char* path = std::getenv("PATH");
  std::stringstream folders(path ? path : "/usr/bin:/bin");
  std::string folder;
  while (std::getline(folders, folder, ':')) {
    const std::string candidate = (folder.empty() ? "." : folder) + "/" + name;
    if (access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return std::nullopt;
}

std::string lastLine(const std::string& text) {
  std::stringstream lines(text);
  std::string line, last;
  while (std::getline(lines, line)) {
    if (line.find_first_not_of(" \t\r") != std::string::npos) last = line;
  }
  return last;
}

std::string lastLineOfFile(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return lastLine(text.str());
}

}  // namespace allot
