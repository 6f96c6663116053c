#pragma once
// What the tests of decode attention share: a cache of random keys and values with references in
// double precision, one head's scores as a value stage gets them, and the list of methods.
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "allot/kernels/decode.h"
#include "kernels/cpu/methods.h"
#include "tests/kernels/key_pool.h"

namespace allot::kernels {

// From text; the test fails if it does not parse.
MethodOptions methodOf(std::string_view text);

// Every method with its defaults, and each of its parameters with another value.
const std::vector<std::string>& methodTexts();
// The name of a test with such a parameter.
std::string methodTestName(const testing::TestParamInfo<std::string>& info);

struct CacheShape {
  std::vector<int> lengths = {100};
  int kv_heads = 1;
  int heads = 1;
  int page_size = 16;
  int head_dim = 64;
  Element element = Element::kFloat32;
  uint64_t seed = 1;
};

// One layer of `lengths.size()` sequences in shuffled pages, written through appendKv, with every
// shadow and bounds. All numbers are bfloat16 ones and depend on the seed and on the lengths, head
// counts and head_dim, not on page size or element: caches that differ in those hold the same.
// Memory that no key was written to is NaN, and page table entries that no key needs are negative.
class Cache {
 public:
  explicit Cache(const CacheShape& shape);

  // Appends a row's keys and values, as they are now: all, or positions from .. to - 1.
  void write();
  void append(int row, int from, int to);
  // Rows that attend to row 0's keys with its query and bias, a sequence number each from `first`.
  void repeatFirstRow(int rows, uint32_t first);

  DecodeInputs inputs() const;
  // n_r, whatever the row's pages hold.
  int rows() const { return static_cast<int>(lengths.size()); }
  int kvHead(int head) const { return head / (shape.heads / shape.kv_heads); }
  float* key(int row, int kv_head, int j);
  float* value(int row, int kv_head, int j);
  const float* value(int row, int kv_head, int j) const {
    return const_cast<Cache*>(this)->value(row, kv_head, j);
  }
  float* query(int row, int head);

  struct Result {
    std::vector<float> out, lse;
    std::vector<RowStatistics> statistics;
    std::vector<HeadStatistics> heads;
    std::vector<GroupStatistics> groups;
  };
  // Fails the test if the step is refused.
  Result run(const MethodOptions& method, int threads = 1) const;
  Result run(const MethodOptions& method, const DecodeInputs& in, int threads = 1) const;
  // The refusal; empty if there was none.
  std::string refusal(const MethodOptions& method, const DecodeInputs& in) const;

  // In double precision; masked keys have the score -inf and the probability 0.
  std::vector<double> scores(int row, int head) const;
  std::vector<double> probabilities(int row, int head) const;
  std::vector<double> exact(int row, int head) const;
  double exactLse(int row, int head) const;

  CacheShape shape;
  KeyPool pool;
  int max_pages = 0;
  std::vector<int32_t> table, lengths;
  std::vector<std::vector<float>> keys, values;  // a row: [n, kv_heads, head_dim]
  std::vector<float> queries, bias;              // bias: empty or [rows, bias_stride]
  int64_t bias_stride = 0;
  std::vector<uint32_t> budgets, sequences, steps;
  uint32_t layer = 3;
  uint64_t seed = 77;
  float scale = 0.125f;

 private:
  mutable DecodeWorkspace workspace_{1};
};

enum class Scores { kFlat, kNormal, kPeaked, kHeavyTailed, kMasked, kEqual, kLast };
constexpr Scores kAllScores[] = {Scores::kFlat,   Scores::kNormal, Scores::kPeaked,
                                 Scores::kMasked, Scores::kEqual,  Scores::kHeavyTailed,
                                 Scores::kLast};
std::vector<float> randomScores(Scores kind, int n, uint64_t seed);

// One head's scores with their weights, as decode.cpp makes them for a value stage that needs
// nothing else.
class ScoredHead {
 public:
  explicit ScoredHead(std::vector<float> scores);
  ScoredHead(const ScoredHead&) = delete;
  ScoredHead& operator=(const ScoredHead&) = delete;

  // P_j: the sum of the integer weights of keys 0..j.
  const std::vector<uint64_t>& prefixes() const { return prefixes_; }
  int n() const { return head.n; }

  MethodOptions options;
  Head head;  // with seed 77, step 5, layer 3, head 0; budget and sequence are the test's to set

 private:
  std::vector<float> scores_, exp_weights_;
  std::vector<uint32_t> weights_;
  std::vector<uint64_t> blocks_, prefixes_;
};

// Returns what the method's function chooses for the head.
inline Selection select(SelectFunction function, const ScoredHead& scored) {
  Selection selection;
  selection.clear();
  function(scored.head, &selection);
  return selection;
}

// Equal statistics. Bytes depend on the cache's element: they are compared where it is the same.
void expectEqual(const HeadStatistics& a, const HeadStatistics& b, bool bytes = true);
void expectEqual(const GroupStatistics& a, const GroupStatistics& b, bool bytes = true);
void expectEqual(const RowStatistics& a, const RowStatistics& b, bool bytes = true);
// Row `a` of x and row `b` of y are the same to the bit, statistics and all.
void expectSameRow(const Cache::Result& x, int a, const Cache::Result& y, int b, bool bytes = true);
void expectSame(const Cache::Result& x, const Cache::Result& y, bool bytes = true);

// Returns the draws of which a head uses the rows: its budget's, or those of its whole group.
inline uint64_t sharedDraws(const MethodOptions& method, const CacheShape& shape, uint64_t budget) {
  const auto group = static_cast<uint64_t>(shape.heads / shape.kv_heads);
  return method.group_draws || method.group_choice ? budget * group : budget;
}

// A budget that reads every key.
inline constexpr uint32_t kAll = UINT32_MAX;

// Returns the cache's inputs with a budget for each head of each row.
inline DecodeInputs withBudgets(const Cache& cache, const std::vector<uint32_t>& budgets) {
  DecodeInputs in = cache.inputs();
  in.budgets = budgets.data();
  in.head_budgets = true;
  return in;
}

// Returns the budgets of one row for every row of the cache.
inline std::vector<uint32_t> forRows(const Cache& cache, const std::vector<uint32_t>& row) {
  std::vector<uint32_t> all;
  for (int r = 0; r < cache.rows(); ++r) all.insert(all.end(), row.begin(), row.end());
  return all;
}

// Draws of each key.
std::vector<uint32_t> countsOf(const Selection& selection, int n);

// c_j = floor(S P_j / P_n + u) - floor(S P_{j-1} / P_n + u) in exact rational arithmetic,
// u = offset / 2^24, for keys first..last-1 and their prefix sums alone.
std::vector<uint32_t> systematicReference(const std::vector<uint64_t>& prefixes, int first,
                                          int last, uint32_t samples, uint32_t offset);

}  // namespace allot::kernels
