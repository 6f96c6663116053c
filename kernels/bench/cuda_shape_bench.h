#pragma once
// ShapeBench measures one shape: its own caches, every distribution of scores and every method.
// Owned by one thread.
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernels/bench/cuda_cache.h"
#include "kernels/bench/cuda_report.h"
#include "kernels/bench/cuda_timer.h"

namespace allot::bench {

class ShapeBench {
 public:
  ShapeBench(const CudaOptions& options, ShapeReport* report, CudaTimer* timer,
             std::unique_ptr<CudaCache> cache, cudaStream_t stream);

  // Fills the cache. Returns false if that is refused, and notes it in the report.
  bool fill(const std::string& scores, const ScoreSource& source);

  // Measures reading the keys and values page by page.
  void readPages();

  // Measures one case and adds its figures to the report.
  void measure(const Case& what);

 private:
  // Returns true if there is no refusal; else notes it in the report.
  bool leaveOut(const std::string& name, const std::optional<std::string>& refusal);
  kernels::cuda::StepBounds bounds(const Case& what, bool statistics) const;
  // Runs step 0 on the first copy. Returns its statistics and its output, if wanted.
  std::optional<std::string> check(const Case& what, kernels::RowStatistics* sums,
                                   std::vector<float>* out);
  std::optional<std::string> time(const Case& what, Figure* figure);
  void compare(const std::vector<float>& out, Figure* figure) const;

  const CudaOptions& options_;
  ShapeReport& report_;
  CudaTimer& timer_;
  std::unique_ptr<CudaCache> cache_;
  cudaStream_t stream_;
  std::string scores_;
  size_t out_count_ = 0;
  DeviceMemory out_, statistics_;
  std::vector<float> dense_;
};

}  // namespace allot::bench
