// What is refused at once, what only the device sees, and that neither harms other rows or later
// steps.
#include <gmock/gmock.h>

#include <cmath>

#include "tests/gpu/gpu_fixture.h"

namespace allot::kernels {
namespace {

using ::testing::HasSubstr;

const Layout kLayouts[] = {
    {Element::kBFloat16, 64, 16, 2, 2},
    {Element::kBFloat16, 128, 64, 4, 1},
    {Element::kFloat16, 64, 256, 3, 1},
    {Element::kFloat16, 128, 16, 1, 2},
};

Cache fourRows(const Layout& layout) {
  Cache cache = hostCache(layout, {100, 300, 40, 520}, 131);
  cache.budgets = {16, 20, 40, 100};
  return cache;
}

using Failures = GpuMethodTest;

// A step whose row 1 is spoilt: it is named, the other rows are as they were, and the next step is
// clean. `spoil` changes the cache's inputs on the GPU.
void expectRowFails(const Cache& cache, const Layout& layout, const MethodOptions& method,
                    const std::function<void(Gpu&, cuda::StepBounds*)>& spoil,
                    const char* head = nullptr) {
  Gpu gpu(cache, layout.element);
  const GpuResult good = gpu.run(method);
  Gpu spoilt(cache, layout.element);  // its own workspace: a plan grows only
  cuda::StepBounds bounds = spoilt.bounds(method);
  spoil(spoilt, &bounds);
  Cache::Result run;
  const std::string failure = spoilt.failureOf(method, bounds, &run);
  EXPECT_THAT(failure, HasSubstr("row 1"));
  if (head) {
    EXPECT_THAT(failure, HasSubstr(head));
  }
  for (const int r : {0, 2, 3}) expectSameRow(good, r, run, r);
  spoilt.pool.expectGuards();
  // Said once; and a step without fault after it has none.
  EXPECT_EQ(spoilt.workspace.failure(spoilt.stream), std::nullopt);
  spoilt.load();
  spoilt.loadPool();
  expectSame(good, spoilt.run(method));
}

TEST_P(Failures, ScoresThatAreNotFinite) {
  for (const Layout& layout : kLayouts) {
    SCOPED_TRACE(textOf(layout));
    const float key = layout.element == Element::kBFloat16 ? 1e30f : 6e4f;
    const float query = layout.element == Element::kBFloat16 ? 1e30f : 3e38f;
    for (const bool all : {true, false}) {
      const Cache cache = fourRows(layout);
      Cache large = fourRows(layout);
      std::fill_n(large.query(1, 0), large.shape.heads * layout.head_dim, query);
      for (int j = all ? 0 : 299; j < 300; ++j) {
        std::fill_n(large.key(1, 0, j), layout.kv_heads * layout.head_dim,
                    rounded(layout.element, key));
      }
      large.write();
      if (!all && method.method != Method::kDense && shadowBits(method) > 0) continue;
      expectRowFails(
          cache, layout, method,
          [&](Gpu& gpu, cuda::StepBounds*) {
            gpu.queries.assign(large.queries);
            gpu.pool.assign(large.pool, layout.element);
          },
          "KV head");
      if (HasFailure()) return;
    }
  }
}

TEST_P(Failures, QueriesAndBiasesThatAreNotFinite) {
  for (const Layout& layout : kLayouts) {
    for (const float bad : {NAN, INFINITY, -INFINITY}) {
      SCOPED_TRACE(textOf(layout) + ", " + std::to_string(bad));
      Cache cache = fourRows(layout);
      addBias(&cache, [](int, int) { return 0.0f; });
      expectRowFails(cache, layout, method, [&](Gpu& gpu, cuda::StepBounds*) {
        std::vector<float> queries = cache.queries;
        queries[static_cast<size_t>(cache.shape.heads) * layout.head_dim + 3] = bad;
        gpu.queries.assign(queries);
      });
      if (bad < 0) continue;  // masks
      expectRowFails(cache, layout, method, [&](Gpu& gpu, cuda::StepBounds*) {
        std::vector<float> bias = cache.bias;
        bias[cache.bias_stride + 260] = bad;
        gpu.bias.assign(bias);
      });
      if (HasFailure()) return;
    }
  }
}

// A bias shorter than a row is that row's failure; layers and heads beyond the counters' bits are
// the step's, and so is a window below 0.
TEST_P(Failures, ShortBiasesLayersAndWindows) {
  const Layout& layout = kLayouts[0];
  Cache cache = fourRows(layout);
  cache.bias_stride = 310;
  cache.bias.assign(4 * 310, 0.0f);
  Gpu gpu(cache, layout.element);
  Cache::Result run;
  EXPECT_THAT(gpu.failureOf(method, gpu.bounds(method), &run),
              HasSubstr("the length of row 3, KV head 0 is below 0 or beyond its page table, its "
                        "bias or the plan"));
  const auto said = [&](DecodeInputs in) {
    EXPECT_EQ(gpu.workspace.plan(method, gpu.pool.kv, gpu.bounds(method)), std::nullopt);
    return cuda::decodeAttention(method, gpu.pool.kv, in, &gpu.workspace, {}, gpu.stream)
        .value_or("");
  };
  DecodeInputs in = gpu.inputs();
  in.layer = (1 << 16) - 1;
  EXPECT_THAT(said(in), HasSubstr("layer = 65535 is beyond 65534"));
  in = gpu.inputs();
  in.window = -1;
  EXPECT_EQ(said(in), "window = -1 is below 0");
}

// No GPU has the memory of the second plan.
TEST_P(Failures, APlanThatFailsLeavesNone) {
  const Cache cache = fourRows(kLayouts[0]);
  Gpu gpu(cache, kLayouts[0].element);
  const cuda::StepBounds bounds = gpu.bounds(method);
  cuda::StepBounds large = bounds;
  large.rows = 1 << 26;
  const auto step = [&] {
    return cuda::decodeAttention(method, gpu.pool.kv, gpu.inputs(), &gpu.workspace, {}, gpu.stream)
        .value_or("");
  };
  ASSERT_EQ(gpu.workspace.plan(method, gpu.pool.kv, bounds), std::nullopt);
  EXPECT_NE(gpu.workspace.plan(method, gpu.pool.kv, large), std::nullopt);
  EXPECT_THAT(step(), HasSubstr("the workspace was planned for"));
  ASSERT_EQ(gpu.workspace.plan(method, gpu.pool.kv, bounds), std::nullopt);
  EXPECT_NE(gpu.run(method).out.size(), 0u);
}

TEST_P(Failures, LengthsPagesAndBudgets) {
  for (const Layout& layout : kLayouts) {
    SCOPED_TRACE(textOf(layout));
    const Cache cache = fourRows(layout);
    const int room = cache.max_pages * layout.page_size;
    for (const int length : {-1, room + 1, 1 << 30}) {
      SCOPED_TRACE("length " + std::to_string(length));
      expectRowFails(cache, layout, method, [&](Gpu& gpu, cuda::StepBounds*) {
        gpu.lengths.assign({100, length, 40, 520});
      });
    }
    for (const int32_t page : {-1, static_cast<int32_t>(cache.pool.kv.pages), 1 << 30}) {
      SCOPED_TRACE("page " + std::to_string(page));
      expectRowFails(cache, layout, method, [&](Gpu& gpu, cuda::StepBounds*) {
        std::vector<int32_t> table = cache.table;
        table[cache.max_pages + 299 / layout.page_size] = page;
        gpu.table.assign(table);
      });
    }
    // Row 1 alone has more keys, or draws more, than was planned for.
    Cache long_row = hostCache(layout, {100, 300, 40, 120}, 131);
    long_row.budgets = {16, 20, 40, 100};
    expectRowFails(long_row, layout, method,
                   [&](Gpu&, cuda::StepBounds* bounds) { bounds->max_length = 120; });
    if (usesBudget(method)) {
      Cache wasteful = fourRows(layout);
      const uint32_t most = drawsTogether(method, wasteful.shape) ? 299 / layout.group : 299;
      wasteful.budgets = {5, most, 5, 5};
      expectRowFails(wasteful, layout, method,
                     [&](Gpu&, cuda::StepBounds* bounds) { bounds->max_budget = most / 2; });
    }
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Methods, Failures, testing::ValuesIn(gpuMethodTexts()), methodTestName);

using Refusals = GpuTest;

TEST_F(Refusals, MethodsThatTheGpuDoesNotDecode) {
  const Layout layout = kLayouts[0];
  const Cache cache = fourRows(layout);
  Gpu gpu(cache, layout.element);
  cuda::Workspace planned;
  ASSERT_EQ(planned.plan({}, gpu.kv(), gpu.bounds({})), std::nullopt);
  int refused = 0;
  for (const std::string& text : methodTexts()) {
    SCOPED_TRACE(text);
    const MethodOptions method = methodOf(text);
    const auto why = cuda::unsupported(method);
    if (!why) continue;
    ++refused;
    EXPECT_THAT(*why, HasSubstr("the GPU"));
    EXPECT_GT(why->size(), 30u) << *why;  // and what it does decode
    cuda::Workspace workspace;
    EXPECT_TRUE(workspace.plan(method, gpu.kv(), gpu.bounds(method)).has_value());
    const DeviceOutputs outputs(layout.element, cache);
    EXPECT_TRUE(
        cuda::decodeAttention(method, gpu.kv(), gpu.inputs(), &planned, outputs.get(), gpu.stream)
            .has_value());
    for (const float x : outputs.read().out) ASSERT_TRUE(std::isnan(x)) << "something was written";
  }
  printf("[  methods ] %d of %d texts refused\n", refused, static_cast<int>(methodTexts().size()));
  for (const char* text : {"s2anta-q4 bits=3", "top-k scores=q8", "s2anta-flash tileSize=100"}) {
    EXPECT_TRUE(cuda::unsupported(methodOf(text)).has_value()) << text;
  }
  EXPECT_EQ(planned.failure(gpu.stream), std::nullopt);
}

// These tests speak for every method that the GPU has.
TEST_F(Refusals, EveryOtherMethodIsTested) {
  const std::vector<std::string> tested = gpuMethodTexts();
  for (const std::string& text : methodTexts()) {
    if (cuda::unsupported(methodOf(text))) continue;
    EXPECT_NE(std::find(tested.begin(), tested.end(), text), tested.end()) << text;
  }
  for (const char* text : {"dense", "s2anta-prop", "s2anta-q4"}) {
    EXPECT_EQ(cuda::unsupported(methodOf(text)), std::nullopt) << text;
  }
}

TEST_F(Refusals, CachesThatTheGpuDoesNotDecode) {
  const auto refusal = [](Layout layout, const MethodOptions& method = {},
                          const std::function<void(PagedKv*)>& spoil = nullptr) {
    PagedKv kv;
    kv.element = layout.element;
    kv.pages = 10;
    kv.kv_heads = layout.kv_heads;
    kv.page_size = layout.page_size;
    kv.head_dim = layout.head_dim;
    kv.shadows[0].bits = 4;
    if (spoil) spoil(&kv);
    cuda::Workspace workspace;
    return workspace
        .plan(method, kv,
              {.rows = 1,
               .heads = layout.kv_heads * layout.group,
               .max_length = 100,
               .max_budget = 10})
        .value_or("");
  };
  for (const Layout& layout : layouts()) EXPECT_EQ(refusal(layout), "") << textOf(layout);
  EXPECT_NE(refusal({Element::kFloat32, 64, 16, 1, 1}), "");
  for (const int head_dim : {16, 32, 80, 96, 256}) {
    EXPECT_NE(refusal({Element::kBFloat16, head_dim, 16, 1, 1}), "") << head_dim;
  }
  for (const int page_size : {8, 24, 48, 100}) {
    EXPECT_NE(refusal({Element::kBFloat16, 64, page_size, 1, 1}), "") << page_size;
  }
  EXPECT_NE(refusal({Element::kBFloat16, 64, 16, 17, 1}), "");
  EXPECT_EQ(refusal({Element::kBFloat16, 64, 16, 2, 1}, methodOf("s2anta-q4")), "");
  EXPECT_NE(refusal({Element::kBFloat16, 64, 16, 2, 1}, methodOf("s2anta-q4"),
                    [](PagedKv* kv) { kv->shadows[0] = {}; }),
            "");
  EXPECT_EQ(refusal({Element::kBFloat16, 64, 16, 2, 1}, methodOf("quest")),
            "quest reads page bounds, but the cache holds none");
}

// What the host can see.
TEST_F(Refusals, StepsBeyondThePlan) {
  const Layout layout = kLayouts[0];
  const Cache cache = fourRows(layout);
  Gpu gpu(cache, layout.element);
  const MethodOptions method = methodOf("s2anta-prop");
  const auto refused = [&](const std::function<void(cuda::StepBounds*)>& shrink) {
    cuda::Workspace workspace;
    cuda::StepBounds bounds = gpu.bounds(method);
    if (shrink) {
      shrink(&bounds);
      EXPECT_EQ(workspace.plan(method, gpu.kv(), bounds), std::nullopt);
    }
    const DeviceOutputs outputs(layout.element, cache);
    const bool refused =
        cuda::decodeAttention(method, gpu.kv(), gpu.inputs(), &workspace, outputs.get(), gpu.stream)
            .has_value();
    outputs.read();  // looks at the guards
    return refused;
  };
  cuda::StepBounds most = gpu.bounds(method);
  most.max_budget = (1u << 24) + 1;
  most.statistics = false;
  cuda::Workspace much;
  EXPECT_EQ(much.plan(method, gpu.kv(), most), std::nullopt);
  EXPECT_EQ(much.plan(methodOf("s2anta-prop exactAbove=never"), gpu.kv(), most),
            "a budget is beyond 16777216, the most draws that are made with exactAbove=never");
  EXPECT_FALSE(refused([](cuda::StepBounds*) {}));
  EXPECT_TRUE(refused(nullptr)) << "there was no plan";
  EXPECT_TRUE(refused([](cuda::StepBounds* bounds) { bounds->rows = 3; }));
  EXPECT_TRUE(refused([](cuda::StepBounds* bounds) { bounds->heads = 2; }));
  EXPECT_TRUE(refused([](cuda::StepBounds* bounds) { bounds->statistics = false; }));
  // Planned for a cache of another shape or element.
  for (const auto& spoil : std::vector<std::function<void(PagedKv*)>>{
           [](PagedKv* kv) { kv->head_dim = 192 - kv->head_dim; },
           [](PagedKv* kv) {
             kv->element =
                 kv->element == Element::kFloat16 ? Element::kBFloat16 : Element::kFloat16;
           }}) {
    PagedKv other = gpu.kv();
    spoil(&other);
    cuda::Workspace workspace;
    EXPECT_EQ(workspace.plan(method, other, gpu.bounds(method)), std::nullopt);
    const DeviceOutputs outputs(layout.element, cache);
    const auto step = cuda::decodeAttention(method, gpu.kv(), gpu.inputs(), &workspace,
                                            outputs.get(), gpu.stream);
    EXPECT_THAT(step.value_or(""), HasSubstr("the workspace was planned for"));
  }
  // Planned for another method, whose steps leave other things between the kernels.
  for (const char* other : {"dense", "s2anta-q4", "top-k", "vattention", "quest", "bernoulli",
                            "s2anta-flash tileSize=64", "skip-softmax"}) {
    cuda::Workspace workspace;
    EXPECT_EQ(workspace.plan(methodOf(other), gpu.kv(), gpu.bounds(method)), std::nullopt);
    const DeviceOutputs outputs(layout.element, cache);
    EXPECT_TRUE(
        cuda::decodeAttention(method, gpu.kv(), gpu.inputs(), &workspace, outputs.get(), gpu.stream)
            .has_value())
        << other;
  }
}

}  // namespace
}  // namespace allot::kernels
