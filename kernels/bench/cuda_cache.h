#pragma once
// CudaCache: the sequences that a shape is measured on, and ShapeBench, which measures on them.
//
// The sequences are copies of the shape's batch in a pool of pages on the GPU, with the keys' 4-bit
// shadow and, if a method reads them, bounds. Page tables are in random order. Steps use the copies
// in turn, so that no key is still in the L2 cache. Owned by one thread.
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "allot/kernels/cuda_decode.h"
#include "kernels/bench/cuda_fill.h"
#include "kernels/bench/cuda_memory.h"
#include "kernels/bench/cuda_plan.h"
#include "kernels/bench/cuda_report.h"
#include "kernels/bench/cuda_timer.h"

namespace allot::bench {

class CudaCache {
 public:
  // Returns null if there is too little memory for the pool.
  static std::unique_ptr<CudaCache> make(const CudaOptions& options, Shape shape, int copies,
                                         cudaStream_t stream);

  // Writes keys whose scores are drawn from `source`, and values. Returns nothing or a refusal.
  [[nodiscard]] std::optional<std::string> fill(const ScoreSource& source);

  // Sets the inputs to the next copy's page table and to `step`. Queues work and does not wait.
  void turn(uint32_t step);
  // Goes back to the first copy.
  void rewind() { next_ = 0; }

  // Sets the budgets as --budgets-by says. Without a value every head's budget is 1.
  void setBudget(std::optional<uint32_t> budget);

  const kernels::PagedKv& kv() const { return kv_; }
  const kernels::DecodeInputs& inputs() const { return inputs_; }
  int copies() const { return copies_; }

 private:
  CudaCache(const CudaOptions& options, Shape shape, int copies, cudaStream_t stream);
  bool allocatePool();
  void makeInputs();
  void makeTables();

  const CudaOptions& options_;
  Shape shape_;
  int copies_;
  cudaStream_t stream_;
  int pages_ = 0;  // of a sequence
  int next_ = 0;
  kernels::PagedKv kv_;
  kernels::DecodeInputs inputs_;
  DeviceMemory keys_, values_, codes_, scales_, mean_keys_, bounds_;
  DeviceMemory queries_, duals_, tables_, table_, lengths_, budgets_, sequences_, steps_;
};

// Measures cases of one shape, for one distribution of scores after another. Owned by one thread.
class ShapeBench {
 public:
  ShapeBench(const CudaOptions& options, ShapeReport* report, CudaTimer* timer,
             std::unique_ptr<CudaCache> cache, cudaStream_t stream);

  // Fills the cache and computes dense attention, the reference of errors. If either is refused,
  // notes the refusal in the report and returns false.
  bool fill(const std::string& scores, const ScoreSource& source);

  // Measures reading the keys and values page by page, for the report.
  void readPages();

  // Measures one case and adds its figures to the report.
  void measure(const Case& what);

 private:
  // Returns true if there is no refusal; else notes the refusal in the report.
  bool leaveOut(const std::string& name, const std::optional<std::string>& refusal);
  kernels::cuda::StepBounds bounds(const Case& what, bool statistics) const;
  // Runs step 0 on the first copy. Writes the step's statistics and output, unless null. Returns
  // nothing, or the refusal.
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
