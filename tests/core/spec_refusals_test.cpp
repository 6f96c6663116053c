// Files that are refused: by the place, the value and what is allowed.
#include <string>
#include <utility>
#include <vector>

#include "core/spec/spec_rules.h"
#include "core/spec/task_catalogue.h"
#include "tests/core/spec_texts.h"

namespace allot {
namespace {

TEST(Spec, RefusesWithPathValueAndWhatIsAllowed) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"spec.policy.totalBudget=0", "spec.policy.totalBudget: 0 is out of range 1..1000000"},
      {"spec.policy.totalBudget=1000001",
       "spec.policy.totalBudget: 1000001 is out of range 1..1000000"},
      {"spec.policy.totalBudget=99999999999999999999",
       "spec.policy.totalBudget: 99999999999999999999 is out of range 1..1000000"},
      {"spec.policy.totalBudget=-8", "spec.policy.totalBudget: -8 is out of range 1..1000000"},
      {"spec.policy.totalBudget=eight", "spec.policy.totalBudget: \"eight\" is not an integer"},
      {"spec.policy.totalBudget=8.0", "spec.policy.totalBudget: \"8.0\" is not an integer"},
      {"spec.policy.totalBudget=0x8", "spec.policy.totalBudget: \"0x8\" is not an integer"},
      {"spec.policy.totalBudget=", "spec.policy.totalBudget: \"\" is not an integer"},
      {"spec.policy.totalBudget=[8]", "spec.policy.totalBudget: a list is not an integer"},
      {"spec.policy.totalBudget={a: 8}", "spec.policy.totalBudget: a section is not an integer"},
      {"spec.policy.totalBudget=~",
       "spec.policy.totalBudget: has no value; write an integer or remove the key"},
      {"spec.seed=9223372036854775808",
       "spec.seed: 9223372036854775808 is out of range 0..9223372036854775807"},
      {"spec.update.episodesPerUpdate=1",
       "spec.update.episodesPerUpdate: 1 is out of range 2..10000"},
      {"spec.update.learningRate=0", "spec.update.learningRate: 0 is out of range >0..10"},
      {"spec.update.learningRate=-0", "spec.update.learningRate: -0 is out of range >0..10"},
      {"spec.update.learningRate=10.1", "spec.update.learningRate: 10.1 is out of range >0..10"},
      {"spec.update.learningRate=1e999", "spec.update.learningRate: 1e999 is out of range >0..10"},
      {"spec.update.learningRate=nan", "spec.update.learningRate: \"nan\" is not a finite number"},
      {"spec.update.learningRate=.inf",
       "spec.update.learningRate: \".inf\" is not a finite number"},
      {"spec.update.learningRate=inf", "spec.update.learningRate: \"inf\" is not a finite number"},
      {"spec.update.learningRate=0.05x",
       "spec.update.learningRate: \"0.05x\" is not a finite number"},
      {"spec.update.learningRate=", "spec.update.learningRate: \"\" is not a finite number"},
      {"spec.stop.goal=1.5", "spec.stop.goal: 1.5 is out of range 0..1"},
      {"spec.stop.maxWorkerHours=0", "spec.stop.maxWorkerHours: 0 is out of range >0"},
      {"spec.update.optimizer=adm",
       "spec.update.optimizer: \"adm\" is not one of adam, sgd (did you mean adam?)"},
      {"spec.update.optimizer=rmsprop",
       "spec.update.optimizer: \"rmsprop\" is not one of adam, sgd"},
      {"spec.model.path=", "spec.model.path: \"\" is empty; write a value"},
      {"spec.model.path=\"a\\nb\"",
       "spec.model.path: \"a\\x0ab\" has control characters; remove them"},
      {"spec.task.tasks=niah", "spec.task.tasks: \"niah\" is not a list, as in [a, b]"},
      {"spec.task.tasks=[]", "spec.task.tasks: the list is empty; write at least one entry"},
      {"spec.task.tasks=[niah, niah]",
       "spec.task.tasks[1]: the list has this entry already; remove one"},
      {"spec.task.tasks=[niah, nih]",
       "spec.task.tasks[1]: \"nih\" is not one of niah, multi, track, freq, qa, hop (did you mean "
       "niah?)"},
      {"spec.task.suite=rule", "spec.task.suite: \"rule\" is not one of " + joined(suiteNames()) +
                                   " (did you mean ruler?)"},
      {"spec.task={suite: ruler}",
       "spec.task.tasks: required, but missing; allowed for suite ruler: niah_single_1, "
       "niah_single_2, niah_single_3, niah_multikey_1, niah_multikey_2, niah_multikey_3, "
       "niah_multivalue, niah_multiquery, vt, cwe, fwe, qa_1, qa_2"},
      {"spec.task={suite: ruler, tasks: [vt, qa_1]}",
       "spec.task.tasks[1]: \"qa_1\" cannot be generated here: make it with RULER's scripts and "
       "set "
       "spec.task.path to their folder"},
      {"spec.task={suite: ruler, tasks: [vt, qa_1], path: d, grader: santa}",
       "spec.task.grader: santa has no grader for task vt; name one (`allot tasks` lists them)"},
      {"spec.task={suite: gsm8k}",
       "spec.task.path: required for suite gsm8k, but missing; name the file or folder with its "
       "questions"},
      {"spec.task={suite: gsm8k, tasks: [mmlu], path: f}",
       "spec.task.tasks[0]: \"mmlu\" is not one of gsm8k"},
      {"spec.task.path=f",
       "spec.task.path: suite recall generates its questions and reads no file; remove the key"},
      {"spec.task={suite: ruler, tasks: [vt], heldOutPath: f}",
       "spec.task.heldOutPath: needs spec.task.path, which says where training questions come "
       "from"},
      {"spec.task.promptField=question",
       "spec.task.promptField: is for suite jsonl only; remove it or change spec.task.suite"},
      {"spec.task={suite: jsonl, path: f, promptStyle: deepseek}",
       "spec.task.promptStyle: is for suites gsm8k and mmlu only; remove it or change "
       "spec.task.suite"},
      {"spec.task.promptStyle=qwen",
       "spec.task.promptStyle: \"qwen\" is not one of llama, deepseek"},
      {"spec.task={suite: gsm8k, path: f, split: validation}",
       "spec.task.split: is for suite mmlu only; remove it or change spec.task.suite"},
      {"spec.task={suite: mmlu, path: f, split: dev}",
       "spec.task.split: \"dev\" is not one of test, validation"},
      {"spec.generation.repetitionPenalty=0",
       "spec.generation.repetitionPenalty: 0 is out of range 0.01..10"},
      {"spec.task.grader=exct",
       "spec.task.grader: \"exct\" is not one of exact, ruler-all, ruler-part, santa-niah, "
       "santa-fwe, santa-substring, number-llama, number-deepseek, choice-llama, choice-"
       "deepseek, number-llama-literal, number-deepseek-literal, choice-llama-literal, "
       "choice-deepseek-literal, longbench-choice, f1, f1-line, rouge-l, rouge-l-line, rouge-"
       "lsum, longbench-code, longbench-class, longbench-count, longbench-paragraph, "
       "infinitebench-number, infinitebench-word, infinitebench-name, infinitebench-choice, "
       "infinitebench-debug, infinitebench-run, infinitebench-find, contains-all, contains-"
       "any, python-tests, santa (did you mean exact?)"},
      {"spec.evaluation.budgets=[8, 8]",
       "spec.evaluation.budgets[1]: the list has this entry already; remove one"},
      {"spec.evaluation.budgets=[8, 0]",
       "spec.evaluation.budgets[1]: 0 is out of range 1..1000000"},
      {"spec.evaluation.methods=[dense, s2anta-sy]",
       "spec.evaluation.methods[1]: \"s2anta-sy\": no such method; there are dense, santa, "
       "s2anta-strat, s2anta-sys, s2anta-prop, s2anta-flash, s2anta-q4, top-k, bernoulli, "
       "vattention, adaptive-denominator, quest, skip-softmax (did you mean s2anta-sys?)"},
      {"spec.evaluation.methods=[vatention epsilon=0.1]",
       "spec.evaluation.methods[0]: \"vatention epsilon=0.1\": no such method; there are dense, "
       "santa, s2anta-strat, s2anta-sys, s2anta-prop, s2anta-flash, s2anta-q4, top-k, bernoulli, "
       "vattention, adaptive-denominator, quest, skip-softmax (did you mean vattention?)"},
      {"spec.attention.decode=s2anta-flash tileSize=1",
       "spec.attention.decode: \"s2anta-flash tileSize=1\": tileSize: a bad value; allowed: "
       "16..65536, auto"},
      {"spec.attention.decode=s2anta-sys tileSize=64",
       "spec.attention.decode: \"s2anta-sys tileSize=64\": s2anta-sys has no such "
       "parameter; it takes draws, proposal, weights, exactAbove"},
      {"spec.attention.decode=dense exactAbove=never",
       "spec.attention.decode: \"dense exactAbove=never\": dense takes no parameters"},
      {"spec.attention.decode=s2anta-sys exactAbove=512",
       "spec.attention.decode: \"s2anta-sys exactAbove=512\": exactAbove: a bad value; allowed: "
       "keys, never"},
      {"spec.attention.decode=vattention sink=1.5",
       "spec.attention.decode: \"vattention sink=1.5\": sink: a bad value; allowed: 0..65536, "
       "0.0001..0.9"},
      {"spec.attention.decode='s2anta-sys '",
       "spec.attention.decode: \"s2anta-sys \": write single spaces between its parameters, and "
       "none at the end"},
      {"spec.attention.decode=", "spec.attention.decode: \"\" is empty; write a value"},
      {"spec.attention.decode=[dense]", "spec.attention.decode: a list is not a string"},
      // The same method in two texts: 256 is the default.
      {"spec.evaluation.methods=[s2anta-flash, s2anta-flash tileSize=256]",
       "spec.evaluation.methods[1]: the list has this entry already; remove one"},
      {"spec.evaluation.methods=[vattention epsilon=0.10 delta=.1, vattention delta=0.1 "
       "epsilon=0.1]",
       "spec.evaluation.methods[1]: the list has this entry already; remove one"},
      {"spec.evaluation.measures=[accuracy, speed]",
       "spec.evaluation.measures[1]: \"speed\" is not one of accuracy, fidelity, variance"},
      {"spec.evaluation.measures=[fidelity tile=0]",
       "spec.evaluation.measures[0]: \"fidelity tile=0\": tile: a bad value; allowed: 1..1048576"},
      {"spec.evaluation.measures=[accuracy, variance questions=1000001]",
       "spec.evaluation.measures[1]: \"variance questions=1000001\": questions: a bad value; "
       "allowed: 1..1000000"},
      {"spec.evaluation.measures=[variance replicates=1]",
       "spec.evaluation.measures[0]: \"variance replicates=1\": replicates: a bad value; allowed: "
       "2..4096"},
      {"spec.evaluation.measures=[fidelity agreement=layer]",
       "spec.evaluation.measures[0]: \"fidelity agreement=layer\": agreement: a bad value; "
       "allowed: "
       "all-layers, last-layer, each-layer"},
      {"spec.evaluation.measures=[fidelity replicates=4]",
       "spec.evaluation.measures[0]: \"fidelity replicates=4\": fidelity has no such parameter; it "
       "takes questions, tile, agreement"},
      {"spec.evaluation.measures=[accuracy tile=4]",
       "spec.evaluation.measures[0]: \"accuracy tile=4\": accuracy takes no parameters"},
      {"spec.evaluation.measures=[fidelity tile]",
       "spec.evaluation.measures[0]: \"fidelity tile\": tile has no value; allowed: 1..1048576"},
      {"spec.evaluation.measures=[fidelity tile=4 tile=4]",
       "spec.evaluation.measures[0]: \"fidelity tile=4 tile=4\": tile is given twice"},
      {"spec.evaluation.measures=['fidelity  tile=4']",
       "spec.evaluation.measures[0]: \"fidelity  tile=4\": write single spaces between its "
       "parameters, and none at the end"},
      {"spec.evaluation.measures=[fidelity, fidelity tile=256]",
       "spec.evaluation.measures[1]: the list has this entry already; remove one"},
      {"spec.evaluation={measures: [variance], methods: [dense]}",
       "spec.evaluation.measures[0]: variance compares methods with dense, but "
       "spec.evaluation.methods has no other; add one"},
      {"spec.evaluation={measures: [fidelity], methods: [dense]}",
       "spec.evaluation.measures[0]: fidelity compares methods with dense, but "
       "spec.evaluation.methods has no other; add one"},
      {"spec.evaluation.schedules=[learned]",
       "spec.evaluation.schedules[0]: learned needs the section spec.update, which is missing; "
       "add it or remove learned"},
      {"spec.evaluation.schedules=[[0, 0]]",
       "spec.evaluation.schedules[0]: sums to 0, which is out of range 1..1000000"},
      {"spec.evaluation.schedules=[[999999, 2]]",
       "spec.evaluation.schedules[0]: sums to 1000001, which is out of range 1..1000000"},
      {"spec.evaluation.schedules=[[1, -1]]",
       "spec.evaluation.schedules[0][1]: -1 is out of range 0..1000000"},
      {"spec.evaluation.schedules=[[]]",
       "spec.evaluation.schedules[0]: has 0 entries; write one for each layer, 1..1024"},
      {"spec.task.maxNewTokens=0",
       "spec.task.maxNewTokens: 0 stands for lengths that tasks have of their own, but those of "
       "suite recall have none; write the longest answer in tokens"},
      {"spec.policy=8", "spec.policy: \"8\" is not a section (keys with values)"},
      {"spec.update=~",
       "spec.update: has no value; write a section (keys with values) or remove the key"},
      {"spec.policy={totalBugdet: 8}",
       "spec.policy.totalBugdet: unknown key (did you mean totalBudget?)"},
      {"spec.policy={learningRate: 8}",
       "spec.policy.learningRate: unknown key (did you mean spec.update.learningRate?)"},
      {"spec.policy={colour: red}",
       "spec.policy.colour: unknown key; known here: totalBudget, totalBudgets, price, "
       "stepTimes, minPerLayer, granularity, zeroReads, measureQuestions"},
      {"metadata={name: tiny, namspace: x}",
       "metadata.namspace: unknown key (did you mean namespace?)"},
      {"metadata={name: tiny, namespace: A}",
       "metadata.namespace: \"A\" is not a name of lower-case letters, digits and inner hyphens"},
      {"metadata.name=Big",
       "metadata.name: \"Big\" is not a name of 1..50 lower-case letters, digits and inner "
       "hyphens"},
      {"kind=Job", "kind: \"Job\" is not Experiment"},
      {"apiVersion=v1", "apiVersion: \"v1\" is not allot.dev/v1alpha1"},
  };
  for (const auto& [assignment, message] : cases) {
    EXPECT_EQ(refusalOf(assignment), "x.yaml: " + message) << assignment;
  }
}

