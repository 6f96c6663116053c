// Decode attention on the CPU: integers against a brute-force reference, means and variances
// against their closed forms, and the edges.
#include "allot/kernels/decode.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "allot/kernels/dense_ops.h"
#include "allot/kernels/philox.h"

namespace allot::kernels {
namespace {

constexpr int kDim = 64;

// A one-layer cache of `rows` sequences with random keys and values, in shuffled pages.
struct Cache {
  Cache(std::vector<int> row_lengths, int kv_heads, int heads, int page_size, uint64_t seed)
      : lengths(row_lengths.begin(), row_lengths.end()), heads(heads) {
    std::mt19937_64 random(seed);
    std::normal_distribution<float> normal;
    const int longest = *std::max_element(lengths.begin(), lengths.end());
    max_pages = (longest + page_size - 1) / page_size + 1;
    const int rows = static_cast<int>(lengths.size());
    table.resize(static_cast<size_t>(rows) * max_pages);
    std::iota(table.begin(), table.end(), 0);
    std::mt19937_64 order(seed);  // of its own: the numbers below are the same for any page size
    std::shuffle(table.begin(), table.end(), order);
    keys.resize(table.size() * kv_heads * page_size * kDim);
    // Whatever is beyond a row's length must not be read: it would poison the result.
    values.assign(keys.size(), std::numeric_limits<float>::quiet_NaN());
    keys = values;
    kv = {keys.data(), values.data(), static_cast<int64_t>(table.size()),
          kv_heads,    page_size,     kDim};
    for (int r = 0; r < rows; ++r) {
      for (int j = 0; j < lengths[r]; ++j) {
        for (int h = 0; h < kv_heads; ++h) {
          for (int d = 0; d < kDim; ++d) {
            keys[at(r, h, j) + d] = normal(random);
            values[at(r, h, j) + d] = normal(random);
          }
        }
      }
    }
    queries.resize(static_cast<size_t>(rows) * heads * kDim);
    for (float& q : queries) q = normal(random);
    budgets.assign(rows, 4);
    sequences.resize(rows);
    std::iota(sequences.begin(), sequences.end(), 100u);
    steps.assign(rows, 5);
  }

  int64_t at(int row, int kv_head, int j) const {
    return kv.offset(table[static_cast<size_t>(row) * max_pages + j / kv.page_size], kv_head,
                     j % kv.page_size);
  }
  int kvHead(int head) const { return head / (heads / kv.kv_heads); }

  DecodeInputs inputs(float scale = 0.125f) const {
    return {queries.data(),
            table.data(),
            lengths.data(),
            budgets.data(),
            sequences.data(),
            steps.data(),
            static_cast<int>(lengths.size()),
            heads,
            max_pages,
            3,
            77,
            scale};
  }

  struct Run {
    std::vector<float> out, lse;
    std::vector<RowStatistics> statistics;
  };
  Run run(Method method, const DecodeInputs& in) const {
    Run run;
    run.out.assign(queries.size(), std::numeric_limits<float>::quiet_NaN());
    run.lse.assign(lengths.size() * heads, 0);
    run.statistics.resize(lengths.size());
    DecodeWorkspace workspace;
    workspace.plan(*std::max_element(lengths.begin(), lengths.end()), heads / kv.kv_heads);
    decodeAttention(method, kv, in, &workspace,
                    {run.out.data(), run.lse.data(), run.statistics.data()});
    return run;
  }

  // a_j of one row and head in double precision.
  std::vector<double> probabilities(int row, int head, float scale = 0.125f) const {
    std::vector<double> a(lengths[row]);
    double top = -1e300;
    for (int j = 0; j < lengths[row]; ++j) {
      double s = 0;
      for (int d = 0; d < kDim; ++d) {
        s += static_cast<double>(queries[(static_cast<size_t>(row) * heads + head) * kDim + d]) *
             keys[at(row, kvHead(head), j) + d];
      }
      a[j] = s * scale;
      top = std::max(top, a[j]);
    }
    double total = 0;
    for (double& x : a) total += x = std::exp(x - top);
    for (double& x : a) x /= total;
    return a;
  }
  std::vector<double> exact(int row, int head) const {
    const auto a = probabilities(row, head);
    std::vector<double> o(kDim, 0.0);
    for (int j = 0; j < lengths[row]; ++j) {
      for (int d = 0; d < kDim; ++d) o[d] += a[j] * values[at(row, kvHead(head), j) + d];
    }
    return o;
  }

