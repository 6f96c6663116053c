// What `allot status` and `allot top` say.
#include "cli/leaderboard.h"
#include "cli/run_report.h"
#include "cli/run_status.h"
#include "tests/results.h"

namespace allot {
namespace {

class StatusTest : public testing::Test {
 protected:
  StatusTest() {
    status_.kind = RunAccess::Kind::kLive;
    status_.now_unix_ms = 1'000'000;
    status_.head.run_id = "RUN";
    auto& control = status_.head.image.control;
    control.experiment.mutable_spec()->mutable_update()->set_max_updates(9);
    status_.lease.held = true;
    status_.lease.holder = "aggregator-2";
    status_.aggregator.emplace();
    status_.aggregator->set_holder("aggregator-1");
    status_.aggregator->set_phase("running");
    status_.aggregator->set_unix_ms(999'000);
    worker("rollout");
  }
  void worker(const char* state) {
    auto& beat = status_.workers.emplace_back();
    beat.set_worker("w\x1b[2J");
    beat.set_state(state);
    beat.set_seen_unix_ms(998'000);
  }
  std::string why() const { return whyNotProgressing(status_); }
  Desired& desired() { return status_.head.image.control.desired; }

  RunStatus status_;
};

TEST_F(StatusTest, SaysHowFullTheStoreIs) {
  EXPECT_THAT(statusText(status_, false), Not(HasSubstr("store:")));
  status_.aggregator->set_store_used_bytes(300 << 20);
  status_.aggregator->set_store_limit_bytes(400 << 20);
  EXPECT_THAT(statusText(status_, false), HasSubstr("store:   300 of 400 MiB (75 %)\n"));
  status_.aggregator->set_updates_until_full(9);
  EXPECT_THAT(statusText(status_, false),
              HasSubstr("store:   300 of 400 MiB (75 %), full after about 9 more updates\n"));
  status_.aggregator->set_updates_until_full(8);  // of 9 that are to come
  EXPECT_THAT(statusText(status_, false), HasSubstr("room for about 8 of the 9 updates"));
  EXPECT_EQ(statusJson(status_)["updates_until_full"], 8);
}

TEST_F(StatusTest, SaysWhyNothingMoves) {
  EXPECT_EQ(why(), "");
  status_.aggregator->set_waiting("waiting for episodes: 3 of 10 are in");
  EXPECT_EQ(why(), "waiting for episodes: 3 of 10 are in");
  status_.workers[0].set_state("loading");
  EXPECT_EQ(why(), "1 worker still loading the model");
  status_.workers.clear();
  EXPECT_EQ(why(), "no worker is alive");
  status_.aggregator->set_unix_ms(900'000);
  EXPECT_EQ(why(), "the aggregator aggregator-1 was last heard of 1 min 40 s ago");
  status_.lease.held = false;
  EXPECT_EQ(why(), "no aggregator leads (last: aggregator-1, 1 min 40 s ago)");
  status_.aggregator.reset();
  EXPECT_EQ(why(), "no aggregator leads");
  desired() = Desired::kPaused;
  EXPECT_EQ(why(), "it is paused: allot resume");
  desired() = Desired::kStopped;
  EXPECT_EQ(why(), "it was stopped: allot resume");
  desired() = Desired::kFinished;
  EXPECT_EQ(why(), "");
  status_.kind = RunAccess::Kind::kEnded;
  status_.resume_command = "allot run --resume --dir x";
  EXPECT_EQ(why(), "");
  desired() = Desired::kRunning;
  EXPECT_EQ(why(), "nobody works on it: allot run --resume --dir x");
  status_.kind = RunAccess::Kind::kFiles;
  EXPECT_EQ(why(), "");
}

TEST_F(StatusTest, WarnsOfTicketsWithoutAResultBeyondThoseInHand) {
  EXPECT_THAT(statusText(status_, false), Not(HasSubstr("tickets:")));
  status_.head.image.state.emplace().set_episodes(500);
  status_.tickets_reached = 3857;
  EXPECT_THAT(statusText(status_, false),
              HasSubstr("tickets: 3357 of 3857 have no result that counts (87 %): workers that "
                        "answer only some of their tickets can decide what is learned"));
  // One worker of four at a time, and four results in the inbox.
  status_.head.image.control.experiment.mutable_spec()->mutable_rollout()->set_episodes_per_pull(4);
  status_.head.waiting_results = 4;
  status_.tickets_reached = 635;
  EXPECT_THAT(statusText(status_, false),
              HasSubstr("tickets: 135 of 635 have no result that counts (21 %)\n"));
  status_.tickets_reached = 636;
  EXPECT_THAT(statusText(status_, false), HasSubstr("no result that counts (21 %): workers"));
  status_.head.image.state->set_episodes(5);
  status_.tickets_reached = 99;
  EXPECT_THAT(statusText(status_, false),
              HasSubstr("94 of 99 have no result that counts (95 %)\n"));
  status_.head.image.spec.synchronous = true;
  EXPECT_THAT(statusText(status_, false), Not(HasSubstr("tickets:")));
}

TEST(VerificationText, CountsTicketsWithoutAResult) {
  VerifySummary summary;
  summary.head.image.state.emplace();
  summary.results = 500;
  summary.tickets_reached = 500;
  EXPECT_THAT(verificationText(summary), Not(HasSubstr("tickets:")));
  summary.tickets_reached = 501;
  EXPECT_THAT(verificationText(summary),
              HasSubstr("\ntickets: 1 of 501 have no result that counts (0 %)"));
  EXPECT_THAT(verificationText(summary), Not(HasSubstr("decide")));
  summary.tickets_reached = 3857;
  EXPECT_THAT(verificationText(summary),
              HasSubstr("3357 of 3857 have no result that counts (87 %): "
                        "workers that answer only some"));
  EXPECT_EQ(verificationJson(summary)["tickets"]["unanswered"], 3357);
}

TEST_F(StatusTest, ShowsLoadingAndFailedWorkersAndCountsThemApart) {
  status_.workers[0].set_state("loading");
  status_.workers[0].set_loaded_bytes(3'060'000'000);
  status_.workers[0].set_total_bytes(16'060'000'000);
  EXPECT_EQ(why(), "1 worker still loading the model (3.1 of 16.1 GB)");
  worker("failed");
  status_.workers[1].set_last_error("spec.model.path: there is no folder \x1bx");
  EXPECT_EQ(why(),
            "1 worker still loading the model (3.1 of 16.1 GB); the last one ended: "
            "spec.model.path: there is no folder ?x");
  const std::string text = statusText(status_, false);
  EXPECT_THAT(text, HasSubstr("workers: 1 alive, 1 ended with an error\n"));
  EXPECT_THAT(text, HasSubstr("loading 3.1 of 16.1 GB"));
  EXPECT_THAT(text, HasSubstr("there is no folder ?x"));
  const auto json = statusJson(status_);
  EXPECT_EQ(json["workers"][0]["loaded_bytes"], 3'060'000'000);
  EXPECT_EQ(json["workers"][1]["state"], "failed");
  worker("rollout");
  EXPECT_EQ(why(), "");  // one can work
  status_.workers.erase(status_.workers.begin());
  status_.workers.pop_back();
  EXPECT_THAT(why(), HasSubstr("no worker is alive; the last one ended: spec.model.path"));
}

// As in the middle of an upgrade.
TEST_F(StatusTest, NamesWorkersOfAnotherBuild) {
  EXPECT_THAT(statusText(status_, false), Not(HasSubstr("builds:")));  // nobody says any
  status_.aggregator->set_build("allot 2 (GNU 12)");
  status_.workers[0].set_build("allot 2 (GNU 12)");
  worker("rollout");
  status_.workers[1].set_build("allot 1\x1b (GNU 12)");
  worker("rollout");  // says none
  worker("failed");
  const std::string expected =
      "the aggregator is allot 2 (GNU 12); w?[2J: an unknown one; w?[2J: allot 1? (GNU 12)";
  EXPECT_THAT(statusText(status_, false), HasSubstr("builds:  " + expected + "\n"));
  const auto json = statusJson(status_);
  EXPECT_EQ(json["build"], "allot 2 (GNU 12)");
  EXPECT_EQ(json["other_builds"], expected);
  EXPECT_EQ(json["workers"][0]["build"], "allot 2 (GNU 12)");
  status_.head.image.spec.synchronous = true;
  EXPECT_THAT(statusText(status_, false), HasSubstr("(a synchronous run has the same bits again"));
  status_.workers.resize(1);
  EXPECT_THAT(statusText(status_, false), Not(HasSubstr("builds:")));
}

TEST_F(StatusTest, NeverHasMoreUpdatesThanItGoesOnTo) {
  auto& spec = *status_.head.image.control.experiment.mutable_spec();
  spec.mutable_update()->set_max_updates(3);
  EXPECT_EQ(status_.maxUpdates(), 3u);
  status_.head.image.state.emplace().mutable_policy()->set_version(150);
  EXPECT_THAT(statusText(status_, false), HasSubstr("updates: 150 of 150"));
  EXPECT_EQ(statusJson(status_)["max_updates"], 150);
}

TEST_F(StatusTest, ShowsWhatStrangersWroteHarmlessly) {
  status_.workers[0].set_last_error("a\nb");
  status_.refusals.push_back({"id\x1b", "invalid", "why\r"});
  status_.head.refused["invalid"] = 3;
  status_.aggregator->set_last_error("\x1b]0;x\x07");
  status_.aggregator->set_last_error_unix_ms(999'500);
  const std::string text = statusText(status_, false);
  EXPECT_EQ(text.find_first_of("\x1b\x07\r"), std::string::npos);
  EXPECT_THAT(text, HasSubstr("refused: invalid 3"));
  EXPECT_THAT(text, HasSubstr("id? (invalid): why?"));
  EXPECT_THAT(text, HasSubstr("2 s ago"));
  EXPECT_THAT(statusText(status_, true), HasSubstr("\033["));
  const auto json = statusJson(status_);
  EXPECT_EQ(json["state"], "running");
  EXPECT_EQ(json["refused"]["invalid"], 3);
  EXPECT_EQ(json["workers"][0]["last_error"], "a?b");
}

EvaluationCell cell(const char* name, uint64_t version, uint64_t budget, uint64_t n, double sum,
                    bool complete = true, const char* method = "s2anta-sys") {
  EvaluationCell c;
  c.version = version;
  c.method = method;
  c.schedule_name = name;
  c.total_budget = budget;
  c.schedule = {3, 5};
  c.all.n = n;
  c.all.sum = sum;
  c.all.interval = wilson95(sum, n);
  c.complete = complete;
  return c;
}

TEST(LeaderboardTest, RanksByAccuracyAtEqualBudget) {
  const Leaderboard board = makeLeaderboard(
      {cell("dense", 0, 0, 480, 447, true, "dense"), cell("uniform", 0, 8, 480, 166),
       cell("uniform", 0, 16, 480, 325), cell("oneHot-01", 0, 16, 480, 320),
       cell("learned", 25, 8, 480, 300), cell("learned", 50, 8, 480, 341),
       cell("learned", 75, 8, 32, 32, false), cell("learned", 75, 16, 32, 8, false)},
      0);
  ASSERT_EQ(board.dense.size(), 1u);
  ASSERT_EQ(board.blocks.size(), 2u);
  const auto& eight = board.blocks[0];
  EXPECT_EQ(eight.total_budget, 8u);
  ASSERT_EQ(eight.rows.size(), 2u);
  EXPECT_EQ(eight.rows[0].cell.schedule_name, "learned");
  EXPECT_EQ(eight.rows[0].cell.version, 50u);  // the newest complete one
  EXPECT_NEAR(eight.rows[0].over_uniform->mean, 175.0 / 480, 1e-12);
  EXPECT_FALSE(eight.rows[0].over_uniform->paired);  // nothing is known by question
  EXPECT_NEAR(eight.rows[0].over_dense->mean, -106.0 / 480, 1e-12);
  EXPECT_FALSE(eight.rows[0].like_best);
  EXPECT_FALSE(eight.rows[1].like_best);  // clearly worse
  EXPECT_FALSE(eight.rows[1].over_uniform);
  const auto& sixteen = board.blocks[1];
  ASSERT_EQ(sixteen.rows.size(), 3u);
  EXPECT_EQ(sixteen.rows[0].cell.schedule_name, "uniform");
  EXPECT_TRUE(sixteen.rows[1].like_best);
  EXPECT_EQ(sixteen.rows[2].cell.all.n, 32u);  // nothing complete: what there is
  const std::string text = leaderboardText(board, false);
  EXPECT_THAT(text, HasSubstr("dense attention: 0.931  [0.905, 0.951]  n 480"));
  EXPECT_THAT(text, HasSubstr("2 ~   oneHot-01"));
  EXPECT_THAT(text, HasSubstr("32 so far"));
  EXPECT_THAT(text, HasSubstr("these questions cannot tell it from rank 1"));
  EXPECT_THAT(text, Not(HasSubstr("s2anta-sys")));
  EXPECT_EQ(makeLeaderboard({cell("uniform", 0, 8, 480, 166)}, 16).blocks.size(), 0u);
  const auto json = leaderboardJson(board);
  EXPECT_EQ(json["price"], "reads");
  EXPECT_EQ(json["budgets"][0]["schedules"][0]["schedule"], "learned");
  EXPECT_EQ(json["budgets"][0]["schedules"][0]["interval"], "wilson");
  EXPECT_EQ(json["budgets"][0]["schedules"][0]["over_dense_interval"], nullptr);
  EXPECT_THAT(text, HasSubstr("\n95 % intervals: wilson\n"));
  EXPECT_THAT(text, Not(HasSubstr("Holm")));
}

// The families are those of the run, and a board of one budget does not make them smaller.
TEST(LeaderboardTest, MarksWhatStandsByHolmsRuleAndSaysAmongHowMany) {
  EvaluationCell learned = cell("learned", 9, 8, 480, 300),
                 other = cell("oneHot-00", 0, 8, 480, 250);
  learned.over_dense = {-0.25, {-0.3, -0.2, "bootstrap"}, 480, 1e-6, 4e-5, 40};
  learned.over_uniform = {0.125, {0.0625, 0.1875, "normal"}, 480, 0.01, 0.12, 12};
  other.over_dense = {-0.375, {-0.4, -0.35, "bootstrap"}, 480, 0.04, 0.2, 40};
  const Leaderboard board = makeLeaderboard(
      {cell("dense", 0, 0, 480, 420, true, "dense"), cell("uniform", 0, 8, 480, 240), other,
       learned, cell("uniform", 0, 16, 480, 240)},
      8);
  const std::string text = leaderboardText(board, false);
  EXPECT_THAT(text, HasSubstr("-0.250 [-0.300, -0.200] *"));
  EXPECT_THAT(text, HasSubstr("-0.375 [-0.400, -0.350]  "));
  EXPECT_THAT(text, HasSubstr("+0.125 [+0.062, +0.188]  "));
  EXPECT_THAT(text, HasSubstr("95 % intervals: wilson; of differences: bootstrap, normal\n"
                              "* differs also by Holm's rule, which asks all comparisons at once: "
                              "40 with dense, 12 with uniform\n"));
  const auto row = leaderboardJson(board)["budgets"][0]["schedules"][0];
  EXPECT_EQ(row["over_dense_interval"], "bootstrap");
  EXPECT_EQ(row["over_dense_p"], 1e-6);
  EXPECT_EQ(row["over_dense_holm"],
            (nlohmann::json{{"p", 4e-5}, {"family", 40}, {"differs", true}}));
  EXPECT_EQ(row["over_uniform_holm"]["differs"], false);
}

// Intervals that overlap say little of answers to the same questions; those of the difference do.
TEST(LeaderboardTest, WhoDiffersIsSaidByTheSameQuestions) {
  EvaluationCell learned = cell("learned", 9, 8, 1440, 790);
  learned.repeats = 3;
  learned.answer_tokens = 9360;
  const std::vector<EvaluationCell> cells = {cell("dense", 0, 0, 480, 300, true, "dense"),
                                             cell("uniform", 0, 8, 480, 240),
                                             cell("oneHot-00", 0, 8, 480, 238), learned};
  // Half of each difference on either side, but for oneHot-00.
  const auto difference = [](const EvaluationCell& a, const EvaluationCell& b) {
    const double mean = a.all.mean() - b.all.mean();
    const double half = a.schedule_name == "oneHot-00" ? 1 : std::abs(mean) / 2;
    return std::optional(PairedDifference{mean, {mean - half, mean + half}, 480});
  };
  const Leaderboard board = makeLeaderboard(cells, 8, difference);
  const auto& rows = board.blocks.at(0).rows;
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_GT(rows[1].interval.high, rows[0].interval.low);  // they overlap
  EXPECT_FALSE(rows[1].like_best);
  EXPECT_TRUE(rows[2].like_best);
  EXPECT_FALSE(rows[0].over_best);
  EXPECT_NEAR(rows[1].over_best->mean, 0.5 - 790.0 / 1440, 1e-12);
  const std::string text = leaderboardText(board, false);
  EXPECT_THAT(text, HasSubstr("480 x 3"));
  EXPECT_THAT(text, HasSubstr("  6.5 "));
  EXPECT_THAT(text, HasSubstr("+0.049 [+0.024, +0.073]"));  // over uniform
  EXPECT_THAT(text, HasSubstr("-0.125 [-0.188, -0.062]"));  // uniform over dense
  EXPECT_THAT(text, HasSubstr("3 ~   oneHot-00"));
  const auto json = leaderboardJson(board)["budgets"][0]["schedules"];
  EXPECT_EQ(json[0]["n"], 480);
  EXPECT_EQ(json[0]["repeats"], 3);
  EXPECT_EQ(json[0]["answer_tokens"], 6.5);
  EXPECT_EQ(json[0]["over_best"], nullptr);
  EXPECT_EQ(json[1]["over_dense"], -0.125);
  EXPECT_EQ(json[1]["over_dense_ci95"], (nlohmann::json{-0.1875, -0.0625}));
  EXPECT_EQ(json[1]["over_uniform"], nullptr);
  EXPECT_EQ(json[1]["like_best"], false);
  EXPECT_EQ(json[2]["like_best"], true);
}

TEST(LeaderboardTest, NamesMethodsWhereThereAreSeveral) {
  const std::string text =
      leaderboardText(makeLeaderboard({cell("uniform", 0, 8, 100, 50),
                                       cell("uniform", 0, 8, 100, 50, true, "santa"),
                                       cell("learned", 4, 8, 100, 70, true, "santa")},
                                      8),
                      false);
  EXPECT_THAT(text, HasSubstr("santa       learned"));
  EXPECT_THAT(text, HasSubstr("+0.200"));
  EXPECT_THAT(text, HasSubstr("s2anta-sys  uniform"));
}

TEST(LeaderboardTest, ShowsTheOtherGraderWhereThereIsOne) {
  EvaluationCell dense = cell("dense", 0, 0, 100, 90, true, "dense");
  EvaluationCell uniform = cell("uniform", 0, 8, 100, 50);
  dense.other = uniform.other = cell("", 0, 0, 50, 40).all;
  const auto board = makeLeaderboard({dense, uniform, cell("learned", 4, 8, 100, 60)}, 0);
  const std::string text = leaderboardText(board, false);
  EXPECT_THAT(text, HasSubstr("n 100  SANTA's grader: 0.800  [0.670, 0.888]  n 50"));
  EXPECT_THAT(text, HasSubstr("SANTA's grader"));
  const auto json = leaderboardJson(board);
  const auto& schedules = json["budgets"][0]["schedules"];
  EXPECT_EQ(schedules[0]["other_grader"], nullptr);
  EXPECT_EQ(schedules[1]["other_grader"]["n"], 50);
  EXPECT_DOUBLE_EQ(schedules[1]["other_grader"]["accuracy"], 0.8);
}

TEST(LeaderboardTest, MethodsWithoutABudgetHaveABlockOfTheirOwn) {
  const char* const long_name = "vattention scores=q4 heavy=0.025 epsilon=0.1 delta=0.1";
  EvaluationCell adaptive = cell("adaptive", 0, 0, 100, 90, true, long_name);
  adaptive.schedule.clear();
  adaptive.reads.dense_bytes = 1000;
  adaptive.reads.key_bytes = 100;
  adaptive.reads.value_bytes = 25;
  const auto board = makeLeaderboard({adaptive, cell("uniform", 0, 8, 100, 50)}, 0);
  const std::string text = leaderboardText(board, false);
  EXPECT_THAT(text, HasSubstr("methods that read what they need\n"));
  EXPECT_THAT(text, HasSubstr(std::string("1     ") + long_name + "  0.900"));
  EXPECT_THAT(text, HasSubstr("12.5 %"));
  EXPECT_EQ(text.find("over uniform"), std::string::npos);
  EXPECT_EQ(leaderboardJson(board)["budgets"][0]["schedules"][0]["kv_bytes_share"], 0.125);
}

}  // namespace
}  // namespace allot
