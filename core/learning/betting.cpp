#include "core/learning/betting.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>

#include "core/learning/exact_math.h"

namespace allot {
namespace {

// The shares of the wealth that are bet: kMostBet, and then each half of the one before. The
// smallest one is best for means of some 0.003.
constexpr int kBets = 8;
constexpr double kMostBet = 0.8, kBetRatio = 0.5;
// Halvings of an interval of 2: to less than 1e-6.
constexpr int kHalvings = 22;
// Slack for quotients of decimal scores, in steps.
constexpr double kRounding = 1e-9;

DifferenceCounts mirrored(DifferenceCounts counts) {
  std::reverse(counts.begin(), counts.end());
  return counts;
}

}  // namespace

int stepOf(double difference) {
  const double step = std::floor(difference * kDifferenceSteps + kRounding) + kDifferenceSteps;
  return static_cast<int>(std::clamp(step, 0.0, double{kDifferenceValues - 1}));
}

double logWealth(const DifferenceCounts& counts, double mean) {
  assert(counts.size() == kDifferenceValues && mean >= -1 && mean < 1);
  std::array<double, kBets> logs{};
  double share = kMostBet;
  for (double& log : logs) {
    for (int step = 0; step < kDifferenceValues; ++step) {
      const uint64_t count = counts[static_cast<size_t>(step)];
      if (count == 0) continue;
      // 1 + share (d - m) / (1 + m). At m = -1 no difference is below the mean.
      const double odds = mean > -1 ? (differenceAt(step) - mean) / (1 + mean) : 1;
      log += static_cast<double>(count) * exactLog(1 + share * odds);
    }
    share *= kBetRatio;
  }
  const double most = *std::max_element(logs.begin(), logs.end());
  double sum = 0;
  for (const double log : logs) sum += exactExp(log - most);
  return most + exactLog(sum / kBets);
}

double lowerBound(const DifferenceCounts& counts, double error) {
  assert(error > 0 && error < 1);
  const double enough = -exactLog(error);
  // The wealth falls with the mean that is bet against.
  double low = -1, high = 1;
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = (low + high) / 2;
    (logWealth(counts, middle) >= enough ? low : high) = middle;
  }
  return low;
}

double upperBound(const DifferenceCounts& counts, double error) {
  return -lowerBound(mirrored(counts), error);
}

}  // namespace allot
