#include "core/spec/spec.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/util/message_differencer.h>

#include <algorithm>
#include <set>
#include <sstream>

#include "allot/v1/cluster.pb.h"
#include "core/digest.h"
#include "core/spec/measure_options.h"
#include "core/spec/task_catalogue.h"
#include "tests/core/spec_texts.h"
#include "tests/proto_text.h"

namespace allot {
namespace {

TEST(Spec, ExampleGivesEveryField) {
  const v1::Experiment experiment = parsed(exampleText());
  const auto expected = messageFrom<v1::Experiment>(R"(
    name: "recall-layer-budget"
    spec {
      seed: 7
      model { path: "experiments/models/recall-7m" dtype: "float32" device: "auto" }
      task {
        suite: "recall" tasks: ["niah", "multi", "track", "freq"] context_tokens: 512
        train_questions: 256 held_out_questions: 480 max_new_tokens: 24
      }
      attention { prefill: "dense" decode: "s2anta-sys" }
      policy { total_budget: 8 }
      rollout { questions_per_episode: 16 episodes_per_pull: 1 }
      update {
        episodes_per_update: 10 max_updates: 150 optimizer: "adam" learning_rate: 0.05
        baseline: "leave-one-out"
      }
      staleness { mode: "truncated-is" rho_bar: 1 }
      evaluation {
        every_updates: 25 budgets: [8, 16, 32, 64, 128] schedules { kind: "uniform" }
        schedules { kind: "learned" } methods: ["dense", "s2anta-sys"]
      }
    })");
  std::string difference;
  google::protobuf::util::MessageDifferencer same;
  same.set_scope(google::protobuf::util::MessageDifferencer::PARTIAL);  // what is set in `expected`
  same.ReportDifferencesToString(&difference);
  EXPECT_TRUE(same.Compare(expected, experiment)) << difference;
  const v1::Spec& spec = experiment.spec();
  EXPECT_EQ(spec.policy().min_per_layer(), 0u);
  EXPECT_EQ(spec.update().entropy_bonus(), 0.0);
  EXPECT_EQ(spec.stop().goal(), 0.0);
  EXPECT_EQ(spec.stop().max_worker_hours(), 0.0);
}

TEST(Spec, ASuiteDecidesWhatItsKeysAre) {
  const v1::Task jsonl = parsed(tiny(), {"spec.task={suite: jsonl, path: f}"}).spec().task();
  EXPECT_THAT(jsonl.tasks(), ElementsAre("jsonl"));
  EXPECT_EQ(jsonl.prompt_field(), "prompt");
  EXPECT_EQ(jsonl.answers_field(), "answers");
  EXPECT_EQ(jsonl.prompt_style(), "");
  EXPECT_EQ(parsed(tiny(), {"spec.task={suite: mmlu, path: f}"}).spec().task().prompt_style(),
            "llama");
  // What means nothing for recall leaves no trace in it.
  const v1::Task recall = parsed(tiny()).spec().task();
  EXPECT_EQ(recall.path() + recall.prompt_field() + recall.answers_field() + recall.grader() +
                recall.prompt_style() + recall.held_out_path(),
            "");
  parsed(tiny(), {"spec.task={suite: ruler, tasks: [qa_1, fwe], path: d, grader: santa}"});
}

// The example writes out nearly every default, so leaving the defaults to the parser must give the
// same bytes once the differing keys are set.
TEST(Spec, DefaultsAreThoseOfTheExample) {
  const std::vector<std::string> differing = {"metadata.name=recall-layer-budget",
                                              "spec.seed=7",
                                              "spec.model.path=experiments/models/recall-7m",
                                              "spec.task.tasks=[niah, multi, track, freq]",
                                              "spec.update={learner: reinforce}",
                                              "spec.evaluation.budgets=[8, 16, 32, 64, 128]"};
  const v1::Experiment from_defaults = parsed(tiny(), differing);
  const v1::Experiment example = parsed(exampleText());
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(from_defaults, example))
      << from_defaults.DebugString();
  EXPECT_EQ(specDigest(from_defaults), specDigest(example));
}

TEST(Spec, DerivedDefaults) {
  const v1::Experiment sweep = parsed(tiny());
  EXPECT_FALSE(sweep.spec().has_update());
  EXPECT_EQ(sweep.spec().seed(), 1u);
  EXPECT_THAT(sweep.spec().evaluation().budgets(), ElementsAre(8));
  ASSERT_EQ(sweep.spec().evaluation().schedules_size(), 1);
  EXPECT_EQ(sweep.spec().evaluation().schedules(0).kind(), "uniform");
  const v1::Experiment top_k = parsed(tiny("  attention: {decode: top-k}\n"));
  EXPECT_THAT(top_k.spec().evaluation().methods(), ElementsAre("dense", "top-k"));
  const v1::Experiment dense = parsed(tiny("  attention: {decode: dense}\n"));
  EXPECT_THAT(dense.spec().evaluation().methods(), ElementsAre("dense"));
}

TEST(Spec, NumbersMayBeQuotedOrBare) {
  for (const char* value : {"0.25", "\"0.25\"", "'2.5e-1'", ".25"}) {
    const auto experiment = parsed(tiny("  update: {learningRate: " + std::string(value) + "}\n"));
    EXPECT_EQ(experiment.spec().update().learning_rate(), 0.25) << value;
  }
  EXPECT_EQ(parsed(tiny("  seed: 9223372036854775807\n")).spec().seed(), 9223372036854775807u);
  EXPECT_EQ(parsed(tiny(), {"spec.seed='0'"}).spec().seed(), 0u);
}

TEST(Spec, ExplicitSchedules) {
  const auto experiment = parsed(
      tiny("  evaluation: {budgets: [3, 7], schedules: [oneHot, [4, 0, \"3\"], [1, 1, 1]]}\n"));
  const v1::Evaluation& evaluation = experiment.spec().evaluation();
  ASSERT_EQ(evaluation.schedules_size(), 3);
  EXPECT_EQ(evaluation.schedules(0).kind(), "oneHot");
  EXPECT_EQ(evaluation.schedules(1).kind(), "explicit");
  EXPECT_THAT(evaluation.schedules(1).samples(), ElementsAre(4, 0, 3));
  const auto cut = parsed(tiny("  evaluation: {schedules: [oneHot reads=0, oneHot reads=1]}\n"));
  EXPECT_EQ(readsOf(cut.spec().evaluation().schedules(0)), 0u);
  // Equal experiments have equal bytes.
  EXPECT_FALSE(cut.spec().evaluation().schedules(1).has_reads());
  EXPECT_FALSE(cut.spec().policy().has_measure_questions());
  const auto none = parsed(tiny(), {"spec.policy.measureQuestions=0"});
  EXPECT_FALSE(none.spec().policy().has_measure_questions());
  const auto measured = parsed(tiny("  evaluation: {schedules: [measured]}\n"));
  EXPECT_EQ(measured.spec().policy().measure_questions(), 64u);
}

TEST(Spec, MeasuresAreKeptInTheirShortestText) {
  const auto measured = [](const std::string& measures) {
    return parsed(tiny(), {"spec.evaluation.measures=[" + measures + "]"}).spec().evaluation();
  };
  const v1::Evaluation own = measured(
      "accuracy, variance replicates=64 tile=32, fidelity agreement=each-layer tile=256 "
      "questions=8");
  EXPECT_THAT(own.measures(), ElementsAre("accuracy", "variance replicates=64",
                                          "fidelity questions=8 tile=256 agreement=each-layer"));
  EXPECT_THAT(measuresOf(own),
              ElementsAre(Measure::kAccuracy, Measure::kVariance, Measure::kFidelity));
  EXPECT_EQ(measureOptions(own, Measure::kFidelity),
            (MeasureOptions{.measure = Measure::kFidelity,
                            .questions = 8,
                            .tile = 256,
                            .agreement = AgreementLayers::kEach}));
  EXPECT_EQ(measureOptions(own, Measure::kVariance),
            (MeasureOptions{.measure = Measure::kVariance, .replicates = 64}));
  EXPECT_EQ(measureOptions(measured("accuracy"), Measure::kFidelity).questions, 64u);
}

TEST(Spec, MethodsAreKeptInTheirShortestText) {
  const v1::Experiment e =
      parsed(tiny(), {"spec.attention.decode=bernoulli values=s2anta-sys featureSamples=8",
                      "spec.evaluation={methods: [dense, s2anta-q4 bits=4 weights=exact, "
                      "vattention delta=0.10 epsilon=1e-1], measures: [fidelity, accuracy]}"});
  EXPECT_EQ(e.spec().attention().decode(), "bernoulli values=s2anta-sys");
  EXPECT_THAT(e.spec().evaluation().methods(),
              ElementsAre("dense", "s2anta-q4 weights=exact", "vattention epsilon=0.1 delta=0.1"));
  EXPECT_THAT(e.spec().evaluation().measures(), ElementsAre("fidelity", "accuracy"));
  EXPECT_THAT(parsed(tiny()).spec().evaluation().measures(), ElementsAre("accuracy"));
  EXPECT_THAT(parsed(tiny(), {"spec.attention.decode=quest"}).spec().evaluation().methods(),
              ElementsAre("dense", "quest"));
}

TEST(Spec, PromptsAreReadByMethodsOfTheirOwnPhase) {
  const v1::Spec spec =
      parsed(tiny(), {"spec.attention.prefill=sale denseKeys=0 tau=0.0040",
                      "spec.evaluation.prefills=[dense, sample-attention alphaColumn=0.9 block=16, "
                      "sale select=exact, skip-softmax threshold=1e-2, top-k]"})
          .spec();
  EXPECT_EQ(spec.attention().prefill(), "sale denseKeys=0");
  EXPECT_THAT(spec.evaluation().prefills(),
              ElementsAre("dense", "sample-attention alphaColumn=0.9 block=16", "sale select=exact",
                          "skip-softmax threshold=0.01", "top-k"));
  EXPECT_THAT(parsed(tiny()).spec().evaluation().prefills(), ElementsAre("dense"));
  EXPECT_THAT(parsed(tiny(), {"spec.attention.prefill=santa"}).spec().evaluation().prefills(),
              ElementsAre("santa"));
  EXPECT_EQ(refusal(tiny(), {"spec.attention.prefill=quest"}),
            "x.yaml: spec.attention.prefill: \"quest\": quest does not read prompts; what does: "
            "dense, santa, s2anta-strat, s2anta-sys, s2anta-prop, s2anta-flash, s2anta-q4, top-k, "
            "bernoulli, vattention, adaptive-denominator, sample-attention, sale, skip-softmax, "
            "sampled-blocks, sampled-rows");
  EXPECT_EQ(refusal(tiny(), {"spec.attention.decode=sale"}),
            "x.yaml: spec.attention.decode: \"sale\": sale reads prompts alone; for answers: "
            "dense, santa, s2anta-strat, s2anta-sys, s2anta-prop, s2anta-flash, s2anta-q4, top-k, "
            "bernoulli, vattention, adaptive-denominator, quest, skip-softmax");
  EXPECT_EQ(refusal(tiny(), {"spec.evaluation.prefills=[sale tau=2]"}),
            "x.yaml: spec.evaluation.prefills[0]: \"sale tau=2\": tau: a bad value; allowed: 0..1, "
            "profile");
  EXPECT_EQ(refusal(tiny(), {"spec.evaluation.prefills=[sample-attention chunk=100]"}),
            "x.yaml: spec.evaluation.prefills[0]: \"sample-attention chunk=100\": chunk: a bad "
            "value; allowed: 64, 128, 256, ..., 4096");
  EXPECT_THAT(refusal(tiny(), {"spec.attention.prefill=sail"}), HasSubstr("did you mean sale?"));
  // A sampled prefill has draws to learn, too.
  parsed(tiny("  update: {}\n"), {"spec.attention.decode=dense", "spec.attention.prefill=santa"});
}

TEST(Spec, OverridesReplaceAndAdd) {
  const auto experiment =
      parsed(exampleText(),
             {"spec.policy.totalBudget=16", "spec.stop.goal=0.9", "spec.evaluation.budgets=[4, 32]",
              "spec.policy.totalBudget=32", "spec.model.path=a=b"});
  EXPECT_EQ(experiment.spec().policy().total_budget(), 32u);
  EXPECT_EQ(experiment.spec().stop().goal(), 0.9);
  EXPECT_EQ(experiment.spec().model().path(), "a=b");
  EXPECT_THAT(experiment.spec().evaluation().budgets(), ElementsAre(4, 32));
  EXPECT_EQ(parsed(tiny(), {"spec.update.maxUpdates=3"}).spec().update().max_updates(), 3u);
}

TEST(Spec, EqualFilesHaveEqualDigests) {
  const v1::Experiment plain = parsed(tiny("  update: {entropyBonus: 0, learningRate: 0.05}\n"));
  const v1::Experiment other = parsed(
      "spec: {update: {learningRate: '5e-2', entropyBonus: \"-0\"}, policy: {totalBudget: 8},\n"
      "  task: {tasks: [niah]}, model: {path: \"m\"}, stop: {goal: 0}}\n"
      "metadata: {name: tiny}\nkind: Experiment\napiVersion: allot.dev/v1alpha1\n");
  EXPECT_EQ(canonicalBytes(plain), canonicalBytes(other));
  EXPECT_EQ(specDigest(plain), specDigest(other));
  EXPECT_EQ(specDigest(plain), sha256Hex(canonicalBytes(plain)));
  v1::Experiment back;
  ASSERT_TRUE(back.ParseFromString(canonicalBytes(plain)));
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(plain, back));
  EXPECT_NE(specDigest(plain), specDigest(parsed(tiny("  update: {learningRate: 0.06}\n"))));
}

