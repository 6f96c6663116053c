// A few small steps that touch every kernel, for tools that slow a program down a hundredfold:
//
//   compute-sanitizer --tool memcheck gpu_kernels_test --gtest_filter='*Small*'
//
// and the same with racecheck, initcheck and synccheck.
#include <cmath>

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
    const Cache cache = hostCache(layout, {19, 19}, 153);
    KeyPool empty({.element = cache.shape.element,
                   .pages = static_cast<int>(cache.pool.kv.pages),
                   .kv_heads = layout.kv_heads,
                   .page_size = layout.page_size,
                   .head_dim = layout.head_dim});
    DevicePool pool(empty, layout.element);
    cuda::Workspace workspace;
    ASSERT_EQ(
        workspace.plan({}, pool.kv, {.rows = 2, .heads = cache.shape.heads, .max_length = 19}),
        std::nullopt);
    const size_t width = static_cast<size_t>(layout.kv_heads) * layout.head_dim;
    const DeviceArray<int32_t> table(cache.table);
    for (const auto& [start, count] : {std::pair{0, 18}, {18, 1}}) {
      std::vector<float> new_keys, new_values;
      for (int r = 0; r < 2; ++r) {
        new_keys.insert(new_keys.end(), cache.keys[r].begin() + start * width,
                        cache.keys[r].begin() + (start + count) * width);
        new_values.insert(new_values.end(), cache.values[r].begin() + start * width,
                          cache.values[r].begin() + (start + count) * width);
        ASSERT_EQ(appendRow(empty.kv, &cache.table[r * cache.max_pages], cache.max_pages, start,
                            count, &new_keys[r * count * width], &new_values[r * count * width]),
                  std::nullopt);
      }
      const DeviceArray<float> keys(new_keys), values(new_values);
      const DeviceArray<int32_t> starts(std::vector<int32_t>{start, start});
      ASSERT_EQ(cuda::appendKv(pool.kv,
                               {.keys = keys.get(),
                                .values = values.get(),
                                .page_table = table.get(),
                                .starts = starts.get(),
                                .rows = 2,
                                .count = count,
                                .max_pages = cache.max_pages},
                               &workspace, nullptr),
                std::nullopt);
      ASSERT_EQ(workspace.failure(nullptr), std::nullopt);
      pool.expectEqual(empty);
    }
    ASSERT_EQ(cuda::copyPage(pool.kv, cache.table[0], empty.kv.pages - 1, nullptr), std::nullopt);
    copyPage(empty.kv, cache.table[0], empty.kv.pages - 1);
    pool.expectEqual(empty);
    pool.expectGuards();
  }
}

}  // namespace
}  // namespace allot::kernels