TEST(Spec, OnlyASampleBudgetCanBeLearned) {
  for (const char* method :
       {"dense", "vattention epsilon=0.1", "adaptive-denominator", "bernoulli"}) {
    EXPECT_EQ(refusal(tiny("  update: {}\n"), {std::string("spec.attention.decode=") + method}),
              "x.yaml: spec.attention.decode: \"" + std::string(method) +
                  "\" reads what it needs, whatever its budget, so that there is no schedule to "
                  "learn: choose a method that samples, or remove the section spec.update");
    parsed(tiny(), {std::string("spec.attention.decode=") + method});  // a sweep may have it
  }
  for (const char* method :
       {"s2anta-q4 bits=3", "top-k scores=q4", "bernoulli values=s2anta-sys"}) {
    parsed(tiny("  update: {}\n"), {std::string("spec.attention.decode=") + method});
  }
}

TEST(Spec, NamesAreDnsLabels) {
  EXPECT_EQ(parsed(tiny(), {"metadata.name=a-0"}).name(), "a-0");
  // Runs of before stay; nothing new is called so, for a Service cannot be.
  EXPECT_TRUE(parseStoredExperiment(tiny(), "x.yaml", {"metadata.name=0-a"}));
  EXPECT_EQ(refusalOf("metadata.name=0-a"),
            "x.yaml: metadata.name: \"0-a\" begins with a digit, which names of Services in a "
            "cluster must not; begin it with a letter");
  EXPECT_EQ(parsed(tiny(), {"metadata.name=" + std::string(50, 'a')}).name().size(), 50u);
  for (const std::string& bad :
       {std::string(51, 'a'), std::string("-a"), std::string("a-"), std::string("a.b"),
        std::string("a_b"), std::string("\"\""), std::string("\xc3\xa9")}) {
    EXPECT_THAT(refusalOf("metadata.name=" + bad), HasSubstr("is not a name of 1..50")) << bad;
  }
}

