// SALE's selection (kernels/cpu/select_sale.cpp), with the CPU's lists bit for bit: sums over keys
// and queries in double precision, where elements of a cache add without rounding in any order, and
// for the rest the same operations in the same order. Products of codes are whole numbers.
#include <cstdio>
#include "kernels/cuda/prefill_tiles.cuh"

namespace allot::kernels::cuda {
namespace {

constexpr float kLargestCode = 7;
constexpr float kKeepsAll = 1e-5f;
// A whole number below 2^22 added to this integer is, as a float, that number more than kMagic.
constexpr int kMagicBits = 0x4b400000;
constexpr float kMagic = 12582912.0f;

__device__ int localBlocks(int seen) { return min(seen, 4 + ((seen - 5) % 4 + 4) % 4); }
__device__ int saleBlocksSeen(int end) { return (end + kSaleBlock - 1) / kSaleBlock; }

// The blocks of queries, and where block b of the chunk begins and ends.
__device__ int blockBegin(const PromptChunk& chunk, int b) {
  return max(chunk.first, (firstBlock(chunk) + b) * kQueryBlock);
}
__device__ int blockEnd(const PromptChunk& chunk, int b) {
  return min(chunkEnd(chunk), (firstBlock(chunk) + b + 1) * kQueryBlock);
}

template <int D>
__device__ const Cached* keyAt(const PromptChunk& chunk, int kv_head, int position) {
  const int page = __ldg(chunk.page_table + (position >> chunk.page_shift));
  if (page < 0 || page >= chunk.pages) return nullptr;
  const int slot = position & ((1 << chunk.page_shift) - 1);
  return static_cast<const Cached*>(chunk.keys) +
         (((static_cast<int64_t>(page) * chunk.kv_heads + kv_head) << chunk.page_shift) + slot) * D;
}

// A thread a channel: sums of a split's keys or queries.
template <int D>
__global__ void __launch_bounds__(D) sumKeys(const PromptChunk chunk, const SaleChunk sale) {
  const int kv_head = static_cast<int>(blockIdx.x), split = static_cast<int>(blockIdx.y);
  const int oldest = oldestOf(chunk, chunk.first), end = chunkEnd(chunk);
  const int each = (end - oldest + sale.splits - 1) / sale.splits;
  const int from = oldest + split * each, to = min(end, from + each);
  double sum = 0;
#pragma unroll 8
  for (int j = from; j < to; ++j) {
    const Cached* key = keyAt<D>(chunk, kv_head, j);
    if (key) sum += static_cast<double>(__bfloat162float(key[threadIdx.x]));
  }
  sale.partial[(static_cast<int64_t>(kv_head) * sale.splits + split) * D + threadIdx.x] = sum;
}

template <int D>
__global__ void __launch_bounds__(D) sumQueries(const PromptChunk chunk, const SaleChunk sale) {
  const int head = static_cast<int>(blockIdx.x), split = static_cast<int>(blockIdx.y);
  const int each = (chunk.count + sale.splits - 1) / sale.splits;
  const int from = split * each, to = min(chunk.count, from + each);
  double sum = 0;
#pragma unroll 8
  for (int q = from; q < to; ++q) {
    sum += static_cast<double>(
        chunk.queries[(static_cast<int64_t>(q) * chunk.heads + head) * D + threadIdx.x]);
  }
  sale.partial[(static_cast<int64_t>(head) * sale.splits + split) * D + threadIdx.x] = sum;
}

template <int D>
__global__ void __launch_bounds__(D) takeMeans(const SaleChunk sale, int count, float* means) {
  double sum = 0;
  for (int split = 0; split < sale.splits; ++split) {
    sum += sale.partial[(static_cast<int64_t>(blockIdx.x) * sale.splits + split) * D + threadIdx.x];
  }
  means[static_cast<int64_t>(blockIdx.x) * D + threadIdx.x] = static_cast<float>(sum / count);
}

__device__ float scaleOf(float largest) { return __fdiv_rn(largest, kLargestCode); }
__device__ int codeOf(float x, float scale) {
  return scale > 0 ? static_cast<int>(rintf(__fdiv_rn(x, scale))) : 0;
}
__device__ float largestOfWarp(float x) {
#pragma unroll
  for (int other = 16; other > 0; other /= 2) x = fmaxf(x, __shfl_xor_sync(kAll, x, other));
  return x;
}

// Codes, scales and mean scores of 32 keys: a warp a scale, whose keys are those of equal
// (key mod 8) / 2.
template <int D>
__global__ void __launch_bounds__(128) codeKeys(const PromptChunk chunk, const SaleChunk sale) {
  constexpr int kChannels = D / 32;
  __shared__ float centred[kSaleBlock][D + 1];
  const int kv_head = static_cast<int>(blockIdx.y);
  const int oldest = oldestOf(chunk, chunk.first), end = chunkEnd(chunk);
  const int block = oldest / kSaleBlock + static_cast<int>(blockIdx.x);
  const int group = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  float mean[kChannels];
#pragma unroll
  for (int i = 0; i < kChannels; ++i) mean[i] = sale.key_means[kv_head * D + i * 32 + lane];
  float largest = 0;
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    const int in_block = k / 2 * 8 + group * 2 + k % 2;
    const int position = block * kSaleBlock + in_block;
    const Cached* key =
        position >= oldest && position < end ? keyAt<D>(chunk, kv_head, position) : nullptr;
#pragma unroll
    for (int i = 0; i < kChannels; ++i) {
      const float x = key ? __fsub_rn(__bfloat162float(key[i * 32 + lane]), mean[i]) : 0.0f;
      centred[in_block][i * 32 + lane] = x;
      largest = fmaxf(largest, fabsf(x));
    }
  }
  const float scale = scaleOf(largestOfWarp(largest));
  const int64_t at = static_cast<int64_t>(kv_head) * sale.room + block * kSaleBlock;
  if (lane == 0) sale.key_scales[at / 8 + group] = scale;
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    const int in_block = k / 2 * 8 + group * 2 + k % 2;
#pragma unroll
    for (int i = 0; i < kChannels; ++i) {
      sale.key_codes[(at + in_block) * D + i * 32 + lane] =
          static_cast<int8_t>(codeOf(centred[in_block][i * 32 + lane], scale));
    }
  }
  __syncthreads();
  const int heads = chunk.heads / chunk.kv_heads;
  for (int h = group; h < heads; h += 4) {
    const int head = kv_head * heads + h;
    const float* query = sale.query_means + static_cast<int64_t>(head) * D;
    double sum = 0;
    for (int i = 0; i < D; ++i) {
      sum += static_cast<double>(__ldg(query + i)) * static_cast<double>(centred[lane][i]);
    }
    sale.mean_scores[static_cast<int64_t>(head) * sale.room + block * kSaleBlock + lane] =
        static_cast<float>(sum);
  }
}

