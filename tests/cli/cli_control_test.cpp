// What changes a run: the steps of its life, settings, more updates.
#include "cli/control.h"
#include "core/spec/spec.h"
#include "store/memory/memory_store.h"
#include "tests/tiny_experiment.h"

namespace allot {
namespace {

class ControlTest : public testing::Test {
 protected:
  ControlTest() {
    run_.experiment = tinyExperiment({"spec.update.maxUpdates=40"});
    run_.sha256 = specDigest(run_.experiment);
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
  EXPECT_EQ(valueOf(extendRun(store_.get(), 10)).now.experiment.spec().update().max_updates(), 50u);
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
  const auto changes = valueOf(
      setInRun(store_.get(), {"spec.update.learningRate=0.25", "spec.staleness.mode=none"}));
  ASSERT_EQ(changes.size(), 2u);
  EXPECT_EQ(changes.at(0).path, "spec.update.learningRate");
  EXPECT_EQ(changes.at(0).to, "0.25");
  EXPECT_EQ(store_->readControl().value()->experiment.spec().update().learning_rate(), 0.25);
  const auto revision = store_->readControl().value()->revision;
  EXPECT_TRUE(setInRun(store_.get(), {"spec.update.learningRate=0.25"})->empty());
  for (const char* refused : {"spec.policy.totalBudget=16", "spec.seed=9",
                              "spec.update.learningRate=-1", "spec.update.nothing=1", "x"}) {
    EXPECT_EQ(codeOf(setInRun(store_.get(), {"spec.staleness.rhoBar=2", refused})),
              ErrorCode::kUsage)
        << refused;
  }
  EXPECT_THAT(setInRun(store_.get(), {"spec.policy.totalBudget=16"}),
              isError(HasSubstr("allot fork")));
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
  EXPECT_THAT(
      setInRun(store_.get(), {"spec.update.maxUpdates=1"}),
      isError(
          "spec.update.maxUpdates: 1 is less than the 2 updates that the run has made; 2 ends it "
          "now, after an evaluation"));
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
    EXPECT_EQ(codeOf(refused), ErrorCode::kUsage);
  }
}

}  // namespace
}  // namespace allot
