#include "core/evaluation/score_statistics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "core/random_stream.h"

namespace allot {
namespace {

TEST(Statistics, BootstrapIsDeterministicAndFallsBackWhereItKnowsNothing) {
  const ScoreCounts scores = {{0, 30}, {0.5, 20}, {1, 70}};
  const auto with = [&](uint64_t seed) {
    return interval95(scores, RandomStream({seed}, Purpose::kBootstrap, 0));
  };
  EXPECT_EQ(with(1).low, with(1).low);
  std::set<double> ends;  // means are multiples of 1/240: two seeds may well agree
  for (uint64_t seed = 1; seed <= 5; ++seed) ends.insert({with(seed).low, with(seed).high});
  EXPECT_GT(ends.size(), 2u);
  // The normal approximation of this mean: 0.6667 and 1.96 * 0.4249 / sqrt(120) = 0.0760.
  EXPECT_NEAR(with(1).low, 0.6667 - 0.0760, 0.012);
  EXPECT_NEAR(with(1).high, 0.6667 + 0.0760, 0.012);
  const RandomStream any({1}, Purpose::kBootstrap, 0);
  EXPECT_EQ(interval95({{1, 60}}, any).low, wilson95(60, 60).low);
  EXPECT_EQ(interval95({{0.5, 60}}, any).low, wilson95(30, 60).low);
  EXPECT_EQ(interval95({}, any).high, 1);
  // Right or wrong, and nothing between.
  EXPECT_EQ(interval95({{0, 12}, {1, 48}}, any).low, wilson95(48, 60).low);
  EXPECT_EQ(interval95({{0, 12}, {1, 48}}, any).high, wilson95(48, 60).high);
  EXPECT_NE(interval95({{0, 12}, {0.5, 1}, {1, 47}}, any).high, wilson95(47.5, 60).high);
  EXPECT_EQ(interval95({{0, 12}, {1, 48}}, any).name, "wilson");
  EXPECT_EQ(interval95({{0, 12}, {0.5, 1}, {1, 47}}, any).name, "bootstrap");
  EXPECT_EQ(interval95({{0, 2000}, {0.5, 1}, {1, 8000}}, any).name, "normal");
  // Either side of 10,000 scores, where the formula takes over.
  const Interval resampled = interval95({{0, 1999}, {0.5, 1}, {1, 8000}}, any);
  const Interval formula = interval95({{0, 2000}, {0.5, 1}, {1, 8000}}, any);
  EXPECT_NEAR(resampled.low, formula.low, 0.001);
  EXPECT_NEAR(resampled.high, formula.high, 0.001);
  // 1.959964 standard errors of 0.4 / sqrt(10001), nearly: the variance of these is 0.16.
  EXPECT_NEAR(formula.high - formula.low, 2 * 1.959964 * 0.4 / 100.005, 2e-6);
}

// Of the 1000 means of the scores and both ends, 24 lie below the interval and 24 above. The scores
// are so uneven that no two of those means are equal.
TEST(Statistics, TheBootstrapLeavesTwentyFourMeansOutAtEitherEnd) {
  std::vector<double> values;
  for (int i = 0; i < 37; ++i) values.push_back(std::fmod(std::exp(0.1 * (i + 1)), 1.0));
  std::sort(values.begin(), values.end());
  ScoreCounts scores;
  for (const double value : values) ++scores[value];
  values.insert(values.begin(), {0.0, 1.0});
  RandomStream random({5}, Purpose::kBootstrap, 3);
  const Interval interval = interval95(scores, random);
  size_t below = 0, above = 0, lowest = 0;
  for (int i = 0; i < 1000; ++i) {
    double sum = 0;
    for (size_t drawn = 0; drawn < values.size();) {
      for (const uint32_t word : random.words()) {
        const auto place = static_cast<size_t>(std::floor(word * 0x1p-32 * 39));
        if (drawn++ < values.size()) sum += values[place];
        lowest += place == 38;
      }
    }
    below += sum / 39 < interval.low;
    above += sum / 39 > interval.high;
  }
  EXPECT_EQ(below, 24u);
  EXPECT_EQ(above, 24u);
  EXPECT_GT(lowest, 0u);
}

// Share of 400 samples of 120 scores (P(1) = 0.6, P(0.5) = 0.2) whose interval, moved by `shift`,
// holds the true mean.
double coverage(double shift) {
  constexpr int kTrials = 400;
  int covered = 0;
  for (uint64_t trial = 0; trial < kTrials; ++trial) {
    RandomStream draw({11}, Purpose::kQuestions, trial);
    ScoreCounts scores;
    for (int i = 0; i < 120; ++i) {
      const double u = draw.uniform();
      ++scores[u < 0.6 ? 1.0 : u < 0.8 ? 0.5 : 0.0];
    }
    const Interval interval = interval95(scores, RandomStream({12}, Purpose::kBootstrap, trial));
    if (interval.low + shift <= 0.7 && 0.7 <= interval.high + shift) ++covered;
  }
  return static_cast<double>(covered) / kTrials;
}

// 6000 samples of this kind gave a coverage of 0.953, and of 0.822 with the shift. From binomials
// of 400 trials with those: below 0.90 in one of 140,000 changes of the seed, above 0.985 in one of
// 2000; the shifted one is missed in one of 100,000.
TEST(Statistics, BootstrapIntervalsCoverTheMean) {
  const double share = coverage(0);
  EXPECT_GT(share, 0.90);
  EXPECT_LT(share, 0.985);
  EXPECT_LT(coverage(0.036), 0.90);
}

// Scores that are nearly all 0 or 1: a bootstrap of the scores alone covers 76 to 91 % of the means
// there. 3000 samples a cell gave coverages of 0.958 to 0.989 with both ends added (0.944 to 0.971
// at n 480, 1000 samples). From binomials of 1000 with those, one of the fifteen cells falls below
// 0.94 in one of 200 changes of the seed.
TEST(Statistics, IntervalsOfPartialScoresCoverTheMeanNearTheEnds) {
  using Population = std::vector<std::pair<double, double>>;  // score, its probability
  const Population populations[] = {{{0, 0.95}, {0.25, 0.03}, {1, 0.02}},
                                    {{0, 0.9}, {0.1, 0.095}, {1, 0.005}},
                                    {{1, 0.985}, {0.5, 0.005}, {0, 0.01}},
                                    {{1, 0.9}, {0.75, 0.05}, {0.5, 0.03}, {0.25, 0.01}, {0, 0.01}},
                                    {{0, 0.3}, {0.5, 0.4}, {1, 0.3}}};
  for (const Population& population : populations) {
    double mean = 0;
    for (const auto& [score, probability] : population) mean += score * probability;
    for (const int n : {30, 64, 120}) {
      int covered = 0;
      for (uint64_t trial = 0; trial < 1000; ++trial) {
        RandomStream draw({13}, Purpose::kQuestions, trial);
        ScoreCounts scores;
        for (int i = 0; i < n; ++i) {
          double u = draw.uniform();
          size_t which = 0;
          while (which + 1 < population.size() && u >= population[which].second) {
            u -= population[which++].second;
          }
          ++scores[population[which].first];
        }
        const Interval interval =
            interval95(scores, RandomStream({14}, Purpose::kBootstrap, trial));
        covered += interval.low <= mean && mean <= interval.high;
      }
      EXPECT_GE(covered / 1000.0, 0.94) << "first score " << population[0].first << " with "
                                        << population[0].second << ", n " << n;
    }
  }
}

PairedDifference withP(double p) {
  PairedDifference paired{0.1, {0.05, 0.15}, 100};
  paired.p = p;
  return paired;
}

std::vector<PairedDifference> byHolm(const std::vector<double>& plain) {
  std::vector<PairedDifference> all;
  for (const double p : plain) all.push_back(withP(p));
  std::vector<PairedDifference*> family;
  for (PairedDifference& one : all) family.push_back(&one);
  applyHolm(family);
  return all;
}

// By hand: sorted 0.001, 0.01, 0.011, 0.04, 0.5 times 5, 4, 3, 2, 1 are 0.005, 0.04, 0.033, 0.08
// and 0.5, and none is below the one before it.
TEST(Holm, EachIsMultipliedByThoseThatAreLeft) {
  const auto all = byHolm({0.04, 0.001, 0.5, 0.011, 0.01});
  const double expected[] = {0.08, 0.005, 0.5, 0.04, 0.04};
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_NEAR(all[i].holm_p, expected[i], 1e-15) << i;
    EXPECT_EQ(all[i].differsByHolm(), expected[i] <= 0.05) << i;
    EXPECT_EQ(all[i].family, 5u);
  }
  EXPECT_EQ(byHolm({0.3, 0.4})[0].holm_p, 0.6);
  EXPECT_EQ(byHolm({0.3, 0.4})[1].holm_p, 0.6);
  EXPECT_EQ(byHolm({0.9, 0.8})[0].holm_p, 1);
  EXPECT_EQ(byHolm({0.05})[0].holm_p, 0.05);
  EXPECT_TRUE(byHolm({0.05})[0].differsByHolm());
  EXPECT_TRUE(byHolm({}).empty());
  // Never more than the plain interval says, nor anything without a family.
  auto one = byHolm({0.001})[0];
  one.interval = {-0.1, 0.3};
  EXPECT_FALSE(one.differsByHolm());
  EXPECT_FALSE(withP(0.001).differsByHolm());
}

// 16 methods that answer as dense does, each with draws of its own, and scores that are partial. By
// the plain interval some method differs in half of such families or more; by Holm's rule in at
// most 5 %, of 200 families 10. More than 22 come by chance in one of 3,000 changes of the seeds.
TEST(Holm, OneOfManyEqualMethodsDiffersInFewFamilies) {
  int plain = 0, holm = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    RandomStream draw({15}, Purpose::kQuestions, seed);
    std::vector<double> level(100), dense(100);
    const auto answer = [&](size_t i) {
      const double u = draw.uniform();
      return u < level[i] / 2 ? 1.0 : u < level[i] ? 0.25 : 0.0;
    };
    for (size_t i = 0; i < level.size(); ++i) {
      level[i] = draw.uniform();
      dense[i] = answer(i);
    }
    std::vector<PairedDifference> methods;
    for (uint64_t method = 0; method < 16; ++method) {
      std::vector<double> differences;
      for (size_t i = 0; i < level.size(); ++i) differences.push_back(answer(i) - dense[i]);
      methods.push_back(pairedDifference(
          differences, RandomStream({16}, Purpose::kBootstrap, seed * 16 + method)));
    }
    std::vector<PairedDifference*> family;
    for (PairedDifference& one : methods) family.push_back(&one);
    applyHolm(family);
    const auto any = [&](auto says) {
      return std::any_of(methods.begin(), methods.end(), says) ? 1 : 0;
    };
    plain += any([](const auto& one) { return one.differs(); });
    holm += any([](const auto& one) { return one.differsByHolm(); });
  }
  EXPECT_GT(plain, 60);
  EXPECT_LE(holm, 22);
}

TEST(Statistics, LeastSquaresSlope) {
  EXPECT_NEAR(*leastSquaresSlope({{0, 1}, {1, 3}, {2, 2}}), 0.5, 1e-12);
  EXPECT_EQ(leastSquaresSlope({{1, 1}, {1, 2}}), std::nullopt);
  EXPECT_EQ(leastSquaresSlope({}), std::nullopt);
}

}  // namespace
}  // namespace allot
