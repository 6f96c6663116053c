#include "k8s/client/server_access.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <utility>

namespace allot::kube {
namespace {

constexpr size_t kLongestToken = 64 * 1024;

}  // namespace

Clock steadyClock() {
  return [] { return std::chrono::steady_clock::now(); };
}

WallClock systemClock() {
  return [] { return std::chrono::system_clock::now(); };
}

std::string microTime(WallTime time) {
  const auto since = std::chrono::floor<std::chrono::microseconds>(time.time_since_epoch()).count();
  const auto seconds = static_cast<std::time_t>(since / 1'000'000);
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  char text[48];
  const size_t size = std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &utc);
  std::snprintf(text + size, sizeof text - size, ".%06dZ", static_cast<int>(since % 1'000'000));
  return text;
}

std::string ServerAccess::url() const {
  const bool v6 = host.find(':') != std::string::npos;
  return (tls ? "https://" : "http://") + (v6 ? "[" + host + "]" : host) + ":" +
         std::to_string(port);
}

Result<ServerAccess> accessOf(const std::string& url) {
  const auto refuse = [&url] {
    return badInput("\"" + url + "\" is no address of an API server: https://HOST:PORT is");
  };
  ServerAccess access;
  std::string rest;
  if (url.starts_with("https://")) {
    rest = url.substr(8);
  } else if (url.starts_with("http://")) {
    access.tls = false;
    access.port = 80;
    rest = url.substr(7);
  }
  if (!rest.empty() && rest.back() == '/') rest.pop_back();
  const size_t close = rest.starts_with("[") ? rest.find(']') : 0;
  if (close == std::string::npos) return refuse();
  const size_t colon = rest.find(':', close);
  access.host = close != 0 ? rest.substr(1, close - 1) : rest.substr(0, colon);
  if (colon != std::string::npos) {
    const char* end = rest.data() + rest.size();
    const auto [at, error] = std::from_chars(rest.data() + colon + 1, end, access.port);
    if (error != std::errc() || at != end || access.port == 0) return refuse();
  }
  const auto odd = [](char c) { return c <= ' ' || c == '/' || c == '@' || c == 0x7f; };
  if (access.host.empty() || std::any_of(access.host.begin(), access.host.end(), odd)) {
    return refuse();
  }
  return access;
}

Token::Token(const ServerAccess& access, Clock clock)
    : file_(access.token_file), token_(access.token), clock_(std::move(clock)) {}

Result<std::string> Token::get() {
  if (file_.empty()) return token_;
  const TimePoint now = clock_();
  if (fresh_ && now - read_at_ <= kFresh) return token_;
  auto text = read();
  if (!text && token_.empty()) return text;
  if (text) token_ = std::move(*text);
  read_at_ = now;
  fresh_ = true;
  return token_;
}

Result<std::string> Token::read() const {
  std::ifstream file(file_, std::ios::binary);
  std::string text(kLongestToken + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  // It becomes part of a header.
  const auto odd = [](char c) { return c <= ' ' || c > '~'; };
  if (text.empty() || text.size() > kLongestToken || std::any_of(text.begin(), text.end(), odd)) {
    return badInput(file_ +
                    " holds no token: give the pod a service account with "
                    "automountServiceAccountToken: true");
  }
  return text;
}

Environment processEnvironment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());  // NOLINT(concurrency-mt-unsafe)
    if (value == nullptr) return std::nullopt;
    return value;
  };
}

Result<ServerAccess> inCluster(const Environment& environment, const std::string& folder) {
  ServerAccess access;
  access.host = environment("KUBERNETES_SERVICE_HOST").value_or("");
  const std::string port = environment("KUBERNETES_SERVICE_PORT").value_or("");
  if (access.host.empty() || port.empty()) {
    return badInput(
        "KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set: this is no pod; name the "
        "API server yourself");
  }
  const auto [at, error] = std::from_chars(port.data(), port.data() + port.size(), access.port);
  if (error != std::errc() || at != port.data() + port.size() || access.port == 0) {
    return badInput("KUBERNETES_SERVICE_PORT is \"" + port + "\", which is no port");
  }
  access.ca_file = folder + "/ca.crt";
  access.token_file = folder + "/token";
  for (const std::string& file : {access.ca_file, access.token_file}) {
    if (!std::ifstream(file).good()) {
      return badInput(file +
                      " cannot be read: give the pod a service account with "
                      "automountServiceAccountToken: true");
    }
  }
  std::ifstream(folder + "/namespace") >> access.own_namespace;
  return access;
}

}  // namespace allot::kube
