#include "core/learning/measured.h"

#include <algorithm>
#include <cassert>
#include <cmath>

#include "core/digest.h"
#include "core/learning/exact_math.h"
#include "core/spec/spec.h"

namespace allot {
namespace {

constexpr size_t kKnots = kMeasuredReads.size() - 1;  // without 0
using Knots = std::array<double, kKnots>;

// Below this a loss counts as this: its logarithm must be finite.
constexpr double kLeastLoss = 1e-9;
// Standard deviation of the log of a loss around scale times shape, in layers that differ in their
// shape. On recall-7m it is 0.5.
constexpr double kOwnShape = 0.5;
// Least variance of the log of a measured loss: questions are few, and their losses skewed.
constexpr double kLeastVariance = 0.01;
// A layer is better off than with 1 read if it is by this number of standard errors.
constexpr double kClearly = 2;
constexpr int kRounds = 50;  // of the alternating least squares, which converge in a few

// The mean of a measured loss and its variance.
struct Measured {
  double mean = 0, variance = 0;
};

// Questions are independent, and the steps of one are not.
Measured measured(const v1::LayerLoss& loss) {
  if (loss.steps() == 0) return {};
  const auto steps = static_cast<double>(loss.steps());
  const auto questions = static_cast<double>(std::max<uint64_t>(2, loss.questions()));
  const double sum = loss.divergence();
  const double spread = std::max(0.0, loss.divergence_squared() - sum * sum / questions);
  return {sum / steps, spread * questions / (questions - 1) / (steps * steps)};
}

const v1::LayerLoss& lossAt(const v1::Measurement& measurement, uint32_t layers, size_t place,
                            uint32_t layer) {
  return measurement.losses(static_cast<int>(place * layers + layer));
}

bool isPossible(const v1::LayerLoss& loss) {
  return loss.divergence() >= 0 && loss.divergence() < 1e100 && loss.divergence_squared() >= 0 &&
         loss.divergence_squared() < 1e100 && loss.agreed() <= loss.steps() &&
         loss.questions() <= loss.steps();
}

// Replaces numbers by the nearest that do not rise, in the weighted mean of squares (pool adjacent
// violators).
void makeFalling(const Knots& variances, Knots* numbers) {
  struct Block {
    double mean = 0, weight = 0;
    size_t size = 1;
  };
  std::vector<Block> blocks;
  for (size_t k = 0; k < kKnots; ++k) {
    blocks.push_back({(*numbers)[k], 1 / variances[k], 1});
    while (blocks.size() > 1 && blocks[blocks.size() - 2].mean < blocks.back().mean) {
      const Block last = blocks.back();
      blocks.pop_back();
      Block& into = blocks.back();
      const double weight = into.weight + last.weight;
      into = {(into.mean * into.weight + last.mean * last.weight) / weight, weight,
              into.size + last.size};
    }
  }
  size_t k = 0;
  for (const Block& block : blocks) {
    for (size_t i = 0; i < block.size; ++i) (*numbers)[k++] = block.mean;
  }
}

// Pools the layers. The log of a loss is modelled as a scale of its layer, plus a shape that all
// layers share, plus a normal deviation of its own: [layers] logs become the posterior means of
// that, made to fall. Returns the shape, 0 at the first knot.
Knots smooth(const std::vector<Knots>& variances, std::vector<Knots>* logs) {
  const size_t layers = logs->size();
  constexpr double kOwn = kOwnShape * kOwnShape;
  std::vector<double> scales(layers);
  Knots shape{};
  for (int round = 0; round < kRounds; ++round) {
    for (size_t l = 0; l < layers; ++l) {
      double sum = 0, weights = 0;
      for (size_t k = 0; k < kKnots; ++k) {
        const double weight = 1 / (variances[l][k] + kOwn);
        sum += weight * ((*logs)[l][k] - shape[k]);
        weights += weight;
      }
      scales[l] = sum / weights;
    }
    for (size_t k = 0; k < kKnots; ++k) {
      double sum = 0, weights = 0;
      for (size_t l = 0; l < layers; ++l) {
        const double weight = 1 / (variances[l][k] + kOwn);
        sum += weight * ((*logs)[l][k] - scales[l]);
        weights += weight;
      }
      shape[k] = sum / weights;
    }
  }
  for (size_t l = 0; l < layers; ++l) {
    for (size_t k = 0; k < kKnots; ++k) {
      const double common = scales[l] + shape[k];
      const double kept = kOwn / (kOwn + variances[l][k]);
      (*logs)[l][k] = common + kept * ((*logs)[l][k] - common);
    }
    makeFalling(variances[l], &(*logs)[l]);
  }
  const double first = shape[0];
  for (double& at : shape) at = std::min(0.0, at - first);
  return shape;
}

}  // namespace

Status checkMeasurement(const v1::Measurement& measurement, uint32_t layers) {
  bool right = layers > 0 &&
               measurement.losses_size() == static_cast<int64_t>(kMeasuredReads.size() * layers);
  for (size_t i = 0; right && i < kMeasuredReads.size() * layers; ++i) {
    const v1::LayerLoss& loss = measurement.losses(static_cast<int>(i));
    right = loss.reads() == kMeasuredReads[i / layers] && loss.layer() == i % layers &&
            isPossible(loss);
  }
  if (right) return {};
  return fail(ErrorCode::kData, "its measurement of the layers does not fit a model of " +
                                    std::to_string(layers) + " layers");
}

LayerLosses::LayerLosses(const v1::Measurement& measurement) {
  const auto layers = static_cast<uint32_t>(measurement.losses_size() / kMeasuredReads.size());
  assert(checkMeasurement(measurement, layers));
  measured_ = std::any_of(measurement.losses().begin(), measurement.losses().end(),
                          [](const v1::LayerLoss& loss) { return loss.divergence() > 0; });
  const v1::LayerLoss& any = measurement.losses(0);
  steps_ = static_cast<double>(any.steps()) /
           static_cast<double>(std::max<uint64_t>(1, any.questions()));
  std::vector<Knots> variances(layers);
  for (uint32_t l = 0; l < layers; ++l) {
    auto& logs = logs_.emplace_back();
    for (size_t k = 0; k < kKnots; ++k) {
      const Measured at = measured(lossAt(measurement, layers, k + 1, l));
      const double loss = std::max(kLeastLoss, at.mean);
      logs[k] = exactLog(loss);
      variances[l][k] = kLeastVariance + at.variance / (loss * loss);
    }
  }
  const Knots shape = smooth(variances, &logs_);
  slope_ = shape.back() / exactLog(kMeasuredReads.back());
  for (uint32_t l = 0; l < layers; ++l) {
    const Measured off = measured(lossAt(measurement, layers, 0, l));
    const double one = exactExp(logs_[l][0]);
    const double error = std::sqrt(off.variance + variances[l][0] * one * one);
    off_.push_back(off.mean < one - kClearly * error ? off.mean : std::max(off.mean, one));
  }
}

double LayerLosses::loss(uint32_t layer, uint32_t reads) const {
  assert(layer < layers());
  if (reads == 0) return off_[layer];
  const auto& logs = logs_[layer];
  const double at = exactLog(reads);
  if (reads >= kMeasuredReads.back()) {
    return exactExp(logs.back() + slope_ * (at - exactLog(kMeasuredReads.back())));
  }
  size_t k = 0;
  while (reads >= kMeasuredReads[k + 2]) ++k;
  const double from = exactLog(kMeasuredReads[k + 1]), to = exactLog(kMeasuredReads[k + 2]);
  return exactExp(logs[k] + (logs[k + 1] - logs[k]) * (at - from) / (to - from));
}

SampleSchedule LayerLosses::best(uint32_t total, uint32_t min_per_layer) const {
  if (!measured_) return uniformSchedule(total, layers());
  return bestSchedule(layers(), total, min_per_layer,
                      [&](uint32_t layer, uint32_t draws) { return -loss(layer, draws); });
}

SampleSchedule LayerLosses::bestWithin(uint32_t units, const PriceList& prices) const {
  if (!measured_) {
    if (auto uniform = uniformWithin(units, layers(), prices)) return *std::move(uniform);
  }
  return allot::bestWithin(units, layers(), prices, [&](uint32_t layer, size_t action) {
    const uint32_t reads = prices[action].reads;
    return reads == kAllRows ? 0.0 : -loss(layer, reads);
  });
}

v1::Experiment measuredSettings(const v1::Spec& spec) {
  v1::Experiment settings;
  v1::Spec& of = *settings.mutable_spec();
  of.set_seed(spec.seed());
  *of.mutable_model() = spec.model();
  of.mutable_model()->clear_device();
  *of.mutable_task() = spec.task();
  of.mutable_task()->clear_train_questions();
  of.mutable_task()->clear_confirm_questions();
  of.mutable_task()->clear_held_out_questions();
  *of.mutable_attention() = spec.attention();
  *of.mutable_generation() = spec.generation();
  of.mutable_policy()->set_zero_reads(spec.policy().zero_reads());
  return settings;
}

std::string measurementDigest(const v1::Spec& spec) {
  return sha256Hex(canonicalBytes(measuredSettings(spec)));
}

bool inheritsMeasurement(const v1::Spec& spec, const v1::Origin* origin) {
  return origin != nullptr && origin->state().has_measurement() &&
         origin->measured_of() == measurementDigest(spec);
}

SampleSchedule measuredSchedule(const v1::Measurement& measurement, const PriceList& prices,
                                uint32_t total, uint32_t min_per_layer) {
  const LayerLosses losses(measurement);
  if (!prices.empty()) return losses.bestWithin(unitsOf(total, losses.layers()), prices);
  return losses.best(total, std::min(min_per_layer, total / losses.layers()));
}

std::optional<SampleSchedule> measuredSchedule(const v1::AggregatorState& state, uint32_t total,
                                               uint32_t min_per_layer) {
  if (!state.has_measurement()) return std::nullopt;
  return measuredSchedule(state.measurement(), pricesOf(state.policy()), total, min_per_layer);
}

}  // namespace allot
