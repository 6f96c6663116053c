#pragma once
// Bounds of the mean of differences in -1..1 that hold at every look at once.
//
// Somebody who starts with a wealth of 1 and bets on each difference that the mean is above m can,
// if it is not, reach a wealth of 1 / error at any time with a probability of at most `error`
// (Ville's inequality). The wealth is the mean over kBets fixed shares of prod (1 + share (d - m) /
// (1 + m)), so that it depends on how often each difference came and not on their order (hedged
// capital with a mixture of fixed bets: Waudby-Smith and Ramdas, Estimating means of bounded random
// variables by betting, 2024). The differences need not be independent of what was seen before, and
// somebody may stop at any look.
//
// Pure, any thread; the same bits everywhere (core/learning/exact_math.h).
#include <cstdint>
#include <vector>

namespace allot {

// Differences are counted in steps of 1 / kDifferenceSteps. Differences of halves, thirds, ...,
// sixths, eighths and tenths are whole steps.
inline constexpr int kDifferenceSteps = 120;
inline constexpr int kDifferenceValues = 2 * kDifferenceSteps + 1;
// Returns the place of a difference in the counts, rounded down.
int stepOf(double difference);
inline double differenceAt(int step) {
  return static_cast<double>(step - kDifferenceSteps) / kDifferenceSteps;
}

// [kDifferenceValues] how often each difference came, ascending from -1.
using DifferenceCounts = std::vector<uint64_t>;

// Returns the natural logarithm of the wealth of bets that the mean is above `mean`.
// Requires: -1 <= mean < 1.
double logWealth(const DifferenceCounts& counts, double mean);

// Returns a bound that the mean is below at any look with a probability of at most `error`. It is
// rounded down by less than 1e-6.
// Requires: 0 < error < 1.
double lowerBound(const DifferenceCounts& counts, double error);
// Returns the bound that the mean is above with that probability. Counts of differences that were
// rounded down need a step more.
double upperBound(const DifferenceCounts& counts, double error);

}  // namespace allot
