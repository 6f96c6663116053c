#pragma once
// Dense decode attention with LibTorch, for comparison: the only unit of kernels/ that needs
// LibTorch. Owned by one thread.
#include <memory>
#include <string>
#include <vector>

namespace allot::bench {

// Dense attention with the shapes of rotating_cache.h. Steps take the layers in turn.
class LibTorchDense {
 public:
  // Makes keys and values [KV heads, n, head_dim], contiguous: LibTorch has no pages.
  LibTorchDense(int n, bool bfloat16, int layers);
  ~LibTorchDense();

  // Returns the names of the ways to write a step; their outputs differ by rounding alone.
  static const std::vector<std::string>& ways();
  // Runs one step over the next layer for queries [kHeads, kHeadDim]. Returns out[0].
  float step(size_t way, const float* queries);

  // Sets the threads of later steps of the process.
  static void setThreads(int threads);
  static std::string version();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace allot::bench
