// Learners that search or ascend without a surrogate: evolution, cma-es, santa. Parts against the
// papers' formulas, then whole runs in worlds whose best schedule is known (planted_run.h).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "core/learning/budget_check.h"
#include "core/learning/cma_es.h"
#include "core/learning/evolution.h"
#include "core/learning/policy.h"
#include "core/learning/policy_gradient.h"
#include "core/learning/replay.h"
#include "core/learning/schedule.h"
#include "core/spec/spec.h"
#include "core/spec/spec_change.h"
#include "tests/core/planted_run.h"

namespace allot {
namespace {

using planted_run::eachSchedule;
using planted_run::experimentOf;
using planted_run::Learning;
using planted_run::planted;
using planted_run::probability;
using planted_run::shareOfGain;
using planted_run::World;
using testing::HasSubstr;

const v1::BudgetPolicy& budgetOf(const v1::PolicySnapshot& policy, int budget = 0) {
  return policy.frontier().budgets(budget);
}

// ---- Evolution ----

TEST(Evolution, ProposalsAreTheMeanWithNoiseAndWithout) {
  const v1::Experiment experiment = experimentOf(
      "{totalBudget: 40, minPerLayer: 1}", "{learner: evolution}", "{episodesPerQuestionSet: 7}");
  v1::AggregatorState state = initialState(experiment, 8);
  auto& budget = *state.mutable_policy()->mutable_frontier()->mutable_budgets(0);
  for (int l = 0; l < 8; ++l) budget.set_logits(l, 0.1 * l);
  state.mutable_policy()->set_version(4);
  Learning run(experiment, planted, 1);
  // An update without a gradient, of one result: logits stay, version 5 proposes around them.
  v1::EpisodeResult alone = run.episode(run.state().policy(), 3);
  alone.set_policy_version(4);
  const auto after = applyUpdate(experiment, state, {alone}).state.policy();
  const auto& proposals = budgetOf(after).proposals();
  const std::vector<double> mean(budget.logits().begin(), budget.logits().end());
  const auto rounded = [&](double sign, uint32_t pair) {
    const std::vector<double> noise =
        evolutionNoise(runStreams(experiment.spec()), 5, 0, pair, mean.size());
    std::vector<double> logits = mean;
    for (size_t i = 0; i < logits.size(); ++i) logits[i] += sign * kEvolutionStep * noise[i];
    return learnedSchedule(softmax(logits), 40, 1, 40);
  };
  ASSERT_EQ(proposals.size(), 7);
  const auto at = [&](int i) {
    return SampleSchedule(proposals[i].samples().begin(), proposals[i].samples().end());
  };
  EXPECT_EQ(at(0), uniformSchedule(40, 8));
  EXPECT_EQ(at(1), rounded(0, 0));  // the candidate, which the mean rounds to
  EXPECT_EQ(at(2), rounded(1, 0));
  EXPECT_EQ(at(3), rounded(-1, 0));
  EXPECT_EQ(at(4), rounded(1, 1));
  EXPECT_EQ(at(5), rounded(-1, 1));
  EXPECT_EQ(at(6), rounded(0, 0));  // left over
  EXPECT_NE(at(2), at(4));
}

TEST(Evolution, EachVersionBudgetAndPairHasItsOwnNoise) {
  const RunStreams streams{7};
  const auto first = evolutionNoise(streams, 3, 1, 0, 9);
  EXPECT_EQ(evolutionNoise(streams, 3, 1, 0, 9), first);
  std::set<std::vector<double>> all{first};
  all.insert(evolutionNoise(streams, 4, 1, 0, 9));
  all.insert(evolutionNoise(streams, 3, 2, 0, 9));
  all.insert(evolutionNoise(streams, 3, 1, 1, 9));
  all.insert(evolutionNoise({8}, 3, 1, 0, 9));
  EXPECT_EQ(all.size(), 5u);
  // Mean 0 and variance 1 of 40,000 numbers: 4.5 standard errors fail 1 time in 70,000 each.
  double sum = 0, squares = 0;
  for (uint32_t pair = 0; pair < 1000; ++pair) {
    for (const double e : evolutionNoise(streams, 1, 0, pair, 40)) {
      sum += e;
      squares += e * e;
    }
  }
  EXPECT_LT(std::abs(sum) / 200, 4.5);
  EXPECT_LT(std::abs(squares - 40000) / std::sqrt(2 * 40000.0), 4.5);
}

// A result that is late counts with the noise of the version that it names.
TEST(Evolution, TheStepIsTheGradientOfTheNoiseThatWasTried) {
  const v1::Experiment experiment =
      experimentOf("{totalBudget: 16}", "{learner: evolution, optimizer: sgd, learningRate: 0.5}");
  Learning run(experiment, planted, 3);
  run.updates(4);
  const v1::AggregatorState before = run.state();
  const v1::PolicySnapshot old = run.records()[1].policy();  // version 2
  ASSERT_EQ(old.version(), 2u);
  const uint64_t first = 1000;  // a set of ten that nobody has begun
  std::vector<v1::EpisodeResult> results;
  for (const uint64_t place : {0, 2, 3, 7}) {
    results.push_back(run.episode(place < 5 ? old : before.policy(), first + place));
  }
  const UpdateOutcome outcome = applyUpdate(experiment, before, results);
  double rewards = 0;
  for (const auto& result : results) rewards += result.reward();
  std::vector<double> gradient(8);
  const auto add = [&](size_t i, uint64_t version, uint32_t pair, double sign) {
    const double advantage = results[i].reward() - (rewards - results[i].reward()) / 3;
    const auto noise = evolutionNoise(runStreams(experiment.spec()), version, 0, pair, 8);
    for (size_t l = 0; l < 8; ++l) gradient[l] += advantage * sign / kEvolutionStep * noise[l] / 3;
  };
  add(1, 2, 0, 1);
  add(2, 2, 0, -1);
  add(3, 4, 2, -1);
  double norm = 0;
  for (int l = 0; l < 8; ++l) {
    const double moved =
        budgetOf(outcome.state.policy()).logits(l) - budgetOf(before.policy()).logits(l);
    EXPECT_NEAR(moved, 0.5 * gradient[static_cast<size_t>(l)], 1e-12);
    norm += gradient[static_cast<size_t>(l)] * gradient[static_cast<size_t>(l)];
  }
  EXPECT_NEAR(outcome.record.gradient_norm(), std::sqrt(norm), 1e-12);
  for (const double weight : outcome.record.weights()) EXPECT_EQ(weight, 1);
}

// ---- CMA-ES ----

constexpr uint32_t kDimensions = 6;

struct Search {
  Logits mean;
  v1::Search search;
  uint64_t version = 0;
  uint32_t answers = 0;

