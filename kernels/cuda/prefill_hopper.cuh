#pragma once
// Attention of a chunk on Hopper: the warp groups that compute, and the kernel. Device code.
//
// The pipeline is FlashAttention-3's (Shah et al. 2024): a warp group asks for the scores of a
// stage before it adds the values of the stage before, and weighs the scores while these are added;
// the two groups ask in turn. References in place of running maxima spare most blocks the search
// for their largest score.
#include "kernels/cuda/prefill_hopper_copy.cuh"

namespace allot::kernels::cuda {

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

constexpr float kLargestSum = 256;  // of a thread's weights of a block, without a new reference

// A warp group's part of an item. A block of 64 keys has eight columns of scores, [8][4] as a
// thread has them, and four of weights.
template <int D>
class HopperGroup {
 public:
  using Shared = HopperShared<D>;
  static constexpr int kStages = Shared::kStages;

  __device__ HopperGroup(const HopperChunk& work, Shared& shared, int group, int thread)
      : work_(work),
        chunk_(work.chunk),
        shared_(shared),
        group_(group),
        thread_(thread),
        lane_(thread % 32),
        warp_(thread / 32),
        scale2_(work.chunk.scale * kLog2E) {}

  __device__ void run() {
    // The first group has the first turn.
    if (work_.takes_turns && group_ == 1) arriveAt(1, 256);
    forEachItem([&](const HopperItem& item, uint32_t place) { attend(item, place); });
  }

 protected:
  // Calls body(item, where its queries are).
  template <typename Body>
  __device__ void forEachItem(const Body& body) {
    for (uint32_t i = 0;; ++i) {
      const uint32_t place = i % 2;
      shared_.query_full[place].wait(i / 2 & 1);
      const int number = shared_.items[place];
      if (number == kNoItem) return;
      body(HopperItem::of(work_, number), place);
    }
  }
  // Frees the item's queries and writes its outputs.
  __device__ void endItem(const HopperItem& item, uint32_t place, const RunningOutput<D>& made) {
    release(&shared_.query_empty[place]);
    writeOutput<D>(chunk_, item.head, rowOf(item), lane_, scale2_, made);
  }
  // Returns the first position of the warp's 16 queries.
  __device__ int rowOf(const HopperItem& item) const {
    return (2 * item.block + group_) * kQueryBlock + warp_ * 16;
  }
  // Waits for the next stage's keys; returns their stage.
  __device__ uint32_t awaitKeys() {
    const uint32_t stage = keys_read_ % kStages;
    shared_.key_full[stage].wait(keys_read_ / kStages & 1);
    ++keys_read_;
    return stage;
  }
  __device__ uint32_t queryLow(uint32_t place) const {
    return lowWord(sharedAddress(shared_.queries[place][group_]));
  }
  // What brings the sums of rows g and g + 8 to a block's references.
  struct Raise {
    float factors[2] = {1, 1};
    bool any = false;  // in the warp
  };

  __device__ void release(SharedBarrier* barrier) {
    __syncwarp();
    if (lane_ == 0) barrier->arrive();
  }
  __device__ void passTurn() {
    if (work_.takes_turns) arriveAt(2 - group_, 256);
  }
  // The low words of descriptors.
  __device__ uint32_t keyLow(uint32_t stage) const {
    return lowWord(sharedAddress(shared_.keys[stage]));
  }
  __device__ uint32_t valueLow(uint32_t stage) const {
    return lowWord(sharedAddress(shared_.values[stage]), 2048);
  }
  static constexpr uint32_t kKeyHalf = kTileKeys64 * 128 >> 4;
  static constexpr uint32_t kValueHalf = 4 * Shared::kGroupBytes >> 4;

  __device__ void attend(const HopperItem& item, uint32_t place) {
    const int begin = item.begin(chunk_, group_), end = item.end(chunk_, group_);
    const int row = rowOf(item);
    const uint32_t query_low = queryLow(place);
    const bool has_tail = end == chunkEnd(chunk_) && end % kTileKeys64 != 0;
    RunningOutput<D> made;
    // A stage whose values are not added yet: its weights are in weights[pending - 1].
    uint32_t weights[2][8][4];
    int pending = 0;
    Raise second;  // by its second block
    for (bool is_last = false; !is_last;) {
      const uint32_t stage = awaitKeys();
      const StageNote note = noteOf(stage);
      is_last = note.is_last;
      const int halves = (note.own(0, group_) ? 1 : 0) | (note.own(1, group_) ? 2 : 0);
      if (work_.takes_turns) syncAt(1 + group_, 256);
      if (pending && halves == 3) {
        if (pending == 1) {
          addAndScore(note, stage, query_low, row, weights[0], weights[1], second, made);
        } else {
          addAndScore(note, stage, query_low, row, weights[1], weights[0], second, made);
        }
        pending = 3 - pending;
      } else {
        if (pending == 1) addPending(weights[0], second, made);
        if (pending == 2) addPending(weights[1], second, made);
        pending = 0;
        if (halves == 3) {
          score(note, stage, query_low, row, weights[0], second, made);
          pending = 1;
        } else if (halves == 0) {
          passTurn();
          release(&shared_.key_empty[stage]);
          if (note.any()) passValues();
        } else {
          addHalf(note, stage, query_low, row, halves - 1, has_tail, made);
        }
      }
      if (has_tail && halves == 3 && note.block[1] == end / kTileKeys64) {
        clearTail(awaitValues(), 1);
      }
    }
    if (pending == 1) addPending(weights[0], second, made);
    if (pending == 2) addPending(weights[1], second, made);
    endItem(item, place, made);
    if (chunk_.statistics && !chunk_.bits && thread_ == 0) addCounts<D>(chunk_, {}, true, row);
  }