// Codes and scales of 16 queries: rows r and r + 8 share a scale, a warp has two of these.
template <int D>
__global__ void __launch_bounds__(128) codeQueries(const PromptChunk chunk, const SaleChunk sale) {
  constexpr int kChannels = D / 32;
  const int head = static_cast<int>(blockIdx.y);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int base = firstBlock(chunk) * kQueryBlock;
  for (int r = static_cast<int>(threadIdx.x) / 32; r < 8; r += 4) {
    float x[2][kChannels], largest = 0;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int position = base + static_cast<int>(blockIdx.x) * 16 + r + 8 * half;
      const bool there = position >= chunk.first && position < chunkEnd(chunk);
      const float* query =
          chunk.queries +
          (static_cast<int64_t>(there ? position - chunk.first : 0) * chunk.heads + head) * D;
#pragma unroll
      for (int i = 0; i < kChannels; ++i) {
        const float mean = sale.query_means[static_cast<int64_t>(head) * D + i * 32 + lane];
        x[half][i] = there ? __fsub_rn(query[i * 32 + lane], mean) : 0.0f;
        largest = fmaxf(largest, fabsf(x[half][i]));
      }
    }
    const float scale = scaleOf(largestOfWarp(largest));
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int64_t to = static_cast<int64_t>(head) * sale.rows +
                         static_cast<int64_t>(blockIdx.x) * 16 + r + 8 * half;
      if (lane == 0) sale.query_scales[to] = scale;
#pragma unroll
      for (int i = 0; i < kChannels; ++i) {
        sale.query_codes[to * D + i * 32 + lane] = static_cast<int8_t>(codeOf(x[half][i], scale));
      }
    }
  }
}

