#include "core/evaluation/score_statistics.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "core/learning/exact_math.h"

namespace allot {
namespace {

constexpr double kZ = 1.959963984540054;
constexpr size_t kResamples = 1000;
constexpr size_t kTail = kResamples / 40;       // means left out at either end
constexpr size_t kLowerTail = kResamples / 20;  // means up to the one-sided bound
constexpr double kOneSidedZ = 1.6448536269514722;
constexpr uint64_t kMostResampled = 10'000;
constexpr size_t kMostEnumerated = 12;  // differing questions whose signs are all tried
constexpr uint64_t kFlips = 9'999;

// Returns the mean of n values drawn with replacement. An index is a word times n, divided by 2^32,
// which is uneven by n / 2^32.
double resampledMean(const std::vector<double>& values, RandomStream* random) {
  const size_t n = values.size();
  double sum = 0;
  for (size_t drawn = 0; drawn < n;) {
    for (const uint32_t word : random->words()) {
      if (drawn++ < n) sum += values[uint64_t{word} * n >> 32];
    }
  }
  return sum / static_cast<double>(n);
}

// Returns kResamples means, ascending.
std::vector<double> resampledMeans(const std::vector<double>& values, RandomStream* random) {
  std::vector<double> means(kResamples);
  for (double& mean : means) mean = resampledMean(values, random);
  std::sort(means.begin(), means.end());
  return means;
}

Interval percentileBootstrap(const std::vector<double>& values, RandomStream* random) {
  const std::vector<double> means = resampledMeans(values, random);
  return {means[kTail - 1], means[kResamples - kTail], "bootstrap"};
}

// Returns the mean plus and minus z standard errors, the limit of a bootstrap of many values.
Interval normalInterval(const std::vector<double>& values, double z = kZ) {
  const auto n = static_cast<double>(values.size());
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / n;
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  const double half = z * std::sqrt(squares) / n;
  return {mean - half, mean + half, "normal"};
}

// Returns lower95 of differences, of which one or more is not 0.
double lowerBound(std::vector<double> differences, double mean, RandomStream* random) {
  differences.push_back(-1);
  const double bound = differences.size() > kMostResampled
                           ? normalInterval(differences, kOneSidedZ).low
                           : resampledMeans(differences, random)[kLowerTail - 1];
  return std::min(bound, mean);
}

// Returns McNemar's exact two-sided probability of so uneven signs. Each step halves as soon as it
// can, so that nothing overflows; no step depends on the machine's library.
double mcnemar(uint64_t wins, uint64_t losses) {
  const uint64_t n = wins + losses, fewer = std::min(wins, losses);
  double term = 1;  // binomial(n, fewer) / 2^halved
  int halved = 0;
  for (uint64_t i = 1; i <= fewer; ++i) {
    term *= static_cast<double>(n - fewer + i) / static_cast<double>(i);
    for (; term > 1; ++halved) term /= 2;
  }
  double ratio = 1, tail = 0;  // of binomial(n, k) to binomial(n, fewer)
  for (uint64_t k = fewer;; --k) {
    tail += ratio;
    if (k == 0) break;
    ratio *= static_cast<double>(k) / static_cast<double>(n - k + 1);
  }
  return std::min(1.0, 2 * std::ldexp(term * tail, halved - static_cast<int>(n)));
}

// Returns the share of signs under which the sum of the magnitudes is at least as far from 0 as
// `sum`. Sums that should be equal may differ in their last bits.
double signFlip(const std::vector<double>& magnitudes, double sum, RandomStream* random) {
  const double least = std::abs(sum) * (1 - 1e-12);
  std::vector<double> values;  // each magnitude, then its negative: a lookup and no branch
  for (const double magnitude : magnitudes) values.insert(values.end(), {magnitude, -magnitude});
  const auto reaches = [&](auto signBit) {
    double flipped = 0;
    for (size_t i = 0; i < magnitudes.size(); ++i) flipped += values[2 * i + signBit(i)];
    return std::abs(flipped) >= least;
  };
  uint64_t reached = 0;
  if (magnitudes.size() <= kMostEnumerated) {
    const uint64_t all = uint64_t{1} << magnitudes.size();
    for (uint64_t signs = 0; signs < all; ++signs) {
      reached += reaches([&](size_t i) { return signs >> i & 1; });
    }
    return static_cast<double>(reached) / static_cast<double>(all);
  }
  for (uint64_t flip = 0; flip < kFlips; ++flip) {
    std::array<uint32_t, 4> words{};
    reached += reaches([&](size_t i) {
      if (i % 128 == 0) words = random->words();
      return words[i % 128 / 32] >> i % 32 & 1;
    });
  }
  return static_cast<double>(reached + 1) / static_cast<double>(kFlips + 1);
}

// Sets p and test.
void setTest(const std::vector<double>& differences, RandomStream* random,
             PairedDifference* paired) {
  double sum = 0, squares = 0;
  std::vector<double> magnitudes;  // of differing questions
  bool whole = true;
  uint64_t wins = 0;
  for (const double difference : differences) {
    if (difference == 0) continue;
    sum += difference;
    squares += difference * difference;
    wins += difference > 0;
    magnitudes.push_back(std::abs(difference));
    whole = whole && magnitudes.back() == 1;
  }
  if (whole) {
    paired->test = "mcnemar";
    paired->p = mcnemar(wins, magnitudes.size() - wins);
  } else if (differences.size() > kMostResampled) {
    paired->test = "normal";
    paired->p = std::erfc(std::abs(sum) / std::sqrt(2 * squares));
  } else {
    paired->test = "sign-flip";
    paired->p = signFlip(magnitudes, sum, random);
  }
}

// Returns the scores and one 0 and one 1.
std::vector<double> withBothEnds(const ScoreCounts& scores) {
  std::vector<double> values = {0, 1};
  for (const auto& [score, count] : scores) values.insert(values.end(), count, score);
  return values;
}

}  // namespace

Interval wilson95(double sum, size_t n) {
  if (n == 0) return {0, 1, "wilson"};
  const double count = static_cast<double>(n);
  const double p = sum / count;
  const double shrink = 1 + kZ * kZ / count;
  const double centre = (p + kZ * kZ / (2 * count)) / shrink;
  const double half = kZ * std::sqrt(p * (1 - p) / count + kZ * kZ / (4 * count * count)) / shrink;
  return {std::max(0.0, centre - half), std::min(1.0, centre + half), "wilson"};
}

Interval interval95(const ScoreCounts& scores, RandomStream random) {
  uint64_t n = 0;
  double sum = 0;
  for (const auto& [score, count] : scores) {
    n += count;
    sum += score * static_cast<double>(count);
  }
  const bool binary = std::all_of(scores.begin(), scores.end(), [](const auto& entry) {
    return entry.first == 0 || entry.first == 1;
  });
  if (binary || scores.size() < 2) return wilson95(sum, n);
  const std::vector<double> values = withBothEnds(scores);
  const Interval around =
      n > kMostResampled ? normalInterval(values) : percentileBootstrap(values, &random);
  const double mean = sum / static_cast<double>(n);
  return {std::clamp(around.low, 0.0, mean), std::clamp(around.high, mean, 1.0), around.name};
}

PairedDifference pairedDifference(const std::vector<double>& differences, RandomStream random) {
  PairedDifference paired{0, {-1, 1, "exact"}, differences.size()};
  if (differences.empty()) return paired;
  const auto n = static_cast<double>(differences.size());
  paired.mean = std::accumulate(differences.begin(), differences.end(), 0.0) / n;
  const auto first = std::find_if(differences.begin(), differences.end(),
                                  [](double difference) { return difference != 0; });
  if (first == differences.end()) {
    const double most = 1 - exactExp(exactLog(0.05) / n);
    paired.interval = {-most, most, "exact"};
    paired.lower95 = -most;
    paired.test = "mcnemar";
    return paired;
  }
  // The value with the first difference's sign comes first, so that swapped sides are a mirror
  // image.
  std::vector<double> values = differences;
  const double sign = std::copysign(1, *first);
  values.push_back(sign);
  values.push_back(-sign);
  const Interval around = values.size() > kMostResampled ? normalInterval(values)
                                                         : percentileBootstrap(values, &random);
  paired.interval = {std::min(around.low, paired.mean), std::max(around.high, paired.mean),
                     around.name};
  paired.lower95 = lowerBound(differences, paired.mean, &random);
  setTest(differences, &random, &paired);
  return paired;
}

void applyHolm(const std::vector<PairedDifference*>& family) {
  std::vector<PairedDifference*> sorted = family;
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto* a, const auto* b) { return a->p < b->p; });
  double before = 0;
  for (size_t i = 0; i < sorted.size(); ++i) {
    before = std::clamp(sorted[i]->p * static_cast<double>(sorted.size() - i), before, 1.0);
    sorted[i]->holm_p = before;
    sorted[i]->family = sorted.size();
  }
}

std::optional<double> leastSquaresSlope(const std::vector<std::pair<double, double>>& points) {
  double mean_x = 0;
  double mean_y = 0;
  for (const auto& [x, y] : points) {
    mean_x += x / static_cast<double>(points.size());
    mean_y += y / static_cast<double>(points.size());
  }
  double xx = 0;
  double xy = 0;
  for (const auto& [x, y] : points) {
    xx += (x - mean_x) * (x - mean_x);
    xy += (x - mean_x) * (y - mean_y);
  }
  if (xx <= 0) return std::nullopt;
  return xy / xx;
}

std::vector<double> movingAverages(const std::vector<double>& values) {
  std::vector<double> averages;
  double average = values.empty() ? 0 : values.front();
  for (const double value : values) {
    averages.push_back(average);
    average = 0.9 * average + 0.1 * value;
  }
  return averages;
}

}  // namespace allot
