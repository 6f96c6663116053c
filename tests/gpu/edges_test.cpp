// The edges of tests/kernels/edges_test.cpp on the GPU: budgets and lengths around each other
// and around a page or a split, scores that are all equal or all in one key, masked keys. Every
// cache holds NaN wherever no key was written.
#include <cmath>

#include "tests/gpu/reference.h"

namespace allot::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

using Edges = GpuMethodTest;

const Layout kLayouts[] = {
    {Element::kBFloat16, 64, 16, 2, 2},
    {Element::kBFloat16, 128, 64, 3, 1},
    {Element::kFloat16, 64, 256, 4, 1},
    {Element::kFloat16, 128, 64, 1, 2},
};

void expectFinite(const Cache::Result& run) {
  for (const float x : run.out) ASSERT_TRUE(std::isfinite(x));
  for (const float lse : run.lse) ASSERT_FALSE(std::isnan(lse) || lse == kInfinity);
}

// Expects zeros where `expected` is null.
void expectRow(const Cache& cache, const Cache::Result& run, int row, int head,
               const float* expected, double tolerance) {
  const int dim = cache.shape.head_dim, at = (row * cache.shape.heads + head) * dim;
  for (int d = 0; d < dim; ++d) {
    ASSERT_NEAR(run.out[at + d], expected ? expected[d] : 0, tolerance)
        << "row " << row << ", head " << head;
  }
}

// That a head's output is the value of one key.
void expectOnlyKey(const Cache& cache, const Cache::Result& run, int row, int key) {
  for (int h = 0; h < cache.shape.heads; ++h) {
    expectRow(cache, run, row, h, cache.value(row, cache.kvHead(h), key), 1e-5);
  }
}

TEST_P(Edges, BudgetsAndLengths) {
  for (const Layout& layout : kLayouts) {
    for (const int around : {16, layout.page_size, 256, 512}) {
      SCOPED_TRACE(textOf(layout) + ", lengths around " + std::to_string(around));
      std::vector<int> lengths;
      for (const int n : {0, 1, around - 1, around, around + 1}) {
        for (int i = 0; i < 5; ++i) lengths.push_back(n);
      }
      Cache cache = hostCache(layout, lengths, 111);
      for (int r = 0; r < cache.rows(); ++r) {
        const int n = cache.lengths[r];
        cache.budgets[r] = std::max(0, std::vector{0, 1, n - 1, n, n + 5}[r % 5]);
      }
      Gpu gpu(cache, layout.element);
      const GpuResult run = gpu.run(method);
      expectFinite(run);
      const GpuResult dense = gpu.run(methodOf("dense"));
      expectLse(cache, run, method);
      expectFollowsDraws(cache, run, method, layout.element);
      const int dim = layout.head_dim;
      for (int r = 0; r < cache.rows(); ++r) {
        const uint32_t n = cache.lengths[r], budget = cache.budgets[r];
        SCOPED_TRACE("n " + std::to_string(n) + ", S " + std::to_string(budget));
        if (n == 1 && budget > 0) expectOnlyKey(cache, run, r, 0);
        for (int h = 0; h < cache.shape.heads; ++h) {
          const int at = r * cache.shape.heads + h;
          if (budget == 0 || n == 0) {
            expectRow(cache, run, r, h, nullptr, 0);
          } else if (!draws(method, cache.shape, n, budget) &&
                     method.method != Method::kBernoulli) {
            expectRow(cache, run, r, h, &dense.out[at * dim], 0);
            ASSERT_EQ(run.lse[at], dense.lse[at]);
          }
        }
      }
      if (HasFailure()) return;
    }
  }
}

// Rows of 100 and 300 keys, with budgets below, at and above their lengths.
Cache mixedRows(const Layout& layout) {
  Cache cache = hostCache(layout, {100, 100, 300, 300, 100, 300}, 112);
  cache.budgets = {1, 7, 99, 299, 100, 305};
  addBias(&cache, [](int, int) { return 0.0f; });
  return cache;
}

TEST_P(Edges, EqualScores) {
  for (const Layout& layout : kLayouts) {
    SCOPED_TRACE(textOf(layout));
    Cache cache = mixedRows(layout);
    const size_t width = static_cast<size_t>(layout.kv_heads) * layout.head_dim;
    for (int r = 0; r < cache.rows(); ++r) {
      for (int j = 1; j < cache.lengths[r]; ++j) {
        std::copy_n(cache.key(r, 0, 0), width, cache.key(r, 0, j));
      }
    }
    cache.write();
    Gpu gpu(cache, layout.element);
    const GpuResult run = gpu.run(method);
    expectFinite(run);
    expectFollowsDraws(cache, run, method, layout.element);
    // Every way of estimating the normaliser is exact when no score differs, except the weight
    // that divides 4-bit draws.
    for (int i = 0; i < cache.rows() * cache.shape.heads; ++i) {
      const int r = i / cache.shape.heads;
      if (method.method == Method::kBernoulli) continue;  // of its own scores
      double expected = cache.exactLse(r, i % cache.shape.heads);
      // The largest by a shadow, or those of pages, are all that it knows exactly.
      const bool kept =
          readsBounds(method) || (method.method == Method::kTopK && shadowBits(method) > 0);
      if (kept && draws(method, cache.shape, cache.lengths[r], cache.budgets[r])) {
        expected += std::log(static_cast<double>(run.draws[i].keys.size()) / cache.lengths[r]);
      }
      EXPECT_NEAR(run.lse[i], expected, 1e-3);
    }
    forEachHead(cache, [&](int r, int h) {
      if (!draws(method, cache.shape, cache.lengths[r], cache.budgets[r])) return;
      Selection chosen = cpuSelection(method, cache, r, h);
      if (hasErrorTarget(method)) chosen.counts.assign(chosen.rows.size(), 1);
      ASSERT_EQ(countsOf(run.draws[r * cache.shape.heads + h], cache.lengths[r]),
                countsOf(chosen, cache.lengths[r]));
    });
    if (HasFatalFailure()) return;
  }
}

