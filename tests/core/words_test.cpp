// Words and the enums behind them: each table there and back, and what a word means that is missing
// or of another build.
#include <set>

#include "core/refusal_kind.h"
#include "core/run_state.h"
#include "core/spec/choices.h"
#include "core/spec/spec.h"
#include "core/spec/spec_rules.h"
#include "core/worker_beats.h"
#include "tests/results.h"

namespace allot {
namespace {

// An enum by its last value, whose number no test can guess.
template <auto kLast>
struct LastValue {
  using Enum = decltype(kLast);
  static constexpr Enum kValue = kLast;
};

template <typename>
struct Words : testing::Test {};
using Enums = testing::Types<
    LastValue<Learner::kSanta>, LastValue<Optimizer::kSgd>, LastValue<Baseline::kMovingAverage>,
    LastValue<StalenessMode::kDrop>, LastValue<Granularity::kHead>,
    LastValue<ZeroReadsChoice::kWindow>, LastValue<ScheduleKind::kExplicit>,
    LastValue<Measure::kLayerLoss>, LastValue<AgreementLayers::kEach>, LastValue<KeptAnswers::kAll>,
    LastValue<Protocol::kB>, LastValue<Dtype::kBFloat16>, LastValue<KvDtype::kFp8>,
    LastValue<DeviceChoice::kCuda>, LastValue<PromptStyle::kDeepseek>,
    LastValue<TaskSplit::kValidation>, LastValue<Desired::kFinished>, LastValue<Phase::kFinished>,
    LastValue<WorkerState::kFailed>, LastValue<RefusalKind::kSuperseded>>;
TYPED_TEST_SUITE(Words, Enums);

TYPED_TEST(Words, EveryValueHasAWordOfItsOwnThatLeadsBack) {
  using Enum = typename TypeParam::Enum;
  const auto words = wordsOf<Enum>();
  EXPECT_EQ(std::set<std::string>(words.begin(), words.end()).size(), words.size());
  EXPECT_EQ(kAllOf<Enum>.back(), TypeParam::kValue);
  for (const Enum value : kAllOf<Enum>) {
    EXPECT_EQ(fromWord<Enum>(wordOf(value)), value);
    EXPECT_EQ(words.at(static_cast<size_t>(value)), wordOf(value));
  }
}

TYPED_TEST(Words, AnythingElseIsNoValue) {
  for (const char* word : {"", "nonsense", " adam", "ADAM", "Running", "adam,"}) {
    EXPECT_EQ(fromWord<typename TypeParam::Enum>(word), std::nullopt) << word;
  }
}

// Files and stores hold them: none may change.
TEST(Choices, TheWordsAreThoseOfAllBuilds) {
  EXPECT_THAT(wordsOf<Optimizer>(), ElementsAre("adam", "sgd"));
  EXPECT_THAT(wordsOf<Baseline>(), ElementsAre("leave-one-out", "batch-mean", "moving-average"));
  EXPECT_THAT(wordsOf<Learner>(), ElementsAre("additive", "reinforce", "santa"));
  EXPECT_THAT(wordsOf<StalenessMode>(), ElementsAre("truncated-is", "none", "drop"));
  EXPECT_THAT(wordsOf<ScheduleKind>(),
              ElementsAre("uniform", "learned", "oneHot", "measured", "explicit"));
  EXPECT_THAT(wordsOf<Measure>(), ElementsAre("accuracy", "fidelity", "variance", "layer-loss"));
  EXPECT_THAT(wordsOf<AgreementLayers>(), ElementsAre("all-layers", "last-layer", "each-layer"));
  EXPECT_THAT(wordsOf<Protocol>(), ElementsAre("A", "B"));
  EXPECT_THAT(wordsOf<Dtype>(), ElementsAre("float32", "bfloat16"));
  EXPECT_THAT(wordsOf<KvDtype>(), ElementsAre("bfloat16", "float32", "fp8"));
  EXPECT_THAT(wordsOf<DeviceChoice>(), ElementsAre("auto", "cpu", "cuda"));
  EXPECT_THAT(wordsOf<PromptStyle>(), ElementsAre("llama", "deepseek"));
  EXPECT_THAT(wordsOf<TaskSplit>(), ElementsAre("test", "validation"));
  EXPECT_THAT(wordsOf<Desired>(), ElementsAre("running", "paused", "stopped", "finished"));
  EXPECT_THAT(wordsOf<Phase>(),
              ElementsAre("starting", "running", "evaluating", "paused", "stopped", "finished"));
  EXPECT_THAT(wordsOf<WorkerState>(),
              ElementsAre("loading", "idle", "rollout", "evaluation", "draining", "failed"));
  EXPECT_THAT(wordsOf<RefusalKind>(),
              ElementsAre("undecodable", "oversized", "invalid", "stale", "superseded"));
}

TEST(Choices, AWordThatIsMissingMeansWhatItAlwaysDid) {
  EXPECT_EQ(optimizerOf({}), Optimizer::kSgd);
  EXPECT_EQ(baselineOf({}), Baseline::kMovingAverage);
  EXPECT_EQ(modeOf({}), StalenessMode::kNone);
  EXPECT_EQ(kindOf({}), ScheduleKind::kOneHot);
  EXPECT_EQ(measureOf({}), Measure::kAccuracy);
  EXPECT_TRUE(measuresOf({}).empty());
  EXPECT_EQ(protocolOf({}), Protocol::kA);
  EXPECT_EQ(dtypeOf({}), Dtype::kFloat32);
  EXPECT_EQ(kvDtypeOf({}), KvDtype::kBFloat16);
  EXPECT_EQ(deviceOf({}), DeviceChoice::kAuto);
  EXPECT_EQ(promptStyleOf({}), PromptStyle::kLlama);
  EXPECT_EQ(splitOf({}), TaskSplit::kTest);
}

v1::Experiment plainExperiment() {
  return valueOf(parseExperiment(
      "apiVersion: allot.dev/v1alpha1\nkind: Experiment\nmetadata: {name: tiny}\nspec:\n"
      "  model: {path: m}\n  task: {tasks: [niah]}\n  policy: {totalBudget: 8}\n  update: {}\n"
      "  evaluation: {schedules: [uniform, [4, 4]], measures: [accuracy, fidelity]}\n",
      "tiny.yaml", {}));
}

TEST(Choices, TheSpecsRowsHaveTheWordsOfTheEnums) {
  const auto choicesAt = [](const std::string& path) {
    for (const SpecRule& rule : specRules()) {
      if (rule.path == path) return rule.choices;
    }
    return std::vector<std::string>{path + " is no key"};
  };
  EXPECT_EQ(choicesAt("spec.update.optimizer"), wordsOf<Optimizer>());
  EXPECT_EQ(choicesAt("spec.update.baseline"), wordsOf<Baseline>());
  EXPECT_EQ(choicesAt("spec.staleness.mode"), wordsOf<StalenessMode>());
  EXPECT_THAT(choicesAt("spec.evaluation.schedules"),
              ElementsAre("uniform", "learned", "oneHot", "measured"));
  EXPECT_THAT(choicesAt("spec.evaluation.measures"),
              ElementsAre("accuracy", "fidelity", "variance"));
  EXPECT_EQ(choicesAt("spec.evaluation.answers"), wordsOf<KeptAnswers>());
  EXPECT_EQ(choicesAt("spec.attention.protocol"), wordsOf<Protocol>());
  EXPECT_EQ(choicesAt("spec.model.dtype"), wordsOf<Dtype>());
  EXPECT_EQ(choicesAt("spec.model.kvDtype"), wordsOf<KvDtype>());
  EXPECT_EQ(choicesAt("spec.model.device"), wordsOf<DeviceChoice>());
  EXPECT_EQ(choicesAt("spec.task.promptStyle"), wordsOf<PromptStyle>());
  EXPECT_EQ(choicesAt("spec.task.split"), wordsOf<TaskSplit>());
}

TEST(Choices, AStoredWordThatNobodyHereKnowsIsRefusedWithThoseThatAre) {
  EXPECT_TRUE(checkWords(plainExperiment(), "run x"));
  EXPECT_TRUE(checkWords({}, "run x"));  // nothing is chosen
  v1::Experiment measured = plainExperiment();
  measured.mutable_spec()->mutable_evaluation()->set_measures(1, "fidelity questions=8 tile=256");
  EXPECT_THAT(checkWords(measured, "run x"), succeeds());
  struct Row {
    const char* sentence;
    void (*change)(v1::Spec* spec);
  };
  const Row rows[] = {
      {"spec.update.optimizer: \"rmsprop\" is not one of adam, sgd",
       [](v1::Spec* spec) { spec->mutable_update()->set_optimizer("rmsprop"); }},
      {"spec.update.baseline: \"Leave-one-out\" is not one of leave-one-out, batch-mean, "
       "moving-average",
       [](v1::Spec* spec) { spec->mutable_update()->set_baseline("Leave-one-out"); }},
      {"spec.staleness.mode: \"v-trace\" is not one of truncated-is, none, drop",
       [](v1::Spec* spec) { spec->mutable_staleness()->set_mode("v-trace"); }},
      {"spec.evaluation.schedules: \"greedy\" is not one of uniform, learned, oneHot",
       [](v1::Spec* spec) {
         spec->mutable_evaluation()->mutable_schedules(0)->set_kind("greedy");
       }},
      {"spec.evaluation.measures: \"speed\" is not one of accuracy, fidelity, variance",
       [](v1::Spec* spec) { spec->mutable_evaluation()->set_measures(1, "speed"); }},
      {"spec.model.kvDtype: \"fp4\" is not one of bfloat16, float32, fp8",
       [](v1::Spec* spec) { spec->mutable_model()->set_kv_dtype("fp4"); }},
      {"spec.attention.protocol: \"C\" is not one of A, B",
       [](v1::Spec* spec) { spec->mutable_attention()->set_protocol("C"); }},
  };
  for (const Row& row : rows) {
    v1::Experiment experiment = plainExperiment();
    row.change(experiment.mutable_spec());
    EXPECT_THAT(checkWords(experiment, "run x"),
                isError(ErrorCode::kUsage, AllOf(HasSubstr(std::string("run x: ") + row.sentence),
                                                 HasSubstr("use that build or a later one"))));
  }
}

TEST(WorkerStates, AWorkerThatSaysSomethingElseIsAliveAndNotAtWork) {
  v1::WorkerBeat beat;
  for (const char* word : {"", "dreaming"}) {
    beat.set_state(word);
    EXPECT_EQ(stateOf(beat), std::nullopt);
    EXPECT_TRUE(isAlive(beat));
    EXPECT_FALSE(isAtWork(beat));
    EXPECT_EQ(stateText(beat), word);
  }
  for (const WorkerState state : kAllOf<WorkerState>) {
    beat.set_state(std::string(wordOf(state)));
    EXPECT_EQ(isAlive(beat), state != WorkerState::kFailed);
    EXPECT_EQ(isAtWork(beat), state == WorkerState::kRollout || state == WorkerState::kEvaluation);
  }
}

}  // namespace
}  // namespace allot
