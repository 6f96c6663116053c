#pragma once
// A process that times another's attention on the same machine, one shape at a time, so that both
// are measured seconds apart in one run. README.md has what it is asked and what it answers, and
// how to write one. No CUDA. One thread.
#include <sys/types.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace allot::bench {

// One layer's attention: a decode step of a batch, or a prompt that is read from its beginning.
struct PeerQuestion {
  enum class Phase { kDecode, kPrefill };
  Phase phase = Phase::kDecode;
  int rows = 1;
  int keys = 0;  // of a row; of a prompt as many queries
  int heads = 0, kv_heads = 0, dim = 0, page_size = 0;
  std::string element = "bf16";
  int64_t flush_bytes = 0;  // to read between two uses of a key
  int warm_up = 0, samples = 1;
};

struct PeerLimits {
  std::chrono::seconds start{180};
  std::chrono::seconds answer{300};  // FlashInfer compiles its kernels when it is first asked
};

class Peer {
 public:
  // Starts it and waits until it is up or has said why not. `name`: torch, flashinfer, or the path
  // of a program; one that ends with .py is run by `python`, behind peer.py.
  Peer(const std::string& name, const std::string& python, PeerLimits limits = {});
  ~Peer();
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  // As tables have it: torch, flashinfer, a file's name without its end.
  const std::string& label() const { return label_; }
  // Why there is nothing to ask; "" while there is.
  const std::string& absence() const { return absence_; }
  // Whose it is, with its version; "" if it never was up.
  const std::string& version() const { return version_; }
  // The answer: {"ms", ...} with a number above 0, or {"error": one sentence}. A peer that has
  // ended or kept silent is not asked again.
  nlohmann::json ask(const PeerQuestion& question);

 private:
  void start(const std::string& program, const std::vector<std::string>& arguments);
  void greet();
  // The next line that is a JSON object; sets absence_ if there is none in time.
  nlohmann::json next(std::chrono::seconds within);
  // Takes the process down; says how it ended if it did so itself.
  std::string stop();

  std::string label_, program_;
  PeerLimits limits_;
  pid_t pid_ = -1;
  int to_ = -1, from_ = -1;
  std::string rest_, unread_, absence_, version_;
};

// torch, flashinfer, or the name of a file without its end.
std::string peerLabel(const std::string& name);
// Nothing if each of them could be started; else one sentence.
std::string wrongPeers(const std::vector<std::string>& names);

// Asks each peer each question and prints what it says: for who writes one. Needs no GPU itself.
// Whether all were answered.
bool tryPeers(const std::vector<std::string>& names, const std::string& python,
              const std::vector<PeerQuestion>& questions);

}  // namespace allot::bench