TEST(Spec, ChecksAgainstLayers) {
  EXPECT_TRUE(checkAgainstModel(parsed(exampleText()), 8));
  const auto problem = [](const std::vector<std::string>& overrides, uint32_t layers) {
    return messageOf(checkAgainstModel(parsed(tiny(), overrides), layers));
  };
  EXPECT_EQ(problem({"spec.policy.minPerLayer=2"}, 4), "");
  EXPECT_EQ(problem({"spec.policy.minPerLayer=2"}, 5),
            "spec.policy.minPerLayer: 2 in each layer needs 10 draws, more than "
            "spec.policy.totalBudget, which is 8 (the model has 5 layers)");
  EXPECT_NE(problem({"spec.policy.minPerLayer=100000"}, 4000000000u), "");
  // At each total budget.
  EXPECT_THAT(problem({"spec.policy={totalBudgets: [4, 32], totalBudget: 32, minPerLayer: 1}"}, 8),
              HasSubstr("needs 8 draws, more than spec.policy.totalBudget, which is 4"));
  EXPECT_EQ(problem({"spec.evaluation.schedules=[uniform, [1, 2, 5]]"}, 3), "");
  EXPECT_EQ(problem({"spec.evaluation.schedules=[uniform, [1, 2, 5]]"}, 4),
            "spec.evaluation.schedules[1]: has 3 entries, but the model has 4 layers; write one "
            "for each layer");
  EXPECT_EQ(problem({"spec.evaluation.schedules=[oneHot]"}, 8), "");
  EXPECT_EQ(problem({"spec.evaluation.schedules=[oneHot]"}, 9),
            "spec.evaluation.schedules[0]: oneHot needs at least one draw in each layer, but "
            "the model has 9 layers and spec.evaluation.budgets has 8");
  EXPECT_NE(problem({"spec.evaluation.schedules=[oneHot]"}, 1), "");
  EXPECT_EQ(problem({"spec.evaluation.schedules=[oneHot reads=0]"}, 8), "");
  EXPECT_EQ(problem({"spec.evaluation.schedules=[oneHot reads=4]"}, 2), "");
  EXPECT_EQ(problem({"spec.evaluation.schedules=[oneHot reads=4]"}, 3),
            "spec.evaluation.schedules[0]: oneHot reads=4 needs at least 4 draws in each layer, "
            "but the model has 3 layers and spec.evaluation.budgets has 8");
  EXPECT_EQ(problem({}, 0), "the model has no layers");
}

