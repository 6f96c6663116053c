#pragma once
// The telemetry options that every process has on its command line. Used only by main().
#include <CLI/CLI.hpp>

#include "core/telemetry/telemetry.h"

namespace allot {

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

}  // namespace allot
