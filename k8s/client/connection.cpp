#include "k8s/client/connection.h"

#include <netinet/tcp.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <boost/asio/connect.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/ssl.hpp>
#include <cerrno>
#include <limits>
#include <optional>
#include <utility>

namespace allot::kube {
namespace {

namespace net = boost::asio;
namespace ssl = net::ssl;
namespace beast = boost::beast;
namespace http = beast::http;
using beast::error_code;
using tcp = net::ip::tcp;

constexpr uint32_t kMaxHeaderBytes = 64 * 1024;
constexpr size_t kChunkBytes = 64 * 1024;

TimePoint after(std::chrono::milliseconds time) { return std::chrono::steady_clock::now() + time; }

bool isLoopback(const std::string& host) {
  error_code error;
  const auto address = net::ip::make_address(host, error);
  return error ? host == "localhost" : address.is_loopback();
}

// A peer that is gone without a word is noticed after a minute, long before a watch is over.
void watchThePeer(tcp::socket& socket) {
  error_code ignored;
  socket.set_option(tcp::no_delay(true), ignored);
  socket.set_option(net::socket_base::keep_alive(true), ignored);
  const auto set = [&socket](int option, int value) {
    ::setsockopt(socket.native_handle(), IPPROTO_TCP, option, &value, sizeof value);
  };
  set(TCP_KEEPIDLE, 30);
  set(TCP_KEEPINTVL, 10);
  set(TCP_KEEPCNT, 3);
  set(TCP_USER_TIMEOUT, 60'000);
}

http::request<http::string_body> written(const ServerAccess& access, const HttpRequest& request,
                                         const std::string& token) {
  http::request<http::string_body> message(request.method, request.target, 11);
  const bool v6 = access.host.find(':') != std::string::npos;
  message.set(http::field::host,
              (v6 ? "[" + access.host + "]" : access.host) + ":" + std::to_string(access.port));
  message.set(http::field::user_agent, "allot");
  message.set(http::field::accept, "application/json");
  if (!token.empty()) message.set(http::field::authorization, "Bearer " + token);
  if (!request.content_type.empty()) {
    message.set(http::field::content_type, request.content_type);
    message.body() = request.body;
  }
  message.prepare_payload();
  return message;
}

template <typename Fields>
HttpAnswer headOf(const Fields& message) {
  return {
      static_cast<int>(message.result_int()), std::string(message[http::field::retry_after]), {}};
}

}  // namespace

class Connection::Impl {
 public:
  Impl(ServerAccess access, Limits limits) : access_(std::move(access)), limits_(limits) {}

  Reply<HttpAnswer> ask(const HttpRequest& request, const std::string& token) {
    const TimePoint deadline = after(limits_.request);
    return retried(request, token, deadline,
                   [&] { return receive(request, token, deadline, deadline, nullptr); });
  }

  Reply<HttpAnswer> stream(const HttpRequest& request, const std::string& token,
                           std::chrono::milliseconds limit, const Take& take) {
    const TimePoint begin = std::chrono::steady_clock::now();
    const TimePoint head = begin + std::min(limit, limits_.request);
    return retried(request, token, head,
                   [&] { return receive(request, token, head, begin + limit, take); });
  }

  void interrupt() {
    stopped_ = true;
    net::post(context_, [this] { close(); });
  }
  bool interrupted() const { return stopped_; }

 private:
  // Runs `exchange` on the open connection, else on a new one. Repeats it on a new one if the open
  // one broke before a byte of the answer. Does not repeat a POST, nor after the deadline.
  template <typename Exchange>
  Reply<HttpAnswer> retried(const HttpRequest& request, const std::string& token,
                            TimePoint deadline, const Exchange& exchange) {
    if (!token.empty() && !access_.tls && !isLoopback(access_.host)) {
      return noAnswer("BadRequest", "the token is not sent to " + access_.url() +
                                        ": without TLS everybody on the way could read it");
    }
    const bool reused = idleConnectionLives();
    if (!reused) {
      if (auto connected = connect(); !connected) {
        return tl::unexpected<ApiError>(connected.error());
      }
    }
    heard_ = false;
    auto answer = exchange();
    if (answer) return answer;
    close();
    const bool again = reused && !heard_ && !stopped_ && request.method != http::verb::post &&
                       answer.error().reason == "Unavailable" &&
                       std::chrono::steady_clock::now() < deadline;
    if (!again) return answer;
    if (auto connected = connect(); !connected) return tl::unexpected<ApiError>(connected.error());
    answer = exchange();
    if (!answer) close();
    return answer;
  }

