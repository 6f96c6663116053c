// The rule that compares recorded scores with those that are measured again.
#include "core/evaluation/measured_again.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <tuple>
#include <vector>

namespace allot {
namespace {

// The formula written down another way: Pascal's rule in place of logarithms of factorials.
double signTail(int n, double share, int least) {
  std::vector<double> p(static_cast<size_t>(n) + 1, 0);
  p[0] = 1;
  for (int i = 1; i <= n; ++i) {
    for (int k = i; k >= 0; --k) {
      const auto at = static_cast<size_t>(k);
      p[at] = p[at] * (1 - share) + (k > 0 ? p[at - 1] * share : 0);
    }
  }
  double sum = 0;
  for (int k = least; k <= n; ++k) sum += p[static_cast<size_t>(k)];
  return sum;
}

TEST(MeasuredAgain, TheProbabilityIsAnExactSignTestWithAMargin) {
  for (const auto& [answers, higher, lower] :
       {std::tuple{100, 5, 1}, {1000, 40, 12}, {500, 0, 9}, {2000, 30, 31}, {60, 60, 0}}) {
    const int differing = higher + lower;
    const double share = std::min(1.0, 0.5 + kAgainMargin * answers / (2.0 * differing));
    const double expected = std::min(1.0, 2 * signTail(differing, share, std::max(higher, lower)));
    const AgainCounts counts{static_cast<uint64_t>(answers), static_cast<uint64_t>(higher),
                             static_cast<uint64_t>(lower)};
    EXPECT_NEAR(againProbability(counts), expected, 1e-9) << answers << " " << higher;
  }
  EXPECT_EQ(againProbability({100, 0, 0}), 1);
}

TEST(MeasuredAgain, TooManyDifferingScoresAreFoundWhateverTheirDirection) {
  EXPECT_NEAR(againDifferingProbability({88, 19, 8, 88 * 0.15}), signTail(88, 0.15, 27), 1e-9);
  EXPECT_EQ(againDifferingProbability({88, 10, 3, 88 * 0.15}), 1);
  MeasuredAgain again;
  for (int i = 0; i < 1000; ++i) again.add("a", false, i % 4 == 0 ? i / 4 % 2 : 0.5, 0.5, 30);
  EXPECT_EQ(again.all().higher, again.all().lower);
  EXPECT_EQ(again.verdict(), AgainVerdict::kDisagrees);
}

TEST(MeasuredAgain, ExactScoresMustBeEqual) {
  MeasuredAgain again;
  for (int i = 0; i < 1000; ++i) again.add("a", true, 0.5, 0.5, 10);
  EXPECT_EQ(again.verdict(), AgainVerdict::kEqual);
  again.add("b", false, 1, 0, 10);
  EXPECT_EQ(again.verdict(), AgainVerdict::kAgrees);
  again.add("b", true, 1, std::nextafter(1.0, 0.0), 10);
  EXPECT_EQ(again.verdict(), AgainVerdict::kDisagrees);
  EXPECT_TRUE(again.isSuspect("b"));
  EXPECT_FALSE(again.isSuspect("a"));
  EXPECT_EQ(again.all().answers, 1002u);
  // No more than a half of the answers, however long.
  again.add("c", false, 1, 0, 5000);
  EXPECT_NEAR(again.all().may_differ, 1002 * 0.05 + 0.5, 1e-9);
}

// Measures a run on another device again: `differing` of the answers differ, and the mean is
// shifted by `shift`. The first of the workers records `changed` of its scores higher. Returns true
// if the run is refused. Answers have 30 tokens, so that kDiffering of them may differ.
constexpr double kDiffering = 30 * kAgainPerToken;
bool isRefused(std::mt19937_64& random, int answers, int workers, double differing, double shift,
               double changed) {
  MeasuredAgain again;
  std::uniform_real_distribution<double> uniform;
  for (int i = 0; i < answers; ++i) {
    const std::string worker(1, static_cast<char>('a' + i % workers));
    const double x = uniform(random);
    double recorded = 0.5;
    if (x < differing / 2 + shift) recorded = 1;
    if (x > 1 - differing / 2) recorded = 0;
    if (worker == "a" && uniform(random) < changed) recorded = 1;
    again.add(worker, false, recorded, 0.5, 30);
  }
  return again.verdict() == AgainVerdict::kDisagrees;
}

// At the margins themselves, the worst case. If 1 in 1,000 honest runs is refused, 20 refusals of
// 5,000 come by chance once in 1,000,000 tests.
TEST(MeasuredAgain, HonestRunsAreRefusedOnceInAThousandAtMost) {
  std::mt19937_64 random(1);
  for (const double differing : {0.0, 0.01, 0.05, kDiffering - kAgainMargin}) {
    int refused = 0;
    for (int run = 0; run < 5'000; ++run) {
      refused += isRefused(random, 1000, 4, differing, kAgainMargin, 0) ? 1 : 0;
    }
    EXPECT_LT(refused, 20) << differing;
  }
}

// 5 % of all answers, of one worker or as 20 % of one worker's of four. The default of 2,000
// answers suffices if 5 % differ honestly.
TEST(MeasuredAgain, FivePercentOfChangedAnswersAreFound) {
  std::mt19937_64 random(2);
  for (const int workers : {1, 4}) {
    for (const double differing : {0.0, 0.05}) {
      int found = 0;
      for (int run = 0; run < 1000; ++run) {
        found += isRefused(random, 2000, workers, differing, 0, 0.05 * workers) ? 1 : 0;
      }
      EXPECT_GT(found, 950) << workers << " " << differing;
    }
  }
}

}  // namespace
}  // namespace allot
