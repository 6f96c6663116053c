#include <cuda_bf16.h>

#include <algorithm>

#include "kernels/bench/cuda_fill.h"

namespace allot::bench {
namespace {

constexpr int kThreads = 256;
constexpr int kWarp = 32;
constexpr float kTwoPi = 6.2831853f;

// SplitMix64's finaliser: any two inputs give unrelated outputs.
__device__ uint64_t mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

// In (0, 1]: the largest number rounds to 1.
__device__ float uniform(uint32_t bits) {
  return (static_cast<float>(bits >> 8) + 0.5f) * 5.9604645e-8f;
}

__device__ float2 normalPair(uint64_t bits) {
  const float radius = sqrtf(-2.0f * logf(uniform(static_cast<uint32_t>(bits >> 32))));
  float sine, cosine;
  sincosf(kTwoPi * uniform(static_cast<uint32_t>(bits)), &sine, &cosine);
  return {radius * cosine, radius * sine};
}

__device__ float warpSum(float x) {
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    x += __shfl_xor_sync(0xFFFFFFFFu, x, distance);
  }
  return x;
}

// Returns one score of a query head.
__device__ float drawScore(const ScoreSource& source, uint64_t head, uint64_t bits) {
  if (source.profiles == 0) return source.deviation * normalPair(bits).x;
  const int profile = static_cast<int>(mix(head) % static_cast<uint64_t>(source.profiles));
  const float* scores = source.scores + source.offsets[profile];
  const int count = source.offsets[profile + 1] - source.offsets[profile];
  const float at = uniform(static_cast<uint32_t>(bits)) * static_cast<float>(count) - 0.5f;
  const float inside = fminf(fmaxf(at, 0.0f), static_cast<float>(count - 1));
  const int below = min(static_cast<int>(inside), count - 2);
  const float part = inside - static_cast<float>(below);
  return scores[below] + part * (scores[below + 1] - scores[below]);
}

// A warp makes one key and one value: normal numbers n, moved within the span of the group's
// queries until its products with them are the drawn scores.
template <int kHeadDim>
__global__ void fillKeysKernel(FillInputs in) {
  constexpr int kPairs = kHeadDim / kWarp / 2;
  const int lane = threadIdx.x % kWarp;
  const int64_t vectors = int64_t{in.sequences} * in.count * in.kv_heads;
  const int64_t stride = int64_t{gridDim.x} * (kThreads / kWarp);
  for (int64_t at = int64_t{blockIdx.x} * (kThreads / kWarp) + threadIdx.x / kWarp; at < vectors;
       at += stride) {
    const int kv_head = static_cast<int>(at % in.kv_heads);
    const int position = in.start + static_cast<int>(at / in.kv_heads % in.count);
    const int sequence = in.first + static_cast<int>(at / in.kv_heads / in.count);
    const int row = sequence % in.rows;
    const uint64_t name =
        mix(mix(in.seed + static_cast<uint64_t>(sequence)) +
            static_cast<uint64_t>(position) * 1024 + static_cast<uint64_t>(kv_head));
    float2 key[kPairs], moved[kPairs];
    for (int i = 0; i < kPairs; ++i) {
      const uint64_t stream = static_cast<uint64_t>(lane + i * kWarp);
      key[i] = moved[i] = normalPair(mix(name + stream));
      const float2 value = normalPair(mix(name + 256 + stream));
      reinterpret_cast<float2*>(in.values)[at * (kHeadDim / 2) + lane + i * kWarp] = value;
    }
    for (int h = 0; h < in.group; ++h) {
      const int64_t head = (int64_t{row} * in.kv_heads + kv_head) * in.group + h;
      const float2* query = reinterpret_cast<const float2*>(in.queries) + head * (kHeadDim / 2);
      const float2* dual = reinterpret_cast<const float2*>(in.duals) + head * (kHeadDim / 2);
      float product = 0;
      for (int i = 0; i < kPairs; ++i) {
        const float2 q = query[lane + i * kWarp];
        product += q.x * key[i].x + q.y * key[i].y;
      }
      const float score = drawScore(in.source, static_cast<uint64_t>(head) + in.seed,
                                    mix(name + 512 + static_cast<uint64_t>(h)));
      const float gap = score * sqrtf(static_cast<float>(kHeadDim)) - warpSum(product);
      for (int i = 0; i < kPairs; ++i) {
        const float2 d = dual[lane + i * kWarp];
        moved[i].x += gap * d.x;
        moved[i].y += gap * d.y;
      }
    }
    for (int i = 0; i < kPairs; ++i) {
      reinterpret_cast<float2*>(in.keys)[at * (kHeadDim / 2) + lane + i * kWarp] = moved[i];
    }
  }
}

__global__ void fillNormalKernel(float* to, size_t count, uint64_t seed) {
  const size_t stride = size_t{gridDim.x} * blockDim.x;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride) {
    to[i] = normalPair(mix(mix(seed) + i)).x;
  }
}

