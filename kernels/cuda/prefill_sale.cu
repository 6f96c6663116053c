// SALE's selection (kernels/cpu/select_sale.cpp). Means and thresholds are sums in double
// precision, in another order than the CPU's, rounded to float32. Lists are the CPU's unless this
// rounding decides: all else has the CPU's operations, and products of codes are whole numbers.
#include "kernels/cuda/prefill_sale_codes.cuh"

namespace allot::kernels::cuda {
namespace {

constexpr float kKeepsAll = 1e-5f;

__device__ int localBlocks(int seen) { return min(seen, 4 + ((seen - 5) % 4 + 4) % 4); }
__device__ int saleBlocksSeen(int end) { return (end + kSaleBlock - 1) / kSaleBlock; }

__device__ bool keepsAll(const SaleChunk& sale, int head, int seen) {
  return sale.all || sale.tau[head] < kKeepsAll || 1 + localBlocks(seen) >= seen;
}

constexpr int kThresholdThreads = 128;
constexpr int thresholdBytes(int head_dim) {
  return (kQueryBlock + kSaleBlock) * (head_dim + 4) * static_cast<int>(sizeof(float));
}

// Writes 32 keys from position `from` on, less the mean key; zeros outside the chunk or the pool.
template <int D>
__device__ void stageKeys(const PromptChunk& chunk, const SaleChunk& sale, int kv_head, int from,
                          float* keys, int thread) {
#pragma unroll
  for (int i = thread; i < kSaleBlock * D / 8; i += kThresholdThreads) {
    const int k = i / (D / 8), d = i % (D / 8) * 8;
    const Cached* key = from + k < chunkEnd(chunk) ? keyAt<D>(chunk, kv_head, from + k) : nullptr;
    uint4 words = {0, 0, 0, 0};
    if (key) words = *reinterpret_cast<const uint4*>(key + d);
    const uint32_t pairs[4] = {words.x, words.y, words.z, words.w};
    const float* mean = sale.key_means + kv_head * D + d;
    float* to = keys + k * (D + 4) + d;
#pragma unroll
    for (int p = 0; p < 4; ++p) {
      const float2 x = ElementOf<Cached>::pair(pairs[p]);
      to[2 * p] = key ? __fsub_rn(x.x, mean[2 * p]) : 0.0f;
      to[2 * p + 1] = key ? __fsub_rn(x.y, mean[2 * p + 1]) : 0.0f;
    }
  }
}

// Writes the thresholds of 64 queries of one head, from the first block of keys and the local ones.
// Eight lanes share four queries; each has four of 32 keys.
template <int D>
__global__ void __launch_bounds__(kThresholdThreads)
    findThresholds(const PromptChunk chunk, const SaleChunk sale) {
  extern __shared__ __align__(16) float staged[];
  constexpr int kStride = D + 4;  // eight keys' same four channels lie in different banks
  float* const queries = staged;
  float* const keys = staged + kQueryBlock * kStride;
  const int head = static_cast<int>(blockIdx.x), b = static_cast<int>(blockIdx.y);
  const int kv_head = head / (chunk.heads / chunk.kv_heads);
  const int begin = blockBegin(chunk, b), end = blockEnd(chunk, b);
  const int thread = static_cast<int>(threadIdx.x);
  const int seen = saleBlocksSeen(end), local = localBlocks(seen);
  if (keepsAll(sale, head, seen)) return;
  for (int i = thread; i < kQueryBlock * D / 4; i += kThresholdThreads) {
    const int q = i / (D / 4), d = i % (D / 4) * 4, position = begin + q;
    const int64_t from = static_cast<int64_t>(position - chunk.first) * chunk.heads + head;
    float4 x = {0, 0, 0, 0};
    if (position < end) x = *reinterpret_cast<const float4*>(chunk.queries + from * D + d);
    *reinterpret_cast<float4*>(queries + q * kStride + d) = x;
  }
  const int first_query = thread / 8 * 4, first_key = thread % 8;
  float top[4];
  double sum[4];
#pragma unroll
  for (int q = 0; q < 4; ++q) {
    top[q] = minusInfinity();
    sum[q] = 0;
  }
  for (int part = 0; part <= local; ++part) {
    const int from = part == 0 ? 0 : (seen - local + part - 1) * kSaleBlock;
    __syncthreads();
    stageKeys<D>(chunk, sale, kv_head, from, keys, thread);
    __syncthreads();
    float sums[4][4] = {};
    for (int d = 0; d < D; d += 4) {
      float4 key[4];
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        key[k] = *reinterpret_cast<const float4*>(keys + (first_key + 8 * k) * kStride + d);
      }
#pragma unroll
      for (int q = 0; q < 4; ++q) {
        const float4 query =
            *reinterpret_cast<const float4*>(queries + (first_query + q) * kStride + d);
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          float& to = sums[q][k];
          to = __fadd_rn(to, __fmul_rn(query.x, key[k].x));
          to = __fadd_rn(to, __fmul_rn(query.y, key[k].y));
          to = __fadd_rn(to, __fmul_rn(query.z, key[k].z));
          to = __fadd_rn(to, __fmul_rn(query.w, key[k].w));
        }
      }
    }
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      const int position = begin + first_query + q;
      const int oldest = oldestOf(chunk, position);
      float most = minusInfinity();
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const int j = from + first_key + 8 * k;
        sums[q][k] =
            j >= oldest && j <= position ? __fmul_rn(chunk.scale, sums[q][k]) : minusInfinity();
        most = fmaxf(most, sums[q][k]);
      }
      if (most == minusInfinity()) continue;
      if (most > top[q]) {
        sum[q] *= exp(static_cast<double>(top[q]) - static_cast<double>(most));
        top[q] = most;
      }
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        if (sums[q][k] == minusInfinity()) continue;
        sum[q] += exp(static_cast<double>(sums[q][k]) - static_cast<double>(top[q]));
      }
    }
  }
