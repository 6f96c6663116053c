#pragma once
// KvPool: the memory that all sequences of a process keep their keys and values in, by pages.
//
// One page holds page_size positions of every layer and KV head. The address space is reserved at
// once and becomes memory as pages are first written, so a generous limit costs nothing. Owned by
// the decoder; one thread.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "allot/kernels/decode.h"
#include "core/result.h"
#include "model/model_config.h"

namespace allot {

class KvPool {
 public:
  // max_bytes is rounded down to whole pages; too little for one page is an error (kUsage).
  static Result<KvPool> create(const ModelConfig& config, int page_size, size_t max_bytes);

  KvPool() = default;  // holds nothing
  KvPool(KvPool&& other) noexcept;
  KvPool& operator=(KvPool&& other) noexcept;
  ~KvPool();

  // Nothing if fewer than `count` pages are free.
  std::optional<std::vector<int32_t>> allocate(size_t count);
  void release(const std::vector<int32_t>& pages);
  // Copies all layers of one page.
  void copyPage(int32_t from, int32_t to);

  kernels::PagedKv layer(int64_t layer) const;
  int pageSize() const { return page_size_; }
  size_t freePages() const { return free_.size(); }
  size_t totalPages() const { return total_; }
  size_t bytesPerPage() const { return 2 * layers_ * floats_per_page_ * sizeof(float); }
  size_t pagesFor(size_t positions) const { return (positions + page_size_ - 1) / page_size_; }

 private:
  float* half(int64_t layer, bool values) const;

  float* memory_ = nullptr;
  size_t mapped_bytes_ = 0;
  size_t total_ = 0;
  size_t layers_ = 0;
  size_t floats_per_page_ = 0;  // of one layer, keys or values
  int kv_heads_ = 0;
  int head_dim_ = 0;
  int page_size_ = 0;
  std::vector<int32_t> free_;
};

}  // namespace allot
