// What commands decide and say, without processes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "allot/kernels/method.h"
#include "cli/control.h"
#include "cli/fork_streams.h"
#include "cli/leaderboard.h"
#include "cli/methods_text.h"
#include "cli/run_folder.h"
#include "cli/run_report.h"
#include "cli/run_status.h"
#include "cli/tasks_text.h"
#include "cli/terminal.h"
#include "core/learning/policy_gradient.h"
#include "core/random_stream.h"
#include "core/spec/spec.h"
#include "core/spec/task_catalogue.h"
#include "store/memory/memory_store.h"

namespace allot {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

// What a fork with these options draws from, by a file that leaves all three keys as they were.
RunStreams streamsOfFork(const v1::Spec& parent, const std::vector<std::string>& given, bool same,
                         uint64_t fresh) {
  const auto streams = forkStreams(parent, given, same, fresh);
  EXPECT_TRUE(streams) << streams.error().message;
  auto settings = given;
  settings.insert(settings.end(), streams->set.begin(), streams->set.end());
  const auto fork = parseExperiment(
      "apiVersion: allot.dev/v1alpha1\nkind: Experiment\nmetadata: {name: tiny}\nspec:\n"
      "  seed: 7\n  model: {path: m}\n  task: {tasks: [niah]}\n  policy: {totalBudget: 8}\n",
      "tiny.yaml", settings);
  EXPECT_TRUE(fork) << fork.error().message;
  EXPECT_EQ(fork->spec().seed(), 7u);  // and the same questions
  return runStreams(fork->spec());
}

TEST(ForkStreams, AForkIsIndependentOfItsParentUnlessAsked) {
  v1::Spec before;  // of a build before the keys
  before.set_seed(7);
  v1::Spec parent = before;
  parent.set_repetition(11);
  parent.set_streams("disjoint");
  for (const v1::Spec& of : {before, parent}) {
    const RunStreams own = runStreams(of);
    EXPECT_NE(streamsOfFork(of, {}, false, 4711).key, own.key);
    EXPECT_NE(streamsOfFork(of, {}, false, 4711).key, before.seed());
    EXPECT_NE(streamsOfFork(of, {}, false, 4711).key, streamsOfFork(of, {}, false, 4712).key);
    EXPECT_EQ(streamsOfFork(of, {}, false, 4711).layout, Streams::kDisjoint);
    EXPECT_EQ(streamsOfFork(of, {}, true, 4711).key, own.key);
    EXPECT_EQ(streamsOfFork(of, {}, true, 4711).layout, own.layout);
  }
  // Asked by number: a fork can be made again.
  const auto again = std::vector<std::string>{"spec.repetition=4711"};
  EXPECT_EQ(streamsOfFork(parent, again, false, 1).key, streamsOfFork(parent, {}, false, 4711).key);
  EXPECT_THAT(forkStreams(parent, {}, false, 4711)->told, HasSubstr("spec.repetition=4711"));
  EXPECT_THAT(forkStreams(parent, again, false, 1)->told, HasSubstr("spec.repetition=4711"));
  EXPECT_THAT(forkStreams(parent, {}, true, 1)->told, HasSubstr("the same random numbers"));
  for (const char* both : {"spec.seed=7", "spec.repetition=4711", "spec.streams=disjoint"}) {
    const auto refused = forkStreams(parent, {both}, true, 1);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::kUsage);
    EXPECT_THAT(refused.error().message, HasSubstr(std::string("leave out --set ") + both));
  }
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

class ControlTest : public testing::Test {
 protected:
  ControlTest() {
    const auto experiment = parseExperiment(R"(
apiVersion: allot.dev/v1alpha1
kind: Experiment
metadata: {name: test}
spec:
  model: {path: none}
  task: {suite: recall, tasks: [niah]}
  policy: {totalBudget: 8}
  update: {maxUpdates: 40}
)",
                                            "test");
    EXPECT_TRUE(experiment) << experiment.error().message;
    run_.experiment = *experiment;
    run_.sha256 = specDigest(*experiment);
    EXPECT_TRUE(store_->createRun(run_));
  }
  Desired desired() { return store_->readControl().value().value().desired; }
  void set(Desired desired) { ASSERT_TRUE(changeDesired(store_.get(), desired)); }

  std::shared_ptr<MemoryServer> server_ =
      std::make_shared<MemoryServer>([] { return uint64_t{1}; });
  std::unique_ptr<Store> store_ = openMemoryStore(server_);
  RunSpec run_;
};