  // Adds the values of the stage before, by its weights `now`, and computes this stage's weights.
  __device__ void addAndScore(const StageNote& note, uint32_t stage, uint32_t query_low, int row,
                              uint32_t (&now)[8][4], uint32_t (&then)[8][4], Raise& second,
                              RunningOutput<D>& made) {
    float scores[16][4];
    startScores(query_low, keyLow(stage), scores);
    const uint32_t values = valueLow(awaitValues());
    startValues<0>(now, values, made);
    if (second.any) {
      wgmmaWait<0>();
      hold(made.sums);
      rescale(second, made);
    }
    startValues<4>(now, values + kValueHalf, made);
    passTurn();
    wgmmaWait<2>();
    hold(scores);
    release(&shared_.key_empty[stage]);
    Raise first;
    maskBoth(note, row, scores);
    weighBoth(scores, then, made, first, second);
    // The values' products run beside this: it is computed before the wait, and in other registers.
    // Each branch has a wait, since the compiler moves one to the beginning of its block.
    hold(then);
    if (first.any) {
      wgmmaWait<0>();
      hold(made.sums);
      rescale(first, made);
    } else {
      wgmmaWait<0>();
      hold(made.sums);
    }
    hold(now);
    freeValues();
  }
  // Computes a stage's weights.
  __device__ void score(const StageNote& note, uint32_t stage, uint32_t query_low, int row,
                        uint32_t (&then)[8][4], Raise& second, RunningOutput<D>& made) {
    float scores[16][4];
    startScores(query_low, keyLow(stage), scores);
    passTurn();
    wgmmaWait<0>();
    hold(scores);
    release(&shared_.key_empty[stage]);
    Raise first;
    maskBoth(note, row, scores);
    weighBoth(scores, then, made, first, second);
    if (first.any) rescale(first, made);
  }
  // Computes the weights of a stage's only block of this group, and adds its values.
  __device__ void addHalf(const StageNote& note, uint32_t stage, uint32_t query_low, int row,
                          int half, bool has_tail, RunningOutput<D>& made) {
    float scores[8][4];
    startScores(query_low, keyLow(stage) + static_cast<uint32_t>(half) * kKeyHalf, scores);
    passTurn();
    wgmmaWait<0>();
    hold(scores);
    release(&shared_.key_empty[stage]);
    mask(note.blockOf(half), note.own(half, group_), row, scores, 0);
    uint32_t weights[4][4];
    float sums[2];
    Raise raise;
    weigh(scores, 0, weights, made, sums);
    if (__any_sync(kAll, isAbove(sums, made))) {
      raiseTops(scores, 0, made, sums, raise);
      weigh(scores, 0, weights, made, sums);
      rescale(raise, made);
    }
    addTotals(sums, raise, made);
    const uint32_t values = awaitValues();
    if (has_tail && note.blockOf(half) == chunkEnd(chunk_) / kTileKeys64) clearTail(values, half);
    startValues<0>(weights, valueLow(values) + static_cast<uint32_t>(half) * kValueHalf, made);
    endValues(made);
  }

  // Returns the stage's note, which the compiler sees to be alike in all lanes.
  __device__ StageNote noteOf(uint32_t stage) const {
    const uint2 note = shared_.notes[stage];
    return StageNote::of({__shfl_sync(kAll, note.x, 0), __shfl_sync(kAll, note.y, 0)});
  }

