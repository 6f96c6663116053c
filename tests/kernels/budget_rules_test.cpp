// How many rows the adaptive methods' rules ask for, and how vattention's shares delta: against the
// formulas and the best there is.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <random>

#include "kernels/cpu/adaptive.h"

namespace allot::kernels {
namespace {

TEST(NormalQuantile, RoundTripsAndKnownValues) {
  EXPECT_EQ(normalUpperQuantile(0.5), 0);
  EXPECT_NEAR(normalUpperQuantile(0.025), 1.959963984540054, 1e-13);
  EXPECT_NEAR(normalUpperQuantile(0.0125), 2.241402727604945, 1e-13);
  EXPECT_NEAR(normalUpperQuantile(1e-10), 6.361340902404056, 1e-12);
  EXPECT_NEAR(normalUpperQuantile(0.9), -1.281551565544600, 1e-13);
  for (double tail = 0.499; tail > 1e-300; tail *= 0.83) {
    const double z = normalUpperQuantile(tail);
    // z moves by 1e-13 of itself: the tail by z^2 times that.
    EXPECT_NEAR(0.5 * std::erfc(z / std::sqrt(2.0)) / tail, 1, 1e-13 * (10 + z * z)) << tail;
    if (tail < 1e-3) continue;
    EXPECT_NEAR(normalUpperQuantile(1 - tail), -z, 1e-12) << tail;
  }
}

// n_s sigma_X = X for numerator and denominator.
TEST(BudgetRules, RowsForAnErrorOfFivePercent) {
  const PilotEstimate pilot{.tail = 4000,
                            .denominator = 8,
                            .denominator_spread = 8.0 / 4000,
                            .numerator_square = 9,
                            .numerator_spread = 3.0 / 4000};
  MethodOptions options;
  options.epsilon = options.delta = 0.05;
  options.half_delta = true;
  const double unlimited = std::pow(2.241402727604945 * 2 / 0.025, 2);  // 32153
  EXPECT_NEAR(vAttentionRows(pilot, options), unlimited * 4000 / (unlimited + 4000), 1e-6);
  EXPECT_NEAR(adaptiveDenominatorRows(pilot, options), std::pow(1.644853626951473 / 0.05, 2), 1e-6);
  PilotEstimate uneven = pilot;  // the shares c_N and c_D add up
  uneven.denominator_spread *= 0.25;
  uneven.numerator_spread *= 1.75;
  EXPECT_NEAR(vAttentionRows(uneven, options), vAttentionRows(pilot, options), 1e-6);
  PilotEstimate still = pilot;
  still.denominator_spread = still.numerator_spread = 0;
  EXPECT_EQ(vAttentionRows(still, options), 0);
  EXPECT_EQ(adaptiveDenominatorRows(still, options), 0);
  PilotEstimate cancelled = pilot;  // a relative error of nothing: all rows
  cancelled.numerator_square = 0;
  EXPECT_EQ(vAttentionRows(cancelled, options), 4000);
}

// The rows of split=half are those of the closed formula, to the bit.
TEST(BudgetRules, HalvesFollowTheClosedFormula) {
  std::mt19937_64 random(5);
  std::uniform_real_distribution<double> uniform(0.01, 4);
  for (int i = 0; i < 1000; ++i) {
    const PilotEstimate pilot{.tail = 2000,
                              .denominator = uniform(random),
                              .denominator_spread = 0.002 * uniform(random),
                              .numerator_square = uniform(random),
                              .numerator_spread = 0.002 * uniform(random)};
    MethodOptions options;
    options.half_delta = true;
    options.epsilon = uniform(random) / 4;
    options.delta = uniform(random) / 5;
    const double z = normalUpperQuantile(options.delta / 4);
    const double n = pilot.tail * pilot.numerator_spread / std::sqrt(pilot.numerator_square);
    const double d = pilot.tail * pilot.denominator_spread / pilot.denominator;
    const double h = z * (n + d) / (options.epsilon / 2);
    EXPECT_EQ(vAttentionRows(pilot, options), 1 / (1 / (h * h) + 1 / pilot.tail));
  }
}

double normalAbove(double z) { return 0.5 * std::erfc(z * M_SQRT1_2); }

// Every split is a promise of its own: the two probabilities add up to delta, and the numerator's
// is small enough for the lemma on vectors. The halves are always there, and first.
TEST(BudgetRules, SplitsOfDeltaAddUp) {
  for (const double delta : {1e-4, 0.01, 0.05, 0.1, 0.2, 0.3, 0.43, 0.6, 0.9}) {
    MethodOptions options;
    options.delta = delta;
    const VAttentionRule& rule = vAttentionRule(options);
    ASSERT_GE(rule.count, 1);
    EXPECT_EQ(rule.splits[0].z, normalUpperQuantile(delta / 4));
    EXPECT_EQ(rule.splits[0].ratio, 1);
    EXPECT_EQ(rule.z, rule.splits[0].z);
    for (int i = 0; i < rule.count; ++i) {
      const auto& [z, ratio] = rule.splits[i];
      EXPECT_NEAR(2 * normalAbove(z) + 2 * normalAbove(z * ratio), delta, 1e-12);
      if (i > 0) {
        EXPECT_GE(z, 1.24) << delta;
      }
    }
    EXPECT_EQ(rule.count<15, delta> 0.21) << delta;
    options.half_delta = true;
    EXPECT_EQ(vAttentionRule(options).count, 1);
  }
}

// min over delta_N of z_N c_N + z_D c_D, for c_N + c_D = 1: convex in delta_N.
double leastSum(double delta, double c_d) {
  const auto sum = [&](double numerator) {
    return (1 - c_d) * normalUpperQuantile(numerator / 2) +
           c_d * normalUpperQuantile((delta - numerator) / 2);
  };
  double low = 1e-12 * delta, high = delta - low;
  for (int i = 0; i < 60; ++i) {
    const double left = low + (high - low) / 3, right = high - (high - low) / 3;
    (sum(left) < sum(right) ? high : low) = sum(left) < sum(right) ? right : left;
  }
  return sum((low + high) / 2);
}

// The rows are within 1.5 % of those of the best split there is, and never more than those of
// halves: by a quarter fewer where the denominator varies far less than the numerator.
TEST(BudgetRules, TheBestSplitOfDelta) {
  for (const double delta : {0.001, 0.05, 0.1, 0.2}) {
    double worst = 0, saved = 1;
    for (int i = -60; i <= 60; ++i) {
      const double c_d = 1 / (1 + std::pow(10, i / 10.0));
      const PilotEstimate pilot{.tail = 1e12,  // no limit to speak of
                                .denominator = 1e12,
                                .denominator_spread = c_d,
                                .numerator_square = 1e24,
                                .numerator_spread = 1 - c_d};
      MethodOptions options;
      options.delta = delta;
      const double rows = vAttentionRows(pilot, options);
      options.half_delta = true;
      const double halves = vAttentionRows(pilot, options);
      const double best = std::pow(leastSum(delta, c_d) / (options.epsilon / 2), 2);
      EXPECT_GE(rows, best * (1 - 1e-6)) << "fewer than any split needs";
      EXPECT_LE(rows, halves);
      worst = std::max(worst, rows / best - 1);
      saved = std::min(saved, rows / halves);
    }
    std::printf("delta %.3f: at most %.2f %% above the best split, %.3f of the halves' rows\n",
                delta, 100 * worst, saved);
    EXPECT_LT(worst, 0.015);
    EXPECT_LT(saved, delta < 0.01 ? 0.9 : 0.77);
  }
}

// |N^|^2 beside its noise: below the bound nothing is known of |N|, and every row is read; the
// estimate as it stands, the paper's rule, asks for few.
TEST(BudgetRules, ANumeratorThatMayBeNothing) {
  MethodOptions options;
  options.epsilon = 0.5;
  const double z = normalUpperQuantile(options.delta / 4);
  PilotEstimate pilot{.tail = 4000,
                      .denominator = 8,
                      .denominator_spread = 0,
                      .numerator_square = (1 + z * z) * (1 - 1e-9),
                      .numerator_noise = 1,
                      .numerator_spread = 1e-3};
  EXPECT_EQ(vAttentionRows(pilot, options), 4000);
  options.trusts_numerator = true;
  EXPECT_LT(vAttentionRows(pilot, options), 300);
  options.trusts_numerator = false;
  pilot.numerator_square = (1 + z * z) * (1 + 1e-9);  // N is z: its noise is taken off
  EXPECT_LT(vAttentionRows(pilot, options), 350);
}

}  // namespace
}  // namespace allot::kernels
