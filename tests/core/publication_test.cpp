// Whole runs: how often they claim what is not so, what the rule of publication costs, and what a
// claim holds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>
#include <random>

#include "core/digest.h"
#include "core/learning/additive.h"
#include "core/learning/confirmation.h"
#include "core/learning/learning_checks.h"
#include "core/learning/measured.h"
#include "core/learning/policy.h"
#include "tests/core/planted_run.h"

namespace allot {
namespace {

struct WorldOf {
  const char* name;
  World world;
};
// Worlds in which no schedule of 32 reads is better than uniform.
std::vector<WorldOf> worldsWithoutGain() {
  const auto sum = [](const SampleSchedule& n, const std::function<double(uint32_t)>& loss) {
    double all = 0;
    for (const uint32_t reads : n) all += loss(reads);
    return all;
  };
  return {
      {"null", [](const SampleSchedule&) { return 1.0; }},
      {"cliff", [](const SampleSchedule& n) { return n == uniformSchedule(32, 8) ? 1.0 : 0.88; }},
      {"flat",
       [sum](const SampleSchedule& n) {
         return 1 - 0.06 * sum(n, [](uint32_t reads) { return reads < 4 ? 4.0 - reads : 0; });
       }},
      {"smooth",
       [sum](const SampleSchedule& n) {
         return 1 -
                0.5 * sum(n, [](uint32_t reads) { return reads > 0 ? 1.0 / reads - 0.25 : 1.5; });
       }},
      {"worst",
       [](const SampleSchedule& n) {
         double worst = 0;
         for (const uint32_t reads : n) worst = std::max(worst, reads > 0 ? 1.0 / reads : 1.6);
         return 1.25 - worst;
       }},
  };
}

double meanReward(const World& world, const SampleSchedule& schedule) {
  double sum = 0;
  for (int question = 0; question < 256; ++question) {
    sum += probability(world(schedule), std::sin(question * 12.9898) * 1.5);
  }
  return sum / 256;
}

// Runs that at any time call a schedule better than uniform that is not.
int falseRuns(const World& world, int runs, int updates, const char* update, const char* rollout) {
  const double uniform = meanReward(world, uniformSchedule(32, 8));
  int wrong = 0;
  for (int r = 0; r < runs; ++r) {
    v1::Experiment experiment =
        experimentOf("{totalBudget: 32}", update, rollout, static_cast<uint64_t>(r) + 1);
    experiment.mutable_spec()->mutable_task()->set_confirm_questions(16384);
    Learning run(experiment, world, static_cast<uint64_t>(r));
    bool claims = false;
    for (int u = 0; u < updates; ++u) {
      run.update();
      claims |= run.state().policy().frontier().budgets(0).beats_uniform() &&
                meanReward(world, run.published(32)) <= uniform + 1e-12;
    }
    wrong += claims ? 1 : 0;
  }
  return wrong;
}

// ALLOT_PUBLICATION_RUNS replaces the number of runs.
int publicationRuns(int usual) {
  const char* given = std::getenv("ALLOT_PUBLICATION_RUNS");
  return given != nullptr ? static_cast<int>(std::strtol(given, nullptr, 10)) : usual;
}

// A twentieth of the runs may be wrong by the promise. In fact at most one in a hundred is, by
// which more than these are wrong in fewer than 1 of 1,000 changes of the seeds.
TEST(Publication, IsRarelyWrongInWorldsWithoutGain) {
  const int runs = publicationRuns(40);
  for (const auto& [name, world] : worldsWithoutGain()) {
    const int wrong = falseRuns(world, runs, 30, "{learner: additive, episodesPerUpdate: 20}",
                                "{questionsPerEpisode: 8}");
    const int later =
        falseRuns(world, runs / 2, 150, "{learner: additive, episodesPerUpdate: 10}", "{}");
    std::printf("%s: %d of %d runs of 30 updates, %d of %d of 150\n", name, wrong, runs, later,
                runs / 2);
    EXPECT_LE(wrong, 3 + runs * 3 / 100) << name;
    EXPECT_LE(later, 2 + runs / 100) << name;
  }
}

TEST(Publication, OfAMovingPolicyIsNoOtherRule) {
  const int wrong =
      falseRuns(worldsWithoutGain()[0].world, 20, 30,
                "{learner: reinforce, learningRate: 0.15, episodesPerUpdate: 20, maxUpdates: 300}",
                "{questionsPerEpisode: 8, episodesPerQuestionSet: 20}");
  EXPECT_LE(wrong, 4);
}

enum class Told { kNothing, kCandidate, kPrior, kWrongCandidate, kWrongPrior };
constexpr const char* kToldNames[] = {"not measured", "candidate", "candidate and prior",
                                      "misleading candidate", "misleading candidate and prior"};

// A run of the planted world, of whose layers it is told something.
Learning plantedRun(uint32_t total, Told told, uint64_t seed) {
  v1::Experiment experiment = experimentOf("{totalBudget: " + std::to_string(total) + "}",
                                           "{learner: additive}", "{}", seed + 1);
  experiment.mutable_spec()->mutable_task()->set_confirm_questions(4096);
  v1::AggregatorState state = initialState(experiment, 8);
  if (told != Told::kNothing) {
    const bool misleading = told == Told::kWrongCandidate || told == Told::kWrongPrior;
    *state.mutable_measurement() = measurementOfLayers(8, plantedLoss, seed, misleading);
  }
  if (told == Told::kCandidate || told == Told::kWrongCandidate) withoutPrior(&state);
  return {experiment, planted, seed, 8, state};
}

// What the rule costs: the share of the gain that is published after 4,800 answers. What is
// measured is the first candidate and the surrogate's prior; where it misleads, little is lost.
TEST(Publication, FindsMostOfTheGainIn4800Answers) {
  const std::vector<std::array<double, 5>> least = {{0.92, 0.95, 0.96, 0.92, 0.92},
                                                    {0.78, 0.8, 0.9, 0.75, 0.75}};
  const auto seeds = static_cast<uint64_t>(publicationRuns(20));
  for (size_t c = 0; c < 10; ++c) {
    const auto told = static_cast<Told>(c % 5);
    const uint32_t total = c < 5 ? 8 : 16;
    std::array<double, 3> shares{};  // after 1,600, 2,400 and 4,800 answers
    for (uint64_t seed = 0; seed < seeds; ++seed) {
      Learning run = plantedRun(total, told, seed);
      int updates = 0;
      for (size_t at = 0; at < 3; ++at) {
        constexpr int kUpdates[] = {10, 15, 30};
        for (; updates < kUpdates[at]; ++updates) run.update();
        shares[at] += shareOfGain(run.published(total), total) / static_cast<double>(seeds);
      }
    }
    std::printf("%u reads, %s: %.3f %.3f %.3f of the gain\n", total, kToldNames[c % 5], shares[0],
                shares[1], shares[2]);
    EXPECT_GT(shares[2], least[c / 5][c % 5]);
  }
}

// ---- The best guess ----

// Nothing can be confirmed without fresh questions: the measured schedule is published from the
// first update on, at its budget alone, and nothing is claimed of it. All heads of a layer have its
// measured reads.
TEST(Publication, TheBestGuessIsNoClaim) {
  for (const uint32_t heads : {1u, 2u}) {
    const ModelShape shape(8, heads, heads);
    const auto ofHead = [&](const SampleSchedule& entries, uint32_t head) {
      SampleSchedule layers;
      for (size_t e = head; e < entries.size(); e += heads) layers.push_back(entries[e]);
      return layers;
    };
    const World world = [&](const SampleSchedule& n) {
      double lost = 0;
      for (uint32_t e = 0; e < n.size(); ++e) lost += plantedLoss(e / heads, n[e]) / heads;
      return 2 - lost;
    };
    v1::Experiment experiment = experimentOf(
        heads > 1 ? "{totalBudgets: [8, 16], granularity: head}" : "{totalBudgets: [8, 16]}",
        "{learner: additive}");
    experiment.mutable_spec()->mutable_task()->set_confirm_questions(0);
    v1::AggregatorState state = initialState(experiment, shape);
    Learning unmeasured(experiment, world, 3, shape, state);
    unmeasured.updates(2);
    EXPECT_EQ(unmeasured.published(16), uniformSchedule(16, 8));
    *state.mutable_measurement() = measurementOfLayers(8, plantedLoss, 3);
    Learning run(experiment, world, 3, shape, state);
    EXPECT_EQ(run.published(16), uniformSchedule(16, 8));
    for (int u = 0; u < 12; ++u) {
      run.update();
      for (const v1::BudgetPolicy& budget : run.state().policy().frontier().budgets()) {
        const uint32_t total = budget.total_budget();
        EXPECT_FALSE(budget.beats_uniform() || budget.has_claim());
        ASSERT_EQ(run.published(total).size(), 8 * heads);
        for (uint32_t head = 0; head < heads; ++head) {
          const SampleSchedule of = ofHead(run.published(total), head);
          EXPECT_EQ(of, *measuredSchedule(run.state(), total, 0));
          EXPECT_NE(of, uniformSchedule(total, 8));
        }
        EXPECT_EQ(scheduleFrom(budget.proposals(0).samples()), uniformSchedule(total, 8, heads));
      }
      EXPECT_EQ(run.published(20), uniformSchedule(20, 8));
    }
    ASSERT_TRUE(checkLearners(experiment, shape, run.state()));
    EXPECT_EQ(replayRefusal({experiment, run.initial(), false}, run.records(), run.state()), "");
  }
}

// The surrogate's features do not fit these losses, and have the measured schedule 0.6 behind
// uniform before any answer is graded. Losses and answers have it ahead, and it is published.
TEST(Publication, TheBestGuessIsOfTheLossesAndNotOfTheirFit) {
  const auto loss = [](uint32_t layer, uint32_t reads) {
    const bool is_missed = layer < 4 ? reads < 2 : reads < 8;
    return is_missed ? (layer < 4 ? 0.8 : 0.08) : 1e-3;
  };
  const v1::Measurement measurement = evenMeasurement(8, loss);
  const LayerLosses losses(measurement);
  const World world = [&](const SampleSchedule& n) {
    double all = 1;
    for (uint32_t l = 0; l < 8; ++l) all -= losses.stepsOfAnswer() * losses.loss(l, n[l]);
    return all;
  };
  for (uint64_t seed = 0; seed < 6; ++seed) {
    v1::Experiment experiment = experimentOf(
        "{totalBudget: 32}", "{learner: additive, episodesPerUpdate: 40}", "{}", seed + 1);
    experiment.mutable_spec()->mutable_task()->set_confirm_questions(0);
    v1::AggregatorState state = initialState(experiment, 8);
    *state.mutable_measurement() = measurement;
    Learning run(experiment, world, seed, 8, state);
    for (int u = 0; u < 10; ++u) {
      run.update();
      ASSERT_EQ(run.published(32), *measuredSchedule(run.state(), 32, 0)) << seed << ", " << u;
    }
    EXPECT_GT(meanReward(world, run.published(32)),
              meanReward(world, uniformSchedule(32, 8)) + 0.02);
  }
}

// A run of learner additive whose measurement takes two layers for each other: first uniform is
// published and then the measured schedule, with nothing confirmed.
// Another digest is another kArithmetic. ctest computes it a second time without FMA.
TEST(Publication, TheBestGuessIsEqualBitForBitOnEveryProcessor) {
  v1::Experiment experiment = experimentOf("{totalBudget: 16}", "{learner: additive}");
  experiment.mutable_spec()->mutable_task()->set_confirm_questions(0);
  v1::AggregatorState state = initialState(experiment, 8);
  *state.mutable_measurement() = evenMeasurement(8, [](uint32_t layer, uint32_t reads) {
    return plantedLoss(layer == 1 ? 4 : layer == 4 ? 1 : layer, reads);
  });
  Learning run(experiment, planted, 7, 8, state);
  const auto guess = *measuredSchedule(state, 16, 0);
  std::vector<bool> is_guess;
  std::string digests;
  for (int u = 0; u < 12; ++u) {
    run.update();
    is_guess.push_back(run.published(16) == guess);
    digests += sha256Hex(canonicalBytes(run.state()));
  }
  EXPECT_FALSE(run.state().policy().frontier().budgets(0).beats_uniform());
  EXPECT_TRUE(!is_guess.front() && is_guess.back()) << testing::PrintToString(is_guess);
  EXPECT_EQ(sha256Hex(digests), "fdd23a4471e5b68f5afd9e7c68f85e90d5a1a6512e537c1b24c11ca1b7c9180b");
}

// A candidate stays until another one is 1.5 deviations better, whether it is the published guess
// or not. Here the candidate is not behind uniform.
TEST(Publication, TheBestGuessDoesNotChangeTheCourseOfLearning) {
  int changes = 0;
  for (uint64_t seed = 0; seed < 12; ++seed) {
    Learning run = plantedRun(16, Told::kPrior, seed);
    run.update();
    for (int u = 0; u < 8; ++u) {
      const v1::Confirmation before = run.state().learners(0).confirmation();
      run.update();
      const v1::Confirmation& after = run.state().learners(0).confirmation();
      if (run.state().policy().frontier().budgets(0).has_claim()) break;
      if (before.number() == after.number()) continue;
      ++changes;
      const auto gain =
          AdditivePosterior(problemOf(run.experiment().spec(), 8, 1, 16), run.state().learners(0))
              .difference(scheduleFrom(after.candidate()), scheduleFrom(before.candidate()));
      EXPECT_GT(gain.mean, 1.5 * gain.deviation);
    }
  }
  EXPECT_GT(changes, 0);
}

// What the guess is worth, and what it costs if the measurement misleads: the mean reward of what
// is published less uniform's. The means of 400 runs are in docs/learning.md. By these runs a mean
// of 12 is below its bound in fewer than 1 of 1,000 changes of the seeds, in each case that has
// one. Where all others are equally bad no mean can be below what every run may lose.
TEST(Publication, ABestGuessThatMisleadsIsGivenUp) {
  const auto scaled = [](double by, const std::function<double(uint32_t)>& loss) {
    return [=](uint32_t, uint32_t reads) { return 1e-3 + by * loss(reads); };
  };
  const auto worlds = worldsWithoutGain();
  const struct {
    const char* name;
    World world;
    uint32_t total;
    bool misleading;
    std::function<double(uint32_t, uint32_t)> loss;
    std::optional<double> least;  // after 4,800 answers
  } cases[] = {
      {"planted", planted, 32, false, plantedLoss, 0.03},
      {"planted", planted, 64, false, plantedLoss, 0.008},
      {"planted, misleading", planted, 16, true, plantedLoss, 0.075},
      {"planted, misleading", planted, 32, true, plantedLoss, -0.005},
      {"planted, misleading", planted, 64, true, plantedLoss, -0.005},
      {"all others 2.1 points worse", worlds[1].world, 32, true, plantedLoss, {}},
      {"a layer below four reads costs", worlds[2].world, 32, true, plantedLoss, -0.005},
      {"additive in 1 / n", worlds[3].world, 32, true, plantedLoss, -0.005},
      {"additive in 1 / n, measured", worlds[3].world, 32, false,
       scaled(0.5, [](uint32_t reads) { return reads > 0 ? 1.0 / reads : 1.5; }), -0.029},
      {"the layer with fewest reads decides", worlds[4].world, 32, true, plantedLoss, -0.005},
  };
  const auto seeds = static_cast<uint64_t>(publicationRuns(12));
  for (const auto& [name, world, total, misleading, loss, least] : cases) {
    std::array<double, 3> gains{};  // after 1,600, 2,400 and 4,800 answers
    for (uint64_t seed = 0; seed < seeds; ++seed) {
      v1::Experiment experiment = experimentOf("{totalBudget: " + std::to_string(total) + "}",
                                               "{learner: additive}", "{}", seed + 1);
      experiment.mutable_spec()->mutable_task()->set_confirm_questions(4096);
      v1::AggregatorState state = initialState(experiment, 8);
      *state.mutable_measurement() = measurementOfLayers(8, loss, seed, misleading);
      Learning run(experiment, world, seed, 8, state);
      int updates = 0;
      for (size_t at = 0; at < 3; ++at) {
        constexpr int kUpdates[] = {10, 15, 30};
        for (; updates < kUpdates[at]; ++updates) run.update();
        gains[at] += (meanReward(world, run.published(total)) -
                      meanReward(world, uniformSchedule(total, 8))) /
                     static_cast<double>(seeds);
      }
    }
    std::printf("%s, %u reads: %+.4f %+.4f %+.4f above uniform\n", name, total, gains[0], gains[1],
                gains[2]);
    if (least) {
      EXPECT_GT(gains[2], *least) << name;
    }
  }
}

// The measurement is taken in once: in the first update of a run, and in none of a fork, which has
// it in what its origin has learned. Both replay.
TEST(Publication, AMeasurementIsThePriorOfARunAndNotOfItsFork) {
  Learning run = plantedRun(16, Told::kPrior, 3), candidate = plantedRun(16, Told::kCandidate, 3);
  const auto unsure = [](const Learning& of) {
    return AdditivePosterior({8, 16, 0, 16}, of.state().learners(0))
        .above({0, 8, 0, 0, 8, 0, 0, 0})
        .deviation;
  };
  EXPECT_NE(unsure(run.updates(5)), unsure(candidate.updates(5)));
  const v1::Origin origin = originOf(run.experiment(), "run", run.state());
  Learning fork(run.experiment(), planted, 4, 8, initialState(run.experiment(), 8, &origin));
  EXPECT_TRUE(fork.initial().has_measurement());
  EXPECT_LE(unsure(fork.updates(1)), unsure(run));
  for (Learning* one : {&run, &fork}) {
    Replay replay(one->experiment(), one->initial(), false);
    for (const v1::IterationRecord& record : one->records()) {
      const Status next = replay.next(record);
      ASSERT_TRUE(next) << next.error().message;
    }
    EXPECT_EQ(replay.state().SerializeAsString(), one->state().SerializeAsString());
  }
}

// How often 1.96 deviations of the surrogate hold the true log-odds above uniform: a figure of
// docs/learning.md, of worlds that break the model, too. In the planted world 1.00 and 0.98 of 400
// runs do, so that fewer than 16 of 20 do in fewer than 1 of 1,000 changes of the seeds.
TEST(Surrogate, IsCoveredInThePlantedWorld) {
  const auto loss = [](uint32_t reads) { return reads > 0 ? 1.0 / reads : 1.5; };
  const auto smooth = [&](double at) {
    return [=](const SampleSchedule& n) {
      double all = 0;
      for (const uint32_t reads : n) all += loss(reads) - at;
      return 1 - 0.5 * all;
    };
  };
  const auto groups = [&](const std::array<double, 8>& weights, double level) {
    return [=](const SampleSchedule& n) {
      std::array<double, 2> lost{};
      for (size_t l = 0; l < 8; ++l) lost[l / 4] += weights[l] * loss(n[l]);
      return level - std::max(lost[0], lost[1]);
    };
  };
  const struct {
    const char* name;
    World world;
    uint32_t total;
    int updates;
    const char *update, *rollout;
  } cases[] = {
      {"planted", planted, 8, 25, "{}", "{}"},
      {"smooth", smooth(0.5), 16, 30, "{episodesPerUpdate: 20}", "{questionsPerEpisode: 8}"},
      {"smooth", smooth(0.25), 32, 30, "{episodesPerUpdate: 20}", "{questionsPerEpisode: 8}"},
      {"equal groups", groups({1, 1, 1, 1, 1, 1, 1, 1}, 3), 16, 30, "{episodesPerUpdate: 20}",
       "{questionsPerEpisode: 8}"},
      {"unequal groups", groups({2, 0.1, 0.5, 0.1, 2, 0.1, 0.3, 0.1}, 1.5), 16, 30,
       "{episodesPerUpdate: 20}", "{questionsPerEpisode: 8}"},
  };
  const auto runs = static_cast<uint64_t>(publicationRuns(20));
  for (const auto& [name, world, total, updates, update, rollout] : cases) {
    const bool is_planted = &name == &cases[0].name;
    if (!is_planted && std::getenv("ALLOT_PUBLICATION_RUNS") == nullptr) break;
    const auto odds = [&world = world](const SampleSchedule& schedule) {
      const double reward = meanReward(world, schedule);
      return std::log(reward / (1 - reward));
    };
    const double uniform = odds(uniformSchedule(total, 8));
    std::array<int, 2> covered{};
    for (uint64_t seed = 0; seed < runs; ++seed) {
      v1::Experiment experiment =
          experimentOf("{totalBudget: " + std::to_string(total) + "}", update, rollout, seed + 1);
      experiment.mutable_spec()->mutable_task()->set_confirm_questions(16384);
      Learning run(experiment, world, seed);
      run.updates(updates);
      const AdditivePosterior posterior(problemOf(experiment.spec(), 8, 1, total),
                                        run.state().learners(0));
      RandomStream random({seed}, Purpose::kLearner, 99999);
      const SampleSchedule schedules[] = {posterior.best(), posterior.drawn(&random)};
      for (size_t i = 0; i < 2; ++i) {
        const auto believed = posterior.above(schedules[i]);
        const double error = odds(schedules[i]) - uniform - believed.mean;
        covered[i] += std::abs(error) <= 1.96 * believed.deviation + 1e-12 ? 1 : 0;
      }
    }
    std::printf("%s, %u reads: %d and %d of %d\n", name, total, covered[0], covered[1],
                static_cast<int>(runs));
    if (!is_planted) continue;
    for (const int count : covered) EXPECT_GE(count, 0.8 * static_cast<double>(runs));
  }
}

// The answers after which the published schedule first has 0.9 of the gain, by learner.
TEST(Publication, FirstHasNineTenthsOfTheGain) {
  struct Case {
    const char* learner;
    const char* rollout;
    double most8, most16;  // medians
  };
  std::vector<Case> cases = {{"additive", "{}", 2'000, 6'000}};
  if (std::getenv("ALLOT_PUBLICATION_RUNS") != nullptr) {
    const char* alone = "{episodesPerQuestionSet: 1}";
    cases.push_back({"reinforce", alone, 5'000, 16'000});
    cases.push_back({"reinforce, learningRate: 0.15", alone, 2'000, 6'000});
  }
  for (const auto& [learner, rollout, most8, most16] : cases) {
    for (const uint32_t total : {8, 16}) {
      std::vector<double> answers;
      for (uint64_t seed = 1; seed <= 12; ++seed) {
        Learning run(experimentOf("{totalBudget: " + std::to_string(total) + "}",
                                  std::string("{learner: ") + learner + "}", rollout, seed),
                     planted, seed);
        answers.push_back(0);
        while (shareOfGain(run.published(total), total) < 0.9 && answers.back() < 50'000) {
          run.update();
          answers.back() += 160;
        }
      }
      std::sort(answers.begin(), answers.end());
      const double median = (answers[5] + answers[6]) / 2;
      std::printf("%s, %u reads: 0.9 of the gain after %.0f answers\n", learner, total, median);
      EXPECT_LT(median, total == 8 ? most8 : most16);
    }
  }
}

// Confirmations of all budgets share the error: none has the number of another.
TEST(Publication, BudgetsShareTheErrorOfTheRun) {
  Learning run(experimentOf("{totalBudgets: [8, 16]}", "{episodesPerUpdate: 20}"), planted, 5);
  std::map<uint32_t, int> budgets;  // by number
  for (int u = 0; u < 40; ++u) {
    run.update();
    for (int b = 0; b < 2; ++b) {
      const v1::Confirmation& confirmation = run.state().learners(b).confirmation();
      if (confirmation.candidate().empty()) continue;
      EXPECT_EQ(budgets.try_emplace(confirmation.number(), b).first->second, b);
    }
  }
  EXPECT_GE(budgets.size(), 3u);
  for (const v1::BudgetPolicy& budget : run.state().policy().frontier().budgets()) {
    EXPECT_TRUE(budget.has_claim());
  }
}

// Answers until 0.9 of the gain at 8 reads is published, if `in_flight` tickets are answered in
// random order, each under the policy of its issue.
struct Flight {
  double answers = 0, lag = 0;
};
Flight flight(size_t in_flight, uint32_t episodes, uint64_t seed) {
  v1::Experiment experiment = experimentOf(
      "{totalBudget: 8}",
      "{learner: additive, episodesPerUpdate: " + std::to_string(episodes) + "}", "{}", seed);
  experiment.mutable_spec()->mutable_task()->set_confirm_questions(200'000);
  Learning run(experiment, planted, seed);
  std::mt19937_64 random(seed * 77 + 1);
  v1::AggregatorState state = run.state();
  std::vector<std::pair<uint64_t, v1::PolicySnapshot>> flying;
  std::vector<v1::EpisodeResult> got;
  uint64_t ticket = 0, results = 0;
  double lag = 0;
  while (results < 10'000 &&
         shareOfGain(publishedSchedule(experiment.spec(), state.policy(), 8), 8) < 0.9) {
    while (flying.size() < in_flight) flying.emplace_back(ticket++, state.policy());
    auto& next = flying[random() % flying.size()];
    got.push_back(run.episode(next.second, next.first));
    lag += static_cast<double>(state.policy().version() - next.second.version());
    results += 1;
    next = std::move(flying.back());
    flying.pop_back();
    if (got.size() < episodes) continue;
    state = applyUpdate(experiment, state, got).state;
    got.clear();
  }
  return {16.0 * static_cast<double>(results), lag / static_cast<double>(results)};
}

TEST(Publication, BearsManyTicketsInFlight) {
  struct Case {
    size_t in_flight;
    uint32_t episodes;
    uint64_t seeds;
  };
  std::vector<Case> cases = {{50, 10, 3}};
  if (std::getenv("ALLOT_PUBLICATION_RUNS") != nullptr) {
    cases = {{1, 10, 10}, {10, 10, 10}, {50, 10, 10}, {200, 10, 10}, {200, 50, 10}, {1000, 10, 4}};
  }
  for (const auto& [in_flight, episodes, seeds] : cases) {
    std::vector<double> answers;
    double lag = 0;
    for (uint64_t seed = 1; seed <= seeds; ++seed) {
      const Flight flown = flight(in_flight, episodes, seed);
      answers.push_back(flown.answers);
      lag += flown.lag / static_cast<double>(seeds);
    }
    std::sort(answers.begin(), answers.end());
    const double median = answers[answers.size() / 2];
    std::printf("%zu in flight, %u an update: mean lag %.1f, 0.9 after %.0f answers\n", in_flight,
                episodes, lag, median);
    EXPECT_LT(median, in_flight <= 50 ? 12'000 : 160'000);
  }
}

// A claim says what its evidence was, and its bounds only narrow.
TEST(Publication, AClaimKeepsItsEvidence) {
  v1::Experiment experiment = experimentOf("{totalBudget: 8}", "{learner: additive}");
  experiment.mutable_spec()->mutable_task()->set_confirm_questions(4096);
  Learning run(experiment, planted, 1);
  v1::Claim before;
  int claims = 0;
  for (int u = 0; u < 40; ++u) {
    run.update();
    const v1::BudgetPolicy& budget = run.state().policy().frontier().budgets(0);
    EXPECT_EQ(budget.beats_uniform(), budget.has_claim());
    if (!budget.has_claim()) continue;
    const v1::Claim& claim = budget.claim();
    EXPECT_GT(claim.low(), 0);
    EXPECT_LE(claim.low(), claim.high());
    EXPECT_EQ(claim.error(), errorOf(claim.confirmation()));
    if (claim.confirmation() == before.confirmation()) {
      EXPECT_GE(claim.low(), before.low());
      EXPECT_LE(claim.high(), before.high());
      EXPECT_GE(claim.questions(), before.questions());
      EXPECT_EQ(claim.version(), before.version());
    } else {
      ++claims;
    }
    before = claim;
  }
  EXPECT_GT(claims, 0);
}

}  // namespace
}  // namespace allot
