// The edges, for every method: budgets and lengths around each other and around a page, scores that
// are all equal or all in one key, masked keys, and inputs that are refused. Every cache holds NaN
// wherever no key was written.
#include <cmath>
#include <functional>

#include "tests/kernels/fixture.h"

namespace allot::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

bool isBernoulli(const MethodOptions& m) {
  return traitsOf(m.method).scored_by == ScoredBy::kFeatures;
}
Method valueStage(const MethodOptions& m) { return isBernoulli(m) ? m.values : m.method; }

// The draws of one head. They are a limit for flash, whose tiles without weight make none.
uint64_t drawsOf(const MethodOptions& m, uint64_t n, uint64_t budget) {
  const auto tile = static_cast<uint64_t>(tileKeys(m, static_cast<int>(n)));
  const uint64_t tiles = (n + tile - 1) / tile;
  return valueStage(m) == Method::kS2antaFlash ? tiles * std::max<uint64_t>(1, budget / tiles)
                                               : budget;
}

// Whether a budget makes a head exact.
bool exactBy(const MethodOptions& m, uint64_t n, uint64_t budget) {
  return usesBudget(m) && exactFromAllKeys(m) && budget >= n;
}

void expectSaneHead(const MethodOptions& m, const Cache& cache, int row,
                    const HeadStatistics& head) {
  const auto n = static_cast<uint64_t>(cache.lengths[row]);
  const uint64_t budget = cache.budgets[row];
  const uint64_t shared = sharedDraws(m, cache.shape, budget);
  const uint64_t row_bytes = cache.shape.head_dim * bytesOf(cache.shape.element);
  EXPECT_LE(head.unique_rows, n);
  EXPECT_EQ(head.value_bytes, head.unique_rows * row_bytes);
  const uint64_t others = shared - budget;
  EXPECT_LE(head.effective_sample_size, (head.draws + others) * 1.001f);
  EXPECT_TRUE(std::isfinite(head.relative_error));
  if (budget == 0 || n == 0) {
    EXPECT_EQ(head.draws + head.unique_rows + head.key_bytes, 0u);
    return;
  }
  const MethodTraits& traits = traitsOf(m.method);
  const bool exact = valueStage(m) == Method::kDense || exactBy(m, n, shared);
  if (exact) {
    EXPECT_EQ(head.draws, n);
    EXPECT_EQ(head.unique_rows, n);
    EXPECT_EQ(head.effective_sample_size, static_cast<float>(n));
    EXPECT_EQ(head.relative_error, isBernoulli(m) ? -1 : 0);
    if (!isBernoulli(m)) {
      EXPECT_EQ(head.key_bytes, n * row_bytes);
    }
    return;
  }
  const Draws promised = traitsOf(valueStage(m)).draws;
  const bool samples = promised != Draws::kNone;
  if (samples) {
    EXPECT_LE(head.draws, drawsOf(m, n, budget));
    if (promised == Draws::kS) {
      EXPECT_EQ(head.draws, budget);
    }
    EXPECT_LE(head.unique_rows, head.draws + others);
  }
  const bool blind = traits.own_error == OwnError::kUnknown || m.largest_remainder;
  EXPECT_EQ(head.relative_error < 0, blind || (samples && head.draws + others == 1));
  const uint64_t bits = shadowBits(m);
  if (bits > 0) {
    EXPECT_GE(head.key_bytes, n * (cache.shape.head_dim * bits / 8 + 4));
  } else if (isBernoulli(m)) {
    EXPECT_LE(head.key_bytes, n * row_bytes);
  } else if (traits.scored_by != ScoredBy::kBounds) {
    EXPECT_EQ(head.key_bytes, n * row_bytes + (m.norm_proposal ? n * sizeof(float) : 0));
  }
}

