#pragma once
// What an experiment chooses by a word: the enums behind spec.update.optimizer and its like.
//
// The tables of words are the spec's too (core/spec/spec_rules.cpp). An experiment file with
// another word is refused, and so is a stored run (checkWords in core/spec/spec.h). A missing word
// has the value that the function names. Pure functions, any thread.
#include <string>
#include <string_view>
#include <vector>

#include "allot/v1/experiment.pb.h"
#include "allot/v1/result.pb.h"
#include "core/random_stream.h"
#include "core/words.h"

namespace allot {

// spec.update.learner: how schedules are learned.
enum class Learner { kAdditive, kReinforce, kSanta };
constexpr std::string_view wordOf(Learner value) {
  return wordAt(value, {"additive", "reinforce", "santa"});
}

// spec.update.optimizer: how a gradient becomes a step.
enum class Optimizer { kAdam, kSgd };
constexpr std::string_view wordOf(Optimizer value) { return wordAt(value, {"adam", "sgd"}); }

// spec.update.baseline: the reward that an episode is compared with.
enum class Baseline { kLeaveOneOut, kBatchMean, kMovingAverage };
constexpr std::string_view wordOf(Baseline value) {
  return wordAt(value, {"leave-one-out", "batch-mean", "moving-average"});
}

// spec.staleness.mode: what is done about results of an older policy.
enum class StalenessMode { kTruncatedIs, kNone, kDrop };
constexpr std::string_view wordOf(StalenessMode value) {
  return wordAt(value, {"truncated-is", "none", "drop"});
}

// spec.policy.granularity: what a schedule has an entry for.
enum class Granularity { kLayer, kKvHead, kHead };
constexpr std::string_view wordOf(Granularity value) {
  return wordAt(value, {"layer", "kv-head", "head"});
}

// spec.policy.zeroReads: what a layer or head gives that has no draws.
enum class ZeroReadsChoice { kOff, kMeanValue, kWindow };
constexpr std::string_view wordOf(ZeroReadsChoice value) {
  return wordAt(value, {"off", "mean-value", "window"});
}

// One entry of spec.evaluation.schedules; kExplicit is written as a list.
enum class ScheduleKind { kUniform, kLearned, kOneHot, kExplicit };
constexpr std::string_view wordOf(ScheduleKind value) {
  return wordAt(value, {"uniform", "learned", "oneHot", "explicit"});
}

// spec.evaluation.measures, and EvaluationUnit.measure.
enum class Measure { kAccuracy, kFidelity, kVariance };
constexpr std::string_view wordOf(Measure value) {
  return wordAt(value, {"accuracy", "fidelity", "variance"});
}

// Parameter `agreement` of fidelity: which layers have the method when its next token is compared
// with dense attention's; the others are dense. kEachLayer: once for each layer, in that one alone.
enum class AgreementLayers { kAll, kLast, kEach };
constexpr std::string_view wordOf(AgreementLayers value) {
  return wordAt(value, {"all-layers", "last-layer", "each-layer"});
}

// spec.evaluation.answers: which answers are kept as text.
enum class KeptAnswers { kNone, kWrong, kAll };
constexpr std::string_view wordOf(KeptAnswers value) {
  return wordAt(value, {"none", "wrong", "all"});
}

// spec.attention.protocol: which tokens are sampled.
enum class Protocol { kA, kB };
constexpr std::string_view wordOf(Protocol value) { return wordAt(value, {"A", "B"}); }

// spec.model.dtype: number format of weights and products.
enum class Dtype { kFloat32, kBFloat16 };
constexpr std::string_view wordOf(Dtype value) { return wordAt(value, {"float32", "bfloat16"}); }

// spec.model.kvDtype: number format of keys and values.
enum class KvDtype { kBFloat16, kFloat32 };
constexpr std::string_view wordOf(KvDtype value) { return wordAt(value, {"bfloat16", "float32"}); }

// spec.model.device: where workers compute.
enum class DeviceChoice { kAuto, kCpu, kCuda };
constexpr std::string_view wordOf(DeviceChoice value) {
  return wordAt(value, {"auto", "cpu", "cuda"});
}

// spec.task.promptStyle: whose prompts suites gsm8k and mmlu ask with.
enum class PromptStyle { kLlama, kDeepseek };
constexpr std::string_view wordOf(PromptStyle value) {
  return wordAt(value, {"llama", "deepseek"});
}

// spec.task.split: which of a suite's published parts is asked.
enum class TaskSplit { kTest, kValidation };
constexpr std::string_view wordOf(TaskSplit value) { return wordAt(value, {"test", "validation"}); }

// Missing: reinforce.
Learner learnerOf(const v1::Update& update);
Granularity granularityOf(const v1::Policy& policy);
ZeroReadsChoice zeroReadsOf(const v1::Policy& policy);
// The total budgets that schedules are learned for.
std::vector<uint32_t> totalBudgets(const v1::Policy& policy);
// Whether a policy is learned for each total budget from question sets (core/learning/policy.h);
// else one policy, by REINFORCE, and each episode has questions of its own.
bool learnsByBudgets(const v1::Spec& spec);
// Whether an update takes all results that are there, once there are episodesPerUpdate (learner
// santa); else it takes that many.
bool takesAllResults(const v1::Update& update);
// The most that such an update takes.
inline constexpr uint32_t kMostResults = 10000;
// Of one question set at one total budget: uniform, the best so far, and two to compare.
inline constexpr uint32_t kLeastEpisodesOfSet = 4;
// Of evaluation.chunkQuestions: the most, and the tokens that a chunk has by default. Of a model of
// 8 billion parameters these take 34 GB.
inline constexpr uint32_t kMostChunkQuestions = 32;
inline constexpr uint32_t kChunkTokens = 1 << 18;
// Of evaluation.repeats.
inline constexpr uint32_t kMostRepeats = 100;
// Missing: sgd.
Optimizer optimizerOf(const v1::Update& update);
// Missing: moving-average.
Baseline baselineOf(const v1::Update& update);
// Missing: none.
StalenessMode modeOf(const v1::Staleness& staleness);
// Missing: oneHot.
ScheduleKind kindOf(const v1::Schedule& schedule);
// Missing: accuracy. A unit is a worker's and a store's word, so that one of another measure is one
// of accuracy, too, for those who do not refuse it.
Measure measureOf(const v1::EvaluationUnit& unit);
// In the order of the list; their parameters: core/spec/measure_options.h.
std::vector<Measure> measuresOf(const v1::Evaluation& evaluation);
// Missing, in an experiment that was never completed: the most.
uint32_t chunkQuestions(const v1::Evaluation& evaluation);
// Missing, in an experiment that was never completed: 1. Never more than kMostRepeats, whatever was
// stored.
uint32_t repeatsOf(const v1::Evaluation& evaluation);
// How often cells of this pair of methods are answered: spec.evaluation.repeats times, or once
// where every answer would be the same. Methods that draw nothing (dense, top-k, quest, those that
// choose blocks by a threshold) give the same answers at temperature 0. Text that is no method
// draws.
uint32_t repeatsOf(const v1::Spec& spec, const std::string& prefill, const std::string& decode);
// Missing: dense.
std::string prefillOf(const v1::EvaluationUnit& unit);
// The methods of both phases as one name, for tables and figures: "s2anta-sys", or where prompts
// are not read densely "sale tau=0.01 + s2anta-sys". Figures of the two are not comparable.
std::string methodsName(const std::string& prefill, const std::string& decode);
// Of what a unit measures; of what episodes do.
std::string methodsName(const v1::EvaluationUnit& unit);
std::string methodsName(const v1::Attention& attention);
// Missing: none.
KeptAnswers keptAnswersOf(const v1::Evaluation& evaluation);
// Missing: A.
Protocol protocolOf(const v1::Attention& attention);
// Missing: float32.
Dtype dtypeOf(const v1::Model& model);
// Missing: bfloat16.
KvDtype kvDtypeOf(const v1::Model& model);
// Missing: auto.
DeviceChoice deviceOf(const v1::Model& model);
// Missing: llama.
PromptStyle promptStyleOf(const v1::Task& task);
// Missing: test.
TaskSplit splitOf(const v1::Task& task);

}  // namespace allot
