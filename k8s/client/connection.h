#pragma once
// Connection: one HTTP/1.1 connection to the API server, with or without TLS. Calls block until the
// answer has arrived or a deadline has passed; the lookup of a host name may exceed the deadline.
// One thread uses it, except interrupt() and interrupted(), for any thread.
#include <boost/asio/io_context.hpp>
#include <boost/beast/http/fields.hpp>
#include <boost/beast/http/status.hpp>
#include <boost/beast/http/verb.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "k8s/client/api_error.h"
#include "k8s/client/server_access.h"

namespace allot::kube {

struct Limits {
  std::chrono::milliseconds connect{5000};  // with lookup and TLS handshake
  // Of ask(). Of stream(): until the header of a 200 answer, or until the end of any other answer.
  std::chrono::milliseconds request{30000};
  size_t response_bytes = size_t{64} << 20;  // of an answer that is no stream
  size_t line_bytes = size_t{8} << 20;       // of the longest line of a watch; Api enforces it
};

struct HttpRequest {
  boost::beast::http::verb method = boost::beast::http::verb::get;
  std::string target;
  std::string content_type = {};  // empty: `body` is not sent
  std::string body = {};
};

struct HttpAnswer {
  int status = 0;
  std::string retry_after;  // of the header; empty if absent
  std::string body;
};

class Connection {
 public:
  Connection(ServerAccess access, Limits limits);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Returns the whole answer, of any status. Connects if needed. If a reused connection ends before
  // a byte of the answer has arrived, the request is sent again on a new one. A POST is not sent
  // again, since it could take effect twice. Both hold for stream(), too. "BadRequest" for a token
  // without TLS to another machine, and for certificate files that cannot be used.
  Reply<HttpAnswer> ask(const HttpRequest& request, const std::string& token);

  // Sends the request and passes the body of a 200 answer to `take` as it arrives. Returns when the
  // server ends the stream, `take` fails, interrupt() is called or `limit` has passed ("Timeout").
  // With a status other than 200 it returns the whole answer, and `take` is not called. A stream
  // that was cut off closes the connection; the next request opens a new one.
  using Take = std::function<Reply<void>(std::string_view bytes)>;
  Reply<HttpAnswer> stream(const HttpRequest& request, const std::string& token,
                           std::chrono::milliseconds limit, const Take& take);

  // Ends the current request and all later ones. Any thread, any number of times.
  void interrupt();
  bool interrupted() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace allot::kube
