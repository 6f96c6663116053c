#pragma once
// TileDrawer: s2anta-flash's draws of a split, by the warp that processed it, and the mean of the
// drawn values, which are fetched while the next split is scored. Device code, owned by one warp.
#include "allot/kernels/philox_streams.h"
#include "kernels/cuda/score_tile.cuh"

namespace allot::kernels::cuda {

// The draws of a head group in a split, numbered head by head. Every head has `each`.
template <bool kByHead>
struct SplitDraws {
  uint32_t each;
  __device__ uint32_t all(int heads) const { return each * heads; }
  __device__ uint32_t headOf(uint32_t draw) const { return draw / each; }
  __device__ uint32_t before(uint32_t head) const { return head * each; }
  __device__ uint32_t of(uint32_t) const { return each; }
};
// By head every head has its own number of draws, 0 if the head is silent or exact.
template <>
struct SplitDraws<true> {
  uint32_t ends[kSmallHeadGroup];  // of a head's draws among those of all
  __device__ uint32_t all(int) const { return ends[kSmallHeadGroup - 1]; }
  __device__ uint32_t headOf(uint32_t draw) const {
    uint32_t head = 0;
#pragma unroll
    for (uint32_t h = 0; h + 1 < kSmallHeadGroup; ++h) head += draw >= ends[h];
    return head;
  }
  __device__ uint32_t before(uint32_t head) const {
    uint32_t draws = 0;
#pragma unroll
    for (uint32_t h = 0; h < kSmallHeadGroup; ++h) draws = head == h + 1 ? ends[h] : draws;
    return draws;
  }
  __device__ uint32_t of(uint32_t head) const { return before(head + 1) - before(head); }
};

template <int kDim, typename T, bool kByHead>
class TileDrawer {
  using Layout = SplitLayout<kDim, SplitMode::kFlash, kSmallHeadGroup>;
  using Tile = typename Layout::Tile;
  using Elements = ElementOf<T>;
  using Sum = ValueSum<kDim, T, kSmallHeadGroup>;

 public:
  __device__ TileDrawer(const Step& step, const Lane& lane, uint8_t* memory)
      : step_(step),
        lane_(lane),
        scratch_(Layout::scratchOf(memory)),
        gathered_(sharedAddress(memory) + Layout::kSlots * Layout::kSlotBytes),
        lane_copy_(Tile::copiedBy(lane.id)),
        lane_value_(Tile::valuesOf(lane.id)) {}

  // Draws from the split's weights, which are in scratch, a line a head. `splits`: of the row;
  // max_score and sum: of head t.
  __device__ void draw(const WorkOf<kByHead>& work, int splits, float max_score, float sum) {
    const SplitDraws<kByHead> samples = samplesOf(work, splits);
    countDraws(work, samples, max_score, sum);
    auto* counted = reinterpret_cast<uint32_t*>(scratch_);  // weights are done with
    uint8_t* keys = scratch_ + kSplitKeys * sizeof(uint32_t);
    const int drawn = listDrawn(counted, keys);
    // The pending values were requested after the ring's slots. They have arrived once kSlots
    // subtiles have been scored since.
    const int scored = (work.count + kSubtileKeys - 1) / kSubtileKeys - work.dead / kSubtileKeys;
    if (scored < Layout::kSlots) waitCopies<0>();
    takePending();
    const float factor = 1.0f / static_cast<float>(samples.of(lane_.t));
    const int pages = pagesOf(step_, work, lane_.id);
    constexpr int kRoom = Layout::kGatherSlots * kSubtileKeys;
    Sum total;
    int first = 0;
    for (; drawn - first > kRoom; first += kRoom) {
      fetch(work, pages, keys, first, drawn);
      waitCopies<0>();
      __syncwarp();
      add(counted + first, kRoom, total);
      __syncwarp();
    }
    fetch(work, pages, keys, first, drawn);
    if (first > 0) {  // more than the gather slots hold: nothing stays pending
      waitCopies<0>();
      __syncwarp();
      add(counted + first, drawn - first, total);
      total.store(step_, work, lane_, factor);
      return;
    }
    for (int i = lane_.id; i < drawn; i += 32) drawScratch().pending[i] = counted[i];
    pending_ = work;
    pending_entries_ = drawn;
    pending_factor_ = factor;
  }

  // Adds and stores the pending values, which must have arrived.
  __device__ void takePending() {
    __syncwarp();
    if (pending_entries_ < 0) return;
    Sum total;
    add(drawScratch().pending, pending_entries_, total);
    total.store(step_, pending_, lane_, pending_factor_);
    pending_entries_ = -1;
    __syncwarp();
  }

