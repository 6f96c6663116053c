// choose=group on the GPU beside the CPU: groups of every size, budgets, heads without a budget,
// windows, and rows that are exact beside others. vattention_test.cpp and the tests of
// methodTexts() run methods that choose for groups, too.
#include <map>

#include "tests/gpu/group_fixture.h"

namespace allot::kernels {
namespace {

using GroupChoices = GroupMethodTest;

// Values around a mean that is not zero: an output that a sample can tell from nothing.
Cache cacheOf(const Layout& layout, std::vector<int> lengths, uint64_t seed) {
  Cache cache = hostCache(layout, std::move(lengths), seed);
  for (std::vector<float>& row : cache.values) {
    for (float& x : row) x = 1 + 0.25f * x;
  }
  roundAndWrite(&cache, layout.element);
  return cache;
}

// Where weights are powers of two, ranks are the CPU's integers, ties and all.
TEST_P(GroupChoices, AreTheCpusWhereWeightsArePowersOfTwo) {
  expectCpusOnCoarseScores(
      [](const Layout& layout) {
        return cacheOf(layout, {2, 17, 256, 300, 1000, 2100}, 191);
      },
      1e-3f);
}

// Any scores: the CPU's keys with its weights. Two keys at the cut whose ranks differ by rounding
// may change places, which the lists show.
TEST_P(GroupChoices, AreTheCpusForAnyScores) {
  int heads = 0, others = 0;
  for (const int group : kGroups) {
    const Layout layout = layoutOfGroup(group);
    SCOPED_TRACE(textOf(layout));
    Cache cache = cacheOf(layout, {17, 257, 1000, 2100, 9000}, 193);
    cache.budgets = {1, 9, 40, 120, 250};
    Gpu gpu(cache, layout.element);
    const GpuResult run = gpu.run(method);
    forEachHead(cache, [&](int r, int h) {
      if (!draws(method, cache.shape, cache.lengths[r], cache.budgets[r])) return;
      const HeadDraws& drawn = run.draws[r * cache.shape.heads + h];
      ASSERT_EQ(drawn.keys, run.draws[r * cache.shape.heads + h / group * group].keys);
      const Selection chosen = cpuSelection(method, cache, r, h);
      std::map<int32_t, float> weights;
      for (size_t i = 0; i < chosen.rows.size(); ++i) weights[chosen.rows[i]] = chosen.weights[i];
      // A pilot's sums round as they may.
      ASSERT_NEAR(static_cast<double>(drawn.keys.size()), weights.size(),
                  hasErrorTarget(method) ? 1 + 0.002 * weights.size() : 0);
      int other = 0;
      for (const int32_t key : drawn.keys) other += !weights.contains(key);
      ++heads;
      others += other > 0 || drawn.keys.size() != weights.size();
      ASSERT_LE(other, 2 + 0.002 * weights.size());
      if (other > 0 || drawn.keys.size() != weights.size()) return;
      for (size_t i = 0; i < drawn.keys.size(); ++i) {
        ASSERT_NEAR(drawn.weights[i], weights[drawn.keys[i]], 2e-3 * weights[drawn.keys[i]]);
      }
    });
    expectOutputsFollowDraws(cache, run, method);
    if (HasFailure()) return;
  }
  EXPECT_LE(20 * others, heads) << "too few heads choose as the CPU does";
}

// Lists of many parts, some of several rounds, and no room in a block for sets of keys or not.
TEST_P(GroupChoices, LongRowsAreTheCpus) {
  for (const int group : {4, 16}) {
    const Layout layout{Element::kBFloat16, group == 4 ? 128 : 64, 64, group, 1};
    Cache cache = cacheOf(layout, {33000, 4099}, 194);
    addBias(&cache, [](int, int) { return 0.0f; });
    Gpu gpu(cache, layout.element);
    for (const Coarse kind : {Coarse::kGaps, Coarse::kOneHeavy}) {
      SCOPED_TRACE(textOf(layout) + ", scores " + std::to_string(static_cast<int>(kind)));
      makeCoarse(&cache, kind, 31);
      cache.budgets = {static_cast<uint32_t>(32000 / group), static_cast<uint32_t>(900 / group)};
      gpu.load();
      cuda::StepBounds bounds = gpu.bounds(method);
      const GpuResult run = gpu.run(method, bounds, gpu.inputs());
      const Cache::Result cpu = cache.run(method);
      expectStatistics(run, cpu);
      for (size_t i = 0; i < cpu.out.size(); ++i) ASSERT_NEAR(run.out[i], cpu.out[i], 1e-3) << i;
      bounds.max_length = 1 << 20;  // sets are in the workspace
      expectSame(run, gpu.run(method, bounds, gpu.inputs()));
      if (HasFailure()) return;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Methods, GroupChoices,
                         testing::Values("vattention choose=group",
                                         "vattention scores=q4 epsilon=0.3 choose=group",
                                         "vattention maxBudget=100 choose=group",
                                         "adaptive-denominator choose=group", "top-k choose=group",
                                         "top-k scores=q4 choose=group"),
                         methodTestName);

}  // namespace
}  // namespace allot::kernels
