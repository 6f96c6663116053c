#pragma once
// Attention of a chunk on Hopper: what its warps share, and the warps that copy. Device code.
//
// A persistent block a multiprocessor has a warp that copies keys, one that copies values, a thread
// that copies queries, all by tensor maps, and two warp groups that compute (prefill_hopper.cuh).
//
// A work item is one head's 128 positions: two blocks of 64 queries, one for each warp group. A
// stage holds two blocks of 64 keys that at least one of the warp groups attends to, in order. A
// block has four groups of 16 keys, each in one page. Groups outside the window or behind the
// queries are zeros, or are masked where a page has more than one group.
//
// A warp group computes the blocks of its own list alone. Weights are relative to a reference of
// the query: a score that was the largest once. A block replaces it if a thread's sum of weights
// would be too large. So a query's output depends on its own list alone, not on what is in a stage.
#include "kernels/cuda/prefill_softmax.cuh"
#include "kernels/cuda/sm90.cuh"

namespace allot::kernels::cuda {

// A block of keys that a warp group attends to.
struct FoundBlock {
  int block;
  uint32_t groups;  // StageNote::groups
  int tables[4];    // where its boxes begin in the pool, as page * kv_heads + KV head
};
constexpr int kFound = 64;

template <int D>
struct HopperShared {
  static constexpr int kStages = D == 64 ? 4 : 2;
  static constexpr int kColumnBytes = 2 * kTileKeys64 * 128;  // of 64 channels of a stage
  static constexpr int kStageBytes = D / 64 * kColumnBytes;
  static constexpr int kQueryBytes = kQueryBlock * D * 2;

  static constexpr int kGroupBytes = 16 * D * 2;  // of 16 values

  // Lines of 128 bytes, 64 channels, in wgmma's swizzle (SharedTile). Queries and keys have the
  // channels' columns one after the other, values have all columns of 16 keys.
  uint8_t queries[2][2][kQueryBytes];  // of two items, a warp group each
  uint8_t keys[kStages][kStageBytes];
  uint8_t values[kStages][kStageBytes];
  SharedBarrier item_full[2], query_full[2], query_empty[2];
  SharedBarrier key_full[kStages], key_empty[kStages];
  SharedBarrier value_full[kStages], value_empty[kStages];
  uint2 notes[kStages];
  FoundBlock found[2][kFound];  // by copying warp
  int items[2];                 // kNoItem: there are no more
};
constexpr int kNoItem = -1;

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

// What the copying warp says of a stage.
struct StageNote {
  int block[2] = {0, 0};        // of 64 keys
  uint32_t groups[2] = {0, 0};  // to attend to, of 16 keys: warp group w has bits 4 w .. 4 w + 3
  bool is_last = false;         // of the item

  __device__ int blockOf(int half) const { return half == 0 ? block[0] : block[1]; }
  __device__ uint32_t own(int half, int group) const {
    return (half == 0 ? groups[0] : groups[1]) >> 4 * group & 15;
  }
  __device__ bool any() const { return groups[0] != 0; }

  __device__ uint2 packed() const {
    return {static_cast<uint32_t>(block[0] | block[1] << 16),
            groups[0] | groups[1] << 8 | static_cast<uint32_t>(is_last) << 16};
  }
  __device__ static StageNote of(uint2 note) {
    return {{static_cast<int>(note.x & 0xffff), static_cast<int>(note.x >> 16)},
            {note.y & 0xff, note.y >> 8 & 0xff},
            note.y >> 16 != 0};
  }
};

// One head's 128 positions of the chunk.
struct HopperItem {
  int head, block;  // block: of 128 positions

