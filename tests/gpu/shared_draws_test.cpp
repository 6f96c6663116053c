// draws=group on the GPU beside the CPU: groups of every size, budgets by head, heads without a
// budget, windows, several rows, and draws in many parts. The other tests of this folder run the
// texts of methodTexts() that draw for groups, too.
#include "tests/gpu/group_fixture.h"

namespace allot::kernels {
namespace {

using SharedDraws = GroupMethodTest;

TEST_P(SharedDraws, AreTheCpusWhereWeightsArePowersOfTwo) {
  expectCpusOnCoarseScores(
      [](const Layout& layout) {
        return hostCache(layout, {2, 17, 256, 300, 1000, 2100}, 181);
      },
      1e-4f);
}

// 32,000 draws, in parts of several rounds: the CPU's, one by one.
TEST_P(SharedDraws, ManyPartsAreTheCpus) {
  for (const int group : {4, 16}) {
    const Layout layout{Element::kBFloat16, group == 4 ? 128 : 64, 64, group, 1};
    Cache cache = hostCache(layout, {33000, 4099}, 182);
    addBias(&cache, [](int, int) { return 0.0f; });
    Gpu gpu(cache, layout.element);
    for (const Coarse kind : kAllCoarse) {
      SCOPED_TRACE(textOf(layout) + ", scores " + std::to_string(static_cast<int>(kind)));
      makeCoarse(&cache, kind, 31);
      cache.budgets = {static_cast<uint32_t>(32000 / group), static_cast<uint32_t>(900 / group)};
      gpu.load();
      const GpuResult run = gpu.run(method);
      forEachHead(cache, [&](int r, int h) {
        const HeadDraws& drawn = run.draws[r * cache.shape.heads + h];
        ASSERT_EQ(drawn.keys, run.draws[r * cache.shape.heads].keys);
        if (h > 0) return;  // the reference scores all heads for each
        ASSERT_EQ(countsOf(drawn, cache.lengths[r]),
                  countsOf(cpuSelection(method, cache, r, h), cache.lengths[r]));
      });
      expectFollowsDraws(cache, run, method, layout.element);
      if (HasFailure()) return;
    }
  }
}

// Any scores: each head's weight of a drawn row is what the CPU gives it, but for the rounding of
// float16 weights, and the log-sum is the estimate of the weights.
TEST_P(SharedDraws, WeightsAreTheCpusForAnyScores) {
  for (const int group : kGroups) {
    const Layout layout = layoutOfGroup(group);
    SCOPED_TRACE(textOf(layout));
    Cache cache = hostCache(layout, {17, 257, 1000, 2100}, 183);
    cache.budgets = {1, 9, 40, 128};
    Gpu gpu(cache, layout.element);
    const GpuResult run = gpu.run(method);
    int drawn_heads = 0, compared = 0;
    forEachHead(cache, [&](int r, int h) {
      if (!draws(method, cache.shape, cache.lengths[r], cache.budgets[r])) return;
      const HeadDraws& drawn = run.draws[r * cache.shape.heads + h];
      const Selection chosen = cpuSelection(method, cache, r, h);
      ASSERT_EQ(drawn.keys.size(), drawsIn(chosen));
      const auto counts = countsOf(drawn, cache.lengths[r]);
      ++drawn_heads;
      if (counts != countsOf(chosen, cache.lengths[r])) return;  // draws_test.cpp says how many
      std::vector<double> weights(static_cast<size_t>(cache.lengths[r]));
      for (size_t i = 0; i < drawn.keys.size(); ++i) weights[drawn.keys[i]] += drawn.weights[i];
      for (size_t i = 0; i < chosen.rows.size(); ++i) {
        ASSERT_NEAR(weights[chosen.rows[i]], chosen.weights[i],
                    0x1p-9 * chosen.weights[i] + 0x1p-20);
      }
      ++compared;
    });
    EXPECT_GE(4 * compared, drawn_heads) << "too few heads drew as the CPU does to compare weights";
    expectOutputsFollowDraws(cache, run, method);
    if (HasFailure()) return;
  }
}

// A head's draws are the group's: with one budget by row or by head, and whatever rows are beside.
TEST_P(SharedDraws, HeadsShareOneList) {
  const Layout layout{Element::kBFloat16, 128, 16, 7, 2};
  Cache cache = hostCache(layout, {700, 1500}, 184);
  cache.budgets = {20, 50};
  Gpu gpu(cache, layout.element);
  const GpuResult run = gpu.run(method);
  forEachHead(cache, [&](int r, int h) {
    const int first = r * cache.shape.heads + h / 7 * 7;
    ASSERT_EQ(run.draws[r * cache.shape.heads + h].keys.size(), 7 * cache.budgets[r]);
    ASSERT_EQ(run.draws[r * cache.shape.heads + h].keys, run.draws[first].keys);
  });
}

INSTANTIATE_TEST_SUITE_P(Methods, SharedDraws,
                         testing::Values("s2anta-q4 draws=group", "s2anta-sys draws=group",
                                         "s2anta-sys draws=group weights=exact",
                                         "s2anta-prop draws=group", "santa draws=group",
                                         "s2anta-strat draws=group",
                                         "s2anta-strat draws=group exactAbove=never"),
                         methodTestName);

}  // namespace
}  // namespace allot::kernels
