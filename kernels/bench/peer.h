#pragma once
// Peer: a process that times another attention kernel on the same machine, one shape at a time, so
// that its kernel and ours are measured seconds apart in one run. kernels/bench/README.md has the
// protocol and says how to write a peer. No CUDA. Owned by one thread.
#include <sys/types.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace allot::bench {

// The options of every part that measures on a GPU: the layer, the samples and the peers.
struct LayerOptions {
  int heads = 32, kv_heads = 8, head_dim = 128, page_size = 16;
  int warm_up = 10, samples = 40;
  uint64_t seed = 1;
  std::string python = "python3";
  std::vector<std::string> peers = {"torch"};  // as Peer names them
  bool try_peers = false;
};

// One layer's attention to time: a decode step of a batch, or a whole prompt.
struct PeerQuestion {
  enum class Phase { kDecode, kPrefill };
  Phase phase = Phase::kDecode;
  int rows = 1;
  int keys = 0;  // of a row; a prompt has as many queries
  int heads = 0, kv_heads = 0, dim = 0, page_size = 0;
  std::string element = "bf16";
  int64_t flush_bytes = 0;  // bytes to read between two uses of a key
  int warm_up = 0, samples = 1;
};
// Returns a question about rows of this layer with `keys` keys each.
PeerQuestion questionOf(const LayerOptions& options, PeerQuestion::Phase phase, int rows, int keys);

// Time limits: of the first line, and of an answer.
struct PeerLimits {
  std::chrono::seconds start{180};
  std::chrono::seconds answer{300};  // FlashInfer compiles its kernels at the first question
};

class Peer {
 public:
  // Starts the process and waits for its first line, for limits.start at most. `name` is torch,
  // flashinfer, or the path of a program; `python` runs the first two, and a path that ends with
  // .py, through peer.py.
  Peer(const std::string& name, const std::string& python, PeerLimits limits = {});
  ~Peer();
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  // Returns the name in tables: torch, flashinfer, or the file's name without its extension.
  const std::string& label() const { return label_; }
  // Returns why the peer cannot be asked; "" if it can.
  const std::string& absence() const { return absence_; }
  // Returns the kernel's name and version; "" if the process never was ready.
  const std::string& version() const { return version_; }
  // Returns the answer: {"ms": a number above 0, ...} or {"error": one sentence}. A peer that has
  // ended or timed out is not asked again.
  nlohmann::json ask(const PeerQuestion& question);

 private:
  void start(const std::string& program, const std::vector<std::string>& arguments);
  void greet();
  // Returns the next line's JSON object. If none comes in time, sets absence_ and returns {}.
  nlohmann::json next(std::chrono::seconds within);
  // Stops the process. Returns how it ended, "" if it was stopped or ended with 0.
  std::string stop();

  std::string label_, program_;
  PeerLimits limits_;
  pid_t pid_ = -1;
  int to_ = -1, from_ = -1;
  std::string rest_, unread_, absence_, version_;
};

// Returns torch, flashinfer, or the file's name without its extension.
std::string peerLabel(const std::string& name);
// Returns "" if labels differ and each name is built in or can be run; else one sentence.
std::string wrongPeers(const std::vector<std::string>& names);

// Asks each peer each question and prints the answers, for authors of a peer. Needs no GPU itself.
// Returns true if all questions were answered.
bool tryPeers(const std::vector<std::string>& names, const std::string& python,
              const std::vector<PeerQuestion>& questions);

}  // namespace allot::bench
