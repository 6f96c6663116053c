#pragma once
// The dense half of a model on a GPU beside its matrix products: what dense_ops.h is to the CPU.
//
// Activations between layers are float32; matrices and what goes into and out of their products are
// of one `Number`. All functions: pointers are device memory, kernels are launched on `stream` and
// nothing is waited for, allocated or copied; an error stays for cudaGetLastError(). A row's result
// does not depend on the other rows. Norm weights, positions and angles are read while the kernel
// in front on the stream may still work: it must not be what writes them. Free of LibTorch. Private
// to worker/model/.
#include <cstdint>

#include "allot/kernels/cuda_decode.h"
#include "worker/model/page_part.h"

namespace allot::cuda_ops {

using Stream = kernels::cuda::Stream;

enum class Number { kFloat32, kBFloat16 };

// x[r] = table[tokens[r]]; table [vocab, width] of `number`, x [rows, width] float32.
void embed(Number number, const void* table, const int32_t* tokens, int rows, int width, float* x,
           Stream stream);

// x[r] += more[r], unless more is null; out[r] = x[r] / sqrt(mean(x[r]^2) + eps) * weight. x, more
// and out [rows, width], more and out of `number`; weight [width] float32; width a multiple of 4,
// all aligned to 16 bytes.
void addRmsNorm(Number number, float* x, const void* more, const float* weight, int rows, int width,
                float eps, void* out, Stream stream);

// out[r, i] = silu(gate_up[r, i]) * gate_up[r, width + i]; both of `number`, aligned to 16 bytes.
void gatedSilu(Number number, const void* gate_up, int rows, int width, void* out, Stream stream);

// qkv [rows, (heads + 2 kv_heads) * head_dim] of `number`, plus bias (null: none; a row, float32)
// -> queries [rows, heads, head_dim], keys and values [rows, kv_heads, head_dim], float32; queries
// and keys normalised head by head where there are norms, as addRmsNorm does with a row, then
// rotated by the angles of positions[r] (null: r), pairs (i, i + head_dim / 2). cosines, sines
// [positions, head_dim / 2]. head_dim is 64 or 128.
struct SplitOutputs {
  float* queries = nullptr;
  float* keys = nullptr;
  float* values = nullptr;
};
struct Heads {
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
};
// Qwen3's, [head_dim] float32 each; null: none.
struct HeadNorms {
  const float* query = nullptr;
  const float* key = nullptr;
  float eps = 0;
};
void splitRope(Number number, const void* qkv, const float* bias, const HeadNorms& norms,
               const int32_t* positions, const float* cosines, const float* sines, int rows,
               const Heads& heads, const SplitOutputs& out, Stream stream);

// Copies each of pages[i] to host[i], or back, part by part. All pointers, those in the arrays
// too, can be read by the GPU; copies begin at multiples of 16 bytes.
void movePages(const PagePart* parts, int part_count, const int32_t* pages, uint8_t* const* host,
               int page_count, bool to_host, Stream stream);

// Copies page from[i] to page to[i], part by part; all arrays as above.
void copyPages(const PagePart* parts, int part_count, const int32_t* from, const int32_t* to,
               int page_count, Stream stream);

}  // namespace allot::cuda_ops
