// The measured schedule: what the fit makes of noisy losses, and what it must not do.
#include "core/learning/measured.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/evaluation/evaluation_plan.h"
#include "core/evaluation/layer_loss_table.h"
#include "core/random_stream.h"
#include "tests/core/evaluation_results.h"
#include "tests/results.h"

namespace allot {
namespace {

using Losses = std::vector<std::array<double, kMeasuredReads.size()>>;  // [layers], nats a step

constexpr uint32_t kQuestions = 64;
constexpr double kSteps = 10;  // of a question

// A measurement with these means. spread: standard deviation of a question over its mean.
v1::Measurement measurementOf(const Losses& losses, double spread = 0) {
  v1::Measurement measurement;
  for (size_t k = 0; k < kMeasuredReads.size(); ++k) {
    for (size_t l = 0; l < losses.size(); ++l) {
      v1::LayerLoss& loss = *measurement.add_losses();
      loss.set_layer(static_cast<uint32_t>(l));
      loss.set_reads(kMeasuredReads[k]);
      loss.set_questions(kQuestions);
      loss.set_steps(static_cast<uint64_t>(kSteps * kQuestions));
      const double question = losses[l][k] * kSteps;
      loss.set_divergence(question * kQuestions);
      loss.set_divergence_squared(question * question * (1 + spread * spread) * kQuestions);
    }
  }
  return measurement;
}

// c / n^1.5, and `off` at 0 reads.
std::array<double, kMeasuredReads.size()> falling(double c, double off) {
  std::array<double, kMeasuredReads.size()> losses{off};
  for (size_t k = 1; k < losses.size(); ++k) losses[k] = c * std::pow(kMeasuredReads[k], -1.5);
  return losses;
}

double truth(const Losses& losses, const SampleSchedule& schedule) {
  double sum = 0;
  for (size_t l = 0; l < losses.size(); ++l) {
    sum += schedule[l] == 0 ? losses[l][0] : losses[l][1] * std::pow(schedule[l], -1.5);
  }
  return sum;
}

// Mean losses of 64 questions whose own ones are log-normal: most are small, a few are large.
Losses noisy(const Losses& losses, double spread, uint64_t seed) {
  RandomStream random({seed}, Purpose::kSchedule, 0);
  const double sigma = std::sqrt(std::log(1 + spread * spread));
  Losses drawn = losses;
  for (auto& layer : drawn) {
    for (double& loss : layer) {
      double sum = 0;
      for (uint32_t q = 0; q < kQuestions; ++q) {
        double normal = -6;
        for (int i = 0; i < 12; ++i) normal += random.uniform();
        sum += std::exp(sigma * normal - sigma * sigma / 2);
      }
      loss *= sum / kQuestions;
    }
  }
  return drawn;
}

// recall-7m's, roughly: two layers that must be on, one that is better off than with 1 read.
const Losses kPlanted = {falling(0.019, 9.6),    falling(0.003, 1.4),   falling(0.6, 0.056),
                         falling(0.003, 0.0022), falling(0.06, 0.12),   falling(0.05, 0.015),
                         falling(0.07, 0.04),    falling(0.003, 0.0023)};

TEST(Measured, WithoutNoiseItIsTheBestSchedule) {
  const LayerLosses losses(measurementOf(kPlanted, 0.1));
  for (const uint32_t total : {8u, 16u, 64u, 128u}) {
    const SampleSchedule best = bestSchedule(8, total, 0, [](uint32_t layer, uint32_t draws) {
      const auto& of = kPlanted[layer];
      return -(draws == 0 ? of[0] : of[1] * std::pow(draws, -1.5));
    });
    EXPECT_NEAR(truth(kPlanted, losses.best(total, 0)) / truth(kPlanted, best), 1, 0.02) << total;
  }
  for (uint32_t n = 1; n < 300; ++n) {
    EXPECT_NEAR(losses.loss(4, n) / (0.06 * std::pow(n, -1.5)), 1, 1e-6) << n;
  }
}

// 200 measurements. Each layer's own mean alone, cell by cell, loses more.
TEST(Measured, PoolingLayersLosesLessThanEachCellAlone) {
  for (const uint32_t total : {16u, 64u}) {
    const LayerLosses exact(measurementOf(kPlanted, 0.1));
    const double least = truth(kPlanted, exact.best(total, 0));
    double pooled = 0, alone = 0, uniform = truth(kPlanted, SampleSchedule(8, total / 8));
    constexpr int kRuns = 200;
    for (uint64_t seed = 1; seed <= kRuns; ++seed) {
      const Losses drawn = noisy(kPlanted, 2, seed);
      pooled += truth(kPlanted, LayerLosses(measurementOf(drawn, 2)).best(total, 0)) / kRuns;
      alone += truth(kPlanted, bestSchedule(8, total, 0,
                                            [&](uint32_t layer, uint32_t draws) {
                                              size_t k = 0;
                                              while (k + 1 < kMeasuredReads.size() &&
                                                     kMeasuredReads[k + 1] <= draws) {
                                                ++k;
                                              }
                                              return -drawn[layer][k];
                                            })) /
               kRuns;
    }
    EXPECT_LT(pooled, 1.15 * least) << total;
    EXPECT_LT(pooled, alone) << total;
    EXPECT_LT(pooled, 0.7 * uniform) << total;
  }
}

TEST(Measured, OffIsBetterThanOneReadOnlyWhereQuestionsShowIt) {
  const auto offOf = [](double off, double one, double spread) {
    return LayerLosses(measurementOf({falling(one, off), falling(one, 10 * one)}, spread))
        .loss(0, 0);
  };
  EXPECT_NEAR(offOf(0.01, 0.1, 1), 0.01, 1e-9);  // 64 questions: 9 standard errors
  EXPECT_NEAR(offOf(0.09, 0.1, 2), 0.1, 1e-6);   // less than 1
  EXPECT_NEAR(offOf(0.2, 0.1, 2), 0.2, 1e-9);
}

TEST(Measured, LossesFallAndSchedulesSumToTheirTotal) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    const LayerLosses losses(measurementOf(noisy(kPlanted, 5, seed), 5));
    for (uint32_t layer = 0; layer < 8; ++layer) {
      for (uint32_t n = 1; n < 80; ++n) {
        EXPECT_LE(losses.loss(layer, n + 1), losses.loss(layer, n) * (1 + 1e-12));
        EXPECT_GT(losses.loss(layer, n + 1), 0);
      }
    }
    for (const uint32_t total : {8u, 9u, 100u, 1000u}) {
      const SampleSchedule schedule = losses.best(total, 1);
      EXPECT_EQ(std::accumulate(schedule.begin(), schedule.end(), 0u), total);
      EXPECT_GE(*std::min_element(schedule.begin(), schedule.end()), 1u);
    }
  }
  v1::AggregatorState state;
  EXPECT_EQ(measuredSchedule(state, 8, 0), std::nullopt);
  *state.mutable_measurement() = measurementOf(kPlanted);
  EXPECT_EQ(measuredSchedule(state, 4, 1)->size(), 8u);  // no room for one read everywhere
}

