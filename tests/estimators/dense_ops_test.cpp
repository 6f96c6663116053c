// The dense half of a decode step against its formulas, and whole methods' text.
#include "allot/kernels/dense_ops.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "allot/kernels/method.h"

namespace allot::kernels {
namespace {

TEST(DenseOps, MultiplyIsExactInAnyBatch) {
  std::mt19937 random(2);
  std::normal_distribution<float> normal;
  for (auto [outputs, inputs] : {std::pair{33, 48}, {256, 640}, {16, 16}}) {
    std::vector<float> weights(outputs * inputs), x(19 * inputs), y(19 * outputs);
    for (float& w : weights) w = normal(random);
    for (float& v : x) v = normal(random);
    const PackedWeights packed(weights.data(), outputs, inputs);
    packed.multiply(x.data(), 19, y.data());
    // A batch's last rows are done two to seven at a time: each of these is another loop, of which
    // a compiler may make other sums.
    for (int rows = 2; rows < 9; ++rows) {
      std::vector<float> part(rows * outputs);
      packed.multiply(x.data(), rows, part.data());
      EXPECT_TRUE(std::equal(part.begin(), part.end(), y.begin())) << rows << " rows";
    }
    for (int r = 0; r < 19; ++r) {
      std::vector<float> alone(outputs);
      packed.multiply(x.data() + r * inputs, 1, alone.data());
      for (int o = 0; o < outputs; ++o) {
        EXPECT_EQ(alone[o], y[r * outputs + o]);
        double exact = 0;
        for (int i = 0; i < inputs; ++i) {
          exact += static_cast<double>(x[r * inputs + i]) * weights[o * inputs + i];
        }
        EXPECT_NEAR(alone[o], exact, 2e-4);
      }
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
