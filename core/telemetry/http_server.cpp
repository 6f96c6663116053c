#include "core/telemetry/http_server.h"

#include <pthread.h>
#include <signal.h>
#include <spdlog/spdlog.h>

#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <list>
#include <optional>
#include <thread>
#include <utility>

namespace allot {
namespace {

namespace net = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using tcp = net::ip::tcp;
using std::chrono::milliseconds;

constexpr uint32_t kMaxHeaderBytes = 8 * 1024;
constexpr size_t kMaxConnections = 64;
constexpr size_t kMaxDrainBytes = 64 * 1024;
constexpr milliseconds kAcceptPause{100};

class Session;

// The data that all sessions share; outlives them.
struct Shared {
  HttpServer::Handler handler;
  milliseconds timeout;
  bool loopback;  // the server listens on a loopback address
  // The open connections; the front one began, or sent a request, the longest ago.
  std::list<Session*> waiting;
};

// Returns true for this machine, or no name.
bool namesThisMachine(std::string host) {
  if (!host.ends_with(']')) host = host.substr(0, host.rfind(':'));
  if (host.empty() || host == "localhost") return true;
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  beast::error_code error;
  const auto ip = net::ip::make_address(host, error);
  return !error && ip.is_loopback();
}

HttpReply callHandler(const HttpServer::Handler& handler, const HttpRequest& request) {
  try {
    return handler(request);
  } catch (const std::exception& e) {
    spdlog::error("http: answering {} failed: {}", request.path, e.what());
  } catch (...) {
    spdlog::error("http: answering {} failed", request.path);
  }
  return plainText(500, "The server failed to answer: its log says why.");
}

// One connection: reads a request, answers it, and goes on until the client or a deadline ends it.
class Session : public std::enable_shared_from_this<Session> {
 public:
  Session(tcp::socket socket, Shared& shared)
      : stream_(std::move(socket)),
        shared_(shared),
        place_(shared_.waiting.insert(shared_.waiting.end(), this)) {}
  ~Session() { leave(); }

  // Closes the connection. The object is destroyed once its pending handlers have run.
  void close() {
    leave();
    stream_.close();
  }

  void readRequest() {
    goBehind();
    parser_.emplace();
    parser_->header_limit(kMaxHeaderBytes);
    parser_->body_limit(0);
    stream_.expires_after(shared_.timeout);
    http::async_read(
        stream_, buffer_, *parser_,
        [self = shared_from_this()](beast::error_code error, size_t) { self->onRequest(error); });
  }

 private:
  // Notes activity: makes this the last session of `waiting`.
  void goBehind() {
    if (open_) shared_.waiting.splice(shared_.waiting.end(), shared_.waiting, place_);
  }
  void leave() {
    if (std::exchange(open_, false)) shared_.waiting.erase(place_);
  }

  void onRequest(beast::error_code error) {
    goBehind();
    if (error) return refuse(error);
    const auto& request = parser_->get();
    const bool head = request.method() == http::verb::head;
    if (!head && request.method() != http::verb::get) {
      return answer(plainText(405, "This server only answers GET and HEAD."), false, false);
    }
    const std::string target(request.target());
    if (target.empty() || target.front() != '/') {
      return answer(plainText(400, "The request must name a path that begins with a slash."), head,
                    false);
    }
    if (request.count(http::field::host) > 1) {
      return answer(plainText(400, "The request has more than one Host."), head, false);
    }
    if (shared_.loopback && !namesThisMachine(std::string(request[http::field::host]))) {
      return answer(plainText(403, "This server answers to 127.0.0.1 and localhost only."), head,
                    false);
    }
    const std::string path = target.substr(0, target.find_first_of("?#"));
    const HttpRequest asked{path, std::string(request[http::field::accept]),
                            std::string(request[http::field::authorization])};
    answer(callHandler(shared_.handler, asked), head, request.keep_alive());
  }

  // Answers a request that could not be read, unless the client is gone or too slow.
  void refuse(beast::error_code error) {
    if (error == http::error::header_limit || error == http::error::buffer_overflow) {
      return answer(plainText(431, "The request's header is longer than 8 KiB."), false, false);
    }
    if (error == http::error::body_limit || error == http::error::unexpected_body) {
      return answer(plainText(413, "This server takes no request bodies."), false, false);
    }
    const bool spoke = error != http::error::end_of_stream && error != http::error::partial_message;
    if (spoke && error.category() == make_error_code(http::error::bad_method).category()) {
      return answer(plainText(400, "This is not an HTTP request."), false, false);
    }
    // Closed, reset or too slow: the socket closes with the session.
  }

