#include "worker/model/cuda_ops.h"

#include <cuda_bf16.h>

#include <type_traits>

namespace allot::cuda_ops {
namespace {

// Threads of every block: a constant, so that the number of rows does not change the order of sums.
constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;

__device__ float load(const float* from) { return *from; }
__device__ float load(const __nv_bfloat16* from) { return __bfloat162float(*from); }
__device__ void store(float value, float* to) { *to = value; }
__device__ void store(float value, __nv_bfloat16* to) { *to = __float2bfloat16(value); }

// Waits until the kernel before has ended, in a kernel that launchEarly() has launched.
__device__ void waitForKernelBefore() {
#if __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
#endif
}

// Lets the next kernel start before this one has ended, if launchEarly() launches it.
__device__ void letNextKernelIn() {
#if __CUDA_ARCH__ >= 900
  cudaTriggerProgrammaticLaunchCompletion();
#endif
}

// Launches a kernel that may start before the kernel in front of it has ended. Code for
// architectures before 9.0 starts afterwards, since it cannot wait.
template <auto Kernel, typename... Arguments>
void launchEarly(dim3 grid, Stream stream, Arguments... arguments) {
  static const bool waits = [] {
    // As for products: a multiprocessor must be empty before it divides its memory in another way.
    cudaFuncSetAttribute(Kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                         cudaSharedmemCarveoutMaxShared);
    cudaFuncAttributes loaded{};
    return cudaFuncGetAttributes(&loaded, Kernel) == cudaSuccess && loaded.ptxVersion >= 90 &&
           loaded.binaryVersion >= 90;
  }();
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(kThreads);
  config.stream = stream;
  config.attrs = &early;
  config.numAttrs = waits ? 1 : 0;
  cudaLaunchKernelEx(&config, Kernel, arguments...);
}

// Load and store four numbers at once, at a multiple of four.
__device__ float4 load4(const float* from) { return *reinterpret_cast<const float4*>(from); }
__device__ float4 load4(const __nv_bfloat16* from) {
  const uint2 words = *reinterpret_cast<const uint2*>(from);
  return {__uint_as_float(words.x << 16), __uint_as_float(words.x & 0xffff0000u),
          __uint_as_float(words.y << 16), __uint_as_float(words.y & 0xffff0000u)};
}
__device__ void store4(const float4& value, float* to) { *reinterpret_cast<float4*>(to) = value; }
__device__ void store4(const float4& value, __nv_bfloat16* to) {
  const __nv_bfloat162 low = __floats2bfloat162_rn(value.x, value.y);
  const __nv_bfloat162 high = __floats2bfloat162_rn(value.z, value.w);
  uint2 words;
  memcpy(&words.x, &low, sizeof low);
  memcpy(&words.y, &high, sizeof high);
  *reinterpret_cast<uint2*>(to) = words;
}

// Returns the block's sum to all its threads.
__device__ float blockSum(float value) {
  __shared__ float sums[kWarps];
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(~0u, value, step);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = value;
  __syncthreads();
  float sum = 0;
  for (int warp = 0; warp < kWarps; ++warp) sum += sums[warp];
  return sum;
}

template <typename T>
__global__ void embedKernel(const T* table, const int32_t* tokens, int width, float* x) {
  const T* from = table + static_cast<int64_t>(tokens[blockIdx.x]) * width;
  float* to = x + static_cast<int64_t>(blockIdx.x) * width;
  for (int i = threadIdx.x; i < width; i += kThreads) to[i] = load(from + i);
}

__device__ float4 sum(const float4& a, const float4& b) {
  return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w};
}
__device__ float squaresOf(const float4& x) {
  return (x.x * x.x + x.y * x.y) + (x.z * x.z + x.w * x.w);
}
__device__ float4 scaled(const float4& x, float scale, const float4& weight) {
  return {x.x * scale * weight.x, x.y * scale * weight.y, x.z * scale * weight.z,
          x.w * scale * weight.w};
}

// kHeld: how many fours a thread holds in registers. They are loaded at once; those beyond them are
// loaded one by one, and a second time for the output.
template <typename T, int kHeld>
__global__ void addRmsNormKernel(float* x, const T* more, const float* weight, int width, float eps,
                                 T* out) {
  constexpr int kApart = 4 * kThreads, kFirst = kHeld * kApart;
  const int own = 4 * static_cast<int>(threadIdx.x);
  const int64_t row = static_cast<int64_t>(blockIdx.x) * width;
  float4 held[kHeld], added[kHeld], weights[kHeld];
  // Weights are the model's: nothing before this kernel writes them.
#pragma unroll
  for (int k = 0; k < kHeld; ++k) {
    const int i = own + k * kApart;
    weights[k] = i < width ? load4(weight + i) : float4{};
  }
  waitForKernelBefore();
#pragma unroll
  for (int k = 0; k < kHeld; ++k) {
    const int i = own + k * kApart;
    held[k] = i < width ? load4(x + row + i) : float4{};
    added[k] = more && i < width ? load4(more + row + i) : float4{};
  }
  float squares = 0;
#pragma unroll
  for (int k = 0; k < kHeld; ++k) {
    const int i = own + k * kApart;
    if (i >= width) break;
    if (more) {
      held[k] = sum(held[k], added[k]);
      store4(held[k], x + row + i);
    }
    squares += squaresOf(held[k]);
  }
  for (int i = own + kFirst; i < width; i += kApart) {
    float4 value = load4(x + row + i);
    if (more) {
      value = sum(value, load4(more + row + i));
      store4(value, x + row + i);
    }
    squares += squaresOf(value);
  }
  const float scale = 1.0f / sqrtf(blockSum(squares) / static_cast<float>(width) + eps);
#pragma unroll
  for (int k = 0; k < kHeld; ++k) {
    const int i = own + k * kApart;
    if (i < width) store4(scaled(held[k], scale, weights[k]), out + row + i);
  }
  for (int i = own + kFirst; i < width; i += kApart) {
    store4(scaled(load4(x + row + i), scale, load4(weight + i)), out + row + i);
  }
}

__device__ float gatedSiluOf(float gate, float up) { return gate / (1.0f + expf(-gate)) * up; }

// kFours: a thread computes four numbers. The width must be a multiple of four.
template <typename T, bool kFours>
__global__ void gatedSiluKernel(const T* gate_up, int width, T* out) {
  waitForKernelBefore();
  const T* gate = gate_up + static_cast<int64_t>(blockIdx.x) * 2 * width;
  T* to = out + static_cast<int64_t>(blockIdx.x) * width;
  const int i = static_cast<int>(blockIdx.y) * kThreads + static_cast<int>(threadIdx.x);
  if constexpr (kFours) {
    if (4 * i >= width) return;
    const float4 g = load4(gate + 4 * i), up = load4(gate + width + 4 * i);
    store4({gatedSiluOf(g.x, up.x), gatedSiluOf(g.y, up.y), gatedSiluOf(g.z, up.z),
            gatedSiluOf(g.w, up.w)},
           to + 4 * i);
  } else if (i < width) {
    store(gatedSiluOf(load(gate + i), load(gate + width + i)), to + i);
  }
}

// Returns 1 / sqrt(mean(x^2) + eps) of one head, biases added, to all lanes of a warp within the
// head. If two warps have one head, each reads all of it from the cache, without a barrier.
template <typename T>
__device__ float headScale(const T* head, const float* bias, int head_dim, float eps) {
  float squares = 0;
  for (int i = static_cast<int>(threadIdx.x) % 32; i < head_dim; i += 32) {
    const float value = load(head + i) + (bias ? bias[i] : 0.0f);
    squares += value * value;
  }
  for (int step = 16; step > 0; step /= 2) squares += __shfl_xor_sync(~0u, squares, step);
  return 1.0f / sqrtf(squares / static_cast<float>(head_dim) + eps);
}

// A thread computes a pair of channels of one head, and a warp is within a head.
template <typename T>
__global__ void splitRopeKernel(const T* qkv, const float* bias, HeadNorms norms,
                                const int32_t* positions, const float* cosines, const float* sines,
                                Heads shape, SplitOutputs out) {
  const int half = shape.head_dim / 2;
  const int pair = static_cast<int>(blockIdx.y) * kThreads + static_cast<int>(threadIdx.x);
  const int head = pair / half, i = pair % half;
  if (head >= shape.heads + 2 * shape.kv_heads) return;
  const int64_t row = blockIdx.x;
  // Positions and angles are the step's and the model's: the kernel in front does not write them.
  const int64_t angle = (positions ? positions[row] : row) * half + i;
  const float c = cosines ? cosines[angle] : 1.0f, s = sines ? sines[angle] : 0.0f;
  waitForKernelBefore();
  letNextKernelIn();
  const T* from = qkv + (row * (shape.heads + 2 * shape.kv_heads) + head) * shape.head_dim;
  float a = load(from + i), b = load(from + i + half);
  if (bias) {
    a += bias[head * shape.head_dim + i];
    b += bias[head * shape.head_dim + i + half];
  }
  const int kv_head = head - shape.heads;
  if (kv_head >= shape.kv_heads) {
    float* to = out.values + (row * shape.kv_heads + kv_head - shape.kv_heads) * shape.head_dim + i;
    to[0] = a;
    to[half] = b;
    return;
  }
  if (const float* norm = kv_head < 0 ? norms.query : norms.key) {
    const float* head_bias = bias ? bias + head * shape.head_dim : nullptr;
    const float scale = headScale(from, head_bias, shape.head_dim, norms.eps);
    a = a * scale * norm[i];
    b = b * scale * norm[i + half];
  }
  if (kv_head < 0 && out.rounded_queries) {
    auto* to = static_cast<__nv_bfloat16*>(out.rounded_queries) +
               (row * shape.heads + head) * shape.head_dim + i;
    to[0] = __float2bfloat16_rn(a * c - b * s);
    to[half] = __float2bfloat16_rn(b * c + a * s);
    return;
  }
  float* to = kv_head < 0 ? out.queries + (row * shape.heads + head) * shape.head_dim + i
                          : out.keys + (row * shape.kv_heads + kv_head) * shape.head_dim + i;
  to[0] = a * c - b * s;
  to[half] = b * c + a * s;
}

unsigned blocksFor(int64_t count) {
  return static_cast<unsigned>((count + kThreads - 1) / kThreads);
}

// Calls launch(T*) with the type of `number`.
template <typename Launch>
void typed(Number number, const Launch& launch) {
  if (number == Number::kFloat32) return launch(static_cast<float*>(nullptr));
  launch(static_cast<__nv_bfloat16*>(nullptr));
}

}  // namespace

