#pragma once
// Products of queries with tiles of keys and values, by mma.m16n8k16 or wgmma. Device code.
//
// A warp has 16 queries. Of a 16 x 8 matrix of sums lane 4 g + t (PTX's groupID and
// threadID_in_group) holds columns 2 t and 2 t + 1 of row g, in entries 0 and 1, and of row g + 8,
// in 2 and 3.
#include "kernels/cuda/prefill.h"
#include "kernels/cuda/sm90.cuh"

namespace allot::kernels::cuda {

// Hopper's wgmma multiplies for four warps together. Heads of 64 channels use mma.sync on Hopper,
// too: CUDA 13.0 overwrites the registers of their queries, which a loop needs again, with the next
// product's A operand.
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define ALLOT_WGMMA
#endif
template <int D>
constexpr bool usesWgmma() {
#ifdef ALLOT_WGMMA
  return D == 128;
#else
  return false;
#endif
}

using Cached = __nv_bfloat16;

constexpr int kTileKeys64 = 64;
constexpr int kNowhere = 1 << 30;  // the start of a group without keys

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

// The positions of a tile's groups of 16 keys: the first of each.
struct TilePlaces {
  int start[kTileGroups];

  __device__ static TilePlaces at(int position) {
    TilePlaces places;
#pragma unroll
    for (int i = 0; i < kTileGroups; ++i) places.start[i] = position + 16 * i;
    return places;
  }
  __device__ bool any() const { return start[0] != kNowhere; }
  // Returns the position of column 2 t of the tile's n-th 8 columns.
  __device__ int position(int n, int t) const { return start[n / 2] + (n & 1) * 8 + 2 * t; }
};

// Return the query channel at `at`, or the pair of channels, where `at` is even: of [count, heads,
// head_dim].
__device__ inline float queryAt(const PromptChunk& chunk, int64_t at) {
  return chunk.queries ? chunk.queries[at]
                       : __bfloat162float(static_cast<const Cached*>(chunk.rounded_queries)[at]);
}
__device__ inline float2 queryPairAt(const PromptChunk& chunk, int64_t at) {
  if (chunk.queries) return *reinterpret_cast<const float2*>(chunk.queries + at);
  return ElementOf<Cached>::pair(static_cast<const uint32_t*>(chunk.rounded_queries)[at / 2]);
}

// Iterates over the tiles that a block of queries attends to, in order, alike in all threads.
class TileCursor {
 public:
  __device__ TileCursor(const PromptChunk& chunk, int head, int block, int first_key, int last_key)
      : key_(first_key / kTileKeys64 * kTileKeys64), last_(last_key) {
    if (!chunk.bits) return;
    const int64_t row = static_cast<int64_t>(head) * chunk.list_blocks + block - chunk.list_first;
    take(chunk.bits + row * chunk.words, chunk.key_block, first_key);
  }
  // `bits`: the list of the block of queries; null: all keys.
  __device__ TileCursor(const uint32_t* bits, int key_block, int first_key, int last_key)
      : key_(first_key / kTileKeys64 * kTileKeys64), last_(last_key) {
    if (bits) take(bits, key_block, first_key);
  }

  // Returns the next tile's places; !any() after the last tile.
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
  // Returns the first key of the next chosen block; kNowhere after the last one.
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

// A tile in shared memory, in wgmma's 128-byte swizzle: for each 64 channels 128 bytes a key, in
// chunks of 16 bytes that are permuted by the key's last three bits, so that eight keys' chunks of
// one channel are in different banks. Tiles begin at multiples of 1024 bytes.
template <int D>
struct SharedTile {
  static constexpr int kChunks = D / 8;
  static constexpr int kHalfBytes = kTileKeys64 * 128;
  static constexpr int kBytes = D / 64 * kHalfBytes;

  __device__ static uint32_t address(uint32_t tile, int key, int chunk) {
    return tile + static_cast<uint32_t>(chunk / 8 * kHalfBytes + key * 128 +
                                        ((chunk % 8) ^ (key & 7)) * 16);
  }
  // Returns the address that is 16 * keys16 keys and 2 * pairs chunks on.
  // Requires: `address` is of chunk 0 or 1.
  __device__ static uint32_t further(uint32_t address, int keys16, int pairs) {
    return (address ^ static_cast<uint32_t>(pairs % 4 << 5)) +
           static_cast<uint32_t>(pairs / 4 * kHalfBytes + keys16 * 2048);
  }

