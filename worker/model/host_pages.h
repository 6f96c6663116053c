#pragma once
// HostPages: host memory for copies of a KvPool's pages, allocated on demand. Owned by PromptCache.
//
// A copy engine needs pinned memory, and pinning takes 0.25 s a gigabyte. Slabs are therefore kept
// once they are allocated. One thread.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "core/result.h"

namespace allot {

class HostPages {
 public:
  using Reserve = std::function<Result<std::shared_ptr<uint8_t>>(size_t bytes)>;

  // Allocates at most limit_bytes, in slabs of whole pages from `reserve`. No more once it refuses.
  HostPages(size_t limit_bytes, size_t page_bytes, Reserve reserve);

  // Returns the number of free pages, those of slabs not yet allocated included.
  size_t room() const { return free_.size() + slabs_left_ * slab_pages_; }
  // Returns nothing if fewer than `count` pages are free.
  std::optional<std::vector<uint8_t*>> allocate(size_t count);
  void release(const std::vector<uint8_t*>& pages);

 private:
  size_t page_bytes_;
  size_t slab_pages_;
  size_t slabs_left_;
  Reserve reserve_;
  std::vector<std::shared_ptr<uint8_t>> slabs_;
  std::vector<uint8_t*> free_;
};

}  // namespace allot