// Sums over heads and groups, and what each may be.
void expectSaneStatistics(const MethodOptions& m, const Cache& cache, const Cache::Result& run) {
  const int heads = cache.shape.heads, kv_heads = cache.shape.kv_heads, group = heads / kv_heads;
  const uint64_t row_bytes = cache.shape.head_dim * bytesOf(cache.shape.element);
  for (int r = 0; r < cache.rows(); ++r) {
    SCOPED_TRACE("n " + std::to_string(cache.lengths[r]) + ", S " +
                 std::to_string(cache.budgets[r]));
    const auto n = static_cast<uint64_t>(cache.lengths[r]);
    RowStatistics sums;
    for (int k = 0; k < kv_heads; ++k) {
      const GroupStatistics& together = run.groups[r * kv_heads + k];
      uint64_t most = 0, all = 0, most_keys = 0, all_keys = 0;
      for (int h = k * group; h < (k + 1) * group; ++h) {
        const HeadStatistics& head = run.heads[r * heads + h];
        expectSaneHead(m, cache, r, head);
        sums.draws += head.draws;
        sums.unique_rows += head.unique_rows;
        most = std::max<uint64_t>(most, head.unique_rows), all += head.unique_rows;
        most_keys = std::max(most_keys, head.key_bytes), all_keys += head.key_bytes;
      }
      EXPECT_GE(together.unique_rows, most);
      EXPECT_LE(together.unique_rows, std::min(all, n));
      EXPECT_EQ(together.value_bytes, together.unique_rows * row_bytes);
      EXPECT_GE(together.key_bytes, most_keys);
      if (cache.budgets[r] > 0) {
        EXPECT_LE(together.key_bytes, all_keys);
      }
      sums.group_rows += together.unique_rows;
      sums.key_bytes += together.key_bytes;
      sums.value_bytes += together.value_bytes;
    }
    const RowStatistics& row = run.statistics[r];
    EXPECT_EQ(row.draws, sums.draws);
    EXPECT_EQ(row.unique_rows, sums.unique_rows);
    EXPECT_EQ(row.group_rows, sums.group_rows);
    EXPECT_EQ(row.key_bytes, sums.key_bytes);
    EXPECT_EQ(row.value_bytes, sums.value_bytes);
    EXPECT_EQ(row.dense_rows, n * heads);
    EXPECT_EQ(row.dense_bytes, 2 * n * row_bytes * kv_heads);
  }
}

class Edges : public testing::TestWithParam<std::string> {
 protected:
  MethodOptions method = methodOf(GetParam());

  // Every output is within the values' range, and nothing is NaN.
  void expectFinite(const Cache& cache, const Cache::Result& run) const {
    for (int r = 0; r < cache.rows(); ++r) {
      for (int h = 0; h < cache.shape.heads; ++h) {
        const int at = r * cache.shape.heads + h;
        ASSERT_FALSE(std::isnan(run.lse[at]) || run.lse[at] == kInfinity);
        for (int d = 0; d < cache.shape.head_dim; ++d) {
          float most = 0;
          for (int j = 0; j < cache.lengths[r]; ++j) {
            most = std::max(most, std::fabs(cache.value(r, cache.kvHead(h), j)[d]));
          }
          const float out = run.out[at * cache.shape.head_dim + d];
          ASSERT_TRUE(std::isfinite(out));
          if (method.weights == Weights::kSelf) {  // the estimate's weights sum to 1
            ASSERT_LE(std::fabs(out), most * 1.0001f);
          }
        }
      }
    }
    expectSaneStatistics(method, cache, run);
  }

  // Expects zeros where `expected` is null.
  void expectRow(const Cache& cache, const Cache::Result& run, int row, int head,
                 const float* expected, double tolerance) const {
    const int at = (row * cache.shape.heads + head) * cache.shape.head_dim;
    for (int d = 0; d < cache.shape.head_dim; ++d) {
      ASSERT_NEAR(run.out[at + d], expected ? expected[d] : 0, tolerance)
          << "row " << row << ", head " << head;
    }
  }
  // Expects that each head of each row gives the value of this key.
  void expectOnlyKey(const Cache& cache, const Cache::Result& run, int key) const {
    for (int i = 0; i < cache.rows() * cache.shape.heads; ++i) {
      const int row = i / cache.shape.heads, head = i % cache.shape.heads;
      expectRow(cache, run, row, head, cache.value(row, cache.kvHead(head), key), 1e-5);
    }
  }
};

// Lengths x budgets, as rows of one batch.
CacheShape edgeShape(int page, Element element) {
  CacheShape shape{.lengths = {},
                   .kv_heads = 2,
                   .heads = 4,
                   .page_size = page,
                   .head_dim = 32,
                   .element = element,
                   .seed = 4};
  for (const int n : {0, 1, page - 1, page, page + 1}) {
    for (int i = 0; i < 5; ++i) shape.lengths.push_back(n);
  }
  return shape;
}