  // Starts the copy of a tile: keys to one address, values to another (0: no values). Keys from
  // `end` on become zeros. Keys of a page outside the pool become zeros, too, and set *outside.
  // Requires: all `Threads` threads of the block call it.
  template <int Threads>
  __device__ static void copy(const PromptChunk& chunk, int kv_head, const TilePlaces& places,
                              int end, uint32_t keys, uint32_t values, int thread, bool* outside) {
    constexpr int kKeysAtOnce = (Threads < 256 ? Threads : 256) / kChunks;
    if (Threads > 256 && thread >= 256) return;
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
      copyAsync(address(keys, key, part), static_cast<const uint8_t*>(chunk.keys) + from, there);
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

// Computes c += a b, 16 x 32 signed bytes times 32 x 8.
__device__ inline void multiplyCodes(int (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                     uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Waits until all threads of the block can read all earlier copies, by wgmma, too. Callers start
// new copies after it, since it waits for all copies in flight.
__device__ inline void meetAtTile() {
  waitCopies<0>();
#ifdef ALLOT_WGMMA
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
  __syncthreads();
}

#ifdef ALLOT_WGMMA
// Hopper multiplies for four warps together, 64 queries, and reads keys and values from shared
// memory once for all. A and the sums are in registers as with mma.m16n8k16.

// Returns the descriptor of a tile for products over channels (keys) or over keys (values). A wider
// tile than a key's 128 bytes continues `next_half` bytes further.
__device__ inline uint64_t tileDescriptor(uint32_t address, int next_half) {
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62;
  constexpr uint64_t kEightKeys = uint64_t{1024 >> 4} << 32;
  return kSwizzle128 | kEightKeys | static_cast<uint64_t>(next_half >> 4) << 16 |
         (address & 0x3ffff) >> 4;
}
#define ALLOT_FOUR(x, n) "+f"(x[n][0]), "+f"(x[n][1]), "+f"(x[n][2]), "+f"(x[n][3])
#define ALLOT_SIXTEEN(x, n) \
  ALLOT_FOUR(x, n), ALLOT_FOUR(x, n + 1), ALLOT_FOUR(x, n + 2), ALLOT_FOUR(x, n + 3)

// Starts c = (fresh ? 0 : c) + a b: 64 queries x 16 channels times 16 channels x 64 keys.
__device__ inline void multiplyKeys(float (&c)[8][4], const uint32_t (&a)[4], uint64_t b,
                                    bool fresh) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.eq.u32 p, %37, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, "
      "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, {%32, %33, %34, %35}, %36, p, "
      "1, 1, 0;\n"
      "}\n"
      : ALLOT_SIXTEEN(c, 0), ALLOT_SIXTEEN(c, 4)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<uint32_t>(fresh)));
}
#undef ALLOT_SIXTEEN
#undef ALLOT_FOUR

#endif

// A warp's 16 queries as the A operand of products, each a sum of `Parts` bfloat16 terms.
template <int D, int Parts = 1>
struct QueryTile {
  uint32_t at[Parts][D / 16][4];

  // Loads the queries, zeros for positions outside of the chunk. `row`: the warp's first position.
  __device__ void load(const PromptChunk& chunk, int head, int row, int lane) {
    const int g = lane / 4, t = lane % 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int position = row + g + 8 * half;
      const bool there = position >= chunk.first && position < chunkEnd(chunk);
      const int64_t from =
          (static_cast<int64_t>(there ? position - chunk.first : 0) * chunk.heads + head) * D;
#pragma unroll
      for (int k = 0; k < D / 16; ++k) {
#pragma unroll
        for (int side = 0; side < 2; ++side) {
          float2 x = {0, 0};
          if (there) x = queryPairAt(chunk, from + 16 * k + 8 * side + 2 * t);
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

  // Computes scores[n] = queries times the tile's keys 8 n .. 8 n + 7, not scaled.
  // Requires: all warps of the block of 64 queries call it.
  __device__ void score(uint32_t tile, int lane, float (&scores)[8][4]) const {
#ifdef ALLOT_WGMMA
    if constexpr (usesWgmma<D>()) {
      hold(scores);
      wgmmaFence();
#pragma unroll
      for (int k = 0; k < D / 16; ++k) {
        const uint64_t keys = tileDescriptor(
            tile + static_cast<uint32_t>(k / 4 * SharedTile<D>::kHalfBytes + k % 4 * 32), 16);
#pragma unroll
        for (int part = Parts - 1; part >= 0; --part) {
          multiplyKeys(scores, at[part][k], keys, k == 0 && part == Parts - 1);
        }
      }
      wgmmaCommit();
      wgmmaWait<0>();
      hold(scores);
    } else
#endif
    {
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
  }
};

// Adds weights times the tile's values to sums.
// Requires: all warps of the block of 64 queries call it.
template <int D>
__device__ void addValues(const float (&weights)[8][4], uint32_t tile, int lane,
                          float (&sums)[D / 8][4]) {
  uint32_t a[4][4];
#pragma unroll
  for (int k = 0; k < 4; ++k) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      a[k][i] = pairOf(weights[2 * k + i / 2][i % 2 * 2], weights[2 * k + i / 2][i % 2 * 2 + 1]);
    }
  }
#ifdef ALLOT_WGMMA
  if constexpr (usesWgmma<D>()) {
    hold(sums);
    wgmmaFence();
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      addTile(sums, a[k],
              tileDescriptor(tile + static_cast<uint32_t>(k * 2048), SharedTile<D>::kHalfBytes));
    }
    wgmmaCommit();
    wgmmaWait<0>();
    hold(sums);
  } else
#endif
  {
    const int matrix = lane / 8;
    const uint32_t own = SharedTile<D>::address(tile, (matrix & 1) * 8 + lane % 8, matrix >> 1);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
#pragma unroll
      for (int n = 0; n < D / 16; ++n) {
        uint32_t b[4];
        loadTransposed(b, SharedTile<D>::further(own, k, n));
        ElementOf<Cached>::multiply(sums[2 * n], a[k], b[0], b[1]);
        ElementOf<Cached>::multiply(sums[2 * n + 1], a[k], b[2], b[3]);
      }
    }
  }
}

// Sets scores that a query does not see to -infinity: those of the tile's keys, in columns `to` ..
// to + 7. `row`: the warp's first position.
template <int N>
__device__ inline void maskScores(const PromptChunk& chunk, const TilePlaces& places, int row,
                                  int lane, float (&scores)[N][4], int to = 0) {
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
        if (key > position || key < oldest) scores[to + n][2 * half + i] = minusInfinity();
      }
    }
  }
}

// Returns true if one of the positions row .. row + 15 does not see the whole tile.
__device__ inline bool isMasked(const PromptChunk& chunk, const TilePlaces& places, int row) {
  return places.start[3] + 15 > row || places.start[0] < oldestOf(chunk, row + 15);
}

// Return the maximum, and the sum, over the four lanes that share a row.
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
