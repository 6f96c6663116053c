#include "core/spec/spec_learner.h"

#include <string>
#include <string_view>

#include "core/spec/choices.h"

namespace allot {
namespace {

struct StepDefaults {
  Optimizer optimizer = Optimizer::kAdam;
  double learning_rate = 0.05;
  Baseline baseline = Baseline::kLeaveOneOut;
  StalenessMode staleness = StalenessMode::kTruncatedIs;
};

StepDefaults stepDefaultsOf(Learner learner) {
  switch (learner) {
    case Learner::kAdditive:
    case Learner::kReinforce:
      return {};
    case Learner::kSanta:
      return {Optimizer::kSgd, 0.02, Baseline::kBatchMean, StalenessMode::kNone};
  }
  return {};
}

std::string orElse(const std::string& given, std::string_view value) {
  return given.empty() ? std::string(value) : given;
}

}  // namespace

void deriveSteps(v1::Spec& spec) {
  const StepDefaults defaults = stepDefaultsOf(learnerOf(spec.update()));
  v1::Staleness& staleness = *spec.mutable_staleness();
  staleness.set_mode(orElse(staleness.mode(), wordOf(defaults.staleness)));
  if (!spec.has_update()) return;
  v1::Update& update = *spec.mutable_update();
  update.set_optimizer(orElse(update.optimizer(), wordOf(defaults.optimizer)));
  update.set_baseline(orElse(update.baseline(), wordOf(defaults.baseline)));
  if (update.learning_rate() == 0) update.set_learning_rate(defaults.learning_rate);
}

std::optional<SpecProblem> santaProblem(const v1::Spec& spec) {
  if (!spec.has_update() || learnerOf(spec.update()) != Learner::kSanta) return std::nullopt;
  const StepDefaults wanted = stepDefaultsOf(Learner::kSanta);
  const v1::Update& update = spec.update();
  const struct {
    const char* path;
    bool holds;
    std::string_view value;
  } all[] = {
      {"spec.update.optimizer", optimizerOf(update) == wanted.optimizer, wordOf(wanted.optimizer)},
      {"spec.update.baseline", baselineOf(update) == wanted.baseline, wordOf(wanted.baseline)},
      {"spec.update.entropyBonus", update.entropy_bonus() == 0, "0"},
      {"spec.staleness.mode", modeOf(spec.staleness()) == wanted.staleness,
       wordOf(wanted.staleness)},
      {"spec.policy.totalBudgets", spec.policy().total_budgets_size() <= 1, "one total budget"},
      {"spec.policy.granularity", granularityOf(spec.policy()) == Granularity::kLayer,
       wordOf(Granularity::kLayer)},
      {"spec.rollout.episodesPerQuestionSet", spec.rollout().episodes_per_question_set() <= 1, "1"},
  };
  for (const auto& one : all) {
    if (one.holds) continue;
    return SpecProblem{one.path,
                       "spec.update.learner santa is Algorithm 1 to the letter, which has " +
                           std::string(one.value) +
                           " here: leave this key out, or choose learner reinforce"};
  }
  return std::nullopt;
}

std::optional<SpecProblem> idleStepProblem(const v1::Spec& spec) {
  if (!spec.has_update()) return std::nullopt;
  const v1::Update& update = spec.update();
  const Learner learner = learnerOf(update);
  const bool ascends = learner == Learner::kReinforce || learner == Learner::kSanta;
  const StepDefaults usual = stepDefaultsOf(learner);
  const struct {
    const char* path;
    bool idle;
    bool usual;
  } all[] = {
      {"spec.update.learningRate", !ascends, update.learning_rate() == usual.learning_rate},
      {"spec.update.entropyBonus", !ascends, update.entropy_bonus() == 0},
  };
  for (const auto& one : all) {
    if (!one.idle || one.usual) continue;
    return SpecProblem{one.path, "has no effect on learner " + std::string(wordOf(learner)) +
                                     ": remove this key, or choose learner reinforce"};
  }
  return std::nullopt;
}

}  // namespace allot
