#pragma once
// Connection: one HTTP/1.1 connection to the API server, over TLS or without.
//
// The caller blocks until an answer is there or a deadline has passed. One thread uses it;
// interrupt() may come from any other and ends what goes on, and all that is asked later.
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
  std::chrono::milliseconds request{30000};  // from sending it to having read the whole answer
  size_t response_bytes = size_t{64} << 20;
  size_t line_bytes = size_t{8} << 20;  // of a watch
};

struct HttpRequest {
  boost::beast::http::verb method = boost::beast::http::verb::get;
  std::string target;
  std::string content_type = {};  // none without a body
  std::string body = {};
};

struct HttpAnswer {
  int status = 0;
  std::string retry_after;  // the header as it came
  std::string body;
};

class Connection {
 public:
  Connection(ServerAccess access, Limits limits);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // The whole answer, whatever its status. Connects if need be; if the server closed the idle
  // connection meanwhile, asks once more on a new one (but for POST, which might then count twice).
  Reply<HttpAnswer> ask(const HttpRequest& request, const std::string& token);

  // A streamed answer: gives the body's bytes to `take` as they come, until the server ends it, or
  // `take` fails, or `limit` is over (both "Timeout": a server that says nothing, and one that
  // never ends). With a status other than 200 the whole answer, and nothing was taken. The
  // connection is used up after a stream that did not come to its end.
  using Take = std::function<Reply<void>(std::string_view bytes)>;
  Reply<HttpAnswer> stream(const HttpRequest& request, const std::string& token,
                           std::chrono::milliseconds limit, const Take& take);

  // Any thread, any number of times.
  void interrupt();
  bool interrupted() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace allot::kube
