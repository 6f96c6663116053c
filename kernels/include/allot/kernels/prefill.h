#pragma once
// Prefill attention over a paged KV cache: one call is one chunk of a prompt's queries in one
// layer.
//
// SampleAttention and SALE have two stages with a list between them. selectBlocks() chooses for
// each query head and block of queries the blocks of keys to attend to (KeyBlocks). attendBlocks()
// computes causal softmax attention over a list, or over all keys without one. skip-softmax
// (BLASST, arXiv 2512.12087), our sampled blocks and decode methods have no list.
//
// Queries and outputs are float32, whatever the elements of the cache, or bfloat16 on a GPU. Blocks
// are counted from position 0. A query's output does not depend on the page size, on the other
// heads or on the number of threads, to the last bit. The chunk that the query comes in matters
// only for selections, PrefillInputs::skip and sampled blocks.
//
// For one query head and the query at position p: s_j = scale * q.k_j over the keys j <= p that the
// sliding window and the list leave, a = softmax(s), o = sum_j a_j v_j.
// Requires: appendKv() has written the chunk's keys and values.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "allot/kernels/decode.h"
#include "allot/kernels/paged_kv.h"

namespace allot::kernels {

// The queries at positions first..first + count - 1 of one sequence in one layer. Pointers are
// borrowed for the call.
struct PrefillInputs {
  const float* queries = nullptr;  // [count, heads, head_dim], after rotary positions
  // In place of `queries`, on a GPU where PrefillWorkspace::takesRounded(): as bfloat16.
  const void* rounded = nullptr;
  const int32_t* page_table = nullptr;  // [max_pages]
  int max_pages = 0;
  int first = 0;
  int count = 0;
  int heads = 0;  // a multiple of kv.kv_heads
  float scale = 1.0f;
  int window = 0;  // a query attends to this many keys, its own included; 0: to all
  // skip-softmax's threshold, from 0 to below 1; 0: off. Blocks of keys are visited in order. A
  // block's values are skipped if its weights, relative to each query's running maximum, are below
  // `skip` for all of the chunk's queries in a query block. No key of attention `skip` or more is
  // skipped.
  float skip = 0;

  // Returns the oldest key that the query at this position attends to.
  int oldest(int position) const {
    return window > 0 && position >= window ? position + 1 - window : 0;
  }
};

// Return the first block of `size` positions that has a query of the chunk, and how many have one.
// A chunk may have a part of a block.
inline int firstQueryBlock(const PrefillInputs& in, int size) { return in.first / size; }
inline int queryBlocks(const PrefillInputs& in, int size) {
  return in.count > 0 ? (in.first + in.count - 1) / size - firstQueryBlock(in, size) + 1 : 0;
}

// The key blocks that each head and query block attends to. Head h and the b-th of the chunk's B
// query blocks have blocks[begin[i]] .. blocks[begin[i + 1] - 1], i = h * B + b, ascending, none
// that begins after the last query of that query block. Causality and the window still mask keys
// within a block. Sizes are 16, 32 or 64 positions.
struct KeyBlocks {
  int query_block = 64;
  int key_block = 64;
  const uint32_t* begin = nullptr;   // [heads * B + 1]
  const uint32_t* blocks = nullptr;  // [begin[heads * B]]
};

// Sums over heads of what was computed and read. Calls add to them, so that they sum over chunks
// and layers.
struct PrefillStatistics {
  uint64_t blocks = 0;          // computed pairs of a query block and a key block
  uint64_t dense_blocks = 0;    // pairs that causality and the window leave
  uint64_t key_bytes = 0;       // of the computed pairs' keys, once a pair; twice for a drawn block
  uint64_t value_bytes = 0;     // of their values, without those of skipped blocks
  uint64_t dense_bytes = 0;     // keys and values of dense_blocks that a query attends to
  uint64_t skipped_blocks = 0;  // computed pairs whose values were skipped
};

struct PrefillOutputs {
  float* out = nullptr;  // [count, heads, head_dim]; 0 for a query without keys
  // [count, heads] or null: log sum_j exp(s_j), without keys that `skip` skips; -inf without keys.
  float* lse = nullptr;
  PrefillStatistics* statistics = nullptr;  // or null, added to
  void* rounded = nullptr;                  // in place of `out`, on a GPU: as bfloat16
};

// Threads and scratch memory. Sampled blocks take more memory for a longer prompt. One caller at a
// time.
class PrefillWorkspace {
 public:
  // Starts threads - 1 threads, which sleep between calls. The calling thread works with them.
  explicit PrefillWorkspace(int threads = 1);
  ~PrefillWorkspace();
  PrefillWorkspace(PrefillWorkspace&&) noexcept;
  PrefillWorkspace& operator=(PrefillWorkspace&&) noexcept;