TEST(Spec, EnvelopeAndRequiredKeys) {
  EXPECT_EQ(refusal(""),
            "x.yaml: is not an experiment file; it must start with apiVersion and kind");
  EXPECT_THAT(refusal("[1, 2]"), HasSubstr("is not an experiment file"));
  EXPECT_EQ(refusal("kind: Experiment\n"),
            "x.yaml: apiVersion: required, but missing; write allot.dev/v1alpha1");
  const std::string envelope = "apiVersion: allot.dev/v1alpha1\nkind: Experiment\n";
  EXPECT_EQ(refusal(envelope), "x.yaml: metadata.name: required, but missing; give the run a name");
  EXPECT_EQ(refusal(envelope + "metadata: {name: a}\n"), "x.yaml: spec: required, but missing");
  EXPECT_EQ(refusal(std::string(kHead) + "  model: {path: m}\n  task: {tasks: [qa]}\n"),
            "x.yaml: spec.policy.totalBudget: required, but missing; allowed: 1..1000000");
  EXPECT_EQ(refusal(tiny() + "colour: {}\n"),
            "x.yaml:8: colour: unknown key; known here: apiVersion, kind, metadata, spec, status");
  EXPECT_EQ(refusal(tiny("  polcy: {}\n")),
            "x.yaml:8: spec.polcy: unknown key (did you mean policy?)");
}