constexpr int kColumns = 401;

// Returns a channel of the query or key of a KV head at a position.
__device__ float promptChannel(const PromptFill& fill, int position, int kv_head, int channel,
                               uint64_t noise, bool column) {
  const uint64_t of_head = mix(fill.seed * 31 + static_cast<uint64_t>(kv_head));
  const float near = 1.2f + 0.5f * uniform(static_cast<uint32_t>(of_head));
  const float far = 0.7f + 0.4f * uniform(static_cast<uint32_t>(of_head >> 32));
  const int half = fill.head_dim / 2;
  const double turn = position * exp2(-13.3 * (channel % half) / half);
  const double angle = fmod(turn, 6.283185307179586);
  float x =
      near * (channel < half ? cosf(static_cast<float>(angle)) : sinf(static_cast<float>(angle)));
  if (column) x += (mix(of_head + static_cast<uint64_t>(channel)) & 1) ? far : -far;
  return x + 0.5f * normalPair(mix(noise)).x;
}

__global__ void fillPromptKernel(PromptFill fill) {
  const size_t stride = size_t{gridDim.x} * blockDim.x;
  const size_t start = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const auto d = static_cast<size_t>(fill.head_dim);
  const size_t queries = static_cast<size_t>(fill.count) * fill.heads * d;
  for (size_t i = start; i < queries; i += stride) {
    const int head = static_cast<int>(i / d % fill.heads);
    const float x = promptChannel(fill, static_cast<int>(i / d / fill.heads),
                                  head / (fill.heads / fill.kv_heads), static_cast<int>(i % d),
                                  mix(fill.seed) + i, true);
    fill.queries[i] = x;
    static_cast<__nv_bfloat16*>(fill.rounded)[i] = __float2bfloat16_rn(x);
  }
  const size_t keys = static_cast<size_t>(fill.count) * fill.kv_heads * d;
  for (size_t i = start; i < keys; i += stride) {
    const auto position = i / d / fill.kv_heads;
    const auto kv_head = i / d % fill.kv_heads;
    const auto page = static_cast<size_t>(fill.page_table[position / fill.page_size]);
    const size_t to =
        ((page * fill.kv_heads + kv_head) * fill.page_size + position % fill.page_size) * d + i % d;
    static_cast<__nv_bfloat16*>(fill.keys)[to] = __float2bfloat16_rn(
        promptChannel(fill, static_cast<int>(position), static_cast<int>(kv_head),
                      static_cast<int>(i % d), mix(fill.seed + 1) + i,
                      mix(fill.seed + position * fill.kv_heads + kv_head) % kColumns == 0));
    static_cast<__nv_bfloat16*>(fill.values)[to] =
        __float2bfloat16_rn(normalPair(mix(mix(fill.seed + 2) + i)).x);
  }
}

__global__ void setStepsKernel(uint32_t* steps, int rows, uint32_t step) {
  for (int i = threadIdx.x; i < rows; i += blockDim.x) steps[i] = step;
}

__global__ void delayKernel(uint64_t nanoseconds) {
  uint64_t begin, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
  do {
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  } while (now - begin < nanoseconds);
}

__global__ void readKernel(const uint4* from, size_t count, uint32_t* sum) {
  constexpr int kLoads = 4;
  const size_t stride = size_t{gridDim.x} * blockDim.x;
  uint32_t total = 0;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += kLoads * stride) {
    uint4 words[kLoads] = {};
#pragma unroll
    for (int k = 0; k < kLoads; ++k) {
      if (i + k * stride < count) words[k] = from[i + k * stride];
    }
#pragma unroll
    for (int k = 0; k < kLoads; ++k) total += words[k].x ^ words[k].y ^ words[k].z ^ words[k].w;
  }
  if (total == 0x5EED5EEDu) *sum = total;
}

