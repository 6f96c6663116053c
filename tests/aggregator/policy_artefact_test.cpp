// policy.json and the folder for a model hub, which a YAML parser reads.
#include "aggregator/report/policy_artefact.h"

#include <yaml-cpp/yaml.h>

#include <sstream>

#include "aggregator/page/publication_text.h"
#include "aggregator/report/report.h"
#include "aggregator/report/report_tables.h"
#include "core/learning/measured.h"
#include "core/learning/update.h"
#include "tests/core/planted_run.h"
#include "tests/results.h"
#include "tests/temp_folder.h"

namespace allot {
namespace {

using nlohmann::json;

// A complete cell of 480 questions, half of them right.
EvaluationCell halfRight(const std::string& schedule, uint64_t version, uint64_t budget) {
  EvaluationCell cell;
  cell.version = version;
  cell.method = "dense";
  cell.schedule_name = schedule;
  cell.total_budget = budget;
  cell.all = {480, 240, {}, {0.4, 0.6, "wilson"}};
  cell.complete = true;
  return cell;
}

// A run of this model and task, whose learned schedule is as good as dense at 16 reads and not
// at 8.
RunSnapshot artefactSnapshot() {
  RunSnapshot snapshot;
  v1::Spec& spec = *snapshot.experiment.mutable_spec();
  spec.set_seed(7);
  spec.mutable_model()->set_path("/cache/models--Some--Model-1B/snapshots/0a1b");
  spec.mutable_task()->set_suite("recall");
  spec.mutable_task()->set_held_out_questions(480);
  spec.mutable_attention()->set_decode("s2anta-sys");
  spec.mutable_attention()->set_prefill("dense");
  spec.mutable_attention()->set_protocol("B");
  spec.mutable_policy()->set_total_budget(8);
  v1::ModelFacts facts;
  facts.set_layers(8);
  facts.set_heads(8);
  facts.set_kv_heads(4);
  facts.set_weights_sha256("abc123");
  facts.set_dataset_sha256("def456");
  snapshot.model = facts;
  EvaluationCell dense = halfRight("dense", 0, 0), uniform = halfRight("uniform", 0, 8),
                 fewer = halfRight("learned", 3, 8), more = halfRight("learned", 3, 16);
  for (EvaluationCell* cell : {&uniform, &fewer, &more}) cell->method = "s2anta|sys";
  fewer.over_dense = {-0.05, {-0.08, -0.02, "bootstrap"}, 480};
  fewer.over_dense->lower95 = -0.0712;
  more.over_dense = {0.0, {-0.02, 0.02, "bootstrap"}, 480};
  more.over_dense->lower95 = -0.015;
  snapshot.cells = {dense, uniform, fewer, more};
  return snapshot;
}

TEST(PolicyArtefact, APolicySaysWhatItWasMadeForAndHowWellItDid) {
  const RunView view = runView(artefactSnapshot(), 0, "01JGFJJZ005QXH2M4N6P7R8S9T");
  const json policy = policyJson(view);
  EXPECT_EQ(policy["model"]["name"], "Some/Model-1B");
  EXPECT_EQ(policyJson(view).dump().find("/cache/"), std::string::npos);  // nobody else's
  EXPECT_EQ(policy["model"]["weights_sha256"], "abc123");
  EXPECT_EQ(policy["model"]["layers"], 8);
  EXPECT_EQ(policy["model"]["kv_heads"], 4);
  EXPECT_EQ(policy["method"], (json{{"decode", "s2anta-sys"},
                                    {"prefill", "dense"},
                                    {"protocol", "B"},
                                    {"zero_reads", "off"}}));
  EXPECT_EQ(policy["task"]["suite"], "recall");
  EXPECT_EQ(policy["task"]["seed"], 7);
  EXPECT_EQ(policy["task"]["dataset_sha256"], "def456");
  EXPECT_EQ(policy["rivals"], (json{"dense", "uniform"}));
  ASSERT_EQ(policy["cells"].size(), 4u);
  for (const json& cell : policy["cells"]) {
    EXPECT_EQ(cell["n"], 480);
    EXPECT_EQ(cell["ci95"].size(), 2u);
    EXPECT_TRUE(cell["interval"].is_string());
  }
  EXPECT_THAT(policy["written_by"].get<std::string>(), StartsWith("allot "));
  // What the report and the end of a run say of the margin.
  const json summary = summaryJson(view);
  EXPECT_EQ(summary["margin"], 0.02);
  EXPECT_THAT(summary["as_good_as_dense"], Contains(json{{"method", "s2anta|sys"},
                                                         {"schedule", "learned"},
                                                         {"total_budget", 16},
                                                         {"stopped_at", 8},
                                                         {"compared", true}}));
  EXPECT_THAT(figuresHtml(view), HasSubstr("As good as dense to within 2 points"));
}

TEST(PolicyArtefact, AModelHubReadsTheFolderOfAPolicy) {
  const TempFolder folder;
  RunView view = runView(artefactSnapshot(), 0, "01JGFJJZ005QXH2M4N6P7R8S9T");
  const std::string hub = folder.path() + "/hub";
  EXPECT_THAT(messageOf(writeHubFolder(hub, view, "")), HasSubstr("no learned schedule yet"));
  view.facts["updates"] = 3;
  view.facts["learned_schedule"] = {0, 3, 0, 0, 2, 2, 1, 0};
  ASSERT_TRUE(writeHubFolder(hub, view, ""));
  ASSERT_TRUE(writeHubFolder(hub, view, "Other/Name: \"x\""));  // again, over its own files
  EXPECT_EQ(json::parse(readFile(hub + "/policy.json")), policyJson(view));
  const auto front = [](const std::string& card) {
    EXPECT_THAT(card, StartsWith("---\n"));
    return YAML::Load(card.substr(4, card.find("\n---\n") - 4));
  };
  const std::string card = readFile(hub + "/README.md");
  EXPECT_EQ(front(card)["base_model"].as<std::string>(), "Other/Name: \"x\"");
  EXPECT_EQ(front(card)["library_name"].as<std::string>(), "allot");
  EXPECT_THAT(front(card)["tags"].as<std::vector<std::string>>(), Contains("kv-cache"));
  EXPECT_FALSE(front(card)["license"]);
  EXPECT_EQ(front(hubCard(view, ""))["base_model"].as<std::string>(), "Some/Model-1B");
  view.made_for["model"]["name"] = "local";
  EXPECT_FALSE(front(hubCard(view, ""))["base_model"]);
  // One row a cell, each with as many columns as the head has.
  EXPECT_THAT(card, HasSubstr("| s2anta\\|sys | learned | 8 | "));
  EXPECT_THAT(card, HasSubstr(" | worse by at most 7.2 points | "));
  EXPECT_THAT(card, HasSubstr(" | as good to within 2 points | "));
  EXPECT_THAT(card, HasSubstr("SHA-256 of its weights abc123"));
  std::istringstream lines(card);
  size_t rows = 0;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("| ")) continue;
    ++rows;
    size_t bars = 0;
    for (size_t i = 0; i < line.size(); ++i) {
      bars += line[i] == '|' && (i == 0 || line[i - 1] != '\\');
    }
    EXPECT_EQ(bars, 10u) << line;
  }
  EXPECT_EQ(rows, 6u);
  // What is known of each schedule, if the learner makes claims.
  EXPECT_THAT(card, Not(HasSubstr("## Published")));
  view.facts["frontier"] = {{{"total_budget", 8},
                             {"rival", "uniform"},
                             {"published", "measured"},
                             {"beats_uniform", false},
                             {"claim", nullptr}}};
  EXPECT_THAT(
      hubCard(view, ""),
      HasSubstr("\n- 8: measured: the best guess, not confirmed to be better than uniform\n"));
  folder.write("hub/run.json", "{}");
  EXPECT_THAT(messageOf(writeHubFolder(hub, view, "")), HasSubstr("run.json is in it"));
}

