// s2anta-q4 and quest through decodeAttention, against brute force: which rows, with which weights,
// what was read. (The bias and variance of s2anta-q4 are tested elsewhere.)
#include <cmath>

#include "allot/kernels/philox.h"
#include "kernels/cpu/key_scores.h"
#include "kernels/cpu/softmax.h"
#include "tests/kernels/fixture.h"

namespace allot::kernels {
namespace {

constexpr int kDim = 64;
constexpr int kHeads = 4;  // over 2 KV heads
constexpr float kScale = 0.125f;
constexpr float kMasked = -std::numeric_limits<float>::infinity();

// One row of n keys with random values, and a decode step over it.
struct Step {
  Step(int length, Element element, int page_size, float mean = 0.5f, float query_size = 1.0f)
      : n(length),
        cache({.lengths = {length},
               .kv_heads = 2,
               .heads = kHeads,
               .page_size = page_size,
               .element = element}) {
    cache.keys[0] = normals(static_cast<size_t>(n) * 2 * kDim, 21);
    for (float& key : cache.keys[0]) key += mean;
    cache.values[0] = normals(cache.keys[0].size(), 22);
    cache.queries = normals(kHeads * kDim, 23, query_size);
    cache.write();
  }

  Cache::Result run(const char* method, uint32_t budget) const {
    DecodeInputs in = cache.inputs();
    in.budgets = &budget;
    in.bias = bias.empty() ? nullptr : bias.data();
    in.bias_stride = n;
    return cache.run(methodOf(method), in);
  }

  // s_j by brute force.
  double score(int head, int j) const {
    double product = 0;
    for (int d = 0; d < kDim; ++d) {
      product += static_cast<double>(query(head)[d]) * cache.pool.key(head / 2, j, d);
    }
    return kScale * product + (bias.empty() ? 0.0 : bias[j]);
  }
  // What `weights` make of the values.
  std::vector<double> output(int head, const std::vector<double>& weights) const {
    std::vector<double> out(kDim);
    for (int j = 0; j < n; ++j) {
      for (int d = 0; d < kDim; ++d) out[d] += weights[j] * cache.pool.value(head / 2, j, d);
    }
    return out;
  }
  void expectOutput(const Cache::Result& result, int head,
                    const std::vector<double>& weights) const {
    const auto expected = output(head, weights);
    double most = 0;
    for (double x : expected) most = std::max(most, std::fabs(x));
    for (int d = 0; d < kDim; ++d) {
      ASSERT_NEAR(result.out[head * kDim + d], expected[d], 2e-5 * std::max(most, 1e-3));
    }
  }

  const float* query(int head) const { return &cache.queries[head * kDim]; }