// A warp takes 16 keys and their values at a time, up to `run` of one KV head.
template <int kHeadDim>
__global__ void readPagesKernel(PageReads in, int run) {
  constexpr int kTile = 16, kLoads = kTile * kHeadDim / 8 / kWarp;
  const int lane = threadIdx.x % kWarp;
  const int runs = (in.length + run - 1) / run;
  const int64_t warp = int64_t{blockIdx.x} * (kThreads / kWarp) + threadIdx.x / kWarp;
  const int kv_head = static_cast<int>(warp % in.kv_heads);
  const int64_t row = warp / in.kv_heads / runs;
  if (row >= in.rows) return;
  const int first = static_cast<int>(warp / in.kv_heads % runs) * run;
  uint32_t total = 0;
  for (int key = first; key < min(first + run, in.length); key += kTile) {
    const int64_t page = in.page_table[row * in.max_pages + key / in.page_size];
    const int64_t at = (page * in.kv_heads + kv_head) * in.page_size + key % in.page_size;
    uint4 words[2 * kLoads];
#pragma unroll
    for (int k = 0; k < 2 * kLoads; ++k) {
      const auto* pool = static_cast<const uint4*>(k < kLoads ? in.keys : in.values);
      words[k] = __ldcs(pool + at * (kHeadDim / 8) + k % kLoads * kWarp + lane);
    }
#pragma unroll
    for (const uint4& four : words) total += four.x ^ four.y ^ four.z ^ four.w;
  }
  if (total == 0x5EED5EEDu) *in.sum = total;
}

__global__ void nothingKernel() {}

}  // namespace

void fillKeys(const FillInputs& in, cudaStream_t stream) {
  constexpr int kBlocks = 4096;
  if (in.head_dim == 64) {
    fillKeysKernel<64><<<kBlocks, kThreads, 0, stream>>>(in);
  } else {
    fillKeysKernel<128><<<kBlocks, kThreads, 0, stream>>>(in);
  }
}

void fillNormal(float* to, size_t count, uint64_t seed, cudaStream_t stream) {
  fillNormalKernel<<<256, kThreads, 0, stream>>>(to, count, seed);
}

void fillPrompt(const PromptFill& fill, cudaStream_t stream) {
  fillPromptKernel<<<2048, kThreads, 0, stream>>>(fill);
}

void setSteps(uint32_t* steps, int rows, uint32_t step, cudaStream_t stream) {
  setStepsKernel<<<1, kThreads, 0, stream>>>(steps, rows, step);
}

void delay(int microseconds, cudaStream_t stream) {
  delayKernel<<<1, 1, 0, stream>>>(static_cast<uint64_t>(microseconds) * 1000);
}

void readAll(const void* from, size_t bytes, uint32_t* sum, cudaStream_t stream) {
  readKernel<<<2048, kThreads, 0, stream>>>(static_cast<const uint4*>(from), bytes / sizeof(uint4),
                                            sum);
}

void readPages(const PageReads& reads, cudaStream_t stream) {
  // Few keys are shared out among many warps.
  constexpr int64_t kManyWarps = 4096;
  const int64_t tiles = int64_t{reads.rows} * reads.kv_heads * reads.length / 16;
  const int run = 16 * static_cast<int>(std::clamp<int64_t>(tiles / kManyWarps, 1, 16));
  const int64_t warps = int64_t{reads.rows} * ((reads.length + run - 1) / run) * reads.kv_heads;
  const auto blocks = static_cast<unsigned>((warps * kWarp + kThreads - 1) / kThreads);
  if (reads.head_dim == 64) {
    readPagesKernel<64><<<blocks, kThreads, 0, stream>>>(reads, run);
  } else {
    readPagesKernel<128><<<blocks, kThreads, 0, stream>>>(reads, run);
  }
}

void launchNothing(cudaStream_t stream) { nothingKernel<<<1, 1, 0, stream>>>(); }

}  // namespace allot::bench
