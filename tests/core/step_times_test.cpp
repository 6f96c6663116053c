// Budgets of time: the text of measured times, the prices that follow from it, and a run of them.
#include "core/spec/step_times.h"

#include <gmock/gmock.h>

#include "core/learning/learning_checks.h"
#include "core/learning/measured.h"
#include "core/learning/priced_schedule.h"
#include "core/spec/prices.h"
#include "core/spec/spec.h"
#include "core/spec/spec_change.h"
#include "tests/core/planted_run.h"

namespace allot {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const ModelShape kTimedShape(8, 2, 8, 64);

Result<v1::Experiment> readTimed(const std::vector<std::string>& settings) {
  std::vector<std::string> all = {"spec.policy.stepTimes=dense 200, 2 20, 8 26, 32 26, 128 74"};
  all.insert(all.end(), settings.begin(), settings.end());
  return parseExperiment(R"(
apiVersion: allot.dev/v1alpha1
kind: Experiment
metadata: {name: timed}
spec:
  seed: 3
  model: {path: none}
  task: {tasks: [niah], contextTokens: 512, trainQuestions: 256, confirmQuestions: 4000}
  attention: {decode: s2anta-q4}
  policy: {price: time, totalBudgets: [6 %, 20 %]}
  rollout: {questionsPerEpisode: 8}
  update: {episodesPerUpdate: 60, maxUpdates: 40}
  evaluation: {schedules: [uniform, measured, learned], everyUpdates: 0}
)",
                         "x.yaml", all);
}

std::string timedRefusalOf(const std::vector<std::string>& settings) {
  const auto experiment = readTimed(settings);
  if (!experiment) return experiment.error().message;
  const Status fits = checkAgainstModel(*experiment, kTimedShape);
  return fits ? "" : fits.error().message;
}

TEST(StepTimes, AreLinearBetweenNumbersAndNeverFall) {
  const StepTimes times = valueOf(parseStepTimes("  8 26.5 ,dense 200, 32  26,128 74", "here"));
  EXPECT_EQ(times.dense, 200);
  EXPECT_EQ(times.at(8), 26.5);
  EXPECT_EQ(times.at(20), 26.5);  // a measurement that fell is not cheaper
  EXPECT_EQ(times.at(32), 26.5);
  EXPECT_EQ(times.at(80), 50);
  EXPECT_EQ(times.at(128), 74);
}

TEST(StepTimes, OfAnotherFormAreRefused) {
  const auto refusal = [](const std::string& text) {
    const auto times = parseStepTimes(text, "here");
    return times ? "" : times.error().message;
  };
  const std::string mend = "; write the times as in dense 711, 8 132, 128 144";
  EXPECT_EQ(refusal(""), "here: dense attention has no time" + mend);
  EXPECT_EQ(refusal("dense 3"), "here: no number of reads has a time" + mend);
  EXPECT_EQ(refusal("8 1, 8 2, dense 3"), "here: the numbers of reads do not rise at 8" + mend);
  EXPECT_EQ(refusal("dense 3, dense 3, 8 1"), "here: dense has two times" + mend);
  EXPECT_EQ(refusal("dense 3, 8 1,"), "here: there is a comma at the end" + mend);
  const auto of = [&](uint32_t count) {
    std::string text = "dense 3";
    for (uint32_t reads = 1; reads <= count; ++reads) text += ", " + std::to_string(reads) + " 1";
    return refusal(text);
  };
  EXPECT_EQ(of(64), "");
  EXPECT_EQ(of(65), "here: more than 64 numbers of reads have a time" + mend);
  for (const char* entry : {"8", "8 x", "8 0", "8 -1", "8 nan", "8 inf", "8 1 2", ""}) {
    EXPECT_EQ(refusal(std::string(entry) + ", dense 3"),
              "here: \"" + std::string(entry) +
                  "\" is no number of reads, or dense, with microseconds" + mend);
  }
  for (const char* name : {"0", "-1", "1000000", "4294967297", "8.5", "flash"}) {
    EXPECT_EQ(refusal(std::string(name) + " 3"),
              "here: \"" + std::string(name) +
                  "\" is neither dense nor a number of reads below 1000000" + mend);
  }
}

