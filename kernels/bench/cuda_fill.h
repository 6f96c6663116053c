#pragma once
// The benchmark's own kernels, which write keys with given scores or run between timed steps. All
// pointers are device memory. The functions launch on the stream and do not wait; any thread.
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace allot::bench {

// The distribution of a query head's scores: normal with this deviation, or, if there are profiles,
// the quantiles of one of them (score_profiles.h), with linear interpolation.
struct ScoreSource {
  float deviation = 1;
  const float* scores = nullptr;
  const int* offsets = nullptr;
  int profiles = 0;
};

// Keys and values, as inputs of appendKv(), of positions start .. start + count - 1 of sequences
// first .. first + sequences - 1. Keys of sequence i have these scores with the queries of row i %
// rows.
struct FillInputs {
  float* keys = nullptr;           // [sequences, count, kv_heads, head_dim]
  float* values = nullptr;         // [sequences, count, kv_heads, head_dim], normal, variance 1
  const float* queries = nullptr;  // [rows, heads, head_dim]
  const float* duals = nullptr;    // [rows, heads, head_dim], dualBasis() of every group
  int first = 0;
  int sequences = 0;
  int start = 0;
  int count = 0;
  int rows = 0;
  int kv_heads = 0;
  int group = 0;
  int head_dim = 0;  // 64 or 128
  uint64_t seed = 0;
  ScoreSource source;
};
// Writes in.keys and in.values.
void fillKeys(const FillInputs& in, cudaStream_t stream);

// A prompt in the pages of a bfloat16 cache, and its queries. Scores are a sum of three
// parts: one that falls slowly with the distance; one for about one key in 401, which all queries
// attend to; and normal noise. The strengths of the first two differ by KV head.
struct PromptFill {
  void* keys = nullptr;      // [pages, kv_heads, page_size, head_dim]
  void* values = nullptr;    // [pages, kv_heads, page_size, head_dim], normal, variance 1
  float* queries = nullptr;  // [count, heads, head_dim]
  void* rounded = nullptr;   // the queries as bfloat16
  const int32_t* page_table = nullptr;
  int count = 0;
  int heads = 0;
  int kv_heads = 0;
  int page_size = 0;
  int head_dim = 0;
  uint64_t seed = 0;
};
// Writes the prompt's keys, values and queries.
void fillPrompt(const PromptFill& fill, cudaStream_t stream);

// Writes normal numbers of variance 1.
void fillNormal(float* to, size_t count, uint64_t seed, cudaStream_t stream);

// Sets steps[0 .. rows) to `step`.
void setSteps(uint32_t* steps, int rows, uint32_t step, cudaStream_t stream);

// Keeps the stream busy for this time, while the host queues the timed work.
void delay(int microseconds, cudaStream_t stream);

// Reads `bytes` bytes, a multiple of 16, and feeds *sum, so that the compiler keeps the loads.
void readAll(const void* from, size_t bytes, uint32_t* sum, cudaStream_t stream);

// Pages of keys and values, with elements of two bytes.
struct PageReads {
  const void* keys = nullptr;           // [pages, kv_heads, page_size, head_dim]
  const void* values = nullptr;         // [pages, kv_heads, page_size, head_dim]
  const int32_t* page_table = nullptr;  // [rows, max_pages]
  int rows = 0;
  int length = 0;  // keys of a row, a multiple of 16
  int max_pages = 0;
  int kv_heads = 0;
  int page_size = 0;        // a multiple of 16
  int head_dim = 0;         // 64 or 128
  uint32_t* sum = nullptr;  // as readAll()'s
};
// Reads the keys and values of all rows once, by their page table, KV heads side by side, to
// measure the bandwidth of a plain kernel.
void readPages(const PageReads& reads, cudaStream_t stream);

// Launches an empty kernel.
void launchNothing(cudaStream_t stream);

}  // namespace allot::bench
