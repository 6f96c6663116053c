#pragma once
// The sweep's work and who does it (step.h): the pieces of all sequences of the batch are cut into
// shares, one a warp, and a warp's place in its share only goes on.
#include <type_traits>

#include "kernels/cuda/primitives.cuh"

namespace allot::kernels::cuda {

// A thread in its warp. g and t are what PTX calls groupID and threadID_in_group: of an
// accumulator of m16n8, lane 4 g + t holds rows g and g + 8 of columns 2 t and 2 t + 1.
struct Lane {
  int id, g, t;
  __device__ static Lane here() {
    const int id = threadIdx.x % 32;
    return {id, id / 4, id % 4};
  }
};

// What a block keeps of a sequence in shared memory.
struct SequencePieces {
  int before;     // pieces of the sequences before that are swept
  uint32_t keys;  // its length; the upper bit: it is exact, or all of its heads with pieces are
  __device__ int length() const { return static_cast<int>(keys & 0x7fffffff); }
  __device__ bool exact() const { return keys >> 31; }
};

struct Place {
  int outer;   // piece, counted over all sequences
  int within;  // KV head and quad
  int sequence;
  // By head: kinds of the quad's heads in the sequence, or 0 before they were asked for. A bit
  // each: exact ones, from bit kQuad on sampled ones, and one more.
  uint32_t kinds;
};

// One piece of one KV head, for up to kQuad of its query heads.
struct Work {
  int sequence;
  int kv_head;
  int quad;
  int piece;
  int first;  // key
  int count;  // keys
  int dead;   // of them, the first ones, before the sequence's window
  bool exact;
};
// The same where heads have budgets of their own.
struct HeadWork : Work {
  uint32_t heads;  // those of the quad that it is for, a bit each
};
template <bool kByHead>
using WorkOf = std::conditional_t<kByHead, HeadWork, Work>;

__device__ inline int headOf(const Step& step, const Work& work, int in_quad) {
  return work.kv_head * (step.in.heads / step.cache.kv_heads) + work.quad * kQuad + in_quad;
}
__device__ inline bool hasHead(const Step& step, const Work& work, int in_quad) {
  return work.quad * kQuad + in_quad < step.in.heads / step.cache.kv_heads;
}
// Whether what the work leaves is that head's.
__device__ inline bool isFor(const Step& step, const Work& work, int in_quad) {
  return hasHead(step, work, in_quad);
}
__device__ inline bool isFor(const Step&, const HeadWork& work, int in_quad) {
  return work.heads >> in_quad & 1;
}

// The position of a key in the pool, in entries: a pool has fewer than 2^32.
__device__ inline uint32_t entryAt(const Step& step, int page, int kv_head, int key) {
  const int within = key & ((1 << step.cache.page_shift) - 1);
  return (static_cast<uint32_t>(page * step.cache.kv_heads + kv_head) << step.cache.page_shift) +
         within;
}

// Lane i: the page of keys 16 i .. 16 i + 15 of the piece.
__device__ inline int pagesOf(const Step& step, const Work& work, int lane) {
  if (lane * kPart >= work.count || lane < work.dead / kPart) return 0;
  const int page = (work.first + lane * kPart) >> step.cache.page_shift;
  return step.in.page_table[static_cast<int64_t>(work.sequence) * step.in.max_pages + page];
}

// As many warps as there are KV heads and quads take a piece together, since its heads are
// neighbours in memory, and go on to the next pieces of the sequence, so that queries stay. Where
// pieces are few, teams are of warps of different blocks.
template <Sweep kSweep, bool kByHead>
class WarpShare {
 public:
  __device__ WarpShare(const Step& step, const SequencePieces* sequences)
      : step_(step), sequences_(sequences) {
    const int group = step.in.heads / step.cache.kv_heads;
    quads_ = (group + kQuad - 1) / kQuad;
    inner_ = step.cache.kv_heads * quads_;
    const int pieces = sequences[step.in.batch].before;
    warps_ = gridDim.x * (blockDim.x / 32);
    const int warp = (threadIdx.x / 32) * gridDim.x + blockIdx.x;
    const int teams = max(warps_ / inner_, 1);
    const int team = min(warp / inner_, teams);
    within_ = warp % inner_;
    if (pieces <= teams) {
      begin_ = min(team, pieces);
      end_ = min(team + 1, pieces);
    } else {
      begin_ = static_cast<int>(static_cast<int64_t>(pieces) * team / teams);
      end_ = team < teams ? static_cast<int>(static_cast<int64_t>(pieces) * (team + 1) / teams)
                          : begin_;
    }
  }

  __device__ Place begin() const { return {begin_, begin_ < end_ ? within_ : inner_, 0}; }
  // By head: goes on to what some head of the quad needs. What none does is not read.
  __device__ bool has(Place& place) const {
    if constexpr (kByHead) {
      while (place.within < inner_ && !isNeeded(place)) goOn(place);
    }
    return place.within < inner_;
  }
  __device__ void goOn(Place& place) const {
    if (++place.outer < end_) return;
    // Fewer warps than KV heads and quads: the others of the same pieces.
    place = {begin_, place.within + warps_, 0};
  }