#pragma unroll
  for (int q = 0; q < 4; ++q) {
    float most = top[q];
#pragma unroll
    for (int other = 4; other > 0; other /= 2) {
      most = fmaxf(most, __shfl_xor_sync(kAll, most, other));
    }
    double all =
        sum[q] > 0 ? sum[q] * exp(static_cast<double>(top[q]) - static_cast<double>(most)) : sum[q];
#pragma unroll
    for (int other = 4; other > 0; other /= 2) all += __shfl_xor_sync(kAll, all, other);
    const int position = begin + first_query + q;
    if (first_key != 0 || position >= end) continue;
    if (!isNumber(most) || !(all > 0) || isinf(all)) {
      report(chunk, PromptWrong::kScore, head, begin / kQueryBlock);
    }
    const int at = position - firstBlock(chunk) * kQueryBlock;
    sale.thresholds[static_cast<int64_t>(head) * sale.rows + at] =
        __fadd_rn(most, static_cast<float>(log(static_cast<double>(sale.tau[head]) * all)));
  }
}

// A tile of kCodeKeys keys in shared memory: codes, in chunks of 16 bytes swizzled against bank
// conflicts; then mean scores, scales, and the largest mean score of each scale.
constexpr int kCodeKeys = 128;
constexpr int kCodeBlocks = kCodeKeys / kSaleBlock;
template <int D>
struct CodeTile {
  static constexpr int kCodes = kCodeKeys * D;
  static constexpr int kMeans = kCodes, kScales = kMeans + kCodeKeys * 4;
  static constexpr int kMost = kScales + kCodeKeys / 8 * 4;
  static constexpr int kBytes = (kMost + kCodeKeys / 8 * 4 + 1023) / 1024 * 1024;
  static constexpr int kChunks = D / 16;

  __device__ static uint32_t address(uint32_t tile, int key, int chunk) {
    const int moved = D == 128 ? chunk ^ (key & 7) : chunk ^ (key >> 1 & 3);
    return tile + static_cast<uint32_t>(key * D + moved * 16);
  }
};

// The codes and thresholds of a warp's 16 queries.
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

  // Computes the products of codes of queries and of the tile's keys.
  // Requires: all warps of the block of 64 queries call it.
  __device__ void multiply(uint32_t tile, int lane, int (&dots)[kCodeKeys / 8][4]) const {
#pragma unroll
    for (int n = 0; n < kCodeKeys / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) dots[n][i] = 0;
    }
#ifdef ALLOT_WGMMA
    if constexpr (usesWgmma<D>()) {
      hold(dots);
      wgmmaFence();
#pragma unroll
      for (int k = 0; k < D / 32; ++k) {
        multiplyCodes(dots, at[k], tileDescriptor(tile + static_cast<uint32_t>(k * 32), 16));
      }
      wgmmaCommit();
      wgmmaWait<0>();
      hold(dots);
    } else
