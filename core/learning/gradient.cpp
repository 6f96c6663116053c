#include "core/learning/gradient.h"

#include <algorithm>
#include <cassert>
#include <cmath>

#include "core/learning/exact_math.h"

namespace allot {
namespace {

constexpr double kAdamDecay1 = 0.9;
constexpr double kAdamDecay2 = 0.999;
constexpr double kAdamEpsilon = 1e-8;

// Returns the share of a constant gradient that Adam's moment holds after `steps` steps.
double gathered(double decay, uint64_t steps) { return 1 - exactPower(decay, steps); }

double importanceWeight(const v1::Spec& spec, const google::protobuf::RepeatedField<double>& logits,
                        const v1::EpisodeResult& result) {
  if (modeOf(spec.staleness()) != StalenessMode::kTruncatedIs) return 1.0;
  const SampleSchedule schedule(result.schedule().begin(), result.schedule().end());
  const double log_ratio =
      logProbability(schedule, {logits.begin(), logits.end()}, spec.policy().min_per_layer()) -
      result.behaviour_log_prob();
  return std::min(spec.staleness().rho_bar(), exactExp(log_ratio));
}

}  // namespace

double entropy(const std::vector<double>& probabilities) {
  double nats = 0;
  for (double p : probabilities) {
    if (p > 0) nats -= p * exactLog(p);
  }
  return nats;
}

std::vector<double> policyGradient(const v1::Spec& spec,
                                   const google::protobuf::RepeatedField<double>& logits,
                                   uint32_t total, const std::vector<GradientTerm>& terms) {
  const std::vector<double> probabilities = softmax({logits.begin(), logits.end()});
  const size_t layers = probabilities.size();
  const uint32_t min_per_layer = spec.policy().min_per_layer();
  const double drawn =
      std::max<double>(1.0, static_cast<double>(total) - 1.0 * layers * min_per_layer);
  // Algorithm 1's gradient is of draws, not of their shares: n - N pi.
  const double unit = learnerOf(spec.update()) == Learner::kSanta ? 1.0 : drawn;
  double weight_sum = 0;
  std::vector<double> gradient(layers, 0.0);
  for (const GradientTerm& term : terms) {
    assert(term.schedule.size() == layers);
    weight_sum += term.weight;
    const double advantage = term.weight * term.advantage;
    for (size_t l = 0; l < layers; ++l) {
      const double share = (static_cast<double>(term.schedule[l]) - min_per_layer) / unit;
      gradient[l] += advantage * (share - probabilities[l] * (drawn / unit));
    }
  }
  if (weight_sum > 0) {
    for (double& g : gradient) g /= weight_sum;
  }
  const double bonus = spec.update().entropy_bonus();
  if (bonus > 0) {
    const double h = entropy(probabilities);
    for (size_t l = 0; l < layers; ++l) {
      const double p = probabilities[l];
      if (p > 0) gradient[l] -= bonus * p * (exactLog(p) + h);  // dH/dlogit_l
    }
  }
  return gradient;
}

double ascend(const v1::Spec& spec, uint64_t steps, const std::vector<ComparedResult>& results,
              const Ascended& of, google::protobuf::RepeatedField<double>* weights) {
  assert(steps > 0);
  assert(of.first_moment->size() == of.logits->size());
  assert(of.second_moment->size() == of.logits->size());
  std::vector<GradientTerm> terms;
  for (const ComparedResult& one : results) {
    if (!one.drawn) continue;
    const double weight = importanceWeight(spec, *of.logits, *one.result);
    (*weights)[one.index] = weight;
    if (one.alone) continue;
    const auto& schedule = one.result->schedule();
    terms.push_back({{schedule.begin(), schedule.end()}, weight, one.advantage});
  }
  const std::vector<double> gradient = policyGradient(spec, *of.logits, of.total, terms);
  const double rate = spec.update().learning_rate();
  const bool by_moments = optimizerOf(spec.update()) == Optimizer::kAdam;
  const double gathered1 = gathered(kAdamDecay1, steps);
  const double gathered2 = gathered(kAdamDecay2, steps);
  double squares = 0;
  for (int l = 0; l < of.logits->size(); ++l) {
    double delta = gradient[l];
    squares += gradient[l] * gradient[l];
    if (by_moments) {
      const double m = kAdamDecay1 * of.first_moment->Get(l) + (1 - kAdamDecay1) * gradient[l];
      const double v =
          kAdamDecay2 * of.second_moment->Get(l) + (1 - kAdamDecay2) * gradient[l] * gradient[l];
      of.first_moment->Set(l, m);
      of.second_moment->Set(l, v);
      const double m_hat = m / gathered1;
      const double v_hat = v / gathered2;
      delta = m_hat / (std::sqrt(v_hat) + kAdamEpsilon);
    }
    of.logits->Set(l, of.logits->Get(l) + rate * delta);
  }
  return squares;
}

}  // namespace allot
