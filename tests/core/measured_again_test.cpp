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
  for (int i = 0; i < 1000; ++i) again.add("a", "", false, i % 4 == 0 ? i / 4 % 2 : 0.5, 0.5, 30);
  EXPECT_EQ(again.all().higher, again.all().lower);
  EXPECT_EQ(again.verdict(), AgainVerdict::kDisagrees);
}

TEST(MeasuredAgain, ExactScoresMustBeEqual) {
  MeasuredAgain again;
  for (int i = 0; i < 1000; ++i) again.add("a", "x", true, 0.5, 0.5, 10);
  EXPECT_EQ(again.verdict(), AgainVerdict::kEqual);
  again.add("b", "", false, 1, 0, 10);
  EXPECT_EQ(again.verdict(), AgainVerdict::kAgrees);
  again.add("b", "y", true, 1, std::nextafter(1.0, 0.0), 10);
  EXPECT_EQ(again.verdict(), AgainVerdict::kDisagrees);
  EXPECT_TRUE(again.isSuspect("b"));
  EXPECT_FALSE(again.isSuspect("a"));
  EXPECT_TRUE(again.isSuspectCell("y"));
  EXPECT_FALSE(again.isSuspectCell("x"));
  EXPECT_EQ(again.all().answers, 1002u);
  // No more than a half of the answers, however long.
  again.add("c", "", false, 1, 0, 5000);
  EXPECT_NEAR(again.all().may_differ, 1002 * 0.05 + 0.5, 1e-9);
}

// What stands beside a score must be equal wherever it is compared.
TEST(MeasuredAgain, LabelsMustBeEqualWhereTheScoreIs) {
  for (const AgainLabels& differing : {AgainLabels{.task = true}, AgainLabels{.other_score = true},
                                       AgainLabels{.length = true}, AgainLabels{.text = true}}) {
    MeasuredAgain again;
    again.add("a", "x", true, 0.5, 0.5, 10);
    again.add("b", "y", false, 0.5, 0.5, 10, differing);
    EXPECT_EQ(again.verdict(), AgainVerdict::kDisagrees);
    EXPECT_TRUE(again.isSuspect("b"));
    EXPECT_FALSE(again.isSuspect("a"));
    EXPECT_TRUE(again.isSuspectCell("y"));
    EXPECT_FALSE(again.isSuspectCell("x"));
    const AgainCounts& all = again.all();
    EXPECT_EQ(all.differing(), 0u);
    EXPECT_EQ(all.tasks, differing.task ? 1u : 0u);
    EXPECT_EQ(all.other_scores, differing.other_score ? 1u : 0u);
    EXPECT_EQ(all.lengths, differing.length ? 1u : 0u);
    EXPECT_EQ(all.texts, differing.text ? 1u : 0u);
  }
}

// A run that is measured again on another device: `differing` of the answers differ, and the mean
// is shifted by `shift`. The first of the workers records `changed` of its scores higher. The first
// `edited` answers of the first cell that are 0 by the device here are recorded as 1.
struct Run {
  int answers = 1000, workers = 4, cells = 10;
  double differing = 0, shift = 0, changed = 0;
  int edited = 0;
  uint32_t tokens = 30;
};

// Returns true if the run is refused.
bool isRefused(std::mt19937_64& random, const Run& run) {
  MeasuredAgain again;
  std::uniform_real_distribution<double> uniform;
  std::vector<std::string> workers, cells;
  for (int w = 0; w < run.workers; ++w) workers.push_back(std::to_string(w));
  for (int c = 0; c < run.cells; ++c) cells.push_back("cell " + std::to_string(c));
  int left = run.edited;
  for (int i = 0; i < run.answers; ++i) {
    const size_t worker = static_cast<size_t>(i % run.workers);
    const size_t cell = static_cast<size_t>(i / run.workers % run.cells);
    const double x = uniform(random);
    double recorded = 0.5;
    if (x < run.differing / 2 + run.shift) recorded = 1;
    if (x > 1 - run.differing / 2) recorded = 0;
    if (worker == 0 && uniform(random) < run.changed) recorded = 1;
    if (cell == 0 && left > 0) {
      --left;
      recorded = 1;
    }
    again.add(workers[worker], cells[cell], false, recorded, 0.5, run.tokens);
  }
  return again.verdict() == AgainVerdict::kDisagrees;
}

