// SampleAttention's selection (kernels/cpu/select_sample_attention.cpp): the chunk's last 64
// queries against their keys twice, once for their normalisers and once for their attention, which
// is summed as integers; then the heaviest bins; then the bits.
#include "kernels/cuda/prefill_keys.cuh"

namespace allot::kernels::cuda {
namespace {

// `Parts`: bfloat16 terms of a query; three have the 24 bits of a float.
constexpr int kSampleThreads = 128;
using Count = unsigned long long;

__device__ int sampledBegin(const PromptChunk& chunk) {
  return max(chunk.first, chunkEnd(chunk) - kQueryBlock);
}
// Returns the tiles of one split. Split i begins at tile i * tilesEach(rows).
__device__ int tilesEach(const SampledRows& rows) {
  return (rows.bins + rows.splits - 1) / rows.splits;
}

template <int D, int Parts>
__global__ void __launch_bounds__(kSampleThreads)
    findTops(const PromptChunk chunk, const SampledRows rows) {
  extern __shared__ __align__(1024) uint8_t shared[];
  const int head = static_cast<int>(blockIdx.x), split = static_cast<int>(blockIdx.y);
  const int kv_head = head / (chunk.heads / chunk.kv_heads);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int row = sampledBegin(chunk) + 16 * warp, end = chunkEnd(chunk);
  const float scale2 = chunk.scale * kLog2E;
  QueryTile<D, Parts> queries;
  queries.load(chunk, head, row, lane);
  RunningSum made;
  bool outside = false;
  const int oldest_tile = oldestOf(chunk, sampledBegin(chunk)) / kTileKeys64;
  const int from = split * tilesEach(rows), to = min(rows.bins, from + tilesEach(rows));
  forEachTile<D, kSampleThreads>(chunk, kv_head, max(from, oldest_tile), to, end,
                                 sharedAddress(shared), &outside,
                                 [&](uint32_t tile, const TilePlaces& places) {
                                   float scores[8][4];
                                   queries.score(tile, lane, scores);
                                   if (isMasked(chunk, places, row)) {
                                     maskScores(chunk, places, row, lane, scores);
                                   }
                                   made.add(scores, scale2);
                                 });
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float sum = sumOfRow(made.sum[half]);
    if (lane % 4 != 0) continue;
    const int64_t at = (static_cast<int64_t>(head) * rows.splits + split) * kQueryBlock +
                       16 * warp + lane / 4 + 8 * half;
    rows.tops[at] = made.top[half];
    rows.sums[at] = sum;
  }
  if (__syncthreads_or(outside) && threadIdx.x == 0) {
    report(chunk, PromptWrong::kPage, head, sampledBegin(chunk) / kQueryBlock);
  }
}

// Returns log2 of the sum of exponentials of sampled query r; +infinity for queries that are not
// there, so that all their weights are 0. Reports a largest score that is not finite, and a sum
// relative to it that is 0, infinite or NaN.
__device__ float normaliserOf(const PromptChunk& chunk, const SampledRows& rows, int head, int r) {
  if (sampledBegin(chunk) + r >= chunkEnd(chunk)) return -minusInfinity();
  const float* tops = rows.tops + static_cast<int64_t>(head) * rows.splits * kQueryBlock + r;
  const float* sums = rows.sums + static_cast<int64_t>(head) * rows.splits * kQueryBlock + r;
  float top = minusInfinity();
  for (int s = 0; s < rows.splits; ++s) top = fmaxf(top, tops[s * kQueryBlock]);
  double sum = 0;
  for (int s = 0; s < rows.splits; ++s) {
    if (sums[s * kQueryBlock] == 0) continue;
    sum += static_cast<double>(sums[s * kQueryBlock]) *
           exp2(static_cast<double>(tops[s * kQueryBlock]) - static_cast<double>(top));
  }
  if (!isNumber(top) || !(sum > 0) || isinf(sum)) {
    report(chunk, PromptWrong::kScore, head, sampledBegin(chunk) / kQueryBlock);
  }
  return top + static_cast<float>(log2(sum));
}

__device__ Count sumOfWarp(Count x) {
#pragma unroll
  for (int other = 16; other > 0; other /= 2) x += __shfl_xor_sync(kAll, x, other);
  return x;
}

template <int D, int Parts>
__global__ void __launch_bounds__(kSampleThreads, Parts == 1 ? 4 : 1)
    addAttention(const PromptChunk chunk, const SampledRows rows) {
  extern __shared__ __align__(1024) uint8_t shared[];
  const int head = static_cast<int>(blockIdx.x), split = static_cast<int>(blockIdx.y);
  const int kv_head = head / (chunk.heads / chunk.kv_heads);
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  const int begin = sampledBegin(chunk), row = begin + 16 * warp, end = chunkEnd(chunk);
  const float scale2 = chunk.scale * kLog2E;
  const int each = tilesEach(rows), from = split * each, to = min(rows.bins, from + each);
  // Sums of the split's key blocks, and of the each + 2 bins of its distances.
  Count* const columns = reinterpret_cast<Count*>(shared + 2 * SharedTile<D>::kBytes);
  Count* const slashes = columns + each;
  float* const normalisers = reinterpret_cast<float*>(slashes + each + 2);
  for (int i = thread; i < 2 * each + 2; i += kSampleThreads) columns[i] = 0;
  if (thread < kQueryBlock) normalisers[thread] = normaliserOf(chunk, rows, head, thread);
  __syncthreads();
  QueryTile<D, Parts> queries;
  queries.load(chunk, head, row, lane);
  const float shift[2] = {normalisers[16 * warp + lane / 4], normalisers[16 * warp + lane / 4 + 8]};
  const int position = row + lane / 4;
  // Returns the bin of a tile's smallest distance: of the first query to the tile's last key. It is
  // below 0 if that key is behind the query.
  const auto lowest = [&](int tile) {
    const int distance = begin - (tile * kTileKeys64 + kTileKeys64 - 1);
    return (distance < 0 ? distance - (kTileKeys64 - 1) : distance) / kTileKeys64;
  };
  const int base = lowest(to - 1);
  bool outside = false;
  const int oldest_tile = oldestOf(chunk, begin) / kTileKeys64;
  forEachTile<D, kSampleThreads>(
      chunk, kv_head, max(from, oldest_tile), to, end, sharedAddress(shared), &outside,
      [&](uint32_t tile, const TilePlaces& places) {
        float scores[8][4];
        queries.score(tile, lane, scores);
        if (isMasked(chunk, places, row)) maskScores(chunk, places, row, lane, scores);
        const int low = lowest(places.start[0] / kTileKeys64);
        Count sums[3] = {0, 0, 0};
#pragma unroll
        for (int n = 0; n < 8; ++n) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const float share = power2(fmaf(scores[n][i], scale2, 30.0f - shift[i / 2]));
            const int distance = position + 8 * (i / 2) - (places.position(n, lane % 4) + i % 2);
            const uint32_t whole = __float2uint_rd(share);
            const int bin = distance - low * kTileKeys64;  // 0 .. 189
            sums[0] += bin < kTileKeys64 ? whole : 0;
            sums[1] += bin >= kTileKeys64 && bin < 2 * kTileKeys64 ? whole : 0;
            sums[2] += bin >= 2 * kTileKeys64 ? whole : 0;
          }
        }
#pragma unroll
        for (int i = 0; i < 3; ++i) {
          sums[i] = sumOfWarp(sums[i]);
          if (lane == 0 && sums[i] > 0) atomicAdd(slashes + (low - base + i), sums[i]);
        }
        if (lane == 0) {
          atomicAdd(columns + (places.start[0] / kTileKeys64 - from), sums[0] + sums[1] + sums[2]);
        }
      });
  auto* const all_columns =
      reinterpret_cast<Count*>(rows.columns) + static_cast<int64_t>(head) * rows.bins;
  auto* const all_slashes =
      reinterpret_cast<Count*>(rows.slashes) + static_cast<int64_t>(head) * rows.bins;
  for (int i = thread; i < to - from; i += kSampleThreads) all_columns[from + i] = columns[i];
  for (int i = thread; i < each + 2; i += kSampleThreads) {
    if (slashes[i] > 0) atomicAdd(all_slashes + (base + i), slashes[i]);
  }
  if (__syncthreads_or(outside) && thread == 0) {
    report(chunk, PromptWrong::kPage, head, begin / kQueryBlock);
  }
}

