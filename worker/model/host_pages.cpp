#include "worker/model/host_pages.h"

#include <algorithm>
#include <utility>

namespace allot {
namespace {

constexpr size_t kSlabBytes = size_t{64} << 20;

}  // namespace

HostPages::HostPages(size_t limit_bytes, size_t page_bytes, Reserve reserve)
    : page_bytes_(page_bytes),
      slab_pages_(std::max<size_t>(1, std::min(kSlabBytes, limit_bytes) / page_bytes)),
      slabs_left_(limit_bytes / (slab_pages_ * page_bytes)),
      reserve_(std::move(reserve)) {}

std::optional<std::vector<uint8_t*>> HostPages::allocate(size_t count) {
  while (free_.size() < count && slabs_left_ > 0) {
    auto slab = reserve_(slab_pages_ * page_bytes_);
    if (!slab) {
      slabs_left_ = 0;
      break;
    }
    --slabs_left_;
    for (size_t i = 0; i < slab_pages_; ++i) free_.push_back(slab->get() + i * page_bytes_);
    slabs_.push_back(std::move(*slab));
  }
  if (free_.size() < count) return std::nullopt;
  std::vector<uint8_t*> pages(free_.end() - static_cast<std::ptrdiff_t>(count), free_.end());
  free_.resize(free_.size() - count);
  return pages;
}

void HostPages::release(const std::vector<uint8_t*>& pages) {
  free_.insert(free_.end(), pages.begin(), pages.end());
}

}  // namespace allot
