// What a head without a budget gives: a vector that the caller names, the mean of the sequence's
// values among them, or exact attention to the newest keys.

#include "tests/kernels/prompt.h"

namespace allot::kernels {
namespace {

Cache cacheOf(Element element = Element::kFloat32) {
  return Cache(
      {.lengths = {100, 333, 0, 900}, .kv_heads = 2, .heads = 6, .element = element, .seed = 8});
}

// Enough for every key beside others; where so many draws are made, memory is needed for them.
std::vector<uint32_t> forRows(const Cache& cache, const MethodOptions& method) {
  return forRows(cache, {0, exactFromAllKeys(method) ? kAll : 5000, 7, 0, 0, 40});
}

class ZeroReads : public testing::TestWithParam<std::string> {
 protected:
  MethodOptions method = methodOf(GetParam());
};

// The vector is written and nothing is counted; heads with a budget do not see it.
TEST_P(ZeroReads, AVectorInPlaceOfZeros) {
  const Cache cache = cacheOf();
  const auto budgets = forRows(cache, method);
  const std::vector<float> idle = normals(4 * 2 * 64, 3);
  DecodeInputs in = withBudgets(cache, budgets);
  const Cache::Result off = cache.run(method, in);
  in.zero_budget_values = idle.data();
  const Cache::Result on = cache.run(method, in);
  for (size_t i = 0; i < budgets.size(); ++i) {
    SCOPED_TRACE("head " + std::to_string(i));
    const size_t row = i / 6, kv_head = i % 6 / 3;
    const bool silent = budgets[i] == 0 && cache.lengths[row] > 0;
    for (size_t d = 0; d < 64; ++d) {
      const float before = off.out[i * 64 + d];
      EXPECT_EQ(on.out[i * 64 + d], silent ? idle[(row * 2 + kv_head) * 64 + d] : before);
      EXPECT_TRUE(before == 0 || budgets[i] > 0);
    }
    EXPECT_EQ(on.heads[i].draws, off.heads[i].draws);
    EXPECT_EQ(on.heads[i].value_bytes, off.heads[i].value_bytes);
    EXPECT_EQ(on.lse[i], off.lse[i]);
  }
  for (size_t r = 0; r < 4; ++r) {
    EXPECT_EQ(on.statistics[r].value_bytes, off.statistics[r].value_bytes);
    EXPECT_EQ(on.statistics[r].key_bytes, off.statistics[r].key_bytes);
  }
}

// What dense attention with a sliding window of that size is, to the bit and to the byte.
TEST_P(ZeroReads, AWindowIsASlidingOne) {
  for (const int sliding : {0, 150}) {
    for (const int window : {1, 40, 128, 100000}) {
      SCOPED_TRACE(std::to_string(sliding) + " " + std::to_string(window));
      Cache cache = cacheOf(Element::kBFloat16);
      const auto budgets = forRows(cache, method);
      DecodeInputs in = withBudgets(cache, budgets);
      in.window = sliding;
      const Cache::Result off = cache.run(method, in);
      in.zero_budget_window = window;
      const Cache::Result on = cache.run(method, in, 2);
      DecodeInputs within = cache.inputs();
      within.window = sliding > 0 ? std::min(sliding, window) : window;
      const std::vector<uint32_t> all(4, kAll);
      within.budgets = all.data();
      const Cache::Result dense = cache.run(methodOf("dense"), within);
      for (size_t i = 0; i < budgets.size(); ++i) {
        const Cache::Result& expected = budgets[i] == 0 ? dense : off;
        for (size_t d = i * 64; d < (i + 1) * 64; ++d) ASSERT_EQ(on.out[d], expected.out[d]) << d;
        EXPECT_EQ(on.lse[i], expected.lse[i]);
        EXPECT_EQ(on.heads[i].draws, expected.heads[i].draws);
        EXPECT_EQ(on.heads[i].unique_rows, expected.heads[i].unique_rows);
        EXPECT_EQ(on.heads[i].key_bytes, expected.heads[i].key_bytes);
        EXPECT_EQ(on.heads[i].value_bytes, expected.heads[i].value_bytes);
      }
      for (size_t r = 0; r < 4; ++r) {
        const auto keys = static_cast<uint64_t>(cache.lengths[r] - in.first(cache.lengths[r]));
        EXPECT_EQ(on.statistics[r].dense_rows, keys * 6);
        EXPECT_LE(on.statistics[r].group_rows, keys * 2);
        uint64_t draws = 0;
        for (size_t h = 0; h < 6; ++h) draws += on.heads[r * 6 + h].draws;
        EXPECT_EQ(on.statistics[r].draws, draws);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Methods, ZeroReads, testing::ValuesIn(methodTexts()), methodTestName);

// A group whose heads all have no budget reads its window and no more.
TEST(ZeroReadsWindow, CountsTheWindowOnce) {
  Cache cache({.lengths = {900}, .heads = 4, .element = Element::kBFloat16, .seed = 8});
  std::vector<uint32_t> budgets(4, 0);
  DecodeInputs in = withBudgets(cache, budgets);
  in.zero_budget_window = 64;
  const Cache::Result idle = cache.run(methodOf("s2anta-q4"), in);
  EXPECT_EQ(idle.groups[0].unique_rows, 64u);
  EXPECT_EQ(idle.groups[0].value_bytes, 64u * 128);
  EXPECT_EQ(idle.groups[0].key_bytes, 64u * 128);
  EXPECT_EQ(idle.statistics[0].draws, 4u * 64);
  // Beside a head that samples by the keys' codes, its own rows and the window's are read.
  budgets[2] = 9;
  const Cache::Result beside = cache.run(methodOf("s2anta-q4"), in);
  const uint64_t rows = beside.groups[0].unique_rows;
  EXPECT_GT(rows, 64u);
  EXPECT_LE(rows, 64u + 9);
  EXPECT_EQ(beside.groups[0].key_bytes, 900u * (32 + 4) + rows * 128);
}

// ---- Sums of values.

// Gives the cache sums of its values, which the caller keeps.
[[nodiscard]] std::vector<double> sumsOf(Cache* cache) {
  const CacheShape& s = cache->shape;
  std::vector<double> numbers(
      static_cast<size_t>(cache->pool.kv.pages * s.kv_heads * 2 * s.head_dim),
      std::numeric_limits<double>::quiet_NaN());
  cache->pool.kv.value_sums = numbers.data();
  return numbers;
}

std::vector<float> meansOf(const Cache& cache, int row, int length) {
  std::vector<float> means(static_cast<size_t>(cache.shape.kv_heads * cache.shape.head_dim));
  meanValues(cache.pool.kv,
             {.page_table = cache.table.data() + static_cast<int64_t>(row) * cache.max_pages,
              .lengths = &length,
              .rows = 1,
              .max_pages = cache.max_pages},
             means.data());
  return means;
}

// Within the rounding of n additions in double precision, and after every step the newest ones.
TEST(ValueMeans, AreTheMeansOfWhatTheCacheHolds) {
  for (const Element element : {Element::kFloat32, Element::kBFloat16}) {
    Cache cache({.lengths = {333}, .kv_heads = 2, .heads = 2, .element = element, .seed = 5});
    // Large numbers that cancel: float32 sums would show.
    for (size_t i = 0; i < cache.values[0].size(); ++i) {
      cache.values[0][i] += i / 128 % 2 == 0 ? 4096.0f : -4096.0f;
      cache.values[0][i] = fromBFloat16(toBFloat16(cache.values[0][i]));
    }
    const auto sums = sumsOf(&cache);
    cache.append(0, 0, 300);
    std::vector<long double> exact(128, 0);
    for (int n = 1; n <= 333; ++n) {
      if (n > 300) cache.append(0, n - 1, n);
      for (size_t i = 0; i < 128; ++i) {
        exact[i] += cache.values[0][static_cast<size_t>(n - 1) * 128 + i];
      }
      if (n < 300) continue;
      const std::vector<float> means = meansOf(cache, 0, n);
      for (size_t i = 0; i < 128; ++i) {
        EXPECT_EQ(means[i], static_cast<float>(static_cast<double>(exact[i]) / n)) << n << " " << i;
      }
    }
  }
}

// Any chunks, any pages: the same bits.
TEST(ValueMeans, DependOnNoChunkAndNoPageSize) {
  std::vector<float> expected;
  for (const int page_size : {16, 32, 128}) {
    for (const int chunk : {1, 2, 7, 16, 64, 333}) {
      Cache cache({.lengths = {333}, .kv_heads = 2, .heads = 2, .page_size = page_size, .seed = 5});
      const auto sums = sumsOf(&cache);
      for (int from = 0; from < 333; from += chunk)
        cache.append(0, from, std::min(from + chunk, 333));
      const std::vector<float> means = meansOf(cache, 0, 333);
      if (expected.empty()) expected = means;
      EXPECT_EQ(means, expected) << page_size << " " << chunk;
    }
  }
}

// A step that is made twice counts once.
TEST(ValueMeans, TheNewestPositionMayBeAppendedAgain) {
  Cache cache({.lengths = {65}, .seed = 5});
  const auto sums = sumsOf(&cache);
  cache.append(0, 0, 30);
  for (int n = 31; n <= 65; ++n) {
    cache.append(0, n - 1, n);
    const std::vector<float> once = meansOf(cache, 0, n);
    cache.append(0, n - 1, n);
    EXPECT_EQ(meansOf(cache, 0, n), once) << n;
  }
}

// Two sequences go on from one prompt, each with a copy of its last page.
TEST(ValueMeans, GoOnFromASharedPrompt) {
  for (const int prompt : {31, 32, 33}) {
    Cache cache({.lengths = {40, 40}, .seed = 5});
    std::copy_n(cache.values[0].begin(), prompt * 64, cache.values[1].begin());
    const auto sums = sumsOf(&cache);
    for (const int row : {0, 1}) cache.append(row, 0, 40);
    const std::vector<float> first = meansOf(cache, 0, 40), second = meansOf(cache, 1, 40);
    // Pages of 16: row 1 takes over row 0's full ones and copies the one after them.
    cache.append(0, 0, prompt);
    const int shared = prompt / 16;
    const int32_t own = cache.table[cache.max_pages + shared];
    if (prompt % 16 > 0) copyPage(cache.pool.kv, cache.table[shared], own);
    std::copy_n(cache.table.begin(), shared, cache.table.begin() + cache.max_pages);
    for (int n = prompt; n < 40; ++n) {
      for (const int row : {0, 1}) cache.append(row, n, n + 1);
    }
    EXPECT_EQ(meansOf(cache, 0, 40), first);
    EXPECT_EQ(meansOf(cache, 1, 40), second);
    EXPECT_NE(first, second);
  }
}

// A prompt's query without a budget gives the mean up to its own position, in any chunk.
TEST(ValueMeans, OfAPromptAreEachPositions) {
  Prompt prompt({.lengths = {150}, .kv_heads = 2, .heads = 4, .seed = 3});
  prompt.queries = normals(prompt.queries.size(), 17);
  const auto sums = sumsOf(&prompt.cache);
  const std::vector<uint32_t> budgets = {5, 0, 0, 200};
  std::vector<float> out;
  for (int from = 0; from < prompt.n; from += 70) {
    const auto chunk = attendEach(
        methodOf("s2anta-sys"), prompt, prompt.inputs(from, std::min(70, prompt.n - from)),
        {.seed = 4, .budgets = budgets.data(), .zero_budget_means = true});
    out.insert(out.end(), chunk.out.begin(), chunk.out.end());
  }
  for (int p = 0; p < prompt.n; ++p) {
    prompt.cache.append(0, p, p + 1);
    const std::vector<float> means = meansOf(prompt.cache, 0, p + 1);
    for (size_t d = 0; d < 64; ++d) {
      EXPECT_EQ(out[static_cast<size_t>(p) * 256 + 64 + d], means[d]);
      EXPECT_EQ(out[static_cast<size_t>(p) * 256 + 128 + d], means[64 + d]);
    }
  }
}

}  // namespace
}  // namespace allot::kernels
