#include "core/telemetry/process.h"

#include <signal.h>

#include "core/telemetry/log.h"
#include "core/telemetry/termination.h"

namespace allot {

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
