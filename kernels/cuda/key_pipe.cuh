#pragma once
// KeyPipe: a warp's ring of asynchronous copies (cp.async) from global to shared memory. It runs
// ahead across splits, so that neither a barrier of the block nor the latency of a split stops it.
// Device code, owned by one warp.
#include "kernels/cuda/split_work.cuh"
#include "kernels/cuda/swizzle.h"

namespace allot::kernels::cuda {

// One warp's draws of a split of s2anta-flash.
struct DrawScratch {
  uint32_t reached[kSmallHeadGroup][32];  // [i]: the weight of keys 0 .. 8 i + 7
  uint32_t counts[kSplitKeys];            // draws of a key: a byte a head, at most 255
  uint32_t weights[kSmallHeadGroup];
  uint32_t offsets[kSmallHeadGroup];
  uint32_t pending[4 * kSubtileKeys];  // counts of the entries in flight
};

// A warp's shared memory, each part at a multiple of 256 bytes: the ring's slots (a tile of keys or
// values, or codes and scales of 64 keys), s2anta-flash's slots for drawn values, and scratch (the
// scores of a split and s2anta-flash's draws, or the pending sums of joined splits).
template <int kDim, SplitMode kMode, int kHeadGroup>
struct SplitLayout {
  using Tile = TileLayout<kDim>;
  using Codes = CodeLayout<kDim>;
  using Scores = ScoreLayout<kSplitKeys, kHeadGroup>;
  static_assert(4 * Codes::kBytes == Tile::kBytes);
  static constexpr int kScaleBytes = kMode == SplitMode::kShadow ? 256 : 0;
  static constexpr int kSlotBytes = Tile::kBytes + kScaleBytes;
  // More slots hide more latency, but leave room for fewer warps. Larger head groups have fewer
  // warps anyway, by their registers. Joined splits have enough copies in flight.
  static constexpr int kMoreSlots = kHeadGroup == kSmallHeadGroup ? 0 : kHeadGroup == 8 ? 1 : 2;
  static constexpr int kSlots =
      kMode == SplitMode::kShadow ? 2 : (kMode == SplitMode::kJoined ? 2 : 3) + kMoreSlots;
  // The pending sums of earlier splits: maximum, sum and channels of each head of a lane.
  static constexpr int kPendingBytes =
      kMode == SplitMode::kJoined ? HeadGroupLayout<kHeadGroup>::kOfLane * (2 + kDim / 8) * 128 : 0;
  // s2anta-flash: slots for drawn values, and the state of its draws.
  static constexpr int kGatherSlots = kMode == SplitMode::kFlash ? 4 : 0;
  static constexpr int kDrawBytes = kMode == SplitMode::kFlash ? sizeof(DrawScratch) : 0;
  static constexpr bool kScores = kMode != SplitMode::kExact && kMode != SplitMode::kJoined;
  static constexpr int kScratch =
      kScores ? (kHeadGroup * Scores::kLineBytes + kDrawBytes + 255) / 256 * 256 : kPendingBytes;
  static constexpr int kWarpBytes = (kSlots + kGatherSlots) * kSlotBytes + kScratch;

  __device__ static uint8_t* scratchOf(uint8_t* memory) {
    return memory + (kSlots + kGatherSlots) * kSlotBytes;
  }
};

template <int kDim, SplitMode kMode, bool kByHead, int kHeadGroup>
class KeyPipe {
  using Share = WarpShare<kMode, kByHead, kHeadGroup>;
  using Layout = SplitLayout<kDim, kMode, kHeadGroup>;
  using Tile = typename Layout::Tile;
  using Codes = typename Layout::Codes;
  static constexpr int kStretch = 32 * kSubtileKeys;
  static constexpr uint32_t kNoEntry = 0xffffffff;  // pools have fewer

 public:
  __device__ KeyPipe(const Step& step, const Share& share, uint8_t* memory)
      : step_(step), ring_(sharedAddress(memory)), lane_(threadIdx.x % 32) {
    head_slot_ = tail_slot_ = ring_;
    lane_offset_ = lane_ / Tile::kChunks * Tile::kRowBytes + lane_ % Tile::kChunks * 16;
    lane_copy_ = Tile::copiedBy(lane_);
    next_ = share.begin();
  }

  __device__ void start(const Share& share) {
    lookAhead(share);
    open(share);
    for (int i = 0; i < Layout::kSlots; ++i) issue(share);
  }

  // Waits for the oldest slot. Returns its address.
  __device__ uint32_t await() {
    waitCopies<Layout::kSlots - 1>();
    __syncwarp();
    return tail_slot_;
  }
  // Releases the oldest slot, which has been read, and starts the next copy.
  __device__ void release(const Share& share) {
    __syncwarp();
    tail_slot_ = after(tail_slot_);
    issue(share);
  }

 private:
  // Fetches the next stretch and its pages, one stretch ahead of the copies. A stretch is a split,
  // or up to kStretch keys of joined splits.
  __device__ void lookAhead(const Share& share) {
    if (kMode == SplitMode::kJoined && has_ahead_ && ahead_rest_ > 0) {
      ahead_.first += kStretch;
      ahead_.dead = 0;
      ahead_.count = ahead_rest_;
    } else {
      has_ahead_ = share.has(next_);
      if (!has_ahead_) return;
      ahead_ = share.at(next_);
      share.goOn(next_);
    }
    if constexpr (kMode == SplitMode::kJoined) {
      ahead_rest_ = max(ahead_.count - kStretch, 0);
      ahead_.count -= ahead_rest_;
    }
    ahead_pages_ = pagesOf(step_, ahead_, lane_);
  }

