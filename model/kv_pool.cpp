#include "model/kv_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace allot {

Result<KvPool> KvPool::create(const ModelConfig& config, int page_size, size_t max_bytes) {
  KvPool pool;
  pool.layers_ = static_cast<size_t>(config.layers);
  pool.kv_heads_ = static_cast<int>(config.kv_heads);
  pool.head_dim_ = static_cast<int>(config.head_dim);
  pool.page_size_ = page_size;
  pool.floats_per_page_ = static_cast<size_t>(config.kv_heads * config.head_dim) * page_size;
  pool.total_ = std::min<size_t>(max_bytes / pool.bytesPerPage(), INT32_MAX);
  if (pool.total_ == 0) {
    return badInput("the memory for keys and values, " + std::to_string(max_bytes) +
                    " bytes, does not hold one page of " + std::to_string(pool.bytesPerPage()) +
                    " bytes: raise --kv-memory");
  }
  pool.mapped_bytes_ = pool.total_ * pool.bytesPerPage();
  void* memory = mmap(nullptr, pool.mapped_bytes_, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    return fail(ErrorCode::kIo, "cannot reserve " + std::to_string(pool.mapped_bytes_ >> 20) +
                                    " MiB for keys and values (" + std::strerror(errno) +
                                    "): lower --kv-memory");
  }
  pool.memory_ = static_cast<float*>(memory);
  pool.free_.resize(pool.total_);
  // The lowest page is handed out first, so that memory use follows what is needed.
  for (size_t i = 0; i < pool.total_; ++i) {
    pool.free_[i] = static_cast<int32_t>(pool.total_ - 1 - i);
  }
  return pool;
}

KvPool::KvPool(KvPool&& other) noexcept { *this = std::move(other); }

KvPool& KvPool::operator=(KvPool&& other) noexcept {
  std::swap(memory_, other.memory_);
  std::swap(mapped_bytes_, other.mapped_bytes_);
  total_ = other.total_;
  layers_ = other.layers_;
  floats_per_page_ = other.floats_per_page_;
  kv_heads_ = other.kv_heads_;
  head_dim_ = other.head_dim_;
  page_size_ = other.page_size_;
  free_.swap(other.free_);
  return *this;
}

KvPool::~KvPool() {
  if (memory_) munmap(memory_, mapped_bytes_);
}

std::optional<std::vector<int32_t>> KvPool::allocate(size_t count) {
  if (count > free_.size()) return std::nullopt;
  std::vector<int32_t> pages(free_.end() - static_cast<std::ptrdiff_t>(count), free_.end());
  free_.resize(free_.size() - count);
  std::reverse(pages.begin(), pages.end());
  return pages;
}

void KvPool::release(const std::vector<int32_t>& pages) {
  free_.insert(free_.end(), pages.rbegin(), pages.rend());
}

void KvPool::copyPage(int32_t from, int32_t to) {
  for (size_t l = 0; l < layers_; ++l) {
    for (bool values : {false, true}) {
      float* base = half(static_cast<int64_t>(l), values);
      std::copy_n(base + static_cast<size_t>(from) * floats_per_page_, floats_per_page_,
                  base + static_cast<size_t>(to) * floats_per_page_);
    }
  }
}

float* KvPool::half(int64_t layer, bool values) const {
  return memory_ + (2 * static_cast<size_t>(layer) + (values ? 1 : 0)) * total_ * floats_per_page_;
}

kernels::PagedKv KvPool::layer(int64_t layer) const {
  return {.keys = half(layer, false),
          .values = half(layer, true),
          .pages = static_cast<int64_t>(total_),
          .kv_heads = kv_heads_,
          .page_size = page_size_,
          .head_dim = head_dim_};
}

}  // namespace allot