 private:
  // Writes eight weights in units. Returns their sum.
  __device__ static uint32_t unitsOf(const uint4& eight, uint32_t (&units)[8]) {
    uint32_t total = 0;
    const uint32_t words[4] = {eight.x, eight.y, eight.z, eight.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 two = ElementOf<__half>::pair(words[i]);
      units[2 * i] = static_cast<uint32_t>(two.x * kWeightUnits);
      units[2 * i + 1] = static_cast<uint32_t>(two.y * kWeightUnits);
      total += units[2 * i] + units[2 * i + 1];
    }
    return total;
  }

  __device__ SplitDraws<kByHead> samplesOf(const WorkOf<kByHead>& work, int splits) const {
    if constexpr (kByHead) {
      uint32_t own = 0;  // of head t
      if (isFor<kSmallHeadGroup>(step_, work, lane_.t)) {
        const int head = headOf<kSmallHeadGroup>(step_, work, lane_.t);
        own = drawsOfSplit(budgetOf<kByHead>(step_, work.row, head), splits);
      }
      SplitDraws<kByHead> samples;
      uint32_t end = 0;
#pragma unroll
      for (int h = 0; h < kSmallHeadGroup; ++h) samples.ends[h] = end += __shfl_sync(kAll, own, h);
      return samples;
    } else {
      return {drawsOfSplit(step_.in.budgets[work.row], splits)};
    }
  }

  __device__ const uint4& weightsAt(int h, int eight) const {
    return *reinterpret_cast<const uint4*>(scratch_ + h * Layout::Scores::kLineBytes + eight * 16);
  }
  __device__ DrawScratch& drawScratch() const {
    return *reinterpret_cast<DrawScratch*>(scratch_ + kSmallHeadGroup * Layout::Scores::kLineBytes);
  }

