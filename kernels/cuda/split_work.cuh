#pragma once
// The split kernel's work and its distribution (step.h). The splits of all rows are cut into
// shares, one a team of warps. A warp visits its places of the share in order. Device code.
#include <type_traits>

#include "kernels/cuda/primitives.cuh"

namespace allot::kernels::cuda {

// A thread in its warp. g and t are PTX's groupID and threadID_in_group: of an m16n8 accumulator,
// lane 4 g + t holds rows g and g + 8 of columns 2 t and 2 t + 1.
struct Lane {
  int id, g, t;
  __device__ static Lane here() {
    const int id = threadIdx.x % 32;
    return {id, id / 4, id % 4};
  }
};

// A row in a block's shared memory.
struct RowSplits {
  int before;     // splits of earlier rows; splits that a warp joins count as one
  uint32_t keys;  // the row's length; the upper bit: all of its splits are exact
  __device__ int length() const { return static_cast<int>(keys & 0x7fffffff); }
  __device__ bool exact() const { return keys >> 31; }
};

// A warp's place in its share.
struct Place {
  int outer;   // split, counted as by RowSplits::before
  int within;  // KV head and head group
  int row;
  // By head: which heads of the head group are exact in the row, and which are sampled, a bit each.
  // kAsked is set in `exact` once the kinds are known.
  uint32_t exact, sampled;
  // If exact head groups are smaller (exactHeadGroup): which of them, and if another one follows.
  int sub_group;
  bool again;
  static constexpr uint32_t kAsked = 1u << 31;
};

// One split of one KV head, for one head group; of exact rows up to kJoinedSplits splits.
struct Work {
  int row;
  int kv_head;
  int head_group;  // of exact rows counted in their head groups (exactHeadGroup)
  int split;
  int first;  // its first key
  int keys;   // of a split
  int count;  // keys, of this split and those joined to it
  int dead;   // how many of `count`, the first ones, are before the row's window
  bool exact;
};
// Work of heads with their own budgets.
struct HeadWork : Work {
  uint32_t heads;  // those of the head group that it is for, a bit each
};
template <bool kByHead>
using WorkOf = std::conditional_t<kByHead, HeadWork, Work>;

// Return the index of head i of the work's head group, and true if the group has a head i.
template <int kHeadGroup>
__device__ inline int headOf(const Step& step, const Work& work, int i) {
  return work.kv_head * step.in.group + work.head_group * kHeadGroup + i;
}
template <int kHeadGroup>
__device__ inline bool hasHead(const Step& step, const Work& work, int i) {
  return work.head_group * kHeadGroup + i < step.in.group;
}
// Returns true if the work's results are for that head.
template <int kHeadGroup>
__device__ inline bool isFor(const Step& step, const Work& work, int i) {
  return hasHead<kHeadGroup>(step, work, i);
}
template <int kHeadGroup>
__device__ inline bool isFor(const Step&, const HeadWork& work, int i) {
  return work.heads >> i & 1;
}

// Returns the heads of the group that the work's results are for, a bit each.
template <int kHeadGroup>
__device__ inline uint32_t headsOf(const Step& step, const Work& work) {
  const int heads = step.in.group - work.head_group * kHeadGroup;
  return (1u << min(heads, kHeadGroup)) - 1;
}
template <int kHeadGroup>
__device__ inline uint32_t headsOf(const Step&, const HeadWork& work) {
  return work.heads;
}

// Which heads of a group a lane has scores and sums of: those in the columns 2 t and 2 t + 1 of
// accumulators. In a head group of 4 a head has both columns of its lanes; larger ones have a head
// a column, and one of 16 has two accumulators.
template <int kHeadGroup>
struct HeadGroupLayout {
  static_assert(kHeadGroup == kSmallHeadGroup || kHeadGroup == 8 || kHeadGroup == kMaxHeadGroup);
  static constexpr int kOfLane = kHeadGroup / 4;           // heads of a lane
  static constexpr int kTiles = kHeadGroup == 16 ? 2 : 1;  // accumulators of eight columns
  // Returns head i of lane 4 g + t; ofLane() and laneT() are the inverse.
  __device__ static constexpr int head(int t, int i) {
    return kHeadGroup == kSmallHeadGroup ? t : i / 2 * 8 + 2 * t + i % 2;
  }
  __device__ static constexpr int ofLane(int head) {
    return kHeadGroup == kSmallHeadGroup ? 0 : head / 8 * 2 + head % 2;
  }
  __device__ static constexpr int laneT(int head) {
    return kHeadGroup == kSmallHeadGroup ? head : head % 8 / 2;
  }
  // Returns the lane 4 g whose g is B's column of head i of the lanes with this t.
  __device__ static constexpr int columnLane(int t, int i) {
    return kHeadGroup == kSmallHeadGroup ? 8 * t : 8 * t + 4 * (i % 2);
  }
};

// Returns the head group of exact rows in a split kernel with head groups of `head_group`. It is 4
// beside the shadow: larger ones need too many registers, and few rows are exact.
constexpr int exactHeadGroup(SplitMode mode, int head_group) {
  return mode == SplitMode::kShadow ? kSmallHeadGroup : head_group;
}

// Returns the position of a key in the pool, in entries: a pool has fewer than 2^32.
__device__ inline uint32_t entryAt(const Step& step, int page, int kv_head, int key) {
  const int within = key & ((1 << step.cache.page_shift) - 1);
  return (static_cast<uint32_t>(page * step.cache.kv_heads + kv_head) << step.cache.page_shift) +
         within;
}

// Returns to lane i the page of keys 16 i .. 16 i + 15 of the work; 0 for keys that are not read.
__device__ inline int pagesOf(const Step& step, const Work& work, int lane) {
  if (lane * kSubtileKeys >= work.count || lane < work.dead / kSubtileKeys) return 0;
  const int page = (work.first + lane * kSubtileKeys) >> step.cache.page_shift;
  return step.in.page_table[static_cast<int64_t>(work.row) * step.in.max_pages + page];
}

// A warp's share. A team has a warp for each KV head and head group and processes a split together,
// since KV heads are neighbours in memory. The splits of a share are neighbours, too, so that
// queries stay in registers. A team's warps are neighbours, or of different blocks if splits are
// few or keys are drawn or chosen.
template <SplitMode kMode, bool kByHead, int kHeadGroup>
class WarpShare {
  static constexpr bool kExactAlone = kMode == SplitMode::kExact || kMode == SplitMode::kJoined;
  static constexpr int kExactHeadGroup = exactHeadGroup(kMode, kHeadGroup),
                       kSubGroups = kHeadGroup / kExactHeadGroup;