// Answers of one token have no step, and nothing is known.
TEST(Measured, WithoutAnyStepItIsUniform) {
  v1::Measurement nothing = measurementOf(Losses(4));
  for (auto& loss : *nothing.mutable_losses()) {
    loss.clear_steps();
    loss.clear_questions();
  }
  EXPECT_TRUE(checkMeasurement(nothing, 4));
  EXPECT_EQ(measuredSchedule(nothing, {}, 10, 0), uniformSchedule(10, 4));
}

TEST(Measured, AMeasurementThatDoesNotFitTheModelIsRefused) {
  const v1::Measurement good = measurementOf(kPlanted, 1);
  EXPECT_TRUE(checkMeasurement(good, 8));
  EXPECT_FALSE(checkMeasurement(good, 7));
  EXPECT_FALSE(checkMeasurement({}, 8));
  EXPECT_FALSE(checkMeasurement({}, 0));
  const auto refused = [&](auto change) {
    v1::Measurement bad = good;
    change(bad.mutable_losses(9));
    return !checkMeasurement(bad, 8);
  };
  EXPECT_TRUE(refused([](auto* loss) { loss->set_layer(2); }));
  EXPECT_TRUE(refused([](auto* loss) { loss->set_reads(2); }));
  EXPECT_TRUE(refused([](auto* loss) { loss->set_divergence(-1); }));
  EXPECT_TRUE(refused([](auto* loss) { loss->set_divergence(NAN); }));
  EXPECT_TRUE(refused([](auto* loss) { loss->set_divergence_squared(INFINITY); }));
  EXPECT_TRUE(refused([](auto* loss) { loss->set_agreed(loss->steps() + 1); }));
}

TEST(LayerLossTable, AddsUpItsPlanInAnyOrderToTheSameBits) {
  v1::Experiment e = gridOf(8, {"s2anta-sys"}, {"measured"}, {6});
  e.mutable_spec()->mutable_attention()->set_decode("s2anta-sys");
  e.mutable_spec()->mutable_task()->set_train_questions(80);
  e.mutable_spec()->mutable_policy()->set_measure_questions(80);
  std::vector<v1::EvaluationResult> results;
  for (const v1::EvaluationUnit& unit : planLayerLosses(e, 3)) {
    v1::EvaluationResult& result = results.emplace_back();
    *result.mutable_unit() = unit;
    for (uint32_t layer = 0; layer < 3; ++layer) {
      v1::AgreementCell& cell = *result.add_agreement();
      cell.set_layer(layer);
      cell.set_steps(100);
      cell.set_agreed(90);
      cell.set_questions(unit.question_count());
      cell.set_divergence(1 / (3.0 + unit.chunk() + layer + unit.schedule(0)));
      cell.set_divergence_squared(cell.divergence() / 7);
    }
  }
  std::string bytes;
  for (int order = 0; order < 3; ++order) {
    LayerLossTable table(e, 3);
    table.add(graded(0, {1, 1}));  // not for this table
    for (size_t i = 0; i < results.size(); ++i) {
      EXPECT_EQ(table.complete(), std::nullopt);
      table.add(results[i]);
      table.add(results[i]);  // as after a restart
    }
    const v1::Measurement measurement = valueOf(table.complete());
    EXPECT_TRUE(checkMeasurement(measurement, 3));
    EXPECT_EQ(measurement.losses(0).steps(), 300u);
    EXPECT_EQ(measurement.losses(0).questions(), 80u);
    if (order > 0) {
      EXPECT_EQ(measurement.SerializeAsString(), bytes);
    }
    bytes = measurement.SerializeAsString();
    std::rotate(results.begin(), results.begin() + 5, results.end());
    std::reverse(results.begin() + 2, results.end());
  }
  EXPECT_EQ(LayerLossTable(gridOf(8, {"santa"}), 3).complete(), std::nullopt);
}

}  // namespace
}  // namespace allot