// Returns a rank that orders bins by their sum and, if sums are equal, lower bins first.
// Requires: sum < 2^48; bin < 2^16.
__device__ uint64_t rankOf(uint64_t sum, int bin) {
  return sum << 16 | static_cast<uint64_t>(0xffff - bin);
}

// Writes the least chosen rank: bins of this rank or more are the fewest that hold the share, or
// all with a share of 1.
__global__ void __launch_bounds__(256) findHeaviest(const SampledRows rows) {
  const int head = static_cast<int>(blockIdx.x), kind = static_cast<int>(blockIdx.y);
  const uint64_t* sums =
      (kind == 0 ? rows.columns : rows.slashes) + static_cast<int64_t>(head) * rows.bins;
  const double share = kind == 0 ? rows.alpha_column : rows.alpha_slash;
  // Three bits of the rank at once: what bins hold from each of eight candidates on.
  constexpr int kCandidates = 8, kBits = 3, kRankBits = 54;
  static_assert(kRankBits % kBits == 0);
  __shared__ Count held[kCandidates];
  const auto findHeld = [&](uint64_t least, int bit) {
    if (threadIdx.x < kCandidates) held[threadIdx.x] = 0;
    __syncthreads();
    Count own[kCandidates] = {};
    for (int i = static_cast<int>(threadIdx.x); i < rows.bins; i += 256) {
      const uint64_t sum = sums[i], rank = rankOf(sum, i);
#pragma unroll
      for (int c = 0; c < kCandidates; ++c) {
        if (rank >= (least | static_cast<uint64_t>(c) << bit)) own[c] += sum;
      }
    }
#pragma unroll
    for (int c = 0; c < kCandidates; ++c) {
      own[c] = sumOfWarp(own[c]);
      if (threadIdx.x % 32 == 0) atomicAdd(&held[c], own[c]);
    }
    __syncthreads();
  };
  uint64_t least = 0;
  Count wanted = 0;
  for (int bit = kRankBits - kBits; share < 1 && bit >= 0; bit -= kBits) {
    findHeld(least, bit);
    if (bit == kRankBits - kBits) {  // all bins
      wanted = static_cast<Count>(ceil(share * static_cast<double>(held[0])));
    }
    int chosen = 0;
    for (int c = 1; c < kCandidates; ++c) {
      if (held[c] >= wanted) chosen = c;
    }
    __syncthreads();
    least |= static_cast<uint64_t>(chosen) << bit;
  }
  if (threadIdx.x == 0) rows.least[static_cast<int64_t>(kind) * gridDim.x + head] = least;
}