 public:
  // Return the warps of a team, and the number of teams.
  __device__ static int teamOf(const Step& step) {
    return step.cache.kv_heads * headGroupsOf(step, kHeadGroup);
  }
  __device__ static int teamsOf(const Step& step) {
    return max(static_cast<int>(gridDim.x * (blockDim.x / 32)) / teamOf(step), 1);
  }

  // at_once: exact splits that row_splits counts as one.
  __device__ WarpShare(const Step& step, const RowSplits* row_splits, int at_once)
      : step_(step), row_splits_(row_splits), at_once_(at_once) {
    const int splits = row_splits[step.in.rows].before;
    warps_ = gridDim.x * (blockDim.x / 32);
    const int teams = teamsOf(step);
    const int in_block = threadIdx.x / 32;
    const bool neighbours = kExactAlone && splits >= teams;
    const int warp =
        neighbours ? blockIdx.x * (blockDim.x / 32) + in_block : in_block * gridDim.x + blockIdx.x;
    const int team = min(warp / teamOf(step), teams);
    within_ = warp % teamOf(step);
    if (splits <= teams) {
      begin_ = min(team, splits);
      end_ = min(team + 1, splits);
    } else {
      begin_ = static_cast<int>(static_cast<int64_t>(splits) * team / teams);
      end_ = team < teams ? static_cast<int>(static_cast<int64_t>(splits) * (team + 1) / teams)
                          : begin_;
    }
  }

  __device__ Place begin() const { return {begin_, begin_ < end_ ? within_ : teamOf(step_)}; }
  // Returns true if there is work. By head skips places that no head of the head group needs.
  __device__ bool has(Place& place) const {
    if constexpr (kByHead) {
      while (place.within < teamOf(step_) && !isNeeded(place)) goOn(place);
    }
    return place.within < teamOf(step_);
  }
  // Goes to the next place.
  // Requires: at(place) has been called.
  __device__ void goOn(Place& place) const {
    if constexpr (kSubGroups > 1) {
      place.sub_group = place.again ? place.sub_group + 1 : 0;
      if (place.again) return;
    }
    if (++place.outer < end_) return;
    // With fewer warps than a team has, visits the other heads of the same splits.
    place = {begin_, place.within + warps_};
  }

  __device__ WorkOf<kByHead> at(Place& place) const {
    while (row_splits_[place.row + 1].before <= place.outer) ++place.row;
    const RowSplits row = row_splits_[place.row];
    WorkOf<kByHead> work;
    work.row = place.row;
    work.kv_head = headGroups() == 1 ? place.within : place.within / headGroups();
    work.head_group = headGroupOf(place);
    work.split = (place.outer - row.before) * atOnce();
    work.exact = kExactAlone || row.exact();
    const int n = row.length();
    if constexpr (kByHead) {
      // Sampled splits come first; exact ones may follow.
      const int sampled = work.exact ? 0 : cuda::splitsOf(keysOf(step_, n).span());
      work.exact = work.split >= sampled;
      if (work.exact) work.split -= sampled;
      work.heads = work.exact ? place.exact >> place.sub_group * kExactHeadGroup &
                                    ((1u << kExactHeadGroup) - 1)
                              : place.sampled;
    }
    if constexpr (kSubGroups > 1) {
      if (work.exact) work.head_group = work.head_group * kSubGroups + place.sub_group;
      place.again = work.exact && place.sub_group + 1 < kSubGroups &&
                    work.head_group + 1 < headGroupsOf(step_, kExactHeadGroup);
    }
    const RowKeys all = work.exact ? exactKeysOf(step_, n) : keysOf(step_, n);
    work.keys = work.exact ? exactSplitKeys(all.span()) : kSplitKeys;
    work.first = all.base + work.split * work.keys;
    work.count = min(work.keys * atOnce(), all.n - work.first);
    work.dead = max(all.first - work.first, 0);
    return work;
  }