TEST_P(Edges, BudgetsAndLengths) {
  for (const Element element : {Element::kFloat32, Element::kBFloat16}) {
    for (const int page : {16, 64, 256}) {
      Cache cache(edgeShape(page, element));
      for (int r = 0; r < cache.rows(); ++r) {
        const int n = cache.lengths[r];
        cache.budgets[r] = std::max(0, std::vector{0, 1, n - 1, n, n + 5}[r % 5]);
      }
      const auto run = cache.run(method);
      expectFinite(cache, run);
      MethodOptions every = method;
      every.values = Method::kDense;
      const auto dense = cache.run(isBernoulli(method) ? every : methodOf("dense"));
      for (int r = 0; r < cache.rows(); ++r) {
        const uint32_t n = cache.lengths[r], budget = cache.budgets[r];
        const uint64_t shared = sharedDraws(method, cache.shape, budget);
        for (int h = 0; h < 4; ++h) {
          const size_t at = (r * 4 + h) * 32;
          if (n == 0) {
            ASSERT_EQ(run.lse[r * 4 + h], -kInfinity);
          } else if (budget == 0 || exactBy(method, n, shared)) {
            ASSERT_EQ(run.lse[r * 4 + h], dense.lse[r * 4 + h]);
            if (!isBernoulli(method)) {
              ASSERT_NEAR(run.lse[r * 4 + h], cache.exactLse(r, h), 1e-5);
            }
          }
          if (budget == 0 || n == 0) {
            expectRow(cache, run, r, h, nullptr, 0);
          } else if (n == 1) {
            expectRow(cache, run, r, h, cache.value(r, cache.kvHead(h), 0), 1e-6);
          } else if (exactBy(method, n, shared)) {
            expectRow(cache, run, r, h, &dense.out[at], 0);
          }
        }
      }
    }
  }
}

// Five rows of 100 keys, with budgets below, at and above 100.
Cache rowsOf100(Element element) {
  Cache cache({.lengths = {100, 100, 100, 100, 100},
               .kv_heads = 2,
               .heads = 4,
               .head_dim = 32,
               .element = element,
               .seed = 5});
  cache.budgets = {1, 7, 99, 100, 105};
  cache.bias_stride = 103;
  cache.bias.assign(5 * 103, 0.0f);
  for (int r = 0; r < 5; ++r) {  // beyond the row's length: never read
    for (int j = 100; j < 103; ++j) cache.bias[r * 103 + j] = kNaN;
  }
  return cache;
}

TEST_P(Edges, EqualScores) {
  for (const Element element : {Element::kFloat32, Element::kBFloat16}) {
    Cache cache = rowsOf100(element);
    for (int r = 0; r < 5; ++r) {
      for (int j = 1; j < 100; ++j) std::copy_n(cache.key(r, 0, 0), 2 * 32, cache.key(r, 0, j));
    }
    cache.write();
    const auto run = cache.run(method);
    expectFinite(cache, run);
    // Methods that keep the largest give what those have.
    const ChosenBy by = traitsOf(method.method).chosen_by;
    if (by == ChosenBy::kPages || by == ChosenBy::kLargest || isBernoulli(method)) continue;
    // Norms of values draw some keys more often than others.
    if (method.norm_proposal) continue;
    // Every way of estimating the normaliser is exact when no score differs.
    for (int i = 0; i < 5 * 4; ++i) {
      EXPECT_NEAR(run.lse[i], cache.exactLse(i / 4, i % 4), 1e-4);
    }
  }
}

TEST_P(Edges, OneDominantKey) {
  if (method.heavy == 0)
    GTEST_SKIP() << "needs a method that draws by weight: a uniform draw may miss the key";
  for (const Element element : {Element::kFloat32, Element::kBFloat16}) {
    for (const int heavy : {0, 1, 50, 98, 99}) {
      Cache cache = rowsOf100(element);
      for (int r = 0; r < 5; ++r) cache.bias[r * 103 + heavy] = 80;
      const auto run = cache.run(method);
      expectFinite(cache, run);
      // The newest page may be all that the least budget buys.
      if (method.newest_within && heavy < 96) continue;
      expectOnlyKey(cache, run, heavy);
    }
  }
}

TEST_P(Edges, MaskedKeys) {
  for (const Element element : {Element::kFloat32, Element::kBFloat16}) {
    for (const int special : {0, 37, 99}) {
      Cache one = rowsOf100(element);
      for (int r = 0; r < 5; ++r) {
        one.bias[r * 103 + special] = -kInfinity;
        // Were the key to count, this would show; were 0 times it NaN, too.
        std::fill_n(one.value(r, 0, special), 2 * 32, fromBFloat16(toBFloat16(1e30f)));
      }
      one.write();
      for (const float x : one.run(method).out) ASSERT_LT(std::fabs(x), 100);

      Cache rest = rowsOf100(element);
      for (int i = 0; i < 5 * 103; ++i) {
        if (i % 103 < 100 && i % 103 != special) rest.bias[i] = -kInfinity;
      }
      const auto run = rest.run(method);
      expectFinite(rest, run);
      // And it may hold masked keys alone.
      if (method.newest_within && special < 96) continue;
      expectOnlyKey(rest, run, special);
      for (int i = 0; i < 5 * 4 && !isBernoulli(method); ++i) {
        EXPECT_NEAR(run.lse[i], rest.exactLse(i / 4, i % 4), 1e-4);
      }
    }
    Cache none = rowsOf100(element);
    for (int i = 0; i < 5 * 103; ++i) {
      if (i % 103 < 100) none.bias[i] = -kInfinity;
    }
    const auto run = none.run(method);
    for (const float lse : run.lse) EXPECT_EQ(lse, -kInfinity);
    for (const float x : run.out) EXPECT_EQ(x, 0.0f);
    for (const HeadStatistics& head : run.heads) {
      EXPECT_GE(head.effective_sample_size, 0);
      EXPECT_FALSE(std::isnan(head.relative_error));
    }
  }
}