  // Items are in order of falling length within a section of heads.
  __device__ static HopperItem of(const HopperChunk& work, int item) {
    const int of_section = work.section * work.blocks;
    const int section = item / of_section, within = item % of_section;
    const int heads = min(work.section, work.chunk.heads - section * work.section);
    return {section * work.section + within % heads,
            work.first_block + work.blocks - 1 - within / heads};
  }
  // Return the positions of a warp group's queries: [begin, end).
  __device__ int begin(const PromptChunk& chunk, int group) const {
    return max(chunk.first, (2 * block + group) * kQueryBlock);
  }
  __device__ int end(const PromptChunk& chunk, int group) const {
    return min(chunkEnd(chunk), (2 * block + group + 1) * kQueryBlock);
  }
};

// The blocks of keys of an item that a warp group attends to, in order, for a copying warp, whose
// lanes call alike. A lane looks at one of 32 blocks and counts what the warp groups read of it.
// Code is kept short, without unrolled loops over blocks: a copying warp runs beside large loops
// and waits for its instructions.
class KeyBlocksOf {
 public:
  __device__ KeyBlocksOf(const HopperChunk& work, const HopperItem& item, int lane,
                         FoundBlock* found)
      : work_(work), chunk_(work.chunk), found_(found), lane_(lane) {
    kv_head_ = item.head / (chunk_.heads / chunk_.kv_heads);
    first_ = INT_MAX;
#pragma unroll
    for (int w = 0; w < 2; ++w) {
      const int begin = item.begin(chunk_, w);
      end_[w] = item.end(chunk_, w);
      oldest_[w] = oldestOf(chunk_, begin);
      if (begin >= end_[w]) {
        end_[w] = 0;
        continue;
      }
      first_ = min(first_, oldest_[w] / kTileKeys64);
      last_ = (end_[w] - 1) / kTileKeys64;
    }
    if (chunk_.bits) {
      const int64_t row =
          static_cast<int64_t>(item.head) * chunk_.list_blocks + 2 * item.block - chunk_.list_first;
      bits_ = chunk_.bits + row * chunk_.words;
      list_shift_ = chunk_.key_block == 64 ? 0 : chunk_.key_block == 32 ? 1 : 2;
    }
    base_ = first_ - 96;
  }

  // Returns how many blocks are left: up to two exactly, then at least three.
  __device__ int left() {
#pragma unroll 1
    while (left_ < 3 && base_ + 32 <= last_) goOn();
    return left_;
  }
  // Returns the i-th block of those left.
  __device__ const FoundBlock& operator[](int i) const { return found_[(taken_ + i) % kFound]; }
  __device__ void drop(int blocks) {
    taken_ += blocks;
    left_ -= blocks;
  }

  BlockCounts counts[2];  // of a warp group, by this lane
  uint32_t outside =
      0;  // 1 << w: warp group w wants a page outside the pool, in this lane's blocks

 private:
  static constexpr int kNotWanted = -1;

  // Returns, as `outside` has them, the warp groups that want a box of the lane's block.
  __device__ uint32_t wantedBy(int box) const {
    const uint32_t groups = groupsOfBox(box);
    return ((next_groups_ & groups) ? 1 : 0) | ((next_groups_ >> 4 & groups) ? 2 : 0);
  }
  // Returns the groups of 16 keys of a block that a box has.
  __device__ uint32_t groupsOfBox(int box) const {
    const int groups = 1 << (work_.box_shift - 4), first = box * groups;
    return first < 4 ? ((1u << groups) - 1) << first : 0;
  }