#endif
    {
#pragma unroll
      for (int n = 0; n < kCodeKeys / 8; ++n) {
#pragma unroll
        for (int k = 0; k < D / 64; ++k) {
          uint32_t b[4];
          loadMatrices(b, CodeTile<D>::address(tile, 8 * n + lane % 8, 4 * k + lane / 8));
          multiplyCodes(dots[n], at[2 * k], b[0], b[1]);
          multiplyCodes(dots[n], at[2 * k + 1], b[2], b[3]);
        }
      }
    }
  }

  // Returns true if one of this thread's scores of the tile's block `in_tile` may reach its row's
  // threshold, by the largest product and mean score of a scale's keys, with room for rounding.
  __device__ bool mayReach(float scale_of_all, const int (&dots)[kCodeKeys / 8][4],
                           const uint8_t* tile, int in_tile, int lane) const {
    const int t = lane % 4;
    const float key_scale =
        reinterpret_cast<const float*>(tile + CodeTile<D>::kScales)[4 * in_tile + t];
    const float mean = reinterpret_cast<const float*>(tile + CodeTile<D>::kMost)[4 * in_tile + t];
    bool may = false;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      int most = dots[4 * in_tile][2 * half];
#pragma unroll
      for (int n = 0; n < kSaleBlock / 8; ++n) {
        most = max(most, max(dots[4 * in_tile + n][2 * half], dots[4 * in_tile + n][2 * half + 1]));
      }
      const float product = scale[half] * key_scale * static_cast<float>(most);
      const float bound = scale_of_all * (product + mean);
      const float slack = scale_of_all * 1e-5f * (fabsf(product) + fabsf(mean));
      may = may || bound + slack >= threshold[half];
    }
    return may;
  }

  // Returns true if one of this thread's scores of the tile's block `in_tile` reaches its row's
  // threshold. The block's first key is at `first`; keys before a row's window do not count.
  __device__ bool reach(float scale_of_all, const int (&dots)[kCodeKeys / 8][4],
                        const uint8_t* tile, int in_tile, int first, int lane) const {
    const int t = lane % 4;
    const float* means = reinterpret_cast<const float*>(tile + CodeTile<D>::kMeans);
    const float key_scale =
        reinterpret_cast<const float*>(tile + CodeTile<D>::kScales)[4 * in_tile + t];
    const float factor[2] = {__fmul_rn(scale[0], key_scale), __fmul_rn(scale[1], key_scale)};
    float top[2] = {minusInfinity(), minusInfinity()};
#pragma unroll
    for (int n = 0; n < kSaleBlock / 8; ++n) {
      const int column = 8 * n + 2 * t;
      const float2 mean = *reinterpret_cast<const float2*>(means + kSaleBlock * in_tile + column);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int half = i / 2;
        const auto dot = static_cast<float>(dots[4 * in_tile + n][i]);
        const float score = __fadd_rn(__fmul_rn(factor[half], dot), i % 2 ? mean.y : mean.x);
        if (first + column + i % 2 >= oldest[half]) top[half] = fmaxf(top[half], score);
      }
    }
    return __fmul_rn(scale_of_all, top[0]) >= threshold[0] ||
           __fmul_rn(scale_of_all, top[1]) >= threshold[1];
  }
};

// Starts the copy of a CodeTile; zeros from sale.room on.
template <int D, int Threads>
__device__ void copyCodes(const SaleChunk& sale, int head, int kv_head, int tile, uint32_t to,
                          int thread) {
  using Tile = CodeTile<D>;
  const int64_t key0 = static_cast<int64_t>(tile) * kCodeKeys;
  const int64_t of_head = static_cast<int64_t>(kv_head) * sale.room + key0;
#pragma unroll
  for (int i = thread; i < kCodeKeys * Tile::kChunks; i += Threads) {
    const int key = i / Tile::kChunks, part = i % Tile::kChunks;
    copyAsync(Tile::address(to, key, part), sale.key_codes + (of_head + key) * D + part * 16,
              key0 + key < sale.room);
  }
  const int64_t scale0 = key0 / 8;
  if (thread < 32) {
    copyAsync(to + Tile::kMeans + static_cast<uint32_t>(thread * 16),
              sale.mean_scores + static_cast<int64_t>(head) * sale.room + key0 + thread * 4,
              key0 + thread * 4 < sale.room);
  } else if (thread < 32 + 2 * kCodeBlocks) {
    const int block = thread % kCodeBlocks;
    const bool scales = thread < 32 + kCodeBlocks;
    const float* from = scales ? sale.key_scales + static_cast<int64_t>(kv_head) * (sale.room / 8)
                               : sale.most_means + static_cast<int64_t>(head) * (sale.room / 8);
    copyAsync(to + (scales ? Tile::kScales : Tile::kMost) + static_cast<uint32_t>(block * 16),
              from + scale0 + block * 4, key0 + block * kSaleBlock < sale.room);
  }
}