__device__ bool keepsAll(const SaleChunk& sale, int head, int seen) {
  return sale.all || sale.tau[head] < kKeepsAll || 1 + localBlocks(seen) >= seen;
}

// What a score has to reach: 64 queries of one head over the first block of keys and the last ones.
// Lanes in eights share two queries; each has four of 32 keys.
template <int D>
__global__ void __launch_bounds__(256)
    findThresholds(const PromptChunk chunk, const SaleChunk sale) {
  extern __shared__ float staged[];
  float* const queries = staged;                       // [64, D + 1]
  float* const keys = staged + kQueryBlock * (D + 1);  // [32, D + 1]
  const int head = static_cast<int>(blockIdx.x), b = static_cast<int>(blockIdx.y);
  const int kv_head = head / (chunk.heads / chunk.kv_heads);
  const int begin = blockBegin(chunk, b), end = blockEnd(chunk, b);
  const int thread = static_cast<int>(threadIdx.x);
  const int seen = saleBlocksSeen(end), local = localBlocks(seen);
  if (keepsAll(sale, head, seen)) return;
  for (int i = thread; i < kQueryBlock * D; i += 256) {
    const int position = begin + i / D;
    queries[i / D * (D + 1) + i % D] =
        position < end
            ? chunk
                  .queries[(static_cast<int64_t>(position - chunk.first) * chunk.heads + head) * D +
                           i % D]
            : 0.0f;
  }
  const int pair = thread / 8, quarter = thread % 8;
  constexpr int kMost = kSaleMostLocal + 1;
  float scores[kMost][2][4];
  float top[2] = {minusInfinity(), minusInfinity()};
#pragma unroll
  for (int part = 0; part < kMost; ++part) {
    if (part > local) continue;  // the same for all
    const int from = part == 0 ? 0 : (seen - local + part - 1) * kSaleBlock;
    __syncthreads();
    for (int i = thread; i < kSaleBlock * D; i += 256) {
      const int position = from + i / D;
      const Cached* key = position < chunkEnd(chunk) ? keyAt<D>(chunk, kv_head, position) : nullptr;
      keys[i / D * (D + 1) + i % D] =
          key ? __fsub_rn(__bfloat162float(key[i % D]), sale.key_means[kv_head * D + i % D]) : 0.0f;
    }
    __syncthreads();
    float sums[2][4] = {};
    for (int d = 0; d < D; ++d) {
      float key[4];
#pragma unroll
      for (int k = 0; k < 4; ++k) key[k] = keys[(quarter + 8 * k) * (D + 1) + d];
#pragma unroll
      for (int q = 0; q < 2; ++q) {
        const float query = queries[(2 * pair + q) * (D + 1) + d];
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          sums[q][k] = __fadd_rn(sums[q][k], __fmul_rn(query, key[k]));
        }
      }
    }
#pragma unroll
    for (int q = 0; q < 2; ++q) {
      const int position = begin + 2 * pair + q;
      const int oldest = oldestOf(chunk, position);
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const int j = from + quarter + 8 * k;
        const bool sees = j >= oldest && j <= position;
        scores[part][q][k] = sees ? __fmul_rn(chunk.scale, sums[q][k]) : minusInfinity();
        top[q] = fmaxf(top[q], scores[part][q][k]);
      }
    }
  }
#pragma unroll
  for (int q = 0; q < 2; ++q) {
#pragma unroll
    for (int other = 4; other > 0; other /= 2) {
      top[q] = fmaxf(top[q], __shfl_xor_sync(kAll, top[q], other));
    }
    double sum = 0;
#pragma unroll
    for (int part = 0; part < kMost; ++part) {
      if (part > local) continue;
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const float score = scores[part][q][k];
        if (score != minusInfinity()) {
          sum += exp(static_cast<double>(score) - static_cast<double>(top[q]));
        }
      }
    }