  explicit Search(uint32_t n = kDimensions) {
    mean.Resize(static_cast<int>(n), 0.0);
    beginSearch(n, &search);
  }
  uint32_t n() const { return static_cast<uint32_t>(mean.size()); }
  std::vector<std::vector<double>> ask(uint32_t count) {
    RandomStream random({1}, Purpose::kLearner, ++version);
    return askPoints(version, count, mean, &random, &search);
  }
  void generations(int count, const std::function<double(const std::vector<double>&)>& value) {
    for (const uint64_t end = search.generations() + static_cast<uint64_t>(count);
         search.generations() < end;) {
      const auto points = ask(5);
      for (uint32_t p = 0; p < points.size(); ++p, ++answers) {
        tellPoint(version, p, value(points[p]), n(), &search);
      }
      learnGeneration(&mean, &search);
    }
  }
};

// The tutorial's formulas as they are written there, from C = I, where all its roots are the same.
TEST(CmaEs, TheFirstGenerationIsTheTutorials) {
  Search run;
  const double n = kDimensions;
  const auto lambda = generationSize(kDimensions);
  EXPECT_EQ(lambda, 18u);  // 2 (4 + floor(3 ln 6))
  const auto points = run.ask(lambda);
  std::vector<size_t> order(lambda);
  std::iota(order.begin(), order.end(), size_t{0});
  const auto value = [&](size_t p) { return std::sin(3.0 * static_cast<double>(p)); };
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return value(a) > value(b); });
  for (uint32_t p = 0; p < lambda; ++p) tellPoint(1, p, value(p), kDimensions, &run.search);
  learnGeneration(&run.mean, &run.search);

