// A few small steps that touch every kernel, for tools that slow a program down a hundredfold:
//
//   compute-sanitizer --tool memcheck gpu_kernels_test --gtest_filter='*Small*'
//
// and the same with racecheck, initcheck and synccheck.
#include <cmath>

#include "tests/gpu/append_pools.h"
#include "tests/gpu/reference.h"

namespace allot::kernels {
namespace {

using Small = GpuMethodTest;

const Layout kLayouts[] = {
    {Element::kBFloat16, 64, 16, 3, 2},
    {Element::kBFloat16, 128, 64, 8, 1},
    {Element::kFloat16, 64, 256, 1, 1},
    {Element::kFloat16, 128, 16, 16, 1},
};

TEST_P(Small, Step) {
  for (const Layout& layout : kLayouts) {
    SCOPED_TRACE(textOf(layout));
    Cache cache = hostCache(layout, {0, 1, 17, 300, 100}, 151);
    cache.budgets = {3, 1, 5, 40, 0};
    const std::vector<float> numbers = normals(5 * 300, 152);
    addBias(&cache,
            [&](int row, int key) { return key % 13 == 5 ? -INFINITY : numbers[row * 300 + key]; });
    for (const bool biased : {true, false}) {
      if (!biased) cache.bias.clear();
      Gpu gpu(cache, layout.element);
      const GpuResult run = gpu.run(method);
      expectFollowsDraws(cache, run, method, layout.element);
      expectLse(cache, run, method);
      gpu.pool.expectGuards();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Methods, Small, testing::ValuesIn(gpuMethodTexts()), methodTestName);

using SmallAppend = GpuTest;

TEST_F(SmallAppend, PromptThenOneKey) {
  for (const Layout& layout : kLayouts) {
    SCOPED_TRACE(textOf(layout));
    Pools pools(layout, 2, 19, 153);
    pools.expectBothSides({0, 0}, 18, 154);
    pools.expectBothSides({18, 18}, 1, 156);
    const int32_t from = pools.table[0], to = pools.host.table.back();
    ASSERT_EQ(cuda::copyPage(pools.device.kv, from, to, pools.stream), std::nullopt);
    copyPage(pools.host.kv, from, to);
    pools.device.expectEqual(pools.host);
    pools.device.expectGuards();
  }
}

}  // namespace
}  // namespace allot::kernels