  // Returns true if copied keys and values are read by no other head group, and not gathered again.
  // Smaller exact head groups each copy them.
  __device__ bool readsOnce(bool exact) const {
    if (kExactAlone) return true;
    return kMode != SplitMode::kFlash && headGroups() == 1 && !(kSubGroups > 1 && exact);
  }

  // Returns a number that names the queries of the work.
  __device__ int queriesOf(const Work& work) const {
    return (work.row * step_.cache.kv_heads + work.kv_head) * (headGroups() * kSubGroups) +
           work.head_group;
  }
  // Returns the splits of a row's sampled heads.
  __device__ int splitsOf(int row) const {
    if constexpr (kByHead) {  // `before` also counts splits of exact heads
      return cuda::splitsOf(keysOf(step_, row_splits_[row].length()).span());
    }
    return row_splits_[row + 1].before - row_splits_[row].before;
  }

 private:
  // Computed from the kernel's constants, since registers are scarce.
  __device__ static int headGroupsOf(const Step& step, int head_group) {
    return (step.in.group + head_group - 1) / head_group;
  }
  __device__ int headGroups() const { return headGroupsOf(step_, kHeadGroup); }
  __device__ int atOnce() const { return kMode == SplitMode::kJoined ? at_once_ : 1; }
  __device__ int headGroupOf(const Place& place) const {
    return headGroups() == 1 ? 0 : place.within % headGroups();
  }

  // Returns true if a head needs the place. The warp finds the kinds of heads when the row changes.
  __device__ bool isNeeded(Place& place) const {
    const int row = place.row;
    const HeadWork work = at(place);
    if (place.exact != 0 && place.row == row) return work.heads != 0;
    const int group = step_.in.group;
    const int own = threadIdx.x % 32, h = headGroupOf(place) * kHeadGroup + own;
    HeadKind kind = HeadKind::kSilent;
    if (own < kHeadGroup && h < group) {
      kind = kindOf<kByHead>(step_, work.row, work.kv_head * group + h);
    }
    place.exact = Place::kAsked | __ballot_sync(kAll, kind == HeadKind::kExact);
    place.sampled = __ballot_sync(kAll, kind == HeadKind::kSampled);
    return at(place).heads != 0;
  }

  const Step& step_;
  const RowSplits* row_splits_;  // [rows + 1], shared memory
  int at_once_;
  int warps_, within_, begin_, end_;
};

// The kinds of heads of a row. With one budget all heads are of one kind.
struct Kinds {
  bool exact = false, sampled = false;
};
template <bool kByHead>
__device__ inline Kinds kindsOf(const Step& step, int row) {
  Kinds kinds;
#pragma unroll 8
  for (int h = 0; h < (kByHead ? step.in.heads : 1); ++h) {
    const HeadKind kind = kindOf<kByHead>(step, row, h);
    kinds.exact |= kind == HeadKind::kExact;
    kinds.sampled |= kind == HeadKind::kSampled;
  }
  return kinds;
}

// Writes row_splits[0 .. rows], with all threads of the block. Returns how many exact splits a warp
// joins, atOnce(number of all splits). RowSplits::before counts joined splits once.
template <bool kByHead, typename Function>
__device__ inline int countSplits(const Step& step, RowSplits* row_splits, Function atOnce) {
  __shared__ int at_once;
  for (int row = threadIdx.x; row < step.in.rows; row += blockDim.x) {
    const Kinds kinds = kindsOf<kByHead>(step, row);
    const int n = step.in.lengths[row];
    int splits = kinds.exact ? exactSplitsOf(exactKeysOf(step, n).span()) : 0;
    if (kinds.sampled) splits = (kByHead ? splits : 0) + splitsOf(keysOf(step, n).span());
    row_splits[row] = {splits, kinds.exact && !kinds.sampled ? n | 0x80000000u : n};
  }
  __syncthreads();
  if (threadIdx.x < 32) {
    const int lane = threadIdx.x;
    int all = 0;
    for (int row = lane; row < step.in.rows; row += 32) {
      all += row_splits[row].before;
    }
    const int taken = atOnce(__reduce_add_sync(kAll, all));
    int before = 0;
    for (int first = 0; first < step.in.rows; first += 32) {
      const int row = first + lane;
      const bool there = row < step.in.rows;
      const int own = there ? (row_splits[row].before + taken - 1) / taken : 0;
      int sum = own;
      for (int i = 1; i < 32; i *= 2) {
        const int left = __shfl_up_sync(kAll, sum, i);
        if (lane >= i) sum += left;
      }
      if (there) row_splits[row].before = before + sum - own;
      before += __shfl_sync(kAll, sum, 31);
    }
    if (lane == 0) {
      row_splits[step.in.rows] = {before, 0};
      at_once = taken;
    }
  }
  __syncthreads();
  return at_once;
}

}  // namespace allot::kernels::cuda
