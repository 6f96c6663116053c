#include "kernels/bench/peer.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <utility>

#include "peer_scripts.h"

namespace allot::bench {
namespace {

constexpr int kStartSeconds = 180;
constexpr int kAnswerSeconds = 300;  // FlashInfer compiles its kernels when it is first asked

std::string scriptOf(const std::string& name) {
  return std::string(kPeerScript) + "\n\n" + (name == "torch" ? kSdpaScript : kFlashInferScript);
}

// In the child: never returns.
[[noreturn]] void become(const std::string& python, const std::string& script, int in, int out) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  signal(SIGPIPE, SIG_DFL);
  dup2(in, STDIN_FILENO);
  dup2(out, STDOUT_FILENO);
  execlp(python.c_str(), python.c_str(), "-u", "-c", script.c_str(), nullptr);
  _exit(127);
}

}  // namespace

Peer::Peer(const std::string& name, const std::string& python) : name_(name) {
  const std::string script = scriptOf(name);
  signal(SIGPIPE, SIG_IGN);  // it may end while it is written to
  int to[2], from[2];
  if (pipe2(to, O_CLOEXEC) != 0 || pipe2(from, O_CLOEXEC) != 0) {
    absence_ = "no pipe to it";
    return;
  }
  pid_ = fork();
  if (pid_ == 0) become(python, script, to[0], from[1]);
  close(to[0]);
  close(from[1]);
  to_ = to[1];
  from_ = from[0];
  const nlohmann::json hello = answer(kStartSeconds);
  version_ = hello.value("version", "");
  if (hello.contains("unavailable")) {
    absence_ = python + ": " + hello.value("unavailable", "");
    stop();
  } else if (version_.empty()) {
    absence_ = python + " did not start it";
    stop();
  }
}

Peer::~Peer() { stop(); }

void Peer::stop() {
  if (pid_ <= 0) return;
  close(to_);
  close(from_);
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

nlohmann::json Peer::ask(const nlohmann::json& shape) {
  if (!absence_.empty()) return {{"error", absence_}};
  const std::string line = shape.dump() + "\n";
  if (write(to_, line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
    absence_ = "its process has ended";
  }
  const nlohmann::json said = absence_.empty() ? answer(kAnswerSeconds) : nlohmann::json();
  if (absence_.empty()) return said;
  stop();
  return {{"error", absence_}};
}

nlohmann::json Peer::answer(int seconds) {
  using Clock = std::chrono::steady_clock;
  const auto until = Clock::now() + std::chrono::seconds(seconds);
  while (true) {
    const size_t end = rest_.find('\n');
    if (end != std::string::npos) {
      const auto said = nlohmann::json::parse(rest_.substr(0, end), nullptr, false);
      rest_.erase(0, end + 1);
      // Libraries may print, too.
      if (said.is_object()) return said;
      continue;
    }
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()).count();
    pollfd ready{.fd = from_, .events = POLLIN, .revents = 0};
    const int polled = poll(&ready, 1, static_cast<int>(left > 0 ? left : 0));
    if (polled < 0 && errno == EINTR) continue;
    char buffer[4096];
    const ssize_t got = polled > 0 ? read(from_, buffer, sizeof buffer) : -1;
    if (got <= 0) {
      absence_ = polled == 0 ? "its process did not answer in time" : "its process has ended";
      return nlohmann::json::object();
    }
    rest_.append(buffer, static_cast<size_t>(got));
  }
}

}  // namespace allot::bench
