// The aggregator: what becomes of results, evaluations, edits and forks.
#include <malloc.h>
#include <cmath>

#include "aggregator/learner/begin_run.h"
#include "core/learning/replay.h"
#include "core/learning/update.h"
#include "tests/aggregator/aggregator_fixture.h"

namespace allot {
namespace {

TEST_F(AggregatorTest, LearnsEvaluatesAndFinishes) {
  auto aggregator = start("a");
  createRun();
  EXPECT_TRUE(tick(aggregator.get()));
  EXPECT_EQ(aggregator->snapshot().phase, Phase::kStarting);
  announceModel();
  EXPECT_TRUE(tick(aggregator.get()));
  EXPECT_EQ(*worker_->openUnits(), 2u);  // uniform, two chunks; learned is uniform at version 0
  evaluateAll();
  for (uint64_t ticket = 0; ticket < 14; ++ticket) push(ticket);
  finish(aggregator.get());
  EXPECT_EQ((*worker_->readControl())->desired, Desired::kFinished);
  const auto snapshot = aggregator->snapshot();
  EXPECT_EQ(snapshot.state.policy().version(), 4u);
  EXPECT_EQ(snapshot.state.episodes(), 12u);
  EXPECT_EQ(snapshot.history.size(), 4u);
  std::vector<std::string> cells;
  for (const auto& cell : snapshot.cells) {
    EXPECT_TRUE(cell.complete);
    cells.push_back(std::to_string(cell.version) + cell.schedule_name);
  }
  EXPECT_THAT(cells, ElementsAre("0uniform", "2learned", "4learned"));
  // Every update again from its record: the same policies.
  auto state = initialState(run_.experiment, kLayers);
  const auto records = worker_->readHistory(0, 10);
  for (const auto& record : *records) {
    state = applyUpdate(run_.experiment, state, {record.results().begin(), record.results().end()})
                .state;
    EXPECT_EQ(policyDigest(state.policy()), record.policy_sha256());
  }
}

TEST_F(AggregatorTest, RefusesWhatCannotBeAndGoesOn) {
  auto aggregator = lead();
  server_->injectIntoInbox("junk", "\xff\xff\xff");
  auto lie = episode(0);
  lie.set_result_id("other");
  server_->injectIntoInbox("name", lie.SerializeAsString());
  server_->injectIntoInbox("w-11", episode(11).SerializeAsString());  // a copy, before the result
  auto rich = episode(1);
  rich.set_reward(1e9);
  auto future = episode(2);
  future.set_policy_version(7);
  auto nan = episode(3);
  nan.mutable_scores(0)->set_score(std::nan(""));
  auto strange = episode(4);
  strange.mutable_scores(0)->set_question(31 - strange.scores(0).question());
  auto forged = episode(5);
  forged.set_policy_sha256("another");
  auto huge = episode(6);
  huge.set_device(std::string(kLargestResult, 'x'));
  server_->injectIntoInbox(huge.result_id(), huge.SerializeAsString());
  for (const auto& bad : {rich, future, nan, strange, forged}) {
    ASSERT_TRUE(worker_->pushResult(bad, 100));
  }
  for (uint64_t ticket = 10; ticket < 13; ++ticket) push(ticket);
  for (int i = 0; i < 9; ++i) ASSERT_TRUE(tick(aggregator.get()));
  EXPECT_EQ(version(), 1u);
  const auto counts = *worker_->readRefusalCounts();
  EXPECT_EQ(counts.at("undecodable"), 1u);
  EXPECT_EQ(counts.at("oversized"), 1u);
  EXPECT_EQ(counts.at("invalid"), 7u);
  const auto records = *worker_->readHistory(0, 10);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(records[0].results(i).ticket(), 10u + i);
  EXPECT_EQ(*worker_->inboxSize(), 0u);
  EXPECT_THAT(aggregator->snapshot().last_error, HasSubstr("refused result"));
}

TEST_F(AggregatorTest, LiveSettingsChangeWhatComesNextAndReplayKnowsThem) {
  auto aggregator = lead();
  evaluateAll();
  for (uint64_t ticket = 0; ticket < 3; ++ticket) push(ticket);
  ASSERT_TRUE(tick(aggregator.get()));
  EXPECT_EQ(version(), 1u);
  set({"spec.update.episodesPerUpdate=2", "spec.update.learningRate=0.5",
       "spec.update.maxUpdates=3"});
  for (uint64_t ticket = 3; ticket < 7; ++ticket) push(ticket);
  finish(aggregator.get());
  EXPECT_EQ(version(), 3u);
  Replay replay(run_.experiment, initialState(run_.experiment, kLayers), false);
  const auto records = *worker_->readHistory(0, 10);
  for (const auto& record : records) {
    EXPECT_THAT(replay.next(record), succeeds());
  }
  EXPECT_EQ(policyDigest(replay.state().policy()), (*worker_->readPolicy())->sha256);
}

// What `--stay` is made of: the same object goes on.
TEST_F(AggregatorTest, StayingAtTheEndItKeepsLeadingAndGoesOn) {
  auto aggregator = lead();
  for (uint64_t ticket = 0; ticket < 12; ++ticket) push(ticket);
  finish(aggregator.get());
  EXPECT_EQ(version(), 4u);
  for (int i = 0; i < 10; ++i) {  // beyond the lease
    now_ += 4'000;
    EXPECT_FALSE(aggregator->tick().value());
  }
  EXPECT_EQ(worker_->readLease()->holder, "a");
  EXPECT_EQ((*worker_->readStatus())->phase(), "finished");
  set({"spec.update.maxUpdates=6"}, Desired::kRunning);
  for (uint64_t ticket = 12; ticket < 15; ++ticket) push(ticket);
  EXPECT_TRUE(tick(aggregator.get()));
  EXPECT_EQ(version(), 5u);
  EXPECT_EQ(aggregator->snapshot().phase, Phase::kRunning);
  set({}, Desired::kStopped);
  EXPECT_FALSE(tick(aggregator.get()));
  set({}, Desired::kRunning);
  for (uint64_t ticket = 15; ticket < 18; ++ticket) push(ticket);
  finish(aggregator.get());
  EXPECT_EQ(version(), 6u);
}

TEST_F(AggregatorTest, ARefusedEditIsToldWithTheNextTickAndForgottenAgain) {
  auto aggregator = lead();
  aggregator->setEditRefused("spec.seed cannot change");
  ASSERT_TRUE(tick(aggregator.get()));
  EXPECT_EQ((*worker_->readStatus())->edit_refused(), "spec.seed cannot change");
  aggregator->setEditRefused("");
  ASSERT_TRUE(tick(aggregator.get()));
  EXPECT_EQ((*worker_->readStatus())->edit_refused(), "");
}

TEST_F(AggregatorTest, ARunOfAnotherArithmeticIsRefusedByName) {
  run_.arithmetic = "exact-0";
  run_.build = "allot 0.0.9";
  announceModel();
  auto aggregator = start("a");
  EXPECT_THAT(
      aggregator->tick(),
      isError(ErrorCode::kUsage, AllOf(HasSubstr("the run was computed by arithmetic \"exact-0\""),
                                       HasSubstr("use the build that made it, allot 0.0.9"))));
}

// To take what it does not know for something else would be to learn by another rule unseen.
TEST_F(AggregatorTest, ASettingOfANewerBuildIsRefusedWithTheWordsThatThereAre) {
  auto aggregator = lead();
  Control control = **worker_->readControl();
  control.experiment.mutable_spec()->mutable_staleness()->set_mode("v-trace");
  ASSERT_TRUE(*worker_->changeControl(control));
  EXPECT_THAT(
      aggregator->tick(),
      isError(ErrorCode::kUsage,
              "the run's experiment: spec.staleness.mode: \"v-trace\" is not one of truncated-is, "
              "none, drop, so that a newer build stored it: use that build or a later one"));
}

TEST_F(AggregatorTest, AFinishedRunThatIsExtendedUsesWhatHadWaited) {
  auto aggregator = lead();
  for (uint64_t ticket = 0; ticket < 15; ++ticket) push(ticket);
  finish(aggregator.get());
  EXPECT_EQ(version(), 4u);
  EXPECT_EQ(*worker_->inboxSize(), 3u);
  set({"spec.update.maxUpdates=5"}, Desired::kRunning);
  now_ += 20'000;
  auto again = start("b");
  finish(again.get());
  EXPECT_EQ(version(), 5u);
  EXPECT_EQ(*worker_->inboxSize(), 0u);
}

TEST_F(AggregatorTest, LearnerSantaTakesWhateverHasArrived) {
  use(tinyExperiment({"spec.update={learner: santa, episodesPerUpdate: 3, maxUpdates: 4}",
                      "spec.evaluation.everyUpdates=0"}));
  announceModel();
  const auto aggregator = start("a", worker_.get());
  tick(aggregator.get());
  evaluateAll();
  const auto ticks = [&] {
    for (int i = 0; i < 3; ++i) tick(aggregator.get());
  };
  push(0, 1);
  ticks();
  EXPECT_EQ(version(), 0u);  // of one or two nothing is learned
  for (uint64_t ticket = 2; ticket < 13; ++ticket) push(ticket);
  ticks();
  ASSERT_EQ(version(), 1u);
  EXPECT_EQ(worker_->readHistory(0, 1)->at(0).results_size(), 13);
  for (uint64_t ticket = 13; ticket < 16; ++ticket) push(ticket);
  ticks();
  ASSERT_EQ(version(), 2u);
  EXPECT_EQ(worker_->readHistory(1, 1)->at(0).results_size(), 3);
}

TEST_F(AggregatorTest, DropRefusesWhatIsTooOldAtItsUpdate) {
  announceModel();
  set({"spec.staleness.mode=drop", "spec.staleness.maxLag=0"});
  auto aggregator = start("a");
  ASSERT_TRUE(tick(aggregator.get()));
  for (uint64_t ticket = 0; ticket < 5; ++ticket) push(ticket);  // two of these grow old
  ASSERT_TRUE(tick(aggregator.get()));
  for (uint64_t ticket = 5; ticket < 8; ++ticket) push(ticket);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(tick(aggregator.get()));
  EXPECT_EQ(version(), 2u);
  EXPECT_EQ(worker_->readRefusalCounts()->at("stale"), 2u);
  EXPECT_EQ((*worker_->readState())->lag_counts(0), 6u);
}

TEST_F(AggregatorTest, AnEditedFileIsTakenUpOrRefusedWithTheReason) {
  auto store = openMemoryStore(server_);
  ASSERT_TRUE(beginRun(store.get(), run_));
  RunSpec edited = run_;
  edited.experiment.mutable_spec()->mutable_update()->set_max_updates(9);
  edited.sha256 = specDigest(edited.experiment);
  set({"spec.update.learningRate=0.2"});  // by command; the file must not take it back
  ASSERT_TRUE(beginRun(store.get(), edited));
  const Control control = **store->readControl();
  EXPECT_EQ(control.experiment.spec().update().max_updates(), 9u);
  EXPECT_EQ(control.experiment.spec().update().learning_rate(), 0.2);
  // From the first evaluation on.
  v1::EvaluationResult evaluated;
  evaluated.mutable_unit()->set_unit_id("a");
  const Leadership leader(*store, store->acquireLease("a", 60'000)->epoch);
  ASSERT_TRUE(leader.planUnits({evaluated.unit()}));
  ASSERT_TRUE(store->pushEvaluation(evaluated));
  ASSERT_TRUE(leader.acceptEvaluations(*store->readRecorded(1)));
  edited.experiment.mutable_spec()->mutable_policy()->set_total_budget(9);
  edited.sha256 = specDigest(edited.experiment);
  EXPECT_THAT(
      beginRun(store.get(), edited),
      isError(ErrorCode::kUsage,
              AllOf(HasSubstr("spec.policy.totalBudget cannot change from 8 to 9"),
                    HasSubstr("it has 1 evaluation of the other value"), HasSubstr("allot fork"))));
  EXPECT_EQ((*store->readControl())->revision, control.revision);
}

// One that has begun goes on, though nothing is learned in it.
TEST_F(AggregatorTest, ALeastPerLayerThatLeavesNothingIsRefusedWhereTheRunHasNotBegun) {
  run_.experiment.mutable_spec()->mutable_policy()->set_min_per_layer(2);
  run_.sha256 = specDigest(run_.experiment);
  announceModel();
  auto store = openMemoryStore(server_);
  auto aggregator = start("a", store.get());
  EXPECT_THAT(aggregator->tick(),
              isError(ErrorCode::kUsage, HasSubstr("nothing is left to learn")));
  EXPECT_FALSE((*worker_->readPolicy()).has_value());

  now_ += 20'000;  // the lease runs out
  auto other = openMemoryStore(server_);
  Leadership lead(*other, other->acquireLease("other", 1000)->epoch);
  const v1::AggregatorState initial = initialState(run_.experiment, kLayers);
  ASSERT_TRUE(lead.publishInitial(initial.policy(), initial));
  now_ += 20'000;
  auto successor = start("b", store.get());
  EXPECT_THAT(successor->tick(), succeeds());
}

TEST_F(AggregatorTest, AForkBeginsWithThePolicyOfItsOrigin) {
  v1::AggregatorState parent = initialState(run_.experiment, kLayers);
  parent.mutable_policy()->set_version(40);
  parent.mutable_policy()->set_logits(1, 2.5);
  parent.set_optimizer_steps(40);
  parent.set_episodes(120);
  run_.origin = originOf(run_.experiment, "parent", parent);
  auto aggregator = lead();
  EXPECT_EQ(version(), 0u);
  EXPECT_EQ((*worker_->readPolicy())->snapshot.logits(1), 2.5);
  EXPECT_EQ((*worker_->readState())->episodes(), 0u);
  EXPECT_EQ(*worker_->openUnits(), 4u);  // uniform and what the origin had learned, two chunks each
  for (uint64_t ticket = 0; ticket < 3; ++ticket) push(ticket);
  ASSERT_TRUE(tick(aggregator.get()));
  EXPECT_EQ((*worker_->readState())->optimizer_steps(), 41u);
}

// The store knows a unit by its id alone, so nothing else in a forged one may say which it was.
TEST_F(AggregatorTest, AForgedVersionDoesNotTakeAUnitAway) {
  auto aggregator = lead();
  v1::EvaluationResult forged;
  *forged.mutable_unit() = claimOne();
  forged.set_worker(identityOf("w").name());
  forged.mutable_unit()->set_policy_version(1);
  ASSERT_EQ(*worker_->pushEvaluation(forged), PushOutcome::kAccepted);
  ASSERT_TRUE(tick(aggregator.get()));
  EXPECT_EQ(worker_->readRefusalCounts()->at("invalid"), 1u);
  EXPECT_EQ(*worker_->openUnits(), 2u);
}

// A name is its worker's own: what another key has signed is refused, whatever `pending` and
// `units_done` say.
TEST_F(AggregatorTest, NobodySpeaksForAnotherWorker) {
  auto aggregator = lead();
  const auto refusedFor = [&](const std::string& reason) {
    EXPECT_TRUE(tick(aggregator.get()));
    const auto refusals = *worker_->readRefusals(1);
    EXPECT_EQ(refusals.at(0).kind, "invalid");
    EXPECT_THAT(refusals[0].reason, HasSubstr(reason));
  };
  const std::string true_bytes = episode(0).SerializeAsString();
  const std::string signature =
      identityOf("w").sign({kSignedResult, worker_->runId(), run_.sha256}, true_bytes);
  v1::EpisodeResult better = episode(1);
  better.set_worker(identityOf("w").name());
  for (v1::QuestionScore& score : *better.mutable_scores()) score.set_score(1);
  better.set_reward(1);
  const std::string bytes = better.SerializeAsString();
  const auto forge = [&](const std::string& forged) {
    server_->injectIntoInbox(better.result_id(), bytes, forged, true);
  };
  forge("");
  refusedFor("no worker's signature");
  forge(signature);
  refusedFor("of another content");
  forge(identityOf("liar").sign({kSignedResult, worker_->runId(), run_.sha256}, bytes));
  refusedFor("another key");
  forge(identityOf("w").sign({kSignedEvaluation, worker_->runId(), run_.sha256}, bytes));
  refusedFor("kind");
  forge(identityOf("w").sign({kSignedResult, "another run", run_.sha256}, bytes));
  refusedFor("run");
  // As of before the run was replaced.
  forge(identityOf("w").sign({kSignedResult, worker_->runId(), "another"}, bytes));
  refusedFor("experiment");

  const v1::EvaluationUnit unit = claimOne();
  ASSERT_EQ(*worker_->pushEvaluation(truth(unit, 0.5)), PushOutcome::kAccepted);
  const std::string its_own = valueOf(worker_->readRecorded(1)).at(0).signature;
  v1::EvaluationResult answers = truth(unit, 0.5);
  answers.mutable_answers()->add_answers()->set_text("another");
  v1::EvaluationResult renamed = truth(unit, 0.5);
  renamed.set_worker(identityOf("v").name());
  for (const auto& [result, of, reason] :
       {std::tuple{truth(unit, 1), its_own, "of another content"},
        {answers, its_own, "of another content"},
        {truth(unit, 0.5), signature, "of another content"},
        {renamed, its_own, "another key"},
        {truth(unit, 1), std::string(), "no worker's signature"}}) {
    server_->injectEvaluation(result, of);
    refusedFor(reason);
  }
  EXPECT_EQ(*worker_->openUnits(), 2u);
  beat("w", "idle");
  now_ += 6'000;
  EXPECT_THAT(aggregator->snapshot().waiting, Not(HasSubstr("held back")));
  // The same bytes under the same signature are the worker's, whoever put them there.
  server_->injectEvaluation(truth(unit, 0.5), its_own);
  server_->injectIntoInbox(episode(0).result_id(), true_bytes, signature, true);
  push(2, 3);
  ASSERT_TRUE(tick(aggregator.get()));
  ASSERT_TRUE(tick(aggregator.get()));
  EXPECT_EQ(version(), 1u);
  EXPECT_TRUE(valueOf(worker_->readAnswers("", 1)).at(0).accepted);
}

TEST_F(AggregatorTest, AForgedEvaluationIsRefusedAndItsUnitDoneAgain) {
  auto aggregator = lead();
  const v1::EvaluationUnit unit = claimOne();
  v1::EvaluationResult forged = truth(unit, 1);
  forged.mutable_unit()->set_total_budget(1'000'000);  // a cell that nobody asked for
  ASSERT_EQ(*worker_->pushEvaluation(forged), PushOutcome::kAccepted);
  ASSERT_TRUE(tick(aggregator.get()));
  EXPECT_EQ(worker_->readRefusalCounts()->at("invalid"), 1u);
  for (uint64_t ticket = 0; ticket < 12; ++ticket) push(ticket);
  now_ += 2000;  // the claim on the other unit ends
  finish(aggregator.get());
  for (const auto& cell : aggregator->snapshot().cells) {
    EXPECT_TRUE(cell.complete);
    EXPECT_EQ(cell.total_budget, 8u);
  }
}

// No machine's fault any more: doing it again at once would go on for ever.
TEST_F(AggregatorTest, AUnitRefusedThriceFromTwoWorkersIsHeldBackAndNamed) {
  auto aggregator = lead();
  const v1::EvaluationUnit other = claimOne();
  ASSERT_TRUE(worker_->pushEvaluation(truth(other)));
  std::string refused;
  for (const std::string worker : {"one", "one", "two"}) {
    const v1::EvaluationUnit unit = claimOne(worker);
    EXPECT_TRUE(refused.empty() || refused == unit.unit_id());
    refused = unit.unit_id();
    v1::EvaluationResult result = truth(unit);
    result.mutable_scores(0)->set_score(2);
    result.set_worker(identityOf(worker).name());
    worker_->signAs(identityOf(worker));
    ASSERT_EQ(*worker_->pushEvaluation(result), PushOutcome::kAccepted);
    ASSERT_TRUE(tick(aggregator.get()));
  }
  worker_->signAs(identityOf("w"));
  EXPECT_EQ(*worker_->openUnits(), 1u);  // it is waited for,
  EXPECT_TRUE(worker_->claimUnits({.holder = "three", .lease_ms = 1000})->empty());
  now_ += 6'000;
  beat("three", "idle", "", 600'000);
  ASSERT_TRUE(tick(aggregator.get()));
  const std::string waiting = aggregator->snapshot().waiting;
  EXPECT_THAT(waiting, HasSubstr("unit " + refused + " was refused 3 times, from " +
                                 identityOf("one").name() + ", " + identityOf("two").name()));
  EXPECT_THAT(waiting, HasSubstr("scores that cannot be"));
  now_ += 600'000;  // and tried again later
  ASSERT_TRUE(worker_->pushEvaluation(truth(claimOne("three"))));
  ASSERT_TRUE(tick(aggregator.get()));
  EXPECT_EQ(*worker_->openUnits(), 0u);
  now_ += 6'000;
  EXPECT_THAT(aggregator->snapshot().waiting, Not(HasSubstr("refused")));
}

TEST_F(AggregatorTest, ResultsReadBesideOneThatCouldNotBeRefusedAreNotForgotten) {
  auto aggregator = lead();
  server_->injectIntoInbox("junk", "\xff\xff\xff");
  push(0, 1);
  server_->loseNextReject();
  EXPECT_EQ(codeOf(aggregator->tick()), ErrorCode::kUnavailable);
  push(2);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(tick(aggregator.get()));
  EXPECT_EQ(worker_->readRefusals(100)->size(), 1u);
  EXPECT_EQ(version(), 1u);
}

// It would hold what its successor has consumed, and go on from a policy of before.
TEST_F(AggregatorTest, AfterASuccessorThatHasLeftTheOldOneDoesNotLeadOn) {
  announceModel();
  auto first_store = openMemoryStore(server_), second_store = openMemoryStore(server_);
  auto first = start("a", first_store.get());
  ASSERT_TRUE(tick(first.get()));
  now_ += 20'000;  // the lease runs out
  auto second = start("b", second_store.get());
  ASSERT_TRUE(tick(second.get()));
  ASSERT_TRUE(second_store->releaseLease("b"));
  EXPECT_EQ(codeOf(first->tick()), ErrorCode::kFenced);
}

TEST_F(AggregatorTest, ASuccessorGoesOnAndTheOldOneIsFenced) {
  announceModel();
  auto first_store = openMemoryStore(server_), second_store = openMemoryStore(server_);
  auto first = start("a", first_store.get());
  ASSERT_TRUE(tick(first.get()));
  for (uint64_t ticket = 0; ticket < 4; ++ticket) push(ticket);
  ASSERT_TRUE(tick(first.get()));
  EXPECT_EQ(version(), 1u);  // the fourth result is held by the first
  auto second = start("b", second_store.get());
  EXPECT_EQ(codeOf(second->tick()), ErrorCode::kUnavailable);
  now_ += 20'000;  // the lease runs out
  ASSERT_TRUE(tick(second.get()));
  push(4, 5);
  ASSERT_TRUE(tick(second.get()));
  EXPECT_EQ(version(), 2u);  // made of the fourth result, too
  push(6, 7, 8);
  EXPECT_EQ(codeOf(first->tick()), ErrorCode::kFenced);
  EXPECT_EQ(version(), 2u);
}

TEST_F(AggregatorTest, SynchronousTakesEachTicketOnceUnderItsOwnPolicyAndReissuesLostOnes) {
  run_.synchronous = true;
  auto aggregator = lead();
  evaluateAll();
  const auto tickets = worker_->takeTickets({3, 3});
  EXPECT_THAT(*tickets, ElementsAre(0, 1, 2));
  push(2, 0);
  auto twice = episode(0);
  twice.set_result_id("again");
  ASSERT_TRUE(worker_->pushResult(twice, 100));
  ASSERT_TRUE(tick(aggregator.get()));
  EXPECT_EQ(worker_->readRefusals(100)->size(), 1u);
  EXPECT_TRUE(worker_->takeTickets({1, 3})->empty());
  now_ += 11'000;
  ASSERT_TRUE(tick(aggregator.get()));
  EXPECT_THAT(*worker_->takeTickets({1, 3}), ElementsAre(1));
  push(1);
  ASSERT_TRUE(tick(aggregator.get()));
  EXPECT_EQ(version(), 1u);
  const auto records = worker_->readHistory(0, 10);
  ASSERT_EQ(records->size(), 1u);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(records->front().results(i).ticket(), uint64_t(i));
}

// An aggregator that ended before it took a whole update takes it when it is back, and nobody is
// said to have broken the count of tickets.
TEST_F(AggregatorTest, SynchronousTakesAWholeUpdateThatWaited) {
  run_.synchronous = true;
  auto aggregator = lead();
  evaluateAll();
  ASSERT_THAT(*worker_->takeTickets({3, 3}), ElementsAre(0, 1, 2));
  for (uint64_t ticket = 0; ticket < 3; ++ticket) push(ticket);
  aggregator.reset();
  now_ += 60'000;
  aggregator = lead();
  EXPECT_EQ(version(), 1u);
  EXPECT_EQ(*worker_->nextTicket(), 3u);
  EXPECT_EQ(aggregator->snapshot().last_error, "");
}

// A large batch takes longer than a dead worker's tickets are waited for.
TEST_F(AggregatorTest, WhatALiveWorkerIsAtIsNotHandedOutAgain) {
  run_.synchronous = true;
  auto aggregator = lead();
  evaluateAll();
  ASSERT_TRUE(tick(aggregator.get()));
  ASSERT_EQ(worker_->takeTickets({3, 3})->size(), 3u);
  const auto after = [&](uint64_t seconds, bool beats) {
    for (uint64_t i = 0; i < seconds; ++i) {
      now_ += 1000;
      if (beats && i % 4 == 0) beat("slow", "rollout", "", 60'000);
      ASSERT_TRUE(tick(aggregator.get()));
    }
  };
  after(60, true);
  EXPECT_THAT(*worker_->takeTickets({.count = 3, .limit = 3}), IsEmpty());
  after(25, false);  // it has died, though it is not forgotten yet
  EXPECT_THAT(*worker_->takeTickets({.count = 3, .limit = 3}), ElementsAre(0, 1, 2));
}

TEST(HistorySample, GivesTheMemoryOfResultsBack) {
  HistorySample sample;
  const size_t before = mallinfo2().uordblks;
  for (uint64_t version = 1; version <= 20; ++version) {
    v1::IterationRecord record;
    record.set_version(version);
    for (int i = 0; i < 2000; ++i) {
      record.add_results()->set_result_id("a name that is too long to stand in the string itself");
      record.add_weights(1);
    }
    sample.add(std::move(record));
  }
  EXPECT_LT(mallinfo2().uordblks, before + 200'000);  // all of them are some 10 MB
}

TEST(HistorySample, KeepsWhatAFreshStartWouldLoadAndStaysSmall) {
  HistorySample sample;
  for (uint64_t version = 0; version <= 20'000; ++version) {
    if (version > 0) {
      v1::IterationRecord record;
      record.set_version(version);
      record.add_results();
      sample.add(record);
    }
    if (version % 997 > 3 && version % 1000 > 2) continue;
    std::vector<uint64_t> kept;
    for (const auto& record : sample.records()) {
      kept.push_back(record.version());
      EXPECT_EQ(record.results_size(), 0);
    }
    ASSERT_EQ(kept, HistorySample::versionsToLoad(version));
    ASSERT_LE(kept.size(), HistorySample::kPoints + HistorySample::kRecent + HistorySample::kFirst);
    if (version > 0) {
      ASSERT_EQ(kept.front(), 1u);
      ASSERT_EQ(kept.back(), version);
    }
  }
}

}  // namespace
}  // namespace allot
