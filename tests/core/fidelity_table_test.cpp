#include "core/evaluation/fidelity_table.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/core/evaluation_results.h"

namespace allot {
namespace {

TEST(FidelityTable, AddsUpByLayerSupportAndTask) {
  FidelityTable table(4);
  table.add(graded(0, {1, 1}));  // not for this table
  table.add(
      compared("santa", 8, 0, {fidelityCell(0, 0, 1, 10, 0.5), fidelityCell(1, 1, 3, 30, 0.1)}));
  EXPECT_FALSE(table.summaries().at(0).complete);
  table.add(compared("santa", 8, 2, {fidelityCell(0, 1, 3, 10, 0.5)}));
  ASSERT_EQ(table.summaries().size(), 1u);
  const FidelitySummary s = table.summaries()[0];
  EXPECT_TRUE(s.complete);
  EXPECT_EQ(s.questions, 4u);
  EXPECT_EQ(s.drawsPerLayer(), 4);
  EXPECT_EQ(s.all.states, 50u);
  EXPECT_NEAR(s.all.meanRelativeError(), (20 * 0.5 + 30 * 0.1) / 50, 1e-12);
  EXPECT_NEAR(s.all.rmsRelativeError(), std::sqrt((20 * 0.25 + 30 * 0.01) / 50), 1e-12);
  EXPECT_NEAR(s.all.meanCosine(), (20 * 0.5 + 30 * 0.9) / 50, 1e-12);
  EXPECT_NEAR(s.all.traceCovariance(), 4 * s.all.meanRelativeError(), 1e-12);
  EXPECT_EQ(s.all.exceedRate(), 0.5);
  EXPECT_EQ(s.all.density(), 0.1);
  EXPECT_EQ(s.all.uniqueRows(), 6);
  EXPECT_EQ(s.all.effectiveSampleSize(), 5);
  EXPECT_EQ(s.all.agreement(), 0.75);
  EXPECT_EQ(s.all.meanEstimatedError(), std::nullopt);
  EXPECT_EQ(s.layers.at(0).states, 10u);
  EXPECT_EQ(s.layers.at(1).states, 40u);
  EXPECT_EQ(s.layers.at(1).agreement(), std::nullopt);
  EXPECT_EQ(s.supports.at(3).states, 40u);
  EXPECT_EQ(s.layer_supports.at({1, 3}).states, 40u);
  EXPECT_EQ(s.layer_supports.size(), 2u);
  EXPECT_EQ(s.tasks.at(0).agreement(), 1);
  EXPECT_EQ(s.tasks.at(1).agreement(), 0.5);
  EXPECT_EQ(supportLabel(1) + " " + supportLabel(3) + " " + supportLabel(9), "1 3-4 9+");
}

TEST(FidelityTable, AgreementOfOneLayerIsTheLayersAndTheMeanOfAll) {
  FidelityTable table(2);
  auto result = compared("santa", 8, 0,
                         {fidelityCell(0, 0, 1, 10, 0.5), fidelityCell(0, 1, 1, 10, 0.5),
                          fidelityCell(1, 2, 1, 10, 0.5)});
  result.mutable_agreement(0)->set_layer(0);  // 10 of 10
  result.mutable_agreement(1)->set_layer(2);  // 5 of 10, task 1
  table.add(result);
  const FidelitySummary s = table.summaries().at(0);
  EXPECT_EQ(s.all.agreement(), 0.75);
  EXPECT_EQ(s.layers.at(0).agreement(), 1);
  EXPECT_EQ(s.layers.at(1).agreement(), std::nullopt);
  EXPECT_EQ(s.layers.at(2).agreement(), 0.5);
  EXPECT_EQ(s.tasks.at(1).agreement(), 0.5);
  // Another build counted no divergence.
  EXPECT_EQ(s.all.meanDivergence(), std::nullopt);
  result.mutable_agreement(0)->set_divergence(2);
  result.mutable_agreement(0)->set_questions(1);
  FidelityTable newer(2);
  newer.add(result);
  EXPECT_EQ(newer.summaries().at(0).all.meanDivergence(), 0.2);
  EXPECT_EQ(newer.summaries().at(0).layers.at(0).meanDivergence(), 0.2);
  EXPECT_EQ(newer.summaries().at(0).layers.at(2).meanDivergence(), std::nullopt);
}

TEST(FidelityTable, VarianceIsBesideFidelityAndHasSlopesOfItsOwn) {
  FidelityTable table(2);
  for (uint64_t budget : {4u, 8u, 16u}) {
    const double samples = static_cast<double>(budget) / 2;
    table.add(compared("santa", budget, 0, {fidelityCell(0, 0, 1, 10, 0.5 / samples)}));
    table.add(replicated("santa", budget, 0, 3 / samples));
    table.add(replicated("s2anta-sys", budget, 0, std::pow(samples, -2), false));
  }
  const auto summaries = table.summaries();
  ASSERT_EQ(summaries.size(), 9u);
  EXPECT_EQ(summaries[0].measure, Measure::kFidelity);
  EXPECT_EQ(summaries[0].all.meanVariance(), std::nullopt);
  EXPECT_EQ(summaries[0].all.replicates(), 0u);
  const FidelitySummary& sys = summaries[3];
  EXPECT_EQ(sys.measure, Measure::kVariance);
  EXPECT_TRUE(sys.complete);
  EXPECT_EQ(sys.method, "s2anta-sys");
  EXPECT_EQ(sys.all.replicates(), 4u);
  EXPECT_DOUBLE_EQ(sys.all.meanVariance().value_or(0), 0.25);
  EXPECT_EQ(sys.all.meanClosedForm(), std::nullopt);
  EXPECT_DOUBLE_EQ(summaries[6].all.meanClosedForm().value_or(0), 1.1 * 1.5);
  const auto slopes = varianceSlopes(summaries);
  ASSERT_EQ(slopes.size(), 3u);
  EXPECT_EQ(slopes[0].measure, Measure::kFidelity);
  EXPECT_EQ(slopes[1].method, "s2anta-sys");
  EXPECT_EQ(slopes[1].measure, Measure::kVariance);
  EXPECT_NEAR(slopes[1].slope, -2, 1e-12);
  EXPECT_NEAR(slopes[2].slope, -1, 1e-12);
}

TEST(FidelityTable, SlopesAreThoseOfTheVariance) {
  FidelityTable table(2);
  for (uint64_t budget : {2u, 4u, 8u, 16u, 32u}) {  // 1 to 16 a layer
    const double samples = static_cast<double>(budget) / 2;
    table.add(compared("santa", budget, 0, {fidelityCell(0, 0, 1, 10, 0.5 / samples)}));
    // One draw a layer is off the line, and must not count.
    const double steep = samples < 2 ? 0.9 : 0.5 * std::pow(samples, -1.5);
    table.add(compared("s2anta-sys", budget, 0, {fidelityCell(0, 0, 1, 10, steep)}));
    // All rows read from 8 draws on: no error, no logarithm.
    table.add(compared("top-k", budget, 0, {fidelityCell(0, 0, 1, 10, samples < 4 ? 0.5 : 0)}));
  }
  const auto slopes = varianceSlopes(table.summaries());
  ASSERT_EQ(slopes.size(), 2u);  // top-k has one budget that counts
  EXPECT_EQ(slopes[0].method, "s2anta-sys");
  EXPECT_NEAR(slopes[0].slope, -1.5, 1e-12);
  EXPECT_EQ(slopes[0].budgets, 4u);
  EXPECT_EQ(slopes[1].method, "santa");
  EXPECT_NEAR(slopes[1].slope, -1, 1e-12);
}

}  // namespace
}  // namespace allot
