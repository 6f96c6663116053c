#pragma once
// A Python process that times another's attention on the same GPU, one shape at a time, so that
// both are measured seconds apart in one run. What they say to each other: peer.py. One thread.
#include <sys/types.h>

#include <nlohmann/json.hpp>
#include <string>

namespace allot::bench {

class Peer {
 public:
  // Starts it and waits until it is up or has said why not.
  Peer(const std::string& name, const std::string& python);
  ~Peer();
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  const std::string& name() const { return name_; }
  // Why there is nothing to ask; "" while there is.
  const std::string& absence() const { return absence_; }
  // Whose it is, with its version; "" if it never was up.
  const std::string& version() const { return version_; }
  // The answer for a shape: {"ms": ...} or {"error": ...}.
  nlohmann::json ask(const nlohmann::json& shape);

 private:
  // The next line as JSON; sets absence_ if there is none in time.
  nlohmann::json answer(int seconds);
  void stop();

  std::string name_;
  pid_t pid_ = -1;
  int to_ = -1, from_ = -1;
  std::string rest_, absence_, version_;
};

}  // namespace allot::bench
