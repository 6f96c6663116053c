#pragma once
// Products of a block of queries with tiles of keys and values, by mma.m16n8k16. Device code.
//
// A warp has 16 queries. Of a 16 x 8 matrix of sums lane (g, t) = (lane / 4, lane % 4) holds rows g
// and g + 8, columns 2 t and 2 t + 1 (the PTX manual's groupID and threadID_in_group): entries 0, 1
// and 2, 3.
#include "kernels/cuda/prefill.h"
#include "kernels/cuda/primitives.cuh"

namespace allot::kernels::cuda {

using Cached = __nv_bfloat16;

constexpr int kTileKeys64 = 64;
constexpr int kNowhere = 1 << 30;  // a group of keys that no query sees

__device__ inline void report(const PromptChunk& chunk, PromptWrong kind, int head, int block) {
  atomicMin(chunk.wrong, static_cast<unsigned long long>(kind) << 56 |
                             static_cast<unsigned long long>(head) << 32 |
                             static_cast<unsigned long long>(block));
}

__device__ inline int chunkEnd(const PromptChunk& chunk) { return chunk.first + chunk.count; }
__device__ inline int firstBlock(const PromptChunk& chunk) { return chunk.first / kQueryBlock; }
__device__ inline int oldestOf(const PromptChunk& chunk, int position) {
  return chunk.window > 0 && position >= chunk.window ? position + 1 - chunk.window : 0;
}

// Where a tile's keys are: the position of each group's first.
struct TilePlaces {
  int start[kTileGroups];

  __device__ static TilePlaces at(int position) {
    TilePlaces places;
#pragma unroll
    for (int i = 0; i < kTileGroups; ++i) places.start[i] = position + 16 * i;
    return places;
  }
  __device__ bool any() const { return start[0] != kNowhere; }
  // Of the tile's column 2 t + (0, 1) of its n-th 8 columns.
  __device__ int position(int n, int t) const { return start[n / 2] + (n & 1) * 8 + 2 * t; }
};

// Goes through the tiles that a block of queries attends to, in order. All of a block's threads
// take the same way.
class TileCursor {
 public:
  __device__ TileCursor(const PromptChunk& chunk, int head, int block, int first_key, int last_key)
      : key_(first_key / kTileKeys64 * kTileKeys64), last_(last_key) {
    if (!chunk.bits) return;
    const int blocks = (chunkEnd(chunk) - 1) / kQueryBlock - firstBlock(chunk) + 1;
    take(chunk.bits +
             (static_cast<int64_t>(head) * blocks + (block - firstBlock(chunk))) * chunk.words,
         chunk.key_block, first_key);
  }
  // By bits that lie anywhere; none: all keys.
  __device__ TileCursor(const uint32_t* bits, int key_block, int first_key, int last_key)
      : key_(first_key / kTileKeys64 * kTileKeys64), last_(last_key) {
    if (bits) take(bits, key_block, first_key);
  }

  // Not any() behind the last tile.
  __device__ TilePlaces next() {
    TilePlaces places;
#pragma unroll
    for (int i = 0; i < kTileGroups; ++i) places.start[i] = kNowhere;
    if (!row_) {
      if (key_ <= last_) places = TilePlaces::at(key_);
      key_ += kTileKeys64;
      return places;
    }
    if (size_ == 64) {
      const int key = nextBlock();
      if (key <= last_) places = TilePlaces::at(key);
    } else if (size_ == 32) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int key = nextBlock();
        if (key > last_) break;
        places.start[2 * i] = key;
        places.start[2 * i + 1] = key + 16;
      }
    } else {
#pragma unroll
      for (int i = 0; i < kTileGroups; ++i) {
        const int key = nextBlock();
        if (key > last_) break;
        places.start[i] = key;
      }
    }
    return places;
  }

 private:
  __device__ void take(const uint32_t* bits, int key_block, int first_key) {
    row_ = bits;
    size_ = key_block;
    words_ = last_ / size_ / 32 + 1;
    word_ = first_key / size_ / 32;
    left_ = row_[word_] & (0xffffffffu << (first_key / size_ % 32));
  }
  // The first key of the next block that is chosen.
  __device__ int nextBlock() {
    while (left_ == 0) {
      if (++word_ >= words_) return kNowhere;
      left_ = row_[word_];
    }
    const int bit = __ffs(static_cast<int>(left_)) - 1;
    left_ &= left_ - 1;
    return (word_ * 32 + bit) * size_;
  }

  const uint32_t* row_ = nullptr;
  int size_ = 64, words_ = 0, word_ = 0;
  uint32_t left_ = 0;
  int key_, last_;
};

