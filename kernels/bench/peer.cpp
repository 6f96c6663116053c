#include "kernels/bench/peer.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "peer_scripts.h"

namespace allot::bench {
namespace {

using nlohmann::json;

constexpr int kNotRun = 127;
constexpr size_t kMostLine = size_t{1} << 20;
constexpr size_t kMostQuoted = 200;

bool isPython(const std::string& path) { return path.ends_with(".py"); }

std::string textOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// Returns a peer's text for a sentence: blanks for control characters, kMostQuoted at most.
std::string oneLine(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < ' ' || c == 0x7f) c = ' ';
  }
  if (text.size() > kMostQuoted) text = text.substr(0, kMostQuoted) + "...";
  return text;
}

std::string stringOf(const json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? oneLine(found->get<std::string>()) : "";
}

std::string dumped(const json& said) {
  return oneLine(said.dump(-1, ' ', false, json::error_handler_t::replace));
}

// Turns the child process into the program.
[[noreturn]] void become(const std::string& program, std::vector<std::string> arguments, int in,
                         int out) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  signal(SIGPIPE, SIG_DFL);
  dup2(in, STDIN_FILENO);
  dup2(out, STDOUT_FILENO);
  arguments.insert(arguments.begin(), program);
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  execvp(program.c_str(), pointers.data());
  _exit(kNotRun);
}

json questionJson(const PeerQuestion& question) {
  const bool prefill = question.phase == PeerQuestion::Phase::kPrefill;
  return {{"phase", prefill ? "prefill" : "decode"},
          {"rows", question.rows},
          {"keys", question.keys},
          {"heads", question.heads},
          {"kv_heads", question.kv_heads},
          {"dim", question.dim},
          {"page_size", question.page_size},
          {"element", question.element},
          {"flush_bytes", question.flush_bytes},
          {"warm_up", question.warm_up},
          {"samples", question.samples}};
}

// Checks a peer's answer. Returns it with `way` a string and `graph` a boolean, by default "" and
// false. Returns {"error": ...} if the peer reports an error or ms is not a finite number above 0.
json checkAnswer(const json& said) {
  if (const std::string why = stringOf(said, "error"); !why.empty()) return {{"error", why}};
  const auto ms = said.find("ms");
  if (ms == said.end() || !ms->is_number() || !(ms->get<double>() > 0) ||
      !std::isfinite(ms->get<double>())) {
    return {{"error",
             "its answer needs \"ms\" (a number above 0) or \"error\" (a text): " + dumped(said)}};
  }
  json answer = said;
  answer["way"] = stringOf(said, "way");
  const auto graph = said.find("graph");
  answer["graph"] = graph != said.end() && graph->is_boolean() && graph->get<bool>();
  return answer;
}

}  // namespace

PeerQuestion questionOf(const LayerOptions& options, PeerQuestion::Phase phase, int rows,
                        int keys) {
  return {.phase = phase,
          .rows = rows,
          .keys = keys,
          .heads = options.heads,
          .kv_heads = options.kv_heads,
          .dim = options.head_dim,
          .page_size = options.page_size,
          .warm_up = options.warm_up,
          .samples = options.samples};
}

std::string peerLabel(const std::string& name) {
  return name.find('/') == std::string::npos && !isPython(name)
             ? name
             : std::filesystem::path(name).stem().string();
}

std::string wrongPeers(const std::vector<std::string>& names) {
  std::set<std::string> labels;
  for (const std::string& name : names) {
    if (!labels.insert(peerLabel(name)).second) return "two peers are called " + peerLabel(name);
    if (name == "torch" || name == "flashinfer") continue;
    if (!std::filesystem::is_regular_file(name)) {
      return "a peer is torch, flashinfer or the path of a program, and there is no file " + name;
    }
    if (!isPython(name) &&
        (name.find('/') == std::string::npos || access(name.c_str(), X_OK) != 0)) {
      return name + " is no program that can be run: give its path (./" + name +
             "), and make it executable, or have it end with .py";
    }
  }
  return "";
}

Peer::Peer(const std::string& name, const std::string& python, PeerLimits limits)
    : label_(peerLabel(name)), limits_(limits) {
  const bool built_in = name == "torch" || name == "flashinfer";
  if (!built_in && !isPython(name)) {
    start(name, {});
  } else {
    const std::string own =
        built_in ? name == "torch" ? kSdpaScript : kFlashInferScript : textOf(name);
    start(python, {"-u", "-c", std::string(kPeerScript) + "\n\n" + own});
  }
  if (absence_.empty()) greet();
}

Peer::~Peer() { stop(); }

