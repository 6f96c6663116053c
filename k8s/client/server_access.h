#pragma once
// ServerAccess: the API server's address, the trusted authorities, and our credentials. Token: the
// current content of a service account's token file.
//
// Values, except Token, which belongs to one connection and its thread. inCluster(): any thread,
// while no thread changes the environment.
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

using WallTime = std::chrono::system_clock::time_point;
using WallClock = std::function<WallTime()>;
WallClock systemClock();
// Formats a time as Kubernetes' MicroTime, "2026-01-31T12:00:00.000123Z".
std::string microTime(WallTime time);

struct ServerAccess {
  std::string host;  // a name or an IP address
  uint16_t port = 443;
  bool tls = true;  // false for tests and for a proxy on this machine
  // PEM files, read at each connect, so that they may be replaced. Without a CA file the system's
  // authorities are trusted.
  std::string ca_file = {};
  std::string certificate_file = {};
  std::string key_file = {};
  // At most one of these: a file that is read repeatedly, or the token itself.
  std::string token_file = {};
  std::string token = {};
  // The namespace of the process, if it runs in a cluster.
  std::string own_namespace = {};

  // Returns "https://host:port", for messages.
  std::string url() const;
};

// Parses "https://host[:port]" or "http://host[:port]"; the caller adds certificates and tokens.
// Else kUsage, with an example.
Result<ServerAccess> accessOf(const std::string& url);

// A token. A bound token usually lives an hour, and its file is renewed before. get() therefore
// reads the file again a minute after the last time.
class Token {
 public:
  static constexpr std::chrono::seconds kFresh{60};

  Token(const ServerAccess& access, Clock clock);

  // Returns the token; "" if there is none. If the file cannot be read or has no token, returns the
  // token that was read before, or kUsage if there is none.
  Result<std::string> get();
  // Notes that the server refused the token: the next get() reads the file.
  void forget() { fresh_ = false; }
  // Returns true if forget() can have an effect.
  bool isFile() const { return !file_.empty(); }

 private:
  Result<std::string> read() const;

  std::string file_;
  std::string token_;
  Clock clock_;
  TimePoint read_at_{};
  bool fresh_ = false;
};

// --- in a pod ---

using Environment = std::function<std::optional<std::string>(const std::string& name)>;
Environment processEnvironment();

inline constexpr const char* kServiceAccountFolder =
    "/var/run/secrets/kubernetes.io/serviceaccount";

// Returns the access of a pod: the address from KUBERNETES_SERVICE_HOST and
// KUBERNETES_SERVICE_PORT; ca.crt, token and namespace from the folder. kUsage, one sentence, if
// one of these except the namespace is missing, or if the port is malformed.
Result<ServerAccess> inCluster(const Environment& environment = processEnvironment(),
                               const std::string& folder = kServiceAccountFolder);

}  // namespace allot::kube
