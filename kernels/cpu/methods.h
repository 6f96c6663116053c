#pragma once
// The value stage of one query head: which entries (keys with their values) are read, and with
// which weights. Private to kernels/cpu and to methods that a build adds.
//
// A method gets a Head and fills a Selection. decode.cpp does the rest: scores, softmax, heads with
// no budget or one for all keys, gathering and statistics. To add a method, write method_<name>.cpp
// with a Select function and add a row to allot/kernels/method_names.h; kernels/README.md has an
// example. A select function runs on any thread of the pool, and each thread has its own Selection.
#include <array>
#include <cstdint>
#include <vector>

#include "allot/kernels/decode.h"
#include "allot/kernels/philox_streams.h"

namespace allot::kernels {

// The most draws of a head with exactAbove=never. Counts up to this number are exact in float32.
constexpr uint32_t kMostDraws = 1u << 24;

// Keys of one block of integer weights; draws skip whole blocks by their sums.
constexpr int kBlock = 32;

// The inputs of one query head. Scores are scale * q.k + bias; for bernoulli an estimate of that;
// for methods that read a shadow the same with k~ less the mean key (KeyShadow) in place of k.
// quest has neither scores nor weights.
struct Head {
  // [n] scores, then -inf up to a multiple of kBlock; also -inf before `first`, back to a multiple.
  const float* scores = nullptr;
  // [n] exp(s_j - top), top the largest score; 0 beyond n and for masked keys.
  const float* exp_weights = nullptr;
  double exp_weight_total = 0;  // their sum
  float top = 0;
  // [n] round(exp_weights_j * 2^30), not all 0. Sums of integers do not depend on order, so that
  // draws are equal however keys are tiled.
  const uint32_t* weights = nullptr;
  const uint64_t* block_weights = nullptr;  // [b]: sum over keys b * kBlock .. (b+1) * kBlock - 1
  uint64_t weight_total = 0;
  // The keys are first..n-1; older ones are outside of the sliding window. Arrays are undefined
  // before the block of `first`.
  int first = 0;
  int n = 0;
  // S, above 0. For methods that use it, S is below keys(), or with exactAbove=never at most
  // kMostDraws.
  uint32_t budget = 0;
  int keys() const { return n - first; }

  uint64_t seed = 0;
  uint32_t sequence = 0;
  uint32_t step = 0;
  uint32_t stream = 0;  // attentionStream(layer, head)

  // [n] or null: heavy keys are found by these numbers instead of by scores, for all heads of a
  // group alike. Arrays are defined as `scores` is.
  const float* rank = nullptr;

  const MethodOptions* options = nullptr;
  // The cache and pages of this head's keys and values.
  const PagedKv* kv = nullptr;
  const int32_t* pages = nullptr;
  int kv_head = 0;
  const float* query = nullptr;  // [head_dim]
  const float* bias = nullptr;   // [n] or null
  float scale = 1;

  // Returns four random words. kHeadDomains says which stage uses which blocks.
  std::array<uint32_t, 4> random(uint32_t block) const {
    return philox(seed, sequence, step, stream, block);
  }
  // Returns scale * q.k_j + bias_j from the exact key. The method adds the read to key_rows.
  float exactScore(int j) const;
  // Adds weight * v_j to out [head_dim].
  void addValue(int j, float weight, float* out) const;
  // Returns |v_j - centre|^2, or |v_j|^2 if centre is null.
  double valueDistance(int j, const float* centre) const;
};

// What the error of an output is measured from: sums of c (w / c (v - centre) - (out - centre) /
// R)^2 over the rows drawn, R the sum of their counts c.
enum class ErrorCentre {
  kOutput,     // weights sum to 1
  kZero,       // weights are divided by nothing
  kMeanValue,  // the mean value has what weights lack of 1
};

// A method's choice: out = sum_i weights_i v_{rows_i}. Rows are positions in the sequence,
// distinct, in any order; weights are finite. decode.cpp asserts this, and the number of draws.
struct Selection {
  std::vector<int32_t> rows;
  std::vector<float> weights;    // in the output, of all draws of the row
  std::vector<uint32_t> counts;  // draws of the row; 0: always read
  // All draws, repetitions and always-read rows included, as the table's column `draws` says.
  uint64_t draws = 0;
  // How many exact keys are read after the score stage: none, those of `rows`, those of `rows` and
  // `bits` (pilots), or all of the head's keys.
  uint64_t key_rows = 0;
  uint64_t extra_key_bytes = 0;   // bounds read, the same for all heads of the group
  uint64_t extra_value_rows = 0;  // value rows read and not in `rows`; all are in `bits`
  float finite_population = 1;    // scales the variance: 1 - b / n_s for b of n_s keys drawn once
  bool error_known = true;        // false: HeadStatistics::relative_error is -1
  ErrorCentre error_centre = ErrorCentre::kOutput;
  float mean_weight = 0;  // the weight of the row's mean value (PagedKv::value_sums) in the output
  // If sets_lse: the head's log-sum, in place of that of `scores`. If it is NaN or +inf, the step
  // is refused.
  float lse = 0;
  bool sets_lse = false;

  // Scratch of the method, kept between calls so that nothing is allocated.
  std::vector<uint64_t> thresholds;
  std::vector<int32_t> order;
  std::vector<uint64_t> bits;  // [n / 64 + 1], a bit a position
  std::vector<float> buffer;
  std::vector<double> sums;

  void add(int row, float weight, uint32_t count) {
    rows.push_back(row);
    weights.push_back(weight);
    counts.push_back(count);
  }
  void clear();
};

// A method's select function.
// Requires: a head with weights has one that is not 0.
using Select = void(const Head&, Selection*);
using SelectFunction = Select*;

// Declares the function of each row of the table. noSelect does nothing and is never called.
#define ALLOT_DECLARE_SELECT(enumerator, name, phases, scored_by, chosen_by, draws, needs, \
                             own_error, promise, gpu, prompts, key_block, select, reads)   \
  Select select;
ALLOT_METHODS(ALLOT_DECLARE_SELECT)
#undef ALLOT_DECLARE_SELECT

// Returns the method's function.
SelectFunction selectOf(Method method);

}  // namespace allot::kernels
