#pragma once
// HttpServer: the small HTTP server of a process (page, metrics, liveness).
//
// It is read-only: GET and HEAD, no request bodies, headers of at most 8 KiB, a deadline for each
// request, and at most 64 connections. One more connection closes the one that began, or sent a
// request, the longest ago. A slow or hostile client therefore costs little, and cannot keep probes
// out. A server on a loopback address answers only if the Host header names this machine: another
// site may let its own name resolve to it. Owned by the process's main. The server has one thread,
// on which it calls the handler, one request at a time. The destructor stops and joins that thread.
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "core/result.h"

namespace allot {

struct HttpRequest {
  std::string path;                // "/api/run", without query and fragment, not decoded
  std::string accept = {};         // the Accept header; "": none
  std::string authorization = {};  // the Authorization header; "": none
};

struct HttpReply {
  unsigned status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
  // The sources that a browser may load for the body, as directives of a Content-Security-Policy.
  std::string loads = "default-src 'self'";
};

// Returns a sentence and a newline as text/plain.
HttpReply plainText(unsigned status, std::string sentence);

class HttpServer {
 public:
  // Answers one request, on the server's thread. All other clients wait until the handler returns.
  // An exception becomes status 500.
  using Handler = std::function<HttpReply(const HttpRequest& request)>;

  // Listens on `address` (an IP address) and `port` (0: any free one) and serves until destroyed.
  // `timeout` limits the time until a request is read completely, and the time to write the answer.
  // kUsage if the address is invalid or the port is not available, kInternal without a thread or
  // memory.
  static Result<std::unique_ptr<HttpServer>> start(
      const std::string& address, uint16_t port, Handler handler,
      std::chrono::milliseconds timeout = std::chrono::seconds(10));

  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  uint16_t port() const;  // the port that it listens on

 private:
  class Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace allot
