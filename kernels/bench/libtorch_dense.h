#pragma once
// Dense decode attention with LibTorch, to compare with: the only file of kernels/ that needs it.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace allot::bench {

// The same shapes and as many rotating layers as RotatingCache. Owned by one thread.
class LibTorchDense {
 public:
  // Keys and values as [KV heads, n, head dimension], contiguous: LibTorch has no pages.
  LibTorchDense(int n, bool bfloat16, int layers);
  ~LibTorchDense();

  // Ways to write the step; all give the same numbers.
  static const std::vector<std::string>& ways();
  // One step over the next layer. Returns its first output.
  float step(size_t way, const float* queries);

  // Of all steps from here on.
  static void setThreads(int threads);
  static std::string version();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace allot::bench