// One key with this text, which Kubernetes' reader takes for something else than its rule wants.
TEST(Spec, WhatTwoReadersReadDifferentlyIsRefused) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"policy: {totalBudget: 016}",
       "spec.policy.totalBudget: 016 begins with 0, which Kubernetes reads as octal; write 14 or "
       "16"},
      {"policy: {totalBudget: 08}",
       "spec.policy.totalBudget: 08 begins with 0, which Kubernetes reads as octal; write 8"},
      {"generation: {temperature: 00.5}",
       "spec.generation.temperature: 00.5 begins with 0, which Kubernetes reads as octal; write "
       "0.5"},
      {"generation: {temperature: 1e-400}",
       "spec.generation.temperature: 1e-400 is too small for a number of 64 bits; write 0"},
      {"policy: {totalBudget: \"016\"}",
       "spec.policy.totalBudget: \"016\" is a text to Kubernetes; write 16 without quotes"},
      {"policy: {totalBudget: \"8\"}",
       "spec.policy.totalBudget: \"8\" is a text to Kubernetes; write 8 without quotes"},
      {"evaluation: {budgets: [8, '16']}",
       "spec.evaluation.budgets[1]: \"16\" is a text to Kubernetes; write 16 without quotes"},
      {"evaluation: {schedules: [[010, 0]]}",
       "spec.evaluation.schedules[0][0]: 010 begins with 0, which Kubernetes reads as octal; write "
       "8 or 10"},
      {"update: {learningRate: 010}",
       "spec.update.learningRate: 010 begins with 0, which Kubernetes reads as octal; write 8 or "
       "10"},
      {"policy: {zeroReads: off}",
       "spec.policy.zeroReads: off is a boolean to Kubernetes; write \"off\""},
      {"task: {tasks: [niah, y]}", "spec.task.tasks[1]: y is a boolean to Kubernetes; write \"y\""},
      {"model: {path: 1.10}", "spec.model.path: 1.10 is a number to Kubernetes; write \"1.10\""},
      {"model: {path: 0o10}", "spec.model.path: 0o10 is a number to Kubernetes; write \"0o10\""},
      {"model: {path: 1_000}", "spec.model.path: 1_000 is a number to Kubernetes; write \"1_000\""},
      {"model: {path: .21_1}", "spec.model.path: .21_1 is a number to Kubernetes; write \".21_1\""},
      {"cluster: {image: {tag: 7E0_1}}",
       "spec.cluster.image.tag: 7E0_1 is a number to Kubernetes; write \"7E0_1\""},
      {"cluster: {image: {tag: 1e3}}",
       "spec.cluster.image.tag: 1e3 is a number to Kubernetes; write \"1e3\""},
      {"cluster: {suspend: 'true'}",
       "spec.cluster.suspend: \"true\" is a text to Kubernetes; write true without quotes"},
      {"cluster: {nodeSelector: {gpu: true}}",
       "spec.cluster.nodeSelector.gpu: true is a boolean to Kubernetes; write \"true\""},
      {"cluster: {tolerations: [{key: gpu, value: yes}]}",
       "spec.cluster.tolerations[0].value: yes is a boolean to Kubernetes; write \"yes\""},
      {"cluster: {resources: {limits: {cpu: 010}}}",
       "spec.cluster.resources.limits.cpu: 010 begins with 0, which Kubernetes reads as octal; "
       "write 8 or 10"},
      {"cluster: {resources: {limits: {cpu: .5}}}",
       "spec.cluster.resources.limits.cpu: .5 is a number to Kubernetes, which takes whole ones "
       "here; write \".5\""},
  };
  for (const auto& [line, message] : cases) {
    const std::string head = std::string(kHead) + "  " + line + "\n";
    std::vector<std::string> all;
    EXPECT_FALSE(parseExperiment(head, "x.yaml", {}, &all)) << line;
    EXPECT_THAT(all, Contains("x.yaml:5: " + message)) << line;
  }
  EXPECT_EQ(refusal(tiny("  cluster: {nodeSelector: {on: a}}\n")),
            "x.yaml:8:28: spec.cluster.nodeSelector.on: to Kubernetes the key on is a boolean; "
            "write \"on\"");
  EXPECT_EQ(refusal(tiny("  generation: {temperature: 0,5}\n")),
            "x.yaml:8:31: spec.generation.5: to Kubernetes the key 5 is a number; write \"5\", and "
            "decimals with a point, as in 0.5");
  for (const auto& [end, message] :
       {std::pair{"\xc2\x85", "Kubernetes reads the character U+0085 as a line end; remove it"},
        {"\xe2\x80\xa8", "Kubernetes reads the character U+2028 as a line end; remove it"},
        {"\xe2\x80\xa9", "Kubernetes reads the character U+2029 as a line end; remove it"},
        {"\r",
         "a carriage return without a line feed ends this line; save the file with the line ends "
         "of Unix"}}) {
    EXPECT_EQ(refusal(tiny("  seed: 1 # c" + std::string(end) + "  repetition: 5\r\n")),
              "x.yaml:8:14: " + std::string(message));
  }
  EXPECT_EQ(parsed(tiny("  seed: 1 # c\r\n  repetition: 5\r\n")).spec().repetition(), 5u);
  EXPECT_THAT(refusal("kind: Experiment\napiVersion: allot.dev/v1alpha1\nmetadata: {name: no}\n"),
              StartsWith("x.yaml:3: metadata.name: no is a boolean to Kubernetes"));
  // What both read as the same, and what only this program reads: settings, and stored files.
  for (const char* path :
       {"\"1.10\"", "0.2.0", "1:30", "2001-01-01", "tRue", "5Ei", "0b", "_1", "1e_", "._1a"}) {
    parsed(std::string(kHead) + "  model: {path: " + path + "}\n",
           {"spec.task.tasks=[niah]", "spec.policy={totalBudget: '8', zeroReads: off}"});
  }
  EXPECT_TRUE(parseStoredExperiment(tiny("  attention: {decode: s2anta-sys}\n  seed: '3'\n"), "x"));
}

