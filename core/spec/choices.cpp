#include "core/spec/choices.h"
#include "allot/kernels/method.h"

#include <algorithm>

namespace allot {
namespace {

Measure measureOf(const std::string& word) {
  return fromWord<Measure>(word).value_or(Measure::kAccuracy);
}

bool draws(const kernels::MethodOptions& options) {
  const kernels::MethodTraits& traits = kernels::traitsOf(options.method);
  if (traits.scored_by == kernels::ScoredBy::kFeatures) return true;
  switch (traits.chosen_by) {
    case kernels::ChosenBy::kAll:
    case kernels::ChosenBy::kLargest:
    case kernels::ChosenBy::kPages:
    case kernels::ChosenBy::kColumnsAndSlashes:
    case kernels::ChosenBy::kThreshold:
      return false;
    default:
      return true;
  }
}

}  // namespace

Learner learnerOf(const v1::Update& update) {
  return fromWord<Learner>(update.learner()).value_or(Learner::kReinforce);
}

Granularity granularityOf(const v1::Policy& policy) {
  return fromWord<Granularity>(policy.granularity()).value_or(Granularity::kLayer);
}

ZeroReadsChoice zeroReadsOf(const v1::Policy& policy) {
  return fromWord<ZeroReadsChoice>(policy.zero_reads()).value_or(ZeroReadsChoice::kOff);
}

Price priceOf(const v1::Policy& policy) {
  return fromWord<Price>(policy.price()).value_or(Price::kReads);
}

bool hasPrices(const v1::Policy& policy) { return priceOf(policy) != Price::kReads; }

std::string unitOf(Price price) { return std::string(wordAt(price, {"", " %", " % of time"})); }

Price priceWith(std::string_view unit) {
  for (const Price price : {Price::kBytes, Price::kTime}) {
    if (unit == unitOf(price)) return price;
  }
  return Price::kReads;
}

std::string budgetUnit(const v1::Policy& policy) { return unitOf(priceOf(policy)); }

std::string budgetText(const v1::Policy& policy, uint64_t budget) {
  return std::to_string(budget) + budgetUnit(policy);
}

uint32_t readsOf(const v1::Schedule& schedule) {
  return schedule.has_reads() ? schedule.reads() : 1;
}

uint32_t measureQuestions(const v1::Spec& spec) {
  return std::min(spec.policy().measure_questions(), spec.task().train_questions());
}

bool learnsFromMeasurement(const v1::Spec& spec) {
  return spec.has_update() && learnerOf(spec.update()) == Learner::kAdditive;
}

std::vector<uint32_t> totalBudgets(const v1::Policy& policy) {
  if (policy.total_budgets().empty()) return {policy.total_budget()};
  return {policy.total_budgets().begin(), policy.total_budgets().end()};
}

bool learnsByBudgets(const v1::Spec& spec) {
  if (!spec.has_update()) return false;
  const Learner learner = learnerOf(spec.update());
  if (learner != Learner::kReinforce) return learner == Learner::kAdditive;
  return spec.policy().total_budgets_size() > 1 || spec.rollout().episodes_per_question_set() > 1;
}

uint32_t trainingQuestions(const v1::Task& task) {
  return task.train_questions() + task.confirm_questions();
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
  for (const std::string& text : evaluation.measures()) {
    measures.push_back(measureOf(text.substr(0, text.find(' '))));
  }
  return measures;
}

uint32_t chunkQuestions(const v1::Evaluation& evaluation) {
  return evaluation.chunk_questions() > 0 ? evaluation.chunk_questions() : kMostChunkQuestions;
}

uint32_t repeatsOf(const v1::Evaluation& evaluation) {
  return std::clamp(evaluation.repeats(), 1u, kMostRepeats);
}

uint32_t repeatsOf(const v1::Spec& spec, const std::string& prefill, const std::string& decode) {
  const uint32_t repeats = repeatsOf(spec.evaluation());
  if (repeats == 1 || spec.generation().temperature() > 0) return repeats;
  const auto drawsBy = [](const std::string& text, kernels::Phase phase) {
    kernels::MethodOptions options;
    return kernels::parseMethod(text, &options, phase) || draws(options);
  };
  const bool any =
      drawsBy(prefill, kernels::Phase::kPrefill) || drawsBy(decode, kernels::Phase::kDecode);
  return any ? repeats : 1;
}

KeptAnswers keptAnswersOf(const v1::Evaluation& evaluation) {
  return fromWord<KeptAnswers>(evaluation.answers()).value_or(KeptAnswers::kNone);
}

Protocol protocolOf(const v1::Attention& attention) {
  return fromWord<Protocol>(attention.protocol()).value_or(Protocol::kA);
}

Dtype dtypeOf(const v1::Model& model) {
  return fromWord<Dtype>(model.dtype()).value_or(Dtype::kFloat32);
}

KvDtype kvDtypeOf(const v1::Model& model) {
  return fromWord<KvDtype>(model.kv_dtype()).value_or(KvDtype::kBFloat16);
}

DeviceChoice deviceOf(const v1::Model& model) {
  return fromWord<DeviceChoice>(model.device()).value_or(DeviceChoice::kAuto);
}

PromptStyle promptStyleOf(const v1::Task& task) {
  return fromWord<PromptStyle>(task.prompt_style()).value_or(PromptStyle::kLlama);
}

TaskSplit splitOf(const v1::Task& task) {
  return fromWord<TaskSplit>(task.split()).value_or(TaskSplit::kTest);
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
