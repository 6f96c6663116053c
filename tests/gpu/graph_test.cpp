// A captured step (append, then decode), replayed while everything that it reads changes in device
// memory, beside direct calls on a cache of the same contents.
#include <cmath>

#include "tests/gpu/gpu_fixture.h"

namespace allot::kernels {
namespace {

class Graph : public GpuMethodTest {};

// Where one step finds its new keys and values, and leaves its results.
struct Step {
  Step(const Cache& cache, Element element)
      : gpu(cache, element),
        outputs(element, cache),
        new_keys(width(cache)),
        new_values(width(cache)),
        starts(cache.lengths.size()) {}

  static size_t width(const Cache& cache) {
    return static_cast<size_t>(cache.rows()) * cache.shape.kv_heads * cache.shape.head_dim;
  }

  // Enqueues the step.
  void enqueue(const MethodOptions& method) {
    const DecodeInputs in = gpu.inputs();
    ASSERT_EQ(cuda::appendKv(gpu.kv(),
                             {.keys = new_keys.get(),
                              .values = new_values.get(),
                              .page_table = in.page_table,
                              .starts = starts.get(),
                              .rows = in.rows,
                              .count = 1,
                              .max_pages = in.max_pages},
                             &gpu.workspace, gpu.stream),
              std::nullopt);
    ASSERT_EQ(
        cuda::decodeAttention(method, gpu.kv(), in, &gpu.workspace, outputs.get(), gpu.stream),
        std::nullopt);
  }

  Gpu gpu;
  DeviceOutputs outputs;
  DeviceArray<float> new_keys, new_values;
  DeviceArray<int32_t> starts;
};

TEST_P(Graph, ReplaysAreDirectCalls) {
  const Layout layouts[] = {{Element::kBFloat16, 64, 16, 3, 2}, {Element::kFloat16, 128, 64, 4, 1}};
  for (const Layout& layout : layouts) {
    SCOPED_TRACE(textOf(layout));
    Cache cache = hostCache(layout, {14, 62, 255, 0, 600, 30}, 141);
    Step replayed(cache, layout.element), direct(cache, layout.element);
    for (Step* step : {&replayed, &direct}) {
      ASSERT_EQ(step->gpu.workspace.plan(method, step->gpu.kv(),
                                         {.rows = cache.rows(),
                                          .heads = cache.shape.heads,
                                          .max_length = 640,
                                          .max_budget = 1000,
                                          .statistics = true}),
                std::nullopt);
    }
    const Captured graph(replayed.gpu.stream, [&] { replayed.enqueue(method); });
    ASSERT_TRUE(graph);
    for (int turn = 0; turn < 8; ++turn) {
      SCOPED_TRACE("replay " + std::to_string(turn));
      const std::vector<int32_t> starts = cache.lengths;
      for (int r = 0; r < cache.rows(); ++r) {
        const int n = ++cache.lengths[r];
        // A new page, where the new key begins one.
        const auto page = static_cast<size_t>(r) * cache.max_pages + (n - 1) / layout.page_size;
        cache.table[page] = cache.pool.table[page];
        // Silent, sampled and exact by turns.
        cache.budgets[r] = std::vector<uint32_t>{0, 7, 1000, 1, 40, 300}[(r + turn) % 6];
        cache.steps[r] = static_cast<uint32_t>(turn);
      }
      if (turn == 5) std::swap(cache.sequences[0], cache.sequences[1]);
      cache.queries = normals(cache.queries.size(), 142 + turn);
      const auto keys = normals(Step::width(cache), 160 + turn);
      const auto values = normals(Step::width(cache), 180 + turn);
      for (Step* step : {&replayed, &direct}) {
        step->gpu.load();
        step->starts.assign(starts);
        step->new_keys.assign(keys);
        step->new_values.assign(values);
        step->outputs.poison();
      }
      ASSERT_EQ(cudaSuccess, graph.launch(replayed.gpu.stream));
      direct.enqueue(method);
      ASSERT_EQ(replayed.gpu.workspace.failure(replayed.gpu.stream), std::nullopt);
      ASSERT_EQ(direct.gpu.workspace.failure(direct.gpu.stream), std::nullopt);
      const Cache::Result run = replayed.outputs.read();
      expectSame(run, direct.outputs.read());
      for (int r = 0; r < cache.rows(); ++r) {
        for (int h = 0; h < cache.shape.heads; ++h) {
          const HeadStatistics& head = run.heads[r * cache.shape.heads + h];
          const auto n = static_cast<uint32_t>(cache.lengths[r]);
          if (cache.budgets[r] == 0) {
            EXPECT_EQ(head.draws, 0u);
          } else if (!draws(method, cache.shape, n, cache.budgets[r])) {
            EXPECT_EQ(head.draws, n);
          } else if (!usesBudget(method) || chooserOf(method) == Method::kQuest) {
            EXPECT_GT(head.draws, 0u);
            EXPECT_LE(head.draws, n);
          } else if (chooserOf(method) != Method::kS2antaFlash) {
            EXPECT_EQ(head.draws, cache.budgets[r]);
          }
        }
      }
      EXPECT_EQ(replayed.gpu.pool.keys.host(), direct.gpu.pool.keys.host());
      EXPECT_EQ(replayed.gpu.pool.codes.host(), direct.gpu.pool.codes.host());
      EXPECT_EQ(replayed.gpu.pool.bounds.host(), direct.gpu.pool.bounds.host());
      if (HasFailure()) return;
    }
    replayed.gpu.pool.expectGuards();
  }
}

// What is wrong in a replay is said after it, and the next replay is clean.
TEST_P(Graph, FailuresOfReplays) {
  const Layout layout{Element::kBFloat16, 64, 16, 2, 1};
  Cache cache = hostCache(layout, {40, 50, 60}, 143);
  cache.budgets = {8, 8, 8};
  Step step(cache, layout.element);
  ASSERT_EQ(step.gpu.workspace.plan(
                method, step.gpu.kv(),
                {.rows = 3, .heads = 2, .max_length = 64, .max_budget = 32, .statistics = true}),
            std::nullopt);
  const Captured graph(step.gpu.stream, [&] { step.enqueue(method); });
  ASSERT_TRUE(graph);
  step.starts.assign({39, 49, 59});
  const auto numbers = normals(Step::width(cache), 144);
  for (const bool bad : {false, true, false, true, false}) {
    auto keys = numbers;
    if (bad) keys[64] = NAN;  // of row 1
    step.new_keys.assign(keys);
    step.new_values.assign(numbers);
    ASSERT_EQ(cudaSuccess, graph.launch(step.gpu.stream));
    const std::string failure = step.gpu.workspace.failure(step.gpu.stream).value_or("");
    EXPECT_EQ(failure.find("row 1") != std::string::npos, bad) << failure;
    EXPECT_EQ(failure.empty(), !bad);
  }
}

INSTANTIATE_TEST_SUITE_P(Methods, Graph, testing::ValuesIn(gpuMethodTexts()), methodTestName);

}  // namespace
}  // namespace allot::kernels
