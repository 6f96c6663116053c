#pragma once
// A warp's way through the sweep's work (step.h): which pieces are its own, and the ring of copies
// from global to shared memory that runs ahead over the ends of pieces.
// Shared memory: rows of head_dim elements, 16-byte chunks swizzled by the row's number, so that
// neither copies nor matrix loads meet in a bank.
#include "kernels/cuda/primitives.cuh"

namespace allot::kernels::cuda {

// Bytes of one head's scores of a piece in scratch; padded, so that the four heads of a quad are in
// other banks.
constexpr int kScoreRow = (kPieceKeys + 8) * 4;

// One warp's draws of a piece of s2anta-flash.
struct DrawScratch {
  uint32_t reached[kQuad][32];  // masses of keys 0 .. 8 i + 7
  uint32_t counts[kPieceKeys];  // draws of a key: a byte a head, at most 255
  uint32_t masses[kQuad];
  uint32_t offsets[kQuad];
  uint32_t pending[4 * kPart];  // counts of the rows that are on their way
};

template <int kDim, Sweep kSweep>
struct SweepLayout {
  static constexpr int kRowBytes = kDim * 2;
  static constexpr int kTileBytes = kPart * kRowBytes;  // also the codes of 64 keys
  static constexpr int kScaleBytes = kSweep == Sweep::kShadow ? 256 : 0;
  static constexpr int kSlotBytes = kTileBytes + kScaleBytes;
  // More slots would leave room for fewer warps, which hide more.
  static constexpr int kSlots = kSweep == Sweep::kShadow ? 2 : 3;
  // s2anta-flash: value rows of a piece, and what its draws need beside the masses.
  static constexpr int kGatherSlots = kSweep == Sweep::kFlash ? 4 : 0;
  static constexpr int kDrawBytes = kSweep == Sweep::kFlash ? sizeof(DrawScratch) : 0;
  static constexpr int kScratch =
      kSweep == Sweep::kExact ? 0 : (kQuad * kScoreRow + kDrawBytes + 255) / 256 * 256;
  static constexpr int kWarpBytes = (kSlots + kGatherSlots) * kSlotBytes + kScratch;
};

// What a block keeps of a row in shared memory.
struct RowPieces {
  int before;     // pieces of the rows before that are swept
  uint32_t keys;  // its length; the upper bit: it is exact
  __device__ int length() const { return static_cast<int>(keys & 0x7fffffff); }
  __device__ bool exact() const { return keys >> 31; }
};

// A place in a warp's share of the work. It only goes on.
struct Place {
  int outer;   // piece, counted over all rows
  int within;  // KV head and quad
  int row;
};

// One piece of one KV head, for up to kQuad of its query heads.
struct Work {
  int row;
  int kv_head;
  int quad;
  int piece;
  int first;  // key
  int count;  // keys
  int dead;   // of them, the first ones, before the row's window
  bool exact;
};

template <int kDim, Sweep kSweep>
class SweepRing {
 protected:
  using Layout = SweepLayout<kDim, kSweep>;
  static constexpr int kChunks = kDim / 8;  // of 16 bytes in a row
  static constexpr int kSteps = kDim / 16;
  static constexpr int kRowsAtOnce = 32 / kChunks;  // that a warp copies

  __device__ SweepRing(const Step& step, const RowPieces* rows, uint8_t* memory)
      : step_(step),
        rows_(rows),
        scratch_(memory + (Layout::kSlots + Layout::kGatherSlots) * Layout::kSlotBytes),
        ring_(sharedAddress(memory)),
        lane_(threadIdx.x % 32),
        g_(lane_ / 4),
        t_(lane_ % 4) {
    const int group = step.heads / step.kv_heads;
    quads_ = (group + kQuad - 1) / kQuad;
    inner_ = step.kv_heads * quads_;
    pieces_ = rows[step.rows].before;
    // As many warps as there are KV heads and quads take a piece together, since its heads are
    // neighbours in memory, and go on to the next pieces of the row, so that queries stay. Where
    // pieces are few, teams are of warps of different blocks.
    warps_ = gridDim.x * (blockDim.x / 32);
    const int warp = (threadIdx.x / 32) * gridDim.x + blockIdx.x;
    const int teams = max(warps_ / inner_, 1);
    const int team = min(warp / inner_, teams);
    within_ = warp % inner_;
    if (pieces_ <= teams) {
      begin_ = min(team, pieces_);
      end_ = min(team + 1, pieces_);
    } else {
      begin_ = static_cast<int>(static_cast<int64_t>(pieces_) * team / teams);
      end_ = team < teams ? static_cast<int>(static_cast<int64_t>(pieces_) * (team + 1) / teams)
                          : begin_;
    }
    head_slot_ = tail_slot_ = ring_;
    // Slots begin at multiples of 256 bytes, so that another chunk is an exclusive or away.
    const int row = lane_ / kChunks, chunk = lane_ % kChunks;
    lane_offset_ = row * Layout::kRowBytes + chunk * 16;
    lane_copy_ = row * Layout::kRowBytes + ((chunk ^ row) << 4);
    lane_key_ =
        ((lane_ & 7) + (lane_ & 8)) * Layout::kRowBytes + (((lane_ >> 4) ^ (lane_ & 7)) << 4);
    lane_value_ = ((lane_ & 7) + (lane_ >> 4) * 8) * Layout::kRowBytes +
                  (((lane_ >> 3 & 1) ^ (lane_ & 7)) << 4);
  }

