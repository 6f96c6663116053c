// WorkerLoop with an engine that costs nothing, on the in-memory store.
#include "worker/loop/worker_loop.h"

#include <gmock/gmock.h>

#include <limits>

#include "core/learning/questions.h"
#include "core/learning/schedule.h"
#include "core/learning/update.h"
#include "core/spec/spec.h"
#include "store/memory/memory_store.h"
#include "tests/results.h"
#include "tests/tiny_experiment.h"

namespace allot {
namespace {

class TestEngine final : public EpisodeEngine {
 public:
  Result<std::vector<v1::EpisodeResult>> rollOut(const v1::PolicySnapshot& policy,
                                                 const std::string& sha256,
                                                 const std::vector<uint64_t>& tickets) override {
    std::vector<v1::EpisodeResult> results;
    for (uint64_t ticket : tickets) {
      ALLOT_TRY(stepOn());
      results.push_back(episode(policy, sha256, ticket));
    }
    return results;
  }
  // Scores the place of each question.
  Result<std::vector<v1::EpisodeResult>> answerUnder(
      const std::vector<Episode>& episodes) override {
    ALLOT_TRY(stepOn());
    std::vector<v1::EpisodeResult> results;
    for (const Episode& episode : episodes) {
      audited.push_back(episode);
      v1::EpisodeResult& result = results.emplace_back();
      for (uint32_t i = 0; i < episode.count; ++i) {
        result.add_scores()->set_score(episode.first + i);
        result.mutable_scores()->rbegin()->set_tokens(7);
      }
    }
    return results;
  }
  std::vector<Episode> audited;
  Result<v1::EvaluationResult> evaluate(const v1::EvaluationUnit& unit) override {
    ALLOT_TRY(stepOn());
    v1::EvaluationResult result;
    *result.mutable_unit() = unit;
    result.mutable_counts()->set_decode_seconds(decode_seconds);
    return result;
  }
  double decode_seconds = 0;  // of each unit
  Result<std::vector<v1::EvaluationResult>> evaluateTogether(
      const std::vector<v1::EvaluationUnit>& units) override {
    together.push_back("");
    for (const auto& unit : units) together.back() += unit.unit_id();
    return EpisodeEngine::evaluateTogether(units);
  }
  std::vector<uint32_t> warmChunks() const override { return {}; }
  std::vector<std::string> together;  // ids of the units of each call
  std::string deviceName() const override { return "NVIDIA H200"; }
  uint32_t rowsAtOnce() const override { return rows_of_step; }
  uint32_t rows_of_step = 1;

  // Before each episode and unit; it may set draining or refuse.
  std::function<Status()> at_step = [] { return Status(); };

  double score = 1;  // of every question

 private:
  v1::EpisodeResult episode(const v1::PolicySnapshot& policy, const std::string& sha256,
                            uint64_t ticket) const {
    const std::vector<double> logits(policy.logits().begin(), policy.logits().end());
    const auto schedule = drawSchedule(softmax(logits), 8, 0, {1}, ticket);
    v1::EpisodeResult result;
    result.set_ticket(ticket);
    result.set_policy_version(policy.version());
    result.set_policy_sha256(sha256);
    *result.mutable_schedule() = {schedule.begin(), schedule.end()};
    result.set_behaviour_log_prob(logProbability(schedule, logits, 0));
    for (const uint32_t question : episodeQuestions({1}, ticket, 16, 256)) {
      result.add_scores()->set_question(question);
      result.mutable_scores()->rbegin()->set_score(score);
    }
    result.set_reward(score);
    return result;
  }
  Status stepOn() {
    ALLOT_TRY(at_step());
    return checkInterrupted();
  }
};

// What a WorkerLoop said, as words: "episode pushed 0".
class Words final : public WorkerEvents {
 public:
  void episode(WorkOutcome outcome, const v1::EpisodeResult* result) override {
    add("episode", outcome, result != nullptr);
    if (result) said.back() += " " + std::to_string(result->ticket());
  }
  void unit(WorkOutcome outcome, const v1::EvaluationResult* result) override {
    add("unit", outcome, result != nullptr);
    if (result) said.back() += " " + result->unit().unit_id();
  }
  void progress(const WorkerNow& now) override {
    ++rounds;
    last = now;
  }
  std::vector<std::string> said;
  int rounds = 0;
  WorkerNow last;