  int32_t n;
  Cache cache;  // with the scale kScale
  std::vector<float> bias;
};

// The proposal of s2anta-q4 and its draws, key by key from the formula.
struct Proposal {
  Proposal(const Step& at, int head, int bits, uint32_t budget) {
    const int stride = paddedLength(at.n);
    scores.resize(stride);
    shadowScores({&at.cache.pool.kv, at.cache.table.data(), head / 2, at.n}, bits, at.query(head),
                 1, kScale, scores.data(), stride);
    EXPECT_TRUE(finishScores(scores.data(), at.n, at.bias.empty() ? nullptr : at.bias.data()));
    std::vector<float> mass(stride);
    std::vector<uint32_t> weights(stride);
    std::vector<uint64_t> blocks(stride);
    const float top = exponentials(scores.data(), stride, mass.data());
    lse = top + std::log(expWeightTotal(mass.data(), stride));
    const uint64_t total = integerWeights(mass.data(), stride, weights.data(), blocks.data());
    const uint32_t stream = 3u << 16 | static_cast<uint32_t>(head);
    const double u = (philox(77, 100, 5, stream, 0)[0] >> 8) * 0x1p-24;
    long double prefix = 0;
    long double below = 0;
    for (int j = 0; j < at.n; ++j) {
      prefix += weights[j];
      // Exact: 2^30 * 300 * 64 and 24 bits of u are within 64 bits of mantissa.
      const long double reached = std::floor((prefix * budget + u * total) / total);
      counts.push_back(static_cast<uint32_t>(reached - below));
      below = reached;
    }
  }
  std::vector<float> scores;
  std::vector<uint32_t> counts;
  double lse = 0;
};

constexpr int kLength = 203;

struct Q4Case {
  const char* method;
  int bits;
  Element element;
  int page_size;
};

TEST(S2antaQ4, DrawsAndWeightsAreThoseOfTheFormula) {
  for (const Q4Case& c : {Q4Case{"s2anta-q4", 4, Element::kBFloat16, 16},
                          Q4Case{"s2anta-q4", 4, Element::kFloat32, 64},
                          Q4Case{"s2anta-q4 bits=3", 3, Element::kBFloat16, 32},
                          Q4Case{"s2anta-q4 bits=8", 8, Element::kBFloat16, 16}}) {
    Step at(kLength, c.element, c.page_size);
    for (bool masked : {false, true}) {
      if (masked) {
        at.bias = normals(kLength, 24);
        for (int j = 0; j < kLength; j += 3) at.bias[j] = kMasked;
      }
      for (uint32_t budget : {1u, 7u, 64u, kLength - 1u}) {
        const auto result = at.run(c.method, budget);
        for (int head = 0; head < kHeads; ++head) {
          const Proposal proposal(at, head, c.bits, budget);
          std::vector<double> weights(kLength);
          uint32_t drawn = 0, rows = 0;
          double total = 0;
          for (int j = 0; j < kLength; ++j) {
            if (proposal.counts[j] == 0) continue;
            ASSERT_FALSE(masked && j % 3 == 0);
            drawn += proposal.counts[j], ++rows;
            weights[j] = proposal.counts[j] * std::exp(at.score(head, j) - proposal.scores[j]);
            total += weights[j];
          }
          ASSERT_EQ(drawn, budget);
          for (double& weight : weights) weight /= total;
          at.expectOutput(result, head, weights);
          EXPECT_NEAR(result.lse[head], proposal.lse + std::log(total / budget), 1e-5);
          EXPECT_EQ(result.heads[head].draws, budget);
          EXPECT_EQ(result.heads[head].unique_rows, rows);
          const size_t row_bytes = kDim * bytesOf(c.element);
          EXPECT_EQ(result.heads[head].key_bytes,
                    kLength * (kDim * c.bits / 8 + 4u) + rows * row_bytes);
          EXPECT_EQ(result.heads[head].value_bytes, rows * row_bytes);
        }
      }
    }
  }
}

TEST(S2antaQ4, ExactWeightsDivideByTheExactNormaliser) {
  Step at(kLength, Element::kBFloat16, 16);
  at.bias = normals(kLength, 25);
  at.bias[40] = kMasked;
  constexpr uint32_t kBudget = 16;
  const auto result = at.run("s2anta-q4 weights=exact", kBudget);
  const auto dense = at.run("dense", 1);
  for (int head = 0; head < kHeads; ++head) {
    const Proposal proposal(at, head, 4, kBudget);
    double normaliser = 0;
    for (int j = 0; j < kLength; ++j) normaliser += std::exp(at.score(head, j));
    std::vector<double> weights(kLength);
    for (int j = 0; j < kLength; ++j) {
      if (proposal.counts[j] == 0) continue;
      const double exact = std::exp(at.score(head, j)) / normaliser;
      const double proposed = std::exp(proposal.scores[j] - proposal.lse);
      weights[j] = proposal.counts[j] / static_cast<double>(kBudget) * exact / proposed;
    }
    at.expectOutput(result, head, weights);
    EXPECT_NEAR(result.lse[head], dense.lse[head], 1e-5);
    EXPECT_EQ(result.heads[head].key_bytes, kLength * (kDim / 2 + 4u) + kLength * kDim * 2u);
  }
}

// Keys far from the origin: the shadow leaves their mean key out of every score, and the
// estimate of the normaliser must have it once, not twice or never.
TEST(S2antaQ4, MeanKeyIsNotSeen) {
  const Step at(kLength, Element::kFloat32, 16, 60.0f);
  const auto dense = at.run("dense", 1);
  const auto result = at.run("s2anta-q4 bits=8", kLength - 1);
  for (int head = 0; head < kHeads; ++head) {
    double mean_key = 0;
    for (int d = 0; d < kDim; ++d) {
      mean_key += static_cast<double>(at.query(head)[d]) * at.cache.pool.mean_key(head / 2)[d];
    }
    EXPECT_GT(std::fabs(kScale * mean_key), 1) << "this test would see nothing";
    // 8 bits, as many draws as keys less one: the estimate is within a hundredth.
    EXPECT_NEAR(result.lse[head], dense.lse[head], 0.02);
  }
}

// exp(s - s~) of these overflows (or vanishes) without taking the largest out first.
TEST(S2antaQ4, HugeScoresStayFinite) {
  const Step at(kLength, Element::kFloat32, 16, 60.0f, 40.0f);
  const auto result = at.run("s2anta-q4", 64);
  bool beyond = false;
  for (int head = 0; head < kHeads; ++head) {
    beyond |= std::fabs(result.lse[head]) > 800;
    EXPECT_TRUE(std::isfinite(result.lse[head]));
    for (int d = 0; d < kDim; ++d) EXPECT_TRUE(std::isfinite(result.out[head * kDim + d]));
  }
  EXPECT_TRUE(beyond) << "this test would see nothing";
}

// ---- Quest.

// The pages that the rule keeps, by brute force over the keys. within: the newest page is the
// budget's first.
std::vector<int> keptPages(const Step& at, int head, int page_keys, uint32_t budget, bool within) {
  const int pages = (at.n + page_keys - 1) / page_keys;
  std::vector<double> bound(pages);
  for (int page = 0; page < pages; ++page) {
    const int first = page * page_keys, end = std::min(first + page_keys, at.n);
    double most_bias = at.bias.empty() ? 0 : -INFINITY;
    for (int j = first; j < end && !at.bias.empty(); ++j) {
      most_bias = std::max<double>(most_bias, at.bias[j]);
    }
    for (int d = 0; d < kDim; ++d) {
      float low = INFINITY, high = -INFINITY;
      for (int j = first; j < end; ++j) {
        low = std::min(low, at.cache.pool.key(head / 2, j, d));
        high = std::max(high, at.cache.pool.key(head / 2, j, d));
      }
      const double query = at.query(head)[d];
      bound[page] += kScale * std::max(query * low, query * high);
    }
    bound[page] += most_bias;
  }
  std::vector<int> order(pages - 1);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return bound[a] > bound[b]; });
  const size_t others = std::max(static_cast<int>(budget) / page_keys, 1) - (within ? 1 : 0);
  if (order.size() > others) order.resize(others);
  order.push_back(pages - 1);
  return order;
}