  __device__ void goOn(Place& place) const {
    if (++place.outer < end_) return;
    // Fewer warps than KV heads and quads: the others of the same pieces.
    place = {begin_, place.within + warps_, 0};
  }

  __device__ Work workAt(Place& place) const {
    while (rows_[place.row + 1].before <= place.outer) ++place.row;
    const RowPieces row = rows_[place.row];
    Work work;
    work.row = place.row;
    work.kv_head = quads_ == 1 ? place.within : place.within / quads_;
    work.quad = quads_ == 1 ? 0 : place.within % quads_;
    work.piece = place.outer - row.before;
    work.exact = kSweep == Sweep::kExact || row.exact();
    const RowKeys all = work.exact ? exactKeysOf(step_, row.length()) : keysOf(step_, row.length());
    const int keys = work.exact ? exactPieceKeys(all.span()) : kPieceKeys;
    work.first = all.base + work.piece * keys;
    work.count = min(keys, all.n - work.first);
    work.dead = max(all.first - work.first, 0);
    return work;
  }

  // Lane i: the page of keys 16 i .. 16 i + 15 of the piece.
  __device__ int pagesOf(const Work& work) const {
    if (lane_ * kPart >= work.count || lane_ < work.dead / kPart) return 0;
    const int page = (work.first + lane_ * kPart) >> step_.page_shift;
    return step_.page_table[static_cast<int64_t>(work.row) * step_.max_pages + page];
  }

  // The piece after the one being copied, and its pages, are fetched one piece ahead.
  __device__ void lookAhead() {
    has_ahead_ = next_.within < inner_;
    if (!has_ahead_) return;
    ahead_ = workAt(next_);
    ahead_pages_ = pagesOf(ahead_);
    goOn(next_);
  }

  __device__ void open() {
    loading_ = has_ahead_;
    if (!loading_) return;
    load_ = ahead_;
    load_pages_ = ahead_pages_;
    const bool bad = lane_ * kPart < load_.count &&
                     static_cast<uint32_t>(load_pages_) >= static_cast<uint64_t>(step_.pages);
    if (__any_sync(kAll, bad)) {
      if (lane_ == 0) report(step_, Wrong::kPage, load_.row, load_.kv_head);
      if (bad) load_pages_ = -1;
    }
    const int dead = load_.dead / kPart, tiles = (load_.count + kPart - 1) / kPart;
    if (lane_ < dead) load_pages_ = -1;  // nothing is read of tiles before the window
    load_slot_ = load_.exact ? 2 * dead : kSweep == Sweep::kShadow ? dead / 4 : dead;
    load_slots_ = load_.exact ? 2 * tiles : kSweep == Sweep::kShadow ? (tiles + 3) / 4 : tiles;
    lookAhead();
  }

  // The position of a key in the pool, in rows of head_dim: a pool has fewer than 2^32.
  __device__ uint32_t position(int page, int kv_head, int key) const {
    const int within = key & ((1 << step_.page_shift) - 1);
    return (static_cast<uint32_t>(page * step_.kv_heads + kv_head) << step_.page_shift) + within;
  }

  __device__ uint32_t after(uint32_t slot) const {
    const uint32_t next = slot + Layout::kSlotBytes;
    return next == ring_ + Layout::kSlots * Layout::kSlotBytes ? ring_ : next;
  }