#pragma unroll
    for (int other = 4; other > 0; other /= 2) sum += __shfl_xor_sync(kAll, sum, other);
    const int position = begin + 2 * pair + q;
    if (quarter != 0 || position >= end) continue;
    if (!isNumber(top[q]) || !(sum > 0) || isinf(sum)) {
      report(chunk, PromptWrong::kScore, head, begin / kQueryBlock);
    }
    const int at = position - firstBlock(chunk) * kQueryBlock;
    sale.thresholds[static_cast<int64_t>(head) * sale.rows + at] =
        __fadd_rn(top[q], static_cast<float>(log(static_cast<double>(sale.tau[head]) * sum)));
  }
}

// c += a b, 16 x 32 signed bytes times 32 x 8.
__device__ void multiplyCodes(int (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// 64 keys' codes in shared memory, in chunks of 16 bytes that eight keys have in different banks.
template <int D>
__device__ uint32_t codeAddress(uint32_t tile, int key, int chunk) {
  const int moved = D == 128 ? chunk ^ (key & 7) : chunk ^ (key >> 1 & 3);
  return tile + static_cast<uint32_t>(key * D + moved * 16);
}

// A warp's 16 rows of queries, and what a block of keys has to reach for them.
template <int D>
struct CodedQueries {
  uint32_t at[D / 32][4];
  float scale[2], threshold[2];
  int oldest[2];

  __device__ void load(const PromptChunk& chunk, const SaleChunk& sale, int head, int row,
                       int lane) {
    const int g = lane / 4, t = lane % 4;
    const int base = firstBlock(chunk) * kQueryBlock;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int position = row + g + 8 * half;
      const int64_t from = static_cast<int64_t>(head) * sale.rows + position - base;
      const bool there = position >= chunk.first && position < chunkEnd(chunk);
      scale[half] = sale.query_scales[from];
      threshold[half] = there ? sale.thresholds[from] : -minusInfinity();
      oldest[half] = oldestOf(chunk, position);
#pragma unroll
      for (int k = 0; k < D / 32; ++k) {
#pragma unroll
        for (int side = 0; side < 2; ++side) {
          at[k][half + 2 * side] = *reinterpret_cast<const uint32_t*>(sale.query_codes + from * D +
                                                                      32 * k + 16 * side + 4 * t);
        }
      }
    }
  }

  // Whether a score of the block's 32 keys reaches its row's threshold, for this thread's. `tile`
  // holds the block from key `in_tile` on.
  __device__ bool reach(const PromptChunk& chunk, const SaleChunk& sale, int head, int kv_head,
                        int block, uint32_t tile, int in_tile, int lane) const {
    const int t = lane % 4;
    const int64_t first = static_cast<int64_t>(block) * kSaleBlock;
    const float key_scale =
        __ldg(sale.key_scales + (static_cast<int64_t>(kv_head) * sale.room + first) / 8 + t);
    const float* means = sale.mean_scores + static_cast<int64_t>(head) * sale.room + first;
    const float factor[2] = {__fmul_rn(scale[0], key_scale), __fmul_rn(scale[1], key_scale)};
    const bool windowed = first < max(oldest[0], oldest[1]);
    float top[2] = {minusInfinity(), minusInfinity()};
#pragma unroll
    for (int n = 0; n < kSaleBlock / 8; ++n) {
      int dots[4] = {kMagicBits, kMagicBits, kMagicBits, kMagicBits};
#pragma unroll
      for (int k = 0; k < D / 64; ++k) {
        uint32_t b[4];
        loadMatrices(b, codeAddress<D>(tile, in_tile + 8 * n + lane % 8, 4 * k + lane / 8));
        multiplyCodes(dots, at[2 * k], b[0], b[1]);
        multiplyCodes(dots, at[2 * k + 1], b[2], b[3]);
      }
      const float2 mean = __ldg(reinterpret_cast<const float2*>(means + 8 * n + 2 * t));
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int half = i / 2;
        const float dot = __fsub_rn(__int_as_float(dots[i]), kMagic);
        const float score = __fadd_rn(__fmul_rn(factor[half], dot), i % 2 ? mean.y : mean.x);
        if (windowed && first + 8 * n + 2 * t + i % 2 < oldest[half]) continue;
        top[half] = fmaxf(top[half], score);
      }
    }
    return __fmul_rn(chunk.scale, top[0]) >= threshold[0] ||
           __fmul_rn(chunk.scale, top[1]) >= threshold[1];
  }
};