namespace {

template <typename Word>
__device__ void copyWords(const uint8_t* from, size_t bytes, uint8_t* to) {
  for (size_t i = threadIdx.x; i < bytes / sizeof(Word); i += kThreads) {
    reinterpret_cast<Word*>(to)[i] = reinterpret_cast<const Word*>(from)[i];
  }
}

__device__ void copyBytes(const uint8_t* from, size_t bytes, uint8_t* to) {
  const auto bits = reinterpret_cast<uintptr_t>(from) | reinterpret_cast<uintptr_t>(to);
  if ((bits | bytes) % sizeof(uint4) == 0) {
    copyWords<uint4>(from, bytes, to);
  } else {
    copyWords<uint32_t>(from, bytes, to);
  }
}

// A block copies one part of one page.
__global__ void movePagesKernel(const PagePart* parts, const int32_t* pages, uint8_t* const* host,
                                bool to_host) {
  const PagePart part = parts[blockIdx.y];
  uint8_t* const here = part.first + static_cast<size_t>(pages[blockIdx.x]) * part.bytes;
  uint8_t* const there = host[blockIdx.x] + part.offset;
  copyBytes(to_host ? here : there, part.bytes, to_host ? there : here);
}

__global__ void copyPagesKernel(const PagePart* parts, const int32_t* from, const int32_t* to) {
  const PagePart part = parts[blockIdx.y];
  copyBytes(part.first + static_cast<size_t>(from[blockIdx.x]) * part.bytes, part.bytes,
            part.first + static_cast<size_t>(to[blockIdx.x]) * part.bytes);
}

}  // namespace