  std::vector<double> w(lambda / 2), step(kDimensions);
  double sum = 0, squares = 0;
  for (size_t i = 0; i < w.size(); ++i)
    sum += w[i] = std::log((lambda + 1) / 2.0) - std::log(i + 1.0);
  for (double& weight : w) {
    weight /= sum;
    squares += weight * weight;
  }
  const double mu = 1 / squares;
  const double longest = std::sqrt(n) + 2 * n / (n + 2);
  std::vector<std::vector<double>> y;
  for (size_t i = 0; i < w.size(); ++i) {
    y.push_back(points[order[i]]);  // from the mean 0
    double length = 0;
    for (double& x : y[i]) {
      x /= kFirstStep;
      length += x * x;
    }
    length = std::sqrt(length);
    for (double& x : y[i]) x *= std::min(1.0, longest / length);
    for (size_t k = 0; k < step.size(); ++k) step[k] += w[i] * y[i][k];
  }
  const double c_sigma = (mu + 2) / (n + mu + 5);
  const double d_sigma = 1 + 2 * std::max(0.0, std::sqrt((mu - 1) / (n + 1)) - 1) + c_sigma;
  const double c_c = (4 + mu / n) / (n + 4 + 2 * mu / n);
  const double c_1 = 2 / ((n + 1.3) * (n + 1.3) + mu);
  const double c_mu =
      std::min(1 - c_1, 2 * (0.25 + mu + 1 / mu - 2) / ((n + 2) * (n + 2) + 2 * mu / 2));
  const double expected_length = std::sqrt(n) * (1 - 1 / (4 * n) + 1 / (21 * n * n));
  double length = 0;
  for (const double s : step) length += s * s;
  const double p_sigma = std::sqrt(c_sigma * (2 - c_sigma) * mu * length);
  const bool h =
      p_sigma / std::sqrt(1 - std::pow(1 - c_sigma, 2)) < (1.4 + 2 / (n + 1)) * expected_length;
  ASSERT_TRUE(h);
  std::vector<std::vector<double>> c(kDimensions, std::vector<double>(kDimensions));
  double trace = 0;
  for (size_t i = 0; i < step.size(); ++i) {
    for (size_t j = 0; j < step.size(); ++j) {
      c[i][j] =
          (1 - c_1 - c_mu) * (i == j ? 1 : 0) + c_1 * c_c * (2 - c_c) * mu * step[i] * step[j];
      for (size_t s = 0; s < w.size(); ++s) c[i][j] += c_mu * w[s] * y[s][i] * y[s][j];
    }
    trace += c[i][i];
  }
  const double sigma = kFirstStep * std::exp(c_sigma / d_sigma * (p_sigma / expected_length - 1));
  EXPECT_NEAR(run.search.step_size(), sigma * std::sqrt(trace / n), 1e-12);
  for (size_t i = 0; i < step.size(); ++i) {
    const auto at = static_cast<int>(i);
    EXPECT_NEAR(run.mean[at], kFirstStep * step[i], 1e-12);
    EXPECT_NEAR(run.search.step_path(at), std::sqrt(c_sigma * (2 - c_sigma) * mu) * step[i], 1e-12);
    for (size_t j = 0; j <= i; ++j) {
      const double scaled = (1 - kRidge) * c[i][j] * n / trace + (i == j ? kRidge : 0);
      EXPECT_NEAR(run.search.covariance(static_cast<int>(i * (i + 1) / 2 + j)), scaled, 1e-12);
    }
  }
}

TEST(CmaEs, ClimbsAnEllipsoid) {
  Search run;
  const auto value = [](const std::vector<double>& x) {
    double sum = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const double away = x[i] - 3;
      sum -= std::pow(100, static_cast<double>(i) / (kDimensions - 1)) * away * away;
    }
    return sum;
  };
  run.generations(60, value);
  for (int i = 0; i < run.mean.size(); ++i) EXPECT_NEAR(run.mean[i], 3, 0.5) << i;
  EXPECT_EQ(run.search.step_size(), kLeastStep);
  // Where the value is steep the search is narrow.
  EXPECT_GT(run.search.covariance(0), 5 * run.search.covariance(20));
  EXPECT_TRUE(isSearchOf(kDimensions, 5, run.search));
}