// Writes the bits of one head's `Blocks` blocks of 64 queries, which share the tiles of codes.
template <int D, int Blocks>
__global__ void __launch_bounds__(Blocks * 128, 2)
    findReached(const PromptChunk chunk, const SaleChunk sale) {
  extern __shared__ __align__(1024) uint8_t shared[];
  using Tile = CodeTile<D>;
  constexpr int kThreads = Blocks * 128;
  uint32_t* const words = reinterpret_cast<uint32_t*>(shared + 2 * Tile::kBytes);
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
  const int blocks_end = keepsAll(sale, head, last_seen) ? 1 : last_seen - localBlocks(last_seen);
  const int begin = oldestOf(chunk, blockBegin(chunk, b0)) / kCodeKeys;
  const auto copy = [&](int tile, int stage) {
    copyCodes<D, kThreads>(sale, head, kv_head, tile,
                           sharedAddress(shared) + static_cast<uint32_t>(stage * Tile::kBytes),
                           thread);
  };
  if (begin * kCodeBlocks < blocks_end) copy(begin, 0);
  commitCopies();
  uint32_t found = 0;  // bits of 32 blocks that this thread found
  for (int tile = begin, stage = 0; tile * kCodeBlocks < blocks_end; ++tile, stage ^= 1) {
    meetAtTile();
    if ((tile + 1) * kCodeBlocks < blocks_end) copy(tile + 1, stage ^ 1);
    commitCopies();
    if (!all && kCodeBlocks * tile < middle_end) {  // alike in all warps of a block of queries
      const uint8_t* at = shared + stage * Tile::kBytes;
      int dots[kCodeKeys / 8][4];
      queries.multiply(sharedAddress(at), lane, dots);
#pragma unroll
      for (int i = 0; i < kCodeBlocks; ++i) {
        const int block = kCodeBlocks * tile + i;
        if (block < 1 || block >= middle_end) continue;
        // Most blocks are far below the thresholds.
        if (!__any_sync(kAll, queries.mayReach(chunk.scale, dots, at, i, lane))) continue;
        if (queries.reach(chunk.scale, dots, at, i, block * kSaleBlock, lane)) {
          found |= 1u << block % 32;
        }
      }
    }
    if (tile % 8 == 7 || (tile + 1) * kCodeBlocks >= blocks_end) {
      found = __reduce_or_sync(kAll, found);
      if (found && lane == 0) atomicOr(own + tile / 8, found);
      found = 0;
    }
  }
  __syncthreads();
  if (!there) return;
  // Adds the first block and the local ones.
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
  if (!sale.all) {
    sumQueries<D><<<dim3(heads, splits), D, 0, stream>>>(chunk, sale);
    takeMeans<D><<<heads, D, 0, stream>>>(sale, chunk.count, sale.query_means);
    sumKeys<D><<<dim3(kv_heads, splits), D, 0, stream>>>(chunk, sale);
    takeMeans<D><<<kv_heads, D, 0, stream>>>(sale, end - oldest, sale.key_means);
    const auto key_blocks = static_cast<unsigned>((end - 1) / kSaleBlock - oldest / kSaleBlock + 1);
    codeKeys<D><<<dim3(key_blocks, kv_heads), 128, 0, stream>>>(chunk, sale);
    codeQueries<D><<<dim3(4 * blocks, heads), 128, 0, stream>>>(chunk, sale);
    const int bytes = thresholdBytes(D);
    cudaFuncSetAttribute(findThresholds<D>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    findThresholds<D>
        <<<dim3(heads, blocks), kThresholdThreads, static_cast<size_t>(bytes), stream>>>(chunk,
                                                                                         sale);
  }
  constexpr int kBlocks = 2;
  const int bytes =
      2 * CodeTile<D>::kBytes + kBlocks * sale.words * static_cast<int>(sizeof(uint32_t));
  cudaFuncSetAttribute(findReached<D, kBlocks>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  findReached<D, kBlocks><<<dim3(heads, (blocks + kBlocks - 1) / kBlocks), kBlocks * 128,
                            static_cast<size_t>(bytes), stream>>>(chunk, sale);
}

}  // namespace

void launchSale(const PromptChunk& chunk, const SaleChunk& sale, int head_dim,
                cudaStream_t stream) {
  head_dim == 64 ? launch<64>(chunk, sale, stream) : launch<128>(chunk, sale, stream);
}

}  // namespace allot::kernels::cuda
