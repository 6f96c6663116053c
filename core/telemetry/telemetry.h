#pragma once
// Telemetry: the metrics and health of a process, and the server and the target file that publish
// them. Owned by main(); any thread.
//
// The server answers /metrics, /startedz, /livez and /readyz. A handler of the process, if it has
// one, answers other paths. With a password, all but the three probes ask for it.
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

namespace allot {

// A file for Prometheus's file_sd_configs with the address of a process's metrics. The file exists
// as long as the object. Owned by Telemetry; one thread.
class TargetFile {
 public:
  // Writes the file as a whole (WholeFile). kIo if it cannot be written.
  static Result<TargetFile> write(const std::string& path, const std::string& address,
                                  uint16_t port);

  TargetFile(TargetFile&& other) noexcept;
  TargetFile& operator=(TargetFile&&) = delete;
  ~TargetFile();  // removes the file

 private:
  explicit TargetFile(std::string path) : path_(std::move(path)) {}
  std::string path_;  // empty: moved from
};

// Returns HOST:PORT to reach a server that listens on `address`: 127.0.0.1 for 0.0.0.0, [::1] for
// ::.
std::string reachableAt(const std::string& address, uint16_t port);

struct TelemetryOptions {
  std::string listen = "127.0.0.1";
  std::optional<uint16_t> port = std::nullopt;  // 0: any free port; none: no server
  bool any_port = false;                        // use any free port if `port` is not available
  std::string target_file = {};                 // only with a server
  std::string password_file = {};               // "": no password; only with a server
};

class Telemetry {
 public:
  using PathHandler = std::function<HttpReply(const std::string& path)>;

  // Starts the server, if the options have a port. other: answers other paths, on the server's
  // thread; null: they are 404. Errors are those of HttpServer::start(); kUsage if a target file or
  // a password lacks a server, or the password cannot be read; kIo if the target file cannot be
  // written.
  static Result<std::unique_ptr<Telemetry>> start(const TelemetryOptions& options,
                                                  PathHandler other = nullptr);

  MetricRegistry& metrics() { return metrics_; }
  Health& health() { return health_; }
  // Sets run and experiment of every metric and of later lines of the log.
  void setRun(const std::string& run_id, const std::string& experiment);
  // Waits at most `limit` until /metrics has been read once more, so that the last counts are not
  // lost with the process, then 50 ms more, in which the answer is sent. Does nothing without a
  // server.
  void waitForScrape(std::chrono::milliseconds limit) const;
  // Returns "http://127.0.0.1:9464/"; empty without a server.
  const std::string& url() const { return url_; }

 private:
  Telemetry();
  Status serve(const TelemetryOptions& options, PathHandler other);
  HttpReply answer(const HttpRequest& request);
  bool mayRead(const HttpRequest& request) const;

  MetricRegistry metrics_;
  Health health_;
  std::atomic<uint64_t> scrapes_{0};
  PathHandler other_;
  std::string credentials_;  // SHA-256 of the Authorization header that is let in; "": all are
  std::string url_;
  std::unique_ptr<HttpServer> server_;  // declared after all members that its thread reads
  std::optional<TargetFile> target_file_;
};

}  // namespace allot
