#pragma once
// What the processes of a cluster have around their work: options, a log, signals, last words.
// For main() alone.
#include <CLI/CLI.hpp>
#include <atomic>
#include <functional>
#include <string>

#include "core/result.h"
#include "core/telemetry/flags.h"

namespace allot {

// Set by SIGTERM and SIGINT once runProcess() works: end in good order.
extern std::atomic<bool> draining;

// A whole main(): reads the command line into what `app` and `telemetry` are bound to, then does
// `work`. Returns the exit code; what went wrong, an exception included, is in the log and in the
// termination file by then (termination.h). SIGPIPE is ignored.
int runProcess(const std::string& program, CLI::App* app, const TelemetryFlags& telemetry, int argc,
               char** argv, const std::function<Status()>& work);

}  // namespace allot
