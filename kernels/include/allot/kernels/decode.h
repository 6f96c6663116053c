#pragma once
// Decode attention over a paged KV cache: one call is one decode step of one layer for a batch.
//
// A row is one sequence of the batch. Rows may differ in length, sample budget and pages. Queries
// and outputs are float32, whatever the elements of the cache. A row's output depends on its own
// inputs alone: not on the other rows, the page size or the number of threads. Its draws use
// philox(seed, sequence, step, attentionStream(layer, head), block) (philox_streams.h).
//
// For one query head: n keys, s_j = scale * q.k_j + bias_j, a = softmax(s), o = sum_j a_j v_j. With
// a sliding window n is the number of the newest keys that it leaves; older keys are not read,
// counted or drawn. A head with budget 0 outputs zeros, or what zero_budget_values or
// zero_budget_window say. A method that uses the budget (usesBudget) reads every key and value if
// the budget is n or more: exact attention, or bernoulli's over its estimated scores. With
// exactAbove=never a method that draws by weight draws there, too. The budgets of other heads do
// not change a bit of a head's output, unless draws=group or choose=group. The heads of a KV head
// then share rows, as many as their budgets together, and from n on these are all rows
// (docs/shared-draws.md). They draw by the stream of the group's first head.
//
// Methods and their papers: kernels/README.md.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "allot/kernels/method.h"
#include "allot/kernels/paged_kv.h"

namespace allot::kernels {

// The inputs of one decode step of one layer. Pointers are borrowed for the call.
struct DecodeInputs {
  const float* queries = nullptr;       // [rows, heads, head_dim], after rotary positions
  const int32_t* page_table = nullptr;  // [rows, max_pages]
  const int32_t* lengths = nullptr;     // [rows] keys in the cache, this step's own included
  const uint32_t* budgets = nullptr;    // [rows] or [rows, heads] draws per head in this layer
  const uint32_t* sequences = nullptr;  // [rows] names of the rows' random streams
  const uint32_t* steps = nullptr;      // [rows] decode step, or kPromptBit | position of a prompt
  int rows = 0;
  int heads = 0;  // a multiple of kv.kv_heads, at most kStreamHeads (2^16)
  int max_pages = 0;
  uint32_t layer = 0;  // below kStreamLayers (65535)
  uint64_t seed = 0;
  float scale = 1.0f;
  int window = 0;               // a row attends to this many newest keys; 0: to all
  const float* bias = nullptr;  // [rows, bias_stride] or null: added to scores; -inf masks a key
  int64_t bias_stride = 0;      // >= the longest length
  bool head_budgets = false;    // budgets are [rows, heads]
  // [rows, kv_heads, head_dim] or null: the output of heads with budget 0 in rows with keys. Such
  // heads read no value. They read keys for DecodeOutputs::lse alone; group and row count these.
  const float* zero_budget_values = nullptr;
  // Above 0: a head with budget 0 attends exactly to this many newest keys, which are counted as
  // read, and zero_budget_values is ignored. On the CPU only.
  int zero_budget_window = 0;

