// Budgets with a price: the price of what a layer may read, the best schedule within a price, and
// whole runs of it.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "allot/kernels/method.h"
#include "core/evaluation/evaluation_plan.h"
#include "core/learning/additive.h"
#include "core/learning/budget_learning.h"
#include "core/learning/learning_checks.h"
#include "core/learning/measured.h"
#include "core/spec/spec_change.h"
#include "tests/core/planted_run.h"

namespace allot {
namespace {

// recall-7m: 8 layers with 8 query heads, 2 KV heads and 64 channels.
const ModelShape kShape(8, 2, 8, 64);

v1::Experiment pricedExperiment(const std::vector<std::string>& settings = {}) {
  return valueOf(parseExperiment(R"(
apiVersion: allot.dev/v1alpha1
kind: Experiment
metadata: {name: priced}
spec:
  seed: 3
  model: {path: none}
  task: {tasks: [niah], contextTokens: 512, trainQuestions: 256, confirmQuestions: 4000}
  attention: {decode: s2anta-q4}
  policy: {price: bytes, totalBudgets: [10 %, 15 %, 30 %]}
  rollout: {questionsPerEpisode: 8}
  update: {episodesPerUpdate: 60, maxUpdates: 40}
  evaluation: {schedules: [uniform, measured, learned], everyUpdates: 0}
)",
                                 "priced.yaml", settings));
}

PriceList pricesWith(const std::vector<std::string>& settings, const ModelShape& shape = kShape) {
  return priceListOf(pricedExperiment(settings).spec(), shape);
}

std::vector<uint32_t> readsOf(const PriceList& prices) {
  std::vector<uint32_t> reads;
  for (const Action& action : prices) reads.push_back(action.reads);
  return reads;
}

// Calls `visit` for every schedule of actions.
void eachPriced(uint32_t layers, const PriceList& prices,
                const std::function<void(const std::vector<size_t>&)>& visit) {
  std::vector<size_t> actions(layers);
  for (;;) {
    visit(actions);
    size_t l = 0;
    while (l < layers && ++actions[l] == prices.size()) actions[l++] = 0;
    if (l == layers) return;
  }
}

SampleSchedule scheduleWith(const std::vector<size_t>& actions, const PriceList& prices) {
  SampleSchedule schedule;
  for (const size_t action : actions) schedule.push_back(prices[action].reads);
  return schedule;
}

TEST(Prices, AreThoseOfTheMethodInOneLayer) {
  // A 4-bit key has 64 / 2 + 4 of the 256 bytes that a row has; 4 heads read 4 rows a draw.
  const PriceList list = pricesWith({});
  EXPECT_THAT(readsOf(list),
              testing::ElementsAre(0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, kAllRows));
  for (const auto& [reads, price] : list) {
    const uint32_t expected = reads == 0 ? 0 : reads == kAllRows ? 1024 : 144 + 8 * reads;
    EXPECT_EQ(price, expected) << reads;
  }
  // Without 4-bit keys every layer that is on reads all keys: half of its bytes.
  EXPECT_EQ(pricesWith({"spec.attention.decode=s2anta-sys"})[1], (Action{1, 512 + 4}));
  EXPECT_EQ(pricesWith({"spec.model.kvDtype=float32"})[1], (Action{1, 72 + 8}));
  EXPECT_EQ(pricesWith({"spec.model.kvDtype=fp8"})[1], (Action{1, 288 + 8}));
  // One query head a KV head, and a length that no unit divides.
  EXPECT_EQ(pricesWith({"spec.task.contextTokens=500"}, {8, 2, 2, 64})[1],
            (Action{1, 147}));  // 144 + 2.05, rounded up
  EXPECT_EQ(pricesWith({"spec.policy.minPerLayer=3"})[0], (Action{3, 168}));
  EXPECT_EQ(pricesWith({"spec.policy.zeroReads=window"})[0], (Action{0, 128}));
  EXPECT_EQ(readsOf(pricesWith({"spec.attention.decode=s2anta-q4 exactAbove=never"})).back(), 96u);
  EXPECT_TRUE(priceListOf(experimentOf("{totalBudget: 8}", "{}").spec(), kShape).empty());
}

// No schedule within a share reads more than that share of what dense attention reads.
TEST(Prices, RoundUpToTheByte) {
  std::mt19937 random(4);
  for (int i = 0; i < 2000; ++i) {
    const ModelShape shape(1 + random() % 9, 2, 2 * (1 + random() % 8), 64u << random() % 2);
    const uint32_t context = 64 + random() % 4000;
    const bool q4 = random() % 2 == 0;
    const auto experiment = pricedExperiment(
        {"spec.task.contextTokens=" + std::to_string(context),
         std::string("spec.attention.decode=") + (q4 ? "s2anta-q4" : "s2anta-sys"),
         "spec.model.kvDtype=" + std::string(wordOf(static_cast<KvDtype>(random() % 3)))});
    const PriceList prices = priceListOf(experiment.spec(), shape);
    const uint32_t share = 1 + random() % 100, units = unitsOf(share, shape.layers);
    const SampleSchedule schedule = bestWithin(units, shape.layers, prices, [&](uint32_t, size_t) {
      return static_cast<double>(random() % 1000);
    });
    ASSERT_LE(*priceOf(schedule, prices), units);
    kernels::MethodOptions method;
    kernels::parseMethod(experiment.spec().attention().decode(), &method);
    const KvDtype dtype = kvDtypeOf(experiment.spec().model());
    const uint64_t bytes = dtype == KvDtype::kFloat32 ? 4 : dtype == KvDtype::kFp8 ? 1 : 2;
    const kernels::StepShape step{context, shape.heads / shape.kv_heads, shape.head_dim, bytes};
    uint64_t read = 0;
    for (const uint32_t reads : schedule) read += *kernels::mostBytes(method, step, reads);
    ASSERT_LE(read * 100, 2 * context * shape.head_dim * bytes * shape.layers * share);
  }
}

TEST(Prices, OfAShareAreRoundedDown) {
  EXPECT_EQ(unitsOf(15, 8), 1228u);  // of 8192
  EXPECT_EQ(unitsOf(100, 8), 8192u);
  EXPECT_EQ(shareOf(1216, 8), 15u);
  EXPECT_EQ(shareOf(1229, 8), 16u);
  EXPECT_EQ(shareOf(8192, 8), 100u);
}

TEST(PricedSchedules, UniformIsTheDearestOne) {
  const PriceList prices = pricesWith({});
  const auto at = [&](uint32_t share) { return uniformWithin(unitsOf(share, 8), 8, prices); };
  EXPECT_EQ(at(10), std::nullopt);
  EXPECT_EQ(at(14), std::nullopt);
  EXPECT_EQ(at(15), SampleSchedule(8, 1));
  EXPECT_EQ(at(20), SampleSchedule(8, 6));
  EXPECT_EQ(at(30), SampleSchedule(8, 16));
  EXPECT_EQ(at(100), SampleSchedule(8, kAllRows));
}

TEST(PricedSchedules, TheBestIsThatOfEnumeration) {
  std::mt19937 random(5);
  for (int i = 0; i < 300; ++i) {
    const uint32_t layers = 1 + random() % 5;
    PriceList prices;
    uint32_t reads = 0;
    for (size_t a = 0; a < 1 + random() % 5; ++a) {
      prices.push_back({reads, static_cast<uint32_t>(random() % 12)});
      reads += 1 + random() % 3;
    }
    const uint32_t units = leastPrice(prices) * layers + random() % 30;
    std::vector<double> values(layers * prices.size());
    // Few values, so that there are ties.
    for (double& value : values) value = static_cast<int>(random() % 7) - 3;
    const auto value = [&](uint32_t layer, size_t action) {
      return values[layer * prices.size() + action];
    };
    double most = -1e9;
    eachPriced(layers, prices, [&](const std::vector<size_t>& actions) {
      if (*priceOf(scheduleWith(actions, prices), prices) > units) return;
      double sum = 0;
      for (uint32_t l = 0; l < layers; ++l) sum += value(l, actions[l]);
      most = std::max(most, sum);
    });
    const SampleSchedule best = bestWithin(units, layers, prices, value);
    ASSERT_LE(*priceOf(best, prices), units);
    double sum = 0;
    for (uint32_t l = 0; l < layers; ++l) {
      const auto action = std::find_if(prices.begin(), prices.end(),
                                       [&](const Action& a) { return a.reads == best[l]; });
      sum += value(l, static_cast<size_t>(action - prices.begin()));
    }
    ASSERT_EQ(sum, most);
  }
}

TEST(PricedSurrogate, HasAWeightForAllRowsAndKeepsThePrice) {
  const v1::Experiment experiment = pricedExperiment();
  const PriceList prices = pricesWith({});
  const AdditiveProblem problem = problemOf(experiment.spec(), 8, 1, 30, prices);
  EXPECT_EQ(problem.features(), 4 * 8 + 1u);
  EXPECT_EQ(problem.reference(), SampleSchedule(8, 16));
  // Two layers need all rows, the others none.
  v1::LearnerState state;
  beginAdditive(problem, &state);
  std::mt19937 random(6);
  const auto odds = [](const SampleSchedule& n) {
    return -2 + (n[2] == kAllRows ? 2.5 : 0.0) + (n[6] == kAllRows ? 2.5 : 0.0);
  };
  for (int update = 0; update < 30; ++update) {
    const AdditivePosterior posterior(problem, state);
    std::vector<GradedEpisode> episodes;
    for (uint64_t i = 0; i < 20; ++i) {
      RandomStream stream({3}, Purpose::kLearner, static_cast<uint64_t>(update) * 20 + i);
      const SampleSchedule schedule = posterior.drawn(&stream);
      ASSERT_TRUE(problem.isSchedule(schedule));
      ASSERT_LE(*priceOf(schedule, prices), unitsOf(30, 8));
      std::binomial_distribution<int> right(8, probability(odds(schedule), 0));
      episodes.push_back({schedule, right(random) / 8.0, i / 10});
    }
    observe(problem, episodes, &state);
  }
  const AdditivePosterior posterior(problem, state);
  const SampleSchedule best = posterior.best();
  EXPECT_EQ(best[2], kAllRows);
  EXPECT_EQ(best[6], kAllRows);
  EXPECT_GT(posterior.worth(2, kAllRows).mean, posterior.worth(2, 16).mean + 1);
  EXPECT_FALSE(problem.isSchedule(SampleSchedule(8, kAllRows)));
  EXPECT_FALSE(problem.isSchedule(SampleSchedule(8, 5)));  // no action
}

TEST(PricedSurrogate, RefersToTheBestOfThePriorWithoutUniform) {
  const PriceList prices = pricesWith({});
  const AdditiveProblem problem = problemOf(pricedExperiment().spec(), 8, 1, 10, prices);
  const SampleSchedule reference = problem.reference();
  // 819 units: five layers, and reads for what is left of them.
  EXPECT_EQ(std::count(reference.begin(), reference.end(), 0u), 3);
  EXPECT_TRUE(problem.isSchedule(reference));
  v1::LearnerState state;
  beginAdditive(problem, &state);
  EXPECT_EQ(AdditivePosterior(problem, state).above(reference).deviation, 0);
}

// A measurement in which layer l loses c_l / n, and off_l without reads.
v1::Measurement measurementOf(const std::vector<double>& c, const std::vector<double>& off) {
  return evenMeasurement(static_cast<uint32_t>(c.size()), [&](uint32_t layer, uint32_t reads) {
    return 10 * (reads == 0 ? off[layer] : c[layer] / reads);
  });
}

TEST(PricedMeasured, LosesLeastOfAllSchedulesWithinThePrice) {
  const PriceList prices = {{0, 0}, {1, 152}, {4, 176}, {16, 272}, {kAllRows, 1024}};
  const v1::Measurement measurement =
      measurementOf({0.2, 0.01, 0.5, 0.05, 0.1}, {3.0, 0.02, 0.4, 0.9, 0.11});
  const LayerLosses losses(measurement);
  for (const uint32_t share : {5, 10, 15, 20, 30, 60, 100}) {
    const auto lossOf = [&](const SampleSchedule& schedule) {
      double sum = 0;
      for (uint32_t l = 0; l < 5; ++l) {
        if (schedule[l] != kAllRows) sum += losses.loss(l, schedule[l]);
      }
      return sum;
    };
    double least = 1e9;
    eachPriced(5, prices, [&](const std::vector<size_t>& actions) {
      const SampleSchedule schedule = scheduleWith(actions, prices);
      if (*priceOf(schedule, prices) <= unitsOf(share, 5))
        least = std::min(least, lossOf(schedule));
    });
    const SampleSchedule best = measuredSchedule(measurement, prices, share, 0);
    EXPECT_LE(*priceOf(best, prices), unitsOf(share, 5));
    EXPECT_NEAR(lossOf(best), least, 1e-12) << share;
  }
}

// ---- whole runs ----

v1::AggregatorState measuredState(const v1::Experiment& experiment) {
  v1::AggregatorState state = initialState(experiment, kShape);
  // The measurement knows nothing of layer 4: it must be found.
  *state.mutable_measurement() = measurementOf({0.1, 0.4, 0.1, 0.1, 0.05, 0.2, 0.1, 0.1},
                                               {0.2, 2.0, 0.2, 0.2, 0.05, 0.3, 0.2, 0.2});
  return state;
}

TEST(PricedRun, PublishesWhatItsRivalIsWorseThanAndReplays) {
  const v1::Experiment experiment = pricedExperiment();
  Learning run(experiment, planted, 11, kShape, measuredState(experiment));
  const PriceList prices = pricesWith({});
  EXPECT_EQ(pricesOf(run.state().policy()), prices);
  run.updates(40);
  const auto& budgets = run.state().policy().frontier().budgets();
  ASSERT_EQ(budgets.size(), 3);
  for (const v1::BudgetPolicy& budget : budgets) {
    const uint32_t units = unitsOf(budget.total_budget(), 8);
    EXPECT_LE(*priceOf(scheduleFrom(budget.learned()), prices), units);
    for (const v1::Draws& proposal : budget.proposals()) {
      EXPECT_LE(*priceOf(scheduleFrom(proposal.samples()), prices), units);
    }
    EXPECT_EQ(run.published(budget.total_budget()), scheduleFrom(budget.learned()));
  }
  const auto worth = [](const SampleSchedule& schedule) {
    return probability(planted(schedule), 0);
  };
  // At 10 % there is no uniform schedule: the rival is the measured one, which leaves layer 4 off.
  const SampleSchedule measured = *measuredSchedule(run.state(), 10, 0);
  EXPECT_EQ(measured[4], 0u);
  EXPECT_EQ(scheduleFrom(budgets[0].proposals(0).samples()), measured);
  EXPECT_TRUE(budgets[0].beats_uniform());
  EXPECT_GT(worth(run.published(10)), worth(measured) + 0.2);
  EXPECT_EQ(scheduleFrom(budgets[1].proposals(0).samples()), SampleSchedule(8, 1));
  EXPECT_TRUE(budgets[1].beats_uniform());
  EXPECT_GT(worth(run.published(15)), worth(SampleSchedule(8, 1)) + 0.2);

  ASSERT_TRUE(checkLearners(experiment, kShape, run.state()));
  Replay replay(experiment, run.initial(), false);
  for (const v1::IterationRecord& record : run.records()) {
    const Status next = replay.next(record);
    ASSERT_TRUE(next) << next.error().message;
  }
  EXPECT_EQ(replay.state().SerializeAsString(), run.state().SerializeAsString());
  EXPECT_EQ(layerWorths(experiment.spec(), run.state(), 0).size(), 8u);
}

TEST(PricedRun, PublishesTheMeasuredScheduleUntilAnotherIsKnownToBeBetter) {
  const v1::Experiment experiment = pricedExperiment();
  // All schedules are equal.
  Learning run(
      experiment, [](const SampleSchedule&) { return 0.5; }, 12, kShape, measuredState(experiment));
  EXPECT_EQ(run.published(10), problemOf(experiment.spec(), 8, 1, 10, pricesWith({})).reference());
  run.updates(3);
  EXPECT_EQ(run.published(10), *measuredSchedule(run.state(), 10, 0));
  // Where there is a uniform schedule, too, measured is the best guess.
  for (const uint32_t total : {15u, 30u}) {
    EXPECT_EQ(run.published(total), *measuredSchedule(run.state(), total, 0));
    EXPECT_NE(run.published(total), *uniformOf(run.state().policy(), total));
  }
  // A fork claims nothing, and begins with the rival: measured, where no uniform schedule fits.
  const v1::Origin origin = originOf(experiment, "run", run.state());
  ASSERT_TRUE(checkBudgets(experiment, kShape, origin.state()));
  Learning fork(experiment, planted, 13, kShape, initialState(experiment, kShape, &origin));
  fork.updates(1);
  EXPECT_EQ(fork.published(10), *measuredSchedule(run.state(), 10, 0));
}

TEST(PricedRun, SharesOfLayersAreThoseOfThePrice) {
  v1::AggregatorState state = initialState(pricedExperiment(), kShape);
  v1::BudgetPolicy& budget = *state.mutable_policy()->mutable_frontier()->mutable_budgets(2);
  const SampleSchedule learned = {0, 1, 16, 0, kAllRows, 0, 0, 0};
  *budget.mutable_learned() = {learned.begin(), learned.end()};
  const std::vector<double> shares = layerShares(state.policy(), 2);
  EXPECT_DOUBLE_EQ(shares[1], 152.0 / 1448);
  EXPECT_DOUBLE_EQ(shares[4], 1024.0 / 1448);
  EXPECT_EQ(shares[0], 0);
}

TEST(PricedRun, RefusesWhatItsPricesDoNotBuy) {
  const v1::Experiment experiment = pricedExperiment();
  const v1::AggregatorState state = initialState(experiment, kShape);
  Learning run(experiment, planted, 14, kShape);
  v1::EpisodeResult result = run.episode(state.policy(), 0);
  ASSERT_TRUE(checkResult(experiment, state, result, &state.policy()));
  for (const uint32_t reads : {5u, kAllRows}) {
    v1::EpisodeResult other = result;
    for (int l = 0; l < 8; ++l) other.set_schedule(l, reads);
    const Status checked = checkResult(experiment, state, other, &state.policy());
    ASSERT_FALSE(checked);
    EXPECT_EQ(checked.error().message, "the schedule is not one that its total budget buys");
  }
  // A policy of another method, context or price is none of the experiment's.
  const auto refusal = [&](const v1::Experiment& other) {
    const Status checked = checkFrontier(other, kShape, state.policy());
    return checked ? "" : checked.error().message;
  };
  EXPECT_EQ(refusal(experiment), "");
  const std::string sentence =
      "its policy is not one of its experiment: other prices, of another model or another "
      "spec.policy.price, stepTimes, minPerLayer or zeroReads, spec.attention.decode, "
      "spec.task.contextTokens or spec.model.kvDtype: keep these, or begin anew";
  EXPECT_EQ(refusal(pricedExperiment({"spec.attention.decode=s2anta-sys"})), sentence);
  EXPECT_EQ(refusal(pricedExperiment({"spec.task.contextTokens=1024"})), sentence);
  EXPECT_EQ(refusal(experimentOf("{totalBudgets: [10, 15, 30]}", "{learner: additive}")), sentence);
  // Before the model is known, a policy is held to the price alone.
  const ModelShape unknown(8, 1, 1, 0);
  EXPECT_TRUE(checkFrontier(experiment, unknown, state.policy()));
  EXPECT_FALSE(checkFrontier(experimentOf("{totalBudgets: [10, 15, 30]}", "{learner: additive}"),
                             unknown, state.policy()));
  v1::AggregatorState cheap = state;
  cheap.mutable_policy()->mutable_prices()->set_prices(1, 1);
  EXPECT_FALSE(checkFrontier(experiment, kShape, cheap.policy()));
  v1::AggregatorState surplus = state;
  surplus.mutable_policy()->mutable_prices()->add_reads(9);
  EXPECT_FALSE(checkFrontier(experiment, kShape, surplus.policy()));
}

// A stored experiment has not come through the reader of files, which refuses these.
TEST(PricedRun, ADamagedStoreIsRefused) {
  const auto refusal = [](const std::function<void(v1::Spec&)>& damage, const ModelShape& shape) {
    v1::Experiment experiment = pricedExperiment();
    damage(*experiment.mutable_spec());
    const Status checked = checkAgainstModel(experiment, shape);
    return checked ? "" : checked.error().message;
  };
  const auto nothing = [](v1::Spec&) {};
  EXPECT_EQ(refusal(nothing, kShape), "");
  EXPECT_EQ(refusal(nothing, ModelShape(8, 1, 1, 0)),
            "spec.policy.price: bytes needs the channels of the model's keys, which are not stored "
            "with it; begin the run anew");
  EXPECT_EQ(refusal([](v1::Spec& spec) { spec.mutable_policy()->set_granularity("head"); }, kShape),
            "the run's experiment: spec.policy.granularity: head has no prices: heads of a KV head "
            "read their keys together; leave it out, or set spec.policy.price to reads");
  EXPECT_EQ(
      refusal([](v1::Spec& spec) { spec.mutable_evaluation()->add_budgets(1000000); }, kShape),
      "the run's experiment: spec.evaluation.budgets[3]: 1000000 % is not one of "
      "spec.policy.totalBudgets: a schedule is learned for its own price and not scaled to "
      "another; add it there, or remove it here");
  EXPECT_EQ(
      refusal([](v1::Spec& spec) { spec.mutable_task()->set_context_tokens(1048576); }, kShape),
      "the run's experiment: spec.task.contextTokens: 1048576 is beyond 1000000, the reads "
      "that stand for all rows under spec.policy.price bytes: lower it");
}

// A fork publishes the measured schedule from the beginning where no uniform one has the price.
TEST(PricedRun, AForkBeginsWithTheMeasuredSchedule) {
  const v1::Experiment experiment = pricedExperiment();
  const v1::AggregatorState state = measuredState(experiment);
  const v1::Origin origin = originOf(experiment, "01ARZ3NDEKTSV4RRFFQ69G5FAV", state);
  int without_uniform = 0;
  for (const v1::BudgetPolicy& budget : origin.state().policy().frontier().budgets()) {
    const uint32_t total = budget.total_budget();
    if (uniformOf(state.policy(), total)) continue;
    ++without_uniform;
    EXPECT_EQ(scheduleFrom(budget.learned()), *measuredSchedule(state, total, 0));
  }
  EXPECT_GT(without_uniform, 0);
}

TEST(PricedRun, EvaluatesNoUniformScheduleBelowTheLeastOne) {
  const v1::Experiment experiment = pricedExperiment();
  const v1::AggregatorState state = measuredState(experiment);
  std::map<std::string, std::set<uint64_t>> budgets;
  for (const v1::EvaluationUnit& unit :
       planEvaluation(experiment, state.policy(), {.result = &state.measurement()})) {
    if (measureOf(unit) != Measure::kAccuracy) continue;
    budgets[unit.schedule_name()].insert(unit.total_budget());
    const SampleSchedule schedule(unit.schedule().begin(), unit.schedule().end());
    if (unit.schedule_name() == "dense") continue;
    EXPECT_LE(*priceOf(schedule, pricesWith({})),
              unitsOf(static_cast<uint32_t>(unit.total_budget()), 8));
  }
  const std::map<std::string, std::set<uint64_t>> expected = {
      {"dense", {0}}, {"uniform", {15, 30}}, {"measured", {10, 15, 30}}};
  EXPECT_EQ(budgets, expected);
}

// ---- the file ----

std::string refusalOf(const std::vector<std::string>& settings, const ModelShape& shape = kShape) {
  constexpr char kFile[] = R"(
apiVersion: allot.dev/v1alpha1
kind: Experiment
metadata: {name: priced}
spec:
  model: {path: none}
  task: {tasks: [niah], contextTokens: 512}
  attention: {decode: s2anta-q4}
  policy: {price: bytes, totalBudgets: [10 %, 15%]}
  update: {}
)";
  const auto experiment = parseExperiment(kFile, "x.yaml", settings);
  if (!experiment) return experiment.error().message;
  const Status fits = checkAgainstModel(*experiment, shape);
  return fits ? "" : fits.error().message;
}