  // Starts the products of queries and 8 N keys.
  template <int N>
  __device__ static void startScores(uint32_t query_low, uint32_t key_low, float (&scores)[N][4]) {
    hold(scores);
    wgmmaFence();
#pragma unroll
    for (int k = 0; k < D / 16; ++k) {
      scoreTile(scores, tileOf(query_low + k / 4 * (kQueryBlock * 8) + k % 4 * 2),
                tileOf(key_low + k / 4 * (Shared::kColumnBytes / 16) + k % 4 * 2), k == 0);
    }
    wgmmaCommit();
  }
  // Waits for the next stage's values; returns their stage.
  __device__ uint32_t awaitValues() const {
    const uint32_t stage = values_read_ % kStages;
    shared_.value_full[stage].wait(values_read_ / kStages & 1);
    return stage;
  }
  // Starts the products of four columns of weights and a block's values.
  template <int First, int N>
  __device__ static void startValues(const uint32_t (&weights)[N][4], uint32_t value_low,
                                     RunningOutput<D>& made) {
    hold(made.sums);
    wgmmaFence();
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      addTile(made.sums, weights[First + k], tileOf(value_low + k * (Shared::kGroupBytes >> 4)));
    }
    wgmmaCommit();
  }
  __device__ void freeValues() {
    release(&shared_.value_empty[values_read_ % kStages]);
    ++values_read_;
  }
  __device__ void endValues(RunningOutput<D>& made) {
    wgmmaWait<0>();
    hold(made.sums);
    freeValues();
  }
  __device__ void addPending(const uint32_t (&weights)[8][4], const Raise& second,
                             RunningOutput<D>& made) {
    const uint32_t values = valueLow(awaitValues());
    startValues<0>(weights, values, made);
    wgmmaWait<0>();
    hold(made.sums);
    if (second.any) rescale(second, made);
    startValues<4>(weights, values + kValueHalf, made);
    endValues(made);
  }
  // Frees the next stage's values, which this group does not use.
  __device__ void passValues() {
    // They have to be there: a wait for the stage's next values needs the end of this phase.
    awaitValues();
    freeValues();
  }
  // Writes zeros over values behind the chunk's end, which may be anything: 0 times NaN is NaN.
  // This group alone reads the block in which the chunk ends.
  __device__ void clearTail(uint32_t stage, int half) {
    const int from = chunkEnd(chunk_) % kTileKeys64, rows = kTileKeys64 - from;
    for (int at = thread_; at < rows * (D / 8); at += 128) {
      const int key = half * kTileKeys64 + from + at / (D / 8), part = at % (D / 8);
      *reinterpret_cast<uint4*>(shared_.values[stage] + key / 16 * Shared::kGroupBytes +
                                part / 8 * 2048 + key % 16 * 128 + part % 8 * 16) = {0, 0, 0, 0};
    }
    fenceProducts();
    syncAt(3 + group_, 128);
  }

