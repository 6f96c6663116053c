// vattention: the sample, its sums and its edges, exactly or by z-test. What it claims of its error
// is tested in vattention_coverage_test.cpp.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <set>

#include "kernels/cpu/adaptive.h"
#include "tests/kernels/key_pool.h"

namespace allot::kernels {
namespace {

constexpr int kDim = 16;
constexpr float kMasked = -std::numeric_limits<float>::infinity();

// A head with given scores: keys are zero, and the bias is the score. `ranking` is what Head.scores
// holds where it stands for a shadow's.
struct HandHead {
  explicit HandHead(std::vector<float> scores, std::vector<float> ranking = {},
                    bool equal_values = false)
      : exact(std::move(scores)),
        ranked(ranking.empty() ? exact : std::move(ranking)),
        pool({.element = Element::kFloat32,
              .pages = static_cast<int>(exact.size()) / 16 + 1,
              .kv_heads = 1,
              .page_size = 16,
              .head_dim = kDim}) {
    const std::vector<float> keys(exact.size() * kDim, 0.0f);
    values = equal_values ? std::vector<float>(keys.size(), 1.0f) : normals(keys.size(), 3);
    EXPECT_FALSE(pool.append(0, n(), keys.data(), values.data()));
    options.method = Method::kVAttention;
    options.sink = options.local = 0;
  }
  int n() const { return static_cast<int>(exact.size()); }

  Selection select(uint32_t sequence = 0, SelectFunction function = selectVAttention) const {
    const std::vector<float> query(kDim, 0.0f);
    Head head;
    head.scores = ranked.data();
    head.n = n();
    head.budget = 1;
    head.seed = 5;
    head.sequence = sequence;
    head.stream = 2 << 16 | 1;
    head.options = &options;
    head.kv = &pool.kv;
    head.pages = pool.table.data();
    head.query = query.data();
    head.bias = exact.data();
    Selection selection;
    selection.clear();
    function(head, &selection);
    return selection;
  }
  double logSum() const {
    const double top = *std::max_element(exact.begin(), exact.end());
    double sum = 0;
    for (const float s : exact) sum += std::exp(s - top);
    return top + std::log(sum);
  }