TEST(TimedPrices, AreThoseOfTheTimesWithinTheMeasuredNumbers) {
  const auto listOf = [](const std::vector<std::string>& settings) {
    return priceListOf(valueOf(readTimed(settings)).spec(), kTimedShape);
  };
  // 1024 / 200 units a microsecond, rounded up; one read was not measured.
  EXPECT_THAT(listOf({}),
              ElementsAre(Action{0, 0}, Action{2, 103}, Action{3, 108}, Action{4, 113},
                          Action{6, 123}, Action{8, 134}, Action{12, 134}, Action{16, 134},
                          Action{24, 134}, Action{32, 134}, Action{48, 175}, Action{64, 216},
                          Action{96, 297}, Action{128, 379}, Action{kAllRows, 1024}));
  EXPECT_THAT(
      listOf({"spec.policy.stepTimes=dense 20, 2 10, 8 26"}),
      ElementsAre(Action{0, 0}, Action{2, 512}, Action{3, 649}, Action{4, 786},
                  Action{kAllRows, 1024}));  // six reads would be as dear as dense attention
  EXPECT_THAT(listOf({"spec.policy.minPerLayer=100"}),
              ElementsAre(Action{128, 379}, Action{kAllRows, 1024}));
}

TEST(TimedPrices, RefuseByName) {
  EXPECT_EQ(timedRefusalOf({}), "");
  EXPECT_EQ(timedRefusalOf({"spec.policy.stepTimes="}),
            "x.yaml:10: spec.policy.price: time needs spec.policy.stepTimes, the microseconds of a "
            "layer's decode step: `allot bench kernels --json` on a GPU measures them");
  EXPECT_EQ(timedRefusalOf({"spec.policy.price=bytes"}),
            "x.yaml: spec.policy.stepTimes: has no effect, since spec.policy.price is bytes: set "
            "that to time, or remove this");
  EXPECT_THAT(timedRefusalOf({"spec.policy.stepTimes=dense 3"}),
              HasSubstr("spec.policy.stepTimes: no number of reads has a time"));
  EXPECT_THAT(timedRefusalOf({"spec.policy.zeroReads=window"}),
              HasSubstr("spec.policy.zeroReads: window has no time in spec.policy.stepTimes"));
  EXPECT_THAT(timedRefusalOf({"spec.evaluation.methods=[dense, s2anta-sys]"}),
              HasSubstr("spec.evaluation.methods[1]: \"s2anta-sys\" has other prices"));
  EXPECT_EQ(
      timedRefusalOf({"spec.attention.decode=quest", "spec.evaluation.methods=[dense, quest]"}),
      "");
  EXPECT_EQ(timedRefusalOf({"spec.policy.totalBudgets=[10]"}),
            "x.yaml: spec.policy.totalBudgets[0]: \"10\" is no share, as spec.policy.price time "
            "needs: write a per cent of dense attention's, as in 15 %");
}

