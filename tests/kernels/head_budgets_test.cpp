// A budget for each head: what a head gives and counts is a function of its own budget, and what a
// group reads together is the union of what its heads read.
#include <bit>

#include "tests/kernels/prompt.h"

namespace allot::kernels {
namespace {

Cache cacheOf(Element element = Element::kFloat32) {
  return Cache(
      {.lengths = {100, 333, 0, 900}, .kv_heads = 2, .heads = 10, .element = element, .seed = 8});
}

class HeadBudgets : public testing::TestWithParam<std::string> {
 protected:
  MethodOptions method = methodOf(GetParam());
  // Enough for every key; where so many draws are made, memory is needed for them.
  uint32_t all = exactFromAllKeys(method) ? kAll : 5000;
  // Two groups of five: silent, exact and sampled heads beside each other in both, and neighbours
  // that are alike.
  std::vector<uint32_t> ten = {0, all, 7, 7, 0, 40, 1, 0, 333, 332};
};

TEST_P(HeadBudgets, EqualOnesAreTheRows) {
  Cache cache = cacheOf(Element::kBFloat16);
  for (const uint32_t budget : {0u, 1u, 40u, 333u, all}) {
    std::fill(cache.budgets.begin(), cache.budgets.end(), budget);
    const Cache::Result rows = cache.run(method);
    const auto budgets = forRows(cache, std::vector<uint32_t>(10, budget));
    const Cache::Result heads = cache.run(method, withBudgets(cache, budgets));
    EXPECT_EQ(rows.out, heads.out);
    EXPECT_EQ(rows.lse, heads.lse);
    for (size_t i = 0; i < rows.heads.size(); ++i) expectEqual(rows.heads[i], heads.heads[i]);
    for (size_t i = 0; i < rows.statistics.size(); ++i) {
      expectEqual(rows.statistics[i], heads.statistics[i]);
    }
  }
}

// Of methods whose heads draw for themselves.
using OwnBudgets = HeadBudgets;
TEST_P(OwnBudgets, AHeadDependsOnItsOwnAlone) {
  for (const Element element : {Element::kFloat32, Element::kBFloat16}) {
    Cache cache = cacheOf(element);
    const auto budgets = forRows(cache, ten);
    const Cache::Result mixed = cache.run(method, withBudgets(cache, budgets), 2);
    for (const uint32_t budget : ten) {
      std::fill(cache.budgets.begin(), cache.budgets.end(), budget);
      const Cache::Result alike = cache.run(method);
      for (size_t i = 0; i < budgets.size(); ++i) {
        if (budgets[i] != budget) continue;
        SCOPED_TRACE("head " + std::to_string(i) + ", S " + std::to_string(budget));
        for (size_t d = i * 64; d < (i + 1) * 64; ++d) EXPECT_EQ(mixed.out[d], alike.out[d]);
        EXPECT_EQ(mixed.lse[i], alike.lse[i]);
        expectEqual(mixed.heads[i], alike.heads[i]);
      }
    }
  }
}

// Without log-sums, heads with budget 0 read nothing at all.
Cache::Result withoutLse(const Cache& cache, const MethodOptions& method, const DecodeInputs& in,
                         std::vector<uint64_t>* value_rows) {
  Cache::Result result;
  result.out.resize(static_cast<size_t>(in.rows) * in.heads * 64);
  result.statistics.resize(static_cast<size_t>(in.rows));
  result.heads.resize(static_cast<size_t>(in.rows) * in.heads);
  result.groups.resize(static_cast<size_t>(in.rows) * 2);
  DecodeWorkspace workspace;
  workspace.plan(900, in.heads / 2, 64);
  const int words = 900 / 64 + 1;
  value_rows->assign(static_cast<size_t>(in.heads * words), 0);
  EXPECT_EQ(decodeAttention(method, cache.pool.kv, in, &workspace,
                            {.out = result.out.data(),
                             .statistics = result.statistics.data(),
                             .head_statistics = result.heads.data(),
                             .group_statistics = result.groups.data(),
                             .value_rows = value_rows->data(),
                             .value_row_words = words}),
            std::nullopt);
  return result;
}

// One row at a time, whose marks are then its own.
TEST_P(HeadBudgets, StatisticsAddUp) {
  const Cache cache = cacheOf(Element::kBFloat16);
  const size_t words = 900 / 64 + 1;
  for (int r = 0; r < cache.rows(); ++r) {
    DecodeInputs in = withBudgets(cache, ten);
    in.queries += static_cast<int64_t>(r) * 640, in.page_table += r * cache.max_pages;
    in.lengths += r, in.sequences += r, in.steps += r, in.rows = 1;
    std::vector<uint64_t> value_rows;
    const Cache::Result run = withoutLse(cache, method, in, &value_rows);
    const RowStatistics& row = run.statistics[0];
    RowStatistics sums;
    for (int h = 0; h < 10; ++h) {
      sums.draws += run.heads[h].draws;
      sums.unique_rows += run.heads[h].unique_rows;
      if (ten[h] == 0) expectEqual(run.heads[h], HeadStatistics{});
    }
    for (size_t g = 0; g < 2; ++g) {
      const auto head = run.heads.begin() + g * 5;
      uint64_t together = 0, most_keys = 0, all_keys = 0;
      for (size_t w = 0; w < words; ++w) {
        uint64_t bits = 0;
        for (size_t h = g * 5; h < g * 5 + 5; ++h) bits |= value_rows[h * words + w];
        together += static_cast<uint64_t>(std::popcount(bits));
      }
      for (auto h = head; h < head + 5; ++h) {
        most_keys = std::max(most_keys, h->key_bytes);
        all_keys += h->key_bytes;
      }
      EXPECT_EQ(run.groups[g].unique_rows, together);
      EXPECT_EQ(run.groups[g].value_bytes, together * 128);
      EXPECT_GE(run.groups[g].key_bytes, most_keys);
      EXPECT_LE(run.groups[g].key_bytes, all_keys);
      sums.group_rows += run.groups[g].unique_rows;
      sums.key_bytes += run.groups[g].key_bytes;
      sums.value_bytes += run.groups[g].value_bytes;
    }
    sums.dense_rows = static_cast<uint64_t>(cache.lengths[r]) * 10;
    sums.dense_bytes = static_cast<uint64_t>(cache.lengths[r]) * 2 * 2 * 128;
    expectEqual(row, sums);
  }
}

INSTANTIATE_TEST_SUITE_P(Methods, HeadBudgets, testing::ValuesIn(methodTexts()), methodTestName);

std::vector<std::string> methodsOfOneHead() {
  std::vector<std::string> texts = methodTexts();
  std::erase_if(texts, [](const std::string& text) {
    const MethodOptions method = methodOf(text);
    return method.group_draws || method.group_choice;
  });
  return texts;
}
INSTANTIATE_TEST_SUITE_P(Methods, OwnBudgets, testing::ValuesIn(methodsOfOneHead()),
                         methodTestName);

// Keys that one head reads exactly and another by its shadow are read both ways, each once.
TEST(HeadBudgetBytes, ShadowsAndExactKeysAreBothRead) {
  Cache cache({.lengths = {300}, .heads = 4, .element = Element::kBFloat16, .seed = 8});
  const MethodOptions q4 = methodOf("s2anta-q4");
  const uint64_t shadow = 300 * (32 + 4), exact = 300 * 128;
  const auto read = [&](const std::vector<uint32_t>& budgets) {
    return cache.run(q4, withBudgets(cache, budgets)).groups[0];
  };
  const GroupStatistics drawn = read({9, 9, 40, 9});
  EXPECT_EQ(drawn.key_bytes, shadow + drawn.unique_rows * uint64_t{128});
  EXPECT_LE(drawn.unique_rows, 67u);
  const GroupStatistics both = read({9, kAll, 40, 9});
  EXPECT_EQ(both.key_bytes, shadow + exact);
  EXPECT_EQ(both.unique_rows, 300u);
  EXPECT_EQ(read({kAll, kAll, 300, 301}).key_bytes, exact);
  // A log-sum is exact, whatever is drawn beside it.
  EXPECT_EQ(read({9, 0, 9, 9}).key_bytes, shadow + exact);
}

Prompt promptOf(int n) {
  Prompt prompt({.lengths = {n}, .kv_heads = 2, .heads = 4, .seed = 3});
  prompt.queries = normals(prompt.queries.size(), 17);
  return prompt;
}

// Of outputs [n, 4, 64].
void expectSameHead(const std::vector<float>& mixed, const std::vector<float>& alike, size_t head) {
  ASSERT_EQ(mixed.size(), alike.size());
  for (size_t i = 0; i < mixed.size(); ++i) {
    if (i / 64 % 4 != head) continue;
    ASSERT_EQ(mixed[i], alike[i]) << i;
  }
}

// The queries of a prompt, each for itself: those of a layer's heads with budgets of their own.
TEST(HeadBudgetPrompts, AHeadDependsOnItsOwnAlone) {
  const Prompt prompt = promptOf(150);
  for (const char* text : {"s2anta-sys", "s2anta-q4", "top-k"}) {
    SCOPED_TRACE(text);
    const auto attended = [&](const QueryDraws& draws, RowStatistics* statistics) {
      const AttendedEach made = attendEach(methodOf(text), prompt, prompt.inputs(), draws);
      *statistics = made.statistics;
      return made.out;
    };
    const std::vector<uint32_t> budgets = {5, 0, 0, 200};
    RowStatistics mixed_reads, reads[4];
    const auto mixed = attended({.seed = 4, .budgets = budgets.data()}, &mixed_reads);
    for (size_t h = 0; h < 4; ++h) {
      const auto alike = attended({.seed = 4, .budget = budgets[h]}, &reads[h]);
      expectSameHead(mixed, alike, h);
    }
    EXPECT_EQ(reads[1].key_bytes + reads[1].value_bytes, 0u);
    // Four heads' reads each, of heads that are alike in what they read of keys.
    EXPECT_EQ(mixed_reads.dense_bytes, reads[3].dense_bytes);
    if (std::string(text) == "s2anta-sys") {
      EXPECT_EQ(mixed_reads.key_bytes, reads[0].key_bytes / 4 + reads[3].key_bytes / 4);
    }
    const std::vector<uint32_t> same(4, 5);
    RowStatistics same_reads;
    EXPECT_EQ(attended({.seed = 4, .budgets = same.data()}, &same_reads),
              attended({.seed = 4, .budget = 5}, &reads[1]));
    expectEqual(same_reads, reads[0]);
  }
}

TEST(HeadBudgetPrompts, DrawnBlocksAreEachHeads) {
  const Prompt prompt = promptOf(500);
  PrefillWorkspace workspace;
  const auto attended = [&](const QueryDraws& draws) {
    return attend(prompt, prompt.inputs(), nullptr, &workspace, &draws).out;
  };
  const std::vector<uint32_t> budgets = {2, 0, 100, 5};
  const auto mixed = attended({.seed = 4, .budgets = budgets.data()});
  for (size_t h = 0; h < 4; ++h) {
    expectSameHead(mixed, attended({.seed = 4, .budget = budgets[h]}), h);
  }
}

}  // namespace
}  // namespace allot::kernels