// Steps in one direction add up in the path, so that they grow.
TEST(CmaEs, StepsGrowOnASlope) {
  Search run;
  run.generations(25, [](const std::vector<double>& x) { return x[0] - x[1]; });
  EXPECT_EQ(run.search.step_size(), kMostStep);
  EXPECT_GT(run.mean[0], 20);
  EXPECT_TRUE(isSearchOf(kDimensions, 5, run.search));
}

TEST(CmaEs, APointCountsOnceAndWaitsForItsGeneration) {
  Search run;
  const auto size = generationSize(kDimensions);
  const auto answered = [&] { return learnGeneration(&run.mean, &run.search) > 0; };
  run.ask(size);
  for (uint32_t p = 0; p + 1 < size; ++p) {
    tellPoint(1, p, p, kDimensions, &run.search);
    tellPoint(1, p, -1.0 * p, kDimensions, &run.search);  // in the mean 0
  }
  tellPoint(2, 0, 1, kDimensions, &run.search);     // nobody asked
  tellPoint(1, size, 1, kDimensions, &run.search);  // nor for this
  EXPECT_FALSE(answered());
  // What waits is kept while versions pass; what nobody answered is not.
  for (int version = 0; version < 10; ++version) run.ask(3);
  EXPECT_EQ(run.search.asked_size(), kAskedVersions + 1);
  EXPECT_EQ(run.search.asked(0).version(), 1u);
  tellPoint(5, 0, 1, kDimensions, &run.search);  // gone
  EXPECT_FALSE(answered());
  tellPoint(11, 2, 1, kDimensions, &run.search);
  EXPECT_TRUE(answered());
  EXPECT_EQ(run.search.generations(), 1u);
  for (uint32_t p = 0; p < size; ++p) tellPoint(1, p, 1, kDimensions, &run.search);
  EXPECT_FALSE(answered());  // but one of them was learned from
}

TEST(CmaEs, ASearchOfOthersIsRefused) {
  Search run;
  run.generations(3, [](const std::vector<double>& x) { return x[0]; });
  ASSERT_TRUE(isSearchOf(kDimensions, 5, run.search));
  EXPECT_FALSE(isSearchOf(kDimensions + 1, 5, run.search));
  EXPECT_FALSE(isSearchOf(kDimensions, 4, run.search));
  const auto refused = [&](const std::function<void(v1::Search*)>& change) {
    v1::Search bad = run.search;
    change(&bad);
    return !isSearchOf(kDimensions, 5, bad);
  };
  EXPECT_TRUE(refused([](auto* s) { s->set_step_size(0); }));
  EXPECT_TRUE(refused([](auto* s) { s->set_step_size(NAN); }));
  EXPECT_TRUE(refused([](auto* s) { s->set_step_size(1e9); }));
  EXPECT_TRUE(refused([](auto* s) { s->set_covariance(0, 0); }));
  EXPECT_TRUE(refused([](auto* s) { s->set_covariance(1, 1.5); }));  // no factor
  EXPECT_TRUE(refused([](auto* s) { s->set_covariance(0, 1e300); }));
  // It has a factor, of which a step's coordinates would overflow: L has 10 beside a diagonal of
  // hardly anything.
  EXPECT_TRUE(refused([](auto* s) {
    const double least = kRidge * 0.51, beside = 2;
    for (int i = 0, at = 0; i < static_cast<int>(kDimensions); ++i) {
      for (int j = 0; j <= i; ++j, ++at) {
        const double own = i == j ? least + (i > 0 ? beside * beside : 0) : 0;
        s->set_covariance(at, i == j + 1 ? beside * std::sqrt(least) : own);
      }
    }
  }));
  EXPECT_TRUE(refused([](auto* s) { s->set_covariance(4, NAN); }));
  EXPECT_TRUE(refused([](auto* s) { s->add_covariance(0); }));
  EXPECT_TRUE(refused([](auto* s) { s->set_step_path(0, INFINITY); }));
  EXPECT_TRUE(refused([](auto* s) { s->clear_covariance_path(); }));
  EXPECT_TRUE(refused([](auto* s) { s->mutable_asked(0)->add_points(0); }));
  EXPECT_TRUE(refused([](auto* s) { s->mutable_asked(0)->set_points(0, NAN); }));
  EXPECT_TRUE(refused([](auto* s) { *s->add_asked() = s->asked(0); }));
  EXPECT_TRUE(refused([](auto* s) {
    const auto last = s->asked(s->asked_size() - 1);
    for (uint64_t more = 1; more < 40; ++more) {
      *s->add_asked() = last;
      s->mutable_asked(s->asked_size() - 1)->set_version(last.version() + more);
    }
  }));
}