void Peer::start(const std::string& program, const std::vector<std::string>& arguments) {
  signal(SIGPIPE, SIG_IGN);  // the peer may end while a question is written
  program_ = program;
  int to[2], from[2];
  if (pipe2(to, O_CLOEXEC) != 0) {
    absence_ = "no pipe to it";
    return;
  }
  if (pipe2(from, O_CLOEXEC) != 0) {
    close(to[0]);
    close(to[1]);
    absence_ = "no pipe from it";
    return;
  }
  pid_ = fork();
  if (pid_ == 0) become(program, arguments, to[0], from[1]);
  close(to[0]);
  close(from[1]);
  to_ = to[1];
  from_ = from[0];
}

// Reads the first line: the peer's version, or why it cannot be asked.
void Peer::greet() {
  const json hello = next(limits_.start);
  if (absence_.empty()) {
    version_ = stringOf(hello, "version");
    const std::string why = stringOf(hello, "unavailable");
    if (!why.empty()) {
      absence_ = program_ + ": " + why;
    } else if (version_.empty()) {
      absence_ =
          program_ + ": its first line has neither version nor unavailable: " + dumped(hello);
    }
  }
  if (absence_.empty()) return;
  version_.clear();
  stop();
}

std::string Peer::stop() {
  if (pid_ <= 0) return "";
  close(to_);
  close(from_);
  int status = 0;
  // Waits up to half a second for a process that ends by itself.
  for (int i = 0; i < 50 && waitpid(pid_, &status, WNOHANG) == 0; ++i) usleep(10'000);
  if (waitpid(pid_, nullptr, WNOHANG) == 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
    return "";
  }
  pid_ = -1;
  if (WIFSIGNALED(status)) return " by signal " + std::to_string(WTERMSIG(status));
  if (WIFEXITED(status) && WEXITSTATUS(status) == kNotRun) return ": " + program_ + " was not run";
  return WEXITSTATUS(status) == 0 ? "" : " with " + std::to_string(WEXITSTATUS(status));
}

json Peer::ask(const PeerQuestion& question) {
  if (absence_.empty()) {
    const std::string line = questionJson(question).dump() + "\n";
    if (write(to_, line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
      absence_ = "its process has ended" + stop();
    }
  }
  const json said = absence_.empty() ? next(limits_.answer) : json();
  if (absence_.empty()) return checkAnswer(said);
  stop();
  return {{"error", absence_}};
}

json Peer::next(std::chrono::seconds within) {
  using Clock = std::chrono::steady_clock;
  const auto until = Clock::now() + within;
  const auto give_up = [this](const std::string& why) {
    absence_ = why;
    // Helps the author of a peer that writes no JSON.
    if (!unread_.empty()) absence_ += "; its last line was no JSON object: " + oneLine(unread_);
    return json::object();
  };
  while (true) {
    const size_t end = rest_.find('\n');
    if (end != std::string::npos) {
      const std::string line = rest_.substr(0, end);
      rest_.erase(0, end + 1);
      auto said = json::parse(line, nullptr, false);
      if (said.is_object()) return said;
      // Libraries may print, too.
      if (!line.empty()) unread_ = line;
      continue;
    }
    if (rest_.size() > kMostLine) return give_up("it wrote a line of more than a mebibyte");
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()).count();
    pollfd ready{.fd = from_, .events = POLLIN, .revents = 0};
    const int polled = poll(&ready, 1, static_cast<int>(left > 0 ? left : 0));
    if (polled < 0 && errno == EINTR) continue;
    char buffer[4096];
    const ssize_t got = polled > 0 ? read(from_, buffer, sizeof buffer) : -1;
    if (polled == 0) {
      return give_up("its process did not answer within " + std::to_string(within.count()) + " s");
    }
    if (got <= 0) {
      if (unread_.empty() && !rest_.empty()) unread_ = rest_;
      return give_up("its process has ended" + stop());
    }
    rest_.append(buffer, static_cast<size_t>(got));
  }
}

bool tryPeers(const std::vector<std::string>& names, const std::string& python,
              const std::vector<PeerQuestion>& questions) {
  bool all = true;
  for (const std::string& name : names) {
    Peer peer(name, python);
    if (!peer.absence().empty()) {
      std::printf("%s: left out, %s\n", peer.label().c_str(), peer.absence().c_str());
      all = false;
      continue;
    }
    std::printf("%s: %s\n", peer.label().c_str(), peer.version().c_str());
    for (const PeerQuestion& question : questions) {
      const json answer = peer.ask(question);
      std::printf("  %s\n    %s\n", questionJson(question).dump().c_str(),
                  answer.dump(-1, ' ', false, json::error_handler_t::replace).c_str());
      all = all && answer.contains("ms");
    }
  }
  return all;
}

}  // namespace allot::bench
