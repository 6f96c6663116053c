// The same results to the bit whatever the batch, its order, the number of threads, the page size,
// the place in the page table and the element of the cache; and what heads of a group share.
#include <cmath>
#include <set>

#include "tests/kernels/fixture.h"

namespace allot::kernels {
namespace {

constexpr int kHeads = 6, kKvHeads = 2, kDim = 48;

CacheShape shapeOf(int page_size = 16, Element element = Element::kBFloat16) {
  return {.lengths = {130, 77, 512, 33, 0, 300},
          .kv_heads = kKvHeads,
          .heads = kHeads,
          .page_size = page_size,
          .head_dim = kDim,
          .element = element,
          .seed = 21};
}

// Budgets of their own, and a bias that masks some keys.
Cache batch(int page_size = 16, Element element = Element::kBFloat16) {
  Cache cache(shapeOf(page_size, element));
  cache.budgets = {16, 77, 100, 7, 4, 1};
  cache.bias_stride = 512;
  cache.bias = normals(6 * 512, 22);
  for (size_t i = 0; i < cache.bias.size(); i += 11) {
    cache.bias[i] = -std::numeric_limits<float>::infinity();
  }
  return cache;
}

class Invariance : public testing::TestWithParam<std::string> {
 protected:
  MethodOptions method = methodOf(GetParam());
};

TEST_P(Invariance, RepetitionsAndThreads) {
  const Cache cache = batch();
  const auto once = cache.run(method);
  for (const int threads : {1, 2, 5}) expectSame(once, cache.run(method, threads));
}

TEST_P(Invariance, PageSizeAndElement) {
  const auto small = batch(16).run(method);
  for (const int page : {64, 256}) expectSame(small, batch(page).run(method));
  // The same numbers in float32.
  for (const int page : {16, 256}) {
    expectSame(small, batch(page, Element::kFloat32).run(method), false);
  }
}

TEST_P(Invariance, AnyRowsBeside) {
  const Cache cache = batch();
  const auto all = cache.run(method);
  for (int r = 0; r < cache.rows(); ++r) {
    DecodeInputs one = cache.inputs();
    one.rows = 1;
    one.queries += static_cast<int64_t>(r) * kHeads * kDim;
    one.page_table += static_cast<int64_t>(r) * cache.max_pages;
    one.bias += r * cache.bias_stride;
    one.lengths += r, one.budgets += r, one.sequences += r, one.steps += r;
    expectSameRow(all, r, cache.run(method, one), 0);
  }
}

// The first row's sequence once more, in other pages and in another row of the batch.
TEST_P(Invariance, PlaceInThePool) {
  Cache cache(CacheShape{.lengths = {130, 77, 512, 130},
                         .kv_heads = kKvHeads,
                         .heads = kHeads,
                         .head_dim = kDim,
                         .seed = 23});
  cache.keys[3] = cache.keys[0];
  cache.values[3] = cache.values[0];
  std::copy_n(cache.query(0, 0), kHeads * kDim, cache.query(3, 0));
  cache.sequences[3] = cache.sequences[0];
  cache.budgets = {16, 16, 16, 16};
  cache.write();
  const auto run = cache.run(method);
  expectSameRow(run, 0, run, 3);
}

// What a caller does not ask for changes nothing.
TEST_P(Invariance, OptionalOutputs) {
  const Cache cache = batch();
  const auto all = cache.run(method);
  std::vector<float> out(cache.queries.size());
  DecodeWorkspace workspace;
  workspace.plan(512, kHeads / kKvHeads, kDim);
  double seconds = 0;
  ASSERT_EQ(decodeAttention(method, cache.pool.kv, cache.inputs(), &workspace,
                            {.out = out.data(), .sampling_seconds = &seconds}),
            std::nullopt);
  EXPECT_EQ(out, all.out);
  ASSERT_EQ(decodeAttention(method, cache.pool.kv, cache.inputs(), &workspace, {.out = out.data()}),
            std::nullopt);
  EXPECT_EQ(out, all.out);
}

// Values are the unit vectors of their positions, so that an output shows which rows its head drew.
TEST_P(Invariance, AGroupReadsTheUnionOfItsHeadsRows) {
  constexpr int kKeys = 200, kWide = 208;
  Cache cache({.lengths = {kKeys}, .kv_heads = 2, .heads = 6, .head_dim = kWide, .seed = 24});
  for (int j = 0; j < kKeys; ++j) {
    for (int k = 0; k < 2; ++k) {
      std::fill_n(cache.value(0, k, j), kWide, 0.0f);
      cache.value(0, k, j)[j] = 1;
    }
  }
  cache.write();
  cache.scale = 0.07f;
  cache.budgets = {40};
  const auto run = cache.run(method);
  const uint64_t row_bytes = kWide * sizeof(float);
  for (int k = 0; k < 2; ++k) {
    std::set<int> together;
    uint64_t own_keys = 0;
    for (int h = 3 * k; h < 3 * k + 3; ++h) {
      std::set<int> rows;
      for (int j = 0; j < kKeys; ++j) {
        if (run.out[h * kWide + j] != 0) rows.insert(j);
      }
      together.insert(rows.begin(), rows.end());
      if (method.method == Method::kVAttention) {
        EXPECT_GE(run.heads[h].unique_rows, rows.size());  // pilots do not show
      } else {
        EXPECT_EQ(run.heads[h].unique_rows, rows.size());
      }
      own_keys += run.heads[h].key_bytes;
    }
    const GroupStatistics& group = run.groups[k];
    const uint64_t norms = method.norm_proposal ? kKeys * sizeof(float) : 0;
    if (method.method == Method::kVAttention) {
      EXPECT_GE(group.unique_rows, together.size());
      EXPECT_LE(group.unique_rows, kKeys);
    } else {
      EXPECT_EQ(group.unique_rows, together.size());
    }
    if (method.method == Method::kS2antaQ4 && method.weights == Weights::kSelf) {
      const uint64_t shadow = kKeys * (kWide * shadowBits(method) / 8 + 4);
      EXPECT_EQ(group.key_bytes, shadow + together.size() * row_bytes + norms);
    } else if (traitsOf(method.method).scored_by == ScoredBy::kBounds) {
      const uint64_t bounds = (kKeys + 15) / 16 * 2 * kWide * (method.newest_within ? 4 : 2);
      EXPECT_EQ(group.key_bytes, bounds + together.size() * row_bytes);
    } else if (shadowBits(method) == 0 &&
               traitsOf(method.method).scored_by != ScoredBy::kFeatures) {
      EXPECT_EQ(group.key_bytes, kKeys * row_bytes + norms);
      EXPECT_EQ(own_keys, 3 * (kKeys * row_bytes + norms));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Methods, Invariance, testing::ValuesIn(methodTexts()), methodTestName);

// For one query head the exact output is a double sum; groups, widths and elements as they come.
TEST(Dense, EqualsDoublePrecisionForEveryShape) {
  for (const Element element : {Element::kFloat32, Element::kBFloat16}) {
    for (const int dim : {16, 64, 80, 128}) {
      for (const int group : {1, 2, 3, 4, 7, 8, 16}) {
        for (const int page : {16, 64}) {
          Cache cache({.lengths = {1, page - 1, page, page + 1, 333},
                       .kv_heads = 2,
                       .heads = 2 * group,
                       .page_size = page,
                       .head_dim = dim,
                       .element = element,
                       .seed = 9});
          cache.scale = 1 / std::sqrt(static_cast<float>(dim));
          const auto run = cache.run(methodOf("dense"));
          for (int r = 0; r < 5; ++r) {
            for (int h = 0; h < 2 * group; ++h) {
              const auto o = cache.exact(r, h);
              const int at = r * 2 * group + h;
              for (int d = 0; d < dim; ++d) ASSERT_NEAR(run.out[at * dim + d], o[d], 3e-6);
              ASSERT_NEAR(run.lse[at], cache.exactLse(r, h), 3e-6);
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace allot::kernels
