#pragma once
// The combine kernel (step.h) of methods that draw tile by tile from the split kernel's weights:
// s2anta-flash if its tiles are not the splits or exactAbove=never, and s2anta-prop by largest
// remainders (kernels/cpu/method_s2anta_flash.cpp, method_s2anta_prop.cpp). Device code, one block
// a row and query head. A tile is whole subtiles of one split, with weights in that split's units:
// a weight below 2^-25 counts as 0.
#include "kernels/cuda/combine.cuh"

namespace allot::kernels::cuda {

template <int kDim>
struct TilesShared : HeadShared<kDim> {
  uint64_t warp_weights[kCombineWarps];
  uint32_t warp_draws[kCombineWarps];
};

template <int kDim, typename T>
class TilesHead : HeadBlock<kDim, T, false, true> {
  using Base = HeadBlock<kDim, T, false, true>;
  using Base::at_, Base::budget_, Base::keys_, Base::lane_, Base::splits_;
  using Base::step_, Base::tid_, Base::warp_;
  static constexpr int kAhead = 8;  // entries that a lane loads at once

 public:
  __device__ TilesHead(const Step& step, TilesShared<kDim>& shared, uint8_t* memory)
      : Base(step, shared, memory), shared_(shared) {}

  __device__ void run() {
    if (this->plain()) return;
    const float max_score = this->largestMaxScore();
    float exponentials = 0;
    for (int p = tid_; p < splits_; p += kCombineThreads) {
      const Split split = step_.space.splits[at_ + p];
      exponentials += power2(split.max_score - max_score) * split.sum;
    }
    exponentials = this->sum(exponentials);
    size_ = tileKeysOf(step_, keys_.count());
    begin_ = keys_.first / size_;
    tiles_ = (keys_.n + size_ - 1) / size_ - begin_;
    by_remainders_ = step_.how.largest_remainder;
    each_ = max(budget_ / static_cast<uint32_t>(tiles_), 1u);
    const uint32_t count = by_remainders_ ? budget_ : each_ * static_cast<uint32_t>(tiles_);
    if (!(exponentials > 0)) {  // every key is masked, or a score is not a number
      for (uint32_t m = tid_; step_.space.draw_keys && m < count; m += kCombineThreads) {
        step_.space.draw_keys[this->listAt() + m] = -1;
      }
      this->fill(exponentials == 0 ? 0.0f : notANumber(), minusInfinity());
      return;
    }
    this->setLse((max_score + log2f(exponentials)) * kLn2);
    if (by_remainders_) shareOut(max_score);
    gatherDraws(count);
  }

 private:
  // A tile in the split kernel's arrays.
  struct Tile {
    int number;  // counted from key 0
    int split;
    int subtile;  // the first of its subtiles
    uint32_t weight;
  };
  __device__ Tile tileAt(int t) const {
    Tile tile{begin_ + t, 0, 0, 0};
    const int key = tile.number * size_ - keys_.base;
    tile.split = key / kSplitKeys;
    tile.subtile = key % kSplitKeys / kSubtileKeys;
    const uint32_t* weights =
        step_.space.subtile_weights + (at_ + tile.split) * kSubtiles + tile.subtile;
    for (int i = 0; i < size_ / kSubtileKeys; ++i) tile.weight += weights[i];
    return tile;
  }
  __device__ float maxScoreOf(const Tile& tile) const {
    return step_.space.splits[at_ + tile.split].max_score;
  }
  __device__ TileShare* shares() const {
    return step_.space.tiles + this->headIndex() * step_.space.tile_stride;
  }

  // Returns the sum over the block; `before` gets that over the threads before this one.
  template <typename X>
  __device__ X scan(X own, X* warps, X* before) const {
    X all;
    *before = sumBefore<kCombineWarps>(own, lane_, warp_, warps, &all);
    return all;
  }

  // Computes the draws of every tile, which sum to the budget.
  __device__ void shareOut(float max_score) {
    TileShare* const shares = this->shares();
    uint64_t own = 0, unused;
    for (int t = tid_; t < tiles_; t += kCombineThreads) {
      const Tile tile = tileAt(t);
      const uint64_t weight = inUnits(tile.weight, max_score - maxScoreOf(tile));
      shares[t].remainder = weight;
      own += weight;
    }
    const uint64_t total = scan(own, shared_.warp_weights, &unused);
    uint32_t draws = 0, unused_draws;
    for (int t = tid_; t < tiles_; t += kCombineThreads) {
      const uint64_t weight = shares[t].remainder;
      // budget * weight = quota * total + remainder, in 128 bits.
      const uint64_t quota = quotaOf(weight, total);
      shares[t].draws = static_cast<uint32_t>(quota);
      shares[t].remainder = weight * budget_ - quota * total;  // below total, and so modulo 2^64
      draws += shares[t].draws;
    }
    const uint32_t left = budget_ - scan(draws, shared_.warp_draws, &unused_draws);
    __syncthreads();
    for (int t = tid_; t < tiles_; t += kCombineThreads) {
      const uint64_t mine = shares[t].remainder;
      uint32_t larger = 0;
      for (int u = 0; u < tiles_; ++u) {
        const uint64_t other = shares[u].remainder;
        larger += other > mine || (other == mine && u < t);
      }
      if (larger < left) ++shares[t].draws;
    }
    __syncthreads();
    const int stretch = (tiles_ + kCombineThreads - 1) / kCombineThreads;
    const int first = min(tid_ * stretch, tiles_), last = min(first + stretch, tiles_);
    uint32_t mine = 0, before;
    for (int t = first; t < last; ++t) mine += shares[t].draws;
    scan(mine, shared_.warp_draws, &before);
    for (int t = first; t < last; ++t) {
      shares[t].before = before;
      before += shares[t].draws;
    }
    __syncthreads();
  }