TEST(TimedPrices, RefuseTimesThatLeaveOffAndDenseAlone) {
  const auto without = [](const std::string& between) {
    return "spec.policy.stepTimes: no number of 1, 2, 3, 4, 6, 8, 12, ... reads between " +
           between + " costs less than dense attention; measure others";
  };
  EXPECT_EQ(timedRefusalOf({"spec.policy.stepTimes=dense 200, 9 20, 11 26"}), without("9 and 11"));
  EXPECT_EQ(timedRefusalOf({"spec.policy.stepTimes=dense 200, 8 200, 128 300"}),
            without("8 and 128"));
  EXPECT_EQ(timedRefusalOf({"spec.policy.stepTimes=dense 200, 9 20, 11 26",
                            "spec.attention.decode=s2anta-q4 exactAbove=never"}),
            without("9 and 11"));
  EXPECT_EQ(timedRefusalOf({"spec.policy.stepTimes=dense 200, 12 20"}), "");
  EXPECT_EQ(timedRefusalOf({"spec.policy.minPerLayer=129"}),
            "spec.policy.totalBudgets: 6 % of time buys no schedule: the cheapest one costs 100 % "
            "of time (the model has 8 layers); raise it, or lower spec.policy.minPerLayer");
  EXPECT_EQ(timedRefusalOf({"spec.policy.minPerLayer=129",
                            "spec.attention.decode=s2anta-q4 exactAbove=never"}),
            "spec.policy.minPerLayer: 129 reads in each layer are more than any in "
            "spec.policy.stepTimes that cost less than dense attention (the model has 8 layers); "
            "lower it, or set spec.policy.price to reads");
}

// The prices of a time follow from the experiment alone, also before the model is known.
TEST(TimedPrices, AreHeldToTheExperimentWithoutAModel) {
  const v1::Experiment experiment = valueOf(readTimed({}));
  const v1::PolicySnapshot policy = initialState(experiment, kTimedShape).policy();
  const v1::Experiment other =
      valueOf(readTimed({"spec.policy.stepTimes=dense 200, 2 30, 8 36, 32 36, 128 74"}));
  for (const ModelShape& shape : {kTimedShape, ModelShape(8, 1, 1, 0)}) {
    EXPECT_TRUE(checkFrontier(experiment, shape, policy));
    const Status checked = checkFrontier(other, shape, policy);
    ASSERT_FALSE(checked);
    EXPECT_THAT(checked.error().message, HasSubstr("other prices"));
  }
}

TEST(TimedPrices, StandInTheStoredExperiment) {
  const v1::Experiment experiment = valueOf(readTimed({}));
  const std::string yaml = experimentYaml(experiment);
  EXPECT_THAT(yaml, HasSubstr("budgets: [\"6 %\", \"20 %\"]"));
  EXPECT_EQ(valueOf(parseStoredExperiment(yaml, "stored")).SerializeAsString(),
            experiment.SerializeAsString());
  EXPECT_EQ(budgetText(experiment.spec().policy(), 6), "6 % of time");
  for (const Price price : {Price::kReads, Price::kBytes, Price::kTime}) {
    EXPECT_EQ(priceWith(unitOf(price)), price);
  }
}

// At 6 % of the time four of eight layers can be on; two of them matter.
TEST(TimedRun, FindsTheLayersThatMatterAndReplays) {
  const v1::Experiment experiment = valueOf(readTimed({}));
  const auto odds = [](const SampleSchedule& n) {
    return -1.5 + (n[2] > 0 ? 1.5 : 0.0) + (n[6] > 0 ? 1.5 : 0.0);
  };
  v1::AggregatorState state = initialState(experiment, kTimedShape);
  // It says that all layers matter as much.
  *state.mutable_measurement() =
      evenMeasurement(8, [](uint32_t, uint32_t reads) { return reads == 0 ? 5 : 1.0 / reads; });
  Learning run(experiment, odds, 11, kTimedShape, state);
  run.updates(40);
  const PriceList prices = priceListOf(experiment.spec(), kTimedShape);
  for (const v1::BudgetPolicy& budget : run.state().policy().frontier().budgets()) {
    EXPECT_LE(*priceOf(scheduleFrom(budget.learned()), prices), unitsOf(budget.total_budget(), 8));
  }
  EXPECT_EQ(odds(run.published(6)), 1.5);
  Replay replay(experiment, run.initial(), false);
  for (const v1::IterationRecord& record : run.records()) ASSERT_TRUE(replay.next(record));
  EXPECT_EQ(replay.state().SerializeAsString(), run.state().SerializeAsString());
}

}  // namespace
}  // namespace allot
