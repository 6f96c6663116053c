#pragma once
// Prefill attention over a paged KV cache: one call is one chunk of a prompt's queries in one
// layer.
//
// Two stages with a list between them. A selection says for each query head and block of queries
// which blocks of keys are attended to (KeyBlocks); attendBlocks computes exact causal softmax
// attention over any such list, and over all keys without one. The keys and values of the chunk are
// in the cache before it is attended to (appendKv).
//
// Framework-free; arithmetic is float32 whatever the elements of the cache. Blocks are counted from
// position 0, so that a query's output does not depend on the chunk that it comes in, on the page
// size, on the other heads or on the number of threads, to the last bit.
//
// Notation (one query head, the query at position p): s_j = scale * q.k_j over the keys j <= p that
// the sliding window and the list leave, a = softmax(s), o = sum_j a_j v_j.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "allot/kernels/decode.h"
#include "allot/kernels/paged_kv.h"

namespace allot::kernels {

// Positions first..first + count - 1 of one sequence in one layer. Pointers are borrowed for the
// call.
struct PrefillInputs {
  const float* queries = nullptr;       // [count, heads, head_dim], positions already applied
  const int32_t* page_table = nullptr;  // [max_pages]
  int max_pages = 0;
  int first = 0;
  int count = 0;
  int heads = 0;  // a multiple of kv.kv_heads
  float scale = 1.0f;
  int window = 0;  // keys that a query attends to, its own and those before it; 0: all
  // skip-softmax (BLASST, arXiv 2512.12087): blocks of keys are taken in order, and one whose
  // weights, relative to the largest score before it, are all below this for all queries of a block
  // is left out with its values. No key of attention `skip` or more is. 0: none is left out.
  float skip = 0;

  // The oldest key that the query at this position attends to.
  int oldest(int position) const {
    return window > 0 && position >= window ? position + 1 - window : 0;
  }
};

// The blocks of a chunk's queries are those that it has a query in, which need not be all of a
// block's. `size`: positions in one block.
inline int firstQueryBlock(const PrefillInputs& in, int size) { return in.first / size; }
inline int queryBlocks(const PrefillInputs& in, int size) {
  return in.count > 0 ? (in.first + in.count - 1) / size - firstQueryBlock(in, size) + 1 : 0;
}

// For each head and query block the key blocks that it attends to: those of head h and the b-th of
// the chunk's B query blocks are blocks[begin[i]] .. blocks[begin[i + 1] - 1], i = h * B + b,
// ascending, none behind the last query. What causality and the window mask in a block stays
// masked. Sizes are 16, 32 or 64 positions; a larger block is several entries.
struct KeyBlocks {
  int query_block = 64;
  int key_block = 64;
  const uint32_t* begin = nullptr;  // [heads * B + 1]
  const uint32_t* blocks = nullptr;
};

// What was computed and read, summed over heads; added to, so that chunks and layers sum up.
struct PrefillStatistics {
  uint64_t blocks = 0;        // pairs of a query block and a key block that were computed
  uint64_t dense_blocks = 0;  // that causality and the window leave
  uint64_t key_bytes = 0;  // of those pairs' keys, once a pair; values of skipped ones are not read
  uint64_t value_bytes = 0;
  uint64_t dense_bytes = 0;     // keys and values of the pairs that causality and the window leave
  uint64_t skipped_blocks = 0;  // computed pairs whose values were left out
};

struct PrefillOutputs {
  float* out = nullptr;  // [count, heads, head_dim]; 0 for a query that no key is left to
  float* lse = nullptr;  // optional [count, heads]: log sum_j exp(s_j); -inf where no key is left
  PrefillStatistics* statistics = nullptr;  // optional
};

// Threads and scratch memory, which does not grow with the prompt. One caller at a time.
class PrefillWorkspace {
 public:
  // `threads` in all, the caller's included; the others wait for work in between.
  explicit PrefillWorkspace(int threads = 1);
  ~PrefillWorkspace();
  PrefillWorkspace(PrefillWorkspace&&) noexcept;
  PrefillWorkspace& operator=(PrefillWorkspace&&) noexcept;

