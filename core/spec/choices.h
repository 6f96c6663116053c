#pragma once
// The choices of an experiment that are made by a word: the enums behind spec.update.optimizer and
// similar keys.
//
// The rules of the keys (core/spec/spec_rules.cpp) use these tables of words. An experiment file
// with another word is refused, and so is a stored run (checkWords in core/spec/spec.h). Pure
// functions, any thread.
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

// spec.staleness.mode: how results of older policies count.
enum class StalenessMode { kTruncatedIs, kNone, kDrop };
constexpr std::string_view wordOf(StalenessMode value) {
  return wordAt(value, {"truncated-is", "none", "drop"});
}

// spec.policy.granularity: what a schedule has an entry for.
enum class Granularity { kLayer, kKvHead, kHead };
constexpr std::string_view wordOf(Granularity value) {
  return wordAt(value, {"layer", "kv-head", "head"});
}

// spec.policy.zeroReads: the output of a layer or head without draws.
enum class ZeroReadsChoice { kOff, kMeanValue, kWindow };
constexpr std::string_view wordOf(ZeroReadsChoice value) {
  return wordAt(value, {"off", "mean-value", "window"});
}

// spec.policy.price: what total budgets count.
enum class Price { kReads, kBytes, kTime };
constexpr std::string_view wordOf(Price value) { return wordAt(value, {"reads", "bytes", "time"}); }

// One entry of spec.evaluation.schedules; kExplicit is written as a list.
enum class ScheduleKind { kUniform, kLearned, kOneHot, kMeasured, kExplicit };
constexpr std::string_view wordOf(ScheduleKind value) {
  return wordAt(value, {"uniform", "learned", "oneHot", "measured", "explicit"});
}

// EvaluationUnit.measure, and spec.evaluation.measures, which does not have the last one: layers
// are measured on training questions, for schedules and not for tables.
enum class Measure { kAccuracy, kFidelity, kVariance, kLayerLoss };
constexpr std::string_view wordOf(Measure value) {
  return wordAt(value, {"accuracy", "fidelity", "variance", "layer-loss"});
}

// Parameter `agreement` of fidelity: the layers that use the method when its next token is compared
// with dense attention's. Other layers are dense. kEach: one comparison for each layer, in which it
// alone uses the method.
enum class AgreementLayers { kAll, kLast, kEach };
constexpr std::string_view wordOf(AgreementLayers value) {
  return wordAt(value, {"all-layers", "last-layer", "each-layer"});
}

// spec.evaluation.answers: which answers are kept as text.
enum class KeptAnswers { kNone, kWrong, kAll };
constexpr std::string_view wordOf(KeptAnswers value) {
  return wordAt(value, {"none", "wrong", "all"});
}

// spec.attention.protocol: the tokens whose attention is sampled.
enum class Protocol { kA, kB };
constexpr std::string_view wordOf(Protocol value) { return wordAt(value, {"A", "B"}); }

// spec.model.dtype: number format of weights and products.
enum class Dtype { kFloat32, kBFloat16 };
constexpr std::string_view wordOf(Dtype value) { return wordAt(value, {"float32", "bfloat16"}); }

// spec.model.kvDtype: number format of keys and values.
enum class KvDtype { kBFloat16, kFloat32, kFp8 };
constexpr std::string_view wordOf(KvDtype value) {
  return wordAt(value, {"bfloat16", "float32", "fp8"});
}

// spec.model.device: where workers compute.
enum class DeviceChoice { kAuto, kCpu, kCuda };
constexpr std::string_view wordOf(DeviceChoice value) {
  return wordAt(value, {"auto", "cpu", "cuda"});
}

// spec.task.promptStyle: the model family whose prompts suites gsm8k and mmlu use.
enum class PromptStyle { kLlama, kDeepseek };
constexpr std::string_view wordOf(PromptStyle value) {
  return wordAt(value, {"llama", "deepseek"});
}

// spec.task.split: which of a suite's published parts is asked.
enum class TaskSplit { kTest, kValidation };
constexpr std::string_view wordOf(TaskSplit value) { return wordAt(value, {"test", "validation"}); }

// Return the choices of an experiment. For a missing or unknown word that is the value at the
// line's end.

