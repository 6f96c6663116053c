// The dense half of a decode step against its formulas, and whole methods' text.
#include "allot/kernels/dense_ops.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "allot/kernels/method.h"

namespace allot::kernels {
namespace {

// Whether the kernels' multiply-adds are fused: not on an old processor, nor in sanitized builds.
bool fuses() {
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  return __builtin_cpu_supports("fma");
#else
  return false;
#endif
}

// Each output is one chain of multiply-adds over k, which is what runs have been made of since the
// first build: however many rows or panels are done together, on whichever processor.
TEST(DenseOps, MultiplyIsExactInAnyBatch) {
  std::mt19937 random(2);
  std::normal_distribution<float> normal;
  constexpr int kRows = 40;
  for (auto [outputs, inputs] :
       {std::pair{33, 48}, {256, 640}, {16, 16}, {48, 80}, {31, 16}, {7, 5}}) {
    std::vector<float> weights(outputs * inputs), x(kRows * inputs), y(kRows * outputs);
    for (float& w : weights) w = normal(random);
    for (float& v : x) v = normal(random);
    const PackedWeights packed(weights.data(), outputs, inputs);
    for (int r = 0; r < kRows; ++r) {
      packed.multiply(x.data() + r * inputs, 1, y.data() + r * outputs);
      for (int o = 0; o < outputs; ++o) {
        float chain = 0;
        double exact = 0;
        for (int i = 0; i < inputs; ++i) {
          chain = std::fma(x[r * inputs + i], weights[o * inputs + i], chain);
          exact += static_cast<double>(x[r * inputs + i]) * weights[o * inputs + i];
        }
        EXPECT_NEAR(y[r * outputs + o], exact, 2e-4);
        if (fuses()) {
          EXPECT_EQ(y[r * outputs + o], chain);
        }
      }
    }
    // Rows come in tiles of up to twelve, one panel or two at a time, and each size of a tile is
    // another loop, of which a compiler may make other sums.
    for (int rows = 2; rows <= kRows; ++rows) {
      constexpr int kGuard = 3;
      std::vector<float> part(rows * outputs + kGuard, -7.0f);
      packed.multiply(x.data(), rows, part.data());
      EXPECT_TRUE(std::equal(part.begin(), part.end() - kGuard, y.begin()))
          << outputs << " x " << inputs << ", " << rows << " rows";
      EXPECT_EQ(std::count(part.end() - kGuard, part.end(), -7.0f), kGuard);
    }
  }
}

TEST(DenseOps, SiluAndNormEqualTheirFormulas) {
  const int width = 80;
  std::vector<float> gate_up(2 * width), out(width), normed(width), ones(width, 1.0f);
  for (int i = 0; i < width; ++i) {
    gate_up[i] = -100.0f + 2.5f * static_cast<float>(i);
    gate_up[width + i] = 0.5f + static_cast<float>(i % 3);
  }
  gatedSilu(gate_up.data(), 1, width, out.data());
  double squares = 0;
  for (int i = 0; i < width; ++i) {
    const double g = gate_up[i];
    const double expected = g / (1 + std::exp(-g)) * gate_up[width + i];
    EXPECT_NEAR(out[i], expected, 1e-6 + 1e-6 * std::abs(expected));
    squares += g * g / width;
  }
  rmsNorm(gate_up.data(), ones.data(), 1, width, 1e-5f, normed.data());
  for (int i = 0; i < width; ++i) EXPECT_NEAR(normed[i], gate_up[i] / std::sqrt(squares), 1e-5);
}

TEST(Methods, NamesParseBack) {
  for (std::string_view name : methodNames()) {
    MethodOptions options;
    EXPECT_EQ(parseMethod(name, &options), std::nullopt) << name;
    EXPECT_EQ(methodText(options), name);
  }
  MethodOptions options;
  EXPECT_NE(parseMethod("nonsense", &options), std::nullopt);
}

}  // namespace
}  // namespace allot::kernels
