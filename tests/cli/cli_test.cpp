// What commands print, without processes.
#include "allot/kernels/method.h"
#include "cli/explain.h"
#include "cli/run_command.h"
#include "cli/run_folder.h"
#include "cli/run_report.h"
#include "cli/terminal.h"
#include "core/random_stream.h"
#include "core/spec/spec.h"
#include "core/spec/task_catalogue.h"
#include "tests/results.h"

namespace allot {
namespace {

// What a fork with these options draws from, by a file that leaves both keys as they were.
RunStreams streamsOfFork(const v1::Spec& parent, const std::vector<std::string>& given, bool same,
                         uint64_t fresh) {
  const auto streams = valueOf(forkStreams(parent, given, same, fresh));
  auto settings = given;
  settings.insert(settings.end(), streams.set.begin(), streams.set.end());
  const auto fork = valueOf(parseExperiment(
      "apiVersion: allot.dev/v1alpha1\nkind: Experiment\nmetadata: {name: tiny}\nspec:\n"
      "  seed: 7\n  model: {path: m}\n  task: {tasks: [niah]}\n  policy: {totalBudget: 8}\n",
      "tiny.yaml", settings));
  EXPECT_EQ(fork.spec().seed(), 7u);  // and the same questions
  return runStreams(fork.spec());
}

TEST(ForkStreams, AForkIsIndependentOfItsParentUnlessAsked) {
  v1::Spec before;  // repetition 0
  before.set_seed(7);
  v1::Spec parent = before;
  parent.set_repetition(11);
  for (const v1::Spec& of : {before, parent}) {
    const RunStreams own = runStreams(of);
    EXPECT_NE(streamsOfFork(of, {}, false, 4711).key, own.key);
    EXPECT_NE(streamsOfFork(of, {}, false, 4711).key, before.seed());
    EXPECT_NE(streamsOfFork(of, {}, false, 4711).key, streamsOfFork(of, {}, false, 4712).key);
    EXPECT_EQ(streamsOfFork(of, {}, true, 4711).key, own.key);
  }
  // Asked by number: a fork can be made again.
  const auto again = std::vector<std::string>{"spec.repetition=4711"};
  EXPECT_EQ(streamsOfFork(parent, again, false, 1).key, streamsOfFork(parent, {}, false, 4711).key);
  EXPECT_THAT(forkStreams(parent, {}, false, 4711)->told, HasSubstr("spec.repetition=4711"));
  EXPECT_THAT(forkStreams(parent, again, false, 1)->told, HasSubstr("spec.repetition=4711"));
  EXPECT_THAT(forkStreams(parent, {}, true, 1)->told, HasSubstr("the same random numbers"));
  for (const char* both : {"spec.seed=7", "spec.repetition=4711"}) {
    EXPECT_THAT(forkStreams(parent, {both}, true, 1),
                isError(ErrorCode::kUsage, HasSubstr(std::string("leave out --set ") + both)));
  }
}

TEST(ForkStreams, AForkOfOtherSettingsSaysThatItMeasuresAnew) {
  v1::Spec parent;
  parent.mutable_attention()->set_decode("santa");
  v1::Spec fork = parent;
  fork.mutable_task()->set_held_out_questions(7);
  EXPECT_EQ(droppedMeasurement(parent, fork), "");
  fork.mutable_attention()->set_decode("s2anta-sys");
  fork.mutable_model()->set_path("other");
  EXPECT_EQ(droppedMeasurement(parent, fork),
            "it leaves out that run's measurement of the layers, which is of another "
            "spec.model.path, spec.attention.decode");
  fork.mutable_policy()->set_measure_questions(64);
  fork.mutable_task()->set_train_questions(64);
  EXPECT_THAT(droppedMeasurement(parent, fork), HasSubstr(", and measures them itself"));
}

TEST(Printable, LongNamesKeepBothEnds) {
  const std::string end = "-0123456789abcdef";
  EXPECT_EQ(withoutMiddle("a" + end, 60), "a" + end);
  EXPECT_EQ(withoutMiddle(std::string(100, 'a') + end, 60),
            std::string(30, 'a') + "..." + std::string(13, 'a') + end);
  EXPECT_EQ(withoutMiddle("\x1b" + std::string(100, 'a') + "\u6f22\u6f22", 10), "?aaaa...\u6f22");
}

TEST(Printable, ShowsNothingThatATerminalObeys) {
  EXPECT_EQ(printable("worker-1 é 漢 \U0001F600"), "worker-1 é 漢 \U0001F600");
  EXPECT_EQ(printable("\x1b[2J\r\nx\t\x7f"), "?[2J??x??");
  EXPECT_EQ(printable("a\u009bb\u202ec\u2066d\u200ee\u2028f"),
            "a?"
            "?b???c???d???e???f");
  EXPECT_EQ(printable(std::string("a\0b", 3)), "a?b");
  for (const char* broken : {"\xff", "\xc3", "\xe2\x82", "\xf0\x9f\x98", "\x80", "\xed\xa0\x80",
                             "\xc0\xaf", "\xe0\x80\xaf", "\xf4\x90\x80\x80"}) {
    EXPECT_EQ(printable(broken), std::string(std::string(broken).size(), '?'));
  }
  EXPECT_EQ(printable("abcdef", 3), "abc...");
  EXPECT_EQ(printable("aéé", 4), "aé...");
  EXPECT_EQ(printable("abc", 3), "abc");
}

TEST(ShellWord, IsOneWord) {
  EXPECT_EQ(shellWord("/a/b-c_1.yaml"), "/a/b-c_1.yaml");
  EXPECT_EQ(shellWord("a b"), "'a b'");
  EXPECT_EQ(shellWord("it's $HOME"), "'it'\\''s $HOME'");
  EXPECT_EQ(shellWord(""), "''");
}

TEST(SocketPath, FitsIntoAnAddress) {
  EXPECT_EQ(socketPath("/runs/a", "R"), "/runs/a/redis.sock");
  const std::string one = socketPath("/" + std::string(200, 'a'), "R");
  const std::string two = socketPath("/" + std::string(200, 'b'), "R");
  EXPECT_LT(one.size(), 100u);
  EXPECT_NE(one, two);  // an imported run may live in two folders
}

nlohmann::json summaryRow(const char* method, const char* schedule, int budget, double accuracy) {
  return {{"method", method},     {"schedule", schedule},    {"total_budget", budget},
          {"accuracy", accuracy}, {"ci95", {accuracy, 1.0}}, {"n", 480},
          {"repeats", 1},         {"kv_bytes_share", 0.5}};
}

TEST(RunReport, SetsManyMethodsSideBySide) {
  nlohmann::json summary = {{"evaluations", nlohmann::json::array()}};
  auto& rows = summary["evaluations"];
  rows.push_back(summaryRow("dense", "dense", 0, 0.93));
  for (int budget : {8, 256}) {
    rows.push_back(
        summaryRow("bernoulli featureSamples=4 values=s2anta-sys", "uniform", budget, 0.5));
    rows.push_back(summaryRow("top-k", "uniform", budget, 0.25));
  }
  rows.push_back(summaryRow("vattention epsilon=0.1 delta=0.1", "adaptive", 0, 0.9));
  rows.push_back(summaryRow("top-k", "oneHot-03", 512, 0.75));
  summary["fidelity"] = {{{"method", "top-k"},
                          {"schedule", "uniform"},
                          {"reads_per_layer", 2.5},
                          {"relative_error", 0.125},
                          {"agreement", 0.5},
                          {"agreement_layers", "all-layers"},
                          {"density", 0.1}}};
  summary["variance_slopes"] = {{{"method", "santa"}, {"slope", -1.004}, {"measure", "fidelity"}},
                                {{"method", "santa"}, {"slope", -1.1}, {"measure", "variance"}}};
  const auto variance = [](const char* method, double value, double rows) {
    return nlohmann::json{{"method", method},
                          {"schedule", "uniform"},
                          {"reads_per_layer", 32},
                          {"variance", value},
                          {"unique_rows", rows}};
  };
  summary["variance"] = {variance("santa", 1.25, 11), variance("top-k", 0, 32)};
  EXPECT_EQ(reportText(summary), R"(
dense attention: accuracy 0.930  [0.930, 1.000]  n 480

  accuracy at total budget                      8       256
  bernoulli featureSamples=4 values=s2anta-sys  0.500   0.500
                                                ±0.250  ±0.250
  top-k                                         0.250   0.250
                                                ±0.375  ±0.375
  ± half of the 95 % interval; `allot top` shows its ends

  reads what it needs               accuracy  95 % interval   n    KV bytes
  vattention epsilon=0.1 delta=0.1  0.900     [0.900, 1.000]  480  50.0 %

top-k  oneHot-03  512              0.750  [0.750, 1.000]  n 480

  relative error at S a layer  2.5
  top-k                        0.1250

  next token as dense at S  2.5
  top-k                     50.0 %

santa: squared error falls as S to the power -1.00

  variance at S a layer  32
  santa                  1.25
  top-k                  0

  different rows a head at S  32
  santa                       11
  top-k                       32

santa: variance falls as S to the power -1.10
)");
  summary["fidelity"][0]["agreement_layers"] = "last-layer";
  EXPECT_THAT(reportText(summary), HasSubstr("  next token as dense, last-layer, at S  2.5\n"));
  // With a learned schedule, or one method alone, uniform and learned stand side by side.
  rows.push_back(summaryRow("top-k", "learned", 8, 0.6));
  EXPECT_THAT(reportText(summary), HasSubstr("top-k, total budget"));
  EXPECT_EQ(reportText({{"evaluations", nlohmann::json::array()}}), "");
}

nlohmann::json pairedRow(double mean, double half) {
  return {{"mean", mean}, {"ci95", {mean - half, mean + half}}, {"questions", 480}};
}

TEST(RunReport, SaysWhoDiffersOnTheSameQuestions) {
  nlohmann::json summary = {{"evaluations", nlohmann::json::array()}};
  auto& rows = summary["evaluations"];
  rows.push_back(summaryRow("dense", "dense", 0, 0.93));
  for (const auto& [schedule, accuracy] : {std::pair{"uniform", 0.5}, {"learned", 0.625}}) {
    rows.push_back(summaryRow("santa", schedule, 8, accuracy));
    rows.back()["repeats"] = 3;
    rows.back()["over_dense"] = pairedRow(accuracy - 0.93, 0.05);
  }
  rows.back()["over_uniform"] = pairedRow(0.125, 0.25);
  rows.push_back(summaryRow("santa", "learned", 16, 0.9375));
  rows.back()["over_uniform"] = nullptr;
  rows.push_back(summaryRow("santa", "oneHot-03", 8, 0.75));
  rows.back()["over_uniform"] = pairedRow(0.25, 0.125);
  rows.back()["over_dense"] = pairedRow(-0.125, 0.25);
  EXPECT_EQ(reportText(summary), R"(
dense attention: accuracy 0.930  [0.930, 1.000]  n 480

santa, total budget      uniform (95 % interval)            learned (95 % interval)
8                        0.500  [0.500, 1.000]  n 480 x 3   0.625  [0.625, 1.000]  n 480 x 3
16                       -                                  0.938  [0.938, 1.000]  n 480

on the same questions    learned - uniform         uniform - dense           learned - dense
8                        not distinguishable       -0.430 [-0.480, -0.380]   -0.305 [-0.355, -0.255]
16                       -                         -                         -

santa  oneHot-03  8                0.750  [0.750, 1.000]  n 480  against uniform +0.250 [+0.125, +0.375], dense not distinguishable
)");
  // A sweep, and methods that read what they need.
  nlohmann::json sweep = {{"evaluations", nlohmann::json::array()}};
  for (const char* method : {"santa", "top-k"}) {
    sweep["evaluations"].push_back(summaryRow(method, "uniform", 8, 0.5));
    sweep["evaluations"].back()["over_dense"] = pairedRow(method[0] == 's' ? -0.25 : 0.0625, 0.125);
  }
  sweep["evaluations"].push_back(summaryRow("vattention", "adaptive", 0, 0.9));
  sweep["evaluations"].back()["over_dense"] = pairedRow(-0.03125, 0.125);
  const std::string text = reportText(sweep);
  EXPECT_THAT(text, HasSubstr(R"(
  above dense, same questions  8
  santa                        -0.250
                               ±0.125
  top-k                        +0.062 ~
                               ±0.125
  ~ not distinguishable from dense: the 95 % interval of the difference holds 0
)"));
  EXPECT_THAT(text, HasSubstr("480  50.0 %    not distinguishable"));
  EXPECT_THAT(text, Not(HasSubstr("Holm")));
  // Of 40 comparisons one differs.
  auto& swept = sweep["evaluations"];
  for (auto& row : swept) {
    row["interval"] = "wilson";
    row["over_dense"]["interval"] = "bootstrap";
    row["over_dense"]["holm"] = {{"p", 0.04}, {"family", 40}, {"differs", row == swept[0]}};
  }
  const std::string marked = reportText(sweep);
  EXPECT_THAT(marked, HasSubstr("  santa                        -0.250 *\n"));
  EXPECT_THAT(marked, HasSubstr("+0.062 ~\n"));
  EXPECT_THAT(
      marked,
      HasSubstr("\n95 % intervals: wilson; of differences: bootstrap\n"
                "* differs also by Holm's rule, which asks all comparisons at once: 40 with "
                "dense\n"));
}

TEST(RunReport, ASweepThatLearnsNothingSaysNothingOfLearning) {
  EXPECT_EQ(endText({{"updates", 0}, {"episodes", 0}, {"wall_seconds", 207.0}}),
            "evaluated in 3 min 27 s");
  EXPECT_EQ(endText({{"updates", 150},
                     {"episodes", 1500},
                     {"wall_seconds", 131.0},
                     {"episodes_per_second", 38.5}}),
            "150 updates, 1500 episodes, 2 min 11 s, 38.5 episodes/s while learning");
  EXPECT_EQ(endText({{"updates", 2},
                     {"episodes", 8},
                     {"wall_seconds", 6.0},
                     {"episodes_per_second", nullptr}}),
            "2 updates, 8 episodes, 6 s");
}

TEST(MethodsText, HasAMeaningForEveryMethodAndEveryParameter) {
  const std::string text = methodsText();
  for (const kernels::MethodTraits& method : kernels::methodTable()) {
    EXPECT_NE(method.reads, "") << method.name;
    EXPECT_THAT(text, HasSubstr("  " + std::string(method.name) + "  "));
  }
  EXPECT_THAT(text, HasSubstr(kernels::methodParametersMarkdown()));
}

TEST(Tasks, EverySuiteTaskAndGraderIsThereWithItsMeaning) {
  const std::string text = tasksText();
  const nlohmann::json document = tasksJson();
  ASSERT_EQ(document["suites"].size(), suiteCatalogue().size());
  size_t s = 0;
  for (const SuiteInfo& suite : suiteCatalogue()) {
    const auto& shown = document["suites"][s++];
    EXPECT_EQ(shown["name"], suite.name);
    EXPECT_NE(text.find("suite " + std::string(suite.name) + ": "), std::string::npos);
    ASSERT_EQ(shown["tasks"].size(), suite.tasks.size());
    for (size_t i = 0; i < suite.tasks.size(); ++i) {
      EXPECT_EQ(shown["tasks"][i]["name"], suite.tasks[i].name);
      EXPECT_NE(text.find(suite.tasks[i].meaning), std::string::npos) << suite.tasks[i].name;
    }
  }
  for (const GraderInfo& grader : graderCatalogue()) {
    EXPECT_NE(text.find(grader.meaning), std::string::npos) << grader.name;
  }
  EXPECT_EQ(document["graders"].size(), graderCatalogue().size());
}

}  // namespace
}  // namespace allot