  uint32_t budget(int row, int head) const {
    return budgets[head_budgets ? static_cast<int64_t>(row) * heads + head : row];
  }
  // Returns the oldest key that a row of this length attends to.
  int first(int length) const { return window > 0 && length > window ? length - window : 0; }
};

// What one query head read in one step, as if it had read alone.
struct HeadStatistics {
  uint32_t draws = 0;        // draws and rows that are always read; exact attention: all its keys
  uint32_t unique_rows = 0;  // distinct value rows read
  uint64_t key_bytes = 0;    // keys, shadows, scales and bounds read
  uint64_t value_bytes = 0;  // unique_rows * head_dim * element size
  // (sum of weights)^2 / sum of squared weights over the draws; exact attention: the number of
  // keys.
  float effective_sample_size = 0;
  // An estimate of |out - o| / |out| from the draws alone: the standard error of a self-normalised
  // mean of independent draws. (vattention, adaptive-denominator: without replacement.) Stratified
  // and systematic draws usually err less. A small estimate also holds for |out - o| / |o|. A large
  // |out - o| / |o| is underestimated (0.85 as about 0.6), because |out| contains the error. 0 if
  // nothing was sampled; 1 if `out` is 0 and the drawn values are not. Negative if the error cannot
  // be known: one draw, top-k, quest, skip-softmax, bernoulli's scores, largest remainders.
  float relative_error = 0;
};

// What the query heads of one KV head read together: a key or value row that several heads want
// counts once. A key that one head reads exactly and another through a shadow counts as both.
struct GroupStatistics {
  uint32_t unique_rows = 0;
  uint64_t key_bytes = 0;
  uint64_t value_bytes = 0;
};

// Sums over the heads and KV heads of one row. Calls add to them, so that they sum over steps and
// layers.
struct RowStatistics {
  uint64_t draws = 0;
  uint64_t unique_rows = 0;  // per query head
  uint64_t group_rows = 0;   // per KV head: the union over its query heads
  uint64_t dense_rows = 0;   // n per query head
  uint64_t key_bytes = 0;    // by KV head, as in GroupStatistics
  uint64_t value_bytes = 0;
  uint64_t dense_bytes = 0;  // keys and values once a KV head: what exact attention reads
};

struct DecodeOutputs {
  float* out = nullptr;  // [rows, heads, head_dim]
  // [rows, heads, head_dim] or null, on a GPU alone: `out` rounded to the cache's element.
  void* rounded = nullptr;
  // [rows, heads] or null: log sum_j exp(s_j); -inf without keys, or if all are masked. An estimate
  // with s2anta-q4 (if weights=self), bernoulli, vattention and adaptive-denominator. The sum
  // is over kept keys alone with quest, skip-softmax, top-k through a shadow, and for a head with
  // budget 0 that has a window.
  float* lse = nullptr;
  RowStatistics* statistics = nullptr;          // [rows] or null, added to
  HeadStatistics* head_statistics = nullptr;    // [rows, heads] or null, overwritten
  GroupStatistics* group_statistics = nullptr;  // [rows, kv_heads] or null, overwritten
  double* sampling_seconds = nullptr;  // or null, added to: time of choosing entries, over threads
  // On the CPU alone: [heads, value_row_words] or null, a bit a position. Sets the bits of the
  // value rows that the head reads for any row of the batch; clears none.
  // Requires: all rows of the batch have the pages of one sequence.
  uint64_t* value_rows = nullptr;
  int value_row_words = 0;  // more than the longest length / 64
};

// Threads and scratch memory. After plan() decodeAttention() allocates nothing, except for a
// refusal, and with exactAbove=never for budgets above max_length, of a head or of heads that share
// rows together. One caller at a time.
class DecodeWorkspace {
 public:
  // Starts threads - 1 threads, which sleep between calls. The calling thread works with them.
  explicit DecodeWorkspace(int threads = 1);
  ~DecodeWorkspace();
  DecodeWorkspace(DecodeWorkspace&&) noexcept;
  DecodeWorkspace& operator=(DecodeWorkspace&&) noexcept;

  // Makes room for rows of at most max_length keys and `group` query heads a KV head. Room only
  // grows.
  void plan(int max_length, int group, int head_dim);

  struct Impl;
  Impl& impl() { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

// Runs one step. Returns nothing, or one sentence that says what is refused; outputs are then
// unspecified. Refuses
// - a query that is not finite; a bias that is NaN or +inf;
// - a length below 0, beyond the page table, the plan or bias_stride; a page outside the pool;
// - a layer or heads beyond the limits of DecodeInputs; heads that are no multiple of the KV heads;
// - a head_dim that is no multiple of 16 up to 1024; a window below 0;
// - scores that are NaN or +inf (keys are checked when they are written; a product may overflow);
// - a method for prompts alone, or whose shadow, bounds or sums of values the cache does not hold;
// - a budget above 2^24 with a method that draws by weight and exactAbove=never, or above 2^24
//   divided by the heads that share a draw;
// - a float16 cache, and DecodeOutputs::rounded.
[[nodiscard]] std::optional<std::string> decodeAttention(const MethodOptions& method,
                                                         const PagedKv& kv, const DecodeInputs& in,
                                                         DecodeWorkspace* workspace,
                                                         const DecodeOutputs& out);

}  // namespace allot::kernels