  std::vector<float> exact, ranked, values;
  KeyPool pool;
  MethodOptions options;
};

// What holds of every selection.
void check(const HandHead& head, const Selection& chosen) {
  double total = 0;
  std::set<int32_t> rows;
  uint64_t unmasked = 0;
  for (const float s : head.exact) unmasked += s != kMasked ? 1 : 0;
  for (size_t i = 0; i < chosen.rows.size(); ++i) {
    ASSERT_TRUE(rows.insert(chosen.rows[i]).second) << "row " << chosen.rows[i] << " twice";
    ASSERT_GE(chosen.rows[i], 0);
    ASSERT_LT(chosen.rows[i], head.n());
    ASSERT_NE(head.exact[chosen.rows[i]], kMasked);
    ASSERT_TRUE(std::isfinite(chosen.weights[i]));
    ASSERT_LE(chosen.counts[i], 1u);
    total += chosen.weights[i];
  }
  EXPECT_NEAR(total, 1, 1e-5);
  EXPECT_EQ(chosen.weights.size(), chosen.rows.size());
  EXPECT_EQ(chosen.counts.size(), chosen.rows.size());
  EXPECT_EQ(chosen.draws, chosen.rows.size());
  EXPECT_LE(chosen.rows.size() + chosen.extra_value_rows, unmasked);
  EXPECT_TRUE(chosen.sets_lse);
  EXPECT_GE(chosen.finite_population, 0);
  EXPECT_LE(chosen.finite_population, 1);
}

// The selection is exact attention.
void checkExact(const HandHead& head, const Selection& chosen) {
  check(head, chosen);
  uint64_t unmasked = 0;
  for (const float s : head.exact) unmasked += s != kMasked ? 1 : 0;
  ASSERT_EQ(chosen.rows.size(), unmasked);
  for (size_t i = 0; i < chosen.rows.size(); ++i) {
    EXPECT_NEAR(chosen.weights[i], std::exp(head.exact[chosen.rows[i]] - head.logSum()), 1e-6);
  }
  EXPECT_NEAR(chosen.lse, head.logSum(), 1e-5);
  EXPECT_EQ(chosen.finite_population, 0);
}

std::map<int32_t, uint32_t> countsOf(const Selection& chosen) {
  std::map<int32_t, uint32_t> counts;
  for (size_t i = 0; i < chosen.rows.size(); ++i) counts[chosen.rows[i]] = chosen.counts[i];
  return counts;
}

// Upper quantile of chi-squared, 1e-6 (Wilson and Hilferty's cube, good to a few per cent here).
double chiSquaredLimit(double freedom) {
  const double spread = 2 / (9 * freedom);
  return freedom * std::pow(1 - spread + 4.753 * std::sqrt(spread), 3);
}

// How unevenly the sets of sampled rows come up: chi-squared over `sets` equally likely ones.
double unevenness(const HandHead& head, int runs, size_t sets,
                  const std::function<bool(const std::set<int32_t>&)>& keep) {
  std::map<std::set<int32_t>, int> seen;
  int kept = 0;
  for (int r = 0; r < runs; ++r) {
    std::set<int32_t> sampled;
    for (const auto& [row, count] : countsOf(head.select(static_cast<uint32_t>(r)))) {
      if (count > 0) sampled.insert(row);
    }
    if (!keep(sampled)) continue;
    ++kept;
    ++seen[sampled];
  }
  const double expected = static_cast<double>(kept) / static_cast<double>(sets);
  double statistic = static_cast<double>(sets - seen.size()) * expected;
  for (const auto& [set, count] : seen) statistic += std::pow(count - expected, 2) / expected;
  return seen.size() > sets ? std::numeric_limits<double>::infinity() : statistic;
}

// False alarm: 1e-6 each, were the seed drawn anew.
TEST(VAttention, EverySubsetOfTheTailIsEquallyLikely) {
  HandHead head({0, 1, 2, 3, 1, 0, 2});  // sink 1 and 6 in the tail: 20 subsets of 3
  head.options.sink = 1;
  head.options.heavy = 0;
  head.options.max_budget = 3;
  const auto all = [](const std::set<int32_t>&) { return true; };
  EXPECT_LT(unevenness(head, 4000, 20, all), chiSquaredLimit(19));
  // The planted bias: subsets of rows 1, 2 and another are lost half of the time.
  int turn = 0;
  const auto half = [&](const std::set<int32_t>& s) {
    return !(s.count(1) && s.count(2)) || ++turn % 2 == 0;
  };
  EXPECT_GT(unevenness(head, 4000, 20, half), chiSquaredLimit(19));
}

TEST(VAttention, TheSampleAfterAPilotIsFreshAndUniform) {
  // Nothing varies, so b stays at the pilot's 32 of 34: 561 pairs left out, each as likely.
  HandHead head(std::vector<float>(34, 0.5f), {}, true);
  head.options.heavy = 0;
  const auto all = [](const std::set<int32_t>&) { return true; };
  EXPECT_LT(unevenness(head, 20000, 561, all), chiSquaredLimit(560));
  uint64_t pilots_alone = 0;
  for (uint32_t r = 0; r < 200; ++r) pilots_alone += head.select(r).extra_value_rows;
  // 2 rows are out of the sample; each is in the pilot with probability 32/34. A pilot that was
  // the sample would give 0.
  EXPECT_NEAR(static_cast<double>(pilots_alone) / 200, 2 * 32.0 / 34, 0.2);
}

// Mean of D^ over many streams, in standard errors from D; the variance of a sum over a sample
// without replacement is n_s^2 S^2 / b (1 - b / n_s).
double denominatorError(const HandHead& head, int b, double planted) {
  constexpr int kRuns = 20000;
  double sum = 0, mass = 0, squares = 0, total = 0;
  for (int r = 0; r < kRuns; ++r) sum += std::exp(head.select(static_cast<uint32_t>(r)).lse);
  for (const float s : head.exact) total += std::exp(s);
  const int n = head.n();
  for (int j = static_cast<int>(head.options.sink); j < n; ++j) {
    mass += std::exp(head.exact[j]);
    squares += std::exp(2 * head.exact[j]);
  }
  const double tail = n - static_cast<double>(head.options.sink);
  const double variance =
      tail * tail * (squares - mass * mass / tail) / (tail - 1) / b * (1 - b / tail);
  return std::fabs(sum / kRuns * (1 + planted) - total) / std::sqrt(variance / kRuns);
}

TEST(VAttention, SumsAreUnbiasedWithTheVarianceOfSamplingWithoutReplacement) {
  for (const int b : {1, 5, 20, 39}) {
    HandHead head(normals(44, 8));
    head.options.sink = 4;
    head.options.heavy = 0;
    head.options.max_budget = static_cast<uint32_t>(b);
    EXPECT_LT(denominatorError(head, b, 0), 5) << b;
    EXPECT_GT(denominatorError(head, b, 0.05), 5) << b;
  }
}

TEST(VAttention, SinkLocalAndHeavyAreAlwaysReadTiesGoToTheOlder) {
  std::vector<float> scores(200, 0.0f);
  scores[50] = 3;
  scores[120] = 2;
  scores[2] = scores[198] = 9;  // always read anyway: they take no heavy place
  HandHead head(scores);
  head.options.sink = 5;
  head.options.local = 7;
  head.options.heavy = 4.0 / 188;
  head.options.max_budget = 10;
  const auto counts = countsOf(head.select());
  EXPECT_EQ(counts.size(), 5u + 7 + 4 + 10);
  for (const int row : {0, 1, 2, 3, 4, 193, 199, 50, 120, 5, 6}) {
    ASSERT_TRUE(counts.count(row)) << row;
    EXPECT_EQ(counts.at(row), 0u) << row;
  }
}

TEST(VAttention, SmallTailsAreExact) {
  for (const int tail : {0, 1, 2, 3, 32}) {
    for (const bool rising : {false, true}) {
      std::vector<float> scores(8 + tail);
      for (size_t j = 0; j < scores.size(); ++j) scores[j] = rising ? 0.3f * j : -0.1f * (j % 3);
      HandHead head(scores);
      head.options.sink = head.options.local = 4;
      head.options.heavy = 0;
      checkExact(head, head.select());
      checkExact(head, head.select(0, selectAdaptiveDenominator));
    }
  }
}

TEST(VAttention, EdgesOfItsParameters) {
  const std::vector<float> scores = normals(150, 4, 2.0f);
  const auto with = [&](auto change) {
    HandHead head(scores);
    change(head.options);
    return head;
  };
  using O = MethodOptions;
  for (const auto& head :
       {with([](O& o) { o.sink = 100, o.local = 50; }), with([](O& o) { o.sink = 65536; }),
        with([](O& o) { o.local = 65536; }), with([](O& o) { o.sink = 80, o.local = 80; }),
        with([](O& o) { o.heavy = 1; }), with([](O& o) { o.pilot = 1; }),
        with([](O& o) { o.epsilon = 1e-4; })}) {
    checkExact(head, head.select());
  }
  const auto one = with([](O& o) { o.max_budget = 1, o.heavy = 0; });
  EXPECT_EQ(one.select().rows.size(), 1u);
  EXPECT_EQ(one.select().extra_value_rows, 0u);  // nothing for a pilot to decide
  check(one, one.select());
  const auto loose = with([](O& o) { o.epsilon = 1, o.delta = 0.9, o.heavy = 0; });
  check(loose, loose.select());
  const auto never = with([](O& o) { o.delta = 0.9; });
  check(never, never.select(0, selectAdaptiveDenominator));
  const auto limited = with([](O& o) { o.max_budget = 40, o.heavy = 0, o.epsilon = 1e-4; });
  EXPECT_EQ(limited.select().rows.size(), 40u);
  const auto pilots = with([](O& o) { o.heavy = 0, o.pilot = 0.5, o.epsilon = o.delta = 0.9; });
  EXPECT_GE(pilots.select().rows.size(), 75u);
}

TEST(VAttention, EdgesOfItsScores) {
  checkExact(HandHead({0.3f}), HandHead({0.3f}).select());
  const HandHead equal(std::vector<float>(500, 7.0f), {}, true);
  const Selection few = equal.select();  // nothing varies: the smallest sample will do
  check(equal, few);
  EXPECT_EQ(few.rows.size(), 25u + 32);
  EXPECT_NEAR(few.lse, equal.logSum(), 1e-5);
  std::vector<float> scores(500, -5.0f);
  scores[77] = 80;
  const HandHead dominant(scores);
  const Selection found = dominant.select();
  check(dominant, found);
  EXPECT_EQ(countsOf(found).at(77), 0u);
  EXPECT_NEAR(found.lse, 80, 1e-5);
  scores[77] = -5;
  scores[3] = -200;  // its weight is nothing
  check(HandHead(scores), HandHead(scores).select());
}

// Values whose sum nearly vanishes: all rows are read, unless the estimate is to be trusted.
TEST(VAttention, CancellingValuesAreReadWhole) {
  HandHead head(std::vector<float>(2000, 0.0f));
  head.options.epsilon = 1;
  head.options.heavy = 0;
  checkExact(head, head.select());
  head.options.trusts_numerator = true;
  const Selection few = head.select();
  check(head, few);
  EXPECT_LT(few.rows.size(), 1500u);
}

TEST(VAttention, MaskedKeysBelongToNoSet) {
  std::vector<float> scores = normals(300, 4);
  for (size_t j = 0; j < scores.size(); ++j) {
    if (j % 2 == 0 || j > 280) scores[j] = kMasked;
  }
  HandHead head(scores);
  head.options.sink = head.options.local = 16;
  for (uint32_t r = 0; r < 50; ++r) check(head, head.select(r));
  head.options.heavy = 1;
  checkExact(head, head.select());
  std::vector<float> lonely(300, kMasked);
  lonely[123] = -4;
  checkExact(HandHead(lonely), HandHead(lonely).select());
}

TEST(VAttention, AShadowRanksAndExactScoresWeigh) {
  const std::vector<float> scores = normals(400, 4);
  std::vector<float> ranking = scores;
  // The shadow misses a key far above all others, and its scores are off by a constant.
  std::vector<float> exact = scores;
  exact[200] = 30;
  ranking[200] = -30;
  for (float& s : ranking) s += 100;
  HandHead head(exact, ranking, true);
  head.options.scores = KeyScores::kQ4;
  head.options.epsilon = 0.9;
  bool seen = false, missed = false;
  for (uint32_t r = 0; r < 100; ++r) {
    const Selection chosen = head.select(r);
    check(head, chosen);
    EXPECT_EQ(chosen.key_rows, chosen.rows.size() + chosen.extra_value_rows);
    // If the sample has it, it weighs nearly all; weights stay finite either way.
    const auto counts = countsOf(chosen);
    seen = seen || counts.count(200);
    missed = missed || !counts.count(200);
    EXPECT_EQ(counts.count(200) > 0, chosen.lse > 29.9f);
  }
  EXPECT_TRUE(seen && missed);
  // Exact scores were all read by the score stage.
  head.options.scores = KeyScores::kExact;
  EXPECT_EQ(head.select().key_rows, 0u);
  // adaptive-denominator's pilots are keys without values.
  head.options.scores = KeyScores::kQ4;
  const Selection hub = head.select(0, selectAdaptiveDenominator);
  EXPECT_EQ(hub.extra_value_rows, 0u);
  EXPECT_GE(hub.key_rows, hub.rows.size());
}

TEST(VAttention, TheStreamDecidesAlone) {
  HandHead head(normals(2000, 4));
  head.options.max_budget = 300;  // fewer than the tail, which would be the same for all
  const Selection first = head.select(3), again = head.select(3), other = head.select(4);
  EXPECT_EQ(first.rows, again.rows);
  EXPECT_EQ(first.weights, again.weights);
  EXPECT_NE(first.rows, other.rows);
}

// The documented sample: the b keys of the tail with the smallest words, pilot and sample apart.
TEST(VAttention, ASampleIsTheSmallestWords) {
  HandHead head(std::vector<float>(500, 0.5f), {}, true);
  head.options.sink = 10;
  head.options.heavy = 0;
  const Selection chosen = head.select(6);  // nothing varies: as many as the pilot
  const auto smallest = [&](uint32_t first_block) {
    std::vector<std::pair<uint32_t, int32_t>> words;
    for (int32_t j = 10; j < 500; ++j) {
      words.emplace_back(philox(5, 6, 0, 2 << 16 | 1, first_block + j / 4)[j % 4], j);
    }
    std::sort(words.begin(), words.end());
    std::set<int32_t> keys;
    for (int i = 0; i < 32; ++i) keys.insert(words[i].second);
    return keys;
  };
  std::set<int32_t> sampled, pilot;
  for (const auto& [row, count] : countsOf(chosen)) {
    if (count > 0) sampled.insert(row);
  }
  for (int32_t j = 0; j < 500; ++j) {
    if (chosen.bits[j / 64] >> (j % 64) & 1) pilot.insert(j);
  }
  EXPECT_EQ(sampled, smallest(kSampleBlocks));
  EXPECT_EQ(pilot, smallest(kPilotBlocks));
}

}  // namespace
}  // namespace allot::kernels