// ---- Santa ----

TEST(Santa, IsAlgorithmOneByHand) {
  const v1::Experiment experiment = experimentOf("{totalBudget: 4}", "{learner: santa}");
  const v1::AggregatorState before = initialState(experiment, 2);
  std::vector<v1::EpisodeResult> results(3);
  const uint32_t schedules[3][2] = {{4, 0}, {1, 3}, {2, 2}};
  const double rewards[] = {1, 0.25, 0.25};  // b = .5
  for (size_t k = 0; k < 3; ++k) {
    for (const uint32_t s : schedules[k]) results[k].add_schedule(s);
    results[k].set_reward(rewards[k]);
    // As if the policy had moved far since: Algorithm 1 does not ask.
    results[k].set_behaviour_log_prob(-20);
  }
  const UpdateOutcome outcome = applyUpdate(experiment, before, results);
  // 1/3 (.5 (2, -2) - .25 (-1, 1) - .25 (0, 0))
  EXPECT_EQ(outcome.state.policy().logits(0), 0.02 * (1.25 / 3));
  EXPECT_EQ(outcome.state.policy().logits(1), -0.02 * (1.25 / 3));
  for (int k = 0; k < 3; ++k) {
    EXPECT_EQ(outcome.record.weights(k), 1);
    EXPECT_EQ(outcome.record.baselines(k), 0.5);
  }
}

TEST(Santa, WhatItLeavesOpenAndWhatNot) {
  const v1::Experiment plain = experimentOf("{totalBudget: 8}", "{learner: santa}");
  const v1::Spec& spec = plain.spec();
  EXPECT_EQ(optimizerOf(spec.update()), Optimizer::kSgd);
  EXPECT_EQ(spec.update().learning_rate(), 0.02);
  EXPECT_EQ(baselineOf(spec.update()), Baseline::kBatchMean);
  EXPECT_EQ(modeOf(spec.staleness()), StalenessMode::kNone);
  EXPECT_FALSE(learnsByBudgets(spec));
  const v1::Experiment faster =
      experimentOf("{totalBudget: 8}", "{learner: santa, learningRate: 0.5, optimizer: sgd}");
  EXPECT_EQ(faster.spec().update().learning_rate(), 0.5);
  const auto refusal = [&](const std::string& setting) {
    const auto changed = withSettings(plain, {setting});
    return changed ? "" : changed.error().message;
  };
  EXPECT_EQ(refusal("spec.update.episodesPerUpdate=50"), "");
  EXPECT_THAT(refusal("spec.update.optimizer=adam"),
              HasSubstr("spec.update.optimizer: spec.update.learner santa is Algorithm 1 to the "
                        "letter, which has sgd here: leave this key out, or choose learner "
                        "reinforce"));
  EXPECT_THAT(refusal("spec.update.baseline=leave-one-out"), HasSubstr("has batch-mean here"));
  EXPECT_THAT(refusal("spec.update.entropyBonus=0.1"), HasSubstr("has 0 here"));
  EXPECT_THAT(refusal("spec.staleness.mode=drop"), HasSubstr("has none here"));
  EXPECT_THAT(refusal("spec.policy.totalBudgets=[8, 16]"), HasSubstr("has one total budget here"));
  EXPECT_THAT(refusal("spec.policy.granularity=head"), HasSubstr("has layer here"));
  EXPECT_THAT(refusal("spec.rollout.episodesPerQuestionSet=10"), HasSubstr("has 1 here"));
  // The others' defaults.
  const auto of = [](const char* learner) {
    return experimentOf("{totalBudget: 8}", std::string("{learner: ") + learner + "}").spec();
  };
  EXPECT_EQ(of("evolution").update().learning_rate(), 0.2);
  EXPECT_EQ(of("reinforce").update().learning_rate(), 0.05);
  EXPECT_EQ(of("cma-es").update().optimizer(), "adam");
  EXPECT_EQ(of("evolution").rollout().episodes_per_question_set(), 10u);
  EXPECT_EQ(modeOf(of("evolution").staleness()), StalenessMode::kTruncatedIs);
}

