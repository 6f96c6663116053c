#pragma once
// SALE's 4-bit codes of keys and queries, less their means (prefill_sale.cu). Device code.
#include "kernels/cuda/prefill_tiles.cuh"

namespace allot::kernels::cuda {

constexpr float kLargestCode = 7;
// A stored code of a query is this times the code. It fits a byte.
constexpr int kQueryCodes = 16;
constexpr float kKeepsAll = 1e-5f;

// Return where the chunk's b-th block of queries begins and ends.
__device__ inline int blockBegin(const PromptChunk& chunk, int b) {
  return max(chunk.first, (firstBlock(chunk) + b) * kQueryBlock);
}
__device__ inline int blockEnd(const PromptChunk& chunk, int b) {
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

// D / 32 neighbouring channels of a key, of which a warp has all.
template <int D>
struct ChannelsOf {
  static constexpr int kChannels = D / 32;
  float at[kChannels];

  // Loads the lane's channels; zeros from a null pointer.
  __device__ static ChannelsOf load(const Cached* key, int lane) {
    ChannelsOf made;
    uint32_t pairs[kChannels / 2] = {};
    if (key) {
      const Cached* from = key + lane * kChannels;
      if constexpr (kChannels == 4) {
        const uint2 both = __ldg(reinterpret_cast<const uint2*>(from));
        pairs[0] = both.x;
        pairs[1] = both.y;
      } else {
        pairs[0] = __ldg(reinterpret_cast<const uint32_t*>(from));
      }
    }
#pragma unroll
    for (int i = 0; i < kChannels / 2; ++i) {
      const float2 x = ElementOf<Cached>::pair(pairs[i]);
      made.at[2 * i] = x.x;
      made.at[2 * i + 1] = x.y;
    }
    return made;
  }
};

// Sum one split's keys, or queries. A warp of four takes 16 neighbours of keys at a time.
template <int D>
__global__ void __launch_bounds__(128) sumKeys(const PromptChunk chunk, const SaleChunk sale) {
  using Channels = ChannelsOf<D>;
  __shared__ double sums[4][D];
  const int kv_head = static_cast<int>(blockIdx.x), split = static_cast<int>(blockIdx.y);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int oldest = oldestOf(chunk, chunk.first), end = chunkEnd(chunk);
  const int first = oldest / 16, groups = (end - 1) / 16 - first + 1;
  const int each = (groups + sale.splits - 1) / sale.splits;
  const int to = min(groups, (split + 1) * each);
  double own[Channels::kChannels] = {};
  for (int group = split * each + warp; group < to; group += 4) {
    const int position = (first + group) * 16;
    const Cached* keys = keyAt<D>(chunk, kv_head, position);
#pragma unroll
    for (int k = 0; k < 16; ++k) {
      const bool there = keys && position + k >= oldest && position + k < end;
      const Channels key = Channels::load(there ? keys + k * D : nullptr, lane);
#pragma unroll
      for (int i = 0; i < Channels::kChannels; ++i) own[i] += static_cast<double>(key.at[i]);
    }
  }
#pragma unroll
  for (int i = 0; i < Channels::kChannels; ++i) sums[warp][lane * Channels::kChannels + i] = own[i];
  __syncthreads();
  const int channel = static_cast<int>(threadIdx.x);
  if (channel >= D) return;
  sale.partial[(static_cast<int64_t>(kv_head) * sale.splits + split) * D + channel] =
      sums[0][channel] + sums[1][channel] + sums[2][channel] + sums[3][channel];
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
        queryAt(chunk, (static_cast<int64_t>(q) * chunk.heads + head) * D + threadIdx.x));
  }
  sale.partial[(static_cast<int64_t>(head) * sale.splits + split) * D + threadIdx.x] = sum;
}

template <int D>
__global__ void __launch_bounds__(D) takeMeans(const SaleChunk sale, int count, float* means) {
  double sum = 0;
#pragma unroll 8
  for (int split = 0; split < sale.splits; ++split) {
    sum += sale.partial[(static_cast<int64_t>(blockIdx.x) * sale.splits + split) * D + threadIdx.x];
  }
  means[static_cast<int64_t>(blockIdx.x) * D + threadIdx.x] = static_cast<float>(sum / count);
}

__device__ inline float scaleOf(float largest) { return __fdiv_rn(largest, kLargestCode); }
__device__ inline int codeOf(float x, float scale) {
  return scale > 0 ? static_cast<int>(rintf(__fdiv_rn(x, scale))) : 0;
}
__device__ inline float largestOfWarp(float x) {
#pragma unroll
  for (int other = 16; other > 0; other /= 2) x = fmaxf(x, __shfl_xor_sync(kAll, x, other));
  return x;
}

// Codes of keys lie in tiles of kCodeKeys, D bytes a key, in chunks of 16 bytes that are permuted
// against bank conflicts: at D = 128 as in wgmma's 128-byte swizzle.
constexpr int kCodeBlocks = kCodeKeys / kSaleBlock;
template <int D>
struct CodeTile {
  static constexpr int kBytes = kCodeKeys * D;

  // Returns the place of a key's chunk in its tile.
  __device__ static uint32_t place(int key, int chunk) {
    const int moved = D == 128 ? chunk ^ (key & 7) : chunk ^ (key >> 1 & 3);
    return static_cast<uint32_t>(key * D + moved * 16);
  }
};

