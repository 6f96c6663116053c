// Bounds from bets: exactly, over all sequences of a few differences, and by simulation.
#include "core/learning/betting.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace allot {
namespace {

DifferenceCounts countsOf(std::initializer_list<std::pair<double, uint64_t>> differences) {
  DifferenceCounts counts(kDifferenceValues);
  for (const auto& [difference, count] : differences) {
    counts[static_cast<size_t>(stepOf(difference))] += count;
  }
  return counts;
}

TEST(Betting, FractionsAreWholeSteps) {
  for (const int whole : {1, 2, 3, 4, 5, 6, 8, 10, 12}) {
    for (int a = 0; a <= whole; ++a) {
      for (int b = 0; b <= whole; ++b) {
        const double exact = static_cast<double>(a) / whole - static_cast<double>(b) / whole;
        EXPECT_NEAR(differenceAt(stepOf(exact)), exact, 1e-12);
      }
    }
  }
  EXPECT_LT(differenceAt(stepOf(0.0099)), 0.0099);
  EXPECT_EQ(stepOf(-2), 0);
  EXPECT_EQ(stepOf(2), kDifferenceValues - 1);
}

// The chance that the wealth of differences -1, 0 and 1 with these probabilities is ever at least
// 1 / error within `left` more of them: the sum over all sequences.
double everReached(DifferenceCounts* counts, const double (&probability)[3], double error,
                   int left) {
  if (logWealth(*counts, 0) >= -std::log(error)) return 1;
  if (left == 0) return 0;
  double sum = 0;
  for (const int difference : {-1, 0, 1}) {
    const double of = probability[difference + 1];
    if (of == 0) continue;
    uint64_t& count = (*counts)[static_cast<size_t>(stepOf(difference))];
    ++count;
    sum += of * everReached(counts, probability, error, left - 1);
    --count;
  }
  return sum;
}

TEST(Betting, AFalseClaimIsAsRareAsItsErrorAtAllLooksTogether) {
  DifferenceCounts none(kDifferenceValues);
  for (const double error : {0.05, 0.2, 0.5}) {
    const double fair = everReached(&none, {0.5, 0, 0.5}, error, 14);
    EXPECT_LE(fair, error);
    EXPECT_GT(fair, 0.05 * error) << "the bound has no power";
    EXPECT_LE(everReached(&none, {0.25, 0.5, 0.25}, error, 9), error);
    // A mean of 0 from rare large losses.
    EXPECT_LE(everReached(&none, {0.1, 0.8, 0.1}, error, 9), error);
  }
}

TEST(Betting, BoundsAreWhereTheWealthIsReached) {
  const DifferenceCounts counts = countsOf({{-1, 12}, {0, 60}, {0.25, 9}, {1, 40}});
  const double low = lowerBound(counts, 0.025), high = upperBound(counts, 0.025);
  EXPECT_NEAR(logWealth(counts, low), -std::log(0.025), 1e-4);
  EXPECT_LT(low, 30.25 / 121);
  EXPECT_GT(high, 30.25 / 121);
  // Less error, wider bounds; more answers, narrower ones.
  EXPECT_LT(lowerBound(counts, 0.001), low);
  const DifferenceCounts more = countsOf({{-1, 120}, {0, 600}, {0.25, 90}, {1, 400}});
  EXPECT_GT(lowerBound(more, 0.025), low);
  EXPECT_LT(upperBound(more, 0.025), high);
  EXPECT_EQ(lowerBound(DifferenceCounts(kDifferenceValues), 0.05), -1);
  EXPECT_EQ(upperBound(DifferenceCounts(kDifferenceValues), 0.05), 1);
}

// Some 0.25 of error in both bounds, at all of 400 looks, in skewed worlds. 300 runs each; more
// than 0.25 + 0.1 of them miss by chance in 1 of 20,000 seeds, if the bounds had no slack.
TEST(Betting, BothBoundsHoldAtAllLooks) {
  const std::vector<std::vector<double>> worlds = {
      {-1, 1}, {-1, -1, 0, 1, 1, 1}, {0, 0, 0, 0, 0, 0, 0, 0, 0, 1}, {-0.5, -0.5, 1, 0.1}};
  for (const auto& world : worlds) {
    double mean = 0;
    for (const double value : world) mean += value / static_cast<double>(world.size());
    int missed = 0;
    for (uint64_t seed = 0; seed < 300; ++seed) {
      std::mt19937_64 random(seed);
      DifferenceCounts counts(kDifferenceValues);
      bool outside = false;
      for (int look = 0; look < 400 && !outside; ++look) {
        ++counts[static_cast<size_t>(stepOf(world[random() % world.size()]))];
        outside = logWealth(counts, mean) >= -std::log(0.125);
        DifferenceCounts mirrored(counts.rbegin(), counts.rend());
        outside |= logWealth(mirrored, -mean) >= -std::log(0.125);
      }
      missed += outside ? 1 : 0;
    }
    EXPECT_LE(missed, 105);
    EXPECT_GT(missed, 3);
  }
}

}  // namespace
}  // namespace allot
