#include "core/evaluation/score_statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/learning/exact_math.h"

namespace allot {
namespace {

constexpr double kZ = 1.959963984540054;
constexpr size_t kResamples = 1000;
constexpr size_t kTail = kResamples / 40;  // means left out at either end
constexpr uint64_t kMostResampled = 10'000;

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

Interval percentileBootstrap(const std::vector<double>& values, RandomStream* random) {
  std::vector<double> means(kResamples);
  for (double& mean : means) mean = resampledMean(values, random);
  std::sort(means.begin(), means.end());
  return {means[kTail - 1], means[kResamples - kTail], "bootstrap"};
}

// Returns the mean plus and minus 1.96 standard errors, the limit of a bootstrap of many values.
Interval normalInterval(const std::vector<double>& values) {
  const auto n = static_cast<double>(values.size());
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / n;
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  const double half = kZ * std::sqrt(squares) / n;
  return {mean - half, mean + half, "normal"};
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
    return paired;
  }
  double sum = 0, squares = 2;
  for (const double difference : differences) {
    sum += difference;
    squares += difference * difference;
  }
  paired.p = std::erfc(std::abs(sum) / std::sqrt(2 * squares));
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