  __device__ WorkOf<kByHead> at(Place& place) const {
    while (sequences_[place.sequence + 1].before <= place.outer) ++place.sequence;
    const SequencePieces sequence = sequences_[place.sequence];
    WorkOf<kByHead> work;
    work.sequence = place.sequence;
    work.kv_head = quads_ == 1 ? place.within : place.within / quads_;
    work.quad = quads_ == 1 ? 0 : place.within % quads_;
    work.piece = place.outer - sequence.before;
    work.exact = kSweep == Sweep::kExact || sequence.exact();
    const int n = sequence.length();
    if constexpr (kByHead) {
      // Sampled pieces come first, and exact ones may follow.
      const int sampled = work.exact ? 0 : cuda::piecesOf(keysOf(step_, n).span());
      work.exact = work.piece >= sampled;
      if (work.exact) work.piece -= sampled;
      work.heads = place.kinds >> (work.exact ? 0 : kQuad) & ((1 << kQuad) - 1);
    }
    const SequenceKeys all = work.exact ? exactKeysOf(step_, n) : keysOf(step_, n);
    const int keys = work.exact ? exactPieceKeys(all.span()) : kPieceKeys;
    work.first = all.base + work.piece * keys;
    work.count = min(keys, all.n - work.first);
    work.dead = max(all.first - work.first, 0);
    return work;
  }

  // A name of the queries that the work is for.
  __device__ int queriesOf(const Work& work) const {
    return (work.sequence * step_.cache.kv_heads + work.kv_head) * quads_ + work.quad;
  }
  // Of sampled heads.
  __device__ int piecesOf(int sequence) const {
    if constexpr (kByHead) {  // there may be those of exact heads beside them
      return cuda::piecesOf(keysOf(step_, sequences_[sequence].length()).span());
    }
    return sequences_[sequence + 1].before - sequences_[sequence].before;
  }

 private:
  // By the warp, which asks for kinds where the place has come to another sequence.
  __device__ bool isNeeded(Place& place) const {
    const int sequence = place.sequence;
    const HeadWork work = at(place);
    if (place.kinds != 0 && place.sequence == sequence) return work.heads != 0;
    const int h = threadIdx.x % 32;
    HeadKind kind = HeadKind::kSilent;
    if (h < kQuad && hasHead(step_, work, h)) {
      kind = kindOf<kByHead>(step_, work.sequence, headOf(step_, work, h));
    }
    place.kinds = 1 << 2 * kQuad | __ballot_sync(kAll, kind == HeadKind::kSampled) << kQuad |
                  __ballot_sync(kAll, kind == HeadKind::kExact);
    return at(place).heads != 0;
  }

  const Step& step_;
  const SequencePieces* sequences_;  // [batch + 1], shared memory
  int quads_, inner_;
  int warps_, within_, begin_, end_;
};

// Which kinds of heads a sequence has. All of its heads are of one where it has one budget.
struct Kinds {
  bool exact = false, sampled = false;
};
template <bool kByHead>
__device__ inline Kinds kindsOf(const Step& step, int sequence) {
  Kinds kinds;
#pragma unroll 8
  for (int h = 0; h < (kByHead ? step.in.heads : 1); ++h) {
    const HeadKind kind = kindOf<kByHead>(step, sequence, h);
    kinds.exact |= kind == HeadKind::kExact;
    kinds.sampled |= kind == HeadKind::kSampled;
  }
  return kinds;
}

// sequences[0 .. batch] of a block, by all its threads.
template <bool kByHead>
__device__ inline void countPieces(const Step& step, SequencePieces* sequences) {
  __shared__ int warp_totals[32];
  __shared__ int passed;
  if (threadIdx.x == 0) passed = 0;
  __syncthreads();
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int first = 0; first < step.in.batch; first += blockDim.x) {
    const int sequence = first + threadIdx.x;
    int pieces = 0;
    uint32_t keys = 0;
    if (sequence < step.in.batch) {
      const Kinds kinds = kindsOf<kByHead>(step, sequence);
      const int n = step.in.lengths[sequence];
      if (kinds.exact) pieces = exactPiecesOf(exactKeysOf(step, n).span());
      if (kinds.sampled) pieces = (kByHead ? pieces : 0) + piecesOf(keysOf(step, n).span());
      keys = kinds.exact && !kinds.sampled ? n | 0x80000000u : n;
    }
    int sum = pieces;
    for (int i = 1; i < 32; i *= 2) {
      const int left = __shfl_up_sync(kAll, sum, i);
      if (lane >= i) sum += left;
    }
    if (lane == 31) warp_totals[warp] = sum;
    __syncthreads();
    int before = passed;
    for (int w = 0; w < warp; ++w) before += warp_totals[w];
    if (sequence < step.in.batch) sequences[sequence] = {before + sum - pieces, keys};
    __syncthreads();
    if (threadIdx.x == blockDim.x - 1) passed = before + sum;
    __syncthreads();
  }
  if (threadIdx.x == 0) sequences[step.in.batch] = {passed, 0};
  __syncthreads();
}

}  // namespace allot::kernels::cuda
