#include "tests/k8s/client/fake_api.h"

#include <sys/socket.h>

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/ssl.hpp>
#include <list>
#include <thread>

#include "k8s/client/api.h"

namespace allot::kube::test {
namespace {

namespace net = boost::asio;
namespace ssl = net::ssl;
namespace beast = boost::beast;
namespace http = beast::http;
using beast::error_code;
using nlohmann::json;
using tcp = net::ip::tcp;
using Request = http::request<http::string_body>;

constexpr int kLookMs = 20;

std::string unescaped(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size()) {
      out += static_cast<char>(std::stoi(text.substr(i + 1, 2), nullptr, 16));
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

struct Url {
  std::string path;
  std::map<std::string, std::string> query;
};
Url urlOf(const std::string& target) {
  Url url;
  const size_t mark = target.find('?');
  url.path = unescaped(target.substr(0, mark));
  if (mark == std::string::npos) return url;
  std::string rest = target.substr(mark + 1) + "&";
  for (size_t end = 0; (end = rest.find('&')) != std::string::npos; rest.erase(0, end + 1)) {
    const std::string pair = rest.substr(0, end);
    const size_t equals = pair.find('=');
    if (equals == std::string::npos) continue;
    url.query[pair.substr(0, equals)] = unescaped(pair.substr(equals + 1));
  }
  return url;
}

std::string chunk(const std::string& text) {
  char size[32];
  std::snprintf(size, sizeof size, "%zx\r\n", text.size());
  return size + text + "\r\n";
}

std::string head(int status, const std::vector<std::pair<std::string, std::string>>& headers,
                 const std::string& length) {
  std::string text = "HTTP/1.1 " + std::to_string(status) + " Scripted\r\n";
  for (const auto& [name, value] : headers) text += name + ": " + value + "\r\n";
  return text + "Content-Type: application/json\r\n" + length + "\r\n\r\n";
}

}  // namespace

class FakeApi::Impl {
 public:
  explicit Impl(FakeApiOptions options)
      : options_(std::move(options)),
        acceptor_(context_, tcp::endpoint(net::ip::address_v4::loopback(), 0)) {
    if (!options_.certificate_file.empty()) {
      tls_.emplace(ssl::context::tls_server);
      tls_->use_certificate_chain_file(options_.certificate_file);
      tls_->use_private_key_file(options_.key_file, ssl::context::pem);
      if (!options_.client_ca_file.empty()) {
        tls_->load_verify_file(options_.client_ca_file);
        tls_->set_verify_mode(ssl::verify_peer | ssl::verify_fail_if_no_peer_cert);
      }
    }
    port_ = acceptor_.local_endpoint().port();
    acceptor_thread_ = std::thread([this] { accept(); });
  }

  ~Impl() {
    stopping_ = true;
    store_.wake();
    // A connection to ourselves wakes the acceptor; to close it from here would race with it.
    error_code ignored;
    net::io_context context;
    tcp::socket(context).connect({net::ip::address_v4::loopback(), port_}, ignored);
    acceptor_thread_.join();
    cutConnections();
    for (auto& session : sessions_) session.thread.join();
  }

  void cutConnections() {
    const std::lock_guard lock(mutex_);
    for (auto& session : sessions_) {
      if (session.open) ::shutdown(session.descriptor, SHUT_RDWR);
    }
  }

  struct Session {
    int descriptor = -1;
    bool open = true;
    std::thread thread;
  };

  void accept() {
    while (true) {
      error_code error;
      tcp::socket socket(context_);
      acceptor_.accept(socket, error);
      if (stopping_) return;
      if (error) continue;
      const std::lock_guard lock(mutex_);
      ++connections_;
      Session& session = sessions_.emplace_back();
      session.descriptor = socket.native_handle();
      session.thread = std::thread([this, &session, socket = std::move(socket)]() mutable {
        serve(socket);
        const std::lock_guard done(mutex_);
        session.open = false;  // before the descriptor can be another's
        error_code ignored;
        socket.close(ignored);
      });
    }
  }

  void serve(tcp::socket& socket) {
    socket.set_option(tcp::no_delay(true));
    if (!tls_) return answerAll(socket, socket);
    ssl::stream<tcp::socket&> stream(socket, *tls_);
    error_code error;
    stream.handshake(ssl::stream_base::server, error);
    if (!error) answerAll(stream, socket);
  }

  template <typename Stream>
  void answerAll(Stream& stream, tcp::socket& socket) {
    beast::flat_buffer buffer;
    while (!stopping_) {
      http::request_parser<http::string_body> parser;
      parser.body_limit(size_t{64} << 20);
      error_code error;
      http::read(stream, buffer, parser, error);
      if (error) return;
      const Request request = parser.release();
      note(request);
      const auto scripted = scriptedFor(request);
      const bool goes_on =
          scripted ? play(stream, socket, *scripted) : answer(stream, socket, request);
      if (!goes_on || !request.keep_alive()) return;
    }
  }

