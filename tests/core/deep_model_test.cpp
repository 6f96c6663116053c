// Learners on a model of 28 layers: whole runs against a response in which layers differ, reads
// saturate, and pairs of layers help or hinder one another.
#include <array>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "core/learning/additive.h"
#include "core/learning/schedule.h"
#include "tests/core/planted_run.h"

namespace allot {
namespace {

constexpr size_t kDeepLayers = 28;
constexpr uint32_t kDeepTotal = 56;  // two reads a layer

// n reads of layer l give most_l - missed_l / n, none give nothing. Pairs that are both read give a
// little more or less.
class DeepWorld {
 public:
  explicit DeepWorld(uint64_t seed) {
    std::mt19937_64 random(seed);
    std::uniform_real_distribution<double> gives(0, 0.6);
    std::uniform_real_distribution<double> share(0.3, 0.9);
    std::normal_distribution<double> helps(0, 0.1);
    for (size_t l = 0; l < kDeepLayers; ++l) {
      most_[l] = gives(random);
      missed_[l] = most_[l] * share(random);
    }
    for (double& pair : pairs_) pair = helps(random);
    const SampleSchedule uniform = uniformSchedule(kDeepTotal, kDeepLayers);
    level_ = -0.5 - sum(uniform);  // uniform answers 38 of 100
    climb();
  }

  double operator()(const SampleSchedule& n) const { return level_ + sum(n); }
  double loss(uint32_t layer, uint32_t reads) const {
    return reads == 0 ? most_[layer] : missed_[layer] / reads;
  }
  // Of what the best schedule that was found gains over uniform.
  double share(const SampleSchedule& n) const {
    const double uniform = probability(-0.5, 0);
    return (probability((*this)(n), 0) - uniform) / (probability((*this)(best_), 0) - uniform);
  }

 private:
  // From the best schedule of single layers, one read at a time to another layer.
  void climb() {
    best_ = bestSchedule(kDeepLayers, kDeepTotal, 0,
                         [&](uint32_t layer, uint32_t draws) { return worth(layer, draws); });
    for (bool better = true; better;) {
      better = false;
      for (size_t from = 0; from < kDeepLayers; ++from) {
        for (size_t to = 0; to < kDeepLayers; ++to) {
          if (to == from || best_[from] == 0) continue;
          SampleSchedule moved = best_;
          --moved[from], ++moved[to];
          if (!(sum(moved) > sum(best_))) continue;
          best_ = moved;
          better = true;
        }
      }
    }
  }
  double worth(size_t layer, uint32_t draws) const {
    return draws == 0 ? 0 : most_[layer] - missed_[layer] / draws;
  }
  double sum(const SampleSchedule& n) const {
    double all = 0;
    for (size_t l = 0; l < kDeepLayers; ++l) {
      all += worth(l, n[l]);
      const size_t other = (l + 9) % kDeepLayers;
      if (n[l] > 0 && n[other] > 0) all += pairs_[l];
    }
    return all;
  }

  std::array<double, kDeepLayers> most_{}, missed_{}, pairs_{};
  double level_ = 0;
  SampleSchedule best_;
};

// In 400 episodes the default learner's surrogate has a best schedule with more of the gain than
// the policy of REINFORCE, an episode's questions its own, has in 1500. What is published waits for
// its proof: the whole gain is 12 points here. Twelve worlds; everything is seeded.
TEST(DeepModel, TheDefaultLearnerNeedsAQuarterOfTheEpisodes) {
  constexpr int kWorlds = 12;
  double additive = 0, reinforce = 0, published = 0;
  for (uint64_t seed = 1; seed <= kWorlds; ++seed) {
    const DeepWorld world(seed);
    const auto runOf = [&](const char* update, const char* rollout) {
      v1::Experiment experiment = experimentOf("{totalBudget: 56}", update, rollout, seed);
      experiment.mutable_spec()->mutable_task()->set_confirm_questions(16384);
      return Learning(experiment, world, seed, kDeepLayers);
    };
    const auto share = [&](const SampleSchedule& n) { return world.share(n) / kWorlds; };
    Learning of_additive = runOf("{maxUpdates: 200}", "{}");
    of_additive.updates(40);
    const AdditivePosterior posterior({kDeepLayers, kDeepTotal, 0, 16},
                                      of_additive.state().learners(0));
    additive += share(posterior.best());
    published += share(of_additive.updates(120).published(kDeepTotal));
    Learning of_gradients =
        runOf("{learner: reinforce, maxUpdates: 200}", "{episodesPerQuestionSet: 1}");
    reinforce += share(of_gradients.updates(150).published(kDeepTotal));
  }
  std::printf(
      "share of the gain: additive %.2f, reinforce %.2f; published after 1600 episodes %.2f\n",
      additive, reinforce, published);
  EXPECT_GT(additive, reinforce);
  EXPECT_GT(additive, 0.4);
  EXPECT_GT(published, 0.6);
}

// With layers that are measured with an error of 30 %. The surrogate's best schedule after 6,400
// answers, which is better than without the prior on the same seeds, and what is published after
// 25,600. ALLOT_PUBLICATION_RUNS replaces the number of worlds, and prints other kinds, too.
TEST(DeepModel, AMeasurementIsAPriorOfManyLayers) {
  const char* given = std::getenv("ALLOT_PUBLICATION_RUNS");
  const auto worlds = static_cast<uint64_t>(given == nullptr ? 8 : std::atoi(given));
  double of_prior = 0;
  for (const int kind :
       given == nullptr ? std::vector<int>{0, 2} : std::vector<int>{0, 1, 2, 3, 4}) {
    const bool has_prior = kind < 2, misleading = kind == 1 || kind == 3, has_none = kind == 4;
    std::array<double, 2> best{}, published{};
    for (uint64_t seed = 1; seed <= worlds; ++seed) {
      const DeepWorld world(seed);
      v1::Experiment experiment =
          experimentOf("{totalBudget: 56}", "{maxUpdates: 200}", "{}", seed);
      experiment.mutable_spec()->mutable_task()->set_confirm_questions(16384);
      v1::AggregatorState state = initialState(experiment, kDeepLayers);
      const auto loss = [&](uint32_t layer, uint32_t reads) { return world.loss(layer, reads); };
      if (!has_none) {
        *state.mutable_measurement() = measurementOfLayers(kDeepLayers, loss, seed, misleading);
      }
      if (!has_prior) withoutPrior(&state);
      Learning run(experiment, world, seed, kDeepLayers, state);
      for (size_t at = 0; at < 2; ++at) {
        run.updates(at == 0 ? 40 : 120);
        const AdditivePosterior posterior({kDeepLayers, kDeepTotal, 0, 16},
                                          run.state().learners(0));
        best[at] += world.share(posterior.best()) / static_cast<double>(worlds);
        published[at] += world.share(run.published(kDeepTotal)) / static_cast<double>(worlds);
      }
    }
    constexpr const char* kNames[] = {"prior", "misleading prior", "candidate",
                                      "misleading candidate", "not measured"};
    std::printf("28 layers, %s: surrogate's best %.2f, then %.2f; published %.2f, then %.2f\n",
                kNames[kind], best[0], best[1], published[0], published[1]);
    if (kind == 0) {
      of_prior = best[0];
      EXPECT_GT(best[0], 0.5);
      EXPECT_GT(published[1], 0.7);
    }
    if (kind == 2) {
      EXPECT_GT(of_prior, best[0]);
    }
  }
}

}  // namespace
}  // namespace allot
