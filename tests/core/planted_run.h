#pragma once
// Whole runs of a learner in a world whose best schedule is known: workers answer by a formula,
// some updates late and not in order. Everything is seeded. One thread.

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "core/learning/measured.h"
#include "core/learning/policy.h"
#include "core/learning/replay.h"
#include "core/learning/update.h"
#include "core/spec/spec.h"
#include "tests/tiny_experiment.h"

namespace allot {

inline void eachSchedule(uint32_t layers, uint32_t total, uint32_t least, SampleSchedule* schedule,
                         const std::function<void(const SampleSchedule&)>& visit) {
  if (schedule->size() + 1 == layers) {
    schedule->push_back(total);
    visit(*schedule);
    schedule->pop_back();
    return;
  }
  const auto after = static_cast<uint32_t>(layers - schedule->size() - 1);
  for (uint32_t n = least; n + after * least <= total; ++n) {
    schedule->push_back(n);
    eachSchedule(layers, total - n, least, schedule, visit);
    schedule->pop_back();
  }
}

inline v1::Experiment experimentOf(const std::string& policy, const std::string& update,
                                   const std::string& rollout = "{}", uint64_t seed = 1) {
  return valueOf(parseExperiment(
      "apiVersion: allot.dev/v1alpha1\nkind: Experiment\nmetadata: {name: learners}\nspec:\n"
      "  seed: " +
          std::to_string(seed) +
          "\n  model: {path: m}\n  task: {tasks: [niah]}\n"
          "  policy: " +
          policy + "\n  rollout: " + rollout + "\n  update: " + update + "\n",
      "learners.yaml"));
}

// What a schedule is worth: the probability of a right answer to a question of mean difficulty.
using World = std::function<double(const SampleSchedule&)>;

// Two layers matter, and they want more than one read; a third does harm unless it has many.
inline double planted(const SampleSchedule& n) {
  const auto read = [](uint32_t reads, double most, double missed) {
    return reads == 0 ? 0.0 : most - missed / reads;
  };
  return -1.2 + read(n[1], 2.2, 1.6) + read(n[4], 2.0, 1.2) + read(n[5], 0.4, 1.0);
}

inline double probability(double utility, double difficulty) {
  return 1 / (1 + std::exp(difficulty - utility));
}

// A measurement in which each answer, of `steps` tokens, loses ofAnswer(layer, reads) in all.
inline v1::Measurement evenMeasurement(
    uint32_t layers, const std::function<double(uint32_t layer, uint32_t reads)>& ofAnswer,
    uint64_t questions = 64, uint64_t steps = 10) {
  v1::Measurement measurement;
  for (const uint32_t reads : kMeasuredReads) {
    for (uint32_t layer = 0; layer < layers; ++layer) {
      v1::LayerLoss& loss = *measurement.add_losses();
      loss.set_layer(layer);
      loss.set_reads(reads);
      loss.set_questions(questions);
      loss.set_steps(steps * questions);
      const double lost = ofAnswer(layer, reads);
      loss.set_divergence(static_cast<double>(questions) * lost);
      loss.set_divergence_squared(static_cast<double>(questions) * lost * lost);
    }
  }
  return measurement;
}

// A measurement of layers that lose loss(layer, reads), each loss with an error of 30 %.
// Misleading: with the layers in a random order.
inline v1::Measurement measurementOfLayers(
    uint32_t layers, const std::function<double(uint32_t layer, uint32_t reads)>& loss,
    uint64_t seed, bool misleading = false) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> error(0, 0.3);
  std::vector<uint32_t> places(layers);
  std::iota(places.begin(), places.end(), 0);
  if (misleading) std::shuffle(places.begin(), places.end(), random);
  return evenMeasurement(layers, [&](uint32_t layer, uint32_t reads) {
    return 10 * loss(places[layer], reads) * std::exp(error(random));
  });
}

// What the layers of the planted world lose.
inline double plantedLoss(uint32_t layer, uint32_t reads) {
  const auto loss = [&](double most, double missed) { return reads == 0 ? most : missed / reads; };
  return layer == 1   ? loss(2.2, 1.6)
         : layer == 4 ? loss(2.0, 1.2)
         : layer == 5 ? loss(0.4, 1.0)
                      : 1e-4;
}

// Takes an initial state's measurement for that of an origin, so that it is the first candidate and
// no prior.
inline void withoutPrior(v1::AggregatorState* state) { state->set_optimizer_steps(1); }