TEST(Spec, AllMistakesAreToldAtOnceWithTheirLines) {
  std::vector<std::string> all;
  EXPECT_THAT(parseExperiment(R"(apiVersion: allot.dev/v1alpha1
kind: Experiment
metadata: {name: Tiny, labels: {a: 1}}
spec:
  model: {path: m, dtyp: float32}
  task:
    tasks: [niah]
    trainQuestions: -1
  policy: {totalBudget: 016}
  attention: {decode: s2anta-sy}
  evaluation:
    budgets: [8, x, 0]
    methods:
    - dense
    - top-q
  stop: {goal: 0.9}
  cluster:
    workers: -1
    tolerations:
    - {key: a, effect: NoSchedule, tolerationSeconds: 3}
)",
                              "x.yaml", {"spec.seed=x"}, &all),
              isError(StartsWith("x.yaml:5: spec.model.dtyp")));
  const auto begins = [](const char* text) { return StartsWith(text); };
  EXPECT_THAT(all,
              ElementsAre(begins("x.yaml:5: spec.model.dtyp: unknown key"),
                          begins("x.yaml:3: metadata.name: \"Tiny\""),
                          begins("x.yaml:3: metadata.labels.a: 1 is a number"),
                          begins("x.yaml: spec.seed: \"x\" is not an integer"),
                          begins("x.yaml:8: spec.task.trainQuestions: -1"),
                          begins("x.yaml:10: spec.attention.decode: "),
                          begins("x.yaml:9: spec.policy.totalBudget: 016"),
                          begins("x.yaml:12: spec.evaluation.budgets[1]: \"x\""),
                          begins("x.yaml:12: spec.evaluation.budgets[2]: 0 is out"),
                          begins("x.yaml:15: spec.evaluation.methods[1]: "),
                          begins("x.yaml:18: spec.cluster.workers: -1"),
                          begins("x.yaml:20: spec.cluster.tolerations[0]: tolerationSeconds")));
}