  // take: of a stream; null: the whole answer is wanted.
  Reply<HttpAnswer> receive(const HttpRequest& request, const std::string& token, TimePoint head,
                            TimePoint end, const Take& take) {
    if (const auto error = send(request, token, head)) return broken(error, request);
    http::response_parser<http::buffer_body> parser;
    parser.header_limit(kMaxHeaderBytes);
    // In Boost 1.74 every body exceeds an absent limit.
    parser.body_limit(std::numeric_limits<uint64_t>::max());
    const auto error = wait(head, [&](auto done) {
      withStream([&](auto& s) { http::async_read_header(s, buffer_, parser, std::move(done)); });
    });
    heard_ = parser.got_some();
    if (error) return broken(error, request);
    HttpAnswer answer = headOf(parser.get());
    // Counted here: Boost 1.74 holds each chunk alone against a limit.
    const auto keep = [&](std::string_view bytes) -> Reply<void> {
      if (answer.body.size() + bytes.size() > limits_.response_bytes) return tooLarge(request);
      answer.body += bytes;
      return {};
    };
    const bool streamed = take && answer.status == 200;
    if (auto read = readBody(parser, request, streamed ? end : head, streamed ? take : Take(keep));
        !read) {
      return tl::unexpected<ApiError>(read.error());
    }
    if (!parser.keep_alive()) close();
    return answer;
  }

  Reply<void> readBody(http::response_parser<http::buffer_body>& parser, const HttpRequest& request,
                       TimePoint deadline, const Take& take) {
    std::array<char, kChunkBytes> chunk;
    while (!parser.is_done()) {
      auto& body = parser.get().body();
      body.data = chunk.data();
      body.size = chunk.size();
      body.more = true;
      const auto error = wait(deadline, [&](auto done) {
        withStream([&](auto& s) { http::async_read_some(s, buffer_, parser, std::move(done)); });
      });
      // What came before a cut counts.
      const size_t got = chunk.size() - body.size;
      if (got > 0) {
        if (auto taken = take({chunk.data(), got}); !taken) return taken;
      }
      if (error && error != http::error::need_buffer) return broken(error, request);
    }
    return {};
  }

  error_code send(const HttpRequest& request, const std::string& token, TimePoint deadline) {
    auto message = written(access_, request, token);
    return wait(deadline, [&](auto done) {
      withStream([&](auto& s) { http::async_write(s, message, std::move(done)); });
    });
  }

  Reply<void> connect() {
    close();
    const TimePoint deadline = after(limits_.connect);
    tcp::resolver::results_type found;
    // An IP address, which a pod has, needs no lookup. A lookup of a name ends when the system's
    // resolver does.
    tcp::resolver resolver(context_);
    error_code error = wait(deadline, [&](auto done) {
      resolver.async_resolve(access_.host, std::to_string(access_.port),
                             [&found, done](error_code e, tcp::resolver::results_type r) mutable {
                               found = std::move(r);
                               done(e, 0);
                             });
    });
    if (error) return unreachable(error);
    tls_.reset();
    socket_.emplace(context_);
    error = wait(deadline, [&](auto done) {
      net::async_connect(*socket_, found,
                         [done](error_code e, const tcp::endpoint&) mutable { done(e, 0); });
    });
    if (error) return unreachable(error);
    watchThePeer(*socket_);
    if (access_.tls) {
      if (auto secured = shakeHands(deadline); !secured) return secured;
    }
    open_ = true;
    return {};
  }

  Reply<void> loadFiles() {
    tls_context_.emplace(ssl::context::tls_client);
    SSL_CTX_set_min_proto_version(tls_context_->native_handle(), TLS1_2_VERSION);
    tls_context_->set_verify_mode(ssl::verify_peer);
    error_code error;
    const auto unusable = [&](const std::string& file) {
      return noAnswer("BadRequest", file + " cannot be used for " + access_.url() + ": " +
                                        serverText(error.message()));
    };
    if (access_.ca_file.empty()) {
      tls_context_->set_default_verify_paths(error);
    } else {
      tls_context_->load_verify_file(access_.ca_file, error);
    }
    if (error) return unusable(access_.ca_file.empty() ? "the system's CA" : access_.ca_file);
    if (access_.certificate_file.empty()) return {};
    tls_context_->use_certificate_chain_file(access_.certificate_file, error);
    if (error) return unusable(access_.certificate_file);
    tls_context_->use_private_key_file(access_.key_file, ssl::context::pem, error);
    if (error) return unusable(access_.key_file);
    return {};
  }

