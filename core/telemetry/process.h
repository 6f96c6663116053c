#pragma once
// The frame of main() in allot-worker, allot-aggregator and allot-operator: options, log, signals,
// last words. Any thread may read `draining`.
#include <CLI/CLI.hpp>
#include <atomic>
#include <functional>
#include <string>
#include <string_view>

#include "core/result.h"
#include "core/telemetry/telemetry.h"

namespace allot {

// Writes the last words of a process, which `kubectl describe pod` shows afterwards. The sentence,
// cut at 4 KiB (Kubernetes' limit), replaces the content of the file that the environment variable
// ALLOT_TERMINATION_LOG names. Does nothing without the variable, and ignores errors.
void writeTermination(std::string_view sentence);

// Returns the exit code of a main(). Writes the sentence of an error to the log and to the
// termination file.
int endProcess(const std::string& program, const Status& done);

// The telemetry options on the command line of these processes.
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
    app->add_option("--page-password-file", options.password_file,
                    "Answer, except probes, only to user allot with the password in this file");
    app->add_option("--log-format", log_format, "text or json, one line an event [text]")
        ->check(CLI::IsMember({"text", "json"}));
  }
  LogFormat logFormat() const { return log_format == "json" ? LogFormat::kJson : LogFormat::kText; }
};

// Set by SIGTERM and SIGINT while runProcess() calls `work`, which should then return in good
// order.
extern std::atomic<bool> draining;

// Does a whole main(): parses the command line into the variables bound to `app` and `telemetry`,
// sets up log and signals (SIGPIPE is ignored), then calls `work`. Returns the exit code. An error
// or std::exception of `work` is then in the log and in the termination file; a wrong command line
// is on standard error and in the termination file.
int runProcess(const std::string& program, CLI::App* app, const TelemetryFlags& telemetry, int argc,
               char** argv, const std::function<Status()>& work);

}  // namespace allot
