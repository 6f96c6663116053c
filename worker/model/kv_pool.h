#pragma once
// KvPool: the paged memory of keys and values of all sequences of a process. Owned by the decoder;
// one thread.
//
// A page holds page_size positions of every layer and KV head, with shadows and bounds of the keys
// if these were asked for (defined in allot/kernels/paged_kv.h). The address space is reserved at
// once and becomes memory as pages are first written, so that a generous limit costs nothing. The
// system adds memory in steps of 2 MiB if it has huge pages. On a GPU all memory is allocated at
// the start.
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "allot/kernels/paged_kv.h"
#include "core/result.h"
#include "worker/model/model_config.h"
#include "worker/model/page_part.h"

namespace allot {

// HostPages: host memory for copies of a KvPool's pages, allocated on demand. Owned by PromptCache.
//
// Copies from a GPU need pinned memory, which is slow to allocate. Slabs are therefore kept once
// they are allocated. One thread.
class HostPages {
 public:
  using Reserve = std::function<Result<std::shared_ptr<uint8_t>>(size_t bytes)>;

  // allocate() gets at most limit_bytes, in slabs of whole pages, until `reserve` refuses one.
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

// The output of a head with budget 0, in decode steps and in prompts that are attended to query by
// query (kernels::DecodeInputs). Prefill by sampled blocks ignores it: budget 0 outputs zeros.
enum class ZeroReads {
  kOff,        // zeros
  kMeanValue,  // the mean of the sequence's values so far, updated as the cache grows
  kWindow,     // exact attention to the newest positions, counted as reads; on the CPU only
};

struct KvPoolOptions {
  int page_size = 16;
  // Rounded down to whole pages. 0: a quarter of the memory that is free after the weights are
  // loaded, because several workers share a device.
  size_t kv_bytes = size_t{1} << 30;
  kernels::Element element = kernels::Element::kFloat32;  // of keys and values; a GPU's: bfloat16
  // [layers, kv_heads] each, kernels::PagedKv's, for e4m3 alone. Empty: 1.0; for a decoder: those
  // of its checkpoint (kv_scales.h).
  std::vector<float> key_scales = {};
  std::vector<float> value_scales = {};
  // Data beside keys and values, each only if asked for.
  std::vector<int> shadow_bits = {};       // of the keys' shadows, out of 3, 4, 8; once each
  bool bounds = false;                     // of the keys, for quest
  bool value_sums = false;                 // running sums of values, for weights=centred
  ZeroReads zero_reads = ZeroReads::kOff;  // kMeanValue keeps a running sum of values
  int zero_window = 64;                    // positions of kWindow
};

// The memory of the decoder's device, which holds a pool's arrays.
struct KvPlace {
  // Returns zeroed memory, which is freed with the last reference. Errors: kIo, on a GPU kUsage.
  std::function<Result<std::shared_ptr<uint8_t>>(size_t bytes)> reserve;
  // Copies page from[i] to to[i].
  std::function<void(const std::vector<PagePart>& parts, const std::vector<int32_t>& from,
                     const std::vector<int32_t>& to)>
      copy_pages;
  std::function<size_t()> free_bytes;  // 0: unknown
  // Returns host memory for copies of pages, which is freed with the last reference. kIo.
  std::function<Result<std::shared_ptr<uint8_t>>(size_t bytes)> reserve_host;
  // Copies pages[i] to host[i], or back if to_host is false. kIo.
  std::function<Status(const std::vector<PagePart>& parts, const std::vector<int32_t>& pages,
                       const std::vector<uint8_t*>& host, bool to_host)>
      move_pages;

  static KvPlace host();
};

class KvPool {
 public:
  // Creates a pool. kUsage: the bytes do not hold one page, an option is out of range, or shadows
  // or bounds do not fit the page size or head size. Errors of KvPlace::reserve.
  static Result<KvPool> create(const ModelConfig& config, const KvPoolOptions& options,
                               KvPlace place = KvPlace::host());

  KvPool() = default;  // holds nothing
  KvPool(KvPool&&) noexcept = default;
  KvPool& operator=(KvPool&&) noexcept = default;

  // Returns nothing if fewer than `count` pages are free.
  std::optional<std::vector<int32_t>> allocate(size_t count);
  // Requires, here and for all lists of pages below: the pages are allocated.
  void release(const std::vector<int32_t>& pages);
  // Copies all layers of pages, with shadows, bounds and sums.
  // Requires: the lists have equal lengths, and no page is in both.
  void copyPages(const std::vector<int32_t>& from, const std::vector<int32_t>& to);
  void copyPage(int32_t from, int32_t to) { copyPages({from}, {to}); }
  // Copies all layers of pages[i] to host[i] (bytesPerPage() bytes of hostMemory() each), and back.
  // kIo.
  // Requires: the lists have equal lengths.
  Status save(const std::vector<int32_t>& pages, const std::vector<uint8_t*>& host) const;
  Status load(const std::vector<uint8_t*>& host, const std::vector<int32_t>& pages);
  HostPages::Reserve hostMemory() const { return place_.reserve_host; }

  // Returns the layer's arrays, in the memory of the place.
  // Requires: the model has the layer.
  kernels::PagedKv layer(int64_t layer) const;
  int pageSize() const { return layout_.page_size; }
  size_t freePages() const { return free_.size(); }
  size_t totalPages() const { return static_cast<size_t>(layout_.pages); }
  // Returns the bytes of a page in all layers: keys, values and the data beside them.
  size_t bytesPerPage() const;
  size_t pagesFor(size_t positions) const {
    return (positions + layout_.page_size - 1) / layout_.page_size;
  }

 private:
  // The arrays of one layer, one after another in memory, each [pages, bytes].
  enum Part {
    kKeys,
    kValues,
    kCodes0,
    kCodes1,
    kCodes2,
    kScales0,
    kScales1,
    kScales2,
    kMeanKeys,
    kBounds,
    kValueSums,
    kParts
  };

  size_t bytesOfLayer() const;
  std::vector<PagePart> parts() const;
  bool areAllocated(const std::vector<int32_t>& pages) const;

  KvPlace place_;
  std::shared_ptr<uint8_t> memory_;
  size_t layers_ = 0;
  kernels::PagedKv layout_;                       // the shapes; no pointers
  std::array<size_t, kParts> part_bytes_{};       // of one page and layer; 0: not there
  std::vector<float> key_scales_, value_scales_;  // of KvPoolOptions
  std::vector<int32_t> free_;
  std::vector<bool> allocated_;  // by page
};

}  // namespace allot
