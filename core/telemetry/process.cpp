#include "core/telemetry/process.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>

#include "core/telemetry/log.h"

namespace allot {
namespace {

constexpr size_t kMostBytes = 4096;

}  // namespace

void writeTermination(std::string_view sentence) {
  const char* path = std::getenv("ALLOT_TERMINATION_LOG");
  if (path == nullptr || *path == '\0') return;
  const int file = ::open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK, 0644);
  if (file < 0) return;
  size_t size = std::min(sentence.size(), kMostBytes);
  // Cuts before a whole character.
  if (size < sentence.size()) {
    while (size > 0 && (static_cast<unsigned char>(sentence[size]) & 0xc0) == 0x80) --size;
  }
  (void)!::write(file, sentence.data(), size);
  ::close(file);
}

int endProcess(const std::string& program, const Status& done) {
  if (done) return 0;
  logLastWords(program, done.error().message);
  writeTermination(done.error().message);
  return done.error().exitCode();
}

std::atomic<bool> draining{false};

int runProcess(const std::string& program, CLI::App* app, const TelemetryFlags& telemetry, int argc,
               char** argv, const std::function<Status()>& work) {
  try {
    app->parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (app->exit(error) == 0) return 0;
    writeTermination(error.what());
    return static_cast<int>(ErrorCode::kUsage);
  }
  setUpLog(telemetry.logFormat());
  struct sigaction action {};
  action.sa_handler = [](int) { draining = true; };
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
  signal(SIGPIPE, SIG_IGN);
  try {
    return endProcess(program, work());
  } catch (const std::exception& error) {
    return endProcess(program, fail(ErrorCode::kInternal, error.what()));
  }
}

}  // namespace allot
