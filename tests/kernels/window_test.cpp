// A sliding window is a range of keys, for every method: those before it are not read, not counted
// and not drawn from.
#include <cmath>

#include "tests/kernels/fixture.h"

namespace allot::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

Method valueStage(const MethodOptions& m) {
  return m.method == Method::kBernoulli ? m.values : m.method;
}

// Rows below, at and beyond the window; its first key is the first of no page, tile or block.
constexpr int kWindow = 150;
Cache windowed(uint32_t budget, Element element = Element::kFloat32) {
  Cache cache({.lengths = {100, 150, 151, 333, 700},
               .kv_heads = 2,
               .heads = 4,
               .element = element,
               .seed = 5});
  std::fill(cache.budgets.begin(), cache.budgets.end(), budget);
  return cache;
}

DecodeInputs within(const Cache& cache, int window = kWindow) {
  DecodeInputs in = cache.inputs();
  in.window = window;
  return in;
}

int keysOf(const Cache& cache, int row, int window = kWindow) {
  return std::min(cache.lengths[row], window);
}

class Window : public testing::TestWithParam<std::string> {
 protected:
  MethodOptions method = methodOf(GetParam());
};

// Pages before the window may be anybody's: their entries are not looked at.
TEST_P(Window, WhatLiesBeforeIsNotRead) {
  for (const uint32_t budget : {1u, 40u, 149u, 150u}) {
    Cache cache = windowed(budget);
    const Cache::Result before = cache.run(method, within(cache));
    for (int r = 0; r < cache.rows(); ++r) {
      const int dead = (cache.lengths[r] - keysOf(cache, r)) / cache.shape.page_size;
      std::fill_n(cache.table.begin() + r * cache.max_pages, dead, -1);
    }
    const Cache::Result after = cache.run(method, within(cache));
    EXPECT_EQ(before.out, after.out);
    EXPECT_EQ(before.lse, after.lse);
    for (const float x : after.out) EXPECT_TRUE(std::isfinite(x));
  }
}

// Counts are those of the keys in the window, and as many draws make a row exact.
TEST_P(Window, CountsAreTheWindows) {
  const bool enough = usesBudget(method) && exactFromAllKeys(method);
  for (const uint32_t budget : {1u, 40u, 149u, 150u, 600u}) {
    const Cache cache = windowed(budget, Element::kBFloat16);
    const Cache::Result run = cache.run(method, within(cache));
    const Cache::Result dense = cache.run(methodOf("dense"), within(cache));
    const uint64_t row_bytes = cache.shape.head_dim * bytesOf(cache.shape.element);
    for (int r = 0; r < cache.rows(); ++r) {
      SCOPED_TRACE("n " + std::to_string(cache.lengths[r]) + ", S " + std::to_string(budget));
      const auto keys = static_cast<uint64_t>(keysOf(cache, r));
      EXPECT_EQ(run.statistics[r].dense_rows, keys * 4);
      EXPECT_EQ(run.statistics[r].dense_bytes, keys * 2 * 2 * row_bytes);
      EXPECT_EQ(dense.statistics[r].group_rows, keys * 2);
      EXPECT_EQ(dense.statistics[r].key_bytes + dense.statistics[r].value_bytes,
                dense.statistics[r].dense_bytes);
      for (int h = 0; h < 4; ++h) {
        const HeadStatistics& head = run.heads[r * 4 + h];
        EXPECT_LE(head.unique_rows, keys);
        if (!enough || budget < keys) continue;
        EXPECT_EQ(head.draws, keys);
        EXPECT_EQ(head.unique_rows, keys);
      }
      if (enough && budget >= keys && traitsOf(method.method).scored_by != ScoredBy::kFeatures) {
        for (int i = 0; i < 4 * 64; ++i) {
          EXPECT_EQ(run.out[r * 4 * 64 + i], dense.out[r * 4 * 64 + i]);
        }
      }
    }
  }
}