  std::vector<int32_t> table, lengths;
  std::vector<float> keys, values, queries;
  std::vector<uint32_t> budgets, sequences, steps;
  PagedKv kv;
  int heads;
  int max_pages = 0;
};

// Values that are the unit vectors of their position: the output then is the histogram of draws.
// Keys make s_j = log(weight_j) for the query (1, 0, 0, ...).
struct Histogram {
  Histogram(const std::vector<double>& weights, int page_size)
      : cache({static_cast<int>(weights.size())}, 1, 1, page_size, 1), weights(weights) {
    const int n = static_cast<int>(weights.size());
    EXPECT_LE(n, kDim);
    std::fill(cache.queries.begin(), cache.queries.end(), 0.0f);
    cache.queries[0] = 1;
    for (int j = 0; j < n; ++j) {
      float* key = cache.keys.data() + cache.at(0, 0, j);
      float* value = cache.values.data() + cache.at(0, 0, j);
      std::fill_n(key, kDim, 0.0f);
      std::fill_n(value, kDim, 0.0f);
      key[0] = static_cast<float>(std::log(weights[j]));
      value[j] = 1;
    }
  }
  // Draws of each key.
  std::vector<int> counts(Method method, uint32_t budget, uint32_t sequence) {
    cache.budgets[0] = budget;
    cache.sequences[0] = sequence;
    const auto run = cache.run(method, cache.inputs(1.0f));
    std::vector<int> counts;
    for (size_t j = 0; j < weights.size(); ++j) {
      const double draws = static_cast<double>(run.out[j]) * budget;
      EXPECT_NEAR(draws, std::round(draws), 1e-3);
      counts.push_back(static_cast<int>(std::lround(draws)));
    }
    return counts;
  }
  Cache cache;
  std::vector<double> weights;
};

// Weights that are powers of two: masses and their sums are exact in float, so the reference's
// integers must be met exactly.
std::vector<double> coarseWeights(int n, std::mt19937* random) {
  std::vector<double> weights(n);
  for (double& w : weights) w = std::ldexp(1.0, -static_cast<int>((*random)() % 5));
  weights[(*random)() % n] = 1.0;  // the maximum, so that exp(s - max) is the weight itself
  return weights;
}

TEST(S2antaSys, CountsEqualTheBruteForceReference) {
  std::mt19937 random(5);
  for (int trial = 0; trial < 400; ++trial) {
    const int n = 2 + static_cast<int>(random() % 63);
    const uint32_t budget = 1 + random() % (n - 1);
    Histogram histogram(coarseWeights(n, &random), trial % 2 ? 16 : 64);
    const auto counts = histogram.counts(Method::kS2antaSys, budget, trial);
    const double total = std::accumulate(histogram.weights.begin(), histogram.weights.end(), 0.0);
    const double u = uniformFloat(philox(77, trial, 5, 3 << 16, 0)[0]);
    double prefix = 0;
    double before = 0;
    for (int j = 0; j < n; ++j) {
      prefix += histogram.weights[j];
      const double reached = j + 1 == n ? budget : std::floor(budget * prefix / total + u);
      ASSERT_EQ(counts[j], static_cast<int>(reached - before)) << "trial " << trial << " key " << j;
      before = reached;
      const double share = budget * histogram.weights[j] / total;
      EXPECT_GE(counts[j], std::floor(share - 1e-5));
      EXPECT_LE(counts[j], std::ceil(share + 1e-5));
    }
  }
}

TEST(Sampling, CountsSumToTheBudgetAndDrawNothingImpossible) {
  std::mt19937 random(6);
  for (Method method : {Method::kS2antaSys, Method::kSanta}) {
    for (int trial = 0; trial < 300; ++trial) {
      const int n = 2 + static_cast<int>(random() % 63);
      std::vector<double> weights(n, 0.0);  // log 0: masked keys
      const int live = 1 + static_cast<int>(random() % n);
      for (int i = 0; i < live; ++i) weights[random() % n] = 1 + random() % 9;
      const uint32_t budget = 1 + random() % (n - 1);
      Histogram histogram(weights, 16);
      const auto counts = histogram.counts(method, budget, trial);
      EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), 0), static_cast<int>(budget));
      for (int j = 0; j < n; ++j) {
        if (weights[j] == 0) {
          EXPECT_EQ(counts[j], 0);
        }
      }
    }
  }
}

