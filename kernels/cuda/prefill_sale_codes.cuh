#pragma once
// SALE's 4-bit codes of keys and queries, less their means (prefill_sale.cu). Device code.
#include "kernels/cuda/prefill_tiles.cuh"

namespace allot::kernels::cuda {

constexpr float kLargestCode = 7;

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

// Sum one split's keys, or queries, a thread a channel.
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

__device__ inline float scaleOf(float largest) { return __fdiv_rn(largest, kLargestCode); }
__device__ inline int codeOf(float x, float scale) {
  return scale > 0 ? static_cast<int>(rintf(__fdiv_rn(x, scale))) : 0;
}
__device__ inline float largestOfWarp(float x) {
#pragma unroll
  for (int other = 16; other > 0; other /= 2) x = fmaxf(x, __shfl_xor_sync(kAll, x, other));
  return x;
}

// Writes codes and scales of 32 keys, their mean scores (products with the mean query) and the
// largest mean score of each scale. Keys of equal (key mod 8) / 2 share a scale, a warp each.
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
    const int64_t to = static_cast<int64_t>(head) * sale.room + block * kSaleBlock;
    const auto mean = static_cast<float>(sum);
    sale.mean_scores[to + lane] = mean;
    // Lanes of equal (lane mod 8) / 2 share a scale.
    float most = mean;
    for (const int other : {1, 8, 16}) most = fmaxf(most, __shfl_xor_sync(kAll, most, other));
    if (lane < 8 && lane % 2 == 0) sale.most_means[to / 8 + lane / 2] = most;
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

}  // namespace allot::kernels::cuda