Learner learnerOf(const v1::Update& update);                  // reinforce
Optimizer optimizerOf(const v1::Update& update);              // sgd
Baseline baselineOf(const v1::Update& update);                // moving-average
StalenessMode modeOf(const v1::Staleness& staleness);         // none
Granularity granularityOf(const v1::Policy& policy);          // layer
ZeroReadsChoice zeroReadsOf(const v1::Policy& policy);        // off
Price priceOf(const v1::Policy& policy);                      // reads
ScheduleKind kindOf(const v1::Schedule& schedule);            // oneHot
Measure measureOf(const v1::EvaluationUnit& unit);            // accuracy
KeptAnswers keptAnswersOf(const v1::Evaluation& evaluation);  // none
Protocol protocolOf(const v1::Attention& attention);          // A
Dtype dtypeOf(const v1::Model& model);                        // float32
KvDtype kvDtypeOf(const v1::Model& model);                    // bfloat16
DeviceChoice deviceOf(const v1::Model& model);                // auto
PromptStyle promptStyleOf(const v1::Task& task);              // llama
TaskSplit splitOf(const v1::Task& task);                      // test
std::string prefillOf(const v1::EvaluationUnit& unit);        // dense, if missing

// Returns the draws of the layer that a oneHot schedule cuts.
uint32_t readsOf(const v1::Schedule& schedule);
// Returns the training questions on which layers are measured; 0 if they are not.
uint32_t measureQuestions(const v1::Spec& spec);
// Returns true if updates learn from what is measured of the layers, and wait for it: learner
// additive.
bool learnsFromMeasurement(const v1::Spec& spec);
// Returns the total budgets that schedules are learned for: totalBudgets, or totalBudget if that
// list is empty.
std::vector<uint32_t> totalBudgets(const v1::Policy& policy);
// Returns true if total budgets are per cent of dense attention's price, and not reads.
bool hasPrices(const v1::Policy& policy);
// Returns what follows a total budget in texts: nothing for reads, " %" for bytes, " % of time".
std::string unitOf(Price price);
// Returns the price whose unit that is; of another text kReads.
Price priceWith(std::string_view unit);
std::string budgetUnit(const v1::Policy& policy);
// Returns a total budget for people: "16", "15 %" or "15 % of time".
std::string budgetText(const v1::Policy& policy, uint64_t budget);
// Returns true if a schedule is learned for each total budget, from question sets
// (core/learning/policy.h). Else one policy is learned by its gradient or, without spec.update,
// none.
bool learnsByBudgets(const v1::Spec& spec);
// Returns the number of training questions: task.trainQuestions and, after them, the fresh ones of
// task.confirmQuestions.
uint32_t trainingQuestions(const v1::Task& task);
// Returns true if an update consumes all results that have arrived, at least episodesPerUpdate and
// at most kMostResults (learner santa). Else an update consumes episodesPerUpdate results.
bool takesAllResults(const v1::Update& update);
inline constexpr uint32_t kMostResults = 10000;
// Least episodes of a question set at one total budget: uniform, the candidate, and two others.
inline constexpr uint32_t kLeastEpisodesOfSet = 4;
// Most evaluation.chunkQuestions, and by default most tokens of a chunk of several questions. The
// KV cache of these tokens takes 34 GB with a model of 8 billion parameters.
inline constexpr uint32_t kMostChunkQuestions = 32;
inline constexpr uint32_t kChunkTokens = 1 << 18;
inline constexpr uint32_t kMostRepeats = 100;      // most evaluation.repeats
inline constexpr uint32_t kMeasureQuestions = 64;  // policy.measureQuestions by default
// Returns the measures in the order of the list. core/spec/measure_options.h has their parameters.
std::vector<Measure> measuresOf(const v1::Evaluation& evaluation);
// Returns evaluation.chunkQuestions; kMostChunkQuestions if that is unset.
uint32_t chunkQuestions(const v1::Evaluation& evaluation);
// Returns evaluation.repeats clamped to 1..kMostRepeats.
uint32_t repeatsOf(const v1::Evaluation& evaluation);
// Returns how often cells of this pair of methods are answered: evaluation.repeats times, or once
// at temperature 0 if neither method draws (as dense, top-k, quest). Text that is no method counts
// as one that draws.
uint32_t repeatsOf(const v1::Spec& spec, const std::string& prefill, const std::string& decode);
// Return one name for the methods of both phases, for tables and figures: as "s2anta-sys" with a
// dense prefill, "sale tau=0.01 + s2anta-sys" with another.
std::string methodsName(const std::string& prefill, const std::string& decode);
std::string methodsName(const v1::EvaluationUnit& unit);
std::string methodsName(const v1::Attention& attention);

}  // namespace allot
