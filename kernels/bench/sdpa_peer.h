#pragma once
// A Python process that times PyTorch's attention on the same GPU, one shape at a time, so that
// both are measured seconds apart in one run. What they say to each other: sdpa_peer.py. One
// thread.
#include <sys/types.h>

#include <nlohmann/json.hpp>
#include <string>

namespace allot::bench {

class SdpaPeer {
 public:
  // Starts it and waits until it is up or has said why not.
  explicit SdpaPeer(const std::string& python);
  ~SdpaPeer();
  SdpaPeer(const SdpaPeer&) = delete;
  SdpaPeer& operator=(const SdpaPeer&) = delete;

  // Why there is nothing to ask; "" while there is.
  const std::string& absence() const { return absence_; }
  // Its version of PyTorch.
  const std::string& torch() const { return torch_; }
  // The answer for a shape: {"ms": ...} or {"error": ...}.
  nlohmann::json ask(const nlohmann::json& shape);

 private:
  // The next line as JSON; sets absence_ if there is none in time.
  nlohmann::json answer(int seconds);
  void stop();

  pid_t pid_ = -1;
  int to_ = -1, from_ = -1;
  std::string rest_, absence_, torch_;
};

}  // namespace allot::bench
