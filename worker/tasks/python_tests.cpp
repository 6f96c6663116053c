#include "worker/tasks/python_tests.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

#include "core/printable.h"
#include "worker/tasks/python_judge.h"
#include "worker/tasks/sandbox.h"

namespace allot {
namespace {

constexpr const char* kPython = "/usr/bin/python3";

// How often to ask whether to go on.
constexpr std::chrono::milliseconds kAsk{200};

constexpr std::string_view kStops[] = {"\nclass", "\ndef", "\n#", "\nif", "\nprint"};

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
    socket.socket(socket.AF_INET)
    raise RuntimeError("there is a network")
except OSError as error:
    assert error.errno == 97, "there is a network"
try:
    bytearray(1 << 30)
    raise RuntimeError("memory is not limited")
except MemoryError:
    held = True
)py";

// Sandboxes at the same time: a decode step waits for them, and most end within 50 ms.
unsigned atOnce() { return std::clamp(std::thread::hardware_concurrency() / 2, 2U, 8U); }

struct Ran {
  bool began = false;  // both sandboxes came up
  bool passed = false;
  bool unfit = false;  // the tests cannot be judged
  std::string said;
};

Result<Ran> runProgram(const TestProgram& program, const std::atomic<bool>& stop) {
  const auto python = [](std::string text, std::string input) {
    return SandboxJob{{kPython, "-s", "-S", "-B", "-c", std::move(text)}, std::move(input)};
  };
  ALLOT_ASSIGN(const SandboxEnd end,
               runPair(python(judgeProgram(), std::to_string(program.before.size()) + "\n" +
                                                  program.before + program.tests),
                       python(answerProgram(), program.before + program.answer), {}, stop));
  const bool ended = end.why == SandboxEnd::Why::kEnded;
  Ran ran;
  ran.began = end.output.starts_with(kJudgeBegan) || end.why == SandboxEnd::Why::kStopped;
  ran.passed = ran.began && ended && end.status == kTestsPassed;
  ran.unfit = ran.began && ended && end.status == kTestsUnfit;
  ran.said = ran.unfit ? end.output : end.output + end.peer_output;
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
  explicit Work(const std::vector<TestProgram>& of) : programs(of), scores(of.size(), 0) {}
  const std::vector<TestProgram>& programs;
  std::vector<double> scores;
  std::atomic<size_t> next{0};
  std::atomic<bool> stop{false};
  std::mutex mutex;
  std::condition_variable changed;
  std::optional<Error> error;  // of the first that failed
  unsigned running = 0;
};

Status runOne(Work* work, size_t i) {
  const TestProgram& program = work->programs[i];
  if (program.answer.empty()) return {};
  ALLOT_ASSIGN(const Ran ran, runProgram(program, work->stop));
  if (!ran.began) {
    return fail(ErrorCode::kInternal,
                "the sandbox for programs did not come up: " + lastLineOf(ran.said));
  }
  if (ran.unfit) {
    return fail(ErrorCode::kData, "grader python-tests cannot judge the tests \"" +
                                      printable(program.tests, 200) +
                                      "\": " + lastLineOf(ran.said) +
                                      "; take the question out, or write other tests");
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

TestProgram testProgram(const std::vector<std::string>& references, std::string_view completion) {
  if (references.empty() || references.size() > 2) return {};
  return {.before = references.size() == 2 ? references.front() : "",
          .answer = std::string(untilStop(completion)) + "\n",
          .tests = references.back()};
}

Result<std::vector<double>> runPrograms(const std::vector<TestProgram>& programs,
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
  ALLOT_ASSIGN(const Ran ran, runProgram({"", kProbe, "assert held"}, stop));
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
