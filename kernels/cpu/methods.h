#pragma once
// The value stage of one query head: which entries (keys with their values) are read, and with
// which weights.
//
// A method gets a Head and fills a Selection; decode.cpp does the rest (scores, softmax, S = 0,
// S >= n, gathering, statistics). To add one, write a file method_<name>.cpp with a function of
// this form, and add its row to allot/kernels/method_names.h. Parameters, if it has its own, are in
// method_parameters.cpp. kernels/README.md goes through an example.
#include <array>
#include <cstdint>
#include <vector>

#include "allot/kernels/decode.h"
#include "allot/kernels/philox_streams.h"

namespace allot::kernels {

// Counts of draws are exact in float32 up to here.
constexpr uint32_t kMostDraws = 1u << 24;

// Integer masses are summed in blocks of this many keys, so that a draw can skip whole blocks.
constexpr int kBlock = 32;

// What one query head knows. Which scores there are is the score stage's business: q.k, Bernoulli's
// estimate of it, or q.k~ (methods that ask for a shadow); `scores` may be null for quest.
struct Head {
  // [n], then -inf up to a multiple of kBlock; so are those before `first`, back to a multiple.
  const float* scores = nullptr;
  // mass_j = exp(s_j - top), top the largest score; 0 beyond n and where a key is masked.
  const float* exp_weights = nullptr;
  double exp_weight_total = 0;
  float top = 0;
  // The same masses as integers, round(mass_j * 2^30): sums of them do not depend on order, so
  // draws are equal however keys are tiled. All zero if every key is masked (then no method is
  // called).
  const uint32_t* weights = nullptr;
  const uint64_t* block_weights = nullptr;  // sums over kBlock keys
  uint64_t weight_total = 0;
  // The keys are first..n-1: a sliding window leaves out those before. Nothing before the block of
  // `first` is defined.
  int first = 0;
  int n = 0;
  // S > 0 for methods that use it, and below keys() unless draws are made whatever the number of
  // keys is (exactFromAllKeys), at most kMostDraws then.
  uint32_t budget = 0;
  int keys() const { return n - first; }

  uint64_t seed = 0;
  uint32_t sequence = 0;
  uint32_t step = 0;
  uint32_t stream = 0;  // attentionStream(layer, head)

  const MethodOptions* options = nullptr;
  // Where this head's keys and values are.
  const PagedKv* kv = nullptr;
  const int32_t* pages = nullptr;
  int kv_head = 0;
  const float* query = nullptr;  // [head_dim]
  const float* bias = nullptr;   // [n] or null
  float scale = 1;

  // Stages have blocks of their own: kHeadDomains.
  std::array<uint32_t, 4> random(uint32_t block) const {
    return philox(seed, sequence, step, stream, block);
  }
  // s_j from the key itself, whatever `scores` holds. The caller counts what it reads.
  float exactScore(int j) const;
  // out += weight * v_j, [head_dim].
  void addValue(int j, float weight, float* out) const;
  // |v_j - centre|^2; centre null: |v_j|^2.
  double valueDistance(int j, const float* centre) const;
};

// What a method chose. `rows` are entries by their position in the sequence, distinct, in any
// order; out = sum_i weights_i v_{rows_i}.
struct Selection {
  std::vector<int32_t> rows;
  std::vector<float> weights;    // of the output, all of a row's draws together
  std::vector<uint32_t> counts;  // draws of the row; 0: not sampled but always read
  // Draws made, repetitions and always-read rows included; the table's column `draws` says how
  // many they must be.
  uint64_t draws = 0;
  // Exact keys read beyond the score stage: none, those of `rows`, those and the ones in `bits`
  // (pilots), or all.
  uint64_t key_rows = 0;
  uint64_t extra_key_bytes = 0;  // anything else read of the keys, the same for every head (bounds)
  uint64_t extra_value_rows = 0;  // value rows read but not in `rows`; all of them are in `bits`
  float finite_population = 1;    // (1 - b / n_s): scales the error of sampling without replacement
  bool error_known = true;        // false for methods with OwnError::kUnknown
  // Set by methods with estimated scores, where sets_lse. Not a number or +inf if an exact score
  // was not finite: the step is then refused.
  float lse = 0;
  bool sets_lse = false;

  // Scratch, kept between calls so that nothing is allocated.
  std::vector<uint64_t> thresholds;
  std::vector<int32_t> order;
  std::vector<uint64_t> bits;  // [n / 64 + 1], of rows
  std::vector<float> buffer;
  std::vector<double> sums;

  void add(int row, float weight, uint32_t count) {
    rows.push_back(row);
    weights.push_back(weight);
    counts.push_back(count);
  }
  void clear();
};

// A method's select function. It is called with weights of which one at least is not 0.
using Select = void(const Head&, Selection*);
using SelectFunction = Select*;

// The declarations, one for each row of the table. noSelect does nothing and is never called.
#define ALLOT_DECLARE_SELECT(enumerator, name, phases, scored_by, chosen_by, draws, needs, \
                             own_error, promise, gpu, select, reads)                       \
  Select select;
ALLOT_METHODS(ALLOT_DECLARE_SELECT)
#undef ALLOT_DECLARE_SELECT

}  // namespace allot::kernels
