#include "core/learning/additive.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <numeric>

#include "core/learning/exact_math.h"
#include "core/learning/logistic_update.h"

namespace allot {
namespace {

using EntryFeatures = std::array<double, 4>;  // the last one with prices alone

// Standard deviations of the prior, in log-odds. The first, of a read against none, is the largest,
// and falls with the number of layers (priorOf). The last, of all rows, is that of log n at 128.
constexpr EntryFeatures kPriorDeviation{2.0, 0.5, 0.1, 0.5};
// Reads help, the first of a layer the most. Without this prior the first draws of weights would
// put all reads into a few layers.
constexpr EntryFeatures kPriorMean{1.0, -0.4, 0.0, 0.0};
// Most episodes that are learned from together: the cost grows as their cube.
constexpr size_t kMostTogether = 400;
// Up to this number of layers a layer has the first of kPriorDeviation; beyond it less.
constexpr double kLayersOfPrior = 8;
// The share of a layer's prior variance that its heads have in common.
constexpr double kSharedByHeads = 0.8;
// Of the multiple of the measured losses: its mean, which is its standard deviation, too.
constexpr double kLossMultiple = 1;
// The most that the measured losses may multiply the variance along themselves by. Beyond it,
// losses are beyond reason, and the difference of precisions is one of rounding errors.
constexpr double kMostGrowth = 1e11;
// What a measurement leaves of the other deviations of the prior.
constexpr double kLeftByMeasurement = 0.5;
// Variances of the log-odds of a right answer under the uniform schedule: of the level of all sets,
// and of a set's own level around it.
constexpr double kLevelVariance = 4.0, kSetLevelVariance = 0.25;

EntryFeatures featuresOf(uint32_t draws, double log_draws) {
  if (draws == 0) return {};
  return {1.0, 1.0 / draws, log_draws, 0.0};
}

// Returns the features of an entry of the problem's schedules.
EntryFeatures featuresOf(const AdditiveProblem& problem, uint32_t draws) {
  if (!problem.prices.empty() && draws == kAllRows) return {1.0, 0.0, 0.0, 1.0};
  return featuresOf(draws, draws == 0 ? 0 : exactLog(draws));
}

// The prior of one of a layer's weights, summed over its heads.
struct Prior {
  double variance = 0;
  double precision = 0;
};
Prior priorOf(size_t feature, double layers) {
  const double deviation = kPriorDeviation[feature];
  const double part = feature == 0 ? std::min(1.0, kLayersOfPrior / layers) : 1;
  const double variance = part * deviation * part * deviation;
  return {variance, 1 / variance};
}

// Returns the most reads that a schedule of the problem has in an entry, except kAllRows.
uint32_t mostReads(const AdditiveProblem& problem) {
  if (problem.prices.empty()) return problem.total;
  uint32_t most = 0;
  for (const Action& action : problem.prices) {
    if (action.reads < kAllRows) most = std::max(most, action.reads);
  }
  return most;
}

// [weightsOfEntry()] Returns the weights under which a layer's reads are worth what they are
// measured to save, in nats a token: the least squares over kMeasuredReads and the powers of two
// from there to mostReads(). 0 reads are worth 0, and all rows the whole loss at 0 reads, but not
// less than the fit has for other reads.
std::vector<double> measuredWeights(const AdditiveProblem& problem, const LayerLosses& losses,
                                    uint32_t layer) {
  constexpr size_t kWeights = 3;
  std::vector<double> squares(inTriangle(kWeights, 0)), weights(kWeights);
  const double off = losses.loss(layer, 0);
  const uint32_t most = std::max(kMeasuredReads.back(), mostReads(problem));
  for (uint64_t power = 1; power <= most; power *= 2) {
    const auto reads = static_cast<uint32_t>(power);
    const EntryFeatures f = featuresOf(reads, exactLog(reads));
    for (size_t i = 0; i < kWeights; ++i) {
      weights[i] += f[i] * (off - losses.loss(layer, reads));
      for (size_t j = 0; j <= i; ++j) squares[inTriangle(i, j)] += f[i] * f[j];
    }
  }
  const std::vector<double> root = factorOf(std::move(squares), kWeights);
  solveLower(root, &weights);
  solveUpper(root, &weights);
  if (problem.prices.empty()) return weights;
  double all = off;
  for (const Action& action : problem.prices) {
    if (action.reads == kAllRows) continue;
    const EntryFeatures f = featuresOf(problem, action.reads);
    all = std::max(all, weights[0] * f[0] + weights[1] * f[1] + weights[2] * f[2]);
  }
  weights.push_back(all - weights[0]);
  return weights;
}

// [features] Returns f(n) - f(u) of each entry; 0 for the level.
std::vector<double> aboveReference(const AdditiveProblem& problem, const SampleSchedule& reference,
                                   const SampleSchedule& schedule) {
  std::vector<double> x;
  x.reserve(problem.features());
  for (uint32_t l = 0; l < problem.entries; ++l) {
    const auto here = featuresOf(problem, schedule[l]);
    const auto there = featuresOf(problem, reference[l]);
    for (size_t f = 0; f < problem.weightsOfEntry(); ++f) x.push_back(here[f] - there[f]);
  }
  x.resize(problem.features());
  return x;
}

// Draws two independent standard normals by Marsaglia's polar method, which needs no trigonometry.
std::array<double, 2> twoNormals(RandomStream* random) {
  for (;;) {
    const double x = 2 * random->uniform() - 1, y = 2 * random->uniform() - 1;
    const double square = x * x + y * y;
    if (square >= 1 || square == 0) continue;
    const double scale = std::sqrt(-2 * exactLog(square) / square);
    return {x * scale, y * scale};
  }
}

std::vector<double> normals(size_t count, RandomStream* random) {
  std::vector<double> drawn(count);
  for (size_t i = 0; i < count; i += 2) {
    const auto pair = twoNormals(random);
    drawn[i] = pair[0];
    if (i + 1 < count) drawn[i + 1] = pair[1];
  }
  return drawn;
}

[[maybe_unused]] bool fits(const AdditiveProblem& problem, const v1::LearnerState& state) {
  return static_cast<size_t>(state.evidence_size()) == problem.features() &&
         static_cast<size_t>(state.precision_size()) == inTriangle(problem.features(), 0);
}

// Returns the sum of an entry's weights times its features.
double worthOf(const AdditiveProblem& problem, const double* weights, const EntryFeatures& f) {
  const double sum = weights[0] * f[0] + weights[1] * f[1] + weights[2] * f[2];
  return problem.prices.empty() ? sum : sum + weights[3] * f[3];
}

}  // namespace

SampleSchedule AdditiveProblem::reference() const {
  if (prices.empty()) return uniformSchedule(total / per_layer, entries / per_layer, per_layer);
  if (auto uniform = uniformWithin(total, entries, prices)) return *std::move(uniform);
  return bestWithin(total, entries, prices, [&](uint32_t, size_t action) {
    return worthOf(*this, kPriorMean.data(), featuresOf(*this, prices[action].reads));
  });
}

bool AdditiveProblem::isSchedule(const SampleSchedule& schedule) const {
  if (schedule.size() != entries) return false;
  if (prices.empty()) {
    return std::accumulate(schedule.begin(), schedule.end(), uint64_t{0}) == total &&
           std::all_of(schedule.begin(), schedule.end(),
                       [&](uint32_t draws) { return draws >= min_per_layer; });
  }
  const auto price = priceOf(schedule, prices);
  return price && *price <= total;
}

AdditiveProblem problemOf(const v1::Spec& spec, uint32_t layers, uint32_t per_layer,
                          uint32_t total_budget, const PriceList& prices) {
  assert(layers > 0 && per_layer > 0);
  if (!prices.empty()) {
    assert(per_layer == 1);
    return {layers, unitsOf(total_budget, layers), 0, spec.rollout().questions_per_episode(), 1,
            prices};
  }
  assert(uint64_t{layers} * spec.policy().min_per_layer() <= total_budget);
  return {layers * per_layer,
          total_budget * per_layer,
          spec.policy().min_per_layer(),
          spec.rollout().questions_per_episode(),
          per_layer,
          {}};
}

void beginAdditive(const AdditiveProblem& problem, v1::LearnerState* state) {
  const size_t features = problem.features(), of_entry = problem.weightsOfEntry();
  state->mutable_precision()->Resize(static_cast<int>(inTriangle(features, 0)), 0.0);
  state->mutable_evidence()->Resize(static_cast<int>(features), 0.0);
  // The covariance of a layer's heads is shared * ones + own * identity, so that their sum has the
  // variance of a layer, heads * heads * shared + heads * own. The precision is its inverse.
  const double heads = problem.per_layer, layers = problem.entries / heads;
  const size_t of_layer = of_entry * problem.per_layer;
  for (size_t i = 0; i < of_entry * problem.entries; ++i) {
    const auto [variance, alone] = priorOf(i % of_entry, layers);
    const double shared = kSharedByHeads * variance / (heads * heads);
    const double own = variance / heads - heads * shared;
    const double common = shared / (own * (own + heads * shared));
    const size_t first = i / of_layer * of_layer;
    for (size_t j = first + i % of_entry; j < i && problem.per_layer > 1; j += of_entry) {
      state->set_precision(static_cast<int>(inTriangle(i, j)), -common);
    }
    const double precision = problem.per_layer == 1 ? alone : 1 / own - common;
    state->set_precision(static_cast<int>(inTriangle(i, i)), precision);
  }
  state->set_precision(static_cast<int>(inTriangle(features - 1, features - 1)),
                       1 / kLevelVariance);
  // Evidence is precision times mean. All heads of a layer have the same mean.
  for (size_t i = 0; i < of_entry * problem.entries; ++i) {
    const double mean = kPriorMean[i % of_entry] / heads;
    const size_t first = i / of_layer * of_layer;
    double evidence = 0;
    for (size_t j = first + i % of_entry; j < first + of_layer; j += of_entry) {
      const size_t at = inTriangle(std::max(i, j), std::min(i, j));
      evidence += state->precision(static_cast<int>(at)) * mean;
    }
    state->set_evidence(static_cast<int>(i), evidence);
  }
}

void beginMeasured(const AdditiveProblem& problem, const LayerLosses& losses,
                   v1::LearnerState* state) {
  assert(fits(problem, *state));
  assert(losses.layers() * problem.per_layer == problem.entries);
  const double steps = losses.stepsOfAnswer();
  if (!(steps > 0)) return;
  const size_t features = problem.features(), of_entry = problem.weightsOfEntry();
  std::vector<double> saved(features), along(features);  // along: precision times saved
  for (uint32_t entry = 0; entry < problem.entries; ++entry) {
    const auto weights = measuredWeights(problem, losses, entry / problem.per_layer);
    for (size_t f = 0; f < of_entry; ++f) {
      saved[entry * of_entry + f] = kLossMultiple * steps * weights[f] / problem.per_layer;
    }
  }
  // Of all weights but the level, whose row is the last.
  std::vector<double> precision(state->precision().begin(), state->precision().end());
  for (size_t i = 0; i < inTriangle(features - 1, 0); ++i) {
    precision[i] /= kLeftByMeasurement * kLeftByMeasurement;
  }
  double whole = 1;
  for (size_t i = 0; i < features; ++i) {
    for (size_t j = 0; j < features; ++j) {
      along[i] += precision[inTriangle(std::max(i, j), std::min(i, j))] * saved[j];
    }
    whole += along[i] * saved[i];
  }
  if (!(whole < kMostGrowth)) return;
  // The covariance grows by saved saved^T (Sherman and Morrison), and the mean is `saved`.
  for (size_t i = 0; i < features; ++i) {
    for (size_t j = 0; j <= i; ++j) precision[inTriangle(i, j)] -= along[i] * along[j] / whole;
  }
  for (double& evidence : along) evidence /= whole;
  if (factorOf(precision, features).empty()) return;
  *state->mutable_precision() = {precision.begin(), precision.end()};
  *state->mutable_evidence() = {along.begin(), along.end()};
}

void observe(const AdditiveProblem& problem, const std::vector<GradedEpisode>& episodes,
             v1::LearnerState* state) {
  assert(fits(problem, *state));
  Gaussian weights{{state->precision().begin(), state->precision().end()},
                   {state->evidence().begin(), state->evidence().end()}};
  std::vector<GradedAnswers> batch;
  const SampleSchedule reference = problem.reference();
  for (const GradedEpisode& episode : episodes) {
    assert(problem.isSchedule(episode.schedule));
    std::vector<double> x = aboveReference(problem, reference, episode.schedule);
    x.back() = 1;
    batch.push_back({std::move(x), std::clamp(episode.reward, 0.0, 1.0) * problem.questions,
                     static_cast<double>(problem.questions), episode.set});
    if (batch.size() < kMostTogether) continue;
    learnAnswers(batch, kSetLevelVariance, &weights);
    batch.clear();
  }
  learnAnswers(batch, kSetLevelVariance, &weights);
  *state->mutable_precision() = {weights.precision.begin(), weights.precision.end()};
  *state->mutable_evidence() = {weights.evidence.begin(), weights.evidence.end()};
}

AdditivePosterior::AdditivePosterior(const AdditiveProblem& problem, const v1::LearnerState& state)
    : problem_(problem),
      root_(factorOf({state.precision().begin(), state.precision().end()}, problem.features())),
      weights_(state.evidence().begin(), state.evidence().end()),
      reference_(problem.reference()) {
  assert(fits(problem, state));
  // Sums of a state from outside may overflow.
  if (root_.empty()) {
    root_.resize(inTriangle(problem.features(), 0));
    for (size_t i = 0; i < problem.features(); ++i) root_[inTriangle(i, i)] = 1;
    std::fill(weights_.begin(), weights_.end(), 0.0);
  }
  solveLower(root_, &weights_);
  solveUpper(root_, &weights_);
  if (!problem.prices.empty()) return;
  const uint32_t free_draws = problem.total - problem.entries * problem.min_per_layer;
  const uint32_t step = allotmentStep(free_draws);
  for (uint32_t n = 0; n <= free_draws; n += step) {
    const uint32_t draws = problem.min_per_layer + n;
    logs_.push_back(draws == 0 ? 0 : exactLog(draws));
  }
}

SampleSchedule AdditivePosterior::bestBy(const std::vector<double>& weights) const {
  const uint32_t of_entry = problem_.weightsOfEntry();
  if (!problem_.prices.empty()) {
    return bestWithin(problem_.total, problem_.entries, problem_.prices,
                      [&](uint32_t entry, size_t action) {
                        return worthOf(problem_, weights.data() + size_t{entry} * of_entry,
                                       featuresOf(problem_, problem_.prices[action].reads));
                      });
  }
  const uint32_t step = allotmentStep(problem_.total - problem_.entries * problem_.min_per_layer);
  return bestSchedule(problem_.entries, problem_.total, problem_.min_per_layer,
                      [&](uint32_t entry, uint32_t draws) {
                        const auto f =
                            featuresOf(draws, logs_[(draws - problem_.min_per_layer) / step]);
                        return worthOf(problem_, weights.data() + size_t{entry} * of_entry, f);
                      });
}

SampleSchedule AdditivePosterior::best() const { return bestBy(weights_); }

SampleSchedule AdditivePosterior::drawn(RandomStream* random) const {
  const size_t d = weights_.size();
  std::vector<double> drawn = normals(d, random);
  solveUpper(root_, &drawn);  // L^T e = normals, so that e has the posterior's covariance
  for (size_t i = 0; i < d; ++i) drawn[i] += weights_[i];
  return bestBy(drawn);
}

AdditivePosterior::Estimate AdditivePosterior::along(const std::vector<double>& direction) const {
  Estimate estimate;
  std::vector<double> solved(direction);
  solveLower(root_, &solved);
  double variance = 0;
  for (size_t i = 0; i < solved.size(); ++i) {
    estimate.mean += direction[i] * weights_[i];
    variance += solved[i] * solved[i];
  }
  estimate.deviation = std::sqrt(variance);
  return estimate;
}

AdditivePosterior::Estimate AdditivePosterior::above(const SampleSchedule& schedule) const {
  return along(aboveReference(problem_, reference_, schedule));
}

AdditivePosterior::Estimate AdditivePosterior::difference(const SampleSchedule& schedule,
                                                          const SampleSchedule& other) const {
  std::vector<double> direction = aboveReference(problem_, reference_, schedule);
  const std::vector<double> from = aboveReference(problem_, reference_, other);
  for (size_t i = 0; i < direction.size(); ++i) direction[i] -= from[i];
  return along(direction);
}

AdditivePosterior::Estimate AdditivePosterior::worth(uint32_t layer, uint32_t draws) const {
  std::vector<double> direction(weights_.size());
  const auto f = featuresOf(problem_, draws);
  const uint32_t of_entry = problem_.weightsOfEntry();
  for (uint32_t h = 0; h < problem_.per_layer; ++h) {
    const size_t entry = size_t{layer} * problem_.per_layer + h;
    std::copy_n(f.begin(), of_entry, direction.begin() + static_cast<ptrdiff_t>(entry * of_entry));
  }
  return along(direction);
}

double AdditivePosterior::inReward(double log_odds) const {
  return exactLogistic(weights_.back() + log_odds) - exactLogistic(weights_.back());
}

}  // namespace allot
