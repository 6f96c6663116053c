// What commands print for programs: the names of fields are an interface.
#include <functional>
#include <map>
#include <set>
#include <sstream>

#include "cli/explain.h"
#include "cli/leaderboard.h"
#include "cli/prediction_comparison.h"
#include "cli/preflight.h"
#include "cli/question_view.h"
#include "cli/run_list.h"
#include "cli/run_report.h"
#include "cli/run_status.h"
#include "cli/terminal.h"
#include "cli/wait.h"
#include "core/spec/spec.h"
#include "core/spec/spec_yaml.h"
#include "store/store_room.h"
#include "tests/readme.h"
#include "tests/results.h"

namespace allot {
namespace {

using nlohmann::json;

v1::Experiment plantedExperiment() {
  return valueOf(parseExperiment(
      "apiVersion: allot.dev/v1alpha1\nkind: Experiment\nmetadata: {name: sums}\nspec:\n"
      "  model: {path: m}\n"
      "  task: {suite: recall, tasks: [niah, freq], trainQuestions: 32, heldOutQuestions: 40}\n"
      "  policy: {totalBudget: 8}\n"
      "  update: {maxUpdates: 50, episodesPerUpdate: 4}\n"
      "  evaluation: {everyUpdates: 20, budgets: [8, 16], methods: [dense, s2anta-sys],"
      " schedules: [uniform, learned, oneHot]}\n",
      "sums.yaml"));
}

RunStatus plantedStatus() {
  RunStatus status;
  status.kind = RunAccess::Kind::kRemote;
  status.head.run_id = "01M872E91DF7TA5D59YA6CCEVP";
  status.head.image.spec.experiment = plantedExperiment();
  status.head.image.control.experiment = plantedExperiment();
  status.head.image.state.emplace();
  for (int i = 0; i < 11; ++i) status.head.image.state->add_lag_counts(100 - i);
  status.head.refused["stale"] = 1;
  status.lease = {.held = true, .holder = "aggregator-1"};
  status.aggregator.emplace();
  status.aggregator->set_phase("running");
  status.workers.emplace_back().set_worker("worker-1");
  status.refusals.push_back({});
  EvaluationCell learned;
  learned.method = "s2anta-sys";
  learned.schedule_name = "learned";
  learned.total_budget = 8;
  learned.complete = true;
  learned.all.n = 40;
  status.cells = {learned};
  status.tickets_reached = 20;
  for (UpdateMeans* means : {&status.first, &status.last}) means->updates = 1;
  return status;
}

Preflight plantedPreflight() {
  Preflight preflight;
  preflight.experiment = plantedExperiment();
  preflight.facts = {{"architecture", "LlamaForCausalLM"},
                     {"layers", 4},
                     {"heads", 4},
                     {"kv_heads", 2},
                     {"parameters", 6'820'096},
                     {"longest_prompt", 128},
                     {"weights_bytes", 54'543'360},
                     {"least_kv_bytes", 720'896},
                     {"model_folder", "m"},
                     {"end_tokens", {"</s>"}},
                     {"device", "cpu"}};
  preflight.sizes = {.workers = 2, .kv_mib = 100};
  return preflight;
}

json plantedLeaderboard() {
  EvaluationCell cell;
  cell.method = "s2anta-sys";
  cell.schedule_name = "uniform";
  cell.total_budget = 8;
  EvaluationCell dense;
  dense.method = dense.schedule_name = "dense";
  return leaderboardJson(makeLeaderboard({cell, dense}, 0, {}, 0.02));
}

json plantedQuestion() {
  v1::EvaluationResult result;
  result.mutable_unit()->set_method("s2anta-sys");
  result.mutable_unit()->set_schedule_name("uniform");
  result.mutable_unit()->set_total_budget(8);
  result.add_scores()->set_question(3);
  v1::Answer& answer = *result.mutable_answers()->add_answers();
  answer.set_question(3);
  answer.set_text("17");
  answer.add_expected("18");
  answer.add_readings()->set_grader("exact");
  QuestionView view(plantedExperiment(), {.question = 3});
  view.add(result);
  return view.json();
}

json explained(const std::string& subject) {
  const auto told = explain(subject, 80, false);
  return told ? document(told->kind, told->fields) : json();
}

json plantedComparison() {
  const Predictions one = {
      {"q", {.id = "q", .score_sum = 1, .lines = 1, .answer = "a", .task = "", .filter = ""}}};
  return comparisonJson(*comparePredictions(one, one), 0.02);
}

std::vector<json> everyDocument() {
  const RunRow row{"runs/a", "sums", "01M872E91DF7TA5D59YA6CCEVP", "finished", 4, 4, 0.5, 1, 2};
  return {document("Status", statusJson(plantedStatus())),
          document("Leaderboard", plantedLeaderboard()),
          document("Question", plantedQuestion()),
          document("RunList", runListJson({row}, 1)),
          document("Wait", waitJson("finished", {}, plantedStatus())),
          document("Check", preflightJson(plantedPreflight(), "sums.yaml")),
          document("Verification", verificationJson({})),
          document("Export", exportJson({}, "out")),
          document("Comparison", plantedComparison()),
          explained(""),
          explained("spec"),
          explained("methods"),
          explained("models"),
          explained("tasks"),
          explained("metrics")};
}

// What a field is and has been seen as. Of a list the entries count.
struct Field {
  std::set<std::string> types;
  std::string example;
};

std::string typeOf(const json& value) {
  if (value.is_number_integer()) return "integer";
  return value.type_name();
}

// "workers[].worker"
void addFields(const json& value, const std::string& path, std::map<std::string, Field>* fields) {
  Field& field = (*fields)[path];
  field.types.insert(typeOf(value));
  if (value.is_object()) {
    for (const auto& [key, member] : value.items()) {
      addFields(member, path.empty() ? key : path + "." + key, fields);
    }
  } else if (value.is_array()) {
    for (const json& element : value) addFields(element, path + "[]", fields);
  } else if (field.example.empty() && !value.is_null() && value != json("")) {
    field.example = value.dump();
  }
}

std::string exampleText(const std::string& example) {
  constexpr size_t kLongest = 48;
  if (example.empty()) return "";
  std::string text = example.size() > kLongest ? example.substr(0, kLongest) + "..." : example;
  for (char& c : text) {
    if (c == '|' || c == '`') c = ' ';
  }
  return "`" + text + "`";
}

struct Kind {
  std::string name;
  std::vector<std::string> commands;
};
// In the order of the page. Every command that has -o json stands here.
const std::vector<Kind> kKinds = {
    {"Status", {"status"}},       {"Leaderboard", {"top"}},  {"Question", {"show question"}},
    {"RunList", {"list"}},        {"Wait", {"wait"}},        {"Check", {"check"}},
    {"Verification", {"verify"}}, {"Export", {"export"}},    {"Comparison", {"compare"}},
    {"Topics", {"explain"}},      {"SpecKeys", {"explain"}}, {"Methods", {"explain"}},
    {"Models", {"explain"}},      {"Tasks", {"explain"}},    {"Metrics", {"explain"}}};

std::string fieldsMarkdown() {
  std::map<std::string, std::map<std::string, Field>> kinds;
  for (const json& one : everyDocument()) {
    EXPECT_EQ(one["apiVersion"], "cli.allot.dev/v1");
    addFields(one, "", &kinds[one["kind"]]);
  }
  EXPECT_EQ(kinds.size(), kKinds.size());
  std::string text;
  for (const Kind& kind : kKinds) {
    text += "### " + kind.name + "\n\nOf `allot " + kind.commands.front() +
            " -o json`.\n\n| field | type | example |\n| --- | --- | --- |\n";
    for (const auto& [path, field] : kinds[kind.name]) {
      if (path.empty() || path == "apiVersion" || path == "kind") continue;
      std::string types;
      for (const std::string& type : field.types) types += (types.empty() ? "" : ", ") + type;
      const std::string example = exampleText(field.example);
      text +=
          "| `" + path + "` | " + types + " |" + (example.empty() ? "" : " " + example) + " |\n";
    }
    text += "\n";
  }
  return text;
}

TEST(Documents, FieldsAreThoseThatProgramsKnow) {
  const std::string page = readSource("docs/reference/output.md");
  const std::string now = fieldsMarkdown();
  // A field may be added, to this page too; one that goes or changes its name or type needs another
  // apiVersion.
  EXPECT_EQ(between(page, "<!-- fields: begin -->\n", "<!-- fields: end -->"), now)
      << "--- docs/reference/output.md, now:\n"
      << now << "---";
}

TEST(Documents, EveryCommandWithThemIsOnThePage) {
  std::set<std::string> on_page, all;
  for (const Kind& kind : kKinds) on_page.insert(kind.commands.begin(), kind.commands.end());
  std::istringstream commands(readSource("docs/reference/commands.md"));
  std::string command;
  for (std::string line; std::getline(commands, line);) {
    if (const size_t at = line.find("# allot "); line.starts_with("###") && at != line.npos) {
      command = line.substr(at + 8);
    }
    if (line.starts_with("- `-o,--output") && line.find("json") != std::string::npos) {
      all.insert(command);
    }
  }
  EXPECT_EQ(on_page, all);
}

TEST(Documents, YamlIsTheSameAsJson) {
  for (const json& one : everyDocument()) {
    const std::string yaml = documentText(one, OutputFormat::kYaml);
    EXPECT_THAT(yaml, HasSubstr("kind: \"" + one["kind"].get<std::string>() + "\"\n"));
    EXPECT_TRUE(parseYaml(yaml, "x")) << parseYaml(yaml, "x").error().message;
  }
  const json tricky = {{"a", "true"},      {"b", json::array()},  {"c", nullptr}, {"d", 0.5},
                       {"e", "1: #\n\"x"}, {"f", json::object()}, {"g", {1, 2}},  {"h", true}};
  EXPECT_EQ(documentText(tricky, OutputFormat::kYaml),
            "a: \"true\"\nb: []\nc: ~\nd: 0.5\ne: \"1: #\\n\\\"x\"\nf: {}\ng:\n  - 1\n  - 2\n"
            "h: true\n");
}

// Names come from strangers.
TEST(Documents, NothingInThemReachesATerminal) {
  const json hostile = {{"name", "a\x1b[2J\x7f\xc2\x9b\xf0\x9f\x98\x80\xff"}};
  for (const OutputFormat format : {OutputFormat::kJson, OutputFormat::kYaml}) {
    for (const char c : documentText(hostile, format)) {
      EXPECT_TRUE(c == '\n' || (c >= 0x20 && c < 0x7f)) << static_cast<int>(c);
    }
  }
}

TEST(Documents, WhatHasAnOrderIsAnArray) {
  const json counts = statusJson(plantedStatus())["lag_histogram"];
  ASSERT_TRUE(counts.is_array());
  EXPECT_EQ(counts[0], (json{{"lag", "0"}, {"results", 100}}));
  EXPECT_EQ(counts[3]["lag"], "3-4");
  EXPECT_EQ(counts[10]["results"], 90);
}

TEST(Check, SaysWhatWillRun) {
  const std::string text = preflightText(preflightJson(plantedPreflight(), "sums.yaml"), false);
  EXPECT_THAT(text, HasSubstr("model:     LlamaForCausalLM, 4 layers, 6.8 M parameters, m\n"));
  EXPECT_THAT(
      text,
      HasSubstr(
          "recall (niah, freq), 32 to learn from, 512 to confirm a schedule with, 40 held out"));
  EXPECT_THAT(text, HasSubstr("50 updates of 4 episodes with 16 questions"));
  EXPECT_THAT(text, HasSubstr("workers:   2\n"));
  // At the start dense, uniform and one layer after the other at two budgets; after updates 20, 40
  // and 50 the learned one.
  EXPECT_THAT(text,
              HasSubstr("accuracy  dense       dense                    1      40       1\n"));
  EXPECT_THAT(text,
              HasSubstr("accuracy  s2anta-sys  uniform   8, 16          2      80       1\n"));
  EXPECT_THAT(text,
              HasSubstr("accuracy  s2anta-sys  oneHot    8, 16          8      320      1\n"));
  EXPECT_THAT(text,
              HasSubstr("accuracy  s2anta-sys  learned   8, 16          2      80       3\n"));
  EXPECT_THAT(text, HasSubstr("evaluation: 680 answers"));
  EXPECT_THAT(text, Not(HasSubstr("warning")));
}

TEST(Check, NamesBudgetsWithoutUniformAndPricesOfMoreKeys) {
  const auto warnings = [](const std::string& budgets, const std::string& rest, uint32_t prompt) {
    Preflight preflight = plantedPreflight();
    preflight.facts["longest_prompt"] = prompt;
    preflight.experiment = valueOf(parseExperiment(
        "apiVersion: allot.dev/v1alpha1\nkind: Experiment\nmetadata: {name: sums}\nspec:\n"
        "  model: {path: m}\n"
        "  task: {suite: recall, tasks: [niah, freq], contextTokens: 512, trainQuestions: 32,"
        " confirmQuestions: 0, heldOutQuestions: 40}\n"
        "  policy: {price: bytes, totalBudgets: [" +
            budgets + "]}\n  attention: {decode: s2anta-q4}\n" + rest,
        "sums.yaml"));
    return preflightJson(preflight, "sums.yaml").at("warnings").get<std::vector<std::string>>();
  };
  const std::string learns = "  update: {learner: additive, maxUpdates: 2, episodesPerUpdate: 4}\n";
  const std::string measures =
      "  evaluation: {budgets: [10 %], methods: [dense, s2anta-q4], schedules: [uniform]}\n";
  EXPECT_THAT(
      warnings("10 %, 12 %, 30 %", learns, 400),
      ElementsAre(
          AllOf(StartsWith("spec.policy.totalBudgets: 10 %, 12 % buy no uniform schedule, "
                           "the least of which costs "),
                HasSubstr("and what is learned is compared with measured")),
          HasSubstr("so that the best guess, uniform or measured, is all that is published")));
  EXPECT_THAT(warnings("10 %, 12 %", learns, 400),
              Contains(HasSubstr("so that measured is all that is published")));
  EXPECT_THAT(warnings("30 %", learns, 400),
              ElementsAre(HasSubstr(
                  "so that the best guess, uniform or measured, is all that is published")));
  EXPECT_THAT(warnings("10 %", measures, 400),
              ElementsAre(AllOf(HasSubstr("10 % buys no uniform schedule"),
                                EndsWith(": nothing is evaluated as uniform there"))));
  EXPECT_THAT(warnings("30 %", learns, 128),
              Contains("spec.task.contextTokens: prices are those of 512 keys, but the longest "
                       "prompt with its answer has 152: lower it to that, or shares are of bytes "
                       "that no prompt reads"));
}

TEST(Check, SaysWhatSharesOfTimeAre) {
  Preflight preflight = plantedPreflight();
  preflight.facts["longest_prompt"] = 128;  // times do not follow from contextTokens
  preflight.experiment = valueOf(
      parseExperiment("apiVersion: allot.dev/v1alpha1\nkind: Experiment\nmetadata: {name: sums}\n"
                      "spec:\n  model: {path: m}\n"
                      "  task: {suite: recall, tasks: [niah, freq], contextTokens: 512,"
                      " trainQuestions: 32, confirmQuestions: 640, heldOutQuestions: 40}\n"
                      "  policy: {price: time, stepTimes: \"dense 200, 8 20, 32 26\","
                      " totalBudgets: [20 %, 40 %]}\n"
                      "  attention: {decode: s2anta-q4}\n"
                      "  update: {maxUpdates: 2, episodesPerUpdate: 8}\n",
                      "sums.yaml"));
  const json checked = preflightJson(preflight, "sums.yaml");
  EXPECT_THAT(checked.at("warnings").get<std::vector<std::string>>(), IsEmpty());
  const std::string text = preflightText(checked, false);
  EXPECT_THAT(text, HasSubstr("at a total budget of 20 %, 40 % of dense attention's time\n"));
  EXPECT_THAT(text, HasSubstr("20 % of time, 40 % of time"));  // in the table
}

TEST(Check, WarnsOfWhatIsLawfulAndHardlyMeant) {
  const auto warnings = [](const std::function<void(v1::Spec*)>& change) {
    Preflight preflight = plantedPreflight();
    change(preflight.experiment.mutable_spec());
    return preflightJson(preflight, "sums.yaml").at("warnings").get<std::vector<std::string>>();
  };
  EXPECT_THAT(warnings([](v1::Spec*) {}), IsEmpty());
  // 4 layers; 128 tokens of prompt and 24 of answer, in 4 layers 608 rows.
  const uint32_t rows = 4 * (128 + plantedExperiment().spec().task().max_new_tokens());
  const auto measured = [&](uint32_t budget) {
    return warnings([&](v1::Spec* spec) { spec->mutable_evaluation()->set_budgets(1, budget); });
  };
  EXPECT_THAT(measured(4), IsEmpty());
  EXPECT_THAT(measured(rows), IsEmpty());
  EXPECT_THAT(measured(rows + 1),
              ElementsAre(StartsWith("spec.evaluation.budgets: " + std::to_string(rows + 1) +
                                     " reads over 4 layers are more than the ")));
  EXPECT_THAT(warnings([](v1::Spec* spec) { spec->mutable_policy()->set_total_budget(3); }),
              ElementsAre(StartsWith("spec.policy.totalBudget: 3 reads over 4 layers leave some")));
  const auto listed = [&](uint32_t samples) {
    return warnings([&](v1::Spec* spec) {
      v1::Schedule* schedule = spec->mutable_evaluation()->add_schedules();
      schedule->set_kind("explicit");
      for (const uint32_t of_layer : {0U, samples, 0U, 0U}) schedule->add_samples(of_layer);
    });
  };
  EXPECT_THAT(listed(rows / 4), IsEmpty());
  EXPECT_THAT(listed(rows / 4 + 1),
              ElementsAre(HasSubstr(std::to_string(rows / 4 + 1) + " reads in layer 1 are more")));
  // 16 questions for each of the total budgets.
  const auto confirmed = [&](uint32_t questions, std::vector<uint32_t> budgets) {
    return warnings([&](v1::Spec* spec) {
      spec->mutable_task()->set_confirm_questions(questions);
      for (const uint32_t budget : budgets) spec->mutable_policy()->add_total_budgets(budget);
    });
  };
  EXPECT_THAT(confirmed(16, {}), IsEmpty());
  EXPECT_THAT(confirmed(15, {}),
              ElementsAre("spec.task.confirmQuestions: 15 questions confirm no schedule, so that "
                          "uniform or, in a fork of a measured run, the best guess is all that "
                          "is published: set at least 16, "
                          "spec.rollout.questionsPerEpisode (16) for each total budget"));
  EXPECT_THAT(confirmed(32, {8, 16}), IsEmpty());
  EXPECT_THAT(confirmed(31, {8, 16}), ElementsAre(HasSubstr("set at least 32, ")));
  EXPECT_THAT(confirmed(0, {}), ElementsAre(HasSubstr(": 0 questions confirm no schedule")));
  EXPECT_THAT(warnings([](v1::Spec* spec) {
                spec->mutable_task()->set_confirm_questions(0);
                spec->mutable_update()->set_learner("santa");
              }),
              IsEmpty());
  // Every update is followed by 2 units: 200,000 updates are 391 MiB.
  EXPECT_THAT(warnings([](v1::Spec* spec) {
                spec->mutable_evaluation()->set_every_updates(1);
                spec->mutable_update()->set_max_updates(300'000);
              }),
              ElementsAre(AllOf(StartsWith("spec.evaluation: the grid's "),
                                HasSubstr("that of a cluster has 384 MiB"))));
  EXPECT_THAT(readSource("k8s/base/redis.yaml"),
              HasSubstr("maxmemory " + std::to_string(kClusterStoreBytes >> 20) + "mb"));
}

TEST(RunList, ShowsTheNewestFirst) {
  std::vector<RunRow> rows = {{.where = "runs/a",
                               .experiment = "x\x1b",
                               .run_id = "A",
                               .state = "finished",
                               .updates = 3,
                               .max_updates = 4,
                               .accuracy = 0.25,
                               .started_unix_ms = 1000,
                               .bytes = 3 << 20},
                              {.where = "runs/b",
                               .experiment = "y",
                               .run_id = "B",
                               .state = "running",
                               .updates = 0,
                               .max_updates = 0,
                               .accuracy = std::nullopt,
                               .started_unix_ms = 3'601'000,
                               .bytes = std::nullopt}};
  sortRows(&rows);
  EXPECT_EQ(runListText(rows, 7'201'000, false),
            "  experiment  run  state     updates  accuracy  age  size     where\n"
            "  y           B    running   -        -         1 h  -        runs/b\n"
            "  x?          A    finished  3/4      0.250     2 h  3.0 MiB  runs/a\n");
  const json runs = runListJson(rows, 1)["runs"];
  EXPECT_EQ(runs[0]["accuracy"], nullptr);
  EXPECT_EQ(runs[1]["bytes"], 3 << 20);
}

}  // namespace
}  // namespace allot
