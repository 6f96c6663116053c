// Every experiment in experiments/, as a user runs it, with few and short questions: what is tested
// is that each runs whole and what it leaves behind, not how well anything answers.
#include <map>
#include <set>

#include "tests/e2e/programs.h"

namespace allot {
namespace {

const std::string kExperiments = std::string(ALLOT_SOURCE_DIR) + "/experiments";

std::vector<std::string> sweeps() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(kExperiments)) {
    const std::string name = entry.path().filename();
    // Three of them learn; run_test has that. The others are for models that are not here.
    if (fs::exists(entry.path() / "experiment.yaml") && name.starts_with("recall-") &&
        name != "recall-layer-budget" && name != "recall-frontier" && name != "recall-priced") {
      names.push_back(name);
    }
  }
  return names;
}

class Experiments : public FolderTest {
 protected:
  json run(const std::string& name, std::vector<std::string> settings) {
    std::vector<std::string> arguments{
        "run", kExperiments + "/" + name + "/experiment.yaml", "--dir", dir(name), "--kv-memory",
        "512"};
    for (std::string& setting : settings) {
      arguments.insert(arguments.end(), {"--set", std::move(setting)});
    }
    const auto output = capture({kAllot, arguments, {}});
    EXPECT_TRUE(output);
    if (!output) return {};
    EXPECT_EQ(output->status, 0) << output->err;
    return json::parse(readFile(dir(name) + "/summary.json"), nullptr, false);
  }
};

TEST_F(Experiments, EachRunsWholeAndLeavesItsReport) {
  const std::set<std::string> all = {
      "recall-budget-sweep",  "recall-one-hot",      "recall-fidelity",
      "recall-variance",      "recall-bernoulli",    "recall-vattention",
      "recall-prefill",       "recall-sale",         "recall-prefill-sampling",
      "recall-prefill-bytes", "recall-prefill-rows", "recall-shared-draws",
      "recall-shared-rivals",
  };
  const auto names = sweeps();
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()), all);
  for (const std::string& name : names) {
    SCOPED_TRACE(name);
    const json summary = run(name, {"spec.task.heldOutQuestions=8", "spec.task.contextTokens=256"});
    ASSERT_TRUE(summary.is_object());
    const bool fidelity = !summary["fidelity"].empty();
    const bool variance = !summary["variance"].empty();
    EXPECT_EQ(variance, name == "recall-variance");
    EXPECT_TRUE(fidelity || !summary["evaluations"].empty());
    for (const json& row : summary["evaluations"]) {
      SCOPED_TRACE(row["method"].get<std::string>());
      EXPECT_EQ(row["n"], 8);
      EXPECT_LE(row["ci95"][0], row["accuracy"]);
      EXPECT_LE(row["accuracy"], row["ci95"][1]);
      EXPECT_GT(row["kv_bytes_share"], 0);
      uint64_t asked = 0;
      for (const json& task : row["tasks"]) asked += task["n"].get<uint64_t>();
      EXPECT_EQ(asked, 8u);
    }
    for (const json& row : summary["fidelity"]) {
      SCOPED_TRACE(row["method"].get<std::string>());
      EXPECT_GT(row["states"], 0);
      EXPECT_GE(row["relative_error"], 0);
      EXPECT_LE(row["agreement"], 1);
    }
    for (const json& row : summary["variance"]) {
      SCOPED_TRACE(row["method"].get<std::string>());
      EXPECT_EQ(row["replicates"], 16);
      EXPECT_EQ(row["positions"], 8 * 8 * 8);
      EXPECT_GE(row["squared_error"].get<double>() * 16, row["variance"].get<double>() * 15);
      const bool closed = row["method"] == "santa" || row["method"] == "s2anta-strat";
      EXPECT_EQ(row["closed_form"].is_number(), closed);
    }
    EXPECT_THAT(readFile(dir(name) + "/report.html"), HasSubstr("<svg"));
    EXPECT_THAT(readFile(dir(name) + "/curve.csv"), HasSubstr("method,schedule,total_budget"));
    EXPECT_EQ(fs::exists(dir(name) + "/fidelity.csv"), fidelity);
    EXPECT_EQ(fs::exists(dir(name) + "/variance.csv"), variance);
    EXPECT_THAT(readFile(kExperiments + "/" + name + "/README.md"), HasSubstr("allot run"));
  }
}