// Where a method has no positions of its own, a window is a mask, to the bit.
TEST_P(Window, OutputsAreThoseOfMaskedKeys) {
  const ChosenBy by = traitsOf(valueStage(method)).chosen_by;
  const bool positions =
      by == ChosenBy::kTiles || by == ChosenBy::kAdaptive || by == ChosenBy::kPages;
  if (positions)
    GTEST_SKIP() << "needs a method without tiles, sinks or pages: theirs begin with the window";
  for (uint32_t budget : {1u, 40u, 149u}) {
    if (method.group_draws || method.group_choice)
      budget = std::max(budget / 2, 1u);  // of two heads
    Cache cache = windowed(budget);
    const Cache::Result ranges = cache.run(method, within(cache));
    cache.bias_stride = 700;
    cache.bias.assign(static_cast<size_t>(cache.rows()) * 700, 0.0f);
    for (int r = 0; r < cache.rows(); ++r) {
      std::fill_n(cache.bias.begin() + r * 700, cache.lengths[r] - keysOf(cache, r), -kInfinity);
    }
    const Cache::Result masks = cache.run(method);
    // A mask does not make a budget of 149 exact for the row of 100 keys, nor does a window. Pieces
    // of a group's draw begin at position 0 in both.
    EXPECT_EQ(ranges.out, masks.out);
    EXPECT_EQ(ranges.lse, masks.lse);
  }
}

// A window as long as the row, or longer, is none.
TEST_P(Window, LongWindowsAreNone) {
  const Cache cache = windowed(40);
  const Cache::Result none = cache.run(method);
  EXPECT_EQ(cache.run(method, within(cache, 700)).out, none.out);
  EXPECT_EQ(cache.run(method, within(cache, 1 << 26)).out, none.out);
  // And one of a single key is that key's value.
  const Cache::Result one = cache.run(method, within(cache, 1));
  for (int r = 0; r < cache.rows(); ++r) {
    for (int d = 0; d < 64; ++d) {
      EXPECT_EQ(one.out[r * 4 * 64 + d], cache.value(r, 0, cache.lengths[r] - 1)[d]);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Methods, Window, testing::ValuesIn(methodTexts()), methodTestName);

// The mean over many sequences is what the window's softmax gives: flash makes its draws in the
// window's tiles alone, S of them together.
TEST(WindowDraws, FlashDividesItsDrawsByTheWindowsTiles) {
  Cache cache({.lengths = {1000}, .head_dim = 64, .seed = 9});
  cache.budgets = {32};
  const MethodOptions flash = methodOf("s2anta-flash tileSize=64");
  const Cache::Result dense = cache.run(methodOf("dense"), within(cache, 200));
  cache.repeatFirstRow(4000, 0);
  const Cache::Result run = cache.run(flash, within(cache, 200));
  // Keys 800..999 are in four tiles of 64, from 768 on: eight draws each.
  EXPECT_EQ(run.heads[0].draws, 32u);
  double error = 0, norm = 0;
  for (int d = 0; d < 64; ++d) {
    double mean = 0;
    for (int r = 0; r < cache.rows(); ++r) mean += run.out[r * 64 + d] / cache.rows();
    error += std::pow(mean - dense.out[d], 2);
    norm += std::pow(dense.out[d], 2);
  }
  EXPECT_LT(std::sqrt(error / norm), 0.05);
}

TEST(WindowDraws, SinksAreTheWindowsFirstKeys) {
  const Cache cache = windowed(40);
  const MethodOptions exact = methodOf("vattention epsilon=0.0001");
  const Cache::Result run = cache.run(exact, within(cache));
  const Cache::Result dense = cache.run(methodOf("dense"), within(cache));
  for (size_t i = 0; i < run.out.size(); ++i) EXPECT_NEAR(run.out[i], dense.out[i], 1e-4);
  EXPECT_EQ(run.heads.back().unique_rows, static_cast<uint32_t>(kWindow));
}

TEST(WindowDraws, NegativeWindowsAreRefused) {
  const Cache cache = windowed(40);
  EXPECT_EQ(cache.refusal(methodOf("dense"), within(cache, -1)), "window = -1 is below 0");
}

}  // namespace
}  // namespace allot::kernels