// Means over 20000 independent offsets against S a_j. A z over 5 has probability 6e-7 a comparison;
// 2 methods x 24 keys: a false alarm in 30000 changes of the seed. A bias of 1 % of a count would
// show at z > 7 for the heavier keys (the last test of this file plants one).
std::vector<double> zScores(Method method, double bias) {
  std::mt19937 random(7);
  Histogram histogram(coarseWeights(24, &random), 16);
  const double total = std::accumulate(histogram.weights.begin(), histogram.weights.end(), 0.0);
  const uint32_t budget = 9;
  constexpr int kTrials = 20000;
  std::vector<double> sums(24), squares(24), z(24);
  for (int trial = 0; trial < kTrials; ++trial) {
    const auto counts = histogram.counts(method, budget, trial);
    for (int j = 0; j < 24; ++j) {
      sums[j] += counts[j];
      squares[j] += static_cast<double>(counts[j]) * counts[j];
    }
  }
  for (int j = 0; j < 24; ++j) {
    const double mean = sums[j] / kTrials * (1 + bias);
    const double variance = squares[j] / kTrials - (sums[j] / kTrials) * (sums[j] / kTrials);
    const double expected = budget * histogram.weights[j] / total;
    z[j] = (mean - expected) / std::sqrt(std::max(variance, 1e-6) / kTrials);
  }
  return z;
}

TEST(Sampling, IsUnbiased) {
  for (Method method : {Method::kS2antaSys, Method::kSanta}) {
    for (double z : zScores(method, 0)) EXPECT_LT(std::abs(z), 5);
  }
}

TEST(Sampling, TheTestOfUnbiasednessSeesAPlantedBias) {
  const auto z = zScores(Method::kSanta, 0.03);
  EXPECT_GT(*std::max_element(z.begin(), z.end()), 5);
}

// tr Cov of iid sampling is (sum_j a_j |v_j|^2 - |o|^2) / S (SANTA paper, Appendix N); systematic
// sampling never does worse here. 4000 replicates: the estimate's relative error is about 3 %.
TEST(Sampling, VarianceIsTheClosedFormAndSystematicIsBelowIt) {
  Cache cache({200}, 1, 1, 16, 3);
  const auto a = cache.probabilities(0, 0);
  const auto o = cache.exact(0, 0);
  double second = 0;
  for (int j = 0; j < 200; ++j) {
    for (int d = 0; d < kDim; ++d) {
      const double v = cache.values[cache.at(0, 0, j) + d];
      second += a[j] * v * v;
    }
  }
  for (double x : o) second -= x * x;
  for (uint32_t budget : {4u, 16u, 64u}) {
    double error[2] = {0, 0};
    cache.budgets[0] = budget;
    for (int m = 0; m < 2; ++m) {
      for (uint32_t trial = 0; trial < 4000; ++trial) {
        cache.sequences[0] = trial;
        const auto run = cache.run(m ? Method::kS2antaSys : Method::kSanta, cache.inputs());
        for (int d = 0; d < kDim; ++d) error[m] += (run.out[d] - o[d]) * (run.out[d] - o[d]) / 4000;
      }
    }
    EXPECT_NEAR(error[0], second / budget, 0.1 * second / budget);
    EXPECT_LT(error[1], error[0]);
  }
}

TEST(Dense, EqualsDoublePrecisionForEveryShape) {
  for (int page_size : {16, 64}) {
    for (int heads : {1, 2, 8, 12}) {
      const int kv_heads = heads % 3 == 0 ? 3 : heads >= 8 ? 2 : 1;
      Cache cache({1, page_size - 1, page_size, page_size + 1, 333}, kv_heads, heads, page_size, 9);
      std::fill(cache.budgets.begin(), cache.budgets.end(), UINT32_MAX);
      const auto run = cache.run(Method::kDense, cache.inputs());
      for (int r = 0; r < 5; ++r) {
        for (int h = 0; h < heads; ++h) {
          const auto o = cache.exact(r, h);
          for (int d = 0; d < kDim; ++d) {
            ASSERT_NEAR(run.out[(static_cast<size_t>(r) * heads + h) * kDim + d], o[d], 2e-6);
          }
        }
        EXPECT_EQ(run.statistics[r].draws, static_cast<uint64_t>(cache.lengths[r]) * heads);
      }
    }
  }
}

