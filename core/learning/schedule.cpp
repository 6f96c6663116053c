#include "core/learning/schedule.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <numeric>

#include "core/learning/exact_math.h"

namespace allot {
namespace {

// Rounds total * shares to integers that sum to total.
SampleSchedule largestRemainder(const std::vector<double>& shares, uint32_t total) {
  SampleSchedule schedule(shares.size());
  std::vector<double> remainder(shares.size());
  uint32_t given = 0;
  for (size_t l = 0; l < shares.size(); ++l) {
    const double exact = shares[l] * total;
    schedule[l] = static_cast<uint32_t>(std::floor(exact));
    remainder[l] = exact - schedule[l];
    given += schedule[l];
  }
  std::vector<size_t> order(shares.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return remainder[a] > remainder[b]; });
  for (size_t i = 0; given < total; i = (i + 1) % order.size(), ++given) ++schedule[order[i]];
  return schedule;
}

}  // namespace

std::vector<double> softmax(const std::vector<double>& logits) {
  assert(!logits.empty());
  const double top = *std::max_element(logits.begin(), logits.end());
  std::vector<double> probabilities(logits.size());
  double sum = 0;
  for (size_t l = 0; l < logits.size(); ++l) sum += probabilities[l] = exactExp(logits[l] - top);
  for (double& p : probabilities) p /= sum;
  return probabilities;
}

SampleSchedule drawSchedule(const std::vector<double>& probabilities, uint32_t total,
                            uint32_t min_per_layer, const RunStreams& streams, uint64_t ticket) {
  const size_t layers = probabilities.size();
  assert(layers * min_per_layer <= total);
  SampleSchedule schedule(layers, min_per_layer);
  std::vector<double> cumulative(layers);
  std::partial_sum(probabilities.begin(), probabilities.end(), cumulative.begin());
  RandomStream random(streams, Purpose::kSchedule, ticket);
  for (uint64_t draw = layers * min_per_layer; draw < total; ++draw) {
    const double threshold = random.uniform() * cumulative.back();
    const auto at = std::upper_bound(cumulative.begin(), cumulative.end(), threshold);
    const auto layer = std::min<size_t>(at - cumulative.begin(), layers - 1);
    ++schedule[layer];
  }
  return schedule;
}

double logProbability(const SampleSchedule& schedule, const std::vector<double>& logits,
                      uint32_t min_per_layer) {
  assert(schedule.size() == logits.size());
  const double top = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (double logit : logits) sum += exactExp(logit - top);
  const double log_normaliser = top + exactLog(sum);
  double log_probability = 0;
  for (size_t l = 0; l < schedule.size(); ++l) {
    if (schedule[l] == min_per_layer) continue;
    log_probability +=
        (static_cast<double>(schedule[l]) - min_per_layer) * (logits[l] - log_normaliser);
  }
  return log_probability;
}

SampleSchedule uniformSchedule(uint32_t total, uint32_t layers, uint32_t entries_per_layer) {
  assert(layers > 0 && entries_per_layer > 0);
  SampleSchedule schedule;
  schedule.reserve(size_t{layers} * entries_per_layer);
  for (uint64_t l = 0; l < layers; ++l) {
    const auto draws = static_cast<uint32_t>((l + 1) * total / layers - l * total / layers);
    schedule.insert(schedule.end(), entries_per_layer, draws);
  }
  return schedule;
}

SampleSchedule learnedSchedule(const std::vector<double>& probabilities, uint32_t total,
                               uint32_t min_per_layer, uint32_t trained_total) {
  const auto layers = static_cast<uint32_t>(probabilities.size());
  assert(layers * min_per_layer <= trained_total);
  SampleSchedule schedule = largestRemainder(probabilities, trained_total - layers * min_per_layer);
  for (uint32_t& samples : schedule) samples += min_per_layer;
  return scaledSchedule(schedule, total);
}

SampleSchedule scaledSchedule(const SampleSchedule& schedule, uint32_t total) {
  const auto sum = std::accumulate(schedule.begin(), schedule.end(), uint64_t{0});
  if (total == sum) return schedule;
  assert(sum > 0);
  std::vector<double> shares(schedule.begin(), schedule.end());
  for (double& share : shares) share /= static_cast<double>(sum);
  return largestRemainder(shares, total);
}

SampleSchedule oneHotSchedule(uint32_t total, uint32_t layers, uint32_t layer, uint32_t reads) {
  assert(layer < layers);
  SampleSchedule schedule = uniformSchedule(total, layers);
  schedule[layer] = reads;
  return schedule;
}

uint32_t allotmentStep(uint32_t free_draws) {
  return std::max<uint32_t>(1, (free_draws + kAllotmentSteps - 1) / kAllotmentSteps);
}

SampleSchedule bestSchedule(uint32_t layers, uint32_t total, uint32_t min_per_layer,
                            const std::function<double(uint32_t layer, uint32_t draws)>& value) {
  assert(layers > 0 && uint64_t{layers} * min_per_layer <= total);
  const uint32_t free_draws = total - layers * min_per_layer, step = allotmentStep(free_draws);
  const uint32_t steps = free_draws / step;
  // best[t]: largest sum of the layers so far with t steps in all; taken[l][t]: steps of layer l.
  std::vector<double> best(steps + 1), before, worth(steps + 1);
  std::vector<std::vector<uint32_t>> taken(layers, std::vector<uint32_t>(steps + 1));
  for (uint32_t l = 0; l < layers; ++l) {
    for (uint32_t n = 0; n <= steps; ++n) worth[n] = value(l, min_per_layer + n * step);
    if (l == 0) {
      best = worth;
      for (uint32_t t = 0; t <= steps; ++t) taken[0][t] = t;
      continue;
    }
    before = best;
    for (uint32_t t = 0; t <= steps; ++t) {
      best[t] = before[t] + worth[0];
      taken[l][t] = 0;
      for (uint32_t n = 1; n <= t; ++n) {
        const double sum = before[t - n] + worth[n];
        if (sum > best[t]) {
          best[t] = sum;
          taken[l][t] = n;
        }
      }
    }
  }
  SampleSchedule schedule(layers);
  uint32_t left = steps;
  for (uint32_t l = layers; l-- > 0;) {
    schedule[l] = min_per_layer + taken[l][left] * step;
    left -= taken[l][left];
  }
  *std::max_element(schedule.begin(), schedule.end()) += free_draws - steps * step;
  return schedule;
}

}  // namespace allot