TEST(Spec, RulesThatJoinKeysAreToldWhereTheirSectionsAreRight) {
  const auto told = [](const std::string& more) {
    std::vector<std::string> all;
    EXPECT_FALSE(parseExperiment(tiny(more), "x.yaml", {}, &all));
    return all;
  };
  // A goal that cannot be reached, a schedule that nothing learns, and a mistake elsewhere.
  EXPECT_THAT(told("  evaluation: {schedules: [learned]}\n  stop: {goal: 0.5}\n  seed: -1\n"),
              ElementsAre(StartsWith("x.yaml:10: spec.seed: -1"),
                          StartsWith("x.yaml:8: spec.evaluation.schedules[0]: learned needs"),
                          StartsWith("x.yaml:9: spec.stop.goal: it cannot be reached")));
  // What is missing may be what an unknown key meant.
  EXPECT_THAT(told("  evaluation: {shedules: [learned]}\n  update: {updates: 3}\n"),
              ElementsAre(StartsWith("x.yaml:8: spec.evaluation.shedules: unknown key"),
                          StartsWith("x.yaml:9: spec.update.updates: unknown key")));
  std::string many;
  for (int i = 0; i < 30; ++i) many += "  key" + std::to_string(i) + ": 1\n";
  EXPECT_EQ(told(many).size(), 20u);
  std::string budgets = "  evaluation: {budgets: [";
  for (int i = 0; i < 30; ++i) budgets += "x" + std::to_string(i) + ", ";
  EXPECT_EQ(told(budgets + "1]}\n").back(), "x.yaml: has more mistakes; mend these first");
}