TEST_F(ControlTest, EveryStepThatMakesSenseIsTakenAndNoOther) {
  struct Row {
    Desired from;
    Result<ControlChange> (*step)(Store*);
    std::optional<Desired> to;  // nothing: refused
    bool changed;
  };
  for (const Row& row : {Row{Desired::kRunning, pauseRun, Desired::kPaused, true},
                         {Desired::kPaused, pauseRun, Desired::kPaused, false},
                         {Desired::kStopped, pauseRun, std::nullopt, false},
                         {Desired::kFinished, pauseRun, std::nullopt, false},
                         {Desired::kRunning, resumeRun, Desired::kRunning, false},
                         {Desired::kPaused, resumeRun, Desired::kRunning, true},
                         {Desired::kStopped, resumeRun, Desired::kRunning, true},
                         {Desired::kFinished, resumeRun, std::nullopt, false},
                         {Desired::kRunning, stopRun, Desired::kStopped, true},
                         {Desired::kPaused, stopRun, Desired::kStopped, true},
                         {Desired::kStopped, stopRun, Desired::kStopped, false},
                         {Desired::kFinished, stopRun, std::nullopt, false}}) {
    set(row.from);
    const auto change = row.step(store_.get());
    const bool refused = !row.to;
    EXPECT_EQ(change.has_value(), !refused) << "from " << wordOf(row.from);
    EXPECT_EQ(desired(), row.to.value_or(row.from));
    if (change) {
      EXPECT_EQ(change->changed, row.changed);
      EXPECT_EQ(change->before, row.from);
    } else {
      EXPECT_EQ(change.error().code, ErrorCode::kUsage);
    }
  }
  set(Desired::kFinished);
  EXPECT_THAT(resumeRun(store_.get()).error().message, HasSubstr("use `allot extend"));
}

TEST_F(ControlTest, OthersMayChangeItAtTheSameTime) {
  auto other = openMemoryStore(server_);
  int tries = 0;
  const auto changed = changeControl(store_.get(), [&](Control* control) -> Result<bool> {
    if (++tries <= 3) {
      EXPECT_TRUE(extendRun(other.get(), 1));
    }
    control->desired = Desired::kPaused;
    return true;
  });
  ASSERT_TRUE(changed);
  EXPECT_EQ(tries, 4);
  const auto control = store_->readControl().value().value();
  EXPECT_EQ(control.desired, Desired::kPaused);
  EXPECT_EQ(control.experiment.spec().update().max_updates(), 43u);  // neither is lost
}

TEST_F(ControlTest, ExtendAddsUpdates) {
  const auto running = extendRun(store_.get(), 10);
  ASSERT_TRUE(running);
  EXPECT_EQ(running->now.experiment.spec().update().max_updates(), 50u);
  EXPECT_EQ(desired(), Desired::kRunning);
  set(Desired::kFinished);
  ASSERT_TRUE(extendRun(store_.get(), 5));
  EXPECT_EQ(desired(), Desired::kRunning);
  set(Desired::kStopped);
  ASSERT_TRUE(extendRun(store_.get(), 5));
  EXPECT_EQ(desired(), Desired::kStopped);
  EXPECT_FALSE(extendRun(store_.get(), 1'000'000));
  EXPECT_EQ(store_->readControl().value()->experiment.spec().update().max_updates(), 60u);
}

TEST_F(ControlTest, SetTakesLiveSettingsOnly) {
  const auto changes =
      setInRun(store_.get(), {"spec.update.learningRate=0.25", "spec.staleness.mode=none"});
  ASSERT_TRUE(changes) << changes.error().message;
  ASSERT_EQ(changes->size(), 2u);
  EXPECT_EQ(changes->at(0).path, "spec.update.learningRate");
  EXPECT_EQ(changes->at(0).to, "0.25");
  EXPECT_EQ(store_->readControl().value()->experiment.spec().update().learning_rate(), 0.25);
  const auto revision = store_->readControl().value()->revision;
  EXPECT_TRUE(setInRun(store_.get(), {"spec.update.learningRate=0.25"})->empty());
  for (const char* refused : {"spec.policy.totalBudget=16", "spec.seed=9",
                              "spec.update.learningRate=-1", "spec.update.nothing=1", "x"}) {
    const auto done = setInRun(store_.get(), {"spec.staleness.rhoBar=2", refused});
    ASSERT_FALSE(done) << refused;
    EXPECT_EQ(done.error().code, ErrorCode::kUsage);
  }
  EXPECT_THAT(setInRun(store_.get(), {"spec.policy.totalBudget=16"}).error().message,
              HasSubstr("allot fork"));
  EXPECT_EQ(store_->readControl().value()->revision, revision);  // all or nothing
}

