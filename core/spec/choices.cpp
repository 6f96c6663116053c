#include "core/spec/choices.h"

namespace allot {
namespace {

Measure measureOf(const std::string& word) {
  return fromWord<Measure>(word).value_or(Measure::kAccuracy);
}

}  // namespace

Learner learnerOf(const v1::Update& update) {
  return fromWord<Learner>(update.learner()).value_or(Learner::kReinforce);
}

Granularity granularityOf(const v1::Policy& policy) {
  return fromWord<Granularity>(policy.granularity()).value_or(Granularity::kLayer);
}

LearningRules learningRulesOf(const v1::Policy& policy) {
  return fromWord<LearningRules>(policy.learning_rules()).value_or(LearningRules::kFirst);
}

ZeroReadsChoice zeroReadsOf(const v1::Policy& policy) {
  return fromWord<ZeroReadsChoice>(policy.zero_reads()).value_or(ZeroReadsChoice::kOff);
}

std::vector<uint32_t> totalBudgets(const v1::Policy& policy) {
  if (policy.total_budgets().empty()) return {policy.total_budget()};
  return {policy.total_budgets().begin(), policy.total_budgets().end()};
}

bool learnsByBudgets(const v1::Spec& spec) {
  if (!spec.has_update()) return false;
  switch (learnerOf(spec.update())) {
    case Learner::kAdditive:
    case Learner::kEvolution:
    case Learner::kCmaEs:
      return true;
    case Learner::kReinforce:
      return spec.policy().total_budgets_size() > 1 ||
             spec.rollout().episodes_per_question_set() > 1;
    case Learner::kSanta:
      return false;
  }
  return false;
}

bool takesAllResults(const v1::Update& update) { return learnerOf(update) == Learner::kSanta; }

Optimizer optimizerOf(const v1::Update& update) {
  return fromWord<Optimizer>(update.optimizer()).value_or(Optimizer::kSgd);
}

Baseline baselineOf(const v1::Update& update) {
  return fromWord<Baseline>(update.baseline()).value_or(Baseline::kMovingAverage);
}

StalenessMode modeOf(const v1::Staleness& staleness) {
  return fromWord<StalenessMode>(staleness.mode()).value_or(StalenessMode::kNone);
}

ScheduleKind kindOf(const v1::Schedule& schedule) {
  return fromWord<ScheduleKind>(schedule.kind()).value_or(ScheduleKind::kOneHot);
}

Measure measureOf(const v1::EvaluationUnit& unit) { return measureOf(unit.measure()); }

std::vector<Measure> measuresOf(const v1::Evaluation& evaluation) {
  std::vector<Measure> measures;
  for (const std::string& word : evaluation.measures()) measures.push_back(measureOf(word));
  return measures;
}

KeptAnswers keptAnswersOf(const v1::Evaluation& evaluation) {
  return fromWord<KeptAnswers>(evaluation.answers()).value_or(KeptAnswers::kNone);
}

Protocol protocolOf(const v1::Attention& attention) {
  return fromWord<Protocol>(attention.protocol()).value_or(Protocol::kA);
}

kernels::MethodDefaults methodDefaultsOf(const v1::Attention& attention) {
  return fromWord<kernels::MethodDefaults>(attention.method_defaults())
      .value_or(kernels::MethodDefaults::kFirst);
}

Dtype dtypeOf(const v1::Model& model) {
  return fromWord<Dtype>(model.dtype()).value_or(Dtype::kFloat32);
}

DeviceChoice deviceOf(const v1::Model& model) {
  return fromWord<DeviceChoice>(model.device()).value_or(DeviceChoice::kAuto);
}

PromptStyle promptStyleOf(const v1::Task& task) {
  return fromWord<PromptStyle>(task.prompt_style()).value_or(PromptStyle::kLlama);
}

Streams streamsOf(const v1::Spec& spec) {
  return fromWord<Streams>(spec.streams()).value_or(Streams::kOverlapping);
}

std::string prefillOf(const v1::EvaluationUnit& unit) {
  return unit.prefill().empty() ? "dense" : unit.prefill();
}

std::string methodsName(const std::string& prefill, const std::string& decode) {
  return prefill == "dense" || prefill.empty() ? decode : prefill + " + " + decode;
}
std::string methodsName(const v1::EvaluationUnit& unit) {
  return methodsName(unit.prefill(), unit.method());
}
std::string methodsName(const v1::Attention& attention) {
  return methodsName(attention.prefill(), attention.decode());
}

}  // namespace allot