TEST(Spec, SyntaxErrorsNameLineAndColumn) {
  EXPECT_THAT(refusal("apiVersion: allot.dev/v1alpha1\nspec: [1, }\n"),
              StartsWith("x.yaml:2:11: "));
  EXPECT_EQ(refusal(tiny("  seed: 1\n  seed: 2\n")),
            "x.yaml:9:3: spec.seed is given twice; remove one");
  EXPECT_EQ(refusal(tiny("  update: {maxUpdates: 1, optimizer: sgd, maxUpdates: 2}\n")),
            "x.yaml:8:43: spec.update.maxUpdates is given twice; remove one");
  EXPECT_THAT(refusal(tiny() + "---\nkind: Experiment\n"), HasSubstr("a second YAML document"));
  EXPECT_EQ(refusal("a: 1\nb: \xff\n"),
            "x.yaml:2:4: the byte \\xff is not text; save the file as UTF-8");
  EXPECT_EQ(refusal(std::string("a: 1\0b", 6)),
            "x.yaml:1:5: the byte \\x00 is not text; save the file as UTF-8");
  EXPECT_THAT(refusal("a: \"\\_\"\n"), HasSubstr("characters that are not text"));
  EXPECT_THAT(refusal("? [a]\n: 1\n"), HasSubstr("cannot be a key"));
  EXPECT_THAT(refusal("seed: !!int 3\n"), HasSubstr("is not accepted; remove it"));
}

TEST(Spec, RefusesBombs) {
  EXPECT_EQ(refusal("a: &x [1]\n"),
            "x.yaml:1:4: anchors (&) and aliases (*) are not accepted; write the value out");
  EXPECT_THAT(refusal("a: &x\nb: *x\n"), HasSubstr("anchors (&) and aliases (*)"));
  const auto nested = [](size_t depth) {
    return tiny("  seed: " + std::string(depth, '[') + std::string(depth, ']') + "\n");
  };
  // The file and spec are two levels themselves.
  EXPECT_EQ(refusal(nested(30)), "x.yaml:8: spec.seed: a list is not an integer");
  EXPECT_EQ(refusal(nested(31)), "x.yaml:8:39: nested deeper than 32 levels");
  const std::string full = tiny("#" + std::string((1 << 20) - tiny().size() - 1, 'x'));
  EXPECT_EQ(parsed(full).name(), "tiny");
  EXPECT_EQ(refusal(full + "x"), "x.yaml: has more than the 1048576 bytes that are read");
  EXPECT_THAT(refusalOf("spec.evaluation.budgets=" + std::string(1 << 20, '[')),
              StartsWith("--set spec.evaluation.budgets:1:17: nested deeper than 32"));
  EXPECT_THAT(refusalOf("spec.evaluation.budgets=[1" +
                        [] {
                          std::string more;
                          for (int i = 0; i < 64; ++i) more += "," + std::to_string(i + 2);
                          return more;
                        }() +
                        "]"),
              EndsWith("has 65 entries, more than 64"));
}