  void note(const Request& request) {
    const std::lock_guard lock(mutex_);
    const std::string target(request.target());
    const Url url = urlOf(target);
    std::string method(request.method_string());
    if (url.query.contains("watch")) method = "WATCH";
    const auto named = targetOf(url.path);
    const std::string subresource = named ? named->subresource : "";
    ++counts_[{method, (named ? named->plural : url.path) +
                           (subresource.empty() ? "" : "/" + subresource)}];
    asked_.push_back({std::string(request.method_string()), target,
                      std::string(request[http::field::content_type]),
                      std::string(request[http::field::authorization]), request.body()});
  }

  std::optional<Scripted> scriptedFor(const Request& request) {
    const std::lock_guard lock(mutex_);
    const std::string method(request.method_string());
    const std::string target(request.target());
    for (auto& each : script_) {
      if (each.times == 0 || (!each.method.empty() && each.method != method)) continue;
      if (target.find(each.contains) == std::string::npos) continue;
      --each.times;
      return each;
    }
    return std::nullopt;
  }

  template <typename Stream>
  static bool send(Stream& stream, const std::string& text) {
    error_code error;
    net::write(stream, net::buffer(text), error);
    return !error;
  }

  // Until the client has gone, or we go.
  void hang(tcp::socket& socket) {
    char byte = 0;
    while (!stopping_) {
      const ssize_t got = ::recv(socket.native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
      if (got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK)) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(kLookMs));
    }
  }

  template <typename Stream>
  bool play(Stream& stream, tcp::socket& socket, const Scripted& script) {
    bool sent = true;
    if (!script.silent) {
      const bool streamed = !script.pieces.empty();
      const std::string length = streamed ? "Transfer-Encoding: chunked"
                                          : "Content-Length: " + std::to_string(script.body.size());
      const bool half = !streamed && script.end != Scripted::End::kComplete;
      sent = send(stream,
                  head(script.status, script.headers, length) +
                      script.body.substr(0, half ? script.body.size() / 2 : std::string::npos));
      for (const auto& piece : script.pieces) {
        if (!sent) break;
        std::this_thread::sleep_for(script.pause);
        sent = send(stream, chunk(piece));
      }
      if (streamed && script.end == Scripted::End::kComplete)
        sent = sent && send(stream, "0\r\n\r\n");
    }
    if (script.end == Scripted::End::kHang) hang(socket);
    return sent && script.end == Scripted::End::kComplete;
  }

  template <typename Stream>
  bool answer(Stream& stream, tcp::socket& socket, const Request& request) {
    const Url url = urlOf(std::string(request.target()));
    const auto target = targetOf(url.path);
    Answer answer;
    if (!allowed(request)) {
      answer = refusal(401, "Unauthorized", "Unauthorized");
    } else if (url.path == "/version") {
      answer = {200, {{"major", "1"}, {"minor", "32"}, {"gitVersion", "v1.32.0-fake"}}};
    } else if (!target) {
      answer = refusal(404, "NotFound", "the server could not find the requested resource");
    } else if (url.query.contains("watch")) {
      return watch(stream, socket, *target, url);
    } else {
      answer = handle(request, *target, url);
    }
    const std::string body = answer.body.dump();
    return send(stream,
                head(answer.status, {}, "Content-Length: " + std::to_string(body.size())) + body);
  }

  bool allowed(const Request& request) {
    const std::lock_guard lock(mutex_);
    return options_.token.empty() ||
           request[http::field::authorization] == "Bearer " + options_.token;
  }

  static std::string value(const Url& url, const std::string& name) {
    const auto found = url.query.find(name);
    return found == url.query.end() ? "" : found->second;
  }

  static std::string nameIn(const Url& url) {
    const std::string selector = value(url, "fieldSelector");
    const std::string known = "metadata.name=";
    return selector.starts_with(known) ? selector.substr(known.size()) : "";
  }

  Answer handle(const Request& request, const Target& target, const Url& url) {
    const auto body = json::parse(request.body(), nullptr, false);
    const std::string type(request[http::field::content_type]);
    switch (request.method()) {
      case http::verb::get:
        if (!target.name.empty()) return store_.get(target);
        return store_.list(target, value(url, "labelSelector"), nameIn(url),
                           std::strtoul(value(url, "limit").c_str(), nullptr, 10),
                           value(url, "continue"));
      case http::verb::delete_:
        return store_.remove(target, body);
      case http::verb::post:
        if (body.is_object()) return store_.create(target, body);
        break;
      case http::verb::put:
        if (body.is_object()) return store_.replace(target, body);
        break;
      case http::verb::patch:
        if (!body.is_object()) break;
        if (type == "application/merge-patch+json") return store_.mergePatch(target, body);
        if (type == "application/apply-patch+yaml") {
          return store_.apply(target, body, value(url, "fieldManager"),
                              value(url, "force") == "true");
        }
        return refusal(415, "UnsupportedMediaType", "the media type is not supported: " + type);
      default:
        break;
    }
    return refusal(400, "BadRequest", "the request cannot be understood");
  }

