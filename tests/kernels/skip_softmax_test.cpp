// skip-softmax in decode: which blocks are left out is its definition's business in double
// precision, no key of attention `threshold` or more is among them, and it is the prefill's of one
// query. Edges, windows, masks and equal bits for any batch are tested with all methods.
#include <set>

#include "tests/kernels/prompt.h"

namespace allot::kernels {
namespace {

constexpr int kBlockOfKeys = 64;

// The keys that the definition keeps, of scores that are -inf for keys that are not the row's.
// `closest`: how near to the threshold any block came.
std::vector<int> keptBy(const std::vector<double>& scores, double threshold, double* closest) {
  std::vector<int> kept;
  double top = -std::numeric_limits<double>::infinity();
  for (size_t start = 0; start < scores.size(); start += kBlockOfKeys) {
    const size_t end = std::min(start + kBlockOfKeys, scores.size());
    const double largest = *std::max_element(scores.begin() + start, scores.begin() + end);
    if (std::isinf(largest)) continue;
    top = std::max(top, largest);
    *closest = std::min(*closest, std::fabs(largest - top - std::log(threshold)));
    if (largest - top < std::log(threshold)) continue;
    for (size_t j = start; j < end; ++j) {
      if (!std::isinf(scores[j])) kept.push_back(static_cast<int>(j));
    }
  }
  return kept;
}

// Lengths around blocks and windows, heads in groups of two.
Cache peaked(Element element = Element::kFloat32) {
  Cache cache({.lengths = {1, 64, 65, 300, 1000},
               .kv_heads = 2,
               .heads = 4,
               .element = element,
               .seed = 8});
  cache.scale = 0.5f;  // scores' deviation: 4
  return cache;
}

TEST(SkipSoftmax, IsItsDefinition) {
  double closest = 1;
  for (const Element element : {Element::kFloat32, Element::kBFloat16}) {
    Cache cache = peaked(element);
    const uint64_t row_bytes = 64 * bytesOf(element);
    for (const int window : {0, 200}) {
      for (const double threshold : {0.01, 0.2, 0.5}) {
        SCOPED_TRACE(testing::Message() << "window " << window << ", threshold " << threshold);
        MethodOptions method = methodOf("skip-softmax");
        method.threshold = threshold;
        DecodeInputs in = cache.inputs();
        in.window = window;
        const Cache::Result run = cache.run(method, in);
        uint64_t left_out = 0;
        for (int r = 0; r < cache.rows(); ++r) {
          const int n = cache.lengths[r];
          std::set<int> groups[2];
          for (int h = 0; h < 4; ++h) {
            std::vector<double> scores = cache.scores(r, h);
            std::fill_n(scores.begin(), in.first(n), -std::numeric_limits<double>::infinity());
            const std::vector<int> kept = keptBy(scores, threshold, &closest);
            groups[cache.kvHead(h)].insert(kept.begin(), kept.end());
            double total = 0;
            std::vector<double> out(64, 0.0);
            const double top = *std::max_element(scores.begin(), scores.end());
            for (const int j : kept) {
              const double mass = std::exp(scores[j] - top);
              total += mass;
              for (int d = 0; d < 64; ++d) {
                out[d] += mass * static_cast<double>(cache.value(r, cache.kvHead(h), j)[d]);
              }
            }
            for (int d = 0; d < 64; ++d) {
              ASSERT_NEAR(run.out[(r * 4 + h) * 64 + d], out[d] / total, 2e-5);
            }
            const HeadStatistics& head = run.heads[r * 4 + h];
            EXPECT_EQ(head.unique_rows, kept.size());
            EXPECT_EQ(head.draws, kept.size());
            EXPECT_EQ(head.value_bytes, kept.size() * row_bytes);
            EXPECT_EQ(head.key_bytes, static_cast<uint64_t>(n - in.first(n)) * row_bytes);
            EXPECT_NEAR(run.lse[r * 4 + h], top + std::log(total), 2e-5);
            left_out += static_cast<uint64_t>(n - in.first(n)) - kept.size();
          }
          EXPECT_EQ(run.statistics[r].group_rows, groups[0].size() + groups[1].size());
        }
        EXPECT_TRUE(left_out > 0 || threshold < 0.1);
      }
    }
  }
  EXPECT_GT(closest, 1e-4);  // so that float32 decides as double precision does
}

TEST(SkipSoftmax, NoKeyOfAttentionThresholdIsLeftOut) {
  int left_out = 0;
  for (const Scores kind : kAllScores) {
    for (const int n : {65, 129, 500, 3000}) {
      for (const double threshold : {1e-6, 1e-3, 0.1, 0.5}) {
        std::vector<float> scores = randomScores(kind, n, static_cast<uint64_t>(n));
        ScoredHead scored(scores);
        scored.options = methodOf("skip-softmax");
        scored.options.threshold = threshold;
        const Selection selection = select(selectSkipSoftmax, scored);
        double total = 0;
        for (const float s : scores) total += std::exp(static_cast<double>(s) - scored.head.top);
        const std::set<int> kept(selection.rows.begin(), selection.rows.end());
        EXPECT_EQ(kept.size(), selection.rows.size());
        for (int j = 0; j < n; ++j) {
          if (kept.count(j) > 0) continue;
          ++left_out;
          EXPECT_LT(std::exp(double{scores[j]} - scored.head.top) / total, threshold * 1.00001);
        }
        double sum = 0;
        for (const float weight : selection.weights) sum += static_cast<double>(weight);
        EXPECT_NEAR(sum, 1, 1e-5);
      }
    }
  }
  EXPECT_GT(left_out, 1000);
}

// The largest score so far decides, not that of all keys: what comes before a larger one is read.
TEST(SkipSoftmax, BlocksAreTakenInOrder) {
  std::vector<float> scores(5 * kBlockOfKeys, 0.0f);
  scores[1 * kBlockOfKeys + 63] = 10;
  scores[3 * kBlockOfKeys] = 20;
  ScoredHead scored(scores);
  scored.options = methodOf("skip-softmax threshold=0.001");
  const Selection selection = select(selectSkipSoftmax, scored);
  std::set<int> blocks;
  for (const int j : selection.rows) blocks.insert(j / kBlockOfKeys);
  EXPECT_EQ(blocks, (std::set<int>{0, 1, 3}));
  EXPECT_EQ(selection.rows.size(), 3u * kBlockOfKeys);
}

TEST(SkipSoftmax, ThresholdZeroIsDense) {
  for (const Element element : {Element::kFloat32, Element::kBFloat16}) {
    const Cache cache = peaked(element);
    const Cache::Result all = cache.run(methodOf("skip-softmax threshold=0"));
    const Cache::Result dense = cache.run(methodOf("dense"));
    for (size_t i = 0; i < all.out.size(); ++i) EXPECT_NEAR(all.out[i], dense.out[i], 1e-5);
    EXPECT_EQ(all.lse, dense.lse);
    for (size_t r = 0; r < all.statistics.size(); ++r) {
      EXPECT_EQ(all.statistics[r].unique_rows, dense.statistics[r].unique_rows);
      EXPECT_EQ(all.statistics[r].value_bytes, dense.statistics[r].value_bytes);
      EXPECT_EQ(all.statistics[r].key_bytes, dense.statistics[r].key_bytes);
    }
  }
}

// No budget is taken but none at all: that silences the layer.
TEST(SkipSoftmax, TakesNoBudget) {
  const MethodOptions method = methodOf("skip-softmax threshold=0.2");
  EXPECT_FALSE(usesBudget(method));
  Cache cache = peaked();
  std::fill(cache.budgets.begin(), cache.budgets.end(), 1u);
  const Cache::Result one = cache.run(method);
  std::fill(cache.budgets.begin(), cache.budgets.end(), 100000u);
  EXPECT_EQ(cache.run(method).out, one.out);
  std::fill(cache.budgets.begin(), cache.budgets.end(), 0u);
  EXPECT_EQ(cache.run(method).out, std::vector<float>(one.out.size(), 0.0f));
}

// A prompt's last position is a decode step: both phases leave out the same blocks.
TEST(SkipSoftmax, IsThePrefillOfOneQuery) {
  const Prompt prompt = structured(400, 21);
  uint64_t skipped = 0;
  for (const char* text : {"skip-softmax threshold=0.0001", "skip-softmax threshold=0.01"}) {
    const MethodOptions method = methodOf(text);
    for (int p = 0; p < prompt.n; p += 37) {
      PrefillInputs in = prompt.inputs(p, 1);
      in.skip = static_cast<float>(method.threshold);
      PrefillWorkspace workspace;
      std::vector<float> whole(prompt.width()), lse(4);
      PrefillStatistics blocks;
      ASSERT_EQ(attendBlocks(prompt.cache.pool.kv, in, nullptr, &workspace,
                             {.out = whole.data(), .lse = lse.data(), .statistics = &blocks}),
                std::nullopt);
      const auto step = attendEach(method, prompt, in, {.budget = 1}, true);
      for (size_t i = 0; i < whole.size(); ++i) ASSERT_NEAR(step.out[i], whole[i], 2e-5);
      for (size_t h = 0; h < 4; ++h) EXPECT_NEAR(step.lse[h], lse[h], 1e-5);
      EXPECT_EQ(step.statistics.value_bytes, blocks.value_bytes);
      EXPECT_EQ(step.statistics.key_bytes, blocks.key_bytes);
      skipped += blocks.skipped_blocks;
    }
  }
  EXPECT_GT(skipped, 10u);
}

}  // namespace
}  // namespace allot::kernels
