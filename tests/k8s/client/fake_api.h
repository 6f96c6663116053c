#pragma once
// FakeApi: an API server for tests, with a FakeStore behind it and a script in front.
//
// It listens on 127.0.0.1 with a thread for each connection. A request is answered by the first
// scripted answer that fits it and is not used up; else by the store: get, list with limit,
// continue and selectors, watch with bookmarks, create, replace, merge patch, server-side apply,
// delete, /status. It counts requests and keeps what was asked. Its owner may call it from any
// thread; the destructor cuts all connections.
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "k8s/client/server_access.h"
#include "tests/k8s/client/fake_store.h"

namespace allot::kube::test {

struct FakeApiOptions {
  // PEM files: with them TLS. client_ca_file: who has no certificate from it is not let in.
  std::string certificate_file = {};
  std::string key_file = {};
  std::string client_ca_file = {};
  std::string token = {};  // whoever has another gets a 401; "" takes everybody
};

// What a request is answered instead of what the store says.
struct Scripted {
  enum class End {
    kComplete,
    kCut,   // the connection is closed in the middle
    kHang,  // nothing more comes, and the connection stays open
  };
  std::string method = {};    // "": any
  std::string contains = {};  // part of the target
  int status = 200;
  std::vector<std::pair<std::string, std::string>> headers = {};
  std::string body = {};
  // In place of a body: sent one by one as a stream, as a watch is.
  std::vector<std::string> pieces = {};
  std::chrono::milliseconds pause{0};  // before each piece
  End end = End::kComplete;
  bool silent = false;  // not even a head: kCut or kHang at once
  int times = 1;
};

struct Asked {
  std::string method;
  std::string target;
  std::string content_type;
  std::string authorization;
  std::string body;
};

class FakeApi {
 public:
  explicit FakeApi(FakeApiOptions options = {});
  ~FakeApi();
  FakeApi(const FakeApi&) = delete;
  FakeApi& operator=(const FakeApi&) = delete;

  uint16_t port() const;
  // Over 127.0.0.1; files and tokens are for the caller to add.
  ServerAccess access() const;
  FakeStore& store();

  void script(Scripted answer);
  // All that are not used up.
  void clearScript();
  void setToken(const std::string& token);
  // To all watches that are open.
  void sendBookmarks();
  // Cuts every connection that is open.
  void cutConnections();

  std::vector<Asked> asked() const;
  size_t connections() const;  // accepted so far
  // By method and plural, with "/status" where it was asked for: count("PATCH", "deployments").
  // A watch counts as "WATCH".
  size_t count(const std::string& method, const std::string& plural) const;
  size_t requests() const;
  // All that may change something: POST, PUT, PATCH, DELETE.
  size_t writes() const;
  void resetCounts();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace allot::kube::test