  // Goes on to the next 32 blocks. What is asked for here is used at the next and the second next
  // call.
  __device__ void goOn() {
    base_ += 32;
    // The page numbers of these blocks are there.
    const uint32_t chosen = __ballot_sync(kAll, next_groups_ != 0);
    if (next_groups_) {
      const int place = taken_ + left_ + __popc(chosen & ((1u << lane_) - 1));
      FoundBlock& found = found_[place % kFound];
      found.block = base_ + lane_;
      found.groups = next_groups_;
#pragma unroll
      for (int box = 0; box < 4; ++box) {
        const bool there = pages_[box] >= 0 && pages_[box] < chunk_.pages;
        found.tables[box] = there ? pages_[box] * chunk_.kv_heads + kv_head_
                                  : static_cast<int>(chunk_.pages) * chunk_.kv_heads;
        if (pages_[box] != kNotWanted && !there) outside |= wantedBy(box);
      }
    }
    left_ += __popc(chosen);
    __syncwarp();
    // The words of the next blocks are there.
    const int block = base_ + 32 + lane_;
    next_groups_ = block >= first_ && block <= last_ ? groupsOf(block) : 0;
#pragma unroll
    for (int box = 0; box < 4; ++box) {
      pages_[box] = kNotWanted;
      if (!wantedBy(box)) continue;
      const int key = block * kTileKeys64 + (box << work_.box_shift);
      pages_[box] = __ldg(chunk_.page_table + (key >> chunk_.page_shift));
      if (pages_[box] < 0) pages_[box] = INT_MAX;  // outside, and not kNotWanted
    }
    if (!bits_) return;
#pragma unroll
    for (int w = 0; w < 2; ++w) {
      const int later = block + 32;
      if (later < first_ || later * kTileKeys64 >= end_[w]) continue;
      words_[w] = __ldg(bits_ + w * chunk_.words + (later << list_shift_) / 32);
    }
  }
  // Returns StageNote::groups of a block of keys.
  __device__ uint32_t groupsOf(int block) {
    const int start = block * kTileKeys64;
    uint32_t groups = 0;
#pragma unroll
    for (int w = 0; w < 2; ++w) {
      if (start >= end_[w]) continue;
      const int to = min((end_[w] - 1 - start) / 16 + 1, 4);
      const int from = max((oldest_[w] - start) / 16, 0);
      const uint32_t seen = from < 4 ? (1u << to) - (1u << from) & 15 : 0;
      if (!seen) continue;
      if (!bits_) {
        groups |= seen << 4 * w;
        continue;
      }
      const uint32_t chosen = seen & chosenOf(words_[w] >> (block << list_shift_) % 32);
      if (!chosen) continue;
      groups |= chosen << 4 * w;
      if (chunk_.statistics) count(start, chosen, end_[w], oldest_[w], &counts[w]);
    }
    return groups;
  }
  // Returns the groups of a block that a list has, whose bits begin at `bits`.
  __device__ uint32_t chosenOf(uint32_t bits) const {
    if (list_shift_ == 0) return bits & 1 ? 15 : 0;
    return list_shift_ == 1 ? (bits & 1) * 3 | (bits >> 1 & 1) * 12 : bits & 15;
  }
  // Counts the groups, and the list's blocks that they are of.
  __device__ void count(int start, uint32_t groups, int end, int oldest,
                        BlockCounts* counts) const {
    const uint32_t last_of_blocks = list_shift_ == 0 ? 8 : list_shift_ == 1 ? 10 : 15;
    uint32_t all = groups;  // with those that the queries do not see
    if (list_shift_ < 2) all |= all >> 1 & 5 | all << 1 & 10;
    if (list_shift_ < 1) all |= all >> 2 | all << 2 & 12;
    counts->groups += __popc(all & last_of_blocks) * (chunk_.key_block / 16);
#pragma unroll 1
    for (int g = 0; g < kTileGroups; ++g, start += 16) {
      if (groups & 1u << g) counts->keys += min(start + 16, end) - max(start, oldest);
    }
  }