// The bits of one head's Blocks blocks of 64 queries, which share the tiles of keys' codes.
template <int D, int Blocks>
__global__ void __launch_bounds__(Blocks * 128)
    findReached(const PromptChunk chunk, const SaleChunk sale) {
  extern __shared__ __align__(256) uint8_t shared[];
  constexpr int kThreads = Blocks * 128, kTileBytes = 64 * D, kChunks = D / 16;
  uint32_t* const words = reinterpret_cast<uint32_t*>(shared + 2 * kTileBytes);
  const int head = static_cast<int>(blockIdx.x);
  const int kv_head = head / (chunk.heads / chunk.kv_heads);
  const int all_blocks = (chunkEnd(chunk) - 1) / kQueryBlock - firstBlock(chunk) + 1;
  const int b0 = static_cast<int>(gridDim.y - 1 - blockIdx.y) * Blocks;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
  const int b = b0 + thread / 128;
  const bool there = b < all_blocks;
  const int seen = there ? saleBlocksSeen(blockEnd(chunk, b)) : 0;
  const bool all = !there || keepsAll(sale, head, seen);
  const int middle_end = all ? 1 : seen - localBlocks(seen);
  uint32_t* const own = words + thread / 128 * sale.words;
  for (int i = thread; i < Blocks * sale.words; i += kThreads) words[i] = 0;

  CodedQueries<D> queries;
  if (!all) {
    queries.load(chunk, sale, head, (firstBlock(chunk) + b) * kQueryBlock + thread % 128 / 32 * 16,
                 lane);
  }
  // The last of the blocks sees most.
  const int last = min(b0 + Blocks, all_blocks) - 1;
  const int last_seen = saleBlocksSeen(blockEnd(chunk, last));
  const int tiles_end = keepsAll(sale, head, last_seen) ? 1 : last_seen - localBlocks(last_seen);
  const int begin = oldestOf(chunk, blockBegin(chunk, b0)) / 64;
  const int8_t* codes = sale.key_codes + static_cast<int64_t>(kv_head) * sale.room * D;
  const auto copy = [&](int tile, int stage) {
    const uint32_t to = sharedAddress(shared) + static_cast<uint32_t>(stage * kTileBytes);
    for (int i = thread; i < 64 * kChunks; i += kThreads) {
      const int64_t key = static_cast<int64_t>(tile) * 64 + i / kChunks;
      copyAsync(codeAddress<D>(to, i / kChunks, i % kChunks), codes + key * D + i % kChunks * 16,
                key < sale.room);
    }
  };
  if (begin * 2 < tiles_end) copy(begin, 0);
  commitCopies();
  for (int tile = begin, stage = 0; tile * 2 < tiles_end; ++tile, stage ^= 1) {
    if ((tile + 1) * 2 < tiles_end) copy(tile + 1, stage ^ 1);
    commitCopies();
    waitCopies<1>();
    __syncthreads();
    const uint32_t at = sharedAddress(shared) + static_cast<uint32_t>(stage * kTileBytes);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int block = 2 * tile + i;
      if (block < 1 || block >= middle_end) continue;  // the same for a warp
      const bool reaches =
          queries.reach(chunk, sale, head, kv_head, block, at, i * kSaleBlock, lane);
      if (__any_sync(kAll, reaches) && lane == 0) atomicOr(own + block / 32, 1u << block % 32);
    }
    __syncthreads();
  }
  __syncthreads();
  if (!there) return;
  // The first block and the last ones.
  const int kept = all ? 1 : middle_end;
  uint32_t* to = sale.bits + (static_cast<int64_t>(head) * all_blocks + b) * sale.words;
  for (int w = thread % 128; w < sale.words; w += 128) {
    uint32_t word = own[w];
    for (int i = 0; i < 32; ++i) {
      const int block = 32 * w + i;
      if (block == 0 || (block >= kept && block < seen)) word |= 1u << i;
    }
    to[w] = word;
  }
}