  struct Impl;
  Impl& impl() { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

// Returns nothing if all is well; else one sentence that names the tensor and the entry, and `out`
// is unspecified. Refused: queries that are not finite, positions beyond the page table, a page
// outside the pool, heads that are no multiple of the KV heads, a float16 cache, a list that is not
// ascending or has a block behind its queries, scores that are not finite. list null: dense, which
// is what a list of all blocks of 64 gives.
[[nodiscard]] std::optional<std::string> attendBlocks(const PagedKv& kv, const PrefillInputs& in,
                                                      const KeyBlocks* list,
                                                      PrefillWorkspace* workspace,
                                                      const PrefillOutputs& out);

// A list that a selection makes.
struct BlockLists {
  int query_block = 64;
  int key_block = 64;
  std::vector<uint32_t> begin, blocks;

  // Of lists for the queries `whole` those of its last ones, `part`.
  BlockLists from(const PrefillInputs& whole, const PrefillInputs& part) const;

  // As long as the vectors are not changed.
  KeyBlocks view() const { return {query_block, key_block, begin.data(), blocks.data()}; }
};

// SampleAttention: the last `block` queries of the chunk are sampled, their exact attention is
// summed by key block (columns) and by distance (slashes), and the fewest columns and slashes that
// hold these shares of the mass are kept for all of the chunk's query blocks, with the diagonal.
// Sums are of integers, so that a list depends on no order. Promise: the sampled queries keep at
// least max(alpha_column, alpha_slash) of their mass, on average; no other query is promised
// anything.
struct SampleAttentionOptions {
  double alpha_column = 0.95;  // above 0, at most 1: everything
  double alpha_slash = 0.95;
  int block = 64;  // positions in a block: 16, 32, 64
};

// SALE: queries and keys are rounded to 4 bits, less their means, with the scales that
// SageAttention-2's threads share; a block of 32 keys is kept for a block of 64 queries if by these
// scores any pair's weight reaches tau, relative to the exact softmax over the first block and the
// last four to seven. Those are always kept. Promise: with exact scores no key of attention tau or
// more is left out; with rounded ones none of tau e^delta, delta being the row's largest error of a
// score. tau below 1e-5 keeps everything.
struct SaleOptions {
  const float* tau = nullptr;  // [heads]
  bool exact = false;          // scores are not rounded: for comparison
  int dense_keys = 1024;  // up to so many keys everything is kept, as the authors' program does
};

// Both: refused is what attendBlocks refuses, and options out of range. The means and the sampled
// queries are those of the call's chunk; the keys are all that the cache has up to its end.
[[nodiscard]] std::optional<std::string> selectSampleAttention(
    const PagedKv& kv, const PrefillInputs& in, const SampleAttentionOptions& options,
    PrefillWorkspace* workspace, BlockLists* lists);
[[nodiscard]] std::optional<std::string> selectSale(const PagedKv& kv, const PrefillInputs& in,
                                                    const SaleOptions& options,
                                                    PrefillWorkspace* workspace, BlockLists* lists);

// Sampled blocks: of each head and block of 64 queries, `draws.budget` blocks of 64 values are
// drawn, systematically and with probability proportional to the mass that all scores give them
// (the sum over the queries of their exact attention), and weighed by its inverse. Unbiased: with
// A_b the attention of a query on block b, c_b the draws of it, w_b its mass of W in all and S the
// budget, E[c_b] = S w_b / W, and out = sum_b (c_b W / (S w_b)) A_b V_b has the mean sum_b A_b V_b.
// The denominators are exact, since all keys are read; a block is left out for good where its mass,
// relative to a query's, is below 2^-31. With a budget of as many blocks as there are, dense bit
// for bit; with 0 the layer is silent. The blocks of queries are those of the call. Draws are those
// of (seed, sequence, kPromptBit | the first query's position, attentionStream(layer, head)).
// `skip` is not looked at. Refused is what attendBlocks refuses.
struct QueryDraws {
  uint64_t seed = 0;
  uint32_t sequence = 0;
  uint32_t layer = 0;
  uint32_t budget = 0;
  const uint32_t* budgets = nullptr;  // optional [heads]: in its place
  // What a head of attendQueries without a budget gives: DecodeInputs' zero_budget_window, or the
  // mean of the values up to the query's own position. Else zeros.
  int zero_budget_window = 0;
  bool zero_budget_means = false;
};
[[nodiscard]] std::optional<std::string> attendSampledBlocks(const PagedKv& kv,
                                                             const PrefillInputs& in,
                                                             const QueryDraws& draws,
                                                             PrefillWorkspace* workspace,
                                                             const PrefillOutputs& out);

// Attention of each query for itself by any of decode's methods: its softmax is sampled, or what
// the method does, with `budget` draws a head, or each head's of `budgets`. Draws are those of
// (seed, sequence, kPromptBit | position, attentionStream(layer, head)). out: [count, heads,
// head_dim] and the rest as decode has it, a row for each query; `statistics` is one, summed over
// the queries, with the bytes of a kernel that shares what it reads as attendBlocks does: of each
// head and block of 64 positions every key once, or its shadow, and every value row (with a shadow:
// key as well) that a query of the block wants. bernoulli's features are taken for all of them.
// `skip` is not looked at. Refused is what decodeAttention refuses. As slow as so many decode
// steps: for accuracy, not for speed.
[[nodiscard]] std::optional<std::string> attendQueries(const MethodOptions& method,
                                                       const PagedKv& kv, const PrefillInputs& in,
                                                       const QueryDraws& draws,
                                                       DecodeWorkspace* workspace,
                                                       const DecodeOutputs& out);

}  // namespace allot::kernels