  const HopperChunk& work_;
  const PromptChunk& chunk_;
  const uint32_t* bits_ = nullptr;
  FoundBlock* found_;
  int lane_, kv_head_, first_, base_, last_ = -1;
  int list_shift_ = 0;  // log2 of a list's blocks in 64 keys
  int oldest_[2], end_[2];
  int taken_ = 0, left_ = 0;  // in found_
  // Of the 32 blocks from base_ + 32 on: groups, and pages of boxes. Of those after them: words of
  // the lists.
  uint32_t next_groups_ = 0;
  int pages_[4] = {kNotWanted, kNotWanted, kNotWanted, kNotWanted};
  uint32_t words_[2] = {0, 0};
};

// Starts the copy of a block's keys, or values, to a stage; zeros if it is not there.
template <int D, bool Keys>
__device__ void copyBlock(const HopperChunk& work, const FoundBlock& found, bool there, uint32_t to,
                          SharedBarrier* full) {
  constexpr int kColumnBytes = HopperShared<D>::kColumnBytes;
  const PromptChunk& chunk = work.chunk;
  const int rows = 1 << work.box_shift;
#pragma unroll 1
  for (int key = 0; key < kTileKeys64; key += rows) {
    const int table = there ? found.tables[key >> work.box_shift]
                            : static_cast<int>(chunk.pages) * chunk.kv_heads;
    const int y = there ? (found.block * kTileKeys64 + key) & ((1 << chunk.page_shift) - 1) : 0;
    if constexpr (Keys) {
#pragma unroll
      for (int column = 0; column < D / 64; ++column) {
        copyBox(to + static_cast<uint32_t>(column * kColumnBytes + key * 128), work.keys,
                64 * column, y, table, full);
      }
    } else {
      copyBox(to + static_cast<uint32_t>(key * D * 2), work.values, y / 16, table, full);
    }
  }
}

// A copying warp: of keys, when it also writes the stages' notes and, into [stages][2] unless it is
// null, their blocks; or of values.
template <int D, bool Keys>
__device__ void copyStages(const HopperChunk& work, HopperShared<D>& shared, int lane,
                           FoundBlock (*stage_blocks)[2] = nullptr) {
  using Shared = HopperShared<D>;
  constexpr int kStages = Shared::kStages;
  const PromptChunk& chunk = work.chunk;
  SharedBarrier* full = Keys ? shared.key_full : shared.value_full;
  SharedBarrier* empty = Keys ? shared.key_empty : shared.value_empty;
  uint32_t made = 0;
  for (uint32_t i = 0;; ++i) {
    shared.item_full[i % 2].wait(i / 2 & 1);
    const int number = shared.items[i % 2];
    if (number == kNoItem) return;
    // Of an item without keys the warp groups do not wait for this warp.
    if (!Keys) {
      __syncwarp();
      if (lane == 0) shared.query_empty[i % 2].arrive();
    }
    const HopperItem item = HopperItem::of(work, number);
    KeyBlocksOf blocks(work, item, lane, shared.found[Keys ? 0 : 1]);
    for (bool is_last = false; !is_last;) {
      const int left = blocks.left(), taken = min(left, 2);
      is_last = left <= 2;
      if (!Keys && taken == 0) break;
      const uint32_t stage = made % kStages;
      empty[stage].wait((made / kStages & 1) ^ 1);
      ++made;
      if (isElected()) {
        if (Keys) {
          StageNote note;
          note.is_last = is_last;
          if (taken > 0) note.block[0] = blocks[0].block, note.groups[0] = blocks[0].groups;
          if (taken > 1) note.block[1] = blocks[1].block, note.groups[1] = blocks[1].groups;
          shared.notes[stage] = note.packed();
          if (stage_blocks) {
            for (int b = 0; b < taken; ++b) stage_blocks[stage][b] = blocks[b];
          }
        }
        if (taken == 0) {
          full[stage].arrive();  // an item without keys
        } else {
          full[stage].arriveWithBytes(Shared::kStageBytes);
          uint32_t to = sharedAddress(Keys ? shared.keys[stage] : shared.values[stage]);
          copyBlock<D, Keys>(work, blocks[0], true, to, &full[stage]);
          to += kTileKeys64 * (Keys ? 128 : D * 2);
          copyBlock<D, Keys>(work, blocks[1], taken == 2, to, &full[stage]);
        }
      }
      __syncwarp();
      blocks.drop(taken);
    }
    if (!Keys) continue;
    if (chunk.statistics && chunk.bits) {
#pragma unroll
      for (int w = 0; w < 2; ++w) {
        BlockCounts counts;
        counts.groups = __reduce_add_sync(kAll, blocks.counts[w].groups);
        counts.keys = counts.value_keys = __reduce_add_sync(kAll, blocks.counts[w].keys);
        if (lane == 0) addCounts<D>(chunk, counts, false, (2 * item.block + w) * kQueryBlock);
      }
    }
    const uint32_t outside = __reduce_or_sync(kAll, blocks.outside);
    if (outside && lane == 0) {
      report(chunk, PromptWrong::kPage, item.head, 2 * item.block + (outside & 1 ? 0 : 1));
    }
  }
}

// The thread that takes items and copies their queries.
template <int D>
__device__ void copyQueries(const HopperChunk& work, HopperShared<D>& shared) {
  const PromptChunk& chunk = work.chunk;
  const int items = chunk.heads * work.blocks;
  for (uint32_t i = 0;; ++i) {
    const uint32_t place = i % 2;
    SharedBarrier* full = &shared.query_full[place];
    shared.query_empty[place].wait((i / 2 & 1) ^ 1);
    const int taken = static_cast<int>(atomicAdd(work.tickets, 1u));
    const int number = shared.items[place] = taken < items ? taken : kNoItem;
    shared.item_full[place].arrive();
    if (number == kNoItem) {
      full->arrive();
      // The last block resets the counters for the next launch.
      if (atomicAdd(work.tickets + 1, 1u) == gridDim.x - 1) {
        work.tickets[0] = 0;
        work.tickets[1] = 0;
      }
      return;
    }
    const HopperItem item = HopperItem::of(work, number);
    full->arriveWithBytes(2 * HopperShared<D>::kQueryBytes);
#pragma unroll
    for (int group = 0; group < 2; ++group) {
#pragma unroll
      for (int column = 0; column < D / 64; ++column) {
        copyBox(sharedAddress(shared.queries[place][group]) +
                    static_cast<uint32_t>(column * kQueryBlock * 128),
                work.queries, 64 * column, item.head,
                (2 * item.block + group) * kQueryBlock - chunk.first, full);
      }
    }
  }
}

#endif

}  // namespace allot::kernels::cuda
