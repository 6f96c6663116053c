#pragma once
// Telemetry: what a process shows of itself, in one object that main() owns: its metrics, its
// health, and the server and the file that tell of them.
//
// /metrics, /startedz, /livez and /readyz are answered here; other paths by whoever starts it. Any
// thread.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "core/result.h"
#include "core/telemetry/health.h"
#include "core/telemetry/http_server.h"
#include "core/telemetry/log.h"
#include "core/telemetry/registry.h"
#include "core/telemetry/target_file.h"

namespace allot {

struct TelemetryOptions {
  std::string listen = "127.0.0.1";
  std::optional<uint16_t> port = std::nullopt;  // 0: any; none: no server
  bool any_port = false;                        // any free port if this one is taken
  std::string target_file = {};                 // with a server; see target_file.h
};

class Telemetry {
 public:
  // Answers a path.
  using PathHandler = std::function<HttpReply(const std::string& path)>;

  // Starts the server. other: answers the paths that are not ours, on the server's thread.
  // kUsage if the port cannot be had, kIo if the target file cannot be written.
  static Result<std::unique_ptr<Telemetry>> start(const TelemetryOptions& options,
                                                  PathHandler other = nullptr);

  MetricRegistry& metrics() { return metrics_; }
  Health& health() { return health_; }
  // Once known: in every metric and every line of the log.
  void setRun(const std::string& run_id, const std::string& experiment);
  // Until /metrics was asked for once more, so that what was counted last is not lost with the
  // process; at most so long, and not at all without a server.
  void waitForScrape(std::chrono::milliseconds limit) const;
  // "http://127.0.0.1:9464/"; empty without a server.
  const std::string& url() const { return url_; }

 private:
  Telemetry();
  Status serve(const TelemetryOptions& options, PathHandler other);
  HttpReply answer(const HttpRequest& request);

  MetricRegistry metrics_;
  Health health_;
  std::atomic<uint64_t> scrapes_{0};
  PathHandler other_;
  std::string url_;
  std::unique_ptr<HttpServer> server_;  // after all that it answers from
  std::optional<TargetFile> target_file_;
};

}  // namespace allot
