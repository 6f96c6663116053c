// quest on the GPU: the pages that the CPU chooses, to the key, and what the newest page, a window,
// masked keys and pages that were used before make of them.
#include <cmath>

#include "tests/gpu/reference.h"

namespace allot::kernels {
namespace {

using Quest = GpuTest;

const Layout kLayouts[] = {
    {Element::kBFloat16, 64, 16, 3, 2},
    {Element::kBFloat16, 128, 64, 4, 1},
    {Element::kFloat16, 64, 256, 16, 1},
    {Element::kFloat16, 128, 32, 1, 2},
};
const char* const kMethods[] = {"quest", "quest pageSize=32", "quest pageSize=64",
                                "quest newest=within", "quest pageSize=64 newest=within"};

void expectChoice(const MethodOptions& method, const Cache& cache, const GpuResult& run) {
  forEachHead(cache, [&](int r, int h) {
    if (!draws(method, cache.shape, cache.lengths[r], cache.budgets[r])) return;
    ASSERT_EQ(run.draws[r * cache.shape.heads + h].keys, cpuSelection(method, cache, r, h).rows);
  });
}

TEST_F(Quest, ChoosesTheCpusPages) {
  for (const char* text : kMethods) {
    const MethodOptions method = methodOf(text);
    for (const Layout& layout : kLayouts) {
      SCOPED_TRACE(std::string(text) + ", " + textOf(layout));
      Cache cache = hostCache(layout, {15, 16, 17, 63, 64, 65, 300, 1000, 2111}, 71);
      for (const uint32_t budget : {1u, 16u, 40u, 300u}) {
        std::fill(cache.budgets.begin(), cache.budgets.end(), budget);
        Gpu gpu(cache, layout.element);
        const GpuResult run = gpu.run(method);
        expectChoice(method, cache, run);
        expectFollowsDraws(cache, run, method, layout.element);
        if (HasFailure()) return;
      }
    }
  }
}

TEST_F(Quest, ALongRowAndABias) {
  const Layout layout{Element::kBFloat16, 128, 16, 4, 2};
  const MethodOptions method = methodOf("quest");
  Cache cache = hostCache(layout, {33000, 5000}, 72);
  const std::vector<float> numbers = normals(2 * 33000, 73);
  addBias(&cache, [&](int row, int key) {
    return key % 5 == 0 || (key > 200 && key < 2000) ? -INFINITY : numbers[row * 33000 + key];
  });
  cache.budgets = {1024, 1024};
  Gpu gpu(cache, layout.element);
  const GpuResult run = gpu.run(method);
  expectChoice(method, cache, run);
  expectFollowsDraws(cache, run, method, layout.element);
}

// Of equal pages the older ones; and every page where the budget is nearly the row's.
TEST_F(Quest, TiesAndNearlyAllPages) {
  const Layout layout = kLayouts[0];
  for (const char* text : kMethods) {
    SCOPED_TRACE(text);
    const MethodOptions method = methodOf(text);
    Cache cache = hostCache(layout, {1000, 1000, 1000}, 74);
    addBias(&cache, [](int, int) { return 0.0f; });
    for (const Coarse kind : kAllCoarse) {
      makeCoarse(&cache, kind, 5);
      cache.budgets = {100, 999, 17};
      Gpu gpu(cache, layout.element);
      expectChoice(method, cache, gpu.run(method));
      if (HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace allot::kernels