#ifdef ALLOT_TRY_TIMES
struct Times {
  cudaStream_t st;
  cudaEvent_t e[12];
  int n = 0;
  double sum[12] = {};
};
static Times g_times;
#define MARK()                                         \
  do {                                                 \
    cudaStreamCaptureStatus cs;                        \
    cudaStreamIsCapturing(stream, &cs);                \
    if (cs == cudaStreamCaptureStatusNone) {           \
      if (!g_times.e[0])                               \
        for (auto& x : g_times.e) cudaEventCreate(&x); \
      cudaEventRecord(g_times.e[g_times.n++], stream); \
    }                                                  \
  } while (0)
#else
#define MARK()
#endif
template <int D>
void launch(const PromptChunk& chunk, const SaleChunk& sale, cudaStream_t stream) {
  const auto heads = static_cast<unsigned>(chunk.heads);
  const auto kv_heads = static_cast<unsigned>(chunk.kv_heads);
  const auto splits = static_cast<unsigned>(sale.splits);
  const int end = chunk.first + chunk.count;
  const int oldest =
      chunk.window > 0 && chunk.first >= chunk.window ? chunk.first + 1 - chunk.window : 0;
  const auto blocks =
      static_cast<unsigned>((end - 1) / kQueryBlock - chunk.first / kQueryBlock + 1);
  MARK();
  if (!sale.all) {
    sumQueries<D><<<dim3(heads, splits), D, 0, stream>>>(chunk, sale);
    takeMeans<D><<<heads, D, 0, stream>>>(sale, chunk.count, sale.query_means);
    MARK();
    sumKeys<D><<<dim3(kv_heads, splits), D, 0, stream>>>(chunk, sale);
    takeMeans<D><<<kv_heads, D, 0, stream>>>(sale, end - oldest, sale.key_means);
    MARK();
    const auto key_blocks = static_cast<unsigned>((end - 1) / kSaleBlock - oldest / kSaleBlock + 1);
    codeKeys<D><<<dim3(key_blocks, kv_heads), 128, 0, stream>>>(chunk, sale);
    MARK();
    codeQueries<D><<<dim3(4 * blocks, heads), 128, 0, stream>>>(chunk, sale);
    MARK();
    const int bytes = (kQueryBlock + kSaleBlock) * (D + 1) * static_cast<int>(sizeof(float));
    cudaFuncSetAttribute(findThresholds<D>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    findThresholds<D>
        <<<dim3(heads, blocks), 256, static_cast<size_t>(bytes), stream>>>(chunk, sale);
    MARK();
  }
  constexpr int kBlocks = 2;
  const int bytes = 2 * 64 * D + kBlocks * sale.words * static_cast<int>(sizeof(uint32_t));
  cudaFuncSetAttribute(findReached<D, kBlocks>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  findReached<D, kBlocks><<<dim3(heads, (blocks + kBlocks - 1) / kBlocks), kBlocks * 128,
                            static_cast<size_t>(bytes), stream>>>(chunk, sale);
  MARK();
#ifdef ALLOT_TRY_TIMES
  if (g_times.n >= 7) {
    cudaStreamSynchronize(stream);
    printf("sale at %d:", end);
    for (int i = 1; i < g_times.n; ++i) {
      float ms;
      cudaEventElapsedTime(&ms, g_times.e[i - 1], g_times.e[i]);
      printf(" %.3f", ms);
    }
    printf("\n");
  }
  g_times.n = 0;
#endif
}

}  // namespace

void launchSale(const PromptChunk& chunk, const SaleChunk& sale, int head_dim,
                cudaStream_t stream) {
  head_dim == 64 ? launch<64>(chunk, sale, stream) : launch<128>(chunk, sale, stream);
}

}  // namespace allot::kernels::cuda
