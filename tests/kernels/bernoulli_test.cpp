// Bernoulli scores: means, variances and feature access against their closed forms, and the edges.
//
// The z-tests compare means of kDraws draws at fixed seeds with 5 standard errors. All of them
// together are fewer than 5000 comparisons at 5.7e-7 each: a false alarm, were the seeds drawn
// anew, in fewer than 0.3 % of builds. Each has a twin with a planted bias that must be found.
#include "kernels/cpu/bernoulli.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "tests/kernels/key_pool.h"

namespace allot::kernels {
namespace {

constexpr int kDim = 64;
constexpr int kDraws = 8000;
constexpr double kLimit = 5;
constexpr uint64_t kSeed = 77;

struct Draw {
  std::vector<float> queries;
  std::vector<uint32_t> features;
  uint32_t group_features = 0;
};

Draw draw(const MethodOptions& options, const std::vector<float>& queries, int group,
          uint32_t sequence, int first_head = 4, uint32_t step = 3) {
  Draw result{std::vector<float>(queries.size(), NAN), std::vector<uint32_t>(group), 0};
  bernoulliQueries(options, queries.data(), group, static_cast<int>(queries.size()) / group, kSeed,
                   sequence, step, 2, first_head, result.queries.data(), result.features.data(),
                   &result.group_features);
  return result;
}

MethodOptions bernoulli(uint32_t samples, bool iid, bool mean = false) {
  MethodOptions options;
  options.method = Method::kBernoulli;
  options.feature_samples = samples;
  options.iid_features = iid;
  options.mean_group_query = mean;
  return options;
}

// Closed forms for one draw set: hit probabilities p_i and what follows from them.
struct Law {
  Law(const MethodOptions& options, const std::vector<float>& queries, int group)
      : samples(options.feature_samples), iid(options.iid_features) {
    const int dim = static_cast<int>(queries.size()) / group;
    for (int i = 0; i < dim; ++i) {
      double sum = 0;
      for (int g = 0; g < group; ++g) sum += std::fabs(queries[g * dim + i]);
      size.push_back(sum / group);
      largest = std::max(largest, size.back());
    }
    for (const double s : size) p.push_back(s / largest);
  }
  double fraction(int i) const { return samples * p[i] - std::floor(samples * p[i]); }
  // Of n_i / B.
  double variance(int i) const {
    return iid ? p[i] * (1 - p[i]) / samples
               : fraction(i) * (1 - fraction(i)) / (samples * samples);
  }
  // E (n_i / B - p_i)^4.
  double fourth(int i) const {
    const double trials = iid ? samples : 1, f = iid ? p[i] : fraction(i), v = f * (1 - f);
    return trials * v * (1 + 3 * (trials - 2) * v) / std::pow(samples, 4);
  }
  double access(int i) const {
    return iid ? 1 - std::pow(1 - p[i], samples) : std::min(1.0, samples * p[i]);
  }
  double samples;
  bool iid;
  double largest = 0;
  std::vector<double> size, p;
};

struct Case {
  MethodOptions options;
  int group;
};

std::vector<Case> cases() {
  std::vector<Case> list;
  for (const uint32_t samples : {1u, 2u, 4u, 8u, 16u}) {
    for (const bool iid : {false, true}) {
      for (const bool mean : {false, true}) list.push_back({bernoulli(samples, iid, mean), 4});
    }
  }
  return list;
}

std::string nameOf(const Case& c) { return methodText(c.options); }

// What a planted bias does to a head's query.
using Spoil = std::function<void(std::vector<float>*)>;

// The largest |mean - expected| in standard errors over heads and 6 keys; scores' variance in
// closed form.
double largestScoreError(const Case& c, const Spoil& spoil) {
  const std::vector<float> queries = normals(static_cast<size_t>(c.group) * kDim, 5);
  const std::vector<float> keys = normals(6 * kDim, 6);
  std::vector<double> sums(static_cast<size_t>(c.group) * 6, 0.0);
  for (int r = 0; r < kDraws; ++r) {
    Draw one = draw(c.options, queries, c.group, static_cast<uint32_t>(r));
    spoil(&one.queries);
    for (int g = 0; g < c.group; ++g) {
      for (int j = 0; j < 6; ++j) {
        for (int i = 0; i < kDim; ++i) {
          sums[g * 6 + j] += double{one.queries[g * kDim + i]} * keys[j * kDim + i];
        }
      }
    }
  }
  double worst = 0;
  for (int g = 0; g < c.group; ++g) {
    const bool mean = c.options.mean_group_query;
    const std::vector<float> own(queries.begin() + g * kDim, queries.begin() + (g + 1) * kDim);
    const Law law(c.options, mean ? queries : own, mean ? c.group : 1);
    for (int j = 0; j < 6; ++j) {
      double expected = 0, variance = 0;
      for (int i = 0; i < kDim; ++i) {
        const double k = keys[j * kDim + i];
        expected += own[i] * k;
        variance += std::pow(k * own[i] / law.p[i], 2) * law.variance(i);
      }
      const double error = sums[g * 6 + j] / kDraws - expected;
      worst = std::max(worst, std::fabs(error) / std::sqrt(variance / kDraws));
    }
  }
  return worst;
}

TEST(Bernoulli, ScoresAreUnbiased) {
  for (const Case& c : cases()) {
    EXPECT_LT(largestScoreError(c, [](auto*) {}), kLimit) << nameOf(c);
  }
}

TEST(Bernoulli, APlantedBiasOfScoresIsFound) {
  for (const Case& c : cases()) {
    const Spoil five_percent_more = [](std::vector<float>* queries) {
      for (float& q : *queries) q *= 1.05f;
    };
    // One feature never read.
    const Spoil one_lost = [](std::vector<float>* queries) {
      for (size_t i = 9; i < queries->size(); i += kDim) (*queries)[i] = 0;
    };
    EXPECT_GT(largestScoreError(c, five_percent_more), kLimit) << nameOf(c);
    EXPECT_GT(largestScoreError(c, one_lost), kLimit) << nameOf(c);
  }
}

// n_i / B of one head or one group, [draws][dim], from what the queries became.
std::vector<std::vector<double>> hitShares(const Case& c, const std::vector<float>& queries,
                                           const Law& law) {
  std::vector<std::vector<double>> shares;
  for (int r = 0; r < kDraws; ++r) {
    const Draw one = draw(c.options, queries, c.group, static_cast<uint32_t>(r));
    std::vector<double> share(kDim);
    for (int i = 0; i < kDim; ++i) share[i] = double{one.queries[i]} / queries[i] * law.p[i];
    shares.push_back(std::move(share));
  }
  return shares;
}

// The largest |sample variance - variance| in standard errors; `planted` is added to the formula.
double largestVarianceError(const Case& c, double planted) {
  const std::vector<float> queries = normals(static_cast<size_t>(c.group) * kDim, 5);
  const Law law(c.options, queries, c.group);
  const auto shares = hitShares(c, queries, law);
  double worst = 0;
  for (int i = 0; i < kDim; ++i) {
    const double variance = law.variance(i) * (1 + planted);
    const double error_variance = law.fourth(i) - law.variance(i) * law.variance(i);
    // Where nearly no draw differs from the rest, or exactly half do, normal limits do not hold.
    if (error_variance < 0.05 * law.variance(i) * law.variance(i)) continue;
    if (law.variance(i) * law.samples * law.samples * kDraws < 200) continue;
    double squares = 0;
    for (const auto& share : shares) squares += std::pow(share[i] - law.p[i], 2);
    const double error = squares / kDraws - variance;
    worst = std::max(worst, std::fabs(error) / std::sqrt(error_variance / kDraws));
  }
  return worst;
}

TEST(Bernoulli, VarianceOfHitsIsTheFormulas) {
  for (const Case& c : cases()) {
    const Case one_set{c.options, c.options.mean_group_query ? c.group : 1};
    EXPECT_LT(largestVarianceError(one_set, 0), kLimit) << nameOf(c);
    EXPECT_GT(largestVarianceError(one_set, 0.1), kLimit) << nameOf(c);
  }
}

TEST(Bernoulli, StratifiedHitsAreFloorOrOneMore) {
  for (const Case& c : cases()) {
    if (c.options.iid_features) continue;
    const Case one_set{c.options, c.options.mean_group_query ? c.group : 1};
    const auto queries = normals(static_cast<size_t>(one_set.group) * kDim, 5);
    const Law law(c.options, queries, one_set.group);
    for (const auto& share : hitShares(one_set, queries, law)) {
      for (int i = 0; i < kDim; ++i) {
        const double n = share[i] * law.samples, below = std::floor(law.samples * law.p[i]);
        ASSERT_LT(std::min(std::fabs(n - below), std::fabs(n - below - 1)), 1e-4) << nameOf(c);
      }
    }
  }
}

// Features read by head 0 and by the group, in standard errors from their closed forms.
struct AccessErrors {
  double head, group;
};
AccessErrors accessErrors(const Case& c, double planted) {
  const auto queries = normals(static_cast<size_t>(c.group) * kDim, 5);
  double heads = 0, groups = 0;
  for (int r = 0; r < kDraws; ++r) {
    const Draw one = draw(c.options, queries, c.group, static_cast<uint32_t>(r));
    heads += one.features[0];
    groups += one.group_features;
  }
  std::vector<Law> laws;
  for (int g = 0; g < c.group && !c.options.mean_group_query; ++g) {
    laws.emplace_back(
        c.options, std::vector<float>(queries.begin() + g * kDim, queries.begin() + (g + 1) * kDim),
        1);
  }
  if (laws.empty()) laws.emplace_back(c.options, queries, c.group);
  double head = 0, head_variance = 0, group = 0, group_variance = 0;
  for (int i = 0; i < kDim; ++i) {
    const double own = laws[0].access(i);
    double none = 1;
    for (const Law& law : laws) none *= 1 - law.access(i);
    head += own;
    head_variance += own * (1 - own);
    group += 1 - none;
    group_variance += none * (1 - none);
  }
  const auto error = [&](double sum, double expected, double variance) {
    variance = std::max(variance, 1e-12);  // where every feature is certain
    return std::fabs(sum / kDraws - expected * (1 + planted)) / std::sqrt(variance / kDraws);
  };
  return {error(heads, head, head_variance), error(groups, group, group_variance)};
}

TEST(Bernoulli, FeatureAccessIsTheFormulas) {
  for (const Case& c : cases()) {
    const AccessErrors errors = accessErrors(c, 0);
    EXPECT_LT(errors.head, kLimit) << nameOf(c);
    EXPECT_LT(errors.group, kLimit) << nameOf(c);
    const AccessErrors planted = accessErrors(c, 0.02);
    EXPECT_GT(planted.head, kLimit) << nameOf(c);
    EXPECT_GT(planted.group, kLimit) << nameOf(c);
  }
}

TEST(Bernoulli, MeanGroupQueryReadsOneSetOfFeatures) {
  const auto queries = normals(4 * kDim, 5);
  uint32_t fewest = kDim;
  for (uint32_t r = 0; r < 200; ++r) {
    const Draw one = draw(bernoulli(2, false, true), queries, 4, r);
    uint32_t features = 0;
    for (int i = 0; i < kDim; ++i) {
      const bool read = one.queries[i] != 0;
      for (int g = 1; g < 4; ++g) ASSERT_EQ(one.queries[g * kDim + i] != 0, read) << i;
      features += read ? 1 : 0;
    }
    EXPECT_EQ(one.group_features, features);
    EXPECT_EQ(one.features, std::vector<uint32_t>(4, features));
    fewest = std::min(fewest, features);
  }
  EXPECT_LT(fewest, kDim);
}

TEST(Bernoulli, AGroupOfOneIsItsOwnMean) {
  // Not the same draws (their blocks differ), but the same law: checked by the closed forms.
  for (const bool iid : {false, true}) {
    const Case c{bernoulli(4, iid, true), 1};
    EXPECT_LT(largestScoreError(c, [](auto*) {}), kLimit);
    EXPECT_LT(accessErrors(c, 0).group, kLimit);
  }
}

TEST(Bernoulli, ZeroQueriesStayZeroAndReadNothing) {
  for (const bool iid : {false, true}) {
    for (const bool mean : {false, true}) {
      const Draw none = draw(bernoulli(4, iid, mean), std::vector<float>(2 * kDim, 0.0f), 2, 0);
      EXPECT_EQ(none.queries, std::vector<float>(2 * kDim, 0.0f));
      EXPECT_EQ(none.features, std::vector<uint32_t>(2, 0));
      EXPECT_EQ(none.group_features, 0u);
      // One head of two is zero, and one feature of the other: they stay so.
      std::vector<float> queries = normals(2 * kDim, 9);
      std::fill_n(queries.begin(), kDim, 0.0f);
      queries[kDim + 5] = -0.0f;
      const Draw half = draw(bernoulli(4, iid, mean), queries, 2, 0);
      for (int i = 0; i < kDim; ++i) EXPECT_EQ(half.queries[i], 0.0f);
      EXPECT_EQ(half.queries[kDim + 5], 0.0f);
      EXPECT_GT(half.group_features, 0u);
      EXPECT_EQ(half.features[1], half.group_features);
    }
  }
}

TEST(Bernoulli, OneSampleIsTernary) {
  const auto queries = normals(kDim, 5);
  float largest = 0;
  for (const float q : queries) largest = std::max(largest, std::fabs(q));
  for (const bool iid : {false, true}) {
    for (uint32_t r = 0; r < 200; ++r) {
      const Draw one = draw(bernoulli(1, iid), queries, 1, r);
      uint32_t features = 0;
      for (int i = 0; i < kDim; ++i) {
        const float q = one.queries[i];
        if (q == 0) continue;
        ++features;
        ASSERT_FLOAT_EQ(q, std::copysign(largest, queries[i]));
      }
      ASSERT_EQ(one.features[0], features);
    }
  }
}

TEST(Bernoulli, EqualMagnitudesAreExact) {
  std::vector<float> queries(2 * kDim, 0.37f);
  for (size_t i = 0; i < queries.size(); i += 3) queries[i] = -0.37f;
  for (const Case& c : cases()) {
    const Draw one = draw(c.options, queries, 2, 1);
    for (size_t i = 0; i < queries.size(); ++i) ASSERT_FLOAT_EQ(one.queries[i], queries[i]);
    EXPECT_EQ(one.group_features, static_cast<uint32_t>(kDim));
  }
}

TEST(Bernoulli, TinyAndHugeQueriesStayFinite) {
  for (const float size : {1e-38f, 1e-44f, 1e37f}) {
    std::vector<float> queries = {size, -size, size / 2, 0, size / 4, size, 0, -size};
    for (const Case& c : cases()) {
      const Draw one = draw(c.options, queries, 2, 1);
      for (const float q : one.queries) ASSERT_TRUE(std::isfinite(q)) << size;
    }
  }
}

TEST(Bernoulli, DrawsBelongToHeadStepAndSequence) {
  const auto queries = normals(4 * kDim, 5);
  const MethodOptions options = bernoulli(2, false);
  const Draw group = draw(options, queries, 4, 11);
  EXPECT_EQ(draw(options, queries, 4, 11).queries, group.queries);
  EXPECT_NE(draw(options, queries, 4, 12).queries, group.queries);
  EXPECT_NE(draw(options, queries, 4, 11, 4, 4).queries, group.queries);
  for (int g = 0; g < 4; ++g) {  // a head alone draws what it draws in its group
    const std::vector<float> own(queries.begin() + g * kDim, queries.begin() + (g + 1) * kDim);
    const std::vector<float> then(group.queries.begin() + g * kDim,
                                  group.queries.begin() + (g + 1) * kDim);
    EXPECT_EQ(draw(options, own, 1, 11, 4 + g).queries, then);
  }
}

}  // namespace
}  // namespace allot::kernels
