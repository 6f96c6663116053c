// Runs whose layers are measured before the first update: what waits for the measurement, what
// keeps it, and who holds it to the units that it is made of.
#include "core/learning/exact_math.h"
#include "core/learning/measured.h"
#include "core/learning/replay.h"
#include "store/archive/archive.h"
#include "tests/aggregator/aggregator_fixture.h"

namespace allot {
namespace {

class Measuring : public AggregatorTest {
 protected:
  void measured(const std::vector<std::string>& more = {}) {
    std::vector<std::string> settings = {
        "spec.update.learner=additive", "spec.update.episodesPerUpdate=3", "spec.audit.share=0",
        "spec.policy.measureQuestions=8",
        "spec.evaluation={everyUpdates: 2, budgets: [8], "
        "schedules: [uniform, learned, measured], methods: [s2anta-sys]}"};
    settings.insert(settings.end(), more.begin(), more.end());
    use(tinyExperiment(settings));
    run_.arithmetic = kArithmetic;
  }
  v1::AggregatorState state() { return valueOf(valueOf(worker_->readState())); }
  std::map<std::string, size_t> openUnits() {
    std::map<std::string, size_t> counts;
    const auto units = claimAll();
    for (const auto& unit : units) ++counts[unit.measure() + " " + unit.schedule_name()];
    EXPECT_TRUE(worker_->releaseUnits("w", units));
    return counts;
  }
  std::vector<v1::EvaluationUnit> claimAll() {
    std::vector<v1::EvaluationUnit> all;
    while (true) {
      const auto units =
          valueOf(worker_->claimUnits({.holder = "w", .count = 100, .lease_ms = 1000}));
      if (units.empty()) return all;
      all.insert(all.end(), units.begin(), units.end());
    }
  }
  std::string verified() {
    StoreSource source(worker_.get(), "a run");
    return messageOf(verifyRun(&source));
  }
  // Of a run with the experiment of now, at version 40.
  v1::Origin measuredOrigin() {
    v1::AggregatorState parent = initialState(run_.experiment, kLayers);
    parent.mutable_policy()->set_version(40);
    LayerLossTable table(run_.experiment, kLayers);
    for (const auto& unit : planLayerLosses(run_.experiment, kLayers)) table.add(truth(unit));
    *parent.mutable_measurement() = valueOf(table.complete());
    return originOf(run_.experiment, "parent", parent);
  }
  // Ends the aggregator's lease and writes another state.
  void overwrite(const v1::AggregatorState& other) {
    now_ += 1'000'000;
    const Lease lease = valueOf(worker_->acquireLease("editor", 1000));
    ASSERT_TRUE(lease.held);
    ASSERT_THAT(Leadership(*worker_, lease.epoch).writeState(other), succeeds());
  }
};

using Units = std::map<std::string, size_t>;

TEST_F(Measuring, TheFirstUpdateAndMeasuredCellsWaitForIt) {
  measured();
  auto aggregator = lead();
  EXPECT_EQ(openUnits(), (Units{{"accuracy uniform", 2}, {"layer-loss uniform", 7}}));
  push(0, 1, 2);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(tick(aggregator.get()));
  EXPECT_EQ(version(), 0u);
  EXPECT_FALSE(state().has_measurement());
  EXPECT_EQ(verified(), "");
  // All but one.
  const v1::EvaluationUnit last = [&] {
    v1::EvaluationUnit left;
    for (const auto& unit : claimAll()) {
      if (unit.measure() == "layer-loss" && unit.schedule(0) == 4) {
        left = unit;
      } else {
        EXPECT_TRUE(worker_->pushEvaluation(truth(unit)));
      }
    }
    return left;
  }();
  EXPECT_TRUE(tick(aggregator.get()));
  EXPECT_FALSE(state().has_measurement());
  // Another process goes on from what was accepted.
  now_ += 1'000'000;
  auto successor = start("b");
  EXPECT_TRUE(tick(successor.get()));
  EXPECT_EQ(version(), 0u);
  ASSERT_TRUE(worker_->pushEvaluation(truth(last)));
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(tick(successor.get()));
  EXPECT_EQ(openUnits(), (Units{{"accuracy measured", 2}}));
  EXPECT_EQ(version(), 1u);
  EXPECT_EQ(verified(), "");
  for (uint64_t ticket = 3; ticket < 12; ++ticket) push(ticket);
  finish(successor.get());
  EXPECT_EQ(version(), 4u);
  EXPECT_EQ(verified(), "");
  std::vector<std::string> cells;
  for (const auto& cell : successor->snapshot().cells) {
    cells.push_back(std::to_string(cell.version) + cell.schedule_name);
  }
  EXPECT_THAT(cells, ElementsAre("0measured", "0uniform", "2learned", "4learned"));
  EXPECT_TRUE(successor->snapshot().fidelity.empty());

  // Replays take it from the first record, which may not lack or change it.
  const auto records = valueOf(worker_->readHistory(0, 10));
  const v1::AggregatorState initial = initialState(run_.experiment, kLayers);
  const auto replayed = [&](auto change) {
    Replay replay(run_.experiment, initial, false);
    for (v1::IterationRecord record : records) {
      if (record.version() == 1) change(&record);
      const Status done = replay.next(record);
      if (!done) return done.error().message;
    }
    EXPECT_EQ(replay.state().measurement().SerializeAsString(),
              state().measurement().SerializeAsString());
    return std::string();
  };
  EXPECT_EQ(replayed([](auto*) {}), "");
  EXPECT_THAT(replayed([](auto* record) { record->clear_measurement(); }),
              HasSubstr("update 1: its record has no measurement of the layers"));
  EXPECT_THAT(replayed([](auto* record) { record->mutable_measurement()->clear_losses(); }),
              HasSubstr("its measurement of the layers does not fit a model of 4 layers"));
  // A fork keeps it, and measures nothing.
  const v1::Origin origin = originOf(run_.experiment, "parent", state());
  EXPECT_TRUE(origin.state().has_measurement());
}

// A process may end between planning measured cells and writing the state that has their schedules.
TEST_F(Measuring, MeasuredCellsCountThoughTheirStateWasNotWritten) {
  measured();
  auto aggregator = lead();
  evaluateAll();
  EXPECT_TRUE(tick(aggregator.get()));
  v1::AggregatorState unwritten = state();
  ASSERT_TRUE(unwritten.has_measurement());
  unwritten.clear_measurement();
  overwrite(unwritten);
  evaluateAll();
  now_ += 1'000'000;
  aggregator = start("b");
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(tick(aggregator.get()));
  EXPECT_TRUE(state().has_measurement());
  for (const auto& [kind, count] : valueOf(worker_->readRefusalCounts())) EXPECT_EQ(count, 0u);
  EXPECT_EQ(openUnits(), Units());
  EXPECT_EQ(verified(), "");
}

// Gradients have no use for it: updates go on while layers are measured, and so does the run until
// they are.
TEST_F(Measuring, OtherLearnersDoNotWaitForIt) {
  measured({"spec.update.learner=reinforce", "spec.update.maxUpdates=2"});
  auto aggregator = lead();
  push(0, 1, 2);
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(tick(aggregator.get()));
  EXPECT_EQ(version(), 1u);
  EXPECT_FALSE(state().has_measurement());
  EXPECT_FALSE(valueOf(worker_->readHistory(0, 1)).front().has_measurement());
  EXPECT_EQ(verified(), "");
  push(3, 4, 5);
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(tick(aggregator.get()));
  EXPECT_EQ(version(), 2u);
  // All but the layers, by another process.
  std::vector<v1::EvaluationUnit> layers;
  for (const auto& unit : claimAll()) {
    if (unit.measure() == "layer-loss") {
      layers.push_back(unit);
    } else {
      EXPECT_TRUE(worker_->pushEvaluation(truth(unit)));
    }
  }
  EXPECT_EQ(layers.size(), 7u);
  now_ += 1'000'000;
  aggregator = start("b");
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(tick(aggregator.get()));
  EXPECT_EQ(verified(), "");
  for (const auto& unit : layers) EXPECT_TRUE(worker_->pushEvaluation(truth(unit)));
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(tick(aggregator.get()));
  EXPECT_TRUE(state().has_measurement());
  EXPECT_EQ(openUnits(), (Units{{"accuracy measured", 2}}));
  EXPECT_EQ(verified(), "");
  finish(aggregator.get());
  EXPECT_EQ(verified(), "");
  std::vector<std::string> cells;
  for (const auto& cell : aggregator->snapshot().cells) {
    EXPECT_TRUE(cell.complete);
    cells.push_back(std::to_string(cell.version) + cell.schedule_name);
  }
  EXPECT_THAT(cells, ElementsAre("0measured", "0uniform", "2learned"));
  // What is stored is held to the units, though no record has it.
  v1::AggregatorState changed = state();
  changed.mutable_measurement()->mutable_losses(5)->set_divergence(0.123);
  overwrite(changed);
  EXPECT_THAT(verified(),
              HasSubstr("measurement of the layers is not what the recorded units add up to"));
  StoreSource source(worker_.get(), "a run");
  EXPECT_TRUE(valueOf(originAt(&source, 1)).state().has_measurement());
}

TEST_F(Measuring, AForkKeepsTheMeasurementOfItsOrigin) {
  measured();
  run_.origin = measuredOrigin();
  auto aggregator = lead();
  EXPECT_EQ(openUnits(), (Units{{"accuracy uniform", 2}, {"accuracy measured", 2}}));
  evaluateAll();
  push(0, 1, 2);
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(tick(aggregator.get()));
  EXPECT_EQ(version(), 1u);
  EXPECT_TRUE(valueOf(worker_->readHistory(0, 1)).front().has_measurement());
  EXPECT_EQ(verified(), "");
}

// What another method or model loses says nothing of this one.
TEST_F(Measuring, AForkOfOtherSettingsMeasuresAnew) {
  measured();
  const v1::Origin origin = measuredOrigin();
  const auto keeps = [&](const std::vector<std::string>& settings) {
    measured(settings);
    return initialState(run_.experiment, kLayers, &origin).has_measurement();
  };
  EXPECT_TRUE(keeps({}));
  EXPECT_TRUE(keeps({"spec.model.device=cpu", "spec.task.heldOutQuestions=9", "spec.repetition=3",
                     "spec.policy.measureQuestions=5"}));
  for (const char* setting :
       {"spec.model.path=other", "spec.model.kvDtype=float32", "spec.attention.decode=santa",
        "spec.policy.zeroReads=mean-value", "spec.task.contextTokens=64", "spec.seed=8"}) {
    EXPECT_FALSE(keeps({setting})) << setting;
  }
  measured({"spec.policy.zeroReads=mean-value"});
  run_.origin = origin;
  auto aggregator = lead();
  EXPECT_EQ(openUnits(), (Units{{"accuracy uniform", 2}, {"layer-loss uniform", 7}}));
  EXPECT_FALSE(state().has_measurement());
  EXPECT_EQ(verified(), "");
  for (uint64_t ticket = 0; ticket < 12; ++ticket) push(ticket);
  finish(aggregator.get());
  EXPECT_TRUE(state().has_measurement());
  EXPECT_EQ(verified(), "");
}

TEST_F(Measuring, VerifyHoldsTheMeasurementToItsUnits) {
  measured();
  *run_.experiment.mutable_spec()->mutable_update() = {};
  run_.experiment.mutable_spec()->clear_update();
  run_.experiment.mutable_spec()->mutable_evaluation()->mutable_schedules()->DeleteSubrange(1, 1);
  use(run_.experiment);
  run_.arithmetic = kArithmetic;
  auto aggregator = lead();
  finish(aggregator.get());
  std::vector<std::string> cells;
  for (const auto& cell : aggregator->snapshot().cells) {
    EXPECT_TRUE(cell.complete);
    cells.push_back(cell.schedule_name);
  }
  EXPECT_THAT(cells, ElementsAre("measured", "uniform"));
  EXPECT_EQ(verified(), "");
  const v1::AggregatorState good = state();
  v1::AggregatorState changed = good;
  v1::LayerLoss& loss = *changed.mutable_measurement()->mutable_losses(5);
  loss.set_divergence(loss.divergence() * 1.001);
  overwrite(changed);
  EXPECT_THAT(verified(),
              HasSubstr("measurement of the layers is not what the recorded units add up to"));
  overwrite(good);
  EXPECT_EQ(verified(), "");
}

TEST_F(Measuring, AUnitThatCannotBeIsDoneAgain) {
  measured();
  auto aggregator = lead();
  for (const auto& unit : claimAll()) {
    v1::EvaluationResult result = truth(unit);
    if (unit.measure() == "layer-loss" && unit.schedule(0) == 4) {
      result.mutable_agreement(2)->set_divergence(-1);
    }
    ASSERT_TRUE(worker_->pushEvaluation(result));
  }
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(tick(aggregator.get()));
  EXPECT_EQ(openUnits(), (Units{{"layer-loss uniform", 1}}));
  EXPECT_FALSE(state().has_measurement());
  evaluateAll();
  EXPECT_TRUE(tick(aggregator.get()));
  EXPECT_TRUE(state().has_measurement());
}

}  // namespace
}  // namespace allot