void collectLeaves(const google::protobuf::Descriptor* message, const std::string& path,
                   std::set<std::string>& leaves) {
  for (int i = 0; i < message->field_count(); ++i) {
    const auto* field = message->field(i);
    const std::string name = path + "." + field->camelcase_name();
    const auto* inner = field->message_type();
    if (inner != nullptr && !field->is_repeated()) {
      collectLeaves(inner, name, leaves);
    } else {
      leaves.insert(name);
    }
  }
}

TEST(Spec, KeysAreTheFieldsOfTheMessage) {
  std::set<std::string> fields;
  collectLeaves(v1::Spec::descriptor(), "spec", fields);
  collectLeaves(v1::Cluster::descriptor(), "spec.cluster", fields);
  std::set<std::string> keys;
  for (const SpecKey& key : specKeys()) {
    EXPECT_TRUE(keys.insert(key.path).second) << key.path;
    EXPECT_THAT(key.meaning, EndsWith(".")) << key.path;
    EXPECT_NE(key.type, "");
    EXPECT_NE(key.default_value, "");
    EXPECT_NE(key.allowed, "");
  }
  EXPECT_EQ(keys, fields);
}

TEST(Spec, MarkdownHasOneWellFormedRowForEachKey) {
  const std::string table = specKeysMarkdown();
  EXPECT_THAT(
      table,
      StartsWith(
          "| key | default | allowed | live | meaning |\n| --- | --- | --- | --- | --- |\n"));
  std::istringstream lines(table);
  std::string line;
  size_t count = 0;
  for (; std::getline(lines, line); ++count) {
    EXPECT_EQ(std::count(line.begin(), line.end(), '|'), 6) << line;
  }
  EXPECT_EQ(count, specKeys().size() + 2);
  EXPECT_THAT(table, HasSubstr("| `spec.staleness.rhoBar` | `1` | number: >0..1000 | "));
  EXPECT_THAT(table, HasSubstr("| `spec.policy.minPerLayer` | `0` | integer: 0..100000 | "));
}

// Every default in the table, written into the file, changes nothing.
TEST(Spec, DefaultsInTheTableAreTheDefaults) {
  // The learner is named: without it keys of gradients choose it.
  const std::string update = "spec.update={learner: reinforce}";
  const std::string digest = specDigest(parsed(tiny(), {update}));
  for (const SpecKey& key : specKeys()) {
    const bool derived =
        key.default_value.find("spec.") != std::string::npos || key.path == "spec.update.learner";
    if (key.default_value == "required" || derived) continue;
    const v1::Experiment same = parsed(tiny(), {update, key.path + "=" + key.default_value});
    EXPECT_EQ(specDigest(same), digest) << key.path;
  }
}

}  // namespace
}  // namespace allot