  // Returns floor(budget * weight / total): the double's quotient is off by at most one.
  // Requires: weight <= total <= 2^62; the budget is at most 2^24.
  __device__ uint64_t quotaOf(uint64_t weight, uint64_t total) const {
    auto quota =
        static_cast<uint64_t>(static_cast<double>(weight) * budget_ / static_cast<double>(total));
    const auto rest = static_cast<int64_t>(weight * budget_ - quota * total);
    if (rest < 0) return quota - 1;
    return rest >= static_cast<int64_t>(total) ? quota + 1 : quota;
  }

  // Draw m: its tile, and its index among the `of` draws of the tile.
  struct Draw {
    Tile tile;
    uint32_t index, of;
  };
  __device__ Draw drawAt(uint32_t m) const {
    if (!by_remainders_) return {tileAt(static_cast<int>(m / each_)), m % each_, each_};
    const TileShare* shares = this->shares();
    int low = 0, high = tiles_;  // before of low <= m < that of high
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      (shares[middle].before <= m ? low : high) = middle;
    }
    return {tileAt(low), m - shares[low].before, shares[low].draws};
  }

  // Returns the key of a draw, systematic in its tile (cpu/draws.cpp); -1 if the tile weighs 0.
  __device__ int keyOf(const Draw& draw) const {
    if (draw.tile.weight == 0) return -1;
    const uint32_t offset = this->words(static_cast<uint32_t>(draw.tile.number))[0] >> 8;
    const uint64_t place = (static_cast<uint64_t>(draw.index + 1) << 24) - offset;
    // floor((place * weight - 1) / (2^24 of)), the product in 128 bits.
    const uint64_t low = place * draw.tile.weight;
    const uint64_t high = __umul64hi(place, draw.tile.weight) - (low == 0);
    auto rest = static_cast<uint32_t>((high << 40 | (low - 1) >> 24) / draw.of);
    const int64_t at = at_ + draw.tile.split;
    int subtile = draw.tile.subtile;
    const uint32_t* subtiles = step_.space.subtile_weights + at * kSubtiles;
    while (rest >= subtiles[subtile]) rest -= subtiles[subtile++];
    const auto* weights =
        reinterpret_cast<const __half*>(step_.space.split_bytes + at * kSplitBytes + subtile * 32);
    int key = 0;
    for (; key + 1 < kSubtileKeys; ++key) {
      const auto units = static_cast<uint32_t>(__half2float(weights[key]) * kWeightUnits);
      if (rest < units) break;
      rest -= units;
    }
    return keys_.base + draw.tile.split * kSplitKeys + subtile * kSubtileKeys + key;
  }

  __device__ void gatherDraws(uint32_t count) {
    const int64_t list = this->listAt();
    typename Base::Sums sums;
    for (uint32_t passed = warp_ * 32; passed < count; passed += kCombineWarps * 32) {
      const uint32_t m = passed + lane_;
      int key = -1;
      float weight = minusInfinity();  // in powers of two
      if (m < count) {
        const Draw draw = drawAt(m);
        key = keyOf(draw);
        if (key >= 0) weight = by_remainders_ ? 0.0f : weightOf(draw);
        if (step_.space.draw_keys) {
          step_.space.draw_keys[list + m] = key;
          step_.space.draw_weights[list + m] = weight;
        }
      }
      const unsigned drawn = __ballot_sync(kAll, key >= 0);
      if (drawn == 0) continue;
      // Lanes without a draw read another lane's entry.
      uint32_t entry = key >= 0 ? this->entryOf(key) : 0;
      entry = __shfl_sync(kAll, entry, key >= 0 ? lane_ : __ffs(drawn) - 1);
      this->template gather<kAhead, false>(min(count - passed, 32u), entry, weight, &sums,
                                           [](int, float) {});
    }
    this->template finish<false>(&sums);
    const auto denominator = static_cast<float>(sums.denominator);
    if (tid_ < kDim) this->put(tid_, sums.value / denominator);
    for (uint32_t m = tid_; step_.space.draw_keys && m < count; m += kCombineThreads) {
      float& weight = step_.space.draw_weights[list + m];
      weight = power2(weight - sums.top) / denominator;
    }
  }

  // Returns the weight of one draw, in powers of two.
  __device__ float weightOf(const Draw& draw) const {
    return maxScoreOf(draw.tile) +
           log2f(static_cast<float>(draw.tile.weight) / static_cast<float>(draw.of));
  }

  TilesShared<kDim>& shared_;
  int size_ = 0, begin_ = 0, tiles_ = 0;
  uint32_t each_ = 0;  // draws a tile
  bool by_remainders_ = false;
};

template <int kDim, typename T>
__global__ void __launch_bounds__(kCombineThreads, 2)
    tilesKernel(const __grid_constant__ Step step) {
  extern __shared__ __align__(16) uint8_t memory[];  // exact heads: two floats a split
  __shared__ TilesShared<kDim> shared;
  TilesHead<kDim, T> head(step, shared, memory);
  waitForKernelBefore();
  head.run();
}

}  // namespace allot::kernels::cuda
