#pragma once
// HttpServer: the small HTTP server of one process (page, run view, metrics, liveness).
//
// It only reads: GET and HEAD, no request bodies, headers of at most 8 KiB, a deadline on each
// request, and at most 64 connections, of which the one that has done nothing for the longest time
// makes room for a new one: so a slow or hostile client costs little and for a short time, and
// keeps no probe out. The process's main owns it; it runs its own thread, on which it calls the
// handler one request at a time. The destructor stops and joins that thread.
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "core/result.h"

namespace allot {

struct HttpRequest {
  std::string path;    // "/api/run", without the query
  std::string host;    // that the client thinks it asks; "": it does not say
  std::string accept;  // as the client says what it takes; "": anything
};

struct HttpReply {
  unsigned status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
  // What a browser may load for it, in the words of a Content-Security-Policy.
  std::string loads = "default-src 'self'";
};

// A sentence as text/plain; charset=utf-8.
HttpReply plainText(unsigned status, std::string sentence);

class HttpServer {
 public:
  // Answers one request. Called on the server's thread; it should
  // return soon, because everyone else waits. What it throws becomes status 500.
  using Handler = std::function<HttpReply(const HttpRequest& request)>;

  // Listens on `address` (an IP address) and `port` (0: any free one) and serves until destroyed.
  // `timeout` bounds the time from waiting for a request to having read all of it, and the time
  // to write the answer. Errors: kUsage when the address is none or the port cannot be had.
  static Result<std::unique_ptr<HttpServer>> start(
      const std::string& address, uint16_t port, Handler handler,
      std::chrono::milliseconds timeout = std::chrono::seconds(10));

  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  uint16_t port() const;

 private:
  class Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace allot