TEST(PricedFile, RefusesByName) {
  EXPECT_EQ(refusalOf({}), "");
  EXPECT_EQ(refusalOf({"spec.policy.totalBudgets=[10, 15 %]"}),
            "x.yaml: spec.policy.totalBudgets[0]: \"10\" is no share, as spec.policy.price "
            "bytes needs: write a per cent of dense attention's, as in 15 %");
  EXPECT_EQ(refusalOf({"spec.policy.price=reads"}),
            "x.yaml:9: spec.policy.totalBudgets[0]: \"10 %\" is a share, and spec.policy.price is "
            "reads: write a number of reads, or set spec.policy.price to bytes or time");
  for (const char* wrong : {"0 %", "101 %", "1.5 %", "-3 %"}) {
    EXPECT_THAT(refusalOf({"spec.policy.totalBudgets=[" + std::string(wrong) + "]"}),
                testing::HasSubstr("spec.policy.totalBudgets[0]: \"" + std::string(wrong) +
                                   "\" is not an integer"));
  }
  EXPECT_THAT(refusalOf({"spec.policy.price=flops"}),
              testing::HasSubstr("\"flops\" is not one of reads, bytes, time"));
  EXPECT_EQ(refusalOf({"spec.policy.granularity=head"}),
            "x.yaml: spec.policy.granularity: head has no prices: heads of a KV head read their "
            "keys together; leave it out, or set spec.policy.price to reads");
  EXPECT_EQ(refusalOf({"spec.update.learner=reinforce"}),
            "x.yaml: spec.update.learner: reinforce spreads reads, and budgets have "
            "spec.policy.price bytes: choose learner additive");
  EXPECT_THAT(refusalOf({"spec.policy.measureQuestions=0"}),
              testing::HasSubstr("spec.policy.measureQuestions: 0 measures no layer, and with "
                                 "spec.policy.price bytes"));
  EXPECT_THAT(refusalOf({"spec.attention.decode=quest"}),
              testing::HasSubstr("spec.attention.decode: \"quest\" has no price"));
  EXPECT_THAT(refusalOf({"spec.evaluation.methods=[dense, s2anta-sys]"}),
              testing::HasSubstr("spec.evaluation.methods[1]: \"s2anta-sys\" has other prices than "
                                 "spec.attention.decode, s2anta-q4"));
  EXPECT_EQ(refusalOf({"spec.evaluation.methods=[dense, s2anta-q4, vattention]"}), "");
  EXPECT_THAT(refusalOf({"spec.attention.prefill=s2anta-sys"}),
              testing::HasSubstr("spec.attention.prefill: \"s2anta-sys\" reads prompts by the "
                                 "schedule"));
  EXPECT_THAT(refusalOf({"spec.evaluation.schedules=[uniform, oneHot]"}),
              testing::HasSubstr("spec.evaluation.schedules[1]: oneHot counts reads"));
  EXPECT_THAT(
      refusalOf({"spec.evaluation.measures=[accuracy, fidelity]"}),
      testing::HasSubstr("spec.evaluation.measures[1]: fidelity is tabled by reads a layer"));
  EXPECT_THAT(refusalOf({"spec.evaluation.budgets=[10 %, 12 %]"}),
              testing::HasSubstr("spec.evaluation.budgets[1]: 12 % is not one of "
                                 "spec.policy.totalBudgets"));
  EXPECT_EQ(refusalOf({"spec.policy.minPerLayer=1"}),
            "spec.policy.totalBudgets: 10 % buys no schedule: the cheapest one costs 15 % (the "
            "model has 8 layers); raise it, or lower spec.policy.minPerLayer");
  EXPECT_EQ(refusalOf({"spec.policy.minPerLayer=5000",
                       "spec.attention.decode=s2anta-q4 exactAbove=never"}),
            "spec.policy.minPerLayer: 5000 reads in each layer cost more than dense attention (the "
            "model has 8 layers); lower it, or set spec.policy.price to reads");
}

TEST(PricedFile, IsWrittenAsItWasRead) {
  const v1::Experiment experiment = pricedExperiment();
  EXPECT_EQ(experiment.spec().policy().total_budget(), 10u);
  EXPECT_EQ(experiment.spec().policy().measure_questions(), kMeasureQuestions);
  const std::string yaml = experimentYaml(experiment);
  EXPECT_THAT(yaml, testing::HasSubstr("totalBudgets: [\"10 %\", \"15 %\", \"30 %\"]"));
  EXPECT_THAT(yaml, testing::HasSubstr("budgets: [\"10 %\", \"15 %\", \"30 %\"]"));
  const v1::Experiment again = valueOf(parseStoredExperiment(yaml, "stored"));
  EXPECT_EQ(again.SerializeAsString(), experiment.SerializeAsString());
  EXPECT_EQ(budgetText(experiment.spec().policy(), 15), "15 %");
}

}  // namespace
}  // namespace allot
