#pragma once
// KvPool: the memory that all sequences of a process keep their keys and values in, by pages.
//
// One page holds page_size positions of every layer and KV head, with the shadows and bounds of
// their keys if these were asked for (what each is: allot/kernels/paged_kv.h). The address space is
// reserved at once and becomes memory as pages are first written, 2 MiB at a time where the system
// has such pages, so a generous limit costs nothing; on a GPU it is memory from the start. Owned by
// the decoder; one thread.
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "allot/kernels/paged_kv.h"
#include "core/result.h"
#include "worker/model/host_pages.h"
#include "worker/model/model_config.h"
#include "worker/model/page_part.h"

namespace allot {

// What a head without a budget gives, in steps and in prompts that are attended to query by query
// (kernels::DecodeInputs). Sampled blocks of a prompt are silent whatever this says.
enum class ZeroReads {
  kOff,        // zeros
  kMeanValue,  // the mean of the sequence's values so far, which is kept up as the cache grows
  kWindow,     // exact attention to the newest positions, which count as read; on the CPU only
};

struct KvPoolOptions {
  int page_size = 16;
  // Rounded down to whole pages. 0: a quarter of what is free on the device once the weights are
  // there, because several workers share it.
  size_t kv_bytes = size_t{1} << 30;
  kernels::Element element = kernels::Element::kFloat32;  // of keys and values; a GPU's: bfloat16
  // What is kept beside keys and values, each only if asked for.
  std::vector<int> shadow_bits = {};       // of the keys' shadows, out of 3, 4, 8; once each
  bool bounds = false;                     // of the keys, for quest
  ZeroReads zero_reads = ZeroReads::kOff;  // a running sum of values is kept for kMeanValue
  int zero_window = 64;                    // positions of kWindow
};

// Where a pool's arrays lie: the memory of the decoder's device.
struct KvPlace {
  // So many bytes of zeros, which go with the last reference. kIo.
  std::function<Result<std::shared_ptr<uint8_t>>(size_t bytes)> reserve;
  // Copies page from[i] to to[i].
  std::function<void(const std::vector<PagePart>& parts, const std::vector<int32_t>& from,
                     const std::vector<int32_t>& to)>
      copy_pages;
  std::function<size_t()> free_bytes;  // 0: unknown
  // Memory of the host for copies of pages, which goes with the last reference. kIo.
  std::function<Result<std::shared_ptr<uint8_t>>(size_t bytes)> reserve_host;
  // Copies pages[i] to host[i], or back. kIo.
  std::function<Status(const std::vector<PagePart>& parts, const std::vector<int32_t>& pages,
                       const std::vector<uint8_t*>& host, bool to_host)>
      move_pages;

  static KvPlace host();
};

class KvPool {
 public:
  // kUsage: bytes that do not hold one page, shadows that do not exist, a page size or head size
  // that these do not fit.
  static Result<KvPool> create(const ModelConfig& config, const KvPoolOptions& options,
                               KvPlace place = KvPlace::host());

  KvPool() = default;  // holds nothing
  KvPool(KvPool&&) noexcept = default;
  KvPool& operator=(KvPool&&) noexcept = default;

  // Nothing if fewer than `count` pages are free.
  std::optional<std::vector<int32_t>> allocate(size_t count);
  void release(const std::vector<int32_t>& pages);
  // Copies all layers of pages, with all that belongs to them; no page is in both lists.
  void copyPages(const std::vector<int32_t>& from, const std::vector<int32_t>& to);
  void copyPage(int32_t from, int32_t to) { copyPages({from}, {to}); }
  // Copies all layers of pages[i] to host[i], bytesPerPage() of hostMemory() each, and back. kIo.
  Status save(const std::vector<int32_t>& pages, const std::vector<uint8_t*>& host) const;
  Status load(const std::vector<uint8_t*>& host, const std::vector<int32_t>& pages);
  HostPages::Reserve hostMemory() const { return place_.reserve_host; }

  // The place's memory.
  kernels::PagedKv layer(int64_t layer) const;
  int pageSize() const { return layout_.page_size; }
  size_t freePages() const { return free_.size(); }
  size_t totalPages() const { return static_cast<size_t>(layout_.pages); }
  // All layers, shadows, mean keys and bounds included.
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

  KvPlace place_;
  std::shared_ptr<uint8_t> memory_;
  size_t layers_ = 0;
  kernels::PagedKv layout_;                  // the shapes; no pointers
  std::array<size_t, kParts> part_bytes_{};  // of one page and layer; 0: not there
  std::vector<int32_t> free_;
};

}  // namespace allot
