// The kernel of cuda_tile_sums.h: one warp a tile of one query head.
#include <cuda_runtime.h>

#include <bit>

#include "allot/kernels/cuda_tile_sums.h"
#include "kernels/cuda/alignment.h"
#include "kernels/cuda/buffer.h"
#include "kernels/cuda/by_shape.cuh"
#include "kernels/cuda/method_step.h"
#include "kernels/cuda/primitives.cuh"

namespace allot::kernels::cuda {
namespace {

constexpr int kTileThreads = 128;

struct TileQuery {
  const void* keys;
  int64_t pages;
  int kv_heads;
  int page_shift;
  const float* queries;
  const int32_t* page_table;
  const int32_t* lengths;
  int heads;
  int max_pages;
  int window;
  float scale;
  int tile;
  int stride;
  TileSum* sums;
};

// Returns two softmax sums as one.
__device__ TileSum together(TileSum a, TileSum b) {
  const float top = fmaxf(a.top, b.top);
  if (top == minusInfinity()) return a;
  return {top, a.sum * expf(a.top - top) + b.sum * expf(b.top - top)};
}

template <int kDim, typename T>
__global__ void __launch_bounds__(kTileThreads)
    tileSumsKernel(const __grid_constant__ TileQuery in) {
  constexpr int kLanes = kDim / 8, kKeys = 32 / kLanes;  // lanes that share a key; keys at once
  const int lane = threadIdx.x % 32, head = blockIdx.y, row = blockIdx.z;
  const int number = blockIdx.x * (kTileThreads / 32) + threadIdx.x / 32;
  if (number >= in.stride) return;
  const int64_t at = static_cast<int64_t>(row) * in.heads + head;
  const int n = in.lengths[row];
  const int first = in.window > 0 && n > in.window ? n - in.window : 0;
  const int64_t begin = first + static_cast<int64_t>(number) * in.tile;
  const int64_t end = min(begin + in.tile, static_cast<int64_t>(n));
  float query[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) query[i] = in.queries[at * kDim + lane % kLanes * 8 + i];
  TileSum own{minusInfinity(), 0};
  for (int64_t next = begin; next < end; next += kKeys) {
    const int64_t key = next + lane / kLanes;
    const int64_t held = min(key, end - 1);
    const int page =
        in.page_table[static_cast<int64_t>(row) * in.max_pages + (held >> in.page_shift)];
    const bool good = static_cast<uint32_t>(page) < static_cast<uint64_t>(in.pages);
    const int64_t entry =
        ((static_cast<int64_t>(good ? page : 0) * in.kv_heads + head / (in.heads / in.kv_heads))
         << in.page_shift) +
        (held & ((1 << in.page_shift) - 1));
    const uint4 eight =
        __ldg(reinterpret_cast<const uint4*>(static_cast<const T*>(in.keys) + entry * kDim) +
              lane % kLanes);
    const uint32_t words[4] = {eight.x, eight.y, eight.z, eight.w};
    float dot = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 two = ElementOf<T>::pair(words[i]);
      dot += query[2 * i] * two.x + query[2 * i + 1] * two.y;
    }
#pragma unroll
    for (int apart = kLanes / 2; apart > 0; apart /= 2) dot += __shfl_xor_sync(kAll, dot, apart);
    if (key < end && good) own = together(own, {in.scale * dot, 1});
  }
#pragma unroll
  for (int apart = kLanes; apart < 32; apart *= 2) {
    own = together(own,
                   {__shfl_xor_sync(kAll, own.top, apart), __shfl_xor_sync(kAll, own.sum, apart)});
  }
  if (lane == 0) in.sums[at * in.stride + number] = own;
}

}  // namespace

Refusal tileSums(const PagedKv& kv, const DecodeInputs& in, int tile, int stride, TileSum* sums,
                 Stream stream) {
  using Kernel = void (*)(TileQuery);
  const auto kernel = byShape<Kernel>(kv.head_dim, kv.element, [](auto shape) -> Kernel {
    using S = decltype(shape);
    return tileSumsKernel<S::kDim, typename S::Type>;
  });
  if (!kernel) return "the GPU has heads of 64 and 128 channels, in bfloat16 or float16";
  if (auto why = unsupportedShape(MethodOptions{}, kv, in.heads)) return why;
  if (auto why = misaligned(kv, in.queries)) return why;
  if (tile < 1) return "tiles have one key or more, not " + std::to_string(tile);
  if (in.rows == 0 || stride == 0) return std::nullopt;
  constexpr int kWarps = kTileThreads / 32;
  const dim3 grid(static_cast<unsigned>((stride + kWarps - 1) / kWarps),
                  static_cast<unsigned>(in.heads), static_cast<unsigned>(in.rows));
  kernel<<<grid, kTileThreads, 0, stream>>>(
      {.keys = kv.keys,
       .pages = kv.pages,
       .kv_heads = kv.kv_heads,
       .page_shift = std::countr_zero(static_cast<unsigned>(kv.page_size)),
       .queries = in.queries,
       .page_table = in.page_table,
       .lengths = in.lengths,
       .heads = in.heads,
       .max_pages = in.max_pages,
       .window = in.window,
       .scale = in.scale,
       .tile = tile,
       .stride = stride,
       .sums = sums});
  return failed("the GPU did not take the tiles' sums", cudaGetLastError());
}

}  // namespace allot::kernels::cuda