// A run whose workers answer by `world`, some updates late and not in order.
class Learning {
 public:
  Learning(v1::Experiment experiment, World world, uint64_t seed, const ModelShape& shape = 8)
      : Learning(experiment, std::move(world), seed, shape, initialState(experiment, shape)) {}
  // A fork: from another run's state.
  Learning(v1::Experiment experiment, World world, uint64_t seed, const ModelShape&,
           v1::AggregatorState initial)
      : experiment_(std::move(experiment)),
        world_(std::move(world)),
        random_(seed),
        initial_(std::move(initial)),
        state_(initial_) {
    policies_.push_back(state_.policy());
  }

  v1::EpisodeResult episode(const v1::PolicySnapshot& policy, uint64_t ticket) {
    const v1::Spec& spec = experiment_.spec();
    v1::EpisodeResult result;
    result.set_result_id("w-" + std::to_string(ticket));
    result.set_ticket(ticket);
    result.set_policy_version(policy.version());
    result.set_policy_sha256(policyDigest(policy));
    const Proposed proposed = scheduleOf(spec, policy, ticket);
    *result.mutable_schedule() = {proposed.schedule.begin(), proposed.schedule.end()};
    result.set_behaviour_log_prob(proposed.log_probability);
    double sum = 0;
    for (const uint32_t question : questionsOf(spec, policy, ticket)) {
      const double difficulty = std::sin(question * 12.9898) * 1.5;
      const double p = probability(world_(proposed.schedule), difficulty);
      v1::QuestionScore& score = *result.add_scores();
      score.set_question(question);
      score.set_score(std::bernoulli_distribution(p)(random_) ? 1 : 0);
      sum += score.score();
    }
    result.set_reward(sum / result.scores_size());
    return result;
  }

  // With so many results more than episodesPerUpdate.
  void update(uint32_t beyond = 0) {
    std::vector<v1::EpisodeResult> results;
    const uint32_t count = experiment_.spec().update().episodes_per_update() + beyond;
    for (uint32_t i = 0; i < count; ++i) {
      const size_t late = std::min<size_t>(random_() % 3, policies_.size() - 1);
      results.push_back(episode(policies_[policies_.size() - 1 - late], ticket_++));
    }
    // The last of one update may come with the next.
    std::swap(results.back(), results.front());
    if (held_)
      std::swap(*held_, results[1]);
    else
      held_ = results[1], results[1] = episode(policies_.back(), ticket_++);
    UpdateOutcome outcome = applyUpdate(experiment_, state_, results);
    outcome.record.set_committed_unix_ms(1000 + records_.size());
    records_.push_back(outcome.record);
    state_ = std::move(outcome.state);
    policies_.push_back(state_.policy());
  }

  Learning& updates(int count) {
    for (int i = 0; i < count; ++i) update();
    return *this;
  }

  const v1::Experiment& experiment() const { return experiment_; }
  const v1::AggregatorState& state() const { return state_; }
  const v1::AggregatorState& initial() const { return initial_; }
  std::vector<v1::IterationRecord>& records() { return records_; }
  SampleSchedule published(uint32_t total) const {
    return publishedSchedule(experiment_.spec(), state_.policy(), total);
  }

 private:
  v1::Experiment experiment_;
  World world_;
  std::mt19937_64 random_;
  v1::AggregatorState initial_;
  v1::AggregatorState state_;
  std::vector<v1::PolicySnapshot> policies_;
  std::vector<v1::IterationRecord> records_;
  std::optional<v1::EpisodeResult> held_;
  uint64_t ticket_ = 0;
};

// The best schedule of the planted world at 8 reads, and what it is worth.
inline std::pair<double, SampleSchedule> bestOfPlanted(uint32_t total) {
  std::pair<double, SampleSchedule> best{-1e9, {}};
  SampleSchedule begun;
  eachSchedule(8, total, 0, &begun, [&](const SampleSchedule& schedule) {
    best = std::max(best, std::pair(planted(schedule), schedule));
  });
  return best;
}

// Of the gain that the best schedule has over uniform, in probabilities.
inline double shareOfGain(const SampleSchedule& schedule, uint32_t total) {
  const double uniform = probability(planted(uniformSchedule(total, 8)), 0);
  const double best = probability(bestOfPlanted(total).first, 0);
  return (probability(planted(schedule), 0) - uniform) / (best - uniform);
}

}  // namespace allot