// As many results as there are, though no fewer than episodesPerUpdate; others take just that many.
TEST(Santa, AnUpdateOfMoreResultsIsComputedAgain) {
  const auto replayed = [](const char* learner, const std::vector<uint32_t>& more) -> std::string {
    Learning run(experimentOf("{totalBudget: 8}",
                              std::string("{learner: ") + learner + ", episodesPerUpdate: 5}"),
                 planted, 4);
    for (const uint32_t beyond : more) run.update(beyond);
    Replay replay(run.experiment(), run.initial(), false);
    for (const auto& record : run.records()) {
      if (const Status same = replay.next(record); !same) return same.error().message;
    }
    EXPECT_EQ(replay.state().SerializeAsString(), run.state().SerializeAsString());
    return "";
  };
  EXPECT_EQ(replayed("santa", {0, 3, 40, 0, 1}), "");
  EXPECT_THAT(replayed("reinforce", {0, 3}), HasSubstr("8 results instead of 5"));
  Learning run(experimentOf("{totalBudget: 8}", "{learner: santa}"), planted, 4);
  run.update();
  run.records()[0].mutable_results()->RemoveLast();
  Replay replay(run.experiment(), run.initial(), false);
  const Status few = replay.next(run.records()[0]);
  EXPECT_THAT(few ? "" : few.error().message, HasSubstr("9 results instead of 10"));
}

// ---- Whole runs ----

// Layers 2 and 6 are worth something together, and two reads each are better than one.
double joint(const SampleSchedule& n) {
  const auto read = [](uint32_t reads) { return reads == 0 ? 0.0 : 1 - 0.5 / reads; };
  return -1.5 + 5 * read(n[2]) * read(n[6]);
}

double jointShare(const SampleSchedule& schedule, uint32_t total) {
  double best = -1e9;
  SampleSchedule begun;
  eachSchedule(8, total, 0, &begun,
               [&](const SampleSchedule& each) { best = std::max(best, joint(each)); });
  const double uniform = probability(joint(uniformSchedule(total, 8)), 0);
  return (probability(joint(schedule), 0) - uniform) / (probability(best, 0) - uniform);
}

// Of ten seeds: how many publish a schedule with .7 or more of the best one's gain over uniform.
int found(const std::string& update, int updates, const World& world,
          double (*share)(const SampleSchedule&, uint32_t)) {
  int runs = 0;
  for (uint64_t seed = 0; seed < 10; ++seed) {
    Learning run(experimentOf("{totalBudget: 8}", update, "{}", seed + 1), world, seed);
    run.updates(updates);
    runs += share(run.published(8), 8) > 0.7 ? 1 : 0;
  }
  return runs;
}

TEST(SearchLearners, EvolutionFindsWhatIsPlantedIn6400Answers) {
  EXPECT_GE(found("{learner: evolution}", 40, planted, shareOfGain), 9);
  EXPECT_GE(found("{learner: evolution}", 40, joint, jointShare), 9);
}

TEST(SearchLearners, CmaEsFindsItIn6400) {
  EXPECT_GE(found("{learner: cma-es}", 40, planted, shareOfGain), 9);
  EXPECT_GE(found("{learner: cma-es}", 40, joint, jointShare), 9);
}

TEST(SearchLearners, SantaFindsItIn80000) {
  EXPECT_GE(found("{learner: santa, maxUpdates: 500}", 500, planted, shareOfGain), 9);
  EXPECT_GE(found("{learner: santa, maxUpdates: 500}", 500, joint, jointShare), 9);
}

