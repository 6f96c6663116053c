#pragma once
// The frame of a process's main(): options, log, signals, last words. Used only by main().
#include <CLI/CLI.hpp>
#include <atomic>
#include <functional>
#include <string>

#include "core/result.h"
#include "core/telemetry/flags.h"

namespace allot {

// Set by SIGTERM and SIGINT once runProcess() works: end in good order.
extern std::atomic<bool> draining;

// Does a whole main(): parses the command line into the variables bound to `app` and `telemetry`,
// then does `work`. Returns the exit code. By then an error, an exception included, is in the log
// and in the termination file (termination.h). SIGPIPE is ignored.
int runProcess(const std::string& program, CLI::App* app, const TelemetryFlags& telemetry, int argc,
               char** argv, const std::function<Status()>& work);

}  // namespace allot