__global__ void __launch_bounds__(128) writeBits(const PromptChunk chunk, const SampledRows rows) {
  const int head = static_cast<int>(blockIdx.x), b = static_cast<int>(blockIdx.y);
  const int p = firstBlock(chunk) + b;
  const uint64_t* columns = rows.columns + static_cast<int64_t>(head) * rows.bins;
  const uint64_t* slashes = rows.slashes + static_cast<int64_t>(head) * rows.bins;
  const uint64_t least_column = rows.least[head], least_slash = rows.least[gridDim.x + head];
  const auto slash = [&](int apart) { return rankOf(slashes[apart], apart) >= least_slash; };
  for (int w = static_cast<int>(threadIdx.x); w < rows.words; w += 128) {
    uint32_t word = 0;
    for (int i = 0; i < 32; ++i) {
      const int j = 32 * w + i;
      if (j > p) break;
      // Positions in blocks p and j are p - j or p - j - 1 whole blocks apart.
      const bool chosen =
          j == p || rankOf(columns[j], j) >= least_column || slash(p - j) || slash(p - j - 1);
      word |= static_cast<uint32_t>(chosen) << i;
    }
    rows.bits[(static_cast<int64_t>(head) * gridDim.y + b) * rows.words + w] = word;
  }
}

template <int D, int Parts>
void launch(const PromptChunk& chunk, const SampledRows& rows, cudaStream_t stream) {
  const auto heads = static_cast<unsigned>(chunk.heads);
  const dim3 grid(heads, static_cast<unsigned>(rows.splits));
  const size_t bins = static_cast<size_t>(chunk.heads) * static_cast<size_t>(rows.bins);
  const int tiles = 2 * SharedTile<D>::kBytes, each = (rows.bins + rows.splits - 1) / rows.splits;
  const int sums = (2 * each + 2) * static_cast<int>(sizeof(Count)) + kQueryBlock * 4;
  cudaFuncSetAttribute(findTops<D, Parts>, cudaFuncAttributeMaxDynamicSharedMemorySize, tiles);
  cudaFuncSetAttribute(addAttention<D, Parts>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                       tiles + sums);
  cudaMemsetAsync(rows.columns, 0, bins * sizeof(uint64_t), stream);
  cudaMemsetAsync(rows.slashes, 0, bins * sizeof(uint64_t), stream);
  findTops<D, Parts><<<grid, kSampleThreads, static_cast<size_t>(tiles), stream>>>(chunk, rows);
  addAttention<D, Parts>
      <<<grid, kSampleThreads, static_cast<size_t>(tiles + sums), stream>>>(chunk, rows);
  findHeaviest<<<dim3(heads, 2), 256, 0, stream>>>(rows);
  const int blocks = (chunk.first + chunk.count - 1) / kQueryBlock - chunk.first / kQueryBlock + 1;
  writeBits<<<dim3(heads, static_cast<unsigned>(blocks)), 128, 0, stream>>>(chunk, rows);
}

}  // namespace

void launchSampleAttention(const PromptChunk& chunk, const SampledRows& rows, int head_dim,
                           cudaStream_t stream) {
  if (chunk.queries) {
    head_dim == 64 ? launch<64, 3>(chunk, rows, stream) : launch<128, 3>(chunk, rows, stream);
  } else {
    head_dim == 64 ? launch<64, 1>(chunk, rows, stream) : launch<128, 1>(chunk, rows, stream);
  }
}

}  // namespace allot::kernels::cuda