// Report, `allot top`, `allot status` and hub say of each schedule what is known.
TEST(PublicationText, SaysWhatIsConfirmedAndWhatIsAGuess) {
  RunSnapshot snapshot = artefactSnapshot();
  snapshot.experiment = experimentOf("{totalBudgets: [8, 16, 32]}", "{learner: additive}");
  const v1::Spec& spec = snapshot.experiment.spec();
  snapshot.state = initialState(snapshot.experiment, 8);
  *snapshot.state.mutable_measurement() = measurementOfLayers(8, plantedLoss, 3);
  auto& budgets = *snapshot.state.mutable_policy()->mutable_frontier()->mutable_budgets();
  budgets[0].set_beats_uniform(true);
  v1::Claim& claim = *budgets[0].mutable_claim();
  claim.set_mean(0.326);
  claim.set_low(0.245);
  claim.set_questions(728);
  const auto guess = *measuredSchedule(snapshot.state, 32, 0);
  *budgets[2].mutable_learned() = {guess.begin(), guess.end()};
  json frontier = runView(snapshot, 0, "01JGFJJZ005QXH2M4N6P7R8S9T").facts["frontier"];
  EXPECT_EQ(frontier, frontierView(spec, snapshot.state));
  std::vector<std::string> published, texts;
  for (const json& row : frontier) {
    published.push_back(row["published"]);
    texts.push_back(publicationText(row));
    EXPECT_EQ(row["beats_uniform"], row["published"] == "learned");
  }
  EXPECT_THAT(published, ElementsAre("learned", "uniform", "measured"));
  v1::AggregatorState other = snapshot.state;
  uint32_t& reads =
      *(*other.mutable_policy()->mutable_frontier()->mutable_budgets(2)).mutable_learned()->begin();
  ++reads;
  EXPECT_EQ(frontierView(spec, other)[2]["published"], nullptr);
  EXPECT_EQ(frontier[2]["learned_schedule"], json(guess));
  EXPECT_THAT(texts,
              ElementsAre("better than uniform by 0.326, at least 0.245, on 728 fresh questions",
                          "uniform: no other is known to be better",
                          "measured: the best guess, not confirmed to be better than uniform"));
  EXPECT_EQ(publicationsText(frontier, ""),
            "at 8: confirmed to be better than uniform; at 16: uniform, no other is known to be "
            "better; at 32: measured, the best guess, not confirmed to be better than uniform");
  // With a price.
  frontier[2]["rival_price_share"] = 0.1875;
  EXPECT_THAT(publicationText(frontier[2]), EndsWith("to be better than uniform (18.75 %)"));
  frontier[2]["rival"] = frontier[2]["published"] = "measured";
  EXPECT_EQ(publicationText(frontier[2]), "measured (18.75 %): no other is known to be better");
  frontier[2]["rival"] = frontier[2]["published"] = nullptr;
  EXPECT_EQ(publicationText(frontier[2]), "no layer is measured yet");
  // A learner that claims nothing, and a run by an earlier build.
  EXPECT_EQ(publicationText({{"total_budget", 8}, {"beats_uniform", nullptr}}), "");
  EXPECT_EQ(publicationsText(json::array(), ""), "");
  EXPECT_EQ(publicationText({{"total_budget", 8}, {"beats_uniform", false}}),
            "uniform: no other is known to be better");
}

}  // namespace
}  // namespace allot