// What the sweep is about, at a size that shows it: the commonest words need the tail of the
// distribution, which top-k drops (SANTA paper, Appendix H), and independent draws waste reads.
// Everything follows from the seed, so there is no false alarm; the gaps are from 96 questions.
TEST_F(Experiments, FreqPutsTopKBehindSystematicAndIndependentDrawsBehindBoth) {
  const json summary =
      run("recall-budget-sweep", {"spec.task.tasks=[freq]", "spec.task.heldOutQuestions=96",
                                  "spec.evaluation.methods=[santa, s2anta-sys, top-k]",
                                  "spec.evaluation.budgets=[64, 128]"});
  ASSERT_TRUE(summary.is_object());
  std::map<std::pair<std::string, int>, double> accuracy;
  for (const json& row : summary["evaluations"]) {
    accuracy[{row["method"], row["total_budget"]}] = row["accuracy"];
    std::printf("%-12s %4d %.3f\n", row["method"].get<std::string>().c_str(),
                row["total_budget"].get<int>(), row["accuracy"].get<double>());
  }
  EXPECT_GT((accuracy[{"s2anta-sys", 128}]), (accuracy[{"top-k", 128}]) + 0.03);
  EXPECT_GT((accuracy[{"s2anta-sys", 64}]), (accuracy[{"santa", 64}]));
}

// The same questions three times with other draws; who differs is said by the same questions.
TEST_F(Experiments, ASweepWithRepeatsSaysWhoDiffersOnTheSameQuestions) {
  const std::vector<std::string> settings = {
      "spec.task.heldOutQuestions=40", "spec.task.contextTokens=256",
      "spec.evaluation.methods=[dense, s2anta-sys, top-k]", "spec.evaluation.budgets=[8, 128]"};
  const json once = run("recall-budget-sweep", settings);
  fs::rename(dir("recall-budget-sweep"), dir("once"));
  std::vector<std::string> repeated = settings;
  repeated.emplace_back("spec.evaluation.repeats=3");
  const json summary = run("recall-budget-sweep", repeated);
  ASSERT_EQ(summary["evaluations"].size(), 5u);
  std::map<std::pair<std::string, int>, json> rows;
  for (const json& row : summary["evaluations"]) rows[{row["method"], row["total_budget"]}] = row;
  for (const auto& [name, row] : rows) {
    const bool draws = name.first == "s2anta-sys";
    EXPECT_EQ(row["repeats"], draws ? 3 : 1);
    EXPECT_EQ(row["n"], 40);
    EXPECT_EQ(row["repeat_sd"].is_number(), draws);
    EXPECT_GE(row["answer_tokens"], 1);
    EXPECT_GT(row["prompt_tokens"], 128);
    EXPECT_EQ(row["over_dense"].is_null(), name.first == "dense");
  }
  const auto few = rows.at({"s2anta-sys", 8})["over_dense"];
  EXPECT_LT(few["ci95"][1], 0);
  EXPECT_EQ(few["questions"], 40);
  EXPECT_NEAR(few["mean"].get<double>(),
              rows.at({"s2anta-sys", 8})["accuracy"].get<double>() -
                  rows.at({"dense", 0})["accuracy"].get<double>(),
              1e-6);
  EXPECT_GT(rows.at({"s2anta-sys", 128})["over_dense"]["ci95"][1], 0);
  // The first repeat is the run without any: its units have the same scores.
  const auto unitsIn = [&](const std::string& folder) {
    std::ifstream lines(folder + "/evaluations.jsonl");
    std::map<std::string, json> units;
    for (std::string line; std::getline(lines, line);) {
      const json result = json::parse(line);
      units[result["unit"]["unit_id"]] = result["scores"];
    }
    return units;
  };
  const auto alone = unitsIn(dir("once")), all = unitsIn(dir("recall-budget-sweep"));
  EXPECT_EQ(alone.size(), 5u * 2);  // two chunks
  EXPECT_EQ(all.size(), 3u * 2 + 2u * 2 * 3);
  for (const auto& [unit, answers] : alone) EXPECT_EQ(all.at(unit), answers) << unit;
  EXPECT_NE(all.at("v000000/c0000/s2anta-sys/uniform/8/repeat-01"),
            all.at("v000000/c0000/s2anta-sys/uniform/8"));
  // It verifies, and what is imported of it says the same.
  const auto verified = valueOf(capture({kAllot, {"verify", dir("recall-budget-sweep")}, {}}));
  EXPECT_EQ(verified.status, 0) << verified.err;
  const auto imported =
      valueOf(capture({kAllot, {"import", dir("recall-budget-sweep"), "--dir", dir("again")}, {}}));
  EXPECT_EQ(imported.status, 0) << imported.err;
  std::set<std::string> tops;
  for (const char* folder : {"recall-budget-sweep", "again"}) {
    const auto top = valueOf(capture({kAllot, {"top", dir(folder), "--json"}, {}}));
    EXPECT_EQ(top.status, 0) << top.err;
    tops.insert(top.out);
  }
  ASSERT_EQ(tops.size(), 1u);
  for (const json& row : json::parse(*tops.begin())["budgets"][0]["schedules"]) {
    const json& told = rows.at({row["method"], 8});
    EXPECT_EQ(row["repeats"], told["repeats"]);
    EXPECT_EQ(row["over_dense_ci95"], told["over_dense"]["ci95"]);
    EXPECT_EQ(row["over_best"].is_null(), row["over_best_ci95"].is_null());
  }
}

}  // namespace
}  // namespace allot
