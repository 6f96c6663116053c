#include "worker/model/kv_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <numeric>
#include <set>
#include <utility>

#include "worker/model/compute_device.h"

namespace allot {
namespace {

constexpr size_t kSlabBytes = size_t{64} << 20;

// Arrays start at cache lines, as vector code likes them.
size_t aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }

constexpr size_t kUnknownMemory = size_t{4} << 30;  // assumed free if the system does not say

Status check(const ModelConfig& config, const KvPoolOptions& options) {
  const std::set<int> bits(options.shadow_bits.begin(), options.shadow_bits.end());
  const bool known =
      std::all_of(bits.begin(), bits.end(), [](int b) { return b == 3 || b == 4 || b == 8; });
  if (!known || bits.size() != options.shadow_bits.size()) {
    return badInput("shadows of keys have 3, 4 or 8 bits, each once");
  }
  if (options.zero_reads == ZeroReads::kWindow && options.zero_window < 1) {
    return badInput("the window of heads without a budget has 1 position or more, not " +
                    std::to_string(options.zero_window));
  }
  const auto scales = static_cast<size_t>(config.layers * config.kv_heads);
  for (const auto* list : {&options.key_scales, &options.value_scales}) {
    if (list->empty()) continue;
    if (options.element != kernels::Element::kE4M3) {
      return badInput("scales are of keys and values in fp8, which these are not");
    }
    if (list->size() == scales) continue;
    return badInput("a pool for this model has " + std::to_string(scales) + " scales, not " +
                    std::to_string(list->size()));
  }
  if (options.key_scales.empty() != options.value_scales.empty()) {
    return badInput("keys have scales and values have none, or the other way round");
  }
  if (bits.empty() && !options.bounds) return {};
  if (options.page_size % kernels::kTileKeys != 0 || config.head_dim % 16 != 0) {
    return badInput(
        "shadows and bounds of keys need pages of a multiple of 16 positions and heads "
        "of a multiple of 16 channels, not " +
        std::to_string(options.page_size) + " and " + std::to_string(config.head_dim));
  }
  return {};
}

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

KvPlace KvPlace::host() {
  KvPlace place;
  place.reserve = [](size_t bytes) -> Result<std::shared_ptr<uint8_t>> {
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
      return fail(ErrorCode::kIo, "cannot reserve " + std::to_string(bytes >> 20) +
                                      " MiB for keys and values (" + std::strerror(errno) +
                                      "): lower --kv-memory");
    }
    // A hint only. Keys are spread over the pool, and with small pages a step looks up more
    // addresses than a processor's TLB holds.
    madvise(memory, bytes, MADV_HUGEPAGE);
    return std::shared_ptr<uint8_t>(static_cast<uint8_t*>(memory),
                                    [bytes](uint8_t* start) { munmap(start, bytes); });
  };
  place.copy_pages = [](const std::vector<PagePart>& parts, const std::vector<int32_t>& from,
                        const std::vector<int32_t>& to) {
    for (size_t i = 0; i < from.size(); ++i) {
      for (const PagePart& part : parts) {
        std::memcpy(part.first + static_cast<size_t>(to[i]) * part.bytes,
                    part.first + static_cast<size_t>(from[i]) * part.bytes, part.bytes);
      }
    }
  };
  place.free_bytes = [] { return freeMemory(Device::kCpu); };
  place.reserve_host = place.reserve;
  place.move_pages = [](const std::vector<PagePart>& parts, const std::vector<int32_t>& pages,
                        const std::vector<uint8_t*>& host, bool to_host) -> Status {
    for (size_t i = 0; i < pages.size(); ++i) {
      for (const PagePart& part : parts) {
        uint8_t* const here = part.first + static_cast<size_t>(pages[i]) * part.bytes;
        uint8_t* const there = host[i] + part.offset;
        std::memcpy(to_host ? there : here, to_host ? here : there, part.bytes);
      }
    }
    return {};
  };
  return place;
}

