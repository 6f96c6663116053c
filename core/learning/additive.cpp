#include "core/learning/additive.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "core/learning/allotment.h"
#include "core/learning/exact_math.h"
#include "core/learning/normals.h"
#include "core/learning/trial.h"

namespace allot {
namespace {

constexpr size_t kOfEntry = 3;  // weights
using EntryFeatures = std::array<double, kOfEntry>;

// Standard deviations of the prior, of a model of eight layers: switching one on or off is worth
// some tenths of the reward. With more layers each has less to say.
constexpr EntryFeatures kPriorDeviation{0.45, 0.2, 0.1};
// Reads help, the first of a layer the most: before anything is known that keeps draws of weights
// from putting all reads into a few layers. Over the layers as the variance is.
constexpr EntryFeatures kPriorMean{0.2, -0.1, 0.0};
constexpr EntryFeatures kFirstPriorDeviation{0.45, 0.45, 0.15};  // by the first rules
constexpr double kLayersOfPrior = 8;
// Of the variance of what a layer is worth: the share that its heads have in common.
constexpr double kSharedByHeads = 0.8;
// Of a graded answer whose score is 0 or 1, between certainty and chance.
constexpr double kAnswerVariance = 0.2;
// How much an episode tells is this and its reward. What layers do multiplies rather than adds: an
// episode of reward 0 says that something needed is missing, and nothing of the other layers.
constexpr double kLeastWeight = 0.2;
// What a question set's mean reward is around before anything is known of it.
constexpr double kSetMean = 0.5, kSetVariance = 0.25;

EntryFeatures featuresOf(uint32_t draws, double log_draws) {
  if (draws == 0) return {};
  return {1.0, 1.0 / draws, log_draws};
}

size_t at(size_t row, size_t column) { return row * (row + 1) / 2 + column; }

double noiseVariance(const AdditiveProblem& problem) { return kAnswerVariance / problem.questions; }

// What a set's episodes come to, each with its weight.
struct SetSums {
  double weight = 0;
  double rewards = 0;  // above kSetMean
};
SetSums sumsOf(const v1::QuestionSet& set, bool first_rules) {
  if (first_rules) {
    return {static_cast<double>(set.episodes()), set.rewards() - set.episodes() * kSetMean};
  }
  return {set.episodes() * kLeastWeight + set.rewards(),
          set.squared_rewards() + (kLeastWeight - kSetMean) * set.rewards() -
              set.episodes() * (kLeastWeight * kSetMean)};
}

// How much of (sum x)(sum x)^T the set's own level takes out at such a sum of weights.
double levelShare(const AdditiveProblem& problem, double weight) {
  return kSetVariance / (noiseVariance(problem) + weight * kSetVariance);
}

std::vector<double> aboveUniform(const AdditiveProblem& problem, const SampleSchedule& schedule) {
  const SampleSchedule uniform = problem.uniform();
  std::vector<double> x;
  x.reserve(problem.features());
  for (uint32_t l = 0; l < problem.entries; ++l) {
    const auto here = featuresOf(schedule[l], schedule[l] == 0 ? 0 : exactLog(schedule[l]));
    const auto there = featuresOf(uniform[l], uniform[l] == 0 ? 0 : exactLog(uniform[l]));
    for (size_t f = 0; f < kOfEntry; ++f) x.push_back(here[f] - there[f]);
  }
  return x;
}

// precision += scale * v v^T, evidence += scale * v * y.
void add(const std::vector<double>& v, double y, double scale, v1::LearnerState* state) {
  for (size_t i = 0; i < v.size(); ++i) {
    if (v[i] == 0) continue;
    const double scaled = scale * v[i];
    double* row = state->mutable_precision()->mutable_data() + at(i, 0);
    for (size_t j = 0; j <= i; ++j) row[j] += scaled * v[j];
    state->mutable_evidence()->mutable_data()[i] += scaled * y;
  }
}

}  // namespace

void beginAdditive(const AdditiveProblem& problem, v1::LearnerState* state) {
  const size_t features = problem.features();
  state->mutable_precision()->Resize(static_cast<int>(at(features, 0)), 0.0);
  state->mutable_evidence()->Resize(static_cast<int>(features), 0.0);
  // A layer's heads together have the variance that a layer has: heads * heads * shared + heads *
  // own, with the covariance shared * ones + own * identity, whose inverse follows.
  const EntryFeatures& deviations =
      goesByFirstRules(*state) ? kFirstPriorDeviation : kPriorDeviation;
  const double heads = problem.per_layer;
  const double layers = problem.entries / heads;
  for (size_t i = 0; i < features; ++i) {
    const double deviation = deviations[i % kOfEntry];
    const double variance = kLayersOfPrior * deviation * deviation / layers;
    const double shared = kSharedByHeads * variance / (heads * heads);
    const double own = variance / heads - heads * shared;
    const double common = shared / (own * (own + heads * shared));
    const size_t first = i / (kOfEntry * problem.per_layer) * kOfEntry * problem.per_layer;
    for (size_t j = first + i % kOfEntry; j < i && problem.per_layer > 1; j += kOfEntry) {
      state->set_precision(static_cast<int>(at(i, j)), -common);
    }
    const double alone = layers / (kLayersOfPrior * deviation * deviation);
    state->set_precision(static_cast<int>(at(i, i)),
                         problem.per_layer > 1 ? 1 / own - common : alone);
  }
  if (goesByFirstRules(*state)) return;
  // Precision times mean; alike in a layer's heads.
  for (size_t i = 0; i < features; ++i) {
    const double mean =
        kPriorMean[i % kOfEntry] * kLayersOfPrior / static_cast<double>(problem.entries);
    const size_t of_layer = kOfEntry * problem.per_layer, first = i / of_layer * of_layer;
    double evidence = 0;
    for (size_t j = first + i % kOfEntry; j < first + of_layer; j += kOfEntry) {
      evidence += state->precision(static_cast<int>(at(std::max(i, j), std::min(i, j)))) * mean;
    }
    state->set_evidence(static_cast<int>(i), evidence);
  }
}

void observe(const AdditiveProblem& problem, const SampleSchedule& schedule, double reward,
             v1::QuestionSet* set, v1::LearnerState* state) {
  const bool first_rules = goesByFirstRules(*state);
  const double weight = first_rules ? 1 : kLeastWeight + reward;
  const double scale = 1 / noiseVariance(problem), y = reward - kSetMean;
  const std::vector<double> x = aboveUniform(problem, schedule);
  if (set->features().empty()) set->mutable_features()->Resize(static_cast<int>(x.size()), 0.0);
  add(x, y, scale * weight, state);
  std::vector<double> sums(set->features().begin(), set->features().end());
  SetSums all = sumsOf(*set, first_rules);
  if (set->episodes() > 0) add(sums, all.rewards, scale * levelShare(problem, all.weight), state);
  for (size_t i = 0; i < x.size(); ++i) sums[i] += weight * x[i];
  all.weight += weight;
  all.rewards += weight * y;
  add(sums, all.rewards, -scale * levelShare(problem, all.weight), state);
  *set->mutable_features() = {sums.begin(), sums.end()};
  if (!first_rules) set->set_squared_rewards(set->squared_rewards() + reward * reward);
}

AdditivePosterior::AdditivePosterior(const AdditiveProblem& problem, const v1::LearnerState& state)
    : problem_(problem),
      root_(state.precision().begin(), state.precision().end()),
      weights_(state.evidence().begin(), state.evidence().end()),
      spread_(goesByFirstRules(state)
                  ? 1
                  : std::min(1.0, kLayersOfPrior * problem.per_layer / problem.entries)) {
  const size_t d = weights_.size();
  for (size_t i = 0; i < d; ++i) {
    for (size_t j = 0; j <= i; ++j) {
      double sum = root_[at(i, j)];
      for (size_t k = 0; k < j; ++k) sum -= root_[at(i, k)] * root_[at(j, k)];
      // The prior alone makes the diagonal positive; rounding cannot take all of it.
      root_[at(i, j)] = i == j ? std::sqrt(sum) : sum / root_[at(j, j)];
    }
  }
  for (size_t i = 0; i < d; ++i) {  // L z = evidence
    for (size_t k = 0; k < i; ++k) weights_[i] -= root_[at(i, k)] * weights_[k];
    weights_[i] /= root_[at(i, i)];
  }
  for (size_t i = d; i-- > 0;) {  // L^T w = z
    for (size_t k = i + 1; k < d; ++k) weights_[i] -= root_[at(k, i)] * weights_[k];
    weights_[i] /= root_[at(i, i)];
  }
  const uint32_t free_draws = problem.total - problem.entries * problem.min_per_layer;
  const uint32_t step = allotmentStep(free_draws);
  for (uint32_t n = 0; n <= free_draws; n += step) {
    const uint32_t draws = problem.min_per_layer + n;
    logs_.push_back(draws == 0 ? 0 : exactLog(draws));
  }
}

SampleSchedule AdditivePosterior::bestBy(const std::vector<double>& weights) const {
  const uint32_t step = allotmentStep(problem_.total - problem_.entries * problem_.min_per_layer);
  return bestSchedule(problem_.entries, problem_.total, problem_.min_per_layer,
                      [&](uint32_t entry, uint32_t draws) {
                        const auto f =
                            featuresOf(draws, logs_[(draws - problem_.min_per_layer) / step]);
                        const double* w = weights.data() + entry * kOfEntry;
                        return w[0] * f[0] + w[1] * f[1] + w[2] * f[2];
                      });
}

SampleSchedule AdditivePosterior::best() const { return bestBy(weights_); }

SampleSchedule AdditivePosterior::drawn(RandomStream* random) const {
  const size_t d = weights_.size();
  std::vector<double> drawn = normals(d, random);
  for (size_t i = d; i-- > 0;) {  // L^T e = normals, so that e has the posterior's covariance
    for (size_t k = i + 1; k < d; ++k) drawn[i] -= root_[at(k, i)] * drawn[k];
    drawn[i] /= root_[at(i, i)];
  }
  for (size_t i = 0; i < d; ++i) drawn[i] = weights_[i] + spread_ * drawn[i];
  return bestBy(drawn);
}

AdditivePosterior::Estimate AdditivePosterior::along(const std::vector<double>& direction) const {
  Estimate estimate;
  std::vector<double> solved(direction);
  double variance = 0;
  for (size_t i = 0; i < solved.size(); ++i) {
    estimate.mean += direction[i] * weights_[i];
    for (size_t k = 0; k < i; ++k) solved[i] -= root_[at(i, k)] * solved[k];
    solved[i] /= root_[at(i, i)];
    variance += solved[i] * solved[i];
  }
  estimate.deviation = std::sqrt(variance);
  return estimate;
}

AdditivePosterior::Estimate AdditivePosterior::above(const SampleSchedule& schedule) const {
  return along(aboveUniform(problem_, schedule));
}

AdditivePosterior::Estimate AdditivePosterior::difference(const SampleSchedule& schedule,
                                                          const SampleSchedule& other) const {
  std::vector<double> direction = aboveUniform(problem_, schedule);
  const std::vector<double> from = aboveUniform(problem_, other);
  for (size_t i = 0; i < direction.size(); ++i) direction[i] -= from[i];
  return along(direction);
}

AdditivePosterior::Estimate AdditivePosterior::worth(uint32_t layer, uint32_t draws) const {
  std::vector<double> direction(weights_.size());
  const auto f = featuresOf(draws, draws == 0 ? 0 : exactLog(draws));
  for (uint32_t h = 0; h < problem_.per_layer; ++h) {
    const size_t entry = size_t{layer} * problem_.per_layer + h;
    std::copy(f.begin(), f.end(), direction.begin() + static_cast<ptrdiff_t>(entry * kOfEntry));
  }
  return along(direction);
}

}  // namespace allot
