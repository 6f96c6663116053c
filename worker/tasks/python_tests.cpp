#include "worker/tasks/python_tests.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <optional>
#include <random>
#include <thread>

#include "worker/tasks/sandbox.h"

namespace allot {
namespace {

constexpr const char* kPython = "/usr/bin/python3";

// How often to ask whether to go on.
constexpr std::chrono::milliseconds kAsk{200};

constexpr std::string_view kStops[] = {"\nclass", "\ndef", "\n#", "\nif", "\nprint"};

// Reads a word and the program. Writes the word when it begins, and again when the program has run
// to its end and nothing of it is left. _exit prevents threads and atexit from running after the
// verdict; the output of threads until then is discarded.
constexpr const char* kRunner = R"py(
import os, sys
word, program = sys.stdin.buffer.read().split(b"\n", 1)
verdict = os.dup(1)
os.write(verdict, word)
exec(program.decode("utf-8", "replace"), {})
try:
    while os.waitpid(-1, os.WNOHANG)[0]:
        pass
except ChildProcessError:
    null = os.open("/dev/null", os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    os.write(verdict, word)
    os._exit(0)
os._exit(1)
)py";

// Checks of the sandbox beyond its start.
constexpr const char* kProbe = R"py(
import os, socket
for path in ("/etc", "/proc", "/home", "/root", "/var"):
    assert not os.path.exists(path), path + " is there"
reading, writing = os.pipe()
children = 0
try:
    while children < 64:
        if os.fork() == 0:
            os.close(writing)
            os.read(reading, 1)
            os._exit(0)
        children += 1
except OSError:
    pass
os.close(writing)
for child in range(children):
    os.wait()
assert children < 64, "the number of processes is not limited (Linux 5.14 or newer is needed)"
try:
    socket.create_connection(("192.0.2.1", 9), 1)
    raise RuntimeError("there is a network")
except OSError as error:
    assert error.errno == 101, "there is a network"
try:
    bytearray(1 << 30)
    raise RuntimeError("memory is not limited")
except MemoryError:
    pass
)py";

// Sandboxes at the same time: a decode step waits for them, and most end within 50 ms.
unsigned atOnce() { return std::clamp(std::thread::hardware_concurrency() / 2, 2U, 8U); }

// Returns a word that the program does not know.
std::string freshWord() {
  std::random_device random;
  char text[40];
  std::snprintf(text, sizeof text, "%08x%08x%08x%08x", random(), random(), random(), random());
  return text;
}

struct Ran {
  bool began = false;   // the sandbox came up
  bool passed = false;  // the program ran to its end
  std::string said;     // without the words
};

Result<Ran> runProgram(const std::string& program, const std::atomic<bool>& stop) {
  const std::string word = freshWord();
  ALLOT_ASSIGN(SandboxEnd end, runInSandbox({kPython, "-s", "-S", "-B", "-c", kRunner},
                                            word + "\n" + program, {}, stop));
  Ran ran;
  ran.began = end.output.starts_with(word) || end.why == SandboxEnd::Why::kStopped;
  ran.said = ran.began ? end.output.substr(std::min(word.size(), end.output.size()))
                       : std::move(end.output);
  ran.passed = end.why == SandboxEnd::Why::kEnded && end.status == 0 && ran.began &&
               ran.said.ends_with(word);
  return ran;
}

std::string lastLineOf(const std::string& text) {
  const size_t last = text.find_last_not_of(" \t\r\n");
  if (last == std::string::npos) return "it says nothing";
  const size_t before = text.find_last_of('\n', last);
  const size_t first = before == std::string::npos ? 0 : before + 1;
  return text.substr(first, std::min<size_t>(last + 1 - first, 300));
}

// State that the threads of one call share.
struct Work {
  explicit Work(const std::vector<std::string>& of) : programs(of), scores(of.size(), 0) {}
  const std::vector<std::string>& programs;
  std::vector<double> scores;
  std::atomic<size_t> next{0};
  std::atomic<bool> stop{false};
  std::mutex mutex;
  std::condition_variable changed;
  std::optional<Error> error;  // of the first that failed
  unsigned running = 0;
};

Status runOne(Work* work, size_t i) {
  if (work->programs[i].empty()) return {};
  ALLOT_ASSIGN(const Ran ran, runProgram(work->programs[i], work->stop));
  if (!ran.began) {
    return fail(ErrorCode::kInternal,
                "the sandbox for programs did not come up: " + lastLineOf(ran.said));
  }
  work->scores[i] = ran.passed ? 1 : 0;
  return {};
}

void runSome(Work* work) {
  for (size_t i; !work->stop && (i = work->next++) < work->programs.size();) {
    const Status done = runOne(work, i);
    if (done) continue;
    const std::lock_guard lock(work->mutex);
    if (!work->error) work->error = done.error();
    work->stop = true;
  }
  const std::lock_guard lock(work->mutex);
  --work->running;
  work->changed.notify_all();
}

}  // namespace

std::string_view untilStop(std::string_view completion) {
  size_t end = completion.size();
  for (const std::string_view stop : kStops) end = std::min(end, completion.find(stop));
  return completion.substr(0, end);
}

bool hasStop(const std::string& completion) {
  return untilStop(completion).size() < completion.size();
}

std::string testProgram(const std::vector<std::string>& references, std::string_view completion) {
  if (references.empty() || references.size() > 2) return "";
  const std::string before = references.size() == 2 ? references.front() : "";
  return before + std::string(untilStop(completion)) + "\n" + references.back();
}

Result<std::vector<double>> runPrograms(const std::vector<std::string>& programs,
                                        const std::function<Status()>& go_on) {
  Work work(programs);
  std::vector<std::jthread> threads;
  work.running = static_cast<unsigned>(std::min<size_t>(atOnce(), programs.size()));
  for (unsigned i = work.running; i > 0; --i) threads.emplace_back(runSome, &work);
  Status asked;
  std::unique_lock lock(work.mutex);
  while (!work.changed.wait_for(lock, kAsk, [&] { return work.running == 0; })) {
    lock.unlock();
    if (asked) asked = go_on();
    if (!asked) work.stop = true;
    lock.lock();
  }
  lock.unlock();
  ALLOT_TRY(asked);
  if (work.error) return tl::unexpected(*work.error);
  return std::move(work.scores);
}

Status checkPrograms() {
  const std::string missing = missingForSandbox({{kPython, "python3"}});
  if (!missing.empty()) {
    return badInput("--allow-code-execution: programs cannot be run here, for " + missing);
  }
  const std::atomic<bool> stop{false};
  ALLOT_ASSIGN(const Ran ran, runProgram(kProbe, stop));
  if (ran.passed) return {};
  if (!ran.began) {
    return badInput(
        "--allow-code-execution: programs cannot be run here, for the sandbox does not come up (" +
        lastLineOf(ran.said) +
        "): the kernel and, in a container, its seccomp profile must allow user namespaces");
  }
  return badInput(
      "--allow-code-execution: programs cannot be run here, for the sandbox does not "
      "hold (" +
      lastLineOf(ran.said) + ")");
}

}  // namespace allot
