#pragma once
// ServerAccess: where the API server is, whom we trust, and who we are. Token: what a file of the
// service account says now.
//
// Values, but for Token, which belongs to one connection and its thread. inCluster(): any thread,
// while nobody changes the environment.
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "core/result.h"

namespace allot::kube {

using TimePoint = std::chrono::steady_clock::time_point;
using Clock = std::function<TimePoint()>;
Clock steadyClock();

struct ServerAccess {
  std::string host;  // a name or an IP address
  uint16_t port = 443;
  bool tls = true;  // without: tests, and a proxy on this machine
  // PEM files, read anew at each connect, so that they may be replaced. No CA: the system's.
  std::string ca_file = {};
  std::string certificate_file = {};
  std::string key_file = {};
  // One of these, or none: a file that is read again and again, or the token itself.
  std::string token_file = {};
  std::string token = {};
  // Where the process itself runs, if it does in a cluster.
  std::string own_namespace = {};

  // "https://host:port", for messages.
  std::string url() const;
};

// From "https://host[:port]" or "http://host[:port]"; certificates and tokens are for the caller to
// add. kUsage, with what a good one looks like.
Result<ServerAccess> accessOf(const std::string& url);

// A bound token lives an hour and is replaced in its file before: it is read again once it is older
// than a minute.
class Token {
 public:
  static constexpr std::chrono::seconds kFresh{60};

  Token(const ServerAccess& access, Clock clock);

  // "" where there is none. kUsage where the file cannot be read or holds no token; a token that
  // was read before stays in force then.
  Result<std::string> get();
  // The server did not take it: the next get() reads the file.
  void forget() { fresh_ = false; }
  // Whether forget() can change anything.
  bool isFile() const { return !file_.empty(); }

 private:
  Result<std::string> read() const;

  std::string file_;
  std::string token_;
  Clock clock_;
  TimePoint read_at_{};
  bool fresh_ = false;
};

// --- as a pod finds it ---

using Environment = std::function<std::optional<std::string>(const std::string& name)>;
Environment processEnvironment();

inline constexpr const char* kServiceAccountFolder =
    "/var/run/secrets/kubernetes.io/serviceaccount";

// The address from KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT; ca.crt, token and namespace
// from the folder. kUsage, one sentence, where one of them is missing.
Result<ServerAccess> inCluster(const Environment& environment = processEnvironment(),
                               const std::string& folder = kServiceAccountFolder);

}  // namespace allot::kube
