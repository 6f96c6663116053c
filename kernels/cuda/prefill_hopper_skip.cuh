#pragma once
// skip-softmax on Hopper: prefill_hopper.cuh's kernel for warp groups that vote on each block of
// keys, and copy its values only if they are wanted. Device code.
//
// A warp group has two slots for values, of 64 keys. It adds a block's values when the next block
// is wanted or none is left: a copy has the time until then. The two groups do not share values.
#include "kernels/cuda/prefill_hopper.cuh"

namespace allot::kernels::cuda {

template <int D>
struct HopperSkipShared : HopperShared<D> {
  FoundBlock blocks[HopperShared<D>::kStages][2];  // of the stages
  SharedBarrier slot_full[2][2];                   // of a warp group's slots
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

template <int D>
class HopperSkippingGroup : HopperGroup<D> {
  using Group = HopperGroup<D>;
  using Group::chunk_, Group::group_, Group::lane_, Group::scale2_, Group::shared_;
  using Group::thread_, Group::work_;
  using typename Group::Shared;

 public:
  __device__ HopperSkippingGroup(const HopperChunk& work, HopperSkipShared<D>& shared, int group,
                                 int thread)
      : Group(work, shared, group, thread), skip_shared_(shared) {}

  __device__ void run() {
    Group::forEachItem([&](const HopperItem& item, uint32_t place) { attend(item, place); });
  }

 private:
  // What waits for its values: a block's weights, and the slot that the values go to.
  struct Pending {
    uint32_t weights[4][4];
    uint32_t slot = 0;
    bool any = false, has_tail = false;
  };

  __device__ void attend(const HopperItem& item, uint32_t place) {
    const int begin = item.begin(chunk_, group_), end = item.end(chunk_, group_);
    const int row = Group::rowOf(item), oldest = oldestOf(chunk_, begin);
    const uint32_t query_low = Group::queryLow(place);
    RunningOutput<D> made;
    Pending pending;
    BlockCounts counts;
    for (bool is_last = false; !is_last;) {
      const uint32_t stage = Group::awaitKeys();
      const StageNote note = Group::noteOf(stage);
      is_last = note.is_last;
      if (note.own(0, group_) || note.own(1, group_)) {
        float scores[16][4];
        Group::startScores(query_low, Group::keyLow(stage), scores);
        wgmmaWait<0>();
        hold(scores);
        Group::maskBoth(note, row, scores);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          if (!note.own(half, group_)) continue;
          const int key = note.blockOf(half) * kTileKeys64;
          const int keys = min(key + kTileKeys64, end) - max(key, oldest);
          counts.groups += kTileGroups;
          counts.keys += keys;
          float own[8][4], tops[2];
#pragma unroll
          for (int n = 0; n < 8; ++n) {
#pragma unroll
            for (int i = 0; i < 4; ++i) own[n][i] = scores[8 * half + n][i];
          }
          largestScores(own, tops);
          if (agree(isBelow(tops, made, row, begin, end), kVote + group_)) {
            ++counts.skipped;
            continue;
          }
          counts.value_keys += keys;
          const uint32_t slot = next_slot_++ % 2;
          if (thread_ == 0) copyValues(skip_shared_.blocks[stage][half], slot);
          add(&pending, made);
          made.raise(tops, scale2_);
          made.weigh(scale2_, own);
#pragma unroll
          for (int n = 0; n < 8; ++n) {
#pragma unroll
            for (int i = 0; i < 2; ++i) {
              pending.weights[n / 2][n % 2 * 2 + i] = pairOf(own[n][2 * i], own[n][2 * i + 1]);
            }
          }
          pending.slot = slot;
          pending.any = true;
          pending.has_tail = end == chunkEnd(chunk_) && end < key + kTileKeys64;
        }
      }
      Group::release(&shared_.key_empty[stage]);
    }
    add(&pending, made);
    Group::endItem(item, place, made);
    if (chunk_.statistics && thread_ == 0) addCounts<D>(chunk_, counts, false, row);
  }

  // Returns true if the thread's rows do not need a block whose largest scores are `tops`.
  __device__ bool isBelow(const float (&tops)[2], const RunningOutput<D>& made, int row, int begin,
                          int end) const {
    bool below = true;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int position = row + lane_ / 4 + 8 * half;
      const bool seen = position >= begin && position < end && tops[half] != minusInfinity();
      below = below && (!seen || (tops[half] - made.top[half]) * scale2_ < chunk_.log2_skip);
    }
    return below;
  }
  // Starts the copy of a block's values. All warps have read the slot: they voted since.
  __device__ void copyValues(const FoundBlock& block, uint32_t slot) {
    SharedBarrier* const full = &skip_shared_.slot_full[group_][slot];
    full->arriveWithBytes(kSlotBytes);
    copyBlock<D, false>(work_, block, true,
                        sharedAddress(shared_.values[group_]) + slot * kSlotBytes, full);
  }
  // Adds the pending block's values.
  __device__ __forceinline__ void add(Pending* pending, RunningOutput<D>& made) {
    if (!pending->any) return;
    skip_shared_.slot_full[group_][pending->slot].wait(slot_phases_ >> pending->slot & 1);
    slot_phases_ ^= 1u << pending->slot;
    if (pending->has_tail) Group::clearTail(group_, static_cast<int>(pending->slot));
    Group::template startValues<0>(
        pending->weights, Group::valueLow(group_) + pending->slot * Group::kValueHalf, made);
    wgmmaWait<0>();
    hold(made.sums);
    pending->any = false;
  }

  static constexpr int kVote = 4;  // agree()'s barriers are 5 and 6
  static constexpr uint32_t kSlotBytes = 4 * Shared::kGroupBytes;

  HopperSkipShared<D>& skip_shared_;
  uint32_t next_slot_ = 0, slot_phases_ = 0;  // slot_phases_: a bit a slot
};

#endif

template <int D>
__global__ void __launch_bounds__(384, 1)
    attendSkippingOnHopper(const __grid_constant__ HopperChunk work) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) uint8_t memory[];
  auto& shared = *reinterpret_cast<HopperSkipShared<D>*>(memory);
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32;
  if (thread == 0) {
    startBarriers(shared, 8);
    for (int i = 0; i < 4; ++i) shared.slot_full[i / 2][i % 2].start(1);
    fenceBarriers();
  }
  __syncthreads();
  if (warp >= 4) {
    acquireRegisters<kComputing>();
    const int group = warp / 4 - 1;
    HopperSkippingGroup<D>(work, shared, group, thread - 128 * (group + 1)).run();
  } else {
    releaseRegisters<kCopying>();
    if (warp == 0) {
      copyStages<D, true>(work, shared, thread, shared.blocks);
    } else if (thread == 64) {
      copyQueries<D>(work, shared);
    }
  }
#else
  __trap();  // launched where Device::is_hopper was wrong
#endif
}

}  // namespace allot::kernels::cuda