int refusedOf(int runs, std::mt19937_64& random, const Run& run) {
  int refused = 0;
  for (int i = 0; i < runs; ++i) refused += isRefused(random, run) ? 1 : 0;
  return refused;
}

// At the margins themselves, the worst case. If 1 in 1,000 honest runs is refused, 20 refusals of
// 5,000 come by chance once in 1,000,000 tests. Answers have 30 tokens, so that kDiffering of them
// may differ.
TEST(MeasuredAgain, HonestRunsAreRefusedOnceInAThousandAtMost) {
  constexpr double kDiffering = 30 * kAgainPerToken;
  std::mt19937_64 random(1);
  for (const double differing : {0.0, 0.01, 0.05, kDiffering - kAgainMargin}) {
    EXPECT_LT(refusedOf(5'000, random, {.differing = differing, .shift = kAgainMargin}), 20)
        << differing;
  }
  // Cells of a few answers, and of one: a tail of few is coarse.
  for (const int cells : {100, 1000}) {
    EXPECT_LT(refusedOf(5'000, random, {.cells = cells, .differing = kDiffering}), 20) << cells;
  }
}

// A CPU against a GPU: 1.8 % differ, as many one way as the other, in answers of 11 tokens.
TEST(MeasuredAgain, AnotherDeviceAgrees) {
  std::mt19937_64 random(3);
  EXPECT_LT(
      refusedOf(5'000, random, {.answers = 8 * 96, .cells = 8, .differing = 0.018, .tokens = 11}),
      20);
  EXPECT_LT(
      refusedOf(200, random, {.answers = 41'280, .cells = 86, .differing = 0.018, .tokens = 11}),
      4);
}

// 5 % of all answers, of one worker or as 20 % of one worker's of four. The default of 2,000
// answers suffices if 5 % differ honestly.
TEST(MeasuredAgain, FivePercentOfChangedAnswersAreFound) {
  std::mt19937_64 random(2);
  for (const int workers : {1, 4}) {
    for (const double differing : {0.0, 0.05}) {
      EXPECT_GT(refusedOf(1000, random,
                          {.answers = 2000,
                           .workers = workers,
                           .differing = differing,
                           .changed = 0.05 * workers}),
                950)
          << workers << " " << differing;
    }
  }
}

// One cell is edited, and the rest differs as on another device.
TEST(MeasuredAgain, AnEditedCellIsFound) {
  std::mt19937_64 random(4);
  // 18 of 96 scores in one of 4 cells.
  EXPECT_GT(refusedOf(1000, random,
                      {.answers = 4 * 96,
                       .workers = 1,
                       .cells = 4,
                       .differing = 0.018,
                       .edited = 18,
                       .tokens = 11}),
            950);
  // 309 of 480 in one of 86 cells, and its share in a sample of kAgainFloor answers a
  // cell, less three standard deviations.
  EXPECT_EQ(refusedOf(20, random,
                      {.answers = 86 * 480,
                       .workers = 2,
                       .cells = 86,
                       .differing = 0.018,
                       .edited = 309,
                       .tokens = 11}),
            20);
  EXPECT_GT(refusedOf(1000, random,
                      {.answers = 86 * kAgainFloor,
                       .workers = 2,
                       .cells = 86,
                       .differing = 0.018,
                       .edited = 309 * kAgainFloor / 480 - 12,
                       .tokens = 11}),
            990);
}

}  // namespace
}  // namespace allot