constexpr int kCodedHeads = 4;  // of a KV head, whose mean scores codeKeys() computes together

// Writes codes and scales of 32 keys, and their mean scores: products with the mean query. Keys of
// equal (key mod 8) / 2 share a scale, a warp each.
template <int D>
__global__ void __launch_bounds__(128) codeKeys(const PromptChunk chunk, const SaleChunk sale) {
  using Channels = ChannelsOf<D>;
  constexpr int kChannels = Channels::kChannels, kStride = D + 4;
  __shared__ __align__(16) float centred[kSaleBlock * kStride];
  __shared__ __align__(16) double queries[kCodedHeads][D];
  __shared__ double partial[4][kCodedHeads][kSaleBlock];
  const int kv_head = static_cast<int>(blockIdx.y), thread = static_cast<int>(threadIdx.x);
  const int oldest = oldestOf(chunk, chunk.first), end = chunkEnd(chunk);
  const int block = oldest / kSaleBlock + static_cast<int>(blockIdx.x);
  const int warp = thread / 32, lane = thread % 32;
  Channels mean, keys[8];
#pragma unroll
  for (int i = 0; i < kChannels; ++i) {
    mean.at[i] = sale.key_means[kv_head * D + lane * kChannels + i];
  }
  const auto inBlock = [&](int k) { return k / 2 * 8 + warp * 2 + k % 2; };
  float largest = 0;
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    const int position = block * kSaleBlock + inBlock(k);
    const Cached* key =
        position >= oldest && position < end ? keyAt<D>(chunk, kv_head, position) : nullptr;
    keys[k] = Channels::load(key, lane);
#pragma unroll
    for (int i = 0; i < kChannels; ++i) {
      float& x = keys[k].at[i];
      x = key ? __fsub_rn(x, mean.at[i]) : 0.0f;
      largest = fmaxf(largest, fabsf(x));
    }
  }
  const float scale = scaleOf(largestOfWarp(largest));
  const int64_t at = static_cast<int64_t>(kv_head) * sale.room + block * kSaleBlock;
  int8_t* const tile = sale.key_codes + at / kCodeKeys * CodeTile<D>::kBytes;
  const int channel = lane * kChannels;
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    uint32_t codes = 0;
#pragma unroll
    for (int i = 0; i < kChannels; ++i) {
      const float x = keys[k].at[i];
      centred[inBlock(k) * kStride + channel + i] = x;
      codes |= (static_cast<uint32_t>(codeOf(x, scale)) & 0xff) << 8 * i;
    }
    int8_t* to = tile +
                 CodeTile<D>::place(block % kCodeBlocks * kSaleBlock + inBlock(k), channel / 16) +
                 channel % 16;
    if constexpr (kChannels == 4) {
      *reinterpret_cast<uint32_t*>(to) = codes;
    } else {
      *reinterpret_cast<uint16_t*>(to) = static_cast<uint16_t>(codes);
    }
  }
  if (lane == 0) {
    sale.key_scales[at / 8 + warp] = scale;
    sale.key_inverses[at / 8 + warp] = 1.0f / scale;
  }
  const int heads = chunk.heads / chunk.kv_heads;
  for (int h0 = 0; h0 < heads; h0 += kCodedHeads) {
    __syncthreads();
    for (int i = thread; i < kCodedHeads * D; i += 128) {
      const int head = kv_head * heads + min(h0 + i / D, heads - 1);
      queries[i / D][i % D] = static_cast<double>(__ldg(sale.query_means + head * D + i % D));
    }
    __syncthreads();
    // A lane has a key, a warp a quarter of the channels.
    double sums[kCodedHeads] = {};
#pragma unroll 2
    for (int c = warp * (D / 4); c < (warp + 1) * (D / 4); c += 4) {
      const float4 key = *reinterpret_cast<const float4*>(centred + lane * kStride + c);
      const double x[4] = {key.x, key.y, key.z, key.w};
#pragma unroll
      for (int h = 0; h < kCodedHeads; ++h) {
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[h] += queries[h][c + i] * x[i];
      }
    }
#pragma unroll
    for (int h = 0; h < kCodedHeads; ++h) partial[warp][h][lane] = sums[h];
    __syncthreads();
    if (h0 + warp >= heads) continue;  // only in the last round
    double sum = 0;
#pragma unroll
    for (int w = 0; w < 4; ++w) sum += partial[w][warp][lane];
    sale.mean_scores[static_cast<int64_t>(kv_head * heads + h0 + warp) * sale.room +
                     block * kSaleBlock + lane] = static_cast<float>(sum);
  }
}

// Writes codes and scales of 16 queries. Queries r and r + 8 share a scale; a warp has two scales.
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
      const int64_t query =
          (static_cast<int64_t>(there ? position - chunk.first : 0) * chunk.heads + head) * D;
#pragma unroll
      for (int i = 0; i < kChannels; ++i) {
        const float mean = sale.query_means[static_cast<int64_t>(head) * D + i * 32 + lane];
        x[half][i] = there ? __fsub_rn(queryAt(chunk, query + i * 32 + lane), mean) : 0.0f;
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
        sale.query_codes[to * D + i * 32 + lane] =
            static_cast<int8_t>(kQueryCodes * codeOf(x[half][i], scale));
      }
    }
  }
}

}  // namespace allot::kernels::cuda
