// choose=group: what the heads of a KV head choose together, by each method.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "tests/kernels/fixture.h"

namespace allot::kernels {
namespace {

// The keys of the largest mean attention, of equal ones the older; each head's softmax over them.
TEST(GroupChoice, IsTheLargestOfTheMixture) {
  Cache cache({.lengths = {300}, .heads = 4, .seed = 9});
  const std::vector<uint32_t> budgets = {3, 0, 10, 7};
  const Cache::Result run = cache.run(methodOf("top-k choose=group"), withBudgets(cache, budgets));
  EXPECT_EQ(run.groups[0].unique_rows, 20u);
  std::vector<double> mean(300);
  for (int h = 0; h < 4; ++h) {
    const std::vector<double> a = cache.probabilities(0, h);
    for (int j = 0; j < 300; ++j) mean[j] += budgets[h] * a[j];
  }
  std::vector<int> order(300);
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int a, int b) { return mean[a] > mean[b]; });
  for (const int h : {0, 2, 3}) {
    const std::vector<double> a = cache.probabilities(0, h);
    std::vector<double> expected(64);
    double total = 0;
    for (int i = 0; i < 20; ++i) total += a[order[i]];
    for (int i = 0; i < 20; ++i) {
      for (int d = 0; d < 64; ++d) {
        expected[d] += a[order[i]] / total * cache.value(0, 0, order[i])[d];
      }
    }
    for (int d = 0; d < 64; ++d) EXPECT_NEAR(run.out[h * 64 + d], expected[d], 1e-5);
    EXPECT_EQ(run.heads[h].unique_rows, 20u);
  }
  const Cache one({.lengths = {300, 40}, .kv_heads = 3, .heads = 3, .seed = 12});
  for (const std::string text : {"top-k", "quest", "vattention", "adaptive-denominator"}) {
    expectSame(one.run(methodOf(text)), one.run(methodOf(text + " choose=group")));
  }
}

// Two heads that attend to far pages: the group buys both, a head of its own only one.
TEST(GroupChoice, PagesServeEveryHead) {
  Cache cache({.lengths = {320}, .heads = 2, .seed = 9});
  for (int h = 0; h < 2; ++h) {
    // Key 20 or 200 is along the head's query.
    for (int d = 0; d < 64; ++d) cache.key(0, 0, h == 0 ? 20 : 200)[d] = 4 * cache.query(0, h)[d];
  }
  cache.write();
  cache.budgets = {16};
  const Cache::Result own = cache.run(methodOf("quest"));
  const Cache::Result group = cache.run(methodOf("quest choose=group"));
  EXPECT_EQ(own.groups[0].unique_rows, 48u);  // a page each, and the newest
  EXPECT_EQ(group.groups[0].unique_rows, 48u);
  for (int h = 0; h < 2; ++h) {
    EXPECT_EQ(own.heads[h].unique_rows, 32u);
    EXPECT_EQ(group.heads[h].unique_rows, 48u);
    const std::vector<double> o = cache.exact(0, h);
    for (int d = 0; d < 64; ++d) EXPECT_NEAR(group.out[h * 64 + d], o[d], 0.05);
  }
}

// One sample for all heads, as large as the largest; each head's error exceeds epsilon no more
// often than delta. 3 heads of 400 streams: below a false alarm in 10,000 at the promise's edge,
// from which the bound keeps far.
TEST(GroupChoice, VAttentionKeepsItsPromiseForEveryHead) {
  constexpr int kStreams = 400;
  const MethodOptions method = methodOf("vattention epsilon=0.3 delta=0.2 choose=group");
  Cache cache({.lengths = {1500}, .heads = 3, .seed = 5});
  for (int j = 0; j < 1500; ++j) {
    for (int d = 0; d < 64; ++d) cache.value(0, 0, j)[d] += 0.5f;  // values that do not cancel
  }
  cache.write();
  cache.repeatFirstRow(kStreams, 0);
  const Cache::Result run = cache.run(method);
  const Cache::Result own = cache.run(methodOf("vattention epsilon=0.3 delta=0.2"));
  for (int h = 0; h < 3; ++h) {
    const std::vector<double> o = cache.exact(0, h);
    int exceeded = 0;
    uint64_t rows = 0, own_rows = 0;
    for (int r = 0; r < kStreams; ++r) {
      const float* out = run.out.data() + (r * 3 + h) * 64;
      double error = 0, norm = 0;
      for (int d = 0; d < 64; ++d) {
        error += (out[d] - o[d]) * (out[d] - o[d]);
        norm += o[d] * o[d];
      }
      exceeded += error > 0.3 * 0.3 * norm ? 1 : 0;
      const HeadStatistics& head = run.heads[r * 3 + h];
      EXPECT_EQ(head.unique_rows, run.heads[r * 3].unique_rows);
      EXPECT_EQ(head.unique_rows, run.groups[r].unique_rows);
      rows += head.unique_rows;
      own_rows += own.heads[r * 3 + h].unique_rows;
    }
    EXPECT_LE(exceeded, 0.2 * kStreams);
    EXPECT_GE(rows, own_rows * 0.99);
    EXPECT_LT(rows, kStreams * 1500u);
  }
  uint64_t together = 0, own_together = 0;
  for (int r = 0; r < kStreams; ++r) {
    together += run.groups[r].unique_rows;
    own_together += own.groups[r].unique_rows;
  }
  EXPECT_LT(together, own_together);
}

// A key that one head alone cannot see is in the tail of the others: the sample is no larger than
// the smallest tail needs.
TEST(GroupChoice, HeadsMayDifferInTheirTails) {
  Cache cache({.lengths = {400}, .heads = 2, .seed = 5});
  cache.bias_stride = 400;
  cache.bias.assign(400, 0.0f);
  std::fill_n(cache.bias.begin() + 100, 200, std::numeric_limits<float>::lowest());
  std::fill_n(cache.query(0, 0), 64, 0.0f);
  // Scores of -1e33, to which the bias is -inf.
  for (int d = 0; d < 64; ++d) cache.query(0, 1)[d] = d == 0 ? -1e17f : 0.0f;
  for (int j = 0; j < 400; ++j) cache.key(0, 0, j)[0] = 1e17f;
  cache.write();
  const Cache::Result run = cache.run(methodOf("vattention choose=group"));
  for (const float x : run.out) EXPECT_TRUE(std::isfinite(x));
}

// No masked page is read while others are left, also beside one that is far better.
TEST(GroupChoice, PagesFarBelowTheBestAreRanked) {
  Cache cache({.lengths = {1024}, .heads = 4, .seed = 7});
  cache.scale = 100.0f / 8;  // scores with a deviation of about 100
  cache.bias_stride = 1024;
  cache.bias.assign(1024, 0.0f);
  std::fill_n(cache.bias.begin(), 512, -std::numeric_limits<float>::infinity());
  cache.budgets = {112};  // 28 pages of 64, of which 32 are not masked
  const Cache::Result run = cache.run(methodOf("quest choose=group"));
  std::vector<uint64_t> rows(4 * 17);
  DecodeWorkspace workspace;
  workspace.plan(1024, 4, 64);
  std::vector<float> out(4 * 64);
  EXPECT_EQ(
      decodeAttention(methodOf("quest choose=group"), cache.pool.kv, cache.inputs(), &workspace,
                      {.out = out.data(), .value_rows = rows.data(), .value_row_words = 17}),
      std::nullopt);
  for (int word = 0; word < 8; ++word) EXPECT_EQ(rows[word], 0u);
}

}  // namespace
}  // namespace allot::kernels
