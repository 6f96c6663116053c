// A budget for each head, and what heads without one give (tests/kernels/head_budgets_test.cpp
// and zero_reads_test.cpp): beside the CPU, and beside steps in which all heads have the budget.
#include "tests/gpu/reference.h"

namespace allot::kernels {
namespace {

class GpuHeadBudgets : public GpuMethodTest {};

const Layout kLayouts[] = {
    {Element::kBFloat16, 64, 16, 3, 2},  {Element::kBFloat16, 128, 64, 8, 1},
    {Element::kFloat16, 64, 64, 4, 2},   {Element::kFloat16, 128, 16, 1, 4},
    {Element::kBFloat16, 64, 16, 12, 1},
};

Cache rowsOf(const Layout& layout) { return hostCache(layout, {130, 300, 0, 33, 1500}, 61); }

// Silent, exact and sampled heads beside each other, and a group with no budget at all.
std::vector<uint32_t> mixedBudgets(const Cache& cache) {
  const uint32_t some[] = {0, 2000, 7, 100, 0, 1, 40, UINT32_MAX};
  std::vector<uint32_t> budgets;
  const int heads = cache.shape.heads;
  for (int r = 0; r < cache.rows(); ++r) {
    for (int h = 0; h < heads; ++h) {
      const bool silent_group = r == 3 && cache.kvHead(h) == 0;
      budgets.push_back(silent_group ? 0 : some[(r * heads + h) % 8]);
    }
  }
  return budgets;
}

cuda::StepBounds boundsOf(const Cache& cache) {
  return {.rows = cache.rows(),
          .heads = cache.shape.heads,
          .max_length = 1500,
          .max_budget = 1500,
          .statistics = true};
}

DecodeInputs withBudgets(DecodeInputs in, const uint32_t* budgets) {
  in.budgets = budgets;
  in.head_budgets = true;
  return in;
}

void expectSameHead(const GpuResult& x, const GpuResult& y, size_t head, size_t width,
                    bool same_order) {
  for (size_t d = head * width; d < (head + 1) * width; ++d) {
    if (same_order) {
      ASSERT_EQ(x.out[d], y.out[d]) << d;
    } else {
      ASSERT_NEAR(x.out[d], y.out[d], 1e-5) << d;
    }
  }
  ASSERT_EQ(x.lse[head], y.lse[head]);
  ASSERT_EQ(x.draws[head].keys, y.draws[head].keys);
  ASSERT_EQ(x.draws[head].weights, y.draws[head].weights);
  const HeadStatistics &a = x.heads[head], &b = y.heads[head];
  ASSERT_EQ(a.draws, b.draws);
  ASSERT_EQ(a.unique_rows, b.unique_rows);
  ASSERT_EQ(a.key_bytes, b.key_bytes);
  ASSERT_EQ(a.value_bytes, b.value_bytes);
  ASSERT_EQ(a.effective_sample_size, b.effective_sample_size);
}

TEST_P(GpuHeadBudgets, EqualOnesAreTheRows) {
  for (const Layout& layout : kLayouts) {
    Cache cache = rowsOf(layout);
    for (const uint32_t budget : {0u, 7u, 130u, 1500u}) {
      SCOPED_TRACE(textOf(layout) + ", S " + std::to_string(budget));
      std::fill(cache.budgets.begin(), cache.budgets.end(), budget);
      Gpu gpu(cache, layout.element);
      const GpuResult rows = gpu.run(method, boundsOf(cache), gpu.inputs());
      const DeviceArray<uint32_t> heads(
          std::vector<uint32_t>(static_cast<size_t>(cache.rows() * cache.shape.heads), budget));
      expectSame(rows, gpu.run(method, boundsOf(cache), withBudgets(gpu.inputs(), heads.get())));
    }
  }
}

TEST_P(GpuHeadBudgets, AHeadDependsOnItsOwnAlone) {
  if (method.group_draws || method.group_choice)
    GTEST_SKIP() << "needs draws=head, choose=head: a group's heads depend on each other";
  // Flash's heads gather values together: their sums round by what the others drew.
  const bool same_order = chooserOf(method) != Method::kS2antaFlash;
  for (const Layout& layout : kLayouts) {
    Cache cache = rowsOf(layout);
    const auto budgets = mixedBudgets(cache);
    const DeviceArray<uint32_t> heads(budgets);
    Gpu gpu(cache, layout.element);
    const GpuResult mixed =
        gpu.run(method, boundsOf(cache), withBudgets(gpu.inputs(), heads.get()));
    for (const uint32_t budget : {0u, 2000u, 7u, 100u, 1u, 40u, UINT32_MAX}) {
      std::fill(cache.budgets.begin(), cache.budgets.end(), budget);
      gpu.load();
      const GpuResult alike = gpu.run(method, boundsOf(cache), gpu.inputs());
      for (size_t i = 0; i < budgets.size(); ++i) {
        if (budgets[i] != budget) continue;
        SCOPED_TRACE(textOf(layout) + ", head " + std::to_string(i) + ", S " +
                     std::to_string(budget));
        expectSameHead(mixed, alike, i, static_cast<size_t>(layout.head_dim), same_order);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Where weights are powers of two every number is the CPU's.
TEST_P(GpuHeadBudgets, AreTheCpus) {
  for (const Layout& layout : kLayouts) {
    if (layout.element == Element::kFloat16) continue;  // the CPU's have other bytes
    Cache cache = rowsOf(layout);
    const auto budgets = mixedBudgets(cache);
    const DeviceArray<uint32_t> heads(budgets);
    addBias(&cache, [](int, int) { return 0.0f; });
    Gpu gpu(cache, layout.element);
    for (const Coarse kind : {Coarse::kEqual, Coarse::kGaps, Coarse::kMasked}) {
      SCOPED_TRACE(textOf(layout) + ", scores " + std::to_string(static_cast<int>(kind)));
      makeCoarse(&cache, kind, 17);
      gpu.load();
      const GpuResult run =
          gpu.run(method, boundsOf(cache), withBudgets(gpu.inputs(), heads.get()));
      const Cache::Result cpu = cache.run(method, withBudgets(cache.inputs(), budgets.data()));
      expectStatistics(run, cpu);
      for (size_t i = 0; i < cpu.out.size(); ++i) ASSERT_NEAR(run.out[i], cpu.out[i], 1e-4) << i;
      if (HasFailure()) return;
    }
  }
}

// Without log-sums heads without a budget read nothing, and idle values take the zeros' place.
TEST_P(GpuHeadBudgets, SilentHeadsGiveTheirIdleValues) {
  for (const Layout& layout : kLayouts) {
    SCOPED_TRACE(textOf(layout));
    const Cache cache = rowsOf(layout);
    const auto budgets = mixedBudgets(cache);
    const DeviceArray<uint32_t> heads(budgets);
    const int kv_heads = layout.kv_heads, dim = layout.head_dim;
    const std::vector<float> idle = normals(static_cast<size_t>(cache.rows() * kv_heads * dim), 99);
    const DeviceArray<float> device_idle(idle);
    Gpu gpu(cache, layout.element);
    DecodeInputs in = withBudgets(gpu.inputs(), heads.get());
    DeviceOutputs outputs(layout.element, in.rows, in.heads, kv_heads, dim);
    ASSERT_EQ(gpu.workspace.plan(method, gpu.kv(), boundsOf(cache)), std::nullopt);
    Cache::Result off, on;
    for (Cache::Result* result : {&off, &on}) {
      outputs.poison();
      DecodeOutputs out = outputs.get();
      out.lse = nullptr;
      in.zero_budget_values = result == &on ? device_idle.get() : nullptr;
      ASSERT_EQ(cuda::decodeAttention(method, gpu.kv(), in, &gpu.workspace, out, gpu.stream),
                std::nullopt);
      ASSERT_EQ(gpu.workspace.failure(gpu.stream), std::nullopt);
      *result = outputs.read();
    }
    for (size_t i = 0; i < budgets.size(); ++i) {
      const size_t row = i / static_cast<size_t>(in.heads);
      const auto kv_head = static_cast<size_t>(cache.kvHead(static_cast<int>(i) % in.heads));
      const bool silent = budgets[i] == 0 && cache.lengths[row] > 0;
      const size_t from = (row * static_cast<size_t>(kv_heads) + kv_head) * dim;
      for (size_t d = 0; d < static_cast<size_t>(dim); ++d) {
        const float before = off.out[i * dim + d];
        ASSERT_EQ(on.out[i * dim + d], silent ? idle[from + d] : before);
      }
      if (budgets[i] > 0) continue;
      EXPECT_EQ(on.heads[i].draws + on.heads[i].key_bytes, 0u);
    }
    // The group of row 3 that has no budget.
    const GroupStatistics& group = on.groups[3 * kv_heads];
    EXPECT_EQ(group.key_bytes + group.value_bytes, 0u);
    // With log-sums, whose scores are computed, outputs are the same.
    const GpuResult with_lse = gpu.run(method, boundsOf(cache), in);
    EXPECT_EQ(with_lse.out, on.out);
  }
}

// A captured step does what the budgets in device memory say.
TEST_P(GpuHeadBudgets, InAGraph) {
  const Layout layout = kLayouts[0];
  const Cache cache = rowsOf(layout);
  std::vector<uint32_t> budgets = mixedBudgets(cache);
  DeviceArray<uint32_t> heads(budgets);
  Gpu replayed(cache, layout.element), direct(cache, layout.element);
  ASSERT_EQ(replayed.workspace.plan(method, replayed.kv(), boundsOf(cache)), std::nullopt);
  DeviceOutputs outputs(layout.element, cache);
  const Captured graph(replayed.stream, [&] {
    EXPECT_EQ(
        cuda::decodeAttention(method, replayed.kv(), withBudgets(replayed.inputs(), heads.get()),
                              &replayed.workspace, outputs.get(), replayed.stream),
        std::nullopt);
  });
  ASSERT_TRUE(graph);
  for (int turn = 0; turn < 6; ++turn) {
    std::rotate(budgets.begin(), budgets.begin() + 1, budgets.end());
    heads.assign(budgets);
    outputs.poison();
    ASSERT_EQ(cudaSuccess, graph.launch(replayed.stream));
    ASSERT_EQ(replayed.workspace.failure(replayed.stream), std::nullopt);
    expectSame(outputs.read(),
               direct.run(method, boundsOf(cache), withBudgets(direct.inputs(), heads.get())));
    if (HasFatalFailure()) break;
  }
}

// vattention with budgets that no pilot decides: a pilot's sums round as they may.
std::vector<std::string> headTexts() {
  std::vector<std::string> list = sampledMethodTexts();
  // Of budgets for all keys, which are some heads' here, these make no draws.
  std::erase_if(list, [](const std::string& text) { return !exactFromAllKeys(methodOf(text)); });
  list.insert(list.end(),
              {"dense", "vattention maxBudget=20", "vattention scores=q4 maxBudget=20",
               "vattention sink=70 local=70 heavy=1", "adaptive-denominator maxBudget=20",
               "adaptive-denominator scores=q4 maxBudget=20", "skip-softmax",
               "skip-softmax threshold=0.4", "bernoulli meanGroupQuery=true"});
  return list;
}

INSTANTIATE_TEST_SUITE_P(Methods, GpuHeadBudgets, testing::ValuesIn(headTexts()), methodTestName);

using GpuZeroReads = GpuTest;

TEST_F(GpuZeroReads, WindowsAreRefused) {
  const Cache cache = rowsOf(kLayouts[0]);
  Gpu gpu(cache, kLayouts[0].element);
  ASSERT_EQ(gpu.workspace.plan({}, gpu.kv(), boundsOf(cache)), std::nullopt);
  DecodeInputs in = gpu.inputs();
  in.zero_budget_window = 64;
  DeviceOutputs outputs(gpu.element, cache);
  const auto why =
      cuda::decodeAttention({}, gpu.kv(), in, &gpu.workspace, outputs.get(), gpu.stream);
  EXPECT_NE(why.value_or("").find("on the CPU alone"), std::string::npos);
}

// Sums of values and their means, chunk by chunk and step by step: the CPU's bits.
TEST_F(GpuZeroReads, MeansAreTheCpus) {
  for (const Layout& layout : {kLayouts[0], kLayouts[1]}) {
    SCOPED_TRACE(textOf(layout));
    Cache cache = hostCache(layout, {200, 333}, 5);
    const auto width = static_cast<size_t>(layout.kv_heads * layout.head_dim);
    const auto count = static_cast<size_t>(cache.pool.kv.pages) * 2 * width;
    std::vector<double> host_sums(count, 0);
    const DeviceArray<double> device_sums(host_sums);
    cache.pool.kv.value_sums = host_sums.data();
    Gpu gpu(cache, layout.element);
    PagedKv kv = gpu.kv();
    kv.value_sums = device_sums.get();
    ASSERT_EQ(gpu.workspace.plan({}, kv, boundsOf(cache)), std::nullopt);
    for (const auto& [from, to] :
         {std::pair(0, 100), {100, 131}, {131, 132}, {132, 133}, {133, 200}}) {
      std::vector<float> keys, values;
      for (int r = 0; r < 2; ++r) {
        const auto first = static_cast<std::ptrdiff_t>(static_cast<size_t>(from) * width);
        const auto last = static_cast<std::ptrdiff_t>(static_cast<size_t>(to) * width);
        keys.insert(keys.end(), cache.keys[r].begin() + first, cache.keys[r].begin() + last);
        values.insert(values.end(), cache.values[r].begin() + first,
                      cache.values[r].begin() + last);
      }
      const DeviceArray<float> device_keys(keys), device_values(values);
      const std::vector<int32_t> starts(2, from), lengths(2, to);
      const DeviceArray<int32_t> device_starts(starts), device_lengths(lengths);
      AppendInputs in{.keys = keys.data(),
                      .values = values.data(),
                      .page_table = cache.table.data(),
                      .starts = starts.data(),
                      .rows = 2,
                      .count = to - from,
                      .max_pages = cache.max_pages};
      ASSERT_EQ(appendKv(cache.pool.kv, in), std::nullopt);
      in.keys = device_keys.get(), in.values = device_values.get();
      in.page_table = gpu.table.get(), in.starts = device_starts.get();
      ASSERT_EQ(cuda::appendKv(kv, in, &gpu.workspace, gpu.stream), std::nullopt);
      std::vector<float> means(2 * width);
      const DeviceArray<float> device_means(means.size());
      meanValues(cache.pool.kv, {cache.table.data(), lengths.data(), 2, cache.max_pages},
                 means.data());
      ASSERT_EQ(cuda::meanValues(kv, {gpu.table.get(), device_lengths.get(), 2, cache.max_pages},
                                 device_means.get(), gpu.stream),
                std::nullopt);
      ASSERT_EQ(gpu.workspace.failure(gpu.stream), std::nullopt);
      EXPECT_EQ(device_means.host(), means);
      EXPECT_EQ(device_sums.host(), host_sums);
    }
    // A page and its sums.
    ASSERT_EQ(cuda::copyPage(kv, 0, 1, gpu.stream), std::nullopt);
    ASSERT_EQ(cudaSuccess, cudaStreamSynchronize(gpu.stream));
    copyPage(cache.pool.kv, 0, 1);
    EXPECT_EQ(device_sums.host(), host_sums);
  }
}

}  // namespace
}  // namespace allot::kernels
