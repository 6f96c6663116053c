// vattention and adaptive-denominator on the GPU: which keys are always read, how many are sampled
// and which, and what comes of them. The split and the sample are the CPU's, key by key; the budget
// is, within the rounding of the pilot's sums.
#include <cmath>
#include <map>

#include "tests/gpu/reference.h"

namespace allot::kernels {
namespace {

using VAttention = GpuTest;

const Layout kLayouts[] = {
    {Element::kBFloat16, 64, 16, 1, 2}, {Element::kBFloat16, 128, 64, 4, 1},
    {Element::kFloat16, 64, 256, 7, 1}, {Element::kFloat16, 128, 16, 2, 2},
    {Element::kBFloat16, 64, 64, 8, 1},
};

// Splits of every kind, and budgets that the pilot decides, that it cannot, and that are limited.
const char* const kMethods[] = {
    "vattention",
    "vattention scores=q4",
    "vattention epsilon=0.3 delta=0.2",
    "vattention scores=q4 epsilon=0.5 delta=0.2 heavy=0.2",
    "vattention sink=0 local=0 heavy=0.1 epsilon=1 delta=0.5",
    "vattention sink=0 local=0 heavy=0 pilot=0.1 maxBudget=40",
    "vattention sink=100 local=200 heavy=0.5 pilot=0.3 epsilon=0.5",
    "vattention epsilon=0.3 delta=0.2 split=half",
    "vattention epsilon=0.5 cancelling=estimate",
    "vattention scores=q4 epsilon=1 delta=0.5 split=half cancelling=estimate",
    "vattention sink=70 local=70 heavy=1",
    "vattention scores=q4 maxBudget=1",
    "vattention sink=0.05 local=0.1 epsilon=0.5",
    "adaptive-denominator",
    "adaptive-denominator scores=q4 epsilon=0.1",
    "adaptive-denominator sink=4 local=0.02 heavy=0.1 epsilon=0.02 delta=0.2",
    "vattention choose=group",
    "vattention scores=q4 epsilon=0.3 delta=0.2 heavy=0.2 choose=group",
    "adaptive-denominator epsilon=0.1 choose=group",
};

// Values around a mean that is not zero: an output that a sample can tell from nothing.
Cache cacheOf(const Layout& layout, std::vector<int> lengths, uint64_t seed) {
  Cache cache = hostCache(layout, std::move(lengths), seed);
  for (std::vector<float>& row : cache.values) {
    for (float& x : row) x = 1 + 0.25f * x;
  }
  roundAndWrite(&cache, layout.element);
  for (int r = 0; r < cache.rows(); ++r) {
    cache.budgets[r] = 1;
    cache.sequences[r] = static_cast<uint32_t>(7 * r);
    cache.steps[r] = static_cast<uint32_t>(r);
  }
  return cache;
}

// The CPU's choice where the tail's sample has `sampled` keys.
Selection choiceOf(MethodOptions method, const Cache& cache, int row, int head, size_t sampled) {
  method.max_budget = static_cast<uint32_t>(std::max<size_t>(sampled, 1));
  method.epsilon = 1e-9;  // no pilot asks for less
  return cpuSelection(method, cache, row, head);
}

// How far the budgets of two pilots may be apart whose sums differ by rounding.
double mayDiffer(double rows) { return 1 + 0.002 * rows; }

int expectChoices(const Cache& cache, const GpuResult& run, const MethodOptions& method) {
  const int heads = cache.shape.heads, dim = cache.shape.head_dim;
  int partial = 0;
  for (int r = 0; r < cache.rows(); ++r) {
    for (int h = 0; h < heads; ++h) {
      SCOPED_TRACE("n " + std::to_string(cache.lengths[r]) + ", head " + std::to_string(h));
      const HeadDraws& drawn = run.draws[static_cast<size_t>(r) * heads + h];
      const Selection own = cpuSelection(method, cache, r, h);
      EXPECT_NEAR(static_cast<double>(drawn.keys.size()), own.rows.size(),
                  mayDiffer(own.rows.size()));
      const auto fixed = static_cast<size_t>(std::count(own.counts.begin(), own.counts.end(), 0u));
      EXPECT_GE(drawn.keys.size(), fixed);
      const size_t sampled = drawn.keys.size() - std::min(fixed, drawn.keys.size());
      const Selection chosen = choiceOf(method, cache, r, h, sampled);
      partial += chosen.finite_population > 0;
      std::map<int32_t, float> weights;
      for (size_t i = 0; i < chosen.rows.size(); ++i) weights[chosen.rows[i]] = chosen.weights[i];
      std::vector<int32_t> rows;
      for (const auto& [row, weight] : weights) rows.push_back(row);
      EXPECT_EQ(drawn.keys, rows);
      if (testing::Test::HasFailure()) return partial;
      for (size_t i = 0; i < rows.size(); ++i) {
        EXPECT_NEAR(drawn.weights[i], weights[rows[i]], 2e-3 * weights[rows[i]]) << rows[i];
      }
      EXPECT_NEAR(run.lse[r * heads + h], chosen.lse, 1e-3);
      std::vector<double> out(dim);
      for (const auto& [row, weight] : weights) {
        const float* v = cache.value(r, cache.kvHead(h), row);
        for (int d = 0; d < dim; ++d) out[d] += static_cast<double>(weight) * v[d];
      }
      const float* is = &run.out[(static_cast<size_t>(r) * heads + h) * dim];
      EXPECT_LE(relativeDistance(is, out.data(), dim), 1e-4);
      if (testing::Test::HasFailure()) return partial;
    }
  }
  return partial;
}

TEST_F(VAttention, ChoosesWhatTheCpuChooses) {
  for (const char* text : kMethods) {
    const MethodOptions method = methodOf(text);
    int partial = 0;
    for (const Layout& layout : kLayouts) {
      SCOPED_TRACE(std::string(text) + ", " + textOf(layout));
      Cache cache = cacheOf(layout, {1, 2, 33, 64, 255, 257, 1000, 2100}, 31);
      const float scale = cache.scale;
      Gpu gpu(cache, layout.element);
      for (const float sharper : {1.0f, 0.05f, 3.0f}) {
        cache.scale = scale * sharper;
        cache.bias.clear();
        if (sharper == 1) {  // and some keys are masked
          addBias(&cache, [](int, int key) { return key % 7 == 3 ? -INFINITY : 0.0f; });
        }
        gpu.load();
        const GpuResult run = gpu.run(method);
        partial += expectChoices(cache, run, method);
        expectFollowsDraws(cache, run, method, layout.element);
        if (HasFailure()) return;
      }
    }
    printf("[ sampled  ] %5d heads read a part of their tail: %s\n", partial, text);
    EXPECT_EQ(partial > 50, method.heavy < 1) << text << ": the test says little";
  }
}

TEST_F(VAttention, ChoosesWhatTheCpuChoosesOnACoarseGrid) {
  for (const char* text : kMethods) {
    const MethodOptions method = methodOf(text);
    for (const Layout& layout : kLayouts) {
      for (const Coarse kind : kAllCoarse) {
        SCOPED_TRACE(std::string(text) + ", " + textOf(layout) + ", scores " +
                     std::to_string(static_cast<int>(kind)));
        Cache cache = cacheOf(layout, {17, 256, 700, 2100}, 32);
        addBias(&cache, [](int, int) { return 0.0f; });
        makeCoarse(&cache, kind, 9);
        Gpu gpu(cache, layout.element);
        const GpuResult run = gpu.run(method);
        expectChoices(cache, run, method);
        expectStatisticsFollowDraws(cache, run, method, layout.element);
        if (layout.element == Element::kBFloat16 && !HasFailure()) {
          const Cache::Result cpu = cache.run(method);
          for (size_t i = 0; i < cpu.out.size(); ++i) ASSERT_NEAR(run.out[i], cpu.out[i], 2e-3);
        }
        if (HasFailure()) return;
      }
    }
  }
}

TEST_F(VAttention, ChoosesWhatTheCpuChoosesInALongRow) {
  const Layout layout{Element::kBFloat16, 128, 16, 4, 1};
  for (const char* text :
       {"vattention scores=q4 epsilon=0.2", "vattention epsilon=0.1 heavy=0.01"}) {
    SCOPED_TRACE(text);
    const MethodOptions method = methodOf(text);
    const Cache cache = cacheOf(layout, {33000, 8193, 4099}, 33);
    Gpu gpu(cache, layout.element);
    const GpuResult run = gpu.run(method);
    EXPECT_EQ(expectChoices(cache, run, method), 12);
    expectStatisticsFollowDraws(cache, run, method, layout.element);
  }
}

// Without a bias few groups of eight keys are read, with one all of them are: to the same end.
TEST_F(VAttention, AZeroBiasChangesNoBit) {
  for (const Layout& layout : kLayouts) {
    Cache cache = cacheOf(layout, {40, 300, 8200}, 34), biased = cacheOf(layout, cache.lengths, 34);
    addBias(&biased, [](int, int) { return 0.0f; });
    const float scale = cache.scale;
    for (const float sharper : {1.0f, 0.05f, 3.0f}) {
      cache.scale = biased.scale = scale * sharper;
      Gpu gpu(cache, layout.element), other(biased, layout.element);
      for (const char* text : kMethods) {
        const MethodOptions method = methodOf(text);
        DecodeInputs in = gpu.inputs(), biased_in = other.inputs();
        // Of rows whose first keys are before the window, too.
        in.window = biased_in.window = sharper == 3 ? 445 : 0;
        SCOPED_TRACE(std::string(text) + ", " + textOf(layout));
        const GpuResult without = gpu.run(method, in);
        const GpuResult with = other.run(method, biased_in);
        expectSame(without, with);
        for (size_t i = 0; i < with.draws.size(); ++i) {
          ASSERT_EQ(without.draws[i].keys, with.draws[i].keys) << "head " << i;
          ASSERT_EQ(without.draws[i].weights, with.draws[i].weights) << "head " << i;
        }
        if (HasFailure()) return;
      }
    }
  }
}

// The same choice for the same stream, another for another; the pilot's and the sample's differ.
TEST_F(VAttention, TheStreamDecides) {
  const MethodOptions method = methodOf("vattention maxBudget=100");
  const Layout layout = kLayouts[0];
  Cache cache = cacheOf(layout, {700}, 34);
  const auto keys = [&](const Cache& from) {
    Gpu gpu(from, layout.element);
    return gpu.run(method).draws[0].keys;
  };
  const std::vector<int32_t> base = keys(cache);
  EXPECT_EQ(base, keys(cache));
  ++cache.layer;
  EXPECT_NE(base, keys(cache));
  --cache.layer, ++cache.steps[0];
  EXPECT_NE(base, keys(cache));
  --cache.steps[0], ++cache.sequences[0];
  EXPECT_NE(base, keys(cache));
  --cache.sequences[0], cache.seed += uint64_t{1} << 40;
  EXPECT_NE(base, keys(cache));
}

// P(|o^ - o| > epsilon |o|) <= delta, measured on the device: 4000 streams of one row. More than
// delta + 5 deviations would be a broken promise; some are to be seen, or the test says nothing.
TEST_F(VAttention, KeepsItsPromise) {
  const Layout layout{Element::kBFloat16, 64, 16, 2, 1};
  for (const char* text :
       {"vattention epsilon=0.1 delta=0.2", "vattention epsilon=0.1 delta=0.2 split=half",
        "vattention scores=q4 epsilon=0.1 delta=0.2"}) {
    const MethodOptions method = methodOf(text);
    Cache cache = cacheOf(layout, {1200}, 35);
    std::vector<double> exact[] = {cache.exact(0, 0), cache.exact(0, 1)};
    constexpr int kStreams = 4000;
    cache.repeatFirstRow(kStreams, 1);
    Gpu gpu(cache, layout.element);
    const GpuResult run = gpu.run(method);
    int beyond = 0;
    double error = 0, rows = 0;
    for (int i = 0; i < 2 * kStreams; ++i) {
      const double e =
          relativeDistance(&run.out[static_cast<size_t>(i) * 64], exact[i % 2].data(), 64);
      beyond += e > method.epsilon;
      error += e / (2 * kStreams);
      rows += run.heads[i].draws / (2.0 * kStreams);
    }
    const double limit = method.delta + 5 * std::sqrt(method.delta * (1 - method.delta) / kStreams);
    printf("[ promise  ] %s: %.0f of 1200 rows, mean error %.4f, beyond epsilon %.4f\n", text, rows,
           error, beyond / (2.0 * kStreams));
    EXPECT_LT(beyond / (2.0 * kStreams), limit);
    EXPECT_GT(error, 0.0005);
    EXPECT_LT(rows, 1100);
  }
}

}  // namespace
}  // namespace allot::kernels