// A tile in shared memory: 64 keys of D channels in chunks of 16 bytes, of which the key's last
// three bits move each, so that eight keys' chunks of the same channels lie in different banks.
template <int D>
struct SharedTile {
  static constexpr int kChunks = D / 8;
  static constexpr int kBytes = kTileKeys64 * D * 2;

  __device__ static uint32_t address(uint32_t tile, int key, int chunk) {
    return tile + static_cast<uint32_t>((key * kChunks + (chunk ^ (key & 7))) * 16);
  }
  // The same 16 keys and `pairs` pairs of chunks further: tiles begin at multiples of a key's
  // bytes, so that the pair's number and the key's last bits are put together in the address.
  __device__ static uint32_t further(uint32_t address, int keys16, int pairs) {
    return (address ^ static_cast<uint32_t>(pairs << 5)) +
           static_cast<uint32_t>(keys16 * 16 * D * 2);
  }

  // Copies of a tile, by all of a block's Threads: keys to one address, values to another, 0: not
  // these. Keys at or behind `end` are nothing, and zeros in shared memory.
  template <int Threads>
  __device__ static void copy(const PromptChunk& chunk, int kv_head, const TilePlaces& places,
                              int end, uint32_t keys, uint32_t values, int thread, bool* outside) {
    constexpr int kKeysAtOnce = Threads / kChunks;
    const int part = thread % kChunks, key0 = thread / kChunks;
#pragma unroll
    for (int i = 0; i < kTileKeys64 / kKeysAtOnce; ++i) {
      const int key = key0 + i * kKeysAtOnce;
      int start = places.start[i * kKeysAtOnce / 16];
      if (kKeysAtOnce == 32 && key0 >= 16) start = places.start[(2 * i + 1) % kTileGroups];
      const int position = start + key % 16;
      uint32_t entry = 0;  // of the pool, in keys
      bool there = start < end && position < end;
      if (there) {
        const int page = __ldg(chunk.page_table + (position >> chunk.page_shift));
        there = page >= 0 && page < chunk.pages;
        if (!there) *outside = true;
        entry = (static_cast<uint32_t>(page * chunk.kv_heads + kv_head) << chunk.page_shift) +
                static_cast<uint32_t>(position & ((1 << chunk.page_shift) - 1));
      }
      const size_t from = there ? static_cast<size_t>(entry) * (D * sizeof(Cached)) + part * 16 : 0;
      if (keys) {
        copyAsync(address(keys, key, part), static_cast<const uint8_t*>(chunk.keys) + from, there);
      }
      if (values) {
        copyAsync(address(values, key, part), static_cast<const uint8_t*>(chunk.values) + from,
                  there);
      }
    }
  }
};

__device__ inline uint32_t pairOf(float low, float high) {
  const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
  uint32_t bits;
  memcpy(&bits, &both, sizeof bits);
  return bits;
}

// A warp's 16 queries as the left side of products, in `Parts` summands of 8 bits each.
template <int D, int Parts = 1>
struct QueryTile {
  uint32_t at[Parts][D / 16][4];