// Expects a refusal that has all of `words`.
void expectRefused(const std::string& refusal, const std::vector<std::string>& words) {
  EXPECT_FALSE(refusal.empty());
  for (const std::string& word : words) {
    EXPECT_NE(refusal.find(word), std::string::npos) << refusal << "\nlacks: " << word;
  }
}

TEST_P(Edges, BadInputsAreRefusedByName) {
  for (const Element element : {Element::kFloat32, Element::kBFloat16}) {
    const Cache good = rowsOf100(element);
    const auto refused = [&](const std::vector<std::string>& words,
                             const std::function<void(Cache&, DecodeInputs&)>& spoil) {
      Cache bad = rowsOf100(element);
      DecodeInputs in = bad.inputs();
      spoil(bad, in);
      expectRefused(bad.refusal(method, in), words);
    };
    EXPECT_EQ(good.refusal(method, good.inputs()), "");
    for (const float number : {kNaN, kInfinity, -kInfinity}) {
      refused({"queries[2]", "head 3", "channel 31"},
              [&](Cache& bad, DecodeInputs&) { bad.query(2, 3)[31] = number; });
    }
    for (const float number : {kNaN, kInfinity}) {
      refused({"bias[4]", "key 99"},
              [&](Cache& bad, DecodeInputs&) { bad.bias[4 * 103 + 99] = number; });
    }
    refused({"lengths[1]", "-1"}, [](Cache& bad, DecodeInputs&) { bad.lengths[1] = -1; });
    refused({"lengths[1]", "129", "128"}, [](Cache& bad, DecodeInputs&) { bad.lengths[1] = 129; });
    for (const int32_t page : {-1, 40, 1 << 30}) {
      refused({"page_table[3]", "entry 6", std::to_string(page)},
              [page](Cache& bad, DecodeInputs&) { bad.table[3 * bad.max_pages + 6] = page; });
    }
    if (shadowBits(method) > 0) {
      refused({GetParam().substr(0, GetParam().find(' ')), std::to_string(shadowBits(method))},
              [](Cache& bad, DecodeInputs&) {
                for (KeyShadow& shadow : bad.pool.kv.shadows) shadow = {};
              });
    }
    if (readsBounds(method)) {
      refused({"quest", "bounds"}, [](Cache& bad, DecodeInputs&) { bad.pool.kv.bounds = nullptr; });
    }
  }
}

// Finite keys and queries whose product is not, and a bias that takes a score beyond a float.
TEST_P(Edges, ScoresThatOverflowAreRefused) {
  for (const Element element : {Element::kFloat32, Element::kBFloat16}) {
    for (const bool all : {false, true}) {
      Cache large = rowsOf100(element);
      std::fill_n(large.query(1, 0), 2 * 32, 1e30f);
      for (int j = all ? 0 : 99; j < 100; ++j) {
        std::fill_n(large.key(1, 0, j), 32, fromBFloat16(toBFloat16(1e30f)));
      }
      large.write();
      expectRefused(large.refusal(method, large.inputs()), {"scores", "row 1"});
    }
    Cache lifted = rowsOf100(element);
    std::fill_n(lifted.query(1, 0), 4 * 32, 1e24f);
    for (int j = 0; j < 100; ++j) {
      std::fill_n(lifted.key(1, 0, j), 2 * 32, fromBFloat16(toBFloat16(4e12f)));
    }
    lifted.write();
    EXPECT_EQ(lifted.refusal(method, lifted.inputs()), "");  // 1.6e37
    for (int j = 0; j < 100; ++j) lifted.bias[103 + j] = 3.35e38f;
    expectRefused(lifted.refusal(method, lifted.inputs()), {"scores", "row 1"});
  }
}

INSTANTIATE_TEST_SUITE_P(Methods, Edges, testing::ValuesIn(methodTexts()), methodTestName);

}  // namespace
}  // namespace allot::kernels
