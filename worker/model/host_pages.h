#pragma once
// HostPages: memory of the host for copies of a KvPool's pages, which it takes as it is needed.
//
// Memory that a copy engine reads must be pinned, which takes a quarter of a second a gigabyte:
// slabs are kept once they are there. One thread.
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

  // At most limit_bytes, in slabs of whole pages that `reserve` gives; once it refuses, no more.
  HostPages(size_t limit_bytes, size_t page_bytes, Reserve reserve);

  // Pages that are free, or would be once their slabs are there.
  size_t room() const { return free_.size() + slabs_left_ * slab_pages_; }
  // Nothing if there are fewer.
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
