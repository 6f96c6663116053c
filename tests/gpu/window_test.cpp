// A sliding window on the GPU is a range of keys, as on the CPU (tests/kernels/window_test.cpp):
// those before it are not read, not counted and not drawn from.
#include <cmath>

#include "tests/gpu/reference.h"

namespace allot::kernels {
namespace {

using Window = GpuMethodTest;

// A window within a split, one that begins in the last tile of a split, and longer ones; none
// begins at a page, tile or split.
constexpr int kWindows[] = {1, 150, 445, 2005};
const Layout kLayouts[] = {{Element::kBFloat16, 64, 16, 2, 2}, {Element::kBFloat16, 128, 64, 4, 1}};

Cache rowsAround(const Layout& layout) {
  return hostCache(layout, {1, 100, 150, 151, 333, 445, 700, 701, 2100, 5000}, 5);
}

DecodeInputs within(const Gpu& gpu, int window) {
  DecodeInputs in = gpu.inputs();
  in.window = window;
  return in;
}

Cache::Result onCpu(const MethodOptions& method, const Cache& cache, int window) {
  DecodeInputs in = cache.inputs();
  in.window = window;
  return cache.run(method, in);
}

GpuResult onGpu(const MethodOptions& method, Gpu* gpu, int window) {
  return gpu->run(method, within(*gpu, window));
}

// Runs both with a budget for all rows. Where weights are powers of two every number is the CPU's:
// draws, what was read, and outputs.
void expectCpusWindow(const MethodOptions& method, Cache* cache, Gpu* gpu, int window,
                      uint32_t budget) {
  std::fill(cache->budgets.begin(), cache->budgets.end(), budget);
  gpu->load();
  const GpuResult run = onGpu(method, gpu, window);
  const Cache::Result cpu = onCpu(method, *cache, window);
  expectStatistics(run, cpu);
  for (size_t i = 0; i < cpu.out.size(); ++i) ASSERT_NEAR(run.out[i], cpu.out[i], 1e-4) << i;
  for (size_t i = 0; i < cpu.lse.size(); ++i) {
    if (run.lse[i] == cpu.lse[i]) continue;  // -infinity, too
    ASSERT_NEAR(run.lse[i], cpu.lse[i], 1e-3) << i;
  }
}

TEST_P(Window, IsTheCpusWindow) {
  for (const Layout& layout : kLayouts) {
    Cache cache = rowsAround(layout);
    addBias(&cache, [](int, int) { return 0.0f; });
    Gpu gpu(cache, layout.element);
    for (const Coarse kind : {Coarse::kEqual, Coarse::kGaps, Coarse::kMasked}) {
      makeCoarse(&cache, kind, 17);
      for (const int window : kWindows) {
        for (const uint32_t budget : {1u, 40u, 149u, 600u}) {
          SCOPED_TRACE(textOf(layout) + ", scores " + std::to_string(static_cast<int>(kind)) +
                       ", window " + std::to_string(window) + ", S " + std::to_string(budget));
          expectCpusWindow(method, &cache, &gpu, window, budget);
          if (HasFailure()) return;
        }
      }
    }
  }
}

// The same in groups of more than four, which the split kernel takes in larger head groups: 5 and
// 12 leave head groups half empty, and rows of 150 keys are exact beside sampled ones.
TEST_F(GpuTest, WindowsOfLargeGroupsAreTheCpus) {
  for (const char* text : {"dense", "s2anta-prop", "s2anta-q4", "top-k scores=q4",
                           "s2anta-q4 draws=group", "s2anta-sys draws=group weights=exact"}) {
    const MethodOptions large = methodOf(text);
    for (const int group : {5, 7, 12, 16}) {
      const Layout layout{Element::kBFloat16, group % 2 ? 128 : 64, 16, group, 2};
      Cache cache = hostCache(layout, {1, 150, 151, 700, 2100}, 6);
      addBias(&cache, [](int, int) { return 0.0f; });
      Gpu gpu(cache, layout.element);
      for (const Coarse kind : {Coarse::kEqual, Coarse::kGaps}) {
        makeCoarse(&cache, kind, 17);
        for (const int window : {0, 445}) {
          SCOPED_TRACE(textOf(layout) + ", " + text + ", scores " +
                       std::to_string(static_cast<int>(kind)) + ", window " +
                       std::to_string(window));
          expectCpusWindow(large, &cache, &gpu, window, 150);
          if (HasFailure()) return;
        }
      }
    }
  }
}

// Scores of real queries: rows that are exact by their window are what the CPU makes of them.
TEST_P(Window, EnoughBudgetForTheWindowIsExact) {
  for (const Layout& layout : kLayouts) {
    Cache cache = rowsAround(layout);
    std::fill(cache.budgets.begin(), cache.budgets.end(), 150u);
    Gpu gpu(cache, layout.element);
    const GpuResult dense = onGpu(methodOf("dense"), &gpu, 150);
    const Cache::Result cpu = onCpu(methodOf("dense"), cache, 150);
    for (size_t i = 0; i < cpu.out.size(); ++i) ASSERT_NEAR(dense.out[i], cpu.out[i], 1e-3) << i;
    const bool exact = exactFromAllKeys(method) && method.method != Method::kBernoulli;
    if (!exact || hasErrorTarget(method) || choosesByThreshold(method)) continue;
    const GpuResult run = onGpu(method, &gpu, 150);
    EXPECT_EQ(run.out, dense.out);
    EXPECT_EQ(run.lse, dense.lse);
  }
}

// Pages before the window may be anybody's: their entries are not looked at.
TEST_P(Window, WhatLiesBeforeIsNotRead) {
  for (const Layout& layout : kLayouts) {
    Cache cache = rowsAround(layout);
    for (const int window : kWindows) {
      SCOPED_TRACE(textOf(layout) + ", window " + std::to_string(window));
      std::fill(cache.budgets.begin(), cache.budgets.end(), 40u);
      Gpu gpu(cache, layout.element);
      const GpuResult before = onGpu(method, &gpu, window);
      std::vector<int32_t> table = cache.table;
      for (int r = 0; r < cache.rows(); ++r) {
        const int dead = std::max(cache.lengths[r] - window, 0) / cache.shape.page_size;
        std::fill_n(table.begin() + r * cache.max_pages, dead, -1);
      }
      gpu.table.assign(table);
      const GpuResult after = onGpu(method, &gpu, window);
      expectSame(before, after);
      for (const float x : after.out) ASSERT_TRUE(std::isfinite(x));
    }
  }
}

// A window as long as the row, or longer, is none.
TEST_P(Window, LongWindowsAreNone) {
  Cache cache = rowsAround(kLayouts[0]);
  std::fill(cache.budgets.begin(), cache.budgets.end(), 40u);
  Gpu gpu(cache, kLayouts[0].element);
  const GpuResult none = gpu.run(method);
  expectSame(onGpu(method, &gpu, 5000), none);
  expectSame(onGpu(method, &gpu, 1 << 26), none);
}

// vattention with budgets that no pilot decides: a pilot's sums round as they may.
std::vector<std::string> windowTexts() {
  std::vector<std::string> list = sampledMethodTexts();
  list.insert(list.end(),
              {"dense", "vattention maxBudget=20", "vattention scores=q4 maxBudget=20",
               "vattention sink=70 local=70 heavy=1", "vattention sink=0.1 maxBudget=20",
               "adaptive-denominator maxBudget=20", "skip-softmax threshold=0.4", "bernoulli"});
  return list;
}

INSTANTIATE_TEST_SUITE_P(Methods, Window, testing::ValuesIn(windowTexts()), methodTestName);

}  // namespace
}  // namespace allot::kernels