TEST_F(ControlTest, UpdatesThatAreMadeAreNotTakenBack) {
  const uint64_t epoch = store_->acquireLease("a", 1000)->epoch;
  v1::AggregatorState state;
  state.mutable_policy()->add_logits(0);
  ASSERT_TRUE(Leadership(*store_, epoch).publishInitial(state.policy(), state));
  for (uint64_t version = 0; version < 2; ++version) {
    Commit commit;
    commit.expected_version = version;
    state.mutable_policy()->set_version(version + 1);
    commit.policy = state.policy();
    commit.state = state;
    commit.record.set_version(version + 1);
    ASSERT_TRUE(Leadership(*store_, epoch).commit(commit));
  }
  const auto refused = setInRun(store_.get(), {"spec.update.maxUpdates=1"});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message,
            "spec.update.maxUpdates: 1 is less than the 2 updates that the run has made; 2 ends it "
            "now, after an evaluation");
  EXPECT_TRUE(setInRun(store_.get(), {"spec.update.maxUpdates=2"}));
  EXPECT_TRUE(setInRun(store_.get(), {"spec.update.learningRate=0.2"}));
}

TEST_F(ControlTest, ARunThatItsHoursEndedMayBeResumedAndNoOther) {
  const uint64_t epoch = store_->acquireLease("a", 1000)->epoch;
  v1::AggregatorState state;
  state.mutable_policy()->add_logits(0);
  state.set_has_evaluation(true);
  ASSERT_TRUE(Leadership(*store_, epoch).publishInitial(state.policy(), state));
  set(Desired::kFinished);
  EXPECT_FALSE(resumeRun(store_.get()));
  state.set_has_evaluation(false);  // as the aggregator leaves it that withdrew units
  ASSERT_TRUE(Leadership(*store_, epoch).writeState(state));
  EXPECT_TRUE(resumeRun(store_.get()));
  EXPECT_EQ(desired(), Desired::kRunning);
}

TEST_F(ControlTest, NothingIsChangedWhereNothingIs) {
  auto empty = openMemoryStore(std::make_shared<MemoryServer>([] { return uint64_t{1}; }));
  for (const auto& refused : {pauseRun(empty.get()), resumeRun(empty.get()), stopRun(empty.get()),
                              extendRun(empty.get(), 1)}) {
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::kUsage);
  }
}

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
  worker("rollout");  // from before builds were told
  worker("failed");
  const std::string expected =
      "the aggregator is allot 2 (GNU 12); w?[2J: an earlier one; w?[2J: allot 1? (GNU 12)";
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
  EXPECT_EQ(json["workers"][0]["last_error"], "a\nb");
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
  EXPECT_NEAR(*eight.rows[0].over_uniform, 175.0 / 480, 1e-12);
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
  EXPECT_THAT(text, HasSubstr("cannot tell the two apart"));
  EXPECT_THAT(text, Not(HasSubstr("s2anta-sys")));
  EXPECT_EQ(makeLeaderboard({cell("uniform", 0, 8, 480, 166)}, 16).blocks.size(), 0u);
  const auto json = leaderboardJson(board);
  EXPECT_EQ(json["budgets"][0]["schedules"][0]["schedule"], "learned");
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

nlohmann::json summaryRow(const char* method, const char* schedule, int budget, double accuracy) {
  return {{"method", method},     {"schedule", schedule},    {"total_budget", budget},
          {"accuracy", accuracy}, {"ci95", {accuracy, 1.0}}, {"n", 480},
          {"kv_bytes_share", 0.5}};
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
                          {"samples_per_layer", 2.5},
                          {"relative_error", 0.125},
                          {"agreement", 0.5},
                          {"density", 0.1}}};
  summary["variance_slopes"] = {{{"method", "santa"}, {"slope", -1.004}}};
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
)");
  // With a learned schedule, or one method alone, uniform and learned stand side by side.
  rows.push_back(summaryRow("top-k", "learned", 8, 0.6));
  EXPECT_THAT(reportText(summary), HasSubstr("top-k, total budget"));
  EXPECT_EQ(reportText({{"evaluations", nlohmann::json::array()}}), "");
}

TEST(RunReport, ASweepThatLearnsNothingSaysNothingOfLearning) {
  EXPECT_EQ(endText({{"updates", 0}, {"episodes", 0}, {"wall_seconds", 207.0}}),
            "evaluated in 3 min 27 s");
  EXPECT_EQ(endText({{"updates", 150},
                     {"episodes", 1500},
                     {"wall_seconds", 131.0},
                     {"episodes_per_second", 38.5}}),
            "150 updates, 1500 episodes, 2 min 11 s, 38.5 episodes/s while learning");
}

TEST(MethodsText, HasAMeaningForEveryMethodAndEveryParameter) {
  const std::string text = methodsText();
  for (const std::string_view name : kernels::methodNames()) {
    EXPECT_NE(methodMeaning(name), "") << name;
    EXPECT_THAT(text, HasSubstr("  " + std::string(name) + "  "));
  }
  EXPECT_EQ(methodMeaning("nonsense"), "");
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
