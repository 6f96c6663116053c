// The run itself: its record, who leads, what people change, and its import.
#include <limits>

#include "core/digest.h"
#include "tests/store/conformance_suite.h"

namespace allot::test {
namespace {

TEST_P(StoreConformance, CreatesARunOnceAndRefusesAnotherExperiment) {
  EXPECT_EQ(store_->readSpec().value(), std::nullopt);
  ASSERT_TRUE(succeeded(store_->createRun(runSpec("aa"))));
  ASSERT_TRUE(succeeded(store_->createRun(runSpec("aa"))));
  const auto other = backend_->open()->createRun(runSpec("bb"));
  EXPECT_TRUE(failsWith(other, ErrorCode::kUsage));
  EXPECT_TRUE(failsWith(store_->createRun(runSpec("")), ErrorCode::kUsage));
  const auto spec = valueOf(store_->readSpec().value());
  EXPECT_EQ(spec.experiment.SerializeAsString(), runSpec("aa").experiment.SerializeAsString());
  EXPECT_EQ(spec.sha256, "aa");
  EXPECT_TRUE(spec.synchronous);
  EXPECT_EQ(spec.started_unix_ms, 1'700'000'000'123u);
}

TEST_P(StoreConformance, TheFirstModelFactsStand) {
  EXPECT_FALSE(store_->readModel().value().has_value());
  v1::ModelFacts first, second;
  first.set_layers(4);
  second.set_layers(5);
  EXPECT_EQ(store_->agreeOnModel(first)->layers(), 4u);
  EXPECT_EQ(backend_->open()->agreeOnModel(second)->layers(), 4u);
  EXPECT_EQ(store_->readModel().value()->layers(), 4u);
}

TEST_P(StoreConformance, ARunKeepsItsArithmetic) {
  RunSpec spec = runSpec("aa");
  spec.arithmetic = "exact-7";
  ASSERT_TRUE(succeeded(store_->createRun(spec)));
  ASSERT_TRUE(succeeded(store_->createRun(runSpec("aa"))));  // no error, and nothing changes
  EXPECT_EQ(store_->readSpec().value()->arithmetic, "exact-7");
}

TEST_P(StoreConformance, AForkKeepsItsOrigin) {
  RunSpec spec = runSpec("aa");
  spec.origin.emplace();
  spec.origin->set_run_id("01HA");
  spec.origin->set_version(12);
  *spec.origin->mutable_state() = state(0, 120);
  ASSERT_TRUE(succeeded(store_->createRun(spec)));
  ASSERT_TRUE(succeeded(store_->createRun(runSpec("aa"))));  // no error, and nothing changes
  const auto read = store_->readSpec().value();
  ASSERT_TRUE(read.has_value() && read->origin.has_value());
  EXPECT_EQ(read->origin->SerializeAsString(), spec.origin->SerializeAsString());
}

TEST_P(StoreConformance, ControlIsChangedByCompareAndSet) {
  EXPECT_FALSE(store_->readControl().value().has_value());
  EXPECT_FALSE(store_->changeControl(Control()).value());  // there is none to change
  EXPECT_FALSE(store_->readControl().value().has_value());
  ASSERT_TRUE(succeeded(store_->createRun(runSpec("aa"))));
  auto control = store_->readControl().value().value();
  EXPECT_EQ(control.desired, Desired::kRunning);
  EXPECT_EQ(control.revision, 1u);
  EXPECT_EQ(control.experiment.SerializeAsString(), runSpec("aa").experiment.SerializeAsString());
  EXPECT_EQ(control.file.SerializeAsString(), runSpec("aa").experiment.SerializeAsString());

  control.desired = Desired::kPaused;
  control.experiment.mutable_spec()->mutable_update()->set_max_updates(9);
  control.experiment.mutable_spec()->mutable_update()->set_learner("reinforce");
  control.file.set_name("other");
  EXPECT_TRUE(store_->changeControl(control).value());
  EXPECT_FALSE(backend_->open()->changeControl(control).value());  // revision 1 is gone
  ASSERT_TRUE(succeeded(store_->createRun(runSpec("aa"))));        // a restart leaves it alone
  auto changed = backend_->open()->readControl().value().value();
  EXPECT_EQ(changed.desired, Desired::kPaused);
  EXPECT_EQ(changed.revision, 2u);
  EXPECT_EQ(changed.experiment.SerializeAsString(), control.experiment.SerializeAsString());
  EXPECT_EQ(changed.file.name(), "other");
  for (const Desired desired :
       {Desired::kStopped, Desired::kFinished, Desired::kRunning, Desired::kPaused}) {
    changed.desired = desired;
    ASSERT_TRUE(store_->changeControl(changed).value());
    changed = store_->readControl().value().value();
    EXPECT_EQ(changed.desired, desired);
  }
  EXPECT_EQ(store_->readControl().value()->revision, 6u);
}

RunSpec edited(const std::string& sha256) {
  RunSpec spec = runSpec(sha256);
  spec.experiment.mutable_spec()->set_seed(8);
  spec.started_unix_ms = 5;
  spec.synchronous = false;
  spec.build = "allot 2";
  return spec;
}

Control controlOf(const RunSpec& spec, uint64_t revision) {
  return {Desired::kRunning, spec.experiment, spec.experiment, revision};
}

TEST_P(StoreConformance, UntilSomethingCountsARunIsReplacedWhole) {
  RunSpec first = runSpec("aa");
  first.origin.emplace().set_run_id("01HA");
  ASSERT_TRUE(succeeded(store_->createRun(first)));
  Control paused = controlOf(first, 1);
  paused.desired = Desired::kPaused;
  ASSERT_TRUE(store_->changeControl(paused).value());
  auto worker = backend_->open();
  ASSERT_TRUE(worker->readSpec().value().has_value());
  ASSERT_TRUE(succeeded(worker->agreeOnModel({})));
  const Leadership leader = lead("old");
  ASSERT_TRUE(succeeded(leader.planUnits({unit(0, 0, "a"), unit(0, 1, "b")})));
  ASSERT_THAT(store_->takeTickets({7, 100}).value(), SizeIs(7));
  ASSERT_TRUE(succeeded(leader.reissueTicket(3)));
  push("waits");
  push("refused");
  const auto entries = store_->readInbox(10, 0).value();
  ASSERT_THAT(entries, SizeIs(2));
  ASSERT_TRUE(succeeded(leader.reject(entries[1], RefusalKind::kInvalid, "no")));

  const RunSpec next = edited("bb");
  EXPECT_EQ(store_->replaceRun(next, controlOf(next, 1)).value().outcome,
            Replacement::Outcome::kChanged);
  EXPECT_EQ(store_->readSpec().value()->sha256, "aa");
  ASSERT_EQ(store_->replaceRun(next, controlOf(next, 2)).value().outcome,
            Replacement::Outcome::kReplaced);
  EXPECT_EQ(store_->replaceRun(next, controlOf(next, 2)).value().outcome,
            Replacement::Outcome::kChanged);  // a lost reply: repeated

  auto other = backend_->open();
  const auto spec = valueOf(other->readSpec().value());
  EXPECT_EQ(spec.sha256, "bb");
  EXPECT_EQ(spec.experiment.spec().seed(), 8u);
  EXPECT_EQ(spec.build, "allot 2");
  EXPECT_TRUE(spec.synchronous);
  EXPECT_EQ(spec.started_unix_ms, first.started_unix_ms);
  EXPECT_EQ(spec.origin->run_id(), "01HA");
  const Control control = other->readControl().value().value();
  EXPECT_EQ(control.desired, Desired::kPaused);
  EXPECT_EQ(control.revision, 3u);
  EXPECT_EQ(control.experiment.spec().seed(), 8u);
  EXPECT_EQ(control.file.spec().seed(), 8u);
  EXPECT_FALSE(other->readModel().value().has_value());
  EXPECT_FALSE(other->readPolicy().value().has_value());
  EXPECT_FALSE(other->readState().value().has_value());
  EXPECT_EQ(other->inboxSize().value(), 0u);
  EXPECT_EQ(other->openUnits().value(), 0u);
  EXPECT_EQ(other->nextTicket().value(), 0u);
  EXPECT_EQ(other->takeTickets({1, 100}).value(), std::vector<uint64_t>{0});
  EXPECT_EQ(other->readRefusalCounts()->at("invalid"), 0u);

  // Who led leads no more, and what was made for the old experiment is not taken.
  EXPECT_TRUE(failsWith(leader.publishInitial(policy(0), state(0)), ErrorCode::kFenced));
  EXPECT_FALSE(other->readLease()->held);
  const uint64_t successor = other->acquireLease("new", 3'600'000)->epoch;
  EXPECT_GT(successor, leader.epoch());
  ASSERT_TRUE(succeeded(Leadership(*other, successor).publishInitial(policy(0), state(0))));
  ASSERT_TRUE(succeeded(Leadership(*other, successor).planUnits({unit(0, 0, "a")})));
  EXPECT_TRUE(failsWith(worker->agreeOnModel({}), ErrorCode::kFenced));
  EXPECT_TRUE(failsWith(worker->pushResult(result("stale"), 10), ErrorCode::kFenced));
  EXPECT_TRUE(
      failsWith(worker->pushEvaluation(evaluationOf(unit(0, 0, "a"), "w")), ErrorCode::kFenced));
  EXPECT_EQ(other->inboxSize().value(), 0u);
  EXPECT_EQ(other->openUnits().value(), 1u);
  EXPECT_FALSE(other->readModel().value().has_value());
  // Until it has looked again.
  ASSERT_TRUE(worker->readSpec().value().has_value());
  ASSERT_TRUE(succeeded(worker->agreeOnModel({})));
  EXPECT_EQ(worker->pushResult(result("waits"), 10).value(), PushOutcome::kAccepted);
  const auto fresh = other->readInbox(10, 0).value();
  EXPECT_TRUE(succeeded(Leadership(*other, successor).commit(commitOf(0, fresh))));
}

TEST_P(StoreConformance, OnceSomethingCountsNoRunIsReplaced) {
  ASSERT_TRUE(succeeded(store_->createRun(runSpec("aa"))));
  const Leadership leader = lead();
  ASSERT_TRUE(succeeded(leader.planUnits({unit(0, 0, "a")})));
  ASSERT_EQ(store_->pushEvaluation(evaluationOf(unit(0, 0, "a"), "w")).value(),
            PushOutcome::kAccepted);
  ASSERT_TRUE(succeeded(leader.acceptEvaluations(store_->readRecorded(10).value())));
  const RunSpec next = edited("bb");
  auto begun = store_->replaceRun(next, controlOf(next, 1)).value();
  EXPECT_EQ(begun.outcome, Replacement::Outcome::kBegun);
  EXPECT_EQ(begun.updates, 0u);
  EXPECT_EQ(begun.evaluations, 1u);

  // A refused one does not count, an update does.
  const auto recorded = store_->readEvaluations("", 10).value();
  ASSERT_THAT(recorded, SizeIs(1));
  ASSERT_TRUE(
      succeeded(leader.rejectEvaluation(recorded[0], RefusalKind::kInvalid, "no", nullptr, 0)));
  push("r1");
  ASSERT_TRUE(succeeded(leader.commit(commitOf(0, store_->readInbox(10, 0).value()))));
  begun = store_->replaceRun(next, controlOf(next, 1)).value();
  EXPECT_EQ(begun.outcome, Replacement::Outcome::kBegun);
  EXPECT_EQ(begun.updates, 1u);
  EXPECT_EQ(begun.evaluations, 0u);
  EXPECT_EQ(store_->readSpec().value()->sha256, "aa");
  EXPECT_EQ(store_->readControl().value()->revision, 1u);
  EXPECT_EQ(store_->readPolicy().value()->snapshot.version(), 1u);
  EXPECT_TRUE(succeeded(leader.writeState(state(1))));  // and nobody was fenced off
}

TEST_P(StoreConformance, ARunOfADevelopmentBuildIsRefused) {
  RunSpec old = runSpec("aa");
  old.schema = 0;  // no number was stored
  old.build = "allot 0.0";
  ASSERT_TRUE(succeeded(store_->createRun(old)));
  const auto refused = backend_->open()->readSpec();
  ASSERT_TRUE(failsWith(refused, ErrorCode::kUsage));
  EXPECT_THAT(refused.error().message, HasSubstr("a development build before 0.1.0, allot 0.0,"));
}

TEST_P(StoreConformance, ARunOfANewerBuildIsRefused) {
  RunSpec newer = runSpec("aa");
  newer.schema = kNextSchema;
  newer.build = "allot 9";
  ASSERT_TRUE(succeeded(store_->createRun(newer)));
  EXPECT_THAT(backend_->open()->readSpec(),
              isError(ErrorCode::kUsage, HasSubstr("newer build, allot 9")));
}

TEST_P(StoreConformance, AnyoneSeesWhoLeads) {
  auto reader = backend_->open();
  auto lease = reader->readLease().value();
  EXPECT_FALSE(lease.held);
  EXPECT_EQ(lease.holder, "");
  EXPECT_EQ(lease.epoch, 0u);
  EXPECT_EQ(lease.remaining_ms, 0u);
  EXPECT_EQ(store_->acquireLease("a", 5000)->remaining_ms, 5000u);
  backend_->advance(30);
  lease = reader->readLease().value();
  EXPECT_TRUE(lease.held);
  EXPECT_EQ(lease.holder, "a");
  EXPECT_EQ(lease.epoch, 1u);
  EXPECT_GT(lease.remaining_ms, 0u);
  EXPECT_LE(lease.remaining_ms, 4970u);
  const auto refused = store_->acquireLease("b", 5000).value();
  EXPECT_FALSE(refused.held);
  EXPECT_GT(refused.remaining_ms, 0u);
  EXPECT_LE(refused.remaining_ms, 4970u);
  ASSERT_TRUE(succeeded(store_->acquireLease("a", 20)));
  backend_->advance(40);
  EXPECT_FALSE(reader->readLease()->held);
  EXPECT_EQ(reader->readLease()->holder, "");
  EXPECT_EQ(reader->readLease()->epoch, 1u);
  ASSERT_TRUE(succeeded(store_->acquireLease("b", 5000)));
  ASSERT_TRUE(succeeded(store_->releaseLease("b")));
  EXPECT_FALSE(reader->readLease()->held);
  EXPECT_EQ(reader->readLease()->remaining_ms, 0u);
}

TEST_P(StoreConformance, WorkersAnswerAuditsAndTheLeaderHearsThoseWhomItAsked) {
  const Leadership leader = lead();
  const auto worker = backend_->open();
  const auto none = [] { return false; };
  while (worker->awaitNews(1, none).value()) {
  }
  std::vector<v1::AuditTasks> tasks(2);
  for (size_t i = 0; i < tasks.size(); ++i) {
    tasks[i].set_worker("w" + std::to_string(i));
    tasks[i].set_number(7 + i);
    tasks[i].add_tasks()->set_ticket(i);
  }
  EXPECT_FALSE(worker->readAudits("w0").value().has_value());
  EXPECT_THAT(leader.exchangeAudits(tasks).value(), IsEmpty());
  EXPECT_TRUE(worker->awaitNews(1, none).value());
  EXPECT_THAT(leader.exchangeAudits(tasks).value(), IsEmpty());
  EXPECT_FALSE(worker->awaitNews(1, none).value());  // nothing new
  EXPECT_EQ(worker->readAudits("w1").value()->SerializeAsString(), tasks[1].SerializeAsString());
  v1::AuditAnswers answers;
  answers.set_number(8);
  EXPECT_TRUE(failsWith(worker->answerAudits(answers), ErrorCode::kUsage));  // nobody's
  for (const char* name : {"w1", "w1", "stranger"}) {
    answers.set_worker(name);
    answers.add_answers()->add_scores()->set_score(1);
    ASSERT_TRUE(succeeded(worker->answerAudits(answers)));
  }
  answers.set_worker("w0");
  answers.set_build(std::string(kLargestAudit, 'x'));
  EXPECT_TRUE(failsWith(worker->answerAudits(answers), ErrorCode::kUsage));
  tasks.erase(tasks.begin());
  const auto heard = leader.exchangeAudits(tasks).value();
  ASSERT_THAT(heard, SizeIs(1));
  EXPECT_EQ(heard[0].worker(), "w1");
  EXPECT_EQ(heard[0].answers_size(), 2);  // the later ones
  EXPECT_FALSE(worker->readAudits("w0").value().has_value());
  EXPECT_THAT(leader.exchangeAudits(tasks).value(), IsEmpty());
}

TEST_P(StoreConformance, TheLeaderSpeaksOfItself) {
  EXPECT_FALSE(store_->readStatus().value().has_value());
  const Leadership leader = lead();
  v1::AggregatorStatus status;
  status.set_phase("running");
  ASSERT_TRUE(succeeded(leader.publishStatus(status)));
  status.set_waiting("no worker");
  ASSERT_TRUE(succeeded(leader.publishStatus(status)));
  EXPECT_EQ(backend_->open()->readStatus().value()->SerializeAsString(),
            status.SerializeAsString());
}

TEST_P(StoreConformance, LeaseGoesToOneHolderUntilItExpires) {
  auto other = backend_->open();
  const auto first = store_->acquireLease("a", 100).value();
  EXPECT_TRUE(first.held);
  EXPECT_EQ(first.epoch, 1u);
  const auto refused = other->acquireLease("b", 100).value();
  EXPECT_FALSE(refused.held);
  EXPECT_EQ(refused.holder, "a");
  EXPECT_EQ(store_->acquireLease("a", 100)->epoch, 1u);  // renewed
  backend_->advance(120);
  const auto second = other->acquireLease("b", 3'600'000).value();
  EXPECT_TRUE(second.held);
  EXPECT_EQ(second.epoch, 2u);
  EXPECT_FALSE(store_->acquireLease("a", 100)->held);

  ASSERT_TRUE(succeeded(store_->releaseLease("a")));  // not the holder: no effect
  EXPECT_FALSE(store_->acquireLease("a", 100)->held);
  ASSERT_TRUE(succeeded(other->releaseLease("b")));
  EXPECT_EQ(store_->acquireLease("a", 100)->epoch, 3u);  // an epoch never comes twice
  EXPECT_TRUE(failsWith(store_->acquireLease("", 100), ErrorCode::kUsage));
}

// Whoever held the lease when the server's clock was set back is waited for as long as its lease
// lasts, not as long as the clock was set back.
TEST_P(StoreConformance, AClockSetBackAnHourDoesNotMakeALeaseLonger) {
  ASSERT_TRUE(store_->acquireLease("a", 60)->held);
  backend_->turnBack(3'600'000);
  auto other = backend_->open();
  EXPECT_EQ(other->readLease()->holder, "a");
  EXPECT_LE(other->readLease()->remaining_ms, 60u);
  const auto refused = other->acquireLease("b", 5000).value();
  EXPECT_FALSE(refused.held);
  EXPECT_LE(refused.remaining_ms, 60u);
  backend_->advance(80);
  EXPECT_TRUE(other->acquireLease("b", 5000)->held);
  // A holder that lives renews it under the new clock.
  backend_->turnBack(3'600'000);
  EXPECT_EQ(other->acquireLease("b", 5000)->remaining_ms, 5000u);
  EXPECT_FALSE(store_->acquireLease("a", 60)->held);
  EXPECT_EQ(store_->readLease()->epoch, 2u);
}

TEST_P(StoreConformance, AClockSetBackAnHourDoesNotKeepDeadWorkersAlive) {
  ASSERT_TRUE(succeeded(beat("dead", 30'000)));
  ASSERT_TRUE(succeeded(beat("alive", 30'000)));
  backend_->turnBack(3'600'000);
  ASSERT_TRUE(succeeded(beat("alive", 30'000)));
  const auto workers = store_->listWorkers().value();
  ASSERT_EQ(workers.size(), 1u);
  EXPECT_EQ(workers[0].worker(), "alive");
}

TEST_P(StoreConformance, AnOldEpochIsFencedEverywhere) {
  EXPECT_TRUE(
      failsWith(Leadership(*store_, 0).publishInitial(policy(0), state(0)), ErrorCode::kFenced));
  const Leadership displaced(*store_, store_->acquireLease("a", 20)->epoch);
  ASSERT_TRUE(succeeded(displaced.publishInitial(policy(0), state(0))));
  push("r1");
  const auto entries = store_->readInbox(10, 0).value();
  ASSERT_TRUE(succeeded(displaced.planUnits({unit(0, 1, "done")})));
  ASSERT_TRUE(succeeded(store_->pushEvaluation(evaluationOf(unit(0, 1, "done"), "w"))));
  const auto recorded = store_->readRecorded(10).value();
  backend_->advance(40);
  const uint64_t epoch = backend_->open()->acquireLease("b", 3'600'000)->epoch;

  const auto commit = commitOf(0, entries);
  EXPECT_TRUE(failsWith(displaced.commit(commit), ErrorCode::kFenced));
  EXPECT_TRUE(failsWith(displaced.writeState(state(0, 9)), ErrorCode::kFenced));
  EXPECT_TRUE(failsWith(displaced.publishInitial(policy(0), state(0)), ErrorCode::kFenced));
  EXPECT_TRUE(
      failsWith(displaced.reject(entries[0], RefusalKind::kStale, "no"), ErrorCode::kFenced));
  EXPECT_TRUE(
      failsWith(displaced.rejectEvaluation(recorded[0], RefusalKind::kInvalid, "no", nullptr, 0),
                ErrorCode::kFenced));
  EXPECT_TRUE(failsWith(displaced.publishStatus({}), ErrorCode::kFenced));
  EXPECT_TRUE(failsWith(displaced.planUnits({unit(0, 0, "dense")}), ErrorCode::kFenced));
  EXPECT_TRUE(failsWith(displaced.planUnits({}), ErrorCode::kFenced));
  EXPECT_TRUE(failsWith(displaced.withdrawUnits(), ErrorCode::kFenced));
  EXPECT_TRUE(failsWith(displaced.acceptEvaluations(recorded), ErrorCode::kFenced));
  EXPECT_TRUE(failsWith(displaced.repair({}), ErrorCode::kFenced));
  EXPECT_TRUE(failsWith(displaced.exchangeAudits({}), ErrorCode::kFenced));

  EXPECT_EQ(store_->readPolicy().value()->snapshot.version(), 0u);
  EXPECT_EQ(store_->readState().value()->episodes(), 0u);
  EXPECT_EQ(store_->inboxSize().value(), 1u);
  EXPECT_EQ(store_->openUnits().value(), 1u);
  EXPECT_THAT(store_->readRecorded(10).value(), SizeIs(1));
  EXPECT_FALSE(store_->readStatus().value().has_value());
  EXPECT_EQ(store_->readRefusalCounts()->at("stale"), 0u);
  EXPECT_TRUE(succeeded(Leadership(*store_, epoch).commit(commitOf(0, entries))));
}

// What a run with two updates, two evaluations and an open unit looks like from outside.
struct Exported {
  RunImage image;
  std::vector<v1::IterationRecord> history;
  std::vector<v1::EvaluationResult> evaluations;
};

Exported exported() {
  Exported out;
  out.image.spec = runSpec("aa");
  out.image.control = {Desired::kPaused, runSpec("aa").experiment, runSpec("aa").experiment, 17};
  out.image.control.experiment.set_name("in force");
  out.image.model.emplace();
  out.image.model->set_layers(4);
  out.image.state = state(2, 3);
  out.image.next_ticket = 40;
  out.image.open_units = {unit(2, 1, "b"), unit(2, 1, "a"), unit(2, 0, "done")};
  out.history = {commitOf(0, {}).record, commitOf(1, {}).record};
  *out.history[0].add_results() = result("r1");
  *out.history[0].add_results() = result("r2");
  *out.history[1].add_results() = result("r3");
  out.evaluations = {evaluationOf(unit(2, 0, "done"), "w1"), evaluationOf(unit(1, 0, "x"), "w2")};
  return out;
}

TEST_P(StoreConformance, AnImportedRunGoesOnWhereItWas) {
  const Exported run = exported();
  ASSERT_TRUE(succeeded(store_->beginImport()));
  ASSERT_TRUE(succeeded(store_->importHistory({run.history[0]})));
  ASSERT_TRUE(succeeded(store_->importHistory({run.history[0]})));  // a lost reply: repeated
  ASSERT_TRUE(succeeded(store_->importHistory({run.history[1]})));
  ASSERT_TRUE(succeeded(store_->importEvaluations(run.evaluations)));
  ASSERT_TRUE(succeeded(store_->importEvaluations(run.evaluations)));
  auto other = backend_->open();
  EXPECT_EQ(other->readSpec().value(), std::nullopt);
  EXPECT_TRUE(failsWith(other->createRun(runSpec("aa")), ErrorCode::kUsage));  // keep out
  ASSERT_TRUE(succeeded(store_->endImport(run.image)));
  ASSERT_TRUE(succeeded(store_->endImport(run.image)));

  EXPECT_EQ(other->readSpec().value()->sha256, "aa");
  EXPECT_TRUE(other->readSpec().value()->synchronous);
  EXPECT_EQ(other->readControl().value()->desired, Desired::kPaused);
  EXPECT_EQ(other->readControl().value()->revision, 17u);
  EXPECT_EQ(other->readControl().value()->experiment.name(), "in force");
  EXPECT_EQ(other->readModel().value()->layers(), 4u);
  EXPECT_EQ(other->readPolicy().value()->sha256, sha256Hex(policy(2).SerializeAsString()));
  EXPECT_EQ(other->readState().value()->episodes(), 3u);
  EXPECT_EQ(other->nextTicket().value(), 40u);
  const auto history = other->readHistory(0, 10).value();
  ASSERT_THAT(history, SizeIs(2));
  for (size_t i = 0; i < 2; ++i)
    EXPECT_EQ(history[i].SerializeAsString(), run.history[i].SerializeAsString());
  const auto evaluations = other->readEvaluations("", 10).value();
  ASSERT_THAT(evaluations, SizeIs(2));
  for (size_t i = 0; i < 2; ++i)
    EXPECT_EQ(evaluations[i].result.SerializeAsString(), run.evaluations[i].SerializeAsString());

  // Nothing counts twice, and the run goes on.
  for (const char* id : {"r1", "r2", "r3"})
    EXPECT_EQ(other->pushResult(result(id), 10).value(), PushOutcome::kDuplicate);
  const uint64_t epoch = other->acquireLease("a", 3'600'000)->epoch;
  ASSERT_TRUE(succeeded(Leadership(*other, epoch).planUnits({unit(1, 0, "x")})));
  EXPECT_EQ(other->openUnits().value(), 2u);  // "done" is in the evaluations
  EXPECT_THAT(claimAll(), ElementsAre(unit(2, 1, "a").unit_id(), unit(2, 1, "b").unit_id()));
  EXPECT_EQ(other->pushEvaluation(evaluationOf(unit(2, 1, "a"), "w")).value(),
            PushOutcome::kAccepted);
  push("r4");
  const auto entries = other->readInbox(10, 0).value();
  EXPECT_TRUE(succeeded(Leadership(*other, epoch).commit(commitOf(2, entries))));
  EXPECT_TRUE(failsWith(backend_->open()->beginImport(), ErrorCode::kUsage));
  EXPECT_TRUE(failsWith(store_->importHistory({}), ErrorCode::kUsage));  // it is over
}

TEST_P(StoreConformance, AnInterruptedImportLeavesNothingBehind) {
  const Exported run = exported();
  EXPECT_TRUE(failsWith(store_->importHistory(run.history), ErrorCode::kUsage));  // not begun
  EXPECT_TRUE(failsWith(store_->importEvaluations(run.evaluations), ErrorCode::kUsage));
  EXPECT_TRUE(failsWith(store_->endImport(run.image), ErrorCode::kUsage));
  ASSERT_TRUE(succeeded(store_->beginImport()));
  ASSERT_TRUE(succeeded(store_->importHistory(run.history)));
  ASSERT_TRUE(succeeded(store_->importEvaluations(run.evaluations)));

  auto other = backend_->open();
  RunImage image;  // a run that has not begun
  image.spec = runSpec("bb");
  ASSERT_TRUE(succeeded(other->beginImport()));
  EXPECT_TRUE(failsWith(store_->importHistory(run.history), ErrorCode::kUsage));  // displaced
  EXPECT_TRUE(failsWith(store_->endImport(run.image), ErrorCode::kUsage));
  EXPECT_TRUE(failsWith(store_->endImport(image), ErrorCode::kUsage));  // which lacks nothing
  ASSERT_TRUE(succeeded(other->endImport(image)));
  EXPECT_EQ(store_->readSpec().value()->sha256, "bb");
  EXPECT_TRUE(failsWith(store_->endImport(run.image), ErrorCode::kUsage));
  EXPECT_FALSE(store_->readPolicy().value().has_value());
  EXPECT_FALSE(store_->readModel().value().has_value());
  EXPECT_THAT(store_->readHistory(0, 10).value(), IsEmpty());
  EXPECT_THAT(store_->readEvaluations("", 10).value(), IsEmpty());
  push("r1");
  const Leadership leader = lead();
  ASSERT_TRUE(succeeded(leader.planUnits({unit(2, 0, "done")})));
  EXPECT_EQ(store_->openUnits().value(), 1u);
}

TEST_P(StoreConformance, AnImportWithAHoleIsRefused) {
  const Exported run = exported();
  ASSERT_TRUE(succeeded(store_->beginImport()));
  EXPECT_TRUE(failsWith(store_->endImport(run.image), ErrorCode::kUsage));  // no history at all
  ASSERT_TRUE(succeeded(store_->importHistory({run.history[1]})));
  EXPECT_TRUE(failsWith(store_->importHistory({run.history[0]}), ErrorCode::kUsage));  // order
  EXPECT_TRUE(failsWith(store_->endImport(run.image), ErrorCode::kUsage));
  auto changed = run.history[1];
  changed.set_mean_reward(1);
  EXPECT_TRUE(failsWith(store_->importHistory({changed}), ErrorCode::kUsage));
  EXPECT_TRUE(failsWith(store_->importHistory({v1::IterationRecord()}), ErrorCode::kUsage));
  EXPECT_TRUE(failsWith(store_->importEvaluations({v1::EvaluationResult()}), ErrorCode::kUsage));
  RunImage nameless = run.image;
  nameless.spec.sha256.clear();
  EXPECT_TRUE(failsWith(store_->endImport(nameless), ErrorCode::kUsage));
  EXPECT_EQ(store_->readSpec().value(), std::nullopt);

  ASSERT_TRUE(succeeded(store_->beginImport()));
  ASSERT_TRUE(succeeded(store_->importHistory(run.history)));
  ASSERT_TRUE(succeeded(store_->endImport(run.image)));
}

// A number that is not finite would be in every policy after it.
TEST_P(StoreConformance, WhatIsNotFiniteIsNotWritten) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const uint64_t epoch = store_->acquireLease("first", 3'600'000)->epoch;
  const Leadership leader(*store_, epoch);
  v1::PolicySnapshot odd = policy(0);
  odd.set_logits(0, nan);
  v1::AggregatorState odd_state = state(0);
  odd_state.set_moving_baseline(nan);
  EXPECT_TRUE(failsWith(leader.publishInitial(odd, state(0)), ErrorCode::kInternal));
  EXPECT_TRUE(failsWith(leader.publishInitial(policy(0), odd_state), ErrorCode::kInternal));
  EXPECT_FALSE(store_->readPolicy().value().has_value());
  ASSERT_TRUE(succeeded(leader.publishInitial(policy(0), state(0))));
  EXPECT_TRUE(failsWith(leader.writeState(odd_state), ErrorCode::kInternal));
  Commit commit = commitOf(0, {});
  commit.policy.set_logits(0, nan);
  EXPECT_TRUE(failsWith(leader.commit(commit), ErrorCode::kInternal));
  commit = commitOf(0, {});
  commit.state.add_learners()->add_precision(nan);
  EXPECT_TRUE(failsWith(leader.commit(commit), ErrorCode::kInternal));
  EXPECT_EQ(store_->readPolicy().value()->snapshot.version(), 0u);
  EXPECT_EQ(store_->readState().value()->moving_baseline(), 0);
}

TEST_P(StoreConformance, WhatIsNotFiniteIsNotImported) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  Exported run = exported();
  ASSERT_TRUE(succeeded(store_->beginImport()));
  v1::IterationRecord odd = run.history[0];
  odd.add_baselines(nan);
  EXPECT_TRUE(failsWith(store_->importHistory({odd}), ErrorCode::kUsage));
  ASSERT_TRUE(succeeded(store_->importHistory(run.history)));
  RunImage odd_image = run.image;
  odd_image.state->add_first_moment(nan);
  EXPECT_TRUE(failsWith(store_->endImport(odd_image), ErrorCode::kUsage));
  EXPECT_TRUE(succeeded(store_->endImport(run.image)));
}

}  // namespace
}  // namespace allot::test
