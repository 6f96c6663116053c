// Exact attention on the GPU, against double precision and against what a kernel that keeps one
// 16-bit number where these keep two would make of the same inputs.
#include <cmath>

#include "tests/gpu/reference.h"
#include "tests/kernels/recall_states.h"

namespace allot::kernels {
namespace {

const MethodOptions kDense = {};

// Queries and probabilities are good to 2^-16 in bfloat16 and 2^-21 in float16, 1.5e-5 and 5e-7.
// Of scores of a few units that is some 1e-5 of each probability, of about 1e-4 at the worst; and
// float32 sums. Bounds are of |out - o| / |o|.
double tightBound(Element element) { return element == Element::kBFloat16 ? 2e-4 : 1e-4; }

struct Reference {
  std::vector<double> exact, rounded;  // rounded: probabilities and output in 16 bits
};

Reference referenceOf(const Cache& cache, Element element, int row, int head) {
  const int dim = cache.shape.head_dim;
  const std::vector<double> a = cache.probabilities(row, head);
  const double most = a.empty() ? 1 : *std::max_element(a.begin(), a.end());
  Reference reference{std::vector<double>(dim), std::vector<double>(dim)};
  for (int j = 0; j < cache.lengths[row]; ++j) {
    const float* v = cache.value(row, cache.kvHead(head), j);
    // As kernels have them: the largest is 1.
    const double coarse = most * rounded(element, static_cast<float>(a[j] / most));
    for (int d = 0; d < dim; ++d) {
      reference.exact[d] += a[j] * v[d];
      reference.rounded[d] += coarse * v[d];
    }
  }
  for (double& x : reference.rounded) x = rounded(element, static_cast<float>(x));
  return reference;
}

void expectDense(const Cache& cache, Element element, const Cache::Result& run) {
  const int heads = cache.shape.heads, dim = cache.shape.head_dim;
  forEachHead(cache, [&](int r, int h) {
    const float* out = &run.out[(static_cast<size_t>(r) * heads + h) * dim];
    if (cache.lengths[r] == 0) {
      for (int d = 0; d < dim; ++d) ASSERT_EQ(out[d], 0.0f);
      return;
    }
    const auto [exact, rounded] = referenceOf(cache, element, r, h);
    double error = 0, norm = 0, largest = 0, usual = 0, usual_largest = 0;
    for (int d = 0; d < dim; ++d) {
      const double e = out[d] - exact[d], u = rounded[d] - exact[d];
      error += e * e, usual += u * u, norm += exact[d] * exact[d];
      largest = std::max(std::isnan(e) ? INFINITY : std::fabs(e), largest);
      usual_largest = std::max(std::fabs(u), usual_largest);
    }
    error = std::sqrt(error), usual = std::sqrt(usual), norm = std::sqrt(norm);
    // One key's output is exact in 16 bits, too.
    ASSERT_LE(error, 2 * usual + 2e-5 * norm);
    ASSERT_LE(largest, 2 * usual_largest + 2e-5 * norm);
    ASSERT_LE(error, tightBound(element) * norm);
  });
  expectLse(cache, run, kDense);
}

using Dense = GpuTest;

TEST_F(Dense, EveryLayoutAndRaggedLengths) {
  for (const Layout& layout : layouts()) {
    SCOPED_TRACE(textOf(layout));
    const Cache cache = hostCache(layout, {0, 1, 15, 16, 17, 255, 0, 256, 257, 300}, 11);
    Gpu gpu(cache, layout.element);
    const GpuResult run = gpu.run(kDense);
    expectDense(cache, layout.element, run);
    expectStatisticsFollowDraws(cache, run, kDense, layout.element);
    gpu.pool.expectGuards();
    if (HasFailure()) return;  // the other layouts would say the same
  }
}

TEST_F(Dense, EveryPageSizeAndManySplits) {
  for (const Element element : {Element::kBFloat16, Element::kFloat16}) {
    for (const int head_dim : {64, 128}) {
      for (const int page_size : {16, 64, 256}) {
        const Layout layout{element, head_dim, page_size, head_dim == 64 ? 7 : 4, 1};
        SCOPED_TRACE(textOf(layout));
        const Cache cache = hostCache(layout, {1000, 4099}, 12);
        Gpu gpu(cache, element);
        expectDense(cache, element, gpu.run(kDense));
        if (HasFailure()) return;
      }
    }
  }
}

TEST_F(Dense, OneLongRowBesideShortOnes) {
  for (const Element element : {Element::kBFloat16, Element::kFloat16}) {
    const Layout layout{element, 128, 64, 2, 1};
    SCOPED_TRACE(textOf(layout));
    const Cache cache = hostCache(layout, {33000, 5}, 13);
    Gpu gpu(cache, element);
    expectDense(cache, element, gpu.run(kDense));
  }
}

// Scores from nearly equal to nearly all weight on one key.
TEST_F(Dense, FlatAndPeakedScores) {
  for (const Layout& layout :
       {Layout{Element::kBFloat16, 64, 16, 4, 1}, Layout{Element::kFloat16, 128, 64, 8, 1}}) {
    Cache cache = hostCache(layout, {700, 257}, 14);
    const float scale = cache.scale;
    Gpu gpu(cache, layout.element);
    for (const float sharpness : {0.0f, 0.01f, 3.0f, 8.0f}) {
      SCOPED_TRACE(textOf(layout) + ", sharpness " + std::to_string(sharpness));
      cache.scale = scale * sharpness;
      const GpuResult run = gpu.run(kDense);
      const double share = std::max(1.0f, sharpness);  // an error of scores grows with them
      forEachHead(cache, [&](int r, int h) {
        const auto at = (static_cast<size_t>(r) * cache.shape.heads + h) * cache.shape.head_dim;
        EXPECT_LE(relativeDistance(&run.out[at], cache.exact(r, h).data(), cache.shape.head_dim),
                  share * tightBound(layout.element));
      });
      expectLse(cache, run, kDense);
    }
  }
}

// Queries are float32 and may be of any size: only their scores count.
TEST_F(Dense, QueriesOfAnySize) {
  for (const Layout& layout :
       {Layout{Element::kBFloat16, 64, 16, 4, 1}, Layout{Element::kFloat16, 128, 64, 8, 1}}) {
    for (const float size : {1e-6f, 1e6f}) {
      SCOPED_TRACE(textOf(layout) + ", queries of " + std::to_string(size));
      Cache cache = hostCache(layout, {300, 17}, 15);
      for (float& x : cache.queries) x *= size;
      cache.scale /= size;
      Gpu gpu(cache, layout.element);
      expectDense(cache, layout.element, gpu.run(kDense));
    }
  }
}

TEST_F(Dense, BiasAndMask) {
  for (const Layout& layout : layouts()) {
    if (layout.group != 3 && layout.group != 8) continue;
    SCOPED_TRACE(textOf(layout));
    Cache cache = hostCache(layout, {1, 100, 256, 600}, 16);
    const std::vector<float> numbers = normals(4 * 600, 17);
    addBias(&cache, [&](int row, int key) {
      return key > 0 && key % 7 == row ? -INFINITY : numbers[row * 600 + key];
    });
    Gpu gpu(cache, layout.element);
    expectDense(cache, layout.element, gpu.run(kDense));
  }
}

// What a trained model attends to.
TEST_F(Dense, RecordedStates) {
  const char* named = std::getenv("ALLOT_SOURCE_DIR");
  const std::string folder = named ? named : ALLOT_SOURCE_DIR;
  const auto blocks = readRecallStates(folder + "/tests/golden/recall_states.bin");
  ASSERT_FALSE(blocks.empty()) << "no recorded states in " << folder;
  for (const RecallBlock& block : blocks) {
    const int n = block.length(block.steps - 1);
    const Layout layout{Element::kBFloat16, static_cast<int>(block.head_dim), 16,
                        static_cast<int>(block.heads / block.kv_heads),
                        static_cast<int>(block.kv_heads)};
    Cache cache = hostCache(layout, {n}, 18);
    const size_t width = size_t{block.heads} * block.head_dim;
    cache.keys[0].assign(block.keys.begin(), block.keys.begin() + cache.keys[0].size());
    cache.values[0].assign(block.values.begin(), block.values.begin() + cache.values[0].size());
    cache.queries.assign(block.queries.end() - width, block.queries.end());
    cache.write();
    Gpu gpu(cache, layout.element);
    expectDense(cache, layout.element, gpu.run(kDense));
  }
}

}  // namespace
}  // namespace allot::kernels
