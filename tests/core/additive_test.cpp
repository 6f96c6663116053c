// The additive surrogate: its regression against its closed form and against Newton's method.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "core/learning/additive.h"
#include "core/learning/logistic_update.h"
#include "tests/core/planted_run.h"

namespace allot {
namespace {

const AdditiveProblem kProblem{4, 10, 0, 16};

struct Asked {
  uint64_t set;
  SampleSchedule schedule;
  double reward;
};

std::vector<Asked> someEpisodes() {
  std::mt19937 random(2);
  std::vector<Asked> episodes;
  for (uint64_t i = 0; i < 60; ++i) {
    SampleSchedule schedule(4);
    for (int draw = 0; draw < 10; ++draw) ++schedule[random() % 4];
    episodes.push_back({i / 6, schedule, static_cast<double>(random() % 17) / 16});
  }
  return episodes;
}

// In updates of so many episodes.
v1::LearnerState learnedFrom(const std::vector<Asked>& episodes, size_t of_update) {
  v1::LearnerState state;
  beginAdditive(kProblem, &state);
  std::vector<GradedEpisode> update;
  for (const Asked& asked : episodes) {
    update.push_back({asked.schedule, asked.reward, asked.set});
    if (update.size() < of_update) continue;
    observe(kProblem, update, &state);
    update.clear();
  }
  return state;
}

// The regression as it is written: one weight more for each set, its level; solved by elimination.
struct Dense {
  std::vector<std::vector<long double>> precision;
  std::vector<long double> evidence;
};

std::vector<long double> featuresOf(const SampleSchedule& schedule) {
  const SampleSchedule uniform = uniformSchedule(10, 4);
  std::vector<long double> x;
  for (size_t l = 0; l < 4; ++l) {
    const auto f = [](uint32_t n) {
      return n == 0
                 ? std::array<long double, 3>{}
                 : std::array<long double, 3>{1, 1.0L / n, std::log(static_cast<long double>(n))};
    };
    for (size_t i = 0; i < 3; ++i) x.push_back(f(schedule[l])[i] - f(uniform[l])[i]);
  }
  return x;
}

constexpr size_t kWeights = 12, kSets = 10;

std::vector<long double> solved(Dense dense, std::vector<long double> right) {
  const size_t size = right.size();
  for (size_t i = 0; i < size; ++i) {
    for (size_t r = 0; r < size; ++r) {
      if (r == i) continue;
      const long double factor = dense.precision[r][i] / dense.precision[i][i];
      for (size_t c = 0; c < size; ++c) dense.precision[r][c] -= factor * dense.precision[i][c];
      right[r] -= factor * right[i];
    }
  }
  for (size_t i = 0; i < size; ++i) right[i] /= dense.precision[i][i];
  return right;
}

// What the normal distribution of that mean and precision, whose first weights are those of the
// schedule's features, says of schedules.
void expectPosterior(const AdditivePosterior& posterior, const Dense& dense,
                     const std::vector<long double>& mean) {
  for (const SampleSchedule& schedule :
       {SampleSchedule{10, 0, 0, 0}, SampleSchedule{1, 2, 3, 4}, SampleSchedule{0, 5, 5, 0}}) {
    std::vector<long double> x = featuresOf(schedule);
    x.resize(mean.size());
    const std::vector<long double> covered = solved(dense, x);
    long double expected = 0, variance = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      expected += x[i] * mean[i];
      variance += x[i] * covered[i];
    }
    const auto estimate = posterior.above(schedule);
    EXPECT_NEAR(estimate.mean, static_cast<double>(expected), 1e-7);
    EXPECT_NEAR(estimate.deviation, static_cast<double>(std::sqrt(variance)), 1e-7);
  }
  EXPECT_EQ(posterior.above(uniformSchedule(10, 4)).mean, 0);
}

// The regression as it is written, level by level: a normal prior, and the likelihood's quadratic
// around the top that plain Newton steps over weights and levels come to.
TEST(Additive, IsTheLogisticRegressionAroundItsMode) {
  const std::vector<Asked> episodes = someEpisodes();
  const size_t level = kWeights, size = kWeights + 1 + kSets;
  std::vector<long double> prior(size), at(size), precision(size);
  for (size_t i = 0; i < size; ++i) {
    const long double deviations[] = {2, 0.5L, 0.1L}, means[] = {1, -0.4L, 0};
    const long double deviation = i < level ? deviations[i % 3] : i == level ? 2 : 0.5L;
    precision[i] = 1 / (deviation * deviation);
    prior[i] = i < level ? means[i % 3] : 0;
  }
  at = prior;
  Dense dense;
  for (int step = 0; step < 100; ++step) {
    dense = {std::vector(size, std::vector<long double>(size)), std::vector<long double>(size)};
    for (size_t i = 0; i < size; ++i) {
      dense.precision[i][i] = precision[i];
      dense.evidence[i] = precision[i] * (prior[i] - at[i]);
    }
    for (const Asked& asked : episodes) {
      std::vector<long double> x = featuresOf(asked.schedule);
      x.resize(size);
      x[level] = x[level + 1 + asked.set] = 1;
      long double z = 0;
      for (size_t i = 0; i < size; ++i) z += x[i] * at[i];
      const long double p = 1 / (1 + std::exp(-z));
      for (size_t i = 0; i < size; ++i) {
        for (size_t j = 0; j < size; ++j) dense.precision[i][j] += x[i] * x[j] * 16 * p * (1 - p);
        dense.evidence[i] += x[i] * 16 * (asked.reward - p);
      }
    }
    const std::vector<long double> by = solved(dense, dense.evidence);
    for (size_t i = 0; i < size; ++i) at[i] += by[i] / (step < 10 ? 2 : 1);
  }
  expectPosterior({kProblem, learnedFrom(episodes, episodes.size())}, dense, at);
}

TEST(Additive, TheOrderOfResultsIsOneOfRounding) {
  std::vector<Asked> episodes = someEpisodes();
  std::vector<Asked> shuffled = episodes;
  std::shuffle(shuffled.begin(), shuffled.end(), std::mt19937(3));
  const SampleSchedule schedule{6, 0, 1, 3};
  const auto same = [&](const AdditivePosterior& one, const AdditivePosterior& other, double by) {
    EXPECT_NEAR(one.above(schedule).mean, other.above(schedule).mean, by);
    EXPECT_NEAR(one.above(schedule).deviation, other.above(schedule).deviation, by);
  };
  same({kProblem, learnedFrom(episodes, 60)}, {kProblem, learnedFrom(shuffled, 60)}, 1e-7);
  // In updates of their own, a set an update, little is lost: a normal for what is not quite one.
  same({kProblem, learnedFrom(episodes, 60)}, {kProblem, learnedFrom(episodes, 6)}, 0.1);
}

// Where all answers are right, or none is, the mode is far out: steps that overshoot are halved.
TEST(Additive, CertainAnswersAreBorne) {
  for (const double reward : {0.0, 1.0}) {
    std::vector<Asked> episodes = someEpisodes();
    for (Asked& asked : episodes) {
      asked.reward = asked.schedule[0] > 2 ? reward : 1 - reward;
    }
    const AdditivePosterior posterior(kProblem, learnedFrom(episodes, 20));
    const auto more = posterior.difference({7, 1, 1, 1}, {1, 3, 3, 3});
    EXPECT_GT((reward == 1 ? 1 : -1) * more.mean, 2 * more.deviation);
    EXPECT_LT(std::abs(more.mean), 30);
  }
}

// Draws of the weights have the posterior's mean and covariance: seen through the schedules that
// they make best, and here through the value of one. |z| < 4.5 fails 1 time in 100,000.
TEST(Additive, WorthHasAnInterval) {
  std::vector<Asked> episodes;
  std::mt19937 random(4);
  for (uint64_t i = 0; i < 400; ++i) {
    SampleSchedule schedule(4);
    for (int draw = 0; draw < 10; ++draw) ++schedule[random() % 4];
    // Layer 2 is worth log-odds of 2, whatever it has.
    const double p = schedule[2] == 0 ? 0.26894142 : 0.73105858;
    int right = 0;
    for (int q = 0; q < 16; ++q) right += std::bernoulli_distribution(p)(random) ? 1 : 0;
    episodes.push_back({i / 10, schedule, right / 16.0});
  }
  const AdditivePosterior posterior(kProblem, learnedFrom(episodes, 20));
  const auto worth = posterior.worth(2, 3);
  EXPECT_LT(std::abs(worth.mean - 2) / worth.deviation, 4.5);
  EXPECT_LT(worth.deviation, 0.25);
  const auto other = posterior.worth(1, 3);
  EXPECT_LT(std::abs(other.mean) / other.deviation, 4.5);
}

// Before there are answers a layer of four heads is as unknown as a layer is, and its heads go
// together: of the variance of one of four .8 / 16 is common and .2 / 4 its own.
TEST(Additive, HeadsOfALayerShareWhatIsKnown) {
  const AdditiveProblem layers{4, 16, 0, 16}, heads{16, 64, 0, 16, 4};
  v1::LearnerState of_layers, of_heads;
  beginAdditive(layers, &of_layers);
  beginAdditive(heads, &of_heads);
  const AdditivePosterior by_layer(layers, of_layers), by_head(heads, of_heads);
  EXPECT_NEAR(by_layer.worth(1, 3).deviation, by_head.worth(1, 3).deviation, 1e-12);
  EXPECT_NEAR(by_layer.worth(1, 3).mean, by_head.worth(1, 3).mean, 1e-12);
  EXPECT_NEAR(by_layer.worth(1, 1).mean, 0.6, 1e-12);
  // Two layers change places, or two heads of one: uniform is 4 in each.
  SampleSchedule one = heads.reference(), other = heads.reference();
  one[0] = other[4] = 5;
  const double apart = by_head.difference(one, other).deviation;
  other = heads.reference();
  other[1] = 5;
  EXPECT_NEAR(by_head.difference(one, other).deviation, apart * std::sqrt(0.5), 1e-12);
  EXPECT_EQ(by_head.above(heads.reference()).deviation, 0);
}

// Losses of 3 - 2 / n^power nats a token that layer l's reads save, times l + 1; answers of four
// steps.
v1::Measurement risingLosses(uint32_t layers, double scale = 1, double power = 1) {
  return evenMeasurement(
      layers,
      [=](uint32_t layer, uint32_t reads) {
        return 4 * scale * (layer + 1) * (reads == 0 ? 3.0 : 2.0 / std::pow(reads, power));
      },
      50, 4);
}

// The mean is what an answer is measured to lose. Its variance is that squared, the multiple being
// 1 give or take 1, and a quarter of what it is without a measurement.
TEST(Additive, AMeasurementIsThePriorUpToItsMultiple) {
  const AdditiveProblem layers{4, 16, 0, 16}, heads{16, 64, 0, 16, 4};
  const AdditiveProblem priced{4, 1024, 0, 16, 1, {{0, 0}, {1, 152}, {4, 256}, {kAllRows, 1024}}};
  const LayerLosses losses(risingLosses(4));
  for (const AdditiveProblem& problem : {layers, heads, priced}) {
    v1::LearnerState state;
    beginAdditive(problem, &state);
    const AdditivePosterior before(problem, state);
    beginMeasured(problem, losses, &state);
    const AdditivePosterior after(problem, state);
    SampleSchedule schedule(problem.entries);
    double lost = 0;
    for (uint32_t e = 0; e < problem.entries; ++e) {
      schedule[e] =
          problem.prices.empty() ? e / problem.per_layer * 8 / 3 : std::array{0, 1, 4, 4}[e];
      const uint32_t reads = problem.reference()[e];
      lost += 4 *
              (losses.loss(e / problem.per_layer, schedule[e]) -
               losses.loss(e / problem.per_layer, reads)) /
              problem.per_layer;
    }
    const auto prior = before.above(schedule), measured = after.above(schedule);
    EXPECT_NEAR(measured.mean, -lost, 1e-6);
    EXPECT_NEAR(measured.deviation, std::hypot(lost, prior.deviation / 2), 1e-6);
    EXPECT_EQ(after.inReward(1), before.inReward(1));
  }
  v1::LearnerState state;
  beginAdditive(priced, &state);
  beginMeasured(priced, losses, &state);
  EXPECT_NEAR(AdditivePosterior(priced, state).worth(2, kAllRows).mean, 4 * 3 * 3, 1e-6);
}

// The fit of 1, 1/n and log n to another power of n misses up to 0.15 of the 2 that reads save.
TEST(Additive, AMeasurementOfAnyShapeHoldsBeyondTheMeasuredReads) {
  PriceList ladder = {{0, 0}};
  for (uint32_t reads = 1; reads <= 8192; reads *= 2) ladder.push_back({reads, 1});
  ladder.push_back({kAllRows, 1024});
  const AdditiveProblem counted{1, 8192, 0, 16}, priced{1, 1024, 0, 16, 1, ladder};
  for (const double power : {0.5, 1.5}) {
    const LayerLosses losses(risingLosses(1, 1, power));
    for (const AdditiveProblem& problem : {counted, priced}) {
      v1::LearnerState state;
      beginAdditive(problem, &state);
      beginMeasured(problem, losses, &state);
      const AdditivePosterior prior(problem, state);
      for (const auto& [reads, price] : ladder) {
        if (reads == kAllRows) continue;
        const double saved = 4 * (losses.loss(0, 0) - losses.loss(0, reads));
        EXPECT_NEAR(prior.worth(0, reads).mean, saved, 4 * 0.16) << power << ", " << reads;
        if (reads == 512) {
          EXPECT_NEAR(prior.worth(0, reads).mean, saved, 4 * 0.06) << power;
        }
        if (problem.prices.empty()) continue;
        EXPECT_GE(prior.worth(0, kAllRows).mean, prior.worth(0, reads).mean - 1e-6) << reads;
      }
      if (problem.prices.empty()) continue;
      EXPECT_NEAR(prior.worth(0, kAllRows).mean, 4 * 3, 4 * 0.1) << power;
    }
  }
}

// Without losses the prior stays, and with losses beyond reason, whose prior would be one of
// rounding errors. The surrogate learns on from each.
TEST(Additive, AnyMeasurementIsBorne) {
  v1::LearnerState none, state;
  beginAdditive(kProblem, &none);
  const auto hasFactor = [](const v1::LearnerState& of) {
    return !factorOf({of.precision().begin(), of.precision().end()}, kProblem.features()).empty();
  };
  for (const double scale : {0.0, 1.0, 1e2, 1e3, 1e4, 1e6, 1e9, 1e40}) {
    state = none;
    beginMeasured(kProblem, LayerLosses(risingLosses(4, scale)), &state);
    EXPECT_EQ(state.SerializeAsString() == none.SerializeAsString(), scale == 0 || scale > 1e3)
        << scale;
    EXPECT_TRUE(hasFactor(state)) << scale;
    observe(kProblem, {{{5, 0, 5, 0}, 0.5, 1}, {{1, 2, 3, 4}, 1, 1}}, &state);
    EXPECT_TRUE(hasFactor(state)) << scale;
    const AdditivePosterior posterior(kProblem, state);
    EXPECT_TRUE(kProblem.isSchedule(posterior.best()));
    EXPECT_TRUE(std::isfinite(posterior.above({1, 2, 3, 4}).mean));
  }
}

// Of the level that answers have: what is above uniform gains less reward than it would lose where
// uniform answers most, and more where it answers few.
TEST(Additive, RewardIsThatOfLogOddsAtTheLevelOfUniform) {
  for (const double uniform : {0.1, 0.5, 0.9}) {
    std::vector<Asked> episodes;
    for (uint64_t set = 0; set < 200; ++set) episodes.push_back({set, {3, 2, 3, 2}, uniform});
    const AdditivePosterior posterior(kProblem, learnedFrom(episodes, 20));
    const auto rewardAt = [&](double above) {
      return 1 / (1 + (1 - uniform) / uniform * std::exp(-above)) - uniform;
    };
    for (const double above : {-2.0, 0.0, 1.0, 3.0}) {
      EXPECT_NEAR(posterior.inReward(above), rewardAt(above), 0.02) << uniform;
    }
  }
}

// Sums that no run of ours comes to, and precisions without a factor.
TEST(Additive, StatesOfOthersAreBorne) {
  const std::vector<Asked> episodes = someEpisodes();
  for (const double value : {0.0, -1.0, 1e308, 1e-308, std::nan("")}) {
    for (const bool evidence : {false, true}) {
      v1::LearnerState state = learnedFrom(episodes, 20);
      auto& sums = evidence ? *state.mutable_evidence() : *state.mutable_precision();
      for (double& sum : sums) sum = value;
      const v1::LearnerState before = state;
      observe(kProblem, {{{5, 0, 5, 0}, 0.5, 1}, {{1, 2, 3, 4}, 1, 1}}, &state);
      const SampleSchedule best = AdditivePosterior(kProblem, state).best();
      EXPECT_EQ(std::accumulate(best.begin(), best.end(), 0u), 10u);
      if (evidence && value != 0 && value != -1 && value != 1e-308) {
        EXPECT_EQ(std::isfinite(state.evidence(0)), std::isfinite(value));
      }
    }
  }
}

}  // namespace
}  // namespace allot