  // Rows whose positions are not the chunk's are zeros. `row`: the warp's first position.
  __device__ void load(const PromptChunk& chunk, int head, int row, int lane) {
    const int g = lane / 4, t = lane % 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int position = row + g + 8 * half;
      const bool there = position >= chunk.first && position < chunkEnd(chunk);
      const float* from =
          chunk.queries +
          (static_cast<int64_t>(there ? position - chunk.first : 0) * chunk.heads + head) * D;
#pragma unroll
      for (int k = 0; k < D / 16; ++k) {
#pragma unroll
        for (int side = 0; side < 2; ++side) {
          float2 x = {0, 0};
          if (there) x = *reinterpret_cast<const float2*>(from + 16 * k + 8 * side + 2 * t);
#pragma unroll
          for (int part = 0; part < Parts; ++part) {
            const uint32_t both = pairOf(x.x, x.y);
            at[part][k][half + 2 * side] = both;
            const float2 taken = ElementOf<Cached>::pair(both);
            x.x -= taken.x;
            x.y -= taken.y;
          }
        }
      }
    }
  }

  // scores[n] = queries times the tile's keys 8 n .. 8 n + 7, over all channels.
  __device__ void score(uint32_t tile, int lane, float (&scores)[8][4]) const {
    const int matrix = lane / 8;
    const uint32_t own = SharedTile<D>::address(tile, (matrix >> 1) * 8 + lane % 8, matrix & 1);
#pragma unroll
    for (int n = 0; n < 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) scores[n][i] = 0;
    }
#pragma unroll
    for (int k = 0; k < D / 16; ++k) {
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        uint32_t b[4];
        loadMatrices(b, SharedTile<D>::further(own, n, k));
#pragma unroll
        for (int part = Parts - 1; part >= 0; --part) {
          ElementOf<Cached>::multiply(scores[2 * n], at[part][k], b[0], b[1]);
          ElementOf<Cached>::multiply(scores[2 * n + 1], at[part][k], b[2], b[3]);
        }
      }
    }
  }
};

// sums += weights times the tile's values.
template <int D>
__device__ void addValues(const float (&weights)[8][4], uint32_t tile, int lane,
                          float (&sums)[D / 8][4]) {
  const int matrix = lane / 8;
  const uint32_t own = SharedTile<D>::address(tile, (matrix & 1) * 8 + lane % 8, matrix >> 1);
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    const uint32_t a[4] = {pairOf(weights[2 * k][0], weights[2 * k][1]),
                           pairOf(weights[2 * k][2], weights[2 * k][3]),
                           pairOf(weights[2 * k + 1][0], weights[2 * k + 1][1]),
                           pairOf(weights[2 * k + 1][2], weights[2 * k + 1][3])};
#pragma unroll
    for (int n = 0; n < D / 16; ++n) {
      uint32_t b[4];
      loadTransposed(b, SharedTile<D>::further(own, k, n));
      ElementOf<Cached>::multiply(sums[2 * n], a, b[0], b[1]);
      ElementOf<Cached>::multiply(sums[2 * n + 1], a, b[2], b[3]);
    }
  }
}

// Scores that a query does not see become -infinity. `row`: the warp's first position.
__device__ inline void maskScores(const PromptChunk& chunk, const TilePlaces& places, int row,
                                  int lane, float (&scores)[8][4]) {
  const int g = lane / 4, t = lane % 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int position = row + g + 8 * half;
    const int oldest = oldestOf(chunk, position);
#pragma unroll
    for (int n = 0; n < 8; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int key = places.position(n, t) + i;
        if (key > position || key < oldest) scores[n][2 * half + i] = minusInfinity();
      }
    }
  }
}

// Whether some of the rows row .. row + 15 does not see all of the tile.
__device__ inline bool isMasked(const PromptChunk& chunk, const TilePlaces& places, int row) {
  return places.start[3] + 15 > row || places.start[0] < oldestOf(chunk, row + 15);
}

// Of the four lanes that share rows.
__device__ inline float largestOfRow(float x) {
  x = fmaxf(x, __shfl_xor_sync(kAll, x, 1));
  return fmaxf(x, __shfl_xor_sync(kAll, x, 2));
}
__device__ inline float sumOfRow(float x) {
  x += __shfl_xor_sync(kAll, x, 1);
  return x + __shfl_xor_sync(kAll, x, 2);
}

__device__ inline void largestScores(const float (&scores)[8][4], float (&top)[2]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float most = minusInfinity();
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      most = fmaxf(most, fmaxf(scores[n][2 * half], scores[n][2 * half + 1]));
    }
    top[half] = largestOfRow(most);
  }
}

}  // namespace allot::kernels::cuda