// Heads, a least in each, several budgets: what is published and proposed are schedules, a state is
// one that is taken from outside, and another run's is not.
TEST(SearchLearners, StatesAreCheckedAndForked) {
  const ModelShape shape(4, 2, 4);
  const World heads = [](const SampleSchedule& n) { return 0.3 * n[6] - 1; };
  for (const char* learner : {"evolution", "cma-es", "reinforce"}) {
    const std::string update = std::string("{learner: ") + learner + "}";
    const auto experiment =
        experimentOf("{totalBudgets: [6, 20], granularity: head, minPerLayer: 1}", update);
    Learning run(experiment, heads, 1, shape);
    run.updates(25);
    const v1::AggregatorState good = originOf("01J", run.state()).state();
    ASSERT_TRUE(checkBudgets(experiment, shape, good)) << learner;
    EXPECT_FALSE(checkBudgets(experiment, ModelShape(4, 2, 2), good));
    const auto refused = [&](const std::function<void(v1::AggregatorState*)>& change) {
      v1::AggregatorState bad = good;
      change(&bad);
      const Status status = checkBudgets(experiment, shape, bad);
      return !status && status.error().code == ErrorCode::kData;
    };
    const auto budget = [](v1::AggregatorState* s) {
      return s->mutable_policy()->mutable_frontier()->mutable_budgets(1);
    };
    EXPECT_TRUE(refused([&](auto* s) { budget(s)->set_logits(0, NAN); }));
    EXPECT_TRUE(refused([&](auto* s) { budget(s)->set_logits(0, 1e300); }));
    EXPECT_TRUE(refused([&](auto* s) { budget(s)->add_logits(0); }));
    EXPECT_TRUE(refused([](auto* s) { s->mutable_learners(0)->add_evidence(0); }));
    EXPECT_TRUE(refused([](auto* s) { s->set_optimizer_steps(UINT64_MAX); }));
    EXPECT_TRUE(refused([](auto* s) { s->mutable_learners(1)->add_first_moment(0); }));
    if (learner == std::string("cma-es")) {
      EXPECT_TRUE(refused([](auto* s) { s->mutable_learners(0)->clear_search(); }));
      EXPECT_TRUE(
          refused([](auto* s) { s->mutable_learners(0)->mutable_search()->set_step_size(-1); }));
      EXPECT_GT(good.learners(0).search().generations(), 0u);
      EXPECT_TRUE(good.learners(0).search().asked().empty());
    } else {
      EXPECT_TRUE(refused([](auto* s) { s->mutable_learners(0)->mutable_search(); }));
      EXPECT_TRUE(refused([](auto* s) { s->mutable_learners(0)->set_second_moment(2, -1); }));
    }
    // A fork's first episodes are drawn, since nothing that its version 0 proposed can be known
    // again; from its first update on it proposes.
    EXPECT_LE(budgetOf(good.policy()).proposals_size(), 2);
    Learning fork(experiment, heads, 2, shape, good);
    fork.updates(5);
    EXPECT_TRUE(checkBudgets(experiment, shape, originOf("01J", fork.state()).state()));
    Replay replay(fork.experiment(), fork.initial(), false);
    for (const auto& record : fork.records()) {
      const Status same = replay.next(record);
      EXPECT_TRUE(same) << (same ? "" : same.error().message);
    }
    EXPECT_EQ(replay.state().SerializeAsString(), fork.state().SerializeAsString());
    for (const uint32_t total : {6u, 20u}) {
      const SampleSchedule schedule = run.published(total);
      EXPECT_EQ(std::accumulate(schedule.begin(), schedule.end(), 0u), total * schedule.size() / 4);
      EXPECT_GE(*std::min_element(schedule.begin(), schedule.end()), 1u);
    }
  }
}

// CMA-ES takes a factor of entries^2 numbers with every update.
TEST(SearchLearners, CmaEsHasAMostOfDimensions) {
  const auto fits = [](const char* learner) {
    const Status status = checkAgainstModel(experimentOf("{totalBudget: 64, granularity: head}",
                                                         std::string("{learner: ") + learner + "}"),
                                            {28, 2, 12});
    return status ? "" : status.error().message;
  };
  EXPECT_THAT(fits("cma-es"), HasSubstr("336 of them, and spec.update.learner cma-es models at "
                                        "most 128; choose a coarser one, or another learner"));
  EXPECT_EQ(fits("evolution"), "");
}

}  // namespace
}  // namespace allot
