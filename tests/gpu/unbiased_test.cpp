// Means over many sequences of the GPU's outputs are exact attention, for the methods that promise
// it. Seeds are fixed; z is normal to good approximation (means of 4000 bounded numbers).
#include <cmath>

#include "tests/gpu/gpu_fixture.h"

namespace allot::kernels {
namespace {

// |z| > 6.4 has probability 1.6e-10: over at most 6400 comparisons in all tests of this file
// (methods x states x budgets x heads x channels) a false alarm in a million changes of the seed.
constexpr double kZ = 6.4;
constexpr int kReplicates = 4000;

bool unbiased(const MethodOptions& method) {
  const bool divided = method.group_draws && method.weights == Weights::kSelf;
  return traitsOf(method.method).promise == Promise::kUnbiased && !method.largest_remainder &&
         !divided;
}

// The largest |z| of the mean over rows, each a replicate, of head `head` against `expected`, whose
// error is `slack`. Coordinates that do not vary are compared by their distance.
double largestZ(const std::vector<float>& out, int heads, int head, int dim,
                const std::vector<double>& expected, double slack) {
  double largest = 0;
  const size_t stride = static_cast<size_t>(heads) * dim;
  const double count = static_cast<double>(out.size() / stride);
  for (int d = 0; d < dim; ++d) {
    double sum = 0, squares = 0;
    for (size_t at = static_cast<size_t>(head) * dim + d; at < out.size(); at += stride) {
      const double e = out[at] - expected[d];
      sum += e;
      squares += e * e;
    }
    const double mean = sum / count;
    const double deviation = std::sqrt(std::max(0.0, squares / count - mean * mean) / count);
    const double excess = std::max(0.0, std::fabs(mean) - slack);
    largest = std::max(largest, std::isnan(mean) ? INFINITY : excess / (deviation + 1e-7));
  }
  return largest;
}

using Unbiased = GpuMethodTest;

TEST_P(Unbiased, MeanIsExactAttention) {
  if (!unbiased(method)) GTEST_SKIP() << "needs a method that promises unbiased outputs";
  const Layout layouts[] = {{Element::kBFloat16, 64, 16, 2, 1}, {Element::kFloat16, 64, 64, 2, 1}};
  for (const Layout& layout : layouts) {
    for (const int budget : {1, 8, 40}) {
      SCOPED_TRACE(textOf(layout) + ", S " + std::to_string(budget));
      Cache cache = hostCache(layout, {600}, 101);
      const std::vector<double> exact[] = {cache.exact(0, 0), cache.exact(0, 1)};
      cache.budgets = {static_cast<uint32_t>(budget)};
      cache.repeatFirstRow(kReplicates, 1);
      Gpu gpu(cache, layout.element);
      const std::vector<float> out = gpu.run(method).out;
      for (int head = 0; head < 2; ++head) {
        // Masses are rounded at random to 2^-11 at worst, so that what is estimated is off by some
        // 2^-13 of |o|: no coordinate is off by more than this.
        double norm = 0;
        for (const double x : exact[head]) norm += x * x;
        EXPECT_LT(largestZ(out, 2, head, 64, exact[head], 0x1p-12 * std::sqrt(norm)), kZ);
        // The twin: something else than exact attention is seen.
        std::vector<double> other = exact[head];
        for (double& x : other) x *= budget == 1 ? 2.5 : 1.5;
        EXPECT_GT(largestZ(out, 2, head, 64, other, 0), kZ);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Methods, Unbiased, testing::ValuesIn(sampledMethodTexts()),
                         methodTestName);

}  // namespace
}  // namespace allot::kernels