  Reply<void> shakeHands(TimePoint deadline) {
    if (auto loaded = loadFiles(); !loaded) return loaded;
    tls_.emplace(*socket_, *tls_context_);
    error_code error;
    net::ip::make_address(access_.host, error);
    // Only names may be sent as the server's name.
    if (error) SSL_set_tlsext_host_name(tls_->native_handle(), access_.host.c_str());
    tls_->set_verify_callback(ssl::host_name_verification(access_.host));
    error = wait(deadline, [&](auto done) {
      tls_->async_handshake(ssl::stream_base::client, [done](error_code e) mutable { done(e, 0); });
    });
    if (!error) return {};
    const long verdict = SSL_get_verify_result(tls_->native_handle());
    if (verdict == X509_V_OK) return unreachable(error);
    return noAnswer("Untrusted", access_.url() + " showed no certificate for " + access_.host +
                                     " from the authorities in " +
                                     (access_.ca_file.empty() ? "the system" : access_.ca_file) +
                                     ": " + X509_verify_cert_error_string(verdict));
  }

  // Starts an operation and runs it until its handler was called. An operation that is not done by
  // the deadline is a time-out, and the connection is closed.
  template <typename Start>
  error_code wait(TimePoint deadline, const Start& start) {
    if (stopped_) return net::error::operation_aborted;
    std::optional<error_code> result;
    start([&result](error_code error, size_t) { result = error; });
    context_.restart();
    context_.run_until(deadline);
    if (result) return *result;
    close();
    context_.restart();
    context_.run();
    return beast::error::timeout;
  }

  template <typename F>
  void withStream(const F& f) {
    if (tls_) {
      f(*tls_);
    } else {
      f(*socket_);
    }
  }

  // Returns true if nothing has come on the open connection since the last answer, not even its
  // end.
  bool idleConnectionLives() {
    if (!open_ || buffer_.size() > 0) return false;
    char byte = 0;
    const ssize_t got = ::recv(socket_->native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
  }

  // Closes the socket, which ends its operations. The objects stay until the next connect().
  void close() {
    if (socket_) {
      error_code ignored;
      socket_->close(ignored);
    }
    if (!open_) return;
    open_ = false;
    buffer_.clear();
  }

  tl::unexpected<ApiError> unreachable(error_code error) const {
    if (stopped_) return interruption();
    return noAnswer(error == beast::error::timeout ? "Timeout" : "Unavailable",
                    access_.url() + " cannot be reached: " + serverText(error.message()));
  }
  tl::unexpected<ApiError> broken(error_code error, const HttpRequest& request) const {
    if (stopped_) return interruption();
    if (error == http::error::header_limit) {
      return tooLarge(request);
    }
    const std::string what = std::string(http::to_string(request.method)) + " " + request.target;
    if (error == beast::error::timeout) {
      return noAnswer("Timeout", what + ": no answer in time from " + access_.url());
    }
    const bool no_http = error.category() == make_error_code(http::error::bad_method).category() &&
                         error != http::error::end_of_stream &&
                         error != http::error::partial_message;
    return noAnswer(no_http ? "BadAnswer" : "Unavailable",
                    what + ": " + access_.url() + " broke off: " + serverText(error.message()));
  }
  tl::unexpected<ApiError> tooLarge(const HttpRequest& request) const {
    return noAnswer("TooLarge", std::string(http::to_string(request.method)) + " " +
                                    request.target + ": the answer is larger than " +
                                    std::to_string(limits_.response_bytes) + " bytes");
  }
  static tl::unexpected<ApiError> interruption() {
    return noAnswer("Interrupted", "the request was interrupted");
  }

  const ServerAccess access_;
  const Limits limits_;
  std::atomic<bool> stopped_{false};
  net::io_context context_{1};
  std::optional<tcp::socket> socket_;
  std::optional<ssl::context> tls_context_;
  std::optional<ssl::stream<tcp::socket&>> tls_;
  beast::flat_buffer buffer_;
  bool open_ = false;
  bool heard_ = false;  // a byte of the answer
};

Connection::Connection(ServerAccess access, Limits limits)
    : impl_(std::make_unique<Impl>(std::move(access), limits)) {}
Connection::~Connection() = default;

Reply<HttpAnswer> Connection::ask(const HttpRequest& request, const std::string& token) {
  return impl_->ask(request, token);
}
Reply<HttpAnswer> Connection::stream(const HttpRequest& request, const std::string& token,
                                     std::chrono::milliseconds limit, const Take& take) {
  return impl_->stream(request, token, limit, take);
}
void Connection::interrupt() { impl_->interrupt(); }
bool Connection::interrupted() const { return impl_->interrupted(); }

}  // namespace allot::kube