struct QuestCase {
  const char* method;
  int page_keys;
  int cache_page;
  bool within = false;
};

TEST(Quest, KeepsTheBestPagesAndTheNewest) {
  for (const QuestCase& c :
       {QuestCase{"quest", 16, 16}, QuestCase{"quest pageSize=32", 32, 16},
        QuestCase{"quest pageSize=64", 64, 16}, QuestCase{"quest pageSize=32", 32, 64},
        QuestCase{"quest pageSize=64", 64, 32}, QuestCase{"quest newest=within", 16, 16, true},
        QuestCase{"quest pageSize=32 newest=within", 32, 64, true}}) {
    for (int n : {kLength, 193, 192}) {
      Step at(n, Element::kBFloat16, c.cache_page, 0.0f);
      for (bool masked : {false, true}) {
        if (masked) {
          at.bias = normals(n, 26);
          for (int j = 0; j < 70; ++j) at.bias[j] = kMasked;
          for (int j = 71; j < n; j += 3) at.bias[j] = kMasked;
        }
        for (uint32_t budget : {1u, 16u, 31u, 33u, 64u, 100u, static_cast<uint32_t>(n - 1)}) {
          SCOPED_TRACE(std::string(c.method) + ", S " + std::to_string(budget));
          const auto result = at.run(c.method, budget);
          for (int head = 0; head < kHeads; ++head) {
            std::vector<double> weights(n);
            double total = 0;
            uint32_t keys = 0;
            for (int page : keptPages(at, head, c.page_keys, budget, c.within)) {
              const int first = page * c.page_keys;
              for (int j = first; j < std::min(first + c.page_keys, n); ++j) {
                total += weights[j] = std::exp(at.score(head, j));
                ++keys;
              }
            }
            ASSERT_GT(total, 0);
            for (double& weight : weights) weight /= total;
            at.expectOutput(result, head, weights);
            EXPECT_NEAR(result.lse[head], std::log(total), 1e-5);
            EXPECT_EQ(result.heads[head].unique_rows, keys);
            EXPECT_EQ(result.heads[head].key_bytes,
                      (n + 15) / 16 * 2u * kDim * (c.within ? 4 : 2) + keys * kDim * 2u);
            EXPECT_LT(result.heads[head].relative_error, 0);
          }
        }
      }
    }
  }
}

