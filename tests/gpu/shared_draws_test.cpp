// draws=group on the GPU beside the CPU: groups of every size, budgets by head, heads without a
// budget, windows, several rows, and draws in many parts. The other tests of this folder run the
// texts of methodTexts() that draw for groups, too.
#include <algorithm>
#include <cmath>

#include "tests/gpu/reference.h"

namespace allot::kernels {
namespace {

// Each of these methods has to be one that the GPU decodes with.
class SharedDraws : public GpuMethodTest {
 protected:
  void SetUp() override {
    ASSERT_EQ(cuda::unsupported(methodOf(GetParam())).value_or(""), "");
    GpuMethodTest::SetUp();
  }
};

constexpr int kGroups[] = {1, 2, 3, 4, 6, 7, 8, 12, 16};

// Both elements, head sizes and numbers of KV heads by turns.
Layout layoutOf(int group) {
  return {group % 3 == 0 ? Element::kFloat16 : Element::kBFloat16, group % 2 ? 64 : 128,
          group % 4 ? 16 : 64, group, group < 4 ? 2 : 1};
}

DecodeInputs withHeadBudgets(DecodeInputs in, const uint32_t* budgets) {
  in.budgets = budgets;
  in.head_budgets = true;
  return in;
}

// Budgets from 0 to 30 by head. Groups whose budgets reach the row's keys are exact.
std::vector<uint32_t> mixedBudgets(const Cache& cache) {
  const uint32_t some[] = {0, 7, 1, 30, 0, 13, 2, 5, 24};
  std::vector<uint32_t> budgets;
  for (int i = 0; i < cache.rows() * cache.shape.heads; ++i) budgets.push_back(some[i % 9]);
  return budgets;
}

// Where weights are powers of two, statistics are the CPU's, and outputs and log-sums nearly so.
// `in` and `cpu_in` are the same inputs, in device memory and on the host.
void expectCpus(const MethodOptions& method, const Cache& cache, Gpu* gpu, const DecodeInputs& in,
                const DecodeInputs& cpu_in) {
  const cuda::StepBounds bounds{
      .rows = cache.rows(),
      .heads = cache.shape.heads,
      .max_length = *std::max_element(cache.lengths.begin(), cache.lengths.end()),
      .max_budget = 1000,
      .statistics = true};
  const GpuResult run = gpu->run(method, bounds, in);
  const Cache::Result cpu = cache.run(method, cpu_in);
  if (gpu->element == Element::kBFloat16) expectStatistics(run, cpu);  // float32 has other bytes
  for (size_t i = 0; i < cpu.out.size(); ++i) ASSERT_NEAR(run.out[i], cpu.out[i], 1e-4) << i;
  for (size_t i = 0; i < cpu.lse.size(); ++i) {
    if (run.lse[i] == cpu.lse[i]) continue;  // -infinity, too
    ASSERT_NEAR(run.lse[i], cpu.lse[i], 1e-3) << i;
  }
}

TEST_P(SharedDraws, AreTheCpusWhereWeightsArePowersOfTwo) {
  for (const int group : kGroups) {
    const Layout layout = layoutOf(group);
    Cache cache = hostCache(layout, {2, 17, 256, 300, 1000, 2100}, 181);
    addBias(&cache, [](int, int) { return 0.0f; });
    Gpu gpu(cache, layout.element);
    for (const Coarse kind : kAllCoarse) {
      makeCoarse(&cache, kind, 17);
      const std::vector<uint32_t> budgets = mixedBudgets(cache);
      const DeviceArray<uint32_t> heads(budgets);
      for (const int window : {0, 445}) {
        SCOPED_TRACE(textOf(layout) + ", scores " + std::to_string(static_cast<int>(kind)) +
                     ", window " + std::to_string(window));
        for (const uint32_t budget : {1u, 40u, 128u}) {
          SCOPED_TRACE("S " + std::to_string(budget));
          std::fill(cache.budgets.begin(), cache.budgets.end(), budget);
          gpu.load();
          DecodeInputs in = gpu.inputs(), cpu_in = cache.inputs();
          in.window = cpu_in.window = window;
          expectCpus(method, cache, &gpu, in, cpu_in);
          if (HasFailure()) return;
        }
        DecodeInputs in = gpu.inputs(), cpu_in = cache.inputs();
        in.window = cpu_in.window = window;
        expectCpus(method, cache, &gpu, withHeadBudgets(in, heads.get()),
                   withHeadBudgets(cpu_in, budgets.data()));
        if (HasFailure()) return;
      }
    }
  }
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
    const Layout layout = layoutOf(group);
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
