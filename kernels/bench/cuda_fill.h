#pragma once
// The benchmark's own kernels: keys that have the scores asked for, and what stands around a timed
// step. All pointers are device memory; launches on the stream, no waiting.
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace allot::bench {

// What the scores of a query head are drawn from: normal with this deviation or, where there are
// profiles, the quantiles of one of them (score_profiles.h), linear in between.
struct ScoreSource {
  float deviation = 1;
  const float* scores = nullptr;
  const int* offsets = nullptr;
  int profiles = 0;
};

// Keys and values of positions start .. start + count of `sequences` sequences from the first on,
// as appendKv takes them. Sequence i belongs to row i % rows, whose queries it is scored by.
struct FillInputs {
  float* keys = nullptr;           // [sequences, count, kv_heads, head_dim]
  float* values = nullptr;         // the same; normal, variance 1
  const float* queries = nullptr;  // [rows, heads, head_dim]
  const float* duals = nullptr;    // the same: dualBasis() of every group
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
void fillKeys(const FillInputs& in, cudaStream_t stream);

// A prompt in the pages 0, 1, ... of a bfloat16 cache, and its queries: neighbours by rotating
// channels, whose scores fall slowly with the distance; some keys, one in 401, that all queries
// look at; and normal numbers. How strong each is depends on the head, as it does in models.
struct PromptFill {
  void* keys = nullptr;      // [pages, kv_heads, page_size, head_dim]
  void* values = nullptr;    // the same; normal, variance 1
  float* queries = nullptr;  // [count, heads, head_dim]
  int count = 0;
  int heads = 0;
  int kv_heads = 0;
  int page_size = 0;
  int head_dim = 0;
  uint64_t seed = 0;
};
void fillPrompt(const PromptFill& fill, cudaStream_t stream);

// Normal numbers, variance 1.
void fillNormal(float* to, size_t count, uint64_t seed, cudaStream_t stream);

// steps[0 .. rows) = step.
void setSteps(uint32_t* steps, int rows, uint32_t step, cudaStream_t stream);

// Keeps the stream busy for that long, while the host queues what is to be timed.
void delay(int microseconds, cudaStream_t stream);

// Reads it all, four of a thread's loads at a time; `sum` keeps the compiler from leaving it out.
void readAll(const void* from, size_t bytes, uint32_t* sum, cudaStream_t stream);

// Reads the keys and values of all rows once, where their page table says, KV heads side by side,
// and does nothing with them: what memory gives a plain kernel. Elements of two bytes.
struct PageReads {
  const void* keys = nullptr;           // [pages, kv_heads, page_size, head_dim]
  const void* values = nullptr;         // the same
  const int32_t* page_table = nullptr;  // [rows, max_pages]
  int rows = 0;
  int length = 0;  // keys of a row, a multiple of 16
  int max_pages = 0;
  int kv_heads = 0;
  int page_size = 0;        // a multiple of 16
  int head_dim = 0;         // 64 or 128
  uint32_t* sum = nullptr;  // as readAll()'s
};
void readPages(const PageReads& reads, cudaStream_t stream);

// Does nothing.
void launchNothing(cudaStream_t stream);

}  // namespace allot::bench