  __device__ void open(const Share& share) {
    loading_ = has_ahead_;
    if (!loading_) return;
    load_ = ahead_;
    const int dead = load_.dead / kSubtileKeys,
              tiles = (load_.count + kSubtileKeys - 1) / kSubtileKeys;
    const bool bad = lane_ < tiles && static_cast<uint32_t>(ahead_pages_) >=
                                          static_cast<uint64_t>(step_.cache.pages);
    if (__any_sync(kAll, bad) && lane_ == 0) {
      report(step_, Wrong::kPage, load_.row, load_.kv_head);
    }
    // Tiles before the window are not read.
    const bool good = lane_ < tiles && lane_ >= dead && !bad;
    load_entry_ =
        good ? entryAt(step_, ahead_pages_, load_.kv_head, load_.first + lane_ * kSubtileKeys)
             : kNoEntry;
    load_slot_ = load_.exact ? 2 * dead : kMode == SplitMode::kShadow ? dead / 4 : dead;
    load_slots_ = load_.exact ? 2 * tiles : kMode == SplitMode::kShadow ? (tiles + 3) / 4 : tiles;
    lookAhead(share);
  }

  __device__ uint32_t after(uint32_t slot) const {
    const uint32_t next = slot + Layout::kSlotBytes;
    return next == ring_ + Layout::kSlots * Layout::kSlotBytes ? ring_ : next;
  }

  // Fills the next slot of the ring, or leaves it if there is no more to copy.
  __device__ void issue(const Share& share) {
    if (loading_) {
      share.readsOnce(load_.exact) ? copySlot<true>() : copySlot<false>();
      if (++load_slot_ == load_slots_) open(share);
    }
    commitCopies();
    head_slot_ = after(head_slot_);
  }

  template <bool kOnce>
  __device__ void copySlot() const {
    if (load_.exact || kMode != SplitMode::kShadow) {
      const int tile = load_.exact ? load_slot_ / 2 : load_slot_;
      copyTile<kOnce>(load_.exact && load_slot_ % 2 ? step_.cache.values : step_.cache.keys, tile);
    } else {
      copyCodes<kOnce>();
    }
  }

  template <bool kOnce>
  __device__ void copyTile(const void* pool, int tile) const {
    const uint32_t entry = __shfl_sync(kAll, load_entry_, tile);
    const bool there = entry != kNoEntry;
    const int key = tile * kSubtileKeys;
    const uint8_t* from =
        static_cast<const uint8_t*>(pool) + lane_offset_ + positionOf(entry) * Tile::kRowBytes;
    const uint32_t to = head_slot_ + lane_copy_;
    if (there && key + kSubtileKeys <= load_.count && key >= load_.dead) {
#pragma unroll
      for (int j = 0; j < kSubtileKeys / Tile::kRowsAtOnce; ++j) {
        copyAsync<kOnce>(Tile::down(to, j), from + j * 512, true);
      }
    } else {
#pragma unroll
      for (int j = 0; j < kSubtileKeys / Tile::kRowsAtOnce; ++j) {
        const int own = key + j * Tile::kRowsAtOnce + lane_ / Tile::kChunks;
        copyAsync<kOnce>(Tile::down(to, j), from + j * 512,
                         there && own < load_.count && own >= load_.dead);
      }
    }
  }

  // Copies codes and scales of 64 keys, tile by tile.
  template <bool kOnce>
  __device__ void copyCodes() const {
    if constexpr (kMode == SplitMode::kShadow) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const uint32_t entry = __shfl_sync(kAll, load_entry_, load_slot_ * 4 + i);
        const uint8_t* codes = step_.cache.codes + positionOf(entry) * (kDim / 2) + lane_ * 16;
        const uint32_t to = head_slot_ + i * Codes::kBytes + Codes::copiedBy(lane_);
#pragma unroll
        for (int j = 0; j < Codes::kBytes / 512; ++j) {
          copyAsync<kOnce>(to + j * 512, codes + j * 512, entry != kNoEntry);
        }
      }
      const uint32_t entry = __shfl_sync(kAll, load_entry_, load_slot_ * 4 + lane_ / 4 % 4);
      if (lane_ < 16) {
        copyAsync<kOnce>(head_slot_ + Layout::Tile::kBytes + lane_ * 16,
                         step_.cache.code_scales + positionOf(entry) + lane_ % 4 * 4,
                         entry != kNoEntry);
      }
    }
  }
  // Returns the entry in 64 bits, since a pool may have more than 4 GiB; 0 for kNoEntry.
  __device__ static uint64_t positionOf(uint32_t entry) { return entry != kNoEntry ? entry : 0; }

  const Step& step_;
  uint32_t ring_;
  int lane_;
  uint32_t head_slot_, tail_slot_;  // to fill next, to read next
  uint32_t lane_offset_, lane_copy_;
  bool loading_ = false, has_ahead_ = false;
  Work load_, ahead_;
  int ahead_pages_ = 0, load_slot_ = 0, load_slots_ = 0;
  uint32_t load_entry_ = 0;  // of this lane's tile: its first key's position in the pool
  int ahead_rest_ = 0;       // keys of the same work behind ahead_
  Place next_;
};

}  // namespace allot::kernels::cuda