TEST(Decode, BudgetsAtTheEdges) {
  Cache cache({40, 40, 40, 40, 40, 0}, 2, 4, 16, 11);
  cache.budgets = {0, 1, 39, 40, 45, 7};
  for (Method method : {Method::kS2antaSys, Method::kSanta, Method::kTopK}) {
    const auto run = cache.run(method, cache.inputs());
    for (int h = 0; h < 4; ++h) {
      const auto row = [&](int r) { return run.out.data() + (r * 4 + h) * kDim; };
      for (int d = 0; d < kDim; ++d) {
        EXPECT_EQ(row(0)[d], 0.0f);  // S = 0
        EXPECT_EQ(row(5)[d], 0.0f);  // no keys
        EXPECT_TRUE(std::isfinite(row(1)[d]) && std::isfinite(row(2)[d]));
      }
      for (int r : {3, 4}) {  // S >= n: exact
        const auto o = cache.exact(r, h);
        for (int d = 0; d < kDim; ++d) EXPECT_NEAR(row(r)[d], o[d], 2e-6);
      }
      EXPECT_EQ(run.lse[5 * 4 + h], -std::numeric_limits<float>::infinity());
      EXPECT_TRUE(std::isfinite(run.lse[h]));
    }
    EXPECT_EQ(run.statistics[0].draws, 0u);
    EXPECT_EQ(run.statistics[1].draws, 4u);
    EXPECT_EQ(run.statistics[1].unique_rows, 4u);
    EXPECT_EQ(run.statistics[4].draws, 160u);
    EXPECT_LE(run.statistics[2].unique_rows, 39u * 4);
  }
}

TEST(TopK, KeepsTheLargestRenormalised) {
  Histogram histogram({5, 1, 9, 3, 3, 7, 2, 4}, 16);
  histogram.cache.budgets[0] = 3;
  const auto run = histogram.cache.run(Method::kTopK, histogram.cache.inputs(1.0f));
  const std::vector<double> expected{5 / 21.0, 0, 9 / 21.0, 0, 0, 7 / 21.0, 0, 0};
  for (size_t j = 0; j < expected.size(); ++j) EXPECT_NEAR(run.out[j], expected[j], 1e-5);
}

TEST(Sampling, MassAtTheEndsOfTheRow) {
  for (int heavy : {0, 63}) {
    std::vector<double> weights(64, 1e-12);
    weights[heavy] = 1;
    Histogram histogram(weights, 16);
    for (Method method : {Method::kS2antaSys, Method::kSanta, Method::kTopK}) {
      for (uint32_t sequence = 0; sequence < 50; ++sequence) {
        histogram.cache.budgets[0] = 10;
        histogram.cache.sequences[0] = sequence;
        const auto run = histogram.cache.run(method, histogram.cache.inputs(1.0f));
        EXPECT_NEAR(run.out[heavy], 1, 1e-6);
      }
    }
  }
}

TEST(Decode, RowsAndPageSizesDoNotMatter) {
  for (Method method : {Method::kS2antaSys, Method::kSanta, Method::kTopK}) {
    Cache small({130, 77, 512}, 2, 8, 16, 21);
    Cache large({130, 77, 512}, 2, 8, 64, 21);
    const auto a = small.run(method, small.inputs());
    const auto b = large.run(method, large.inputs());
    EXPECT_EQ(a.out, b.out);
    // The second row alone.
    DecodeInputs one = small.inputs();
    one.rows = 1;
    one.queries += 8 * kDim;
    one.page_table += small.max_pages;
    ++one.lengths, ++one.budgets, ++one.sequences, ++one.steps;
    const auto c = small.run(method, one);
    EXPECT_TRUE(std::equal(c.out.begin(), c.out.begin() + 8 * kDim, a.out.begin() + 8 * kDim));
  }
}

TEST(Philox, KnownAnswers) {
  // From the reference implementation's kat_vectors (Random123), philox4x32-10.
  EXPECT_EQ(philox(0, 0, 0, 0, 0),
            (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox(~uint64_t{0}, ~0u, ~0u, ~0u, ~0u),
            (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox(0x299f31d0a4093822u, 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344),
            (std::array<uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(DenseOps, MultiplyIsExactInAnyBatch) {
  std::mt19937 random(2);
  std::normal_distribution<float> normal;
  for (auto [outputs, inputs] : {std::pair{33, 48}, {256, 640}, {16, 16}}) {
    std::vector<float> weights(outputs * inputs), x(19 * inputs), y(19 * outputs);
    for (float& w : weights) w = normal(random);
    for (float& v : x) v = normal(random);
    const PackedWeights packed(weights.data(), outputs, inputs);
    packed.multiply(x.data(), 19, y.data());
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
    Method method;
    EXPECT_TRUE(parseMethod(name, &method)) << name;
  }
  Method method;
  EXPECT_FALSE(parseMethod("nonsense", &method));
}

}  // namespace
}  // namespace allot::kernels