TEST(Spec, MeasuredSchedulesNeedAMeasurementAndOneHotAloneTakesReads) {
  const auto why = [](std::vector<std::string> settings) {
    return messageOf(parseExperiment(exampleText(), "x.yaml", settings));
  };
  const std::string measured = "spec.evaluation.schedules=[uniform, measured]";
  EXPECT_EQ(why({measured}), "");
  EXPECT_EQ(why({"spec.policy.measureQuestions=64"}), "");  // for learners alone
  EXPECT_THAT(why({measured, "spec.policy.measureQuestions=0"}),
              HasSubstr("spec.policy.measureQuestions: 0 measures no layer, but"));
  EXPECT_THAT(why({measured, "spec.attention.decode=vattention"}), HasSubstr("choose"));
  for (const char* bad : {"oneHot reads", "oneHot reads=", "oneHot reads=-1", "oneHot read=1",
                          "oneHot reads=2 reads=2", "uniform reads=1", "oneHot "}) {
    EXPECT_THAT(why({"spec.evaluation.schedules=['" + std::string(bad) + "']"}),
                HasSubstr("only oneHot takes a parameter"))
        << bad;
  }
}

TEST(Spec, AGoalThatNoEvaluationCanReachIsRefusedWithTheKeyThatIsMissing) {
  const auto why = [](std::vector<std::string> settings) {
    settings.push_back("spec.stop.goal=0.9");
    return messageOf(parseExperiment(exampleText(), "x.yaml", settings));
  };
  EXPECT_EQ(why({}), "");
  EXPECT_EQ(
      why({"spec.evaluation.methods=[s2anta-sys]", "spec.evaluation.budgets=[8]",
           "spec.evaluation.schedules=[learned]", "spec.evaluation.measures=[fidelity, accuracy]"}),
      "");
  for (const auto& [setting, lack] : std::vector<std::pair<std::string, std::string>>{
           {"spec.evaluation.budgets=[4, 16]", "spec.evaluation.budgets has no 8;"},
           {"spec.policy.totalBudget=9", "spec.evaluation.budgets has no 9;"},
           {"spec.evaluation.schedules=[uniform, oneHot]",
            "spec.evaluation.schedules has no learned;"},
           {"spec.evaluation.measures=[fidelity]", "spec.evaluation.measures has no accuracy;"},
           {"spec.evaluation.methods=[dense, top-k]", "spec.evaluation.methods has no s2anta-sys;"},
           {"spec.attention.decode=s2anta-q4", "spec.evaluation.methods has no s2anta-q4;"},
           {"spec.evaluation.everyUpdates=0", "spec.evaluation.everyUpdates is 0,"}}) {
    EXPECT_THAT(why({setting}),
                AllOf(StartsWith("x.yaml: spec.stop.goal: it cannot be reached"), HasSubstr(lack)));
    EXPECT_THAT(parseExperiment(exampleText(), "x.yaml", {setting}), succeeds());
  }
  EXPECT_THAT(parseExperiment(tiny(), "x.yaml", {"spec.stop.goal=0.9"}),
              isError(HasSubstr("spec.update is missing")));
}

TEST(Spec, OverridesAreChecked) {
  const char* const mend = ": write a path, '=' and a value, as in spec.policy.totalBudget=16";
  EXPECT_EQ(refusalOf("spec.policy.totalBudget"),
            std::string("--set \"spec.policy.totalBudget\"") + mend);
  EXPECT_EQ(refusalOf("=3"), std::string("--set \"=3\"") + mend);
  EXPECT_EQ(refusalOf(""), std::string("--set \"\"") + mend);
  EXPECT_EQ(refusalOf("spec.polcy.totalBudget=3"),
            "--set spec.polcy.totalBudget: spec.polcy: unknown key (did you mean policy?)");
  EXPECT_EQ(refusalOf("spec.seed.low=3"),
            "--set spec.seed.low: spec.seed.low: unknown key; spec.seed is a value, not a section");
  EXPECT_THAT(refusalOf("spec.=3"), HasSubstr("spec.: unknown key"));
  EXPECT_THAT(refusalOf("spec..seed=3"), HasSubstr("spec.: unknown key"));
  EXPECT_THAT(refusalOf("totalBudget=3"), HasSubstr("did you mean spec.policy.totalBudget?"));
  EXPECT_THAT(refusalOf("spec.seed=[1"),
              StartsWith("--set spec.seed:1:1: end of sequence flow not found"));
  EXPECT_EQ(refusal("spec: 3\n", {"spec.seed=1"}),
            "--set spec.seed: spec: \"3\" is not a section (keys with values)");
}

}  // namespace
}  // namespace allot
