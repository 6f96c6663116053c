#include "core/learning/rounding.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/learning/exact_math.h"
#include "core/learning/gradient.h"
#include "core/learning/schedule.h"

namespace allot {
namespace {

constexpr double kUlp = 0x1p-52;
// Two libms differ by 1 ulp or 2 in one function; a number is made of a few.
constexpr double kMostUlps = 16;

// Rewards and shares are in 0..1, so a gradient is as precise as the weights, and a weight is as
// precise as the log-probabilities whose difference it is the exponential of.
double gradientScale(const v1::Experiment& experiment, const v1::AggregatorState& before,
                     const v1::IterationRecord& recorded) {
  const v1::Spec& spec = experiment.spec();
  const auto& logits = before.policy().logits();
  double scale = 1;
  if (weighsResults(modeOf(spec.staleness()))) {
    for (const v1::EpisodeResult& result : recorded.results()) {
      // One of heads was drawn by its budget's own logits.
      if (result.schedule_size() != logits.size()) continue;
      const SampleSchedule schedule(result.schedule().begin(), result.schedule().end());
      scale = std::max(scale, 1 + std::abs(logProbability(schedule, {logits.begin(), logits.end()},
                                                          spec.policy().min_per_layer())));
    }
  }
  return scale + spec.update().entropy_bonus() * (1 + exactLog(logits.size()));
}

}  // namespace

void RoundingRule::near(double recorded, double scale, double* computed) {
  if (recorded == *computed) return;
  const double unit = kUlp * std::max(1.0, std::abs(*computed));
  const double ulps = std::abs(recorded - *computed) / unit;
  if (!(ulps <= kMostUlps * scale)) return;  // nor NaN
  *computed = recorded;
  found_.most_ulps = std::max(found_.most_ulps, ulps);
}

void RoundingRule::nearAll(const google::protobuf::RepeatedField<double>& recorded, double scale,
                           google::protobuf::RepeatedField<double>* computed) {
  if (recorded.size() != computed->size()) return;
  for (int i = 0; i < recorded.size(); ++i) near(recorded[i], scale, computed->Mutable(i));
}

void RoundingRule::takeOver(const v1::Experiment& experiment, const v1::AggregatorState& before,
                            const v1::IterationRecord& recorded, UpdateOutcome* computed) {
  v1::IterationRecord& mine = computed->record;
  gradient_scale_ = std::max(gradient_scale_, gradientScale(experiment, before, recorded));
  const double found_before = std::exchange(found_.most_ulps, 0);
  nearAll(recorded.weights(), gradient_scale_, mine.mutable_weights());
  const int layers = mine.policy().logits_size();
  for (int l = 0; l < layers && recorded.policy().logits_size() == layers; ++l) {
    const double step = stepPerGradient(experiment.spec().update(), computed->state, l);
    near(recorded.policy().logits(l), 1 + gradient_scale_ * step,
         mine.mutable_policy()->mutable_logits()->Mutable(l));
  }
  describeStep(before.policy(), &mine);
  *computed->state.mutable_policy() = mine.policy();
  const auto take = [&](double theirs, double scale, double ours, auto set) {
    near(theirs, scale, &ours);
    (mine.*set)(ours);
  };
  using Record = v1::IterationRecord;
  const double nats_scale = 1 + exactLog(layers);
  take(recorded.step_kl_nats(), nats_scale, mine.step_kl_nats(), &Record::set_step_kl_nats);
  take(recorded.entropy_nats(), nats_scale, mine.entropy_nats(), &Record::set_entropy_nats);
  take(recorded.gradient_norm(), gradient_scale_, mine.gradient_norm(), &Record::set_gradient_norm);
  take(recorded.effective_sample_size_ratio(), gradient_scale_, mine.effective_sample_size_ratio(),
       &Record::set_effective_sample_size_ratio);
  if (found_.most_ulps > 0) ++found_.updates;
  found_.most_ulps = std::max(found_.most_ulps, found_before);
}

void RoundingRule::takeOver(const v1::AggregatorState& recorded, v1::AggregatorState* computed) {
  nearAll(recorded.first_moment(), gradient_scale_, computed->mutable_first_moment());
  nearAll(recorded.second_moment(), gradient_scale_, computed->mutable_second_moment());
}

}  // namespace allot