  template <typename Stream>
  bool watch(Stream& stream, tcp::socket& socket, const Target& target, const Url& url) {
    if (!send(stream, head(200, {}, "Transfer-Encoding: chunked"))) return false;
    const auto say = [&](const char* type, const json& object) {
      return send(stream, chunk(json{{"type", type}, {"object", object}}.dump() + "\n"));
    };
    int64_t version = std::strtoll(value(url, "resourceVersion").c_str(), nullptr, 10);
    const auto end =
        std::chrono::steady_clock::now() +
        std::chrono::seconds(std::strtol(value(url, "timeoutSeconds").c_str(), nullptr, 10));
    const std::string selector = value(url, "labelSelector");
    int bookmarks = bookmarks_;
    while (!stopping_ && std::chrono::steady_clock::now() < end) {
      const auto changes = store_.changesAfter(version, kLookMs);
      if (!changes) {
        say("ERROR", refusal(410, "Expired", "too old resource version").body);
        break;
      }
      for (const auto& change : *changes) {
        version = change.version;
        if (!tell(target, selector, nameIn(url), change, say)) return false;
      }
      if (bookmarks != bookmarks_ && changes->empty()) {
        bookmarks = bookmarks_;
        if (!say("BOOKMARK", {{"metadata", {{"resourceVersion", std::to_string(version)}}}}))
          return false;
      }
      char byte = 0;
      if (::recv(socket.native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0) return false;
    }
    return send(stream, "0\r\n\r\n");
  }

  template <typename Say>
  static bool tell(const Target& target, const std::string& selector, const std::string& name,
                   const FakeStore::Change& change, const Say& say) {
    const auto wanted = [&](const json& object) {
      return object.is_object() && (target.space.empty() || target.space == nameOf(object).space) &&
             (name.empty() || name == nameOf(object).name) && matches(selector, object);
    };
    if (change.collection != target.collection) return true;
    const bool was = wanted(change.before);
    const bool is = wanted(change.after);
    if (is) return say(was ? "MODIFIED" : "ADDED", change.after);
    if (!was) return true;
    json last = change.before;
    last["metadata"]["resourceVersion"] = std::to_string(change.version);
    return say("DELETED", last);
  }

  FakeApiOptions options_;
  FakeStore store_;
  net::io_context context_;
  std::optional<ssl::context> tls_;
  tcp::acceptor acceptor_;
  uint16_t port_ = 0;
  std::atomic<bool> stopping_{false};
  std::atomic<int> bookmarks_{0};

  mutable std::mutex mutex_;
  std::list<Session> sessions_;
  std::vector<Scripted> script_;
  std::vector<Asked> asked_;
  std::map<std::pair<std::string, std::string>, size_t> counts_;
  size_t connections_ = 0;
  std::thread acceptor_thread_;
};

FakeApi::FakeApi(FakeApiOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}
FakeApi::~FakeApi() = default;

uint16_t FakeApi::port() const { return impl_->port_; }

ServerAccess FakeApi::access() const {
  ServerAccess access;
  access.host = "127.0.0.1";
  access.port = port();
  access.tls = impl_->tls_.has_value();
  return access;
}

FakeStore& FakeApi::store() { return impl_->store_; }

void FakeApi::script(Scripted answer) {
  const std::lock_guard lock(impl_->mutex_);
  impl_->script_.push_back(std::move(answer));
}

void FakeApi::clearScript() {
  const std::lock_guard lock(impl_->mutex_);
  impl_->script_.clear();
}

void FakeApi::setToken(const std::string& token) {
  const std::lock_guard lock(impl_->mutex_);
  impl_->options_.token = token;
}

void FakeApi::sendBookmarks() {
  ++impl_->bookmarks_;
  impl_->store_.wake();
}

void FakeApi::cutConnections() { impl_->cutConnections(); }

std::vector<Asked> FakeApi::asked() const {
  const std::lock_guard lock(impl_->mutex_);
  return impl_->asked_;
}

size_t FakeApi::connections() const {
  const std::lock_guard lock(impl_->mutex_);
  return impl_->connections_;
}

size_t FakeApi::count(const std::string& method, const std::string& plural) const {
  const std::lock_guard lock(impl_->mutex_);
  const auto found = impl_->counts_.find({method, plural});
  return found == impl_->counts_.end() ? 0 : found->second;
}

size_t FakeApi::requests() const {
  const std::lock_guard lock(impl_->mutex_);
  size_t total = 0;
  for (const auto& [what, count] : impl_->counts_) total += count;
  return total;
}

size_t FakeApi::writes() const {
  const std::lock_guard lock(impl_->mutex_);
  size_t total = 0;
  for (const auto& [what, count] : impl_->counts_) {
    if (what.first != "GET" && what.first != "WATCH") total += count;
  }
  return total;
}

void FakeApi::resetCounts() {
  const std::lock_guard lock(impl_->mutex_);
  impl_->counts_.clear();
  impl_->asked_.clear();
}

}  // namespace allot::kube::test
