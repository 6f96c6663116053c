#pragma once
// The statistics that allot reports. Pure functions, any thread.
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "core/random_stream.h"

namespace allot {

struct Interval {
  double low = 0;
  double high = 0;
  std::string_view name = "";  // its method: "wilson", "bootstrap", "normal", "exact"
};

// Scores in [0, 1], each with the number of times that it occurs.
using ScoreCounts = std::map<double, uint64_t>;

// Returns the Wilson score interval, 95 %, for a mean of n scores in [0, 1] with this sum. For
// scores other than 0 and 1 it is conservative: their variance is at most p(1-p). n = 0 gives 0..1.
Interval wilson95(double sum, size_t n);

// Returns a 95 % interval for the mean of these scores. If every score is 0 or 1, or all are equal,
// it is wilson95. Otherwise it is a percentile bootstrap of these scores and two added ones, a 0
// and a 1: the 25th smallest and the 25th largest mean of 1000 samples drawn with replacement
// (Efron and Tibshirani, "An Introduction to the Bootstrap", 13.3). Without the added scores,
// intervals near 0 and 1 cover as little as 76 % of means; with them between 94 and 99.5 %. Beyond
// 10,000 scores it is the mean plus and minus 1.96 standard errors, with the added scores. The
// interval always holds the mean. Equal `random` streams give equal intervals.
Interval interval95(const ScoreCounts& scores, RandomStream random);

// The difference of two mean scores on the same questions.
struct PairedDifference {
  double mean = 0;
  Interval interval;       // 95 %
  uint64_t questions = 0;  // answered by both
  double p = 1;            // of no difference, two-sided, by `test`
  double holm_p = 1;       // the same by Holm's rule, once applyHolm() has set it
  uint64_t family = 0;     // comparisons that share Holm's rule; 0: none
  double lower95 = -1;     // the one-sided 95 % bound: with this confidence the mean is above it
  std::string_view test = "";  // of p: "mcnemar", "sign-flip", "normal"

  // Returns true if the interval excludes 0.
  bool differs() const { return interval.low > 0 || interval.high < 0; }
  // Returns true if the difference also stands among all those of its family.
  bool differsByHolm() const { return family > 0 && holm_p <= 0.05 && differs(); }
};

// Returns the mean and interval of differences, one for each question and each in -1..1. The
// interval is the percentile bootstrap of these differences and two more, one +1 and one -1; beyond
// 10,000 of them the mean plus and minus 1.96 standard errors. It always holds the mean. With few
// questions that differ, a bootstrap alone is too sure: four that all favour one side would decide,
// although the sign test says p = 0.125. With the two it agrees with the sign test, as Agresti and
// Min do for proportions ("Simple improved confidence intervals for comparing matched proportions",
// Statistics in Medicine 24, 2005). If no question differs the interval is exact: 1 - 0.05^(1/n)
// either way. A larger share of differing questions would have shown with a probability of 0.95.
// Equal streams give equal intervals, and negated differences the mirror image. No questions:
// -1..1.
//
// lower95 is the 50th smallest of 1000 means of these differences and one more, a -1. It is for
// decisions that a method is no worse than by a margin. If the true difference is the margin, such
// a decision falls in 6.7 % of runs at most, and in less than 5 % of most kinds of runs. With both
// added values it would fall in up to 12 %: the +1 hides a loss that few questions show.
//
// p is McNemar's exact test, as "mcnemar", if every difference is -1, 0 or 1. Otherwise it is that
// of the differences' sum under random signs, as "sign-flip": all signs if at most 12 questions
// differ, else 9999 random ones and the observed ones. Beyond 10,000 questions whose differences
// are partial it is the normal limit of that, as "normal". By random signs p is never below
// 0.0001, so that the smallest holm_p of a family of m is at least m times that: above 0.05 with
// more than 500.
PairedDifference pairedDifference(const std::vector<double>& differences, RandomStream random);

// Sets holm_p and family of comparisons that are shown together (Holm, "A simple sequentially
// rejective multiple test procedure", Scandinavian Journal of Statistics 6, 1979): of m, the i-th
// smallest p times m - i + 1, and no less than the one before it. If those up to 0.05 count as
// differences, one or more that is none is among them with a probability of at most 0.05.
void applyHolm(const std::vector<PairedDifference*>& family);

// Returns the slope of the least-squares line through (x, y); nothing without two different x.
std::optional<double> leastSquaresSlope(const std::vector<std::pair<double, double>>& points);

// Returns for each value the moving average (decay 0.9) of the values before it, and for the first
// the value itself: a baseline for a plot of updates' mean rewards.
std::vector<double> movingAverages(const std::vector<double>& values);

}  // namespace allot