 private:
  void add(const std::string& what, WorkOutcome outcome, bool has_result) {
    EXPECT_EQ(has_result, outcome == WorkOutcome::kPushed);
    said.push_back(what + (outcome == WorkOutcome::kPushed    ? " pushed"
                           : outcome == WorkOutcome::kAborted ? " aborted"
                                                              : " failed"));
  }
};

class WorkerLoopTest : public testing::Test {
 protected:
  void SetUp() override {
    const v1::Experiment experiment =
        tinyExperiment({"spec.seed=1", "spec.task={suite: recall, tasks: [niah]}",
                        "spec.rollout={episodesPerPull: 3}"});
    run_ = {experiment, specDigest(experiment), false, 1, {}};
    ASSERT_TRUE(store_->createRun(run_));
    epoch_ = store_->acquireLease("a", 60'000)->epoch;
    const v1::AggregatorState state = initialState(experiment, 4);
    ASSERT_TRUE(Leadership(*store_, epoch_).publishInitial(state.policy(), state));
  }

  // With room for four results: twice episodesPerUpdate.
  std::unique_ptr<WorkerLoop> worker(uint64_t grace_ms = 15'000, bool stay = false) {
    return std::make_unique<WorkerLoop>(store_.get(), store_.get(), &engine_, run_,
                                        WorkerOptions{.name = "w",
                                                      .build = "test",
                                                      .inbox_cap = 1,
                                                      .stay = stay,
                                                      .grace_ms = grace_ms,
                                                      .moved = [this] { return moved_; },
                                                      .now = [this] { return now_ += 10; },
                                                      .unix_now = [this] { return now_; },
                                                      .events = &words_},
                                        &draining_);
  }
  void emptyInbox() {
    const auto entries = store_->readInbox(10, 0);
    for (const InboxEntry& entry : *entries) {
      ASSERT_TRUE(Leadership(*store_, epoch_).reject(entry, RefusalKind::kInvalid, "makes room"));
    }
  }
  // Units a, b, c and so on, of one chunk.
  void planUnits(size_t count) {
    std::vector<v1::EvaluationUnit> units(count);
    for (size_t i = 0; i < count; ++i) {
      units[i].set_unit_id(std::string(1, static_cast<char>('a' + i)));
    }
    ASSERT_TRUE(Leadership(*store_, epoch_).planUnits(units));
  }
  // How many units somebody else could do now.
  size_t claimable() {
    const auto other = openMemoryStore(server_);
    size_t all = 0;
    while (true) {
      const auto units = other->claimUnits({.holder = "other", .count = 100, .lease_ms = 1000});
      if (!units || units->empty()) return all;
      all += units->size();
    }
  }
  // Two rounds of three episodes: four fit, two are held.
  std::unique_ptr<WorkerLoop> workerBeforeAFullInbox() {
    auto loop = worker();
    EXPECT_TRUE(loop->step());
    EXPECT_TRUE(loop->step());
    EXPECT_EQ(*store_->inboxSize(), 4u);
    EXPECT_EQ(loop->heldResults(), 2u);
    return loop;
  }
  bool ends(WorkerLoop* loop) {
    const auto rest = loop->step();
    EXPECT_TRUE(rest);
    return rest && !*rest;
  }
  void change(Desired desired, uint32_t episodes_per_update) {
    Control control = **store_->readControl();
    control.desired = desired;
    control.experiment.mutable_spec()->mutable_update()->set_episodes_per_update(
        episodes_per_update);
    ASSERT_TRUE(*store_->changeControl(control));
  }

  uint64_t now_ = 1000;
  std::shared_ptr<MemoryServer> server_ = std::make_shared<MemoryServer>([this] { return now_; });
  std::unique_ptr<MemoryStore> store_ = openMemoryStore(server_);
  TestEngine engine_;
  RunSpec run_;
  uint64_t epoch_ = 0;
  std::atomic<bool> draining_{false};
  bool moved_ = false;
  Words words_;
};

TEST_F(WorkerLoopTest, UnitsOfOneMethodFillADecodeStep) {
  engine_.rows_of_step = 3;
  std::vector<v1::EvaluationUnit> units(16);
  for (size_t i = 0; i < units.size(); ++i) {
    units[i].set_unit_id(std::string(1, static_cast<char>('a' + i)));
    units[i].set_method(i % 4 == 1 ? "dense" : "s2anta-sys");
    units[i].set_measure(i % 4 == 2 ? "fidelity" : "accuracy");
  }
  ASSERT_TRUE(Leadership(*store_, epoch_).planUnits(units));
  const auto loop = worker();
  // How long a unit takes is known after the first one.
  EXPECT_TRUE(loop->step());
  EXPECT_EQ(engine_.together, (std::vector<std::string>{"a"}));
  EXPECT_TRUE(loop->step());
  EXPECT_EQ(engine_.together, (std::vector<std::string>{"a", "bf", "c", "deh", "i", "g"}));
  while (words_.said.size() < units.size()) EXPECT_TRUE(loop->step());
  for (const std::string& said : words_.said) EXPECT_TRUE(said.starts_with("unit pushed ")) << said;
  EXPECT_EQ(claimable(), 0u);
}

TEST_F(WorkerLoopTest, UnitsThatWouldTakeMoreThanTheGraceAreAnsweredByThemselves) {
  engine_.rows_of_step = 256;
  planUnits(16);
  // Prompts of nine seconds, which are read once.
  engine_.at_step = [this] { return now_ += engine_.together.size() == 1 ? 9'000 : 0, Status(); };
  engine_.decode_seconds = 4;
  const auto loop = worker();
  EXPECT_TRUE(loop->step());
  EXPECT_TRUE(loop->step());
  EXPECT_EQ(engine_.together, (std::vector<std::string>{"a", "b", "c", "d", "e", "f", "g"}));
  engine_.decode_seconds = 2;
  EXPECT_TRUE(loop->step());
  EXPECT_TRUE(loop->step());
  const std::vector<std::string> later(engine_.together.begin() + 7, engine_.together.end());
  EXPECT_EQ(later, (std::vector<std::string>{"h", "ijk", "l", "mn"}));
}

TEST_F(WorkerLoopTest, AFullInboxMakesItHoldItsResultsAndTakeNoTickets) {
  const auto loop = workerBeforeAFullInbox();
  EXPECT_FALSE(ends(loop.get()));
  EXPECT_EQ(*store_->nextTicket(), 6u);
  const auto entries = store_->readInbox(1, 0);
  ASSERT_TRUE(
      Leadership(*store_, epoch_).reject(entries->front(), RefusalKind::kInvalid, "makes room"));
  EXPECT_FALSE(ends(loop.get()));
  EXPECT_EQ(loop->heldResults(), 1u);
}

// 16 questions an episode: 70 rows are four episodes.
TEST_F(WorkerLoopTest, TakesAsManyEpisodesAsFillAStepAndNoMoreThanItsPartOfAnUpdate) {
  engine_.rows_of_step = 70;
  Control control = **store_->readControl();
  control.experiment.mutable_spec()->mutable_update()->set_episodes_per_update(6);
  control.experiment.mutable_spec()->mutable_rollout()->set_episodes_per_pull(1);
  ASSERT_TRUE(*store_->changeControl(control));
  run_.experiment = control.experiment;
  const auto loop = worker();
  EXPECT_FALSE(ends(loop.get()));
  EXPECT_EQ(*store_->nextTicket(), 3u);  // six in two equal pieces
  v1::WorkerBeat other;
  for (const char* name : {"x", "y"}) {
    other.set_worker(name);
    ASSERT_TRUE(store_->beat({.beat = other, .ttl_ms = 60'000}));
  }
  emptyInbox();
  EXPECT_FALSE(ends(loop.get()));
  EXPECT_EQ(*store_->nextTicket(), 5u);  // a third of six
}

// What nobody will consume must not keep a worker for ever.
TEST_F(WorkerLoopTest, ItEndsWithTheRunThoughTheInboxIsFull) {
  const auto loop = workerBeforeAFullInbox();
  change(Desired::kFinished, 2);
  EXPECT_TRUE(ends(loop.get()));
}

// After the last update the inbox is not emptied, but the run ends only once all is evaluated.
TEST_F(WorkerLoopTest, ItEvaluatesThoughTheInboxIsFull) {
  const auto loop = workerBeforeAFullInbox();
  v1::EvaluationUnit unit;
  unit.set_unit_id("v000004/c0000/dense/dense/0");
  ASSERT_TRUE(Leadership(*store_, epoch_).planUnits({unit}));
  EXPECT_FALSE(ends(loop.get()));
  EXPECT_EQ(store_->readRecorded(9)->size(), 1u);
  EXPECT_EQ(loop->heldResults(), 2u);
}

// Else an update that needs more than fits would wait for ever.
TEST_F(WorkerLoopTest, ItHearsThatThereIsMoreRoom) {
  const auto loop = workerBeforeAFullInbox();
  change(Desired::kRunning, 4);
  EXPECT_FALSE(ends(loop.get()));
  EXPECT_FALSE(ends(loop.get()));
  EXPECT_GE(*store_->inboxSize(), 6u);
}

TEST_F(WorkerLoopTest, DrainingItPushesWhatItHoldsAndLeaves) {
  const auto loop = workerBeforeAFullInbox();
  draining_ = true;
  EXPECT_FALSE(ends(loop.get()));
  emptyInbox();
  EXPECT_TRUE(ends(loop.get()));
  EXPECT_EQ(*store_->inboxSize(), 2u);
  EXPECT_EQ(*store_->nextTicket(), 6u);
}

TEST_F(WorkerLoopTest, DrainingItBeginsNothingWhileItHoldsResults) {
  const auto loop = workerBeforeAFullInbox();
  planUnits(1);
  words_.said.clear();
  draining_ = true;
  EXPECT_FALSE(ends(loop.get()));
  EXPECT_TRUE(words_.said.empty());  // it did not even claim the unit
  EXPECT_EQ(*store_->openUnits(), 1u);
  EXPECT_EQ(*store_->nextTicket(), 6u);
}

TEST_F(WorkerLoopTest, InAPausedRunItBeginsNothing) {
  change(Desired::kPaused, 2);
  planUnits(1);
  const auto loop = worker();
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(ends(loop.get()));
  EXPECT_EQ(*store_->openUnits(), 1u);
  EXPECT_EQ(*store_->nextTicket(), 0u);
}

// Each update is made of the tickets that are its own.
TEST_F(WorkerLoopTest, InASynchronousRunItTakesNoTicketOfTheNextUpdate) {
  run_.synchronous = true;
  const auto loop = worker();
  for (int i = 0; i < 4; ++i) EXPECT_FALSE(ends(loop.get()));
  EXPECT_EQ(*store_->nextTicket(), 2u);
  EXPECT_EQ(*store_->inboxSize(), 2u);
}

using testing::ElementsAre;

TEST_F(WorkerLoopTest, WhatTheGracePeriodAllowsIsFinishedAndPushed) {
  engine_.at_step = [&] {
    draining_ = true;
    return Status();
  };
  const auto loop = worker();
  EXPECT_FALSE(ends(loop.get()));
  EXPECT_TRUE(ends(loop.get()));
  EXPECT_EQ(*store_->inboxSize(), 3u);
  EXPECT_THAT(words_.said, ElementsAre("episode pushed 0", "episode pushed 1", "episode pushed 2"));
  EXPECT_TRUE(words_.last.draining);
  EXPECT_TRUE(store_->listWorkers()->empty());
}

TEST_F(WorkerLoopTest, AtTheEndOfTheGracePeriodTheWholeBatchIsDropped) {
  int steps = 0;
  engine_.at_step = [&] {
    draining_ = true;
    if (++steps == 3) now_ += 20'000;  // two of the three episodes are done
    return Status();
  };
  const auto loop = worker();
  EXPECT_FALSE(ends(loop.get()));
  EXPECT_EQ(steps, 3);
  EXPECT_EQ(loop->heldResults(), 0u);
  EXPECT_TRUE(ends(loop.get()));
  EXPECT_EQ(*store_->inboxSize(), 0u);
  EXPECT_EQ(*store_->nextTicket(), 3u);  // a gap
  EXPECT_THAT(words_.said, ElementsAre("episode aborted", "episode aborted", "episode aborted"));
  EXPECT_TRUE(store_->listWorkers()->empty());
}

TEST_F(WorkerLoopTest, ResultsThatDoNotFitAreDroppedOnlyAtTheEndOfTheGracePeriod) {
  const auto loop = workerBeforeAFullInbox();
  words_.said.clear();
  draining_ = true;
  EXPECT_FALSE(ends(loop.get()));
  now_ += 20'000;
  EXPECT_THAT(loop->step(),
              isError(ErrorCode::kUnavailable, testing::HasSubstr("2 results are dropped")));
  EXPECT_THAT(words_.said, ElementsAre("episode failed", "episode failed"));
  EXPECT_EQ(*store_->inboxSize(), 4u);
}

TEST_F(WorkerLoopTest, UnitsThatAreGivenUpAreOpenForOthersAtOnce) {
  planUnits(6);
  int steps = 0;
  engine_.at_step = [&] {
    draining_ = ++steps == 3;
    return Status();
  };
  const auto loop = worker(0);
  EXPECT_FALSE(ends(loop.get()));  // one, to see how long it takes
  EXPECT_FALSE(ends(loop.get()));  // half of the rest
  EXPECT_THAT(words_.said,
              ElementsAre("unit pushed a", "unit pushed b", "unit aborted", "unit aborted"));
  EXPECT_EQ(claimable(), 4u);
  EXPECT_TRUE(ends(loop.get()));
}

// Only a worker that has been told to go gives work up.
TEST_F(WorkerLoopTest, AnEngineThatFailsEndsTheWorkerAndReleasesItsUnits) {
  planUnits(2);
  engine_.at_step = [] { return fail(ErrorCode::kData, "a number is not finite"); };
  const auto loop = worker();
  EXPECT_THAT(loop->step(), isError("a number is not finite"));
  EXPECT_THAT(words_.said, ElementsAre("unit failed"));
  EXPECT_EQ(claimable(), 2u);
}

TEST_F(WorkerLoopTest, StayingItRestsAtTheEndAndWorksWhenTheRunGoesOn) {
  const auto loop = worker(15'000, true);
  change(Desired::kFinished, 2);
  for (int i = 0; i < 3; ++i) {
    const auto rest = loop->step();
    ASSERT_TRUE(rest && *rest);
    EXPECT_GE((*rest)->count(), 500);  // no hurry
  }
  EXPECT_EQ(*store_->nextTicket(), 0u);
  ASSERT_EQ(store_->listWorkers()->size(), 1u);
  EXPECT_EQ(store_->listWorkers()->front().device(), "NVIDIA H200");
  EXPECT_EQ(words_.rounds, 3);
  change(Desired::kRunning, 2);
  EXPECT_FALSE(ends(loop.get()));
  EXPECT_EQ(*store_->inboxSize(), 3u);
  change(Desired::kStopped, 2);
  EXPECT_FALSE(ends(loop.get()));
  draining_ = true;
  EXPECT_TRUE(ends(loop.get()));
}

TEST_F(WorkerLoopTest, StayingItLeavesForAnotherRun) {
  const auto loop = worker(15'000, true);
  EXPECT_FALSE(ends(loop.get()));
  moved_ = true;
  EXPECT_FALSE(ends(loop.get()));  // asked a moment ago
  now_ += 10'000;
  EXPECT_TRUE(ends(loop.get()));
  EXPECT_TRUE(store_->listWorkers()->empty());
}

TEST_F(WorkerLoopTest, AfterFiveResultsInARowThatCannotBeItEnds) {
  const auto loop = worker();
  engine_.score = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(loop->step());  // three
  engine_.score = 0.5;
  EXPECT_TRUE(loop->step());  // three that are good: counted from the beginning again
  engine_.score = 2;
  EXPECT_TRUE(loop->step());
  emptyInbox();
  EXPECT_TRUE(loop->step());  // pushes what was held
  emptyInbox();
  EXPECT_THAT(loop->step(),
              isError(ErrorCode::kData, testing::HasSubstr("a score is outside 0..1")));
}

// Longer than a heartbeat lives.
TEST_F(WorkerLoopTest, ItIsSeenToWorkWhileAnEpisodeTakesLong) {
  int steps = 0;
  engine_.at_step = [&] {
    now_ += 40'000;
    if (++steps > 1) {
      const auto workers = *store_->listWorkers();
      EXPECT_EQ(workers.size(), 1u);
      EXPECT_EQ(workers.empty() ? "" : workers[0].state(), "rollout");
    }
    return Status();
  };
  const auto loop = worker();
  EXPECT_FALSE(ends(loop.get()));
  EXPECT_EQ(steps, 3);
  EXPECT_GE(words_.rounds, 4);
}

// The file was edited before the first result counted: what is in hand is of no use any more.
TEST_F(WorkerLoopTest, AReplacedExperimentEndsItsWork) {
  for (const bool holds : {true, false}) {
    ASSERT_TRUE(*store_->readSpec());
    auto loop = holds ? workerBeforeAFullInbox() : worker();
    if (!holds) {
      ASSERT_TRUE(loop->step());
    }
    const Control control = **store_->readControl();
    run_.experiment.mutable_spec()->set_seed(run_.experiment.spec().seed() + 1);
    run_.sha256 = specDigest(run_.experiment);
    ASSERT_EQ(store_
                  ->replaceRun(
                      run_, {Desired::kRunning, run_.experiment, run_.experiment, control.revision})
                  ->outcome,
              Replacement::Outcome::kReplaced);
    EXPECT_TRUE(ends(loop.get()));
    EXPECT_EQ(*store_->inboxSize(), 0u);
    EXPECT_EQ(*store_->nextTicket(), 0u);
    // The next leader begins anew.
    epoch_ = store_->acquireLease("b", 60'000)->epoch;
    const v1::AggregatorState state = initialState(run_.experiment, 4);
    ASSERT_TRUE(Leadership(*store_, epoch_).publishInitial(state.policy(), state));
  }
}

TEST_F(WorkerLoopTest, AnswersAgainWhatTheAggregatorAsksAndSaysSoUntilItIsHeard) {
  const auto loop = worker();
  v1::AuditTasks tasks;
  tasks.set_worker("w");
  tasks.set_number(77);
  v1::AuditTask* task = tasks.add_tasks();
  task->set_ticket(12);
  task->add_schedule(8);
  task->set_first(3);
  task->set_count(2);
  const Leadership leader(*store_, epoch_);
  ASSERT_TRUE(leader.exchangeAudits({tasks}));
  ASSERT_TRUE(loop->step());
  ASSERT_THAT(engine_.audited, SizeIs(1));
  EXPECT_EQ(engine_.audited[0].ticket, 12u);
  EXPECT_EQ(engine_.audited[0].questions, episodeQuestions({1}, 12, 16, 256));
  // Answers that are lost are left again, and not made again.
  for (int i = 0; i < 2; ++i) {
    const auto answers = valueOf(leader.exchangeAudits({tasks}));
    ASSERT_THAT(answers, SizeIs(1));
    EXPECT_EQ(answers[0].ShortDebugString(),
              "worker: \"w\" number: 77 build: \"test\" answers { scores { score: 3 tokens: 7 } "
              "scores { score: 4 tokens: 7 } }");
    ASSERT_TRUE(loop->step());
  }
  EXPECT_THAT(engine_.audited, SizeIs(1));
  ASSERT_TRUE(leader.exchangeAudits({}));
  ASSERT_TRUE(loop->step());
  EXPECT_THAT(valueOf(leader.exchangeAudits({tasks})), IsEmpty());
}

TEST_F(WorkerLoopTest, EndsIfTheAggregatorFindsItsScoresWrong) {
  v1::AuditTasks told;
  told.set_worker("w");
  told.set_lies("its scores of ticket 3 are not those that workers a and b measure");
  ASSERT_TRUE(Leadership(*store_, epoch_).exchangeAudits({told}));
  EXPECT_THAT(worker()->run(), isError(ErrorCode::kData, HasSubstr("ticket 3")));
}

}  // namespace
}  // namespace allot