  // Lists the keys that some head drew, ascending, with their counts. Returns their number.
  __device__ int listDrawn(uint32_t* counted, uint8_t* keys) const {
    const DrawScratch& draws = drawScratch();
    const int lane = lane_.id;
    uint32_t counts[8];
    int place = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      counts[i] = draws.counts[8 * lane + i];
      place += counts[i] != 0;
    }
    const int own = place;
#pragma unroll
    for (int i = 1; i < 32; i *= 2) {
      const int left = __shfl_up_sync(kAll, place, i);
      if (lane >= i) place += left;
    }
    const int drawn = __shfl_sync(kAll, place, 31);
    place -= own;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (counts[i] == 0) continue;
      counted[place] = counts[i];
      keys[place++] = static_cast<uint8_t>(8 * lane + i);
    }
    __syncwarp();
    return drawn;
  }

  // Writes draws.counts, the splits of Step::Space, and the list of draws if it is wanted.
  __device__ void countDraws(const WorkOf<kByHead>& work, const SplitDraws<kByHead>& samples,
                             float max_score, float sum) {
    DrawScratch& draws = drawScratch();
    const int lane = lane_.id;
    if (lane < kSmallHeadGroup) {
      const uint32_t stream = attentionStream(
          step_.in.layer, static_cast<uint32_t>(headOf<kSmallHeadGroup>(step_, work, lane)));
      draws.offsets[lane] =
          philox(step_.in.seed, step_.in.sequences[work.row], step_.in.steps[work.row], stream,
                 static_cast<uint32_t>(work.first / kSplitKeys))[0] >>
          8;
    }
#pragma unroll
    for (int h = 0; h < kSmallHeadGroup; ++h) {
      uint32_t units[8];
      const uint4 eight = weightsAt(h, lane);
      uint32_t reached = unitsOf(eight, units);
#pragma unroll
      for (int i = 1; i < 32; i *= 2) {
        const uint32_t left = __shfl_up_sync(kAll, reached, i);
        if (lane >= i) reached += left;
      }
      draws.reached[h][lane] = reached;
      const uint32_t weight = __shfl_sync(kAll, reached, 31);
      if (lane == h) {
        draws.weights[h] = weight;
        if (isFor<kSmallHeadGroup>(step_, work, h)) {
          const int64_t at =
              splitIndex(step_, work.row, headOf<kSmallHeadGroup>(step_, work, h), work.split);
          step_.space.splits[at] = {max_score, weight, sum, 0};
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kSplitKeys / 32; ++i) draws.counts[i * 32 + lane] = 0;
    __syncwarp();
    uint64_t divisor = static_cast<uint64_t>(samples.of(0)) << 24;
    uint64_t reciprocal = reciprocalOf(divisor);
    const int heads = min(kSmallHeadGroup, step_.in.group - work.head_group * kSmallHeadGroup);
    for (uint32_t i = lane; i < samples.all(heads); i += 32) {
      const uint32_t h = samples.headOf(i), m = i - samples.before(h);
      if constexpr (kByHead) {
        divisor = static_cast<uint64_t>(samples.of(h)) << 24;
        reciprocal = reciprocalOf(divisor);
      }
      int key = -1;
      if (draws.weights[h] > 0) {
        key = keyOfDraw(h, m, divisor, reciprocal);
        atomicAdd(&draws.counts[key], 1u << (8 * h));
      }
      if (step_.space.draw_keys) {
        const int64_t list = static_cast<int64_t>(work.row) * step_.in.heads +
                             headOf<kSmallHeadGroup>(step_, work, static_cast<int>(h));
        step_.space.draw_keys[list * step_.space.draw_stride + work.split * samples.of(h) + m] =
            key < 0 ? -1 : work.first + key;
      }
    }
    __syncwarp();
  }

  // Returns the key of draw m, the first whose prefix sum exceeds the threshold (cpu/draws.cpp).
  __device__ int keyOfDraw(uint32_t h, uint32_t m, uint64_t divisor, uint64_t reciprocal) const {
    const DrawScratch& draws = drawScratch();
    const uint64_t place = (static_cast<uint64_t>(m + 1) << 24) - draws.offsets[h];
    auto rest = static_cast<uint32_t>(quotient(place * draws.weights[h] - 1, divisor, reciprocal));
    int eight = 0;
#pragma unroll
    for (int jump = 16; jump > 0; jump /= 2) {
      if (draws.reached[h][eight + jump - 1] <= rest) eight += jump;
    }
    if (eight > 0) rest -= draws.reached[h][eight - 1];
    uint32_t units[8];
    unitsOf(weightsAt(static_cast<int>(h), eight), units);
    int key = 8 * eight;
    bool found = false;
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      found |= rest < units[k];
      if (!found) {
        rest -= units[k];
        ++key;
      }
    }
    return key;
  }

  // Fetches the values of a split's drawn keys from `first` on, as many as have room.
  __device__ void fetch(const Work& work, int pages, const uint8_t* keys, int first, int drawn) {
    const int groups = min(Layout::kGatherSlots, (drawn - first + kSubtileKeys - 1) / kSubtileKeys);
#pragma unroll 1
    for (int group = 0; group < groups; ++group) {
      // Lane i of the lower half has the place of value i.
      const int own = first + group * kSubtileKeys + lane_.id % kSubtileKeys;
      const int key = keys[min(own, drawn - 1)];
      const int page = __shfl_sync(kAll, pages, key / kSubtileKeys);
      const bool good =
          own < drawn && static_cast<uint32_t>(page) < static_cast<uint64_t>(step_.cache.pages);
      const uint32_t at = entryAt(step_, good ? page : 0, work.kv_head, work.first + key);
      const uint32_t to = gathered_ + group * Layout::kSlotBytes + lane_copy_;
      const uint8_t* values =
          static_cast<const uint8_t*>(step_.cache.values) + lane_.id % Tile::kChunks * 16;
#pragma unroll
      for (int j = 0; j < kSubtileKeys / Tile::kRowsAtOnce; ++j) {
        const int one = j * Tile::kRowsAtOnce + lane_.id / Tile::kChunks;
        const uint64_t from = __shfl_sync(kAll, at, one);
        const bool valid = __shfl_sync(kAll, good, one);
        copyAsync(Tile::down(to, j), values + from * Tile::kRowBytes, valid);
      }
    }
    commitCopies();
  }

  // Adds the fetched values to total, each times its counts.
  __device__ void add(const uint32_t* counted, int entries, Sum& total) const {
    const int g = lane_.g, t = lane_.t;
    for (int first = 0; first < entries; first += kSubtileKeys) {
      const auto weight = [&](int entry) -> uint32_t {
        if (g % 2 || first + entry >= entries) return 0;
        const T count = Elements::of(static_cast<float>(counted[first + entry] >> (4 * g) & 0xff));
        uint16_t bits;
        memcpy(&bits, &count, sizeof bits);
        return bits;
      };
      const uint32_t b0 = weight(2 * t) | weight(2 * t + 1) << 16;
      const uint32_t b1 = weight(2 * t + 8) | weight(2 * t + 9) << 16;
      const uint32_t values = gathered_ + first / kSubtileKeys * Layout::kSlotBytes;
      const uint32_t b[1][2] = {{b0, b1}};
      total.add(values + lane_value_, b);
    }
  }

  const Step& step_;
  Lane lane_;
  uint8_t* scratch_;
  uint32_t gathered_, lane_copy_, lane_value_;
  WorkOf<kByHead> pending_;  // the split whose values are in flight
  int pending_entries_ = -1;
  float pending_factor_ = 0;
};

}  // namespace allot::kernels::cuda
