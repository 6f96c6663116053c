// The same results to the bit whatever the batch, its order, the page size, the place in the pool,
// what was planned and how often it runs.
#include <cmath>

#include "tests/gpu/gpu_fixture.h"

namespace allot::kernels {
namespace {

using Invariance = GpuMethodTest;

constexpr int kRows = 7;

// Budgets of their own, silent and exact rows among them, and a bias that masks some keys. Numbers
// do not depend on the page size.
Cache batch(const Layout& layout) {
  Cache cache = hostCache(layout, {130, 77, 512, 33, 0, 300, 1500}, 121);
  cache.budgets = {16, 77, 100, 7, 4, 0, 128};
  cache.steps = {1, 2, 3, 4, 5, 6, 7};
  const std::vector<float> numbers = normals(kRows * 1500, 122);
  addBias(&cache, [&](int row, int key) {
    const int at = row * 1500 + key;
    return at % 11 == 0 ? -INFINITY : numbers[at];
  });
  return cache;
}

const Layout kLayouts[] = {
    {Element::kBFloat16, 64, 16, 3, 2},
    {Element::kBFloat16, 128, 64, 4, 1},
    {Element::kFloat16, 64, 64, 8, 1},
    {Element::kFloat16, 128, 16, 1, 2},
};

// Row i of the batch is row order[i] of the cache.
void reorder(Cache* cache, const std::vector<int>& order) {
  const auto take = [&](auto& list, size_t width) {
    const auto all = list;
    list.clear();
    for (const int r : order) {
      const auto first = all.begin() + r * width;
      list.insert(list.end(), first, first + static_cast<std::ptrdiff_t>(width));
    }
  };
  take(cache->table, cache->max_pages);
  take(cache->lengths, 1);
  take(cache->queries, static_cast<size_t>(cache->shape.heads) * cache->shape.head_dim);
  take(cache->bias, cache->bias_stride);
  take(cache->budgets, 1);
  take(cache->sequences, 1);
  take(cache->steps, 1);
}

// The row i * step of `rows`, for each i below `count`.
std::vector<int> turns(size_t count, size_t step, size_t rows) {
  std::vector<int> order(count);
  for (size_t i = 0; i < count; ++i) order[i] = static_cast<int>(i * step % rows);
  return order;
}
Cache reordered(const Layout& layout, const Cache& cache, uint64_t seed,
                const std::vector<int>& order) {
  Cache many = hostCache(layout, cache.lengths, seed);
  many.budgets = cache.budgets;
  many.bias = cache.bias;
  many.bias_stride = cache.bias_stride;
  reorder(&many, order);
  return many;
}

void expectReordered(const GpuResult& run, const GpuResult& reordered,
                     const std::vector<int>& order) {
  for (size_t i = 0; i < order.size(); ++i) {
    expectSameRow(run, order[i], reordered, static_cast<int>(i));
    if (testing::Test::HasFailure()) return;
  }
}

TEST_P(Invariance, Repetitions) {
  for (const Layout& layout : kLayouts) {
    SCOPED_TRACE(textOf(layout));
    const Cache cache = batch(layout);
    Gpu gpu(cache, layout.element);
    const GpuResult once = gpu.run(method);
    for (int i = 0; i < 3; ++i) expectSame(once, gpu.run(method));
    // With other work of the workspace's before.
    gpu.run(methodOf("dense"));
    expectSame(once, gpu.run(method));
    Gpu other(cache, layout.element);
    expectSame(once, other.run(method));
  }
}

TEST_P(Invariance, PageSize) {
  for (Layout layout : kLayouts) {
    layout.page_size = 16;
    const Cache small = batch(layout);
    Gpu gpu(small, layout.element);
    const GpuResult run = gpu.run(method);
    for (const int page_size : {64, 256}) {
      layout.page_size = page_size;
      SCOPED_TRACE(textOf(layout));
      const Cache cache = batch(layout);
      Gpu other(cache, layout.element);
      expectSame(run, other.run(method));
    }
  }
}

TEST_P(Invariance, AnyRowsBesideInAnyOrder) {
  for (const Layout& layout : kLayouts) {
    SCOPED_TRACE(textOf(layout));
    const Cache cache = batch(layout);
    Gpu gpu(cache, layout.element);
    const GpuResult all = gpu.run(method);
    const std::vector<std::vector<int>> orders = {
        {6, 5, 4, 3, 2, 1, 0}, {2, 0, 6, 1, 5, 3, 4}, {0}, {1}, {2}, {6}, {3, 3, 6, 3}};
    for (const std::vector<int>& order : orders) {
      SCOPED_TRACE("first row " + std::to_string(order[0]));
      Cache some = batch(layout);
      reorder(&some, order);
      Gpu other(some, layout.element);
      expectReordered(all, other.run(method), order);
    }
  }
}

TEST_P(Invariance, PlansWithRoomToSpare) {
  for (const Layout& layout : kLayouts) {
    SCOPED_TRACE(textOf(layout));
    const Cache cache = batch(layout);
    Gpu gpu(cache, layout.element), roomy(cache, layout.element);
    const cuda::StepBounds exact = gpu.bounds(method);
    const GpuResult run = gpu.run(method, exact, gpu.inputs());
    for (int i = 1; i < 4; ++i) {  // each of them, then all
      cuda::StepBounds more = exact;
      if (i == 1) more.rows += 60;
      if (i == 2) more.max_length += 5000;
      if (i == 3) more.max_budget += 500, more.rows += 5, more.max_length += 9000;
      expectSame(run, roomy.run(method, more, roomy.inputs()));
    }
    EXPECT_GE(roomy.workspace.bytes(), gpu.workspace.bytes());
    // The smaller plan again: it grows only.
    const size_t bytes = roomy.workspace.bytes();
    expectSame(run, roomy.run(method, exact, roomy.inputs()));
    EXPECT_EQ(roomy.workspace.bytes(), bytes);
  }
}

// So many rows that warps take four exact splits at once and join them, which is the combine
// kernel's work where there are few.
TEST_F(GpuTest, DenseIsTheSameWhoeverJoinsItsSplits) {
  const MethodOptions dense = methodOf("dense");
  for (const Layout& layout :
       {Layout{Element::kBFloat16, 128, 16, 4, 8}, Layout{Element::kBFloat16, 128, 64, 7, 8},
        Layout{Element::kFloat16, 128, 16, 12, 4}, Layout{Element::kFloat16, 64, 16, 16, 8}}) {
    const Cache cache = hostCache(layout, {4096, 1000, 33, 129, 0, 2300}, 123);
    const std::vector<int> order = turns(1000, 5, 6);
    const Cache many = reordered(layout, cache, 123, order);
    Gpu gpu(cache, layout.element), other(many, layout.element);
    for (const int window : {0, 1111}) {
      SCOPED_TRACE(textOf(layout) + ", window " + std::to_string(window));
      DecodeInputs few_in = gpu.inputs(), many_in = other.inputs();
      few_in.window = many_in.window = window;
      expectReordered(gpu.run(dense, few_in), other.run(dense, many_in), order);
      if (HasFailure()) return;
    }
  }
}

// With many rows a warp takes eight heads of a shadow's codes at once, with few rows four. Rows
// without a budget, exact and sampled rows stand beside each other, then such heads of one row.
TEST_F(GpuTest, ShadowsAreTheSameInLargerPacks) {
  for (const Layout& layout :
       {Layout{Element::kBFloat16, 128, 16, 7, 8}, Layout{Element::kFloat16, 64, 64, 16, 4},
        Layout{Element::kBFloat16, 64, 16, 12, 4}, Layout{Element::kFloat16, 128, 16, 5, 8}}) {
    Cache cache = hostCache(layout, {2100, 1000, 33, 129, 0, 300}, 124);
    cache.budgets = {16, 200, 7, 200, 4, 0};
    const std::vector<int> order = turns(400, 5, 6);
    const Cache many = reordered(layout, cache, 124, order);
    const auto heads = static_cast<size_t>(cache.shape.heads);
    std::vector<uint32_t> few_budgets, many_budgets;
    const uint32_t some[] = {40, 0, 200, 7, 0, 1, 129};
    for (size_t i = 0; i < 6 * heads; ++i) few_budgets.push_back(some[i % 7]);
    for (const int row : order) {
      const auto from = few_budgets.begin() + row * heads;
      many_budgets.insert(many_budgets.end(), from, from + static_cast<std::ptrdiff_t>(heads));
    }
    const DeviceArray<uint32_t> few_heads(few_budgets), many_heads(many_budgets);
    Gpu gpu(cache, layout.element), other(many, layout.element);
    for (const char* text : {"s2anta-q4", "top-k scores=q4"}) {
      const MethodOptions method = methodOf(text);
      for (const bool by_head : {false, true}) {
        for (const int window : {0, 445}) {
          SCOPED_TRACE(textOf(layout) + ", " + text + ", window " + std::to_string(window) +
                       (by_head ? ", by head" : ""));
          DecodeInputs few_in = gpu.inputs(), many_in = other.inputs();
          few_in.window = many_in.window = window;
          few_in.head_budgets = many_in.head_budgets = by_head;
          if (by_head) few_in.budgets = few_heads.get(), many_in.budgets = many_heads.get();
          expectReordered(gpu.run(method, few_in), other.run(method, many_in), order);
          if (HasFailure()) return;
        }
      }
    }
  }
}

// So many heads that smaller blocks finish them, and so few that larger ones do: budgets of one
// draw a warp and of many, exact rows, rows of one split and of more than a block has threads.
TEST_F(GpuTest, SmallerBlocksFinishTheSame) {
  for (const Layout& layout :
       {Layout{Element::kFloat16, 64, 64, 16, 2}, Layout{Element::kBFloat16, 128, 16, 4, 8}}) {
    const int longest = layout.head_dim == 64 ? 70000 : 2100;
    Cache cache = hostCache(layout, {longest, 3000, 300, 1000, 100}, 125);
    const std::vector<float> numbers = normals(5 * longest, 126);
    const std::vector<int> order = turns(40, 3, 5);
    for (const bool biased : {false, true}) {
      cache.budgets = {128, 1, 300, 600, 100};
      if (biased) {
        cache.budgets = {257, 150, 16, 180, 40};
        addBias(&cache, [&](int row, int key) { return numbers[row * longest + key]; });
      }
      const Cache many = reordered(layout, cache, 125, order);
      Gpu gpu(cache, layout.element), other(many, layout.element);
      for (const char* text : {"s2anta-q4", "s2anta-q4 exactAbove=never", "dense", "s2anta-prop",
                               "s2anta-strat exactAbove=never", "santa"}) {
        SCOPED_TRACE(textOf(layout) + ", " + text + (biased ? ", a bias" : ""));
        const GpuResult alone = gpu.run(methodOf(text)), run = other.run(methodOf(text));
        expectReordered(alone, run, order);
        if (HasFailure()) return;
      }
    }
  }
}

// Of the second row's first split a window leaves one part: too few copies for the values drawn of
// the first row's last split, which the same warp fetches, to have come with them.
TEST_F(GpuTest, FlashWaitsForItsValues) {
  const Layout layout{Element::kBFloat16, 64, 16, 2, 2};
  const MethodOptions flash = methodOf("s2anta-flash");
  Cache cache = hostCache(layout, {2100, 5000}, 125);
  cache.budgets = {1, 1};
  const std::vector<int> order = turns(4000, 1, 2);
  const Cache many = reordered(layout, cache, 125, order);
  Gpu gpu(cache, layout.element), other(many, layout.element);
  DecodeInputs few_in = gpu.inputs(), many_in = other.inputs();
  few_in.window = many_in.window = 150;
  expectReordered(gpu.run(flash, few_in), other.run(flash, many_in), order);
}

// What a caller does not ask for changes nothing.
TEST_P(Invariance, OptionalOutputs) {
  for (const Layout& layout : kLayouts) {
    SCOPED_TRACE(textOf(layout));
    const Cache cache = batch(layout);
    Gpu gpu(cache, layout.element);
    const GpuResult all = gpu.run(method);
    cuda::Workspace bare;
    cuda::StepBounds bounds = gpu.bounds(method);
    bounds.statistics = false;
    ASSERT_EQ(bare.plan(method, gpu.kv(), bounds), std::nullopt);
    for (const bool with_lse : {false, true}) {
      const DeviceArray<float> out(
          std::vector<float>(all.out.size(), std::numeric_limits<float>::quiet_NaN()));
      const DeviceArray<float> lse(all.lse.size());
      ASSERT_EQ(cuda::decodeAttention(method, gpu.kv(), gpu.inputs(), &bare,
                                      {.out = out.get(), .lse = with_lse ? lse.get() : nullptr},
                                      gpu.stream),
                std::nullopt);
      ASSERT_EQ(bare.failure(gpu.stream), std::nullopt);
      EXPECT_EQ(out.host(), all.out);
      if (with_lse) {
        EXPECT_EQ(lse.host(), all.lse);
      }
    }
  }
}

// A row's draws are its own: another sequence, step, layer, seed or head draws others.
TEST_P(Invariance, StreamsDiffer) {
  if (!usesBudget(method) || method.method == Method::kTopK || method.method == Method::kQuest) {
    GTEST_SKIP() << "needs a method that draws at random";
  }
  const Layout layout = kLayouts[0];
  Cache cache = batch(layout);
  const auto draws = [&](const Cache& from) {
    Gpu gpu(from, layout.element);
    std::vector<int32_t> keys;
    for (const HeadDraws& head : gpu.run(method).draws) {
      keys.insert(keys.end(), head.keys.begin(), head.keys.end());
    }
    return keys;
  };
  const std::vector<int32_t> base = draws(cache);
  EXPECT_EQ(base, draws(cache));
  ++cache.layer;
  EXPECT_NE(base, draws(cache));
  --cache.layer, cache.seed += uint64_t{1} << 40;
  EXPECT_NE(base, draws(cache));
  cache.seed -= uint64_t{1} << 40;
  for (uint32_t& step : cache.steps) ++step;
  EXPECT_NE(base, draws(cache));
  for (uint32_t& step : cache.steps) --step;
  for (uint32_t& sequence : cache.sequences) ++sequence;
  EXPECT_NE(base, draws(cache));
}

INSTANTIATE_TEST_SUITE_P(Methods, Invariance, testing::ValuesIn(gpuMethodTexts()), methodTestName);

}  // namespace
}  // namespace allot::kernels