// However small the budget: one page is looked for, and the newest is read beside it. Where the
// newest page is all that the budget buys, nothing else is ever found.
TEST(Quest, TheLeastBudgetFindsAKey) {
  constexpr int kHeavy = 37;
  Step at(160, Element::kFloat32, 16, 0.0f);
  at.bias.assign(160, 0.0f);
  at.bias[kHeavy] = 60;
  for (const uint32_t budget : {1u, 15u, 16u, 31u}) {
    const auto found = at.run("quest", budget), missed = at.run("quest newest=within", budget);
    for (int head = 0; head < kHeads; ++head) {
      std::vector<double> weights(160);
      weights[kHeavy] = 1;
      at.expectOutput(found, head, weights);
      EXPECT_EQ(found.heads[head].unique_rows, 32u);
      EXPECT_EQ(missed.heads[head].unique_rows, 16u);
      EXPECT_LT(missed.lse[head], 30);
    }
  }
}

// Bounds of 16-bit keys are 16-bit numbers; those of float32 keys count as such. Bounds of 8-bit
// keys are 8-bit numbers.
TEST(Quest, BoundsCountAsNumbersOfTheCache) {
  for (const Element element : {Element::kFloat32, Element::kBFloat16, Element::kE4M3}) {
    const Step at(160, element, 16);
    const auto result = at.run("quest", 48);
    const size_t of_bound = std::min<size_t>(2, bytesOf(element));
    EXPECT_EQ(result.heads[0].key_bytes, 10 * 2 * kDim * of_bound + 64 * kDim * bytesOf(element));
  }
}

TEST(Quest, EqualBoundsKeepTheOlderPages) {
  Step at(160, Element::kFloat32, 16);
  at.cache.keys[0].assign(160 * 2 * kDim, 1.0f);
  at.cache.values[0] = normals(160 * 2 * kDim, 27);
  at.cache.write();
  for (const bool within : {false, true}) {
    const auto result = at.run(within ? "quest newest=within" : "quest", within ? 64 : 48);
    std::vector<double> weights(160);
    for (int page : {0, 1, 2, 9}) std::fill_n(&weights[page * 16], 16, 1.0 / 64);
    for (int head = 0; head < kHeads; ++head) at.expectOutput(result, head, weights);
  }
}

// The newest page is kept although nothing of it may be seen: no NaN.
TEST(Quest, AllMaskedKeysGiveZero) {
  Step at(100, Element::kFloat32, 16);
  at.bias.assign(100, kMasked);
  const auto result = at.run("quest", 32);
  for (int head = 0; head < kHeads; ++head) {
    EXPECT_EQ(result.lse[head], kMasked);
    for (int d = 0; d < kDim; ++d) EXPECT_EQ(result.out[head * kDim + d], 0.0f);
  }
}

}  // namespace
}  // namespace allot::kernels
