#pragma once
// Decode attention over a paged KV cache: one call is one decode step of one layer for a batch.
//
// Rows of a batch may differ in length, sample budget and place in the page table. Framework-free;
// arithmetic is float32 whatever the elements of the cache. Everything is a pure function of its
// inputs: a row's output does not depend on the other rows, on the page size, or on the number of
// threads, and its random draws are philox(seed, sequence, step, attentionStream(layer, head),
// block), as allot/kernels/philox_streams.h has them.
//
// Notation (one query head): n keys, s_j = scale * q.k_j + bias_j, a = softmax(s),
// o = sum_j a_j v_j.
// A head with budget 0 gives a zero output, or what `zero_budget_values` or `zero_budget_window`
// say; budget >= n gives exact attention over the scores whatever the value stage, but where draws
// are made however many keys there are (exactAbove=never; 2^24 draws a head at most). A head's
// output depends on no budget but its own, to the last bit. With a sliding window a row has the
// keys that it leaves, and n is their number: those before it are not read, not counted and not
// drawn from.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "allot/kernels/method.h"
#include "allot/kernels/paged_kv.h"

namespace allot::kernels {

// One decode step of one layer. Pointers are borrowed for the call.
struct DecodeInputs {
  const float* queries = nullptr;       // [rows, heads, head_dim], positions already applied
  const int32_t* page_table = nullptr;  // [rows, max_pages]
  const int32_t* lengths = nullptr;     // [rows], keys in the cache, this step's own included
  const uint32_t* budgets = nullptr;    // [rows], draws per head in this layer; or [rows, heads]
  const uint32_t* sequences = nullptr;  // [rows], names the random stream of a row
  const uint32_t* steps = nullptr;      // [rows], decode step within the sequence
  int rows = 0;
  int heads = 0;  // a multiple of kv.kv_heads, below 2^16
  int max_pages = 0;
  uint32_t layer = 0;  // below 2^16
  uint64_t seed = 0;
  float scale = 1.0f;
  int window = 0;               // keys that a row attends to, its newest; 0: all
  const float* bias = nullptr;  // optional [rows, bias_stride], added to scores; -inf masks a key
  int64_t bias_stride = 0;      // >= the longest length
  bool head_budgets = false;    // budgets are [rows, heads]
  // What a head with budget 0 does, whatever the method. Optional [rows, kv_heads, head_dim]: it
  // writes this vector, and nothing is counted as read.
  const float* zero_budget_values = nullptr;
  // Above 0: it attends exactly to its newest so many keys, which are counted as read;
  // zero_budget_values is then not looked at. On the CPU only.
  int zero_budget_window = 0;

  uint32_t budget(int row, int head) const {
    return budgets[head_budgets ? static_cast<int64_t>(row) * heads + head : row];
  }
  // The oldest key that a row of this length attends to.
  int first(int length) const { return window > 0 && length > window ? length - window : 0; }
};

// What one query head read, as if it had read alone. Sums are over nothing: one step, one head.
struct HeadStatistics {
  uint32_t draws = 0;        // value draws made (exact attention: n)
  uint32_t unique_rows = 0;  // distinct value rows read
  uint64_t key_bytes = 0;    // keys, shadows, scales and bounds read
  uint64_t value_bytes = 0;  // unique_rows * head_dim * element size
  // (sum of weights)^2 / sum of squared weights over the draws; n draws of equal weight give n.
  float effective_sample_size = 0;
  // Estimate of |out - o| / |out| from the draws alone: the standard error of a self-normalised
  // mean of independent draws. Stratified and systematic draws err less, on average. As a guide to
  // |out - o| / |o| it is good where it is small; |out| holds the error too, so that large errors
  // read low (0.85 as about 0.6). 0 when nothing was sampled; negative where it cannot be known
  // (one draw; top-k, quest, skip-softmax, Bernoulli scores, largest remainders).
  float relative_error = 0;
};

// What a KV head's group of query heads read together: a row wanted by several is read once. Heads
// of a group may differ in budget; keys that one reads exactly and another by a shadow are read
// both ways.
struct GroupStatistics {
  uint32_t unique_rows = 0;
  uint64_t key_bytes = 0;
  uint64_t value_bytes = 0;
};

// Summed over the heads (and KV heads) of one row; added to, so that steps and layers sum up.
struct RowStatistics {
  uint64_t draws = 0;
  uint64_t unique_rows = 0;  // per query head
  uint64_t group_rows = 0;   // per KV head: the union over its query heads
  uint64_t dense_rows = 0;   // n a query head
  uint64_t key_bytes = 0;    // read once a KV head
  uint64_t value_bytes = 0;
  uint64_t dense_bytes = 0;  // keys and values, once a KV head: what exact attention reads
};

struct DecodeOutputs {
  float* out = nullptr;  // [rows, heads, head_dim]
  // Optional, on a GPU alone: the same, rounded to the cache's element, as a product may take it.
  void* rounded = nullptr;
  // Optional [rows, heads]: log sum_j exp(s_j). Exact where every exact score is computed; else the
  // method's estimate (s2anta-q4, vattention) or its value over the keys kept (quest, skip-softmax,
  // top-k by a shadow, a head with budget 0 that has a window).
  float* lse = nullptr;
  RowStatistics* statistics = nullptr;          // optional [rows], added to
  HeadStatistics* head_statistics = nullptr;    // optional [rows, heads], overwritten
  GroupStatistics* group_statistics = nullptr;  // optional [rows, kv_heads], overwritten
  double* sampling_seconds = nullptr;  // optional, added to: time choosing rows, over all threads
  // Optional [heads, value_row_words], a bit a position: set for each value row that the head reads
  // for any row of the batch, left as it is for the others. For rows of one sequence.
  uint64_t* value_rows = nullptr;
  int value_row_words = 0;  // more than the longest length / 64
};

// Threads and scratch memory. Made once, grown by plan(); then decodeAttention() allocates nothing,
// but once for a budget above max_length where so many draws are made. One caller at a time.
class DecodeWorkspace {
 public:
  // `threads` in all, the caller's included; the others wait for work in between.
  explicit DecodeWorkspace(int threads = 1);
  ~DecodeWorkspace();
  DecodeWorkspace(DecodeWorkspace&&) noexcept;
  DecodeWorkspace& operator=(DecodeWorkspace&&) noexcept;

  // Room for rows of at most max_length keys and `group` query heads a KV head.
  void plan(int max_length, int group, int head_dim);

  struct Impl;
  Impl& impl() { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

// Runs the step. Returns nothing if all is well; else one sentence that names the tensor and the
// entry, and `out` is unspecified. Refused: a query that is not finite, a bias that is NaN or
// +inf, a length below 0, beyond the page table, the plan or the bias's stride, a layer or heads
// beyond the counters' bits, heads that are no multiple of the KV heads, a page outside the pool,
// scores that are not finite (keys are checked as they are written; a product may still overflow),
// a method whose shadow or bounds the cache does not hold, a budget above 2^24 where so many draws
// are made.
[[nodiscard]] std::optional<std::string> decodeAttention(const MethodOptions& method,
                                                         const PagedKv& kv, const DecodeInputs& in,
                                                         DecodeWorkspace* workspace,
                                                         const DecodeOutputs& out);

}  // namespace allot::kernels