  // Turns the scores of a block, columns `first` .. + 7, into weights relative to the references
  // made.top, in the A operand of products with values: columns first / 2 .. + 3. `sums`: of this
  // thread's weights before they are rounded.
  template <int N, int M>
  __device__ void weigh(const float (&scores)[N][4], int first, uint32_t (&weights)[M][4],
                        const RunningOutput<D>& made, float (&sums)[2]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float top = made.top[half];
      const float shift = top == minusInfinity() ? 0.0f : top * scale2_;
      float some[2] = {0, 0};
#pragma unroll
      for (int n = first; n < first + 8; ++n) {
        float x[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          x[i] = power2(fmaf(scores[n][2 * half + i], scale2_, -shift));
          some[i] += x[i];
        }
        weights[n / 2][n % 2 * 2 + half] = pairOf(x[0], x[1]);
      }
      sums[half] = some[0] + some[1];
    }
  }
  // Returns true if the thread's part of a row asks for a larger reference: without the row's
  // largest score, which would have to be found before its weights.
  __device__ static bool isAbove(float sum, float top) {
    return !(sum <= kLargestSum) || top == minusInfinity();
  }
  __device__ static bool isAbove(const float (&sums)[2], const RunningOutput<D>& made) {
    return isAbove(sums[0], made.top[0]) || isAbove(sums[1], made.top[1]);
  }
  // Makes the largest score so far the reference of the rows that ask for it.
  template <int N>
  __device__ void raiseTops(const float (&scores)[N][4], int first, RunningOutput<D>& made,
                            const float (&sums)[2], Raise& raise) const {
    raise.any = true;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float most = scores[first][2 * half];
#pragma unroll
      for (int n = first; n < first + 8; ++n) {
        most = fmaxf(most, fmaxf(scores[n][2 * half], scores[n][2 * half + 1]));
      }
      const float top = made.top[half], larger = fmaxf(top, largestOfRow(most));
      const bool asks = isAbove(sums[half], top);
      const uint32_t asking = __ballot_sync(kAll, asks) >> (lane_ & ~3) & 15;
      if (asking && larger > top) {
        raise.factors[half] = power2((top - larger) * scale2_);
        made.top[half] = larger;
      }
    }
  }
  __device__ static void addTotals(const float (&sums)[2], const Raise& raise,
                                   RunningOutput<D>& made) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      made.total[half] = fmaf(made.total[half], raise.factors[half], sums[half]);
    }
  }
  // Turns the scores of a stage into weights.
  __device__ void weighBoth(const float (&scores)[16][4], uint32_t (&weights)[8][4],
                            RunningOutput<D>& made, Raise& first, Raise& second) const {
    float sums[2], more[2];
    first = second = {};
    weigh(scores, 0, weights, made, sums);
    weigh(scores, 8, weights, made, more);
    if (__any_sync(kAll, isAbove(sums, made) || isAbove(more, made))) {
      if (__any_sync(kAll, isAbove(sums, made))) {
        raiseTops(scores, 0, made, sums, first);
        weigh(scores, 0, weights, made, sums);
        weigh(scores, 8, weights, made, more);
      }
      if (__any_sync(kAll, isAbove(more, made))) {
        raiseTops(scores, 8, made, more, second);
        weigh(scores, 8, weights, made, more);
      }
    }
    addTotals(sums, first, made);
    addTotals(more, second, made);
  }
  __device__ static void rescale(const Raise& raise, RunningOutput<D>& made) {
#pragma unroll
    for (int n = 0; n < D / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) made.sums[n][i] *= raise.factors[i / 2];
    }
  }

  // Sets scores of a block, columns `to` .. + 7, that its query does not see to -infinity.
  template <int N>
  __device__ void mask(int block, uint32_t own, int row, float (&scores)[N][4], int to) const {
    if (own != 15) {
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        if (own >> n / 2 & 1) continue;
#pragma unroll
        for (int i = 0; i < 4; ++i) scores[to + n][i] = minusInfinity();
      }
    }
    const TilePlaces places = TilePlaces::at(block * kTileKeys64);
    if (isMasked(chunk_, places, row)) maskScores(chunk_, places, row, lane_, scores, to);
  }
  __device__ void maskBoth(const StageNote& note, int row, float (&scores)[16][4]) const {
    if (note.own(0, group_) == 15 && note.own(1, group_) == 15 &&
        (note.block[1] + 1) * kTileKeys64 - 1 <= row &&
        note.block[0] * kTileKeys64 >= oldestOf(chunk_, row + 15)) {
      return;
    }
    mask(note.block[0], note.own(0, group_), row, scores, 0);
    mask(note.block[1], note.own(1, group_), row, scores, 8);
  }

  const HopperChunk& work_;
  const PromptChunk& chunk_;
  Shared& shared_;
  const int group_, thread_, lane_, warp_;
  const float scale2_;
  uint32_t keys_read_ = 0, values_read_ = 0;
};

#endif

// Registers a thread: at the kernel's start, then of the copying warps and of the warp groups.
constexpr int kAtStart = 168, kCopying = 56, kComputing = 224;
static_assert(128 * kCopying + 256 * kComputing == 384 * kAtStart);

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
// `readers`: warps that tell when an item's queries, or its number, were read.
// Requires: one thread calls it, and fenceBarriers() and a barrier of the block follow.
template <int D>
__device__ void startBarriers(HopperShared<D>& shared, uint32_t readers) {
  for (int i = 0; i < 2; ++i) {
    shared.item_full[i].start(1);
    shared.query_full[i].start(1);
    shared.query_empty[i].start(readers);
  }
  for (int i = 0; i < HopperShared<D>::kStages; ++i) {
    shared.key_full[i].start(1);
    shared.value_full[i].start(1);
    shared.key_empty[i].start(8);
    shared.value_empty[i].start(8);
  }
}
#endif

template <int D>
__global__ void __launch_bounds__(384, 1) attendHopper(const __grid_constant__ HopperChunk work) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using Shared = HopperShared<D>;
  extern __shared__ __align__(1024) uint8_t memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32;
  if (thread == 0) {
    startBarriers(shared, 9);  // the computing warps, and the warp that copies values
    fenceBarriers();
  }
  __syncthreads();
  if (warp >= 4) {
    acquireRegisters<kComputing>();
    const int group = warp / 4 - 1;
    HopperGroup<D>(work, shared, group, thread - 128 * (group + 1)).run();
  } else {
    releaseRegisters<kCopying>();
    if (warp == 0) {
      copyStages<D, true>(work, shared, thread);
    } else if (warp == 1) {
      copyStages<D, false>(work, shared, thread - 32);
    } else if (thread == 64) {
      copyQueries<D>(work, shared);
    }
  }
#else
  __trap();  // launched where Device::is_hopper was wrong
#endif
}

}  // namespace allot::kernels::cuda
