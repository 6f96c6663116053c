#pragma once
// Connection: one HTTP/1.1 connection to the API server, with or without TLS.
//
// Calls block until an answer is there or a deadline has passed. One thread uses it. interrupt()
// may come from any other thread; it ends the current request and all later ones.
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
  std::chrono::milliseconds connect{5000};   // with the TLS handshake
  std::chrono::milliseconds request{30000};  // from sending it to reading the whole answer
  size_t response_bytes = size_t{64} << 20;
  size_t line_bytes = size_t{8} << 20;  // of a line of a watch
};

struct HttpRequest {
  boost::beast::http::verb method = boost::beast::http::verb::get;
  std::string target;
  std::string content_type = {};  // empty without a body
  std::string body = {};
};

struct HttpAnswer {
  int status = 0;
  std::string retry_after;  // the header's text
  std::string body;
};

class Connection {
 public:
  Connection(ServerAccess access, Limits limits);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Returns the whole answer, of any status. Connects if needed. If the server has closed the idle
  // connection, the request is sent once more on a new one, except a POST, which might count twice.
  Reply<HttpAnswer> ask(const HttpRequest& request, const std::string& token);

  // Reads a streamed answer and passes its bytes to `take`. Ends when the server ends it, `take`
  // fails, or `limit` is over ("Timeout", for a silent server as well as for an endless stream).
  // With a status other than 200 it returns the whole answer, and `take` is not called. A stream
  // that did not reach its end uses up the connection.
  using Take = std::function<Reply<void>(std::string_view bytes)>;
  Reply<HttpAnswer> stream(const HttpRequest& request, const std::string& token,
                           std::chrono::milliseconds limit, const Take& take);

  // May be called from any thread, any number of times.
  void interrupt();
  bool interrupted() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace allot::kube