  struct Impl;
  Impl& impl() { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

// Computes attention over a list. A null list is dense attention, with the bits of a list of all
// blocks of 64. Returns nothing, or one sentence that says what is refused; outputs are then
// unspecified. Refuses
// - queries that are not finite; scores that are not finite, except -inf in a block that `skip`
//   skips;
// - first, count or window below 0; skip outside of its range;
// - positions beyond the page table; a page outside the pool;
// - heads that are no multiple of the KV heads; a head_dim that is no multiple of 16 up to 1024;
// - a float16 cache;
// - a list with other block sizes, out of order, or with a block that begins after its queries.
[[nodiscard]] std::optional<std::string> attendBlocks(const PagedKv& kv, const PrefillInputs& in,
                                                      const KeyBlocks* list,
                                                      PrefillWorkspace* workspace,
                                                      const PrefillOutputs& out);

// A list that a selection makes.
struct BlockLists {
  int query_block = 64;
  int key_block = 64;
  std::vector<uint32_t> begin, blocks;

  // Returns the lists for `part`, the last queries of `whole`, from these lists for `whole`.
  BlockLists from(const PrefillInputs& whole, const PrefillInputs& part) const;

  // Returns a view, valid until the vectors change.
  KeyBlocks view() const { return {query_block, key_block, begin.data(), blocks.data()}; }
};

// Chooses blocks for a chunk, by a method that makes lists.
//
// sample-attention: the exact attention of the chunk's last `block` queries, or of all if they are
// fewer, is summed by key block (columns) and by distance (slashes). All query blocks of the chunk
// keep the fewest columns that hold alpha_column of the sums, the fewest slashes that hold
// alpha_slash, and the diagonal. Promise: the sampled queries keep at least max(alpha_column,
// alpha_slash) of their attention, on average. Other queries have no promise.
//
// sale: queries and keys, less their means, are rounded to 4 bits with the scales that
// SageAttention-2's threads share, unless `scores` are exact. The mean query is the chunk's, and
// the mean key is over the keys that any query of the chunk attends to. A block of 64 queries keeps
// a block of 32 keys if, by these scores, one of its queries gives one of the keys a weight of its
// head's tau or more. Weights are relative to the query's exact softmax sum over the first key
// block and the last four to seven, which are kept. Promise: with exact scores no key of attention
// tau or more is dropped; with rounded scores none of tau e^delta, delta being the row's largest
// score error. tau below 1e-5 keeps everything. tau: [heads], for methods with hasHeadThresholds();
// MethodOptions::tau is ignored.
//
// Refuses a method without lists, sizes, pages and queries that attendBlocks() refuses, parameters
// out of range, and scores that are not finite in a selection's exact softmax.
[[nodiscard]] std::optional<std::string> selectBlocks(const MethodOptions& method,
                                                      const PagedKv& kv, const PrefillInputs& in,
                                                      const float* tau, PrefillWorkspace* workspace,
                                                      BlockLists* lists);

// The draws of attendSampledBlocks(), attendSampledRows() and attendQueries().
struct QueryDraws {
  uint64_t seed = 0;
  uint32_t sequence = 0;
  uint32_t layer = 0;
  uint32_t budget = 0;
  const uint32_t* budgets = nullptr;  // [heads] or null: instead of `budget`
  // For attendQueries() alone: zero_budget_window is as in DecodeInputs; with zero_budget_means
  // heads with budget 0 output the mean of the sequence's values up to the query's position.
  int zero_budget_window = 0;
  bool zero_budget_means = false;
};

// Computes attention over sampled blocks. Each head and block of 64 queries draws as many blocks of
// 64 values as its budget, systematically, with probabilities proportional to the blocks' weights.
// A block's weight is the sum over the queries of their exact attention on it. The estimate is
// unbiased: with A_b the attention of a query on block b, c_b the draws of it, w_b its weight, W
// the sum of weights and S the budget, E[c_b] = S w_b / W, and out = sum_b (c_b W / (S w_b)) A_b
// V_b has the mean sum_b A_b V_b. Denominators are exact, since all keys are read. A block whose
// weight is below 2^-31 is never drawn. A budget of all blocks is dense attention bit for bit;
// budget 0 outputs zeros, and -inf for lse. If two chunks share a block of queries, each chunk
// draws for its own queries of it. Draws use the counters (seed, sequence, kPromptBit | position of
// the block's first query that is in the chunk, attentionStream(layer, head)). `skip` is ignored.
// Refuses the other inputs that attendBlocks() refuses.
[[nodiscard]] std::optional<std::string> attendSampledBlocks(const PagedKv& kv,
                                                             const PrefillInputs& in,
                                                             const QueryDraws& draws,
                                                             PrefillWorkspace* workspace,
                                                             const PrefillOutputs& out);

// Computes attention by sampled rows: the heads of a KV head and the queries of a block of 64 share
// one draw. The first 64 keys and those from the block's first position on are read by every query.
// Of the others R rows are drawn systematically, R the sum of the heads' budgets, from
//   p_j = sum over heads h and queries q of b_h a_qhj, normalised,
// a_qhj the attention by exact scores or by those of the shadow (`scores`). A row drawn c_j times
// has the weight c_j a_qhj / (R p_j) for each query and head. weights=self divides the weights by
// their sum and gives them the attention that the query has on these keys: a bias of order 1 / R.
// weights=exact does not divide: unbiased. With a shadow's scores weights and denominators are of
// the exact scores of the rows read. R of at least the number of these keys is dense attention.
// A head with budget 0 outputs zeros, and -inf for lse. If two chunks share a block of queries,
// each draws for its own queries of it. Draws use the counters (seed, sequence, kPromptBit |
// position of the block's first query that is in the chunk, attentionStream(layer, first head of
// the KV head)). `skip` is ignored. Statistics count each head's reads, as those of attendBlocks()
// do. Refuses the other inputs that attendBlocks() refuses, and a cache without the shadow.
[[nodiscard]] std::optional<std::string> attendSampledRows(
    const MethodOptions& method, const PagedKv& kv, const PrefillInputs& in,
    const QueryDraws& draws, PrefillWorkspace* workspace, const PrefillOutputs& out);

// Computes attention of each query by itself, by a method of decode, with the budgets of `draws`.
// Draws use the counters (seed, sequence, kPromptBit | position, attentionStream(layer, head)).
// Outputs are decode's, with a row for each query: [count, heads, head_dim] and so on. `statistics`
// is one entry, summed over the queries, with the bytes of a kernel that shares reads as
// attendBlocks() does: for each head and block of 64 positions every key or its shadow once, and
// every value row (with a shadow: the key, too) that a query of the block wants. A head whose
// queries want no value counts no key. bernoulli and quest count whole keys. `skip` has no effect.
// Refuses what attendBlocks() or decodeAttention() refuses. A call takes as long as `count` decode
// steps: it measures accuracy and saves no time.
[[nodiscard]] std::optional<std::string> attendQueries(const MethodOptions& method,
                                                       const PagedKv& kv, const PrefillInputs& in,
                                                       const QueryDraws& draws,
                                                       DecodeWorkspace* workspace,
                                                       const DecodeOutputs& out);

}  // namespace allot::kernels