void embed(Number number, const void* table, const int32_t* tokens, int rows, int width, float* x,
           Stream stream) {
  typed(number, [&]<typename T>(T*) {
    embedKernel<<<rows, kThreads, 0, stream>>>(static_cast<const T*>(table), tokens, width, x);
  });
}

void addRmsNorm(Number number, float* x, const void* more, const float* weight, int rows, int width,
                float eps, void* out, Stream stream) {
  typed(number, [&]<typename T>(T*) {
    const auto launch = [&]<int kHeld>(std::integral_constant<int, kHeld>) {
      launchEarly<addRmsNormKernel<T, kHeld>>(dim3(static_cast<unsigned>(rows)), stream, x,
                                              static_cast<const T*>(more), weight, width, eps,
                                              static_cast<T*>(out));
    };
    // Rows of up to 4096, or half of 8192, are held.
    if (width > 1024) return launch(std::integral_constant<int, 4>{});
    launch(std::integral_constant<int, 1>{});
  });
}

void gatedSilu(Number number, const void* gate_up, int rows, int width, void* out, Stream stream) {
  typed(number, [&]<typename T>(T*) {
    const auto launch = [&]<bool kFours>(std::bool_constant<kFours>) {
      const dim3 grid(static_cast<unsigned>(rows), blocksFor(kFours ? width / 4 : width));
      launchEarly<gatedSiluKernel<T, kFours>>(grid, stream, static_cast<const T*>(gate_up), width,
                                              static_cast<T*>(out));
    };
    if (width % 4 == 0) return launch(std::true_type{});
    launch(std::false_type{});
  });
}

void splitRope(Number number, const void* qkv, const float* bias, const HeadNorms& norms,
               const int32_t* positions, const float* cosines, const float* sines, int rows,
               const Heads& heads, const SplitOutputs& out, Stream stream) {
  const int64_t pairs = int64_t{heads.heads + 2 * heads.kv_heads} * (heads.head_dim / 2);
  const dim3 grid(static_cast<unsigned>(rows), blocksFor(pairs));
  typed(number, [&]<typename T>(T*) {
    launchEarly<splitRopeKernel<T>>(grid, stream, static_cast<const T*>(qkv), bias, norms,
                                    positions, cosines, sines, heads, out);
  });
}

void movePages(const PagePart* parts, int part_count, const int32_t* pages, uint8_t* const* host,
               int page_count, bool to_host, Stream stream) {
  const dim3 grid(static_cast<unsigned>(page_count), static_cast<unsigned>(part_count));
  movePagesKernel<<<grid, kThreads, 0, stream>>>(parts, pages, host, to_host);
}

void copyPages(const PagePart* parts, int part_count, const int32_t* from, const int32_t* to,
               int page_count, Stream stream) {
  const dim3 grid(static_cast<unsigned>(page_count), static_cast<unsigned>(part_count));
  copyPagesKernel<<<grid, kThreads, 0, stream>>>(parts, from, to);
}

}  // namespace allot::cuda_ops
