#pragma once
// The frame of a process's main(): options, log, signals, last words. Used only by main().
#include <CLI/CLI.hpp>
#include <atomic>
#include <functional>
#include <string>
#include <string_view>

#include "core/result.h"
#include "core/telemetry/telemetry.h"

namespace allot {

// Writes the last words of a process, which `kubectl describe pod` shows after its end.
// Replaces the content of the file that the environment variable ALLOT_TERMINATION_LOG names by the
// sentence. At most 4 KiB (Kubernetes' limit); best effort.
void writeTermination(std::string_view sentence);

// Ends a main(): returns 0, or the error's exit code after writing its sentence to the log and the
// termination file.
int endProcess(const std::string& program, const Status& done);

// The telemetry options that every process has on its command line.
struct TelemetryFlags {
  TelemetryOptions options;
  std::string log_format = "text";

  void add(CLI::App* app) {
    app->add_option(
        "--listen", options.listen,
        "Address of the server: /metrics, /livez, /readyz and, on an aggregator, the run's page "
        "[127.0.0.1]");
    app->add_option("--port", options.port,
                    "Its port, 0 for any [" +
                        (options.port ? std::to_string(*options.port) : "no server") + "]");
    app->add_option("--target-file", options.target_file,
                    "Name the server here, as Prometheus's file_sd_configs reads it");
    app->add_option("--log-format", log_format, "text or json, one line an event [text]")
        ->check(CLI::IsMember({"text", "json"}));
  }
  LogFormat logFormat() const { return log_format == "json" ? LogFormat::kJson : LogFormat::kText; }
};

// Set by SIGTERM and SIGINT once runProcess() works: end in good order.
extern std::atomic<bool> draining;

// Does a whole main(): parses the command line into the variables bound to `app` and `telemetry`,
// then does `work`. Returns the exit code. By then an error, an exception included, is in the log
// and in the termination file. SIGPIPE is ignored.
int runProcess(const std::string& program, CLI::App* app, const TelemetryFlags& telemetry, int argc,
               char** argv, const std::function<Status()>& work);

}  // namespace allot
