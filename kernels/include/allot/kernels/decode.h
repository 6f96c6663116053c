#pragma once
// Decode attention over a paged KV cache: one call is one decode step of one layer for a batch.
//
// Rows of a batch may differ in length, sample budget and place in the page table. Framework-free;
// the CPU implementation takes float32. Everything is a pure function of its inputs: a row's output
// does not depend on which other rows are in the batch, and its random draws are
// philox(seed, sequence, step, layer << 16 | head, block).
//
// Notation (one query head): n keys, s_j = scale * q.k_j, a = softmax(s), o = sum_j a_j v_j.
// Every row with budget 0 gives a zero output; budget >= n gives exact attention whatever the
// method.
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "allot/kernels/method_names.h"

namespace allot::kernels {

// The pools of one layer, float32, [pages, kv_heads, page_size, head_dim].
struct PagedKv {
  float* keys = nullptr;
  float* values = nullptr;
  int64_t pages = 0;
  int kv_heads = 0;
  int page_size = 0;
  int head_dim = 0;  // 64 or 128

  int64_t offset(int64_t page, int kv_head, int slot) const {
    return ((page * kv_heads + kv_head) * page_size + slot) * head_dim;
  }
};

// One decode step of one layer. Pointers are borrowed for the call.
struct DecodeInputs {
  const float* queries = nullptr;       // [rows, heads, head_dim], positions already applied
  const int32_t* page_table = nullptr;  // [rows, max_pages]
  const int32_t* lengths = nullptr;     // [rows], keys in the cache, this step's own included
  const uint32_t* budgets = nullptr;    // [rows], draws per head in this layer
  const uint32_t* sequences = nullptr;  // [rows], names the random stream of a row
  const uint32_t* steps = nullptr;      // [rows], decode step within the sequence
  int rows = 0;
  int heads = 0;  // a multiple of kv.kv_heads
  int max_pages = 0;
  uint32_t layer = 0;
  uint64_t seed = 0;
  float scale = 1.0f;
};

// What was read, summed over the heads of one row.
struct RowStatistics {
  uint64_t draws = 0;        // value draws made (exact attention: n a head)
  uint64_t unique_rows = 0;  // distinct value rows read, per head
  uint64_t dense_rows = 0;   // n a head
};

struct DecodeOutputs {
  float* out = nullptr;                 // [rows, heads, head_dim]
  float* lse = nullptr;                 // optional [rows, heads]: log sum_j exp(s_j)
  RowStatistics* statistics = nullptr;  // optional [rows], added to
  double* sampling_seconds = nullptr;   // optional, added to: time spent choosing rows
};

// The value-stage methods. kernels/README.md says how to add one.
#define ALLOT_ENUMERATOR(enumerator, name, select) enumerator,
enum class Method { ALLOT_METHODS(ALLOT_ENUMERATOR) };
#undef ALLOT_ENUMERATOR

// False if the name is none of methodNames().
bool parseMethod(std::string_view name, Method* method);
const std::vector<std::string_view>& methodNames();

// Reusable scratch memory. Made once, grown by plan(); then run() allocates nothing. One thread at
// a time.
class DecodeWorkspace {
 public:
  // Room for rows of at most max_length keys and `group` query heads a KV head.
  void plan(int max_length, int group);

 private:
  friend class DecodeRun;
  std::vector<float> scores_;  // [group, padded length]
  std::vector<float> mass_;    // [padded length]
  std::vector<double> thresholds_;
  std::vector<int32_t> order_;
  std::vector<int32_t> picked_rows_;
  std::vector<float> picked_weights_;
};

// Runs the step. Requires a workspace planned for the longest row.
void decodeAttention(Method method, const PagedKv& kv, const DecodeInputs& in,
                     DecodeWorkspace* workspace, const DecodeOutputs& out);

// Writes this step's key and value, [rows, kv_heads, head_dim] each, at position lengths[row] - 1.
void appendKv(const PagedKv& kv, const float* keys, const float* values, const int32_t* page_table,
              const int32_t* lengths, int rows, int max_pages);

}  // namespace allot::kernels
