#include "worker/engine/variance.h"

#include <algorithm>
#include <cassert>
#include <cmath>

namespace allot {
namespace {

// A distribution over values, and the trace of its covariance.
class Mixture {
 public:
  explicit Mixture(size_t width) : sum_(width) {}

  void add(double mass, const float* value) {
    double norm = 0;
    for (size_t i = 0; i < sum_.size(); ++i) {
      sum_[i] += mass * value[i];
      norm += static_cast<double>(value[i]) * value[i];
    }
    squares_ += mass * norm;
    mass_ += mass;
  }
  double mass() const { return mass_; }
  double trace() const {
    double mean = 0;
    for (const double s : sum_) mean += (s / mass_) * (s / mass_);
    return std::max(0.0, squares_ / mass_ - mean);
  }
  void clear() {
    std::fill(sum_.begin(), sum_.end(), 0);
    squares_ = mass_ = 0;
  }

 private:
  std::vector<double> sum_;
  double squares_ = 0;
  double mass_ = 0;
};

double independent(std::span<const double> masses, const ValueOf& value, size_t width,
                   uint32_t draws) {
  Mixture all(width);
  for (size_t j = 0; j < masses.size(); ++j) all.add(masses[j], value(j));
  return all.trace() / draws;
}

// A heavy key fills several strata, and a light one may be in two.
double stratified(std::span<const double> masses, const ValueOf& value, size_t width,
                  uint32_t draws) {
  constexpr double kRounding = 1e-9;  // of a stratum's mass, which is 1
  Mixture stratum(width);
  double sum = 0;
  for (size_t j = 0; j < masses.size(); ++j) {
    double rest = masses[j] * draws;
    while (rest > 0) {
      const double taken = std::min(rest, 1 - stratum.mass());
      stratum.add(taken, value(j));
      rest -= taken;
      if (stratum.mass() < 1 - kRounding) continue;
      sum += stratum.trace();
      stratum.clear();
    }
  }
  if (stratum.mass() > kRounding) sum += stratum.trace();  // the last one, short by roundings
  return sum / (static_cast<double>(draws) * draws);
}

}  // namespace

void Spread::add(std::span<const float> out) {
  if (count_++ == 0) {
    first_.assign(out.begin(), out.end());
    sum_.assign(out.size(), 0);
    return;
  }
  assert(out.size() == first_.size());
  for (size_t i = 0; i < out.size(); ++i) {
    const double difference = static_cast<double>(out[i]) - first_[i];
    sum_[i] += difference;
    squares_ += difference * difference;
  }
}

double Spread::variance() const {
  assert(count_ >= 2);
  double square = 0;
  for (const double s : sum_) square += s * s;
  const auto count = static_cast<double>(count_);
  return std::max(0.0, (squares_ - square / count) / (count - 1));
}

bool hasClosedForm(const kernels::MethodOptions& method) {
  const kernels::MethodTraits& traits = kernels::traitsOf(method.method);
  return traits.scored_by == kernels::ScoredBy::kExact && !method.group_draws &&
         (traits.chosen_by == kernels::ChosenBy::kStratified ||
          traits.chosen_by == kernels::ChosenBy::kIndependent);
}

std::optional<double> closedFormVariance(const kernels::MethodOptions& method,
                                         std::span<const float> scores, const ValueOf& value,
                                         size_t width, uint32_t budget) {
  if (!hasClosedForm(method)) return std::nullopt;
  const bool strata = kernels::traitsOf(method.method).chosen_by == kernels::ChosenBy::kStratified;
  const bool exact = budget >= scores.size() && kernels::exactFromAllKeys(method);
  if (budget == 0 || exact) return 0;
  const float top = *std::max_element(scores.begin(), scores.end());
  std::vector<double> masses(scores.size());
  double total = 0;
  for (size_t j = 0; j < scores.size(); ++j) {
    masses[j] = std::exp(static_cast<double>(scores[j]) - top);
    total += masses[j];
  }
  for (double& mass : masses) mass /= total;
  return strata ? stratified(masses, value, width, budget)
                : independent(masses, value, width, budget);
}

}  // namespace allot
