#pragma once
// The element-wise operations of a model on a GPU, as dense_ops.h has them for the CPU.
//
// Activations between layers are float32; matrices, and inputs and outputs of products except
// logits, are of one `Number`. For all functions: pointers are device memory. Kernels are launched
// on `stream`; nothing is waited for or allocated. cudaGetLastError() returns the error of a
// launch. The result of a row does not depend on other rows. One thread a stream. Free of LibTorch.
// Private to worker/model/.
// Requires: the preceding kernel on the stream does not write norm weights, positions or angles. A
// kernel may read these before its predecessor has ended.
#include <cstdint>

#include "allot/kernels/cuda_decode.h"
#include "worker/model/page_part.h"
#include "worker/model/token_choice.h"

namespace allot::cuda_ops {

using Stream = kernels::cuda::Stream;

enum class Number { kFloat32, kBFloat16 };

// Computes x[r] = table[tokens[r]]. table: [vocab, width] of `number`; x: [rows, width], float32.
void embed(Number number, const void* table, const int32_t* tokens, int rows, int width, float* x,
           Stream stream);

// Computes x[r] += more[r], unless more is null, and then
//   out[r] = x[r] / sqrt(mean(x[r]^2) + eps) * weight.
// x, more, out: [rows, width]; more and out of `number`. weight: [width], float32.
// Requires: width is a multiple of 4; all pointers are aligned to 16 bytes.
void addRmsNorm(Number number, float* x, const void* more, const float* weight, int rows, int width,
                float eps, void* out, Stream stream);

// Computes out[r, i] = silu(gate_up[r, i]) * gate_up[r, width + i]. gate_up: [rows, 2 * width],
// out: [rows, width], of `number`.
// Requires: both pointers are aligned to 16 bytes.
void gatedSilu(Number number, const void* gate_up, int rows, int width, void* out, Stream stream);

// Splits qkv [rows, (heads + 2 kv_heads) * head_dim] of `number`, plus bias (a row of float32;
// null: none), into queries [rows, heads, head_dim] and keys and values [rows, kv_heads, head_dim],
// float32. If there are norms, each head of queries and keys is normalised as addRmsNorm does with
// a row. Then queries and keys are rotated by the angles of positions[r] (null: r), in pairs (i, i
// + head_dim / 2). cosines, sines: [positions, head_dim / 2]; null: no rotation.
// Requires: head_dim is 64 or 128.
struct SplitOutputs {
  float* queries = nullptr;
  float* keys = nullptr;
  float* values = nullptr;
  void* rounded_queries = nullptr;  // in place of `queries`: as bfloat16
};
struct Heads {
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
};
// Qwen3's norms, [head_dim] float32 each; null: none.
struct HeadNorms {
  const float* query = nullptr;
  const float* key = nullptr;
  float eps = 0;
};
void splitRope(Number number, const void* qkv, const float* bias, const HeadNorms& norms,
               const int32_t* positions, const float* cosines, const float* sines, int rows,
               const Heads& heads, const SplitOutputs& out, Stream stream);

// Copies each page pages[i] to host[i] part by part, or back if to_host is false.
// Requires: the GPU can use all pointers, those in arrays, too; copies begin at multiples of 4
// bytes.
void movePages(const PagePart* parts, int part_count, const int32_t* pages, uint8_t* const* host,
               int page_count, bool to_host, Stream stream);

// Copies page from[i] to page to[i], part by part.
// Requires: as movePages().
void copyPages(const PagePart* parts, int part_count, const int32_t* from, const int32_t* to,
               int page_count, Stream stream);

// Sets tokens[r] to chooseToken(logits[r], choice, seed, sequences[r], steps[r]), except for
// rounding (Decoder::stepAndChoose), or to -1 if a logit is not finite. logits: [rows, vocabulary]
// of `number`; sequences, steps and tokens: [rows].
void chooseTokens(Number number, const void* logits, int rows, int vocabulary,
                  const TokenChoice& choice, uint64_t seed, const uint32_t* sequences,
                  const uint32_t* steps, int32_t* tokens, Stream stream);

}  // namespace allot::cuda_ops
