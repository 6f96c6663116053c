// Learners by total budgets: the allotment against all schedules, and whole runs in worlds whose
// best schedule is known.
#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <random>
#include <set>

#include "core/learning/additive.h"
#include "core/learning/learning_checks.h"
#include "core/learning/policy.h"
#include "core/learning/replay.h"
#include "core/learning/schedule.h"
#include "core/learning/update.h"
#include "core/spec/spec.h"
#include "tests/core/planted_run.h"

namespace allot {
namespace {

// ---- The allotment ----

TEST(Allotment, IsTheBestOfAllSchedules) {
  std::mt19937 random(1);
  for (int round = 0; round < 50; ++round) {
    const uint32_t layers = 1 + random() % 5, least = random() % 3;
    const uint32_t total = layers * least + random() % 9;
    std::vector<std::vector<double>> worth(layers, std::vector<double>(total + 1));
    for (auto& of_layer : worth) {
      for (double& value : of_layer) value = std::uniform_real_distribution(-1.0, 1.0)(random);
    }
    const auto sum = [&](const SampleSchedule& schedule) {
      double all = 0;
      for (uint32_t l = 0; l < layers; ++l) all += worth[l][schedule[l]];
      return all;
    };
    double most = -1e9;
    SampleSchedule begun;
    eachSchedule(layers, total, least, &begun,
                 [&](const SampleSchedule& schedule) { most = std::max(most, sum(schedule)); });
    const SampleSchedule best = bestSchedule(
        layers, total, least, [&](uint32_t layer, uint32_t draws) { return worth[layer][draws]; });
    EXPECT_EQ(std::accumulate(best.begin(), best.end(), 0u), total);
    EXPECT_GE(*std::min_element(best.begin(), best.end()), least);
    EXPECT_NEAR(sum(best), most, 1e-12);
  }
}

TEST(Allotment, LargeTotalsGoInSteps) {
  const auto value = [](uint32_t layer, uint32_t draws) {
    return (layer + 1.0) * std::log1p(static_cast<double>(draws));
  };
  const SampleSchedule best = bestSchedule(28, 5000, 3, value);
  EXPECT_EQ(std::accumulate(best.begin(), best.end(), 0u), 5000u);
  EXPECT_EQ(*std::min_element(best.begin(), best.end()), best[0]);
  // By (layer + 1) log(1 + n) the shares go with layer + 1: within a step or two.
  EXPECT_NEAR(best[27], 5000 * 28 / 406.0, 2 * allotmentStep(5000));
}

// ---- Whole runs ----

TEST(Learners, AdditiveFindsThePlantedScheduleIn2400Answers) {
  int found = 0;
  for (uint64_t seed = 0; seed < 10; ++seed) {
    Learning run(experimentOf("{totalBudget: 8}", "{learner: additive}", "{}", seed + 1), planted,
                 seed);
    run.updates(15);
    found += shareOfGain(run.published(8), 8) > 0.85 ? 1 : 0;
  }
  EXPECT_GE(found, 9);  // of 10
}

TEST(Learners, ReinforceFromQuestionSetsFindsItToo) {
  Learning run(
      experimentOf("{totalBudget: 8}", "{learner: reinforce, learningRate: 0.15, maxUpdates: 300}",
                   "{episodesPerQuestionSet: 10}"),
      planted, 1);
  run.updates(150);
  EXPECT_GT(shareOfGain(run.published(8), 8), 0.8);
}

TEST(Learners, OneRunLearnsAFrontier) {
  Learning run(experimentOf("{totalBudgets: [8, 16, 64]}", "{episodesPerUpdate: 30}"), planted, 5);
  run.updates(40);
  EXPECT_GT(shareOfGain(run.published(8), 8), 0.85);
  EXPECT_GT(probability(planted(run.published(16)), 0),
            probability(planted(uniformSchedule(16, 8)), 0));
  for (const uint32_t total : {8u, 16u, 64u}) {
    const SampleSchedule schedule = run.published(total);
    EXPECT_EQ(std::accumulate(schedule.begin(), schedule.end(), 0u), total);
  }
  // Between two of them the nearer one's shares.
  EXPECT_EQ(run.published(20), run.state().policy().frontier().budgets(1).beats_uniform()
                                   ? scaledSchedule(run.published(16), 20)
                                   : uniformSchedule(20, 8));
}

// One query head in each of two layers matters, and wants two reads or more; with schedules of
// layers, reads for it are reads for its three neighbours too.
TEST(Learners, HeadsAreLearnedWhereTheyDiffer) {
  const World heads = [](const SampleSchedule& n) {
    const size_t each = n.size() / 4;
    const auto read = [&](size_t layer, size_t head) {
      const uint32_t reads = n[layer * each + (each == 1 ? 0 : head)];
      return reads == 0 ? 0.0 : 2.0 - 1.6 / reads;
    };
    return -1.5 + read(1, 2) + read(3, 0);
  };
  const ModelShape shape(4, 2, 4);
  int above = 0;
  for (uint64_t seed = 0; seed < 5; ++seed) {
    const auto of = [&](const char* granularity) {
      Learning run(experimentOf(std::string("{totalBudget: 2, granularity: ") + granularity + "}",
                                "{learner: additive}", "{}", seed + 1),
                   heads, seed, shape);
      run.updates(40);
      const SampleSchedule published = run.published(2);
      const uint32_t sum = std::accumulate(published.begin(), published.end(), 0u);
      EXPECT_EQ(sum, 2u * published.size() / 4);
      EXPECT_TRUE(checkBudgets(run.experiment(), shape,
                               originOf(run.experiment(), "01J", run.state()).state()));
      return probability(heads(published), 0);
    };
    above += of("head") > of("layer") + 0.1 ? 1 : 0;
  }
  EXPECT_GE(above, 4);  // of 5
}

// ---- Checked and computed again ----

TEST(Learners, EveryUpdateIsComputedAgain) {
  const std::pair<const char*, const char*> kinds[] = {{"additive", "layer"},
                                                       {"reinforce", "layer"},
                                                       {"reinforce", "head"},
                                                       {"additive", "kv-head"}};
  for (const auto& [learner, granularity] : kinds) {
    Learning run(
        experimentOf(std::string("{totalBudgets: [8, 32], granularity: ") + granularity + "}",
                     std::string("{learner: ") + learner + ", episodesPerUpdate: 12}"),
        planted, 7, ModelShape(8, 2, 4));
    run.updates(12);
    const auto refusal = [&](const std::vector<v1::IterationRecord>& records) {
      return replayRefusal({run.experiment(), run.initial(), false}, records, run.state());
    };
    EXPECT_EQ(refusal(run.records()), "");
    auto changed = run.records();
    v1::EpisodeResult& result = *changed[3].mutable_results(5);
    auto& samples = *result.mutable_schedule();
    const auto most = std::max_element(samples.begin(), samples.end());
    --*most;
    ++*(most == samples.begin() ? most + 1 : samples.begin());
    EXPECT_THAT(refusal(changed), HasSubstr("the schedule is not that of its ticket"));
    changed = run.records();
    auto& learned = *changed[5].mutable_policy()->mutable_frontier()->mutable_budgets(0);
    learned.set_beats_uniform(!learned.beats_uniform());
    EXPECT_THAT(refusal(changed), HasSubstr("its record differs from what it computes to"));
  }
}

TEST(Learners, EpisodesOfASetShareTheirQuestions) {
  const v1::Experiment experiment = experimentOf("{totalBudgets: [8, 16, 32]}", "{}");
  const v1::Spec& spec = experiment.spec();
  EXPECT_EQ(spec.rollout().episodes_per_question_set(), 12u);  // four each, of 10 an update
  EXPECT_EQ(spec.policy().total_budget(), 8u);
  const v1::PolicySnapshot policy = initialState(experiment, 8).policy();
  std::set<std::vector<uint32_t>> sets;
  std::vector<int> of_budget(3);
  for (uint64_t ticket = 0; ticket < 120; ++ticket) {
    ++of_budget[placeOf(spec, ticket).budget];
    const auto questions = questionsOf(spec, policy, ticket);
    if (freshPairOf(spec, policy, ticket)) continue;
    EXPECT_EQ(questions, questionsOf(spec, policy, ticket / 12 * 12 + 11));
    sets.insert(questions);
  }
  EXPECT_EQ(sets.size(), 10u);
  EXPECT_EQ(of_budget, (std::vector<int>{40, 40, 40}));
}

// Heads, a least in each, several budgets: what is published and proposed are schedules, a state is
// one that is taken from outside, and another run's is not.
TEST(Learners, StatesOfReinforceAreCheckedAndForked) {
  const ModelShape shape(4, 2, 4);
  const World heads = [](const SampleSchedule& n) { return 0.3 * n[6] - 1; };
  const auto experiment = experimentOf("{totalBudgets: [6, 20], granularity: head, minPerLayer: 1}",
                                       "{learner: reinforce}");
  Learning run(experiment, heads, 1, shape);
  run.updates(25);
  const v1::AggregatorState good = originOf(run.experiment(), "01J", run.state()).state();
  ASSERT_TRUE(checkBudgets(experiment, shape, good));
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
  EXPECT_TRUE(refused([](auto* s) { s->mutable_learners(0)->set_second_moment(2, -1); }));
  Learning fork(experiment, heads, 2, shape, good);
  fork.updates(5);
  EXPECT_TRUE(checkBudgets(experiment, shape, originOf(experiment, "01J", fork.state()).state()));
  EXPECT_EQ(replayRefusal({fork.experiment(), fork.initial(), false}, fork.records(), fork.state()),
            "");
  for (const uint32_t total : {6u, 20u}) {
    const SampleSchedule schedule = run.published(total);
    EXPECT_EQ(std::accumulate(schedule.begin(), schedule.end(), 0u), total * schedule.size() / 4);
    EXPECT_GE(*std::min_element(schedule.begin(), schedule.end()), 1u);
  }
}

TEST(Learners, AForkBeginsWhereItsOriginWas) {
  Learning run(experimentOf("{totalBudget: 8}", "{learner: additive}"), planted, 2);
  run.updates(15);
  const v1::Origin origin = originOf(run.experiment(), "01J", run.state());
  const v1::AggregatorState fork = initialState(run.experiment(), 8, &origin);
  EXPECT_TRUE(checkBudgets(run.experiment(), 8, fork));
  EXPECT_EQ(fork.learners(0).evidence_size(), run.state().learners(0).evidence_size());
  EXPECT_EQ(fork.confirmations(), run.state().confirmations());
  EXPECT_EQ(fork.learners(0).precision_size(), run.state().learners(0).precision_size());
  EXPECT_TRUE(fork.learners(0).sets().empty());
  // It may be of another experiment, and claims nothing until it has asked questions of its own.
  EXPECT_TRUE(run.state().policy().frontier().budgets(0).has_claim());
  EXPECT_EQ(publishedSchedule(run.experiment().spec(), fork.policy(), 8), uniformSchedule(8, 8));
  EXPECT_FALSE(fork.policy().frontier().budgets(0).has_claim());
}

TEST(Learners, AStateOfOthersIsRefused) {
  const v1::Experiment experiment = experimentOf("{totalBudget: 8}", "{learner: additive}");
  const v1::AggregatorState good = initialState(experiment, 8);
  EXPECT_TRUE(checkBudgets(experiment, 8, good));
  EXPECT_FALSE(checkBudgets(experiment, 9, good));
  EXPECT_FALSE(checkBudgets(experimentOf("{totalBudget: 16}", "{learner: additive}"), 8, good));
  EXPECT_FALSE(checkBudgets(experimentOf("{totalBudget: 8}", "{learner: reinforce}"), 8, good));
  const auto refused = [&](const std::function<void(v1::AggregatorState*)>& change) {
    v1::AggregatorState bad = good;
    change(&bad);
    return !checkBudgets(experiment, 8, bad);
  };
  EXPECT_TRUE(refused([](auto* s) { s->mutable_learners(0)->set_precision(3, NAN); }));
  EXPECT_TRUE(refused([](auto* s) { s->mutable_learners(0)->add_evidence(0); }));
  const auto budget = [](v1::AggregatorState* s) {
    return s->mutable_policy()->mutable_frontier()->mutable_budgets(0);
  };
  EXPECT_TRUE(refused([&](auto* s) { budget(s)->add_learned(0); }));
  EXPECT_TRUE(refused([&](auto* s) { budget(s)->mutable_proposals(1)->set_samples(0, 90); }));
  EXPECT_TRUE(
      refused([](auto* s) { s->mutable_policy()->mutable_frontier()->set_entries_per_layer(2); }));
  EXPECT_TRUE(refused([&](auto* s) {
    for (uint32_t& draws : *budget(s)->mutable_learned()) draws = 0;
  }));
  EXPECT_TRUE(refused([](auto* s) { s->mutable_learners(0)->add_sets(); }));
  // A schedule of the budget that nothing has confirmed, and no claim beside it.
  EXPECT_TRUE(refused([&](auto* s) {
    budget(s)->set_learned(0, 0);
    budget(s)->set_learned(1, 2);
  }));
  EXPECT_TRUE(refused([](auto* s) { s->clear_learners(); }));
}

TEST(Learners, SettingsThatCannotBeAreASentence) {
  const auto refusal = [](const std::string& policy, const std::string& update,
                          const std::string& rollout) {
    return messageOf(parseExperiment(
        "apiVersion: allot.dev/v1alpha1\nkind: Experiment\nmetadata: {name: x}\nspec:\n"
        "  model: {path: m}\n  task: {tasks: [niah]}\n  policy: " +
            policy + "\n  rollout: " + rollout + "\n  update: " + update + "\n",
        "x.yaml"));
  };
  EXPECT_THAT(refusal("{}", "{}", "{}"),
              HasSubstr("spec.policy.totalBudget: required, but missing"));
  EXPECT_THAT(refusal("{totalBudget: 4, totalBudgets: [8, 16]}", "{}", "{}"),
              HasSubstr("4 is not one of spec.policy.totalBudgets; leave it out"));
  EXPECT_THAT(refusal("{totalBudgets: [8, 16]}", "{}", "{episodesPerQuestionSet: 9}"),
              HasSubstr("9 episodes are not the same number, 4 or more, for each of 2 total "
                        "budgets"));
  EXPECT_EQ(refusal("{totalBudgets: [8, 16]}", "{}", "{episodesPerQuestionSet: 10}"), "");
  EXPECT_THAT(refusal("{totalBudget: 8, granularity: head}", "{learner: reinforce}",
                      "{episodesPerQuestionSet: 1}"),
              HasSubstr("spec.rollout.episodesPerQuestionSet: 1 is for schedules of layers, and "
                        "spec.policy.granularity is head: leave it out"));
  const v1::Experiment heads =
      experimentOf("{totalBudget: 8, granularity: head}", "{learner: reinforce}");
  EXPECT_EQ(heads.spec().rollout().episodes_per_question_set(), 10u);
  const auto fits = [](const char* granularity, const char* learner, ModelShape shape) {
    const auto experiment =
        experimentOf(std::string("{totalBudget: 64, granularity: ") + granularity + "}",
                     std::string("{learner: ") + learner + "}");
    return messageOf(checkAgainstModel(experiment, shape));
  };
  EXPECT_EQ(fits("head", "additive", {8, 2, 8}), "");
  EXPECT_EQ(fits("kv-head", "additive", {28, 2, 12}), "");
  EXPECT_EQ(fits("head", "additive", {28, 2, 12}),
            "spec.policy.granularity: head: the model's 28 layers have 336 of them, and "
            "spec.update.learner additive models at most 128; choose a coarser one, or another "
            "learner");
  EXPECT_EQ(fits("head", "reinforce", {28, 2, 12}), "");
  EXPECT_THAT(fits("head", "reinforce", {80, 8, 64}),
              HasSubstr("5120 of them, and a schedule has at most 1024 entries"));
  // Keys of gradients choose the learner that has them.
  EXPECT_EQ(learnerOf(experimentOf("{totalBudget: 8}", "{learningRate: 0.1}").spec().update()),
            Learner::kReinforce);
  EXPECT_EQ(learnerOf(experimentOf("{totalBudget: 8}", "{}").spec().update()), Learner::kAdditive);
}

}  // namespace
}  // namespace allot