Result<KvPool> KvPool::create(const ModelConfig& config, const KvPoolOptions& options,
                              KvPlace place) {
  ALLOT_TRY(check(config, options));
  size_t kv_bytes = options.kv_bytes;
  if (kv_bytes == 0) {
    const size_t free = place.free_bytes();
    kv_bytes = (free > 0 ? free : kUnknownMemory) / 4;
  }
  KvPool pool;
  pool.place_ = std::move(place);
  pool.layers_ = static_cast<size_t>(config.layers);
  pool.key_scales_ = options.key_scales;
  pool.value_scales_ = options.value_scales;
  kernels::PagedKv& layout = pool.layout_;
  layout.element = options.element;
  layout.kv_heads = static_cast<int>(config.kv_heads);
  layout.head_dim = static_cast<int>(config.head_dim);
  layout.page_size = options.page_size;
  const auto heads = static_cast<size_t>(config.kv_heads);
  const auto width = static_cast<size_t>(config.head_dim);
  const auto positions = static_cast<size_t>(options.page_size);
  const size_t tiles = positions / kernels::kTileKeys;
  auto& bytes = pool.part_bytes_;
  bytes[kKeys] = bytes[kValues] = heads * positions * width * bytesOf(layout.element);
  for (size_t i = 0; i < options.shadow_bits.size(); ++i) {
    layout.shadows[i].bits = options.shadow_bits[i];
    bytes[kCodes0 + i] = heads * tiles * layout.shadows[i].tileBytes(layout.head_dim);
    bytes[kScales0 + i] = heads * positions * sizeof(float);
    bytes[kMeanKeys] = heads * width * sizeof(float);
  }
  if (options.value_sums || options.zero_reads == ZeroReads::kMeanValue) {
    bytes[kValueSums] = heads * 2 * width * sizeof(double);
  }
  if (options.bounds) bytes[kBounds] = heads * tiles * 2 * width * bytesOf(layout.element);

  const size_t page_bytes = pool.bytesPerPage();
  if (kv_bytes < page_bytes || page_bytes == 0) {
    return badInput("the memory for keys and values, " + std::to_string(kv_bytes) +
                    " bytes, does not hold one page of " + std::to_string(page_bytes) +
                    " bytes: raise --kv-memory");
  }
  layout.pages = static_cast<int64_t>(std::min<size_t>(kv_bytes / page_bytes, INT32_MAX));
  ALLOT_ASSIGN(pool.memory_, pool.place_.reserve(pool.layers_ * pool.bytesOfLayer()));
  pool.free_.resize(pool.totalPages());
  pool.allocated_.resize(pool.totalPages());
  // The lowest page is allocated first, so that memory use follows the need.
  for (size_t i = 0; i < pool.free_.size(); ++i) {
    pool.free_[i] = static_cast<int32_t>(pool.free_.size() - 1 - i);
  }
  return pool;
}

std::optional<std::vector<int32_t>> KvPool::allocate(size_t count) {
  if (count > free_.size()) return std::nullopt;
  std::vector<int32_t> pages(free_.end() - static_cast<std::ptrdiff_t>(count), free_.end());
  free_.resize(free_.size() - count);
  std::reverse(pages.begin(), pages.end());
  for (const int32_t page : pages) allocated_[page] = true;
  return pages;
}

bool KvPool::areAllocated(const std::vector<int32_t>& pages) const {
  return std::all_of(pages.begin(), pages.end(), [&](int32_t page) {
    return page >= 0 && static_cast<size_t>(page) < totalPages() && allocated_[page];
  });
}

void KvPool::release(const std::vector<int32_t>& pages) {
  for (const int32_t page : pages) {
    assert(areAllocated({page}));
    allocated_[page] = false;
  }
  free_.insert(free_.end(), pages.rbegin(), pages.rend());
}

void KvPool::copyPages(const std::vector<int32_t>& from, const std::vector<int32_t>& to) {
  assert(from.size() == to.size() && areAllocated(from) && areAllocated(to));
  place_.copy_pages(parts(), from, to);
}

std::vector<PagePart> KvPool::parts() const {
  std::vector<PagePart> parts;
  size_t offset = 0;
  for (size_t l = 0; l < layers_; ++l) {
    uint8_t* next = memory_.get() + l * bytesOfLayer();
    for (const size_t bytes : part_bytes_) {
      if (bytes == 0) continue;
      parts.push_back({next, bytes, offset});
      offset += bytes;
      next += aligned(bytes * totalPages());
    }
  }
  return parts;
}

Status KvPool::save(const std::vector<int32_t>& pages, const std::vector<uint8_t*>& host) const {
  assert(host.size() == pages.size() && areAllocated(pages));
  return place_.move_pages(parts(), pages, host, true);
}

Status KvPool::load(const std::vector<uint8_t*>& host, const std::vector<int32_t>& pages) {
  assert(host.size() == pages.size() && areAllocated(pages));
  return place_.move_pages(parts(), pages, host, false);
}

size_t KvPool::bytesPerPage() const {
  return layers_ * std::accumulate(part_bytes_.begin(), part_bytes_.end(), size_t{0});
}

size_t KvPool::bytesOfLayer() const {
  size_t sum = 0;
  for (const size_t bytes : part_bytes_) sum += aligned(bytes * totalPages());
  return sum;
}

kernels::PagedKv KvPool::layer(int64_t layer) const {
  assert(layer >= 0 && static_cast<size_t>(layer) < layers_);
  std::array<uint8_t*, kParts> parts{};
  uint8_t* next = memory_.get() + static_cast<size_t>(layer) * bytesOfLayer();
  for (size_t i = 0; i < kParts; ++i) {
    if (part_bytes_[i] == 0) continue;
    parts[i] = next;
    next += aligned(part_bytes_[i] * totalPages());
  }
  const auto floats = [](uint8_t* part) { return reinterpret_cast<float*>(part); };
  kernels::PagedKv kv = layout_;
  kv.keys = parts[kKeys];
  kv.values = parts[kValues];
  for (size_t i = 0; i < std::size(kv.shadows); ++i) {
    kv.shadows[i].codes = parts[kCodes0 + i];
    kv.shadows[i].scales = floats(parts[kScales0 + i]);
  }
  const int64_t scale = layer * kv.kv_heads;
  kv.key_scales = key_scales_.empty() ? nullptr : key_scales_.data() + scale;
  kv.value_scales = value_scales_.empty() ? nullptr : value_scales_.data() + scale;
  kv.mean_keys = floats(parts[kMeanKeys]);
  kv.bounds = parts[kBounds];
  kv.value_sums = reinterpret_cast<double*>(parts[kValueSums]);
  return kv;
}

}  // namespace allot