  // The next slot of the ring is filled, or left if there is no more to copy.
  __device__ void issue() {
    if (loading_) {
      if (load_.exact || kSweep != Sweep::kShadow) {
        const int tile = load_.exact ? load_slot_ / 2 : load_slot_;
        copyTile(load_.exact && load_slot_ % 2 ? step_.values : step_.keys, tile);
      } else {
        copyCodes();
      }
      if (++load_slot_ == load_slots_) open();
    }
    commitCopies();
    head_slot_ = after(head_slot_);
  }

  __device__ void copyTile(const void* pool, int tile) const {
    const int page = __shfl_sync(kAll, load_pages_, tile);
    const int key = tile * kPart;
    // 64 bits: a pool may have more than 4 GiB.
    const uint64_t row = position(max(page, 0), load_.kv_head, load_.first + key);
    const uint8_t* from =
        static_cast<const uint8_t*>(pool) + lane_offset_ + row * Layout::kRowBytes;
    const uint32_t to = head_slot_ + lane_copy_;
    if (page >= 0 && key + kPart <= load_.count && key >= load_.dead) {
#pragma unroll
      for (int j = 0; j < kPart / kRowsAtOnce; ++j) {
        copyAsync((to ^ ((kRowsAtOnce * j & 7) << 4)) + j * 512, from + j * 512);
      }
    } else {
#pragma unroll
      for (int j = 0; j < kPart / kRowsAtOnce; ++j) {
        const int own = key + j * kRowsAtOnce + lane_ / kChunks;
        copyAsync((to ^ ((kRowsAtOnce * j & 7) << 4)) + j * 512, from + j * 512,
                  page >= 0 && own < load_.count && own >= load_.dead);
      }
    }
  }

  // Codes and scales of 64 keys, tile by tile as they lie: a copy whose 16-byte chunks change their
  // order takes eight times as long. Chunk 4 p + i of a tile holds features 8 p .. 8 p + 7 of keys
  // 4 i .. 4 i + 3; i is exclusive-ored so that reads by (keys, features) meet in no bank.
  __device__ static int codeChunk(int chunk) { return chunk ^ (chunk >> 2 & 2); }

  __device__ void copyCodes() const {
    if constexpr (kSweep == Sweep::kShadow) {
      constexpr int kTileCodes = kDim * 8;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int tile = load_slot_ * 4 + i;
        const int page = __shfl_sync(kAll, load_pages_, tile);
        const bool valid = page >= 0 && tile * kPart < load_.count;
        const uint64_t at =
            position(valid ? page : 0, load_.kv_head, load_.first + (valid ? tile * kPart : 0));
        const uint8_t* codes = step_.codes + at * (kDim / 2) + lane_ * 16;
        const uint32_t to = head_slot_ + i * kTileCodes + codeChunk(lane_) * 16;
#pragma unroll
        for (int j = 0; j < kTileCodes / 512; ++j) copyAsync(to + j * 512, codes + j * 512, valid);
      }
      const int tile = load_slot_ * 4 + lane_ / 4 % 4;
      const int page = __shfl_sync(kAll, load_pages_, tile);
      const bool valid = page >= 0 && tile * kPart < load_.count;
      const uint64_t at =
          position(valid ? page : 0, load_.kv_head, load_.first + (valid ? tile * kPart : 0));
      if (lane_ < 16) {
        copyAsync(head_slot_ + Layout::kTileBytes + lane_ * 16,
                  step_.code_scales + at + lane_ % 4 * 4, valid);
      }
    }
  }

  // The oldest slot has arrived; its address.
  __device__ uint32_t await() {
    waitCopies<Layout::kSlots - 1>();
    __syncwarp();
    return tail_slot_;
  }
  // It has been read: the ring goes on.
  __device__ void release() {
    __syncwarp();
    tail_slot_ = after(tail_slot_);
    issue();
  }

  const Step& step_;
  const RowPieces* rows_;  // [rows + 1], shared memory
  uint8_t* scratch_;
  uint32_t ring_;
  int lane_, g_, t_;
  int quads_, inner_, pieces_;
  int warps_, within_, begin_, end_;

  uint32_t head_slot_, tail_slot_;  // to fill next, to read next
  uint32_t lane_offset_, lane_copy_, lane_key_, lane_value_;
  bool loading_ = false, has_ahead_ = false;
  Work load_, ahead_;
  int load_pages_ = 0, ahead_pages_ = 0, load_slot_ = 0, load_slots_ = 0;
  Place next_;
};

}  // namespace allot::kernels::cuda