  void answer(HttpReply reply, bool head, bool keep_alive) {
    const auto& request = parser_->get();
    response_ = {};
    response_.version(request.version() == 10 ? 10 : 11);
    response_.result(reply.status);
    response_.set(http::field::content_type, reply.content_type);
    response_.set(http::field::cache_control, "no-store");
    response_.set("Content-Security-Policy",
                  reply.loads +
                      "; object-src 'none'; base-uri 'none'; form-action 'none'; "
                      "frame-ancestors 'none'");
    response_.set("X-Content-Type-Options", "nosniff");
    response_.set("X-Frame-Options", "DENY");
    response_.set("Referrer-Policy", "no-referrer");
    response_.set("Cross-Origin-Resource-Policy", "same-origin");
    if (reply.status == 405) response_.set(http::field::allow, "GET, HEAD");
    if (reply.status == 401) response_.set(http::field::www_authenticate, "Basic realm=\"allot\"");
    response_.content_length(reply.body.size());
    response_.keep_alive(keep_alive);
    if (!head) response_.body() = std::move(reply.body);
    stream_.expires_after(shared_.timeout);
    http::async_write(stream_, response_,
                      [self = shared_from_this(), keep_alive](beast::error_code error, size_t) {
                        if (error) return;
                        if (keep_alive) return self->readRequest();
                        self->finish();
                      });
  }

  // Closes after reading the rest of the input, up to a bound. Closing with unread input makes the
  // kernel send a reset, which can overtake the answer.
  void finish() {
    beast::error_code ignored;
    stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
    stream_.expires_after(std::min<milliseconds>(shared_.timeout, std::chrono::seconds(1)));
    drain();
  }
  void drain() {
    stream_.async_read_some(net::buffer(sink_),
                            [self = shared_from_this()](beast::error_code error, size_t bytes) {
                              self->drained_ += bytes;
                              if (!error && self->drained_ < kMaxDrainBytes) self->drain();
                            });
  }

  beast::tcp_stream stream_;
  Shared& shared_;
  const std::list<Session*>::iterator place_;
  bool open_ = true;
  beast::flat_buffer buffer_{2 * kMaxHeaderBytes};
  std::optional<http::request_parser<http::empty_body>> parser_;
  http::response<http::string_body> response_;
  std::array<char, 4096> sink_{};
  size_t drained_ = 0;
};

}  // namespace

HttpReply plainText(unsigned status, std::string sentence) {
  return {status, "text/plain; charset=utf-8", std::move(sentence) + "\n"};
}

class HttpServer::Impl {
 public:
  Impl(Handler handler, milliseconds timeout) : shared_{std::move(handler), timeout, false, {}} {}

  ~Impl() {
    context_.stop();
    if (thread_.joinable()) thread_.join();
  }

  Status listen(const std::string& address, uint16_t port) {
    beast::error_code error;
    const auto ip = net::ip::make_address(address, error);
    if (error) {
      return badInput("\"" + address +
                      "\" is not an IP address to listen on: use 127.0.0.1 for "
                      "this machine only, or 0.0.0.0");
    }
    shared_.loopback = ip.is_loopback();
    const tcp::endpoint endpoint(ip, port);
    acceptor_.open(endpoint.protocol(), error);
    if (!error) acceptor_.set_option(net::socket_base::reuse_address(true), error);
    if (!error) acceptor_.bind(endpoint, error);
    if (!error) acceptor_.listen(net::socket_base::max_listen_connections, error);
    if (!error) port_ = acceptor_.local_endpoint(error).port();
    if (!error) return {};
    const std::string place = "port " + std::to_string(port) + " on " + address;
    if (error == net::error::address_in_use) {
      return badInput(place + " is taken: choose another with --port");
    }
    return badInput(place + " cannot be had (" + error.message() +
                    "): choose another with --port, or another address");
  }

  // Starts the thread, with all signals blocked: they are for the thread that called us.
  Status run() {
    accept();
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    Status status;
    try {
      thread_ = std::thread([this] { serve(); });
    } catch (const std::exception& e) {
      status = fail(ErrorCode::kInternal, std::string("cannot start the HTTP thread: ") + e.what());
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return status;
  }

  uint16_t port() const { return port_; }

 private:
  // An exception (no memory, say) ends its connection, never the process.
  void serve() {
    while (!context_.stopped()) {
      try {
        context_.run();
      } catch (const std::exception& e) {
        spdlog::error("http: a connection failed: {}", e.what());
      }
    }
  }

  void accept() {
    acceptor_.async_accept([this](beast::error_code error, tcp::socket socket) {
      if (error == net::error::operation_aborted) return;
      if (error) {  // out of descriptors, for example: trying at once would spin
        pause_.expires_after(kAcceptPause);
        pause_.async_wait([this](beast::error_code) { accept(); });
        return;
      }
      accept();
      // The new connection may be a probe, and a probe without an answer ends the process.
      if (shared_.waiting.size() >= kMaxConnections) shared_.waiting.front()->close();
      std::make_shared<Session>(std::move(socket), shared_)->readRequest();
    });
  }

  Shared shared_;  // first: sessions die with context_
  net::io_context context_{1};
  tcp::acceptor acceptor_{context_};
  net::steady_timer pause_{context_};
  uint16_t port_ = 0;
  std::thread thread_;
};

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() = default;
uint16_t HttpServer::port() const { return impl_->port(); }

Result<std::unique_ptr<HttpServer>> HttpServer::start(const std::string& address, uint16_t port,
                                                      Handler handler, milliseconds timeout) {
  try {
    auto impl = std::make_unique<Impl>(std::move(handler), timeout);
    ALLOT_TRY(impl->listen(address, port));
    ALLOT_TRY(impl->run());
    return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
  } catch (const std::exception& e) {
    return fail(ErrorCode::kInternal, std::string("cannot start the HTTP server: ") + e.what());
  }
}

}  // namespace allot