TEST_P(Edges, OneDominantKey) {
  if (method.newest_within)
    GTEST_SKIP() << "needs a method that reads more than the newest page below two pages";
  if (hasErrorTarget(method) && method.heavy == 0) {
    GTEST_SKIP() << "needs a method that draws by weight: a uniform draw may miss the key";
  }
  for (const Layout& layout : kLayouts) {
    Cache cache = mixedRows(layout);
    Gpu gpu(cache, layout.element);
    for (const int heavy : {0, 1, 50, 98, 99}) {
      SCOPED_TRACE(textOf(layout) + ", key " + std::to_string(heavy));
      addBias(&cache, [&](int, int key) { return key == heavy ? 80.0f : 0.0f; });
      gpu.load();
      const GpuResult run = gpu.run(method);
      expectFinite(run);
      for (int r = 0; r < cache.rows(); ++r) expectOnlyKey(cache, run, r, heavy);
    }
    // In the last of two splits: the first has weights, and no share of the row.
    addBias(&cache, [&](int row, int key) { return key == cache.lengths[row] - 1 ? 80.0f : 0.0f; });
    gpu.load();
    const GpuResult run = gpu.run(method);
    for (int r = 0; r < cache.rows(); ++r) expectOnlyKey(cache, run, r, cache.lengths[r] - 1);
    expectLse(cache, run, method);
  }
}

TEST_P(Edges, MaskedKeys) {
  for (const Layout& layout : kLayouts) {
    const float huge = layout.element == Element::kFloat16 ? 6e4f : 1e30f;
    for (const int special : {0, 37, 99}) {
      SCOPED_TRACE(textOf(layout) + ", key " + std::to_string(special));
      Cache one = mixedRows(layout);
      addBias(&one, [&](int, int key) { return key == special ? -kInfinity : 0.0f; });
      const size_t width = static_cast<size_t>(layout.kv_heads) * layout.head_dim;
      for (int r = 0; r < one.rows(); ++r) {
        // Were the key to count, this would show.
        std::fill_n(one.value(r, 0, special), width, rounded(layout.element, huge));
      }
      one.write();
      Gpu gpu_one(one, layout.element);
      const GpuResult without = gpu_one.run(method);
      for (const float x : without.out) ASSERT_LT(std::fabs(x), 100);
      expectLse(one, without, method);

      if (method.newest_within) continue;  // below two pages it reads the newest alone
      Cache rest = mixedRows(layout);
      addBias(&rest, [&](int, int key) { return key == special ? 0.0f : -kInfinity; });
      Gpu gpu_rest(rest, layout.element);
      const GpuResult alone = gpu_rest.run(method);
      expectFinite(alone);
      for (int r = 0; r < rest.rows(); ++r) expectOnlyKey(rest, alone, r, special);
      for (int i = 0; i < rest.rows() * rest.shape.heads; ++i) {
        if (method.method == Method::kBernoulli) break;  // of its own scores
        EXPECT_NEAR(alone.lse[i], rest.exactLse(i / rest.shape.heads, i % rest.shape.heads), 4e-3);
      }
      expectStatisticsFollowDraws(rest, alone, method, layout.element);
    }
    // A whole split is masked, and rows whose every key is.
    Cache split = mixedRows(layout);
    addBias(&split, [](int, int key) { return key < 256 ? -kInfinity : 0.0f; });
    Gpu gpu(split, layout.element);
    const GpuResult run = gpu.run(method);
    expectFinite(run);
    expectStatisticsFollowDraws(split, run, method, layout.element);
    expectLse(split, run, method);
    forEachHead(split, [&](int r, int h) {
      const int at = r * split.shape.heads + h;
      if (chooserOf(method) != Method::kTopK && method.method != Method::kQuest) {
        for (const int32_t j : run.draws[at].keys) ASSERT_GE(j, 256);
      }
      if (split.lengths[r] > 256) return;
      ASSERT_EQ(run.lse[at], -kInfinity);
      expectRow(split, run, r, h, nullptr, 0);
    });
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Methods, Edges, testing::ValuesIn(gpuMethodTexts()), methodTestName);

}  // namespace
}  // namespace allot::kernels
