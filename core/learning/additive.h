#pragma once
// The additive surrogate: what each layer's reads are worth, as a Bayesian logistic regression.
//
// The log-odds of a right answer under schedule n, on question set g, are modelled as
//   a_g + sum_l w_l . (f(n_l) - f(u_l)),   f(n) = (1, 1/n, log n), and 0 at n = 0,
// with u the uniform schedule, so that everything is relative to it. That is how draws go wrong:
// the error of a layer's output has a variance as 1/n, errors of layers add up, and an answer turns
// wrong where their sum reaches what the model can bear. The sum is over the entries of a schedule:
// layers, or heads of layers. Weights are normal around what makes uniform the best schedule, those
// of a layer's heads correlated, so that what is learned of one is in part learned of the others;
// so is a_g, which every episode of a set shares and which takes the questions' difficulty out: a
// level that all sets have in common, and a little of its own, which is found anew with each
// update. An update's episodes are learned
// from together (core/learning/logistic_update.h).
//
// Arithmetic is IEEE additions, multiplications, divisions, square roots and core's own logarithm,
// in a fixed order, so that updates compute to the same bits everywhere. Pure; any thread.
#include <cstdint>
#include <vector>

#include "allot/v1/experiment.pb.h"
#include "allot/v1/policy.pb.h"
#include "core/learning/schedule.h"
#include "core/random_stream.h"

namespace allot {

// What the regression is about; the same for a budget's whole run.
struct AdditiveProblem {
  uint32_t entries = 0;  // of a schedule
  uint32_t total = 0;    // their sum
  uint32_t min_per_layer = 0;
  uint32_t questions = 0;  // answers whose mean is a reward
  uint32_t per_layer = 1;  // entries of a layer

  // Weights, three an entry; behind them the level that sets have in common.
  uint32_t features() const { return 3 * entries + 1; }
  SampleSchedule uniform() const {
    return uniformSchedule(total / per_layer, entries / per_layer, per_layer);
  }
};

// The problem at one total budget of an experiment.
AdditiveProblem problemOf(const v1::Spec& spec, uint32_t layers, uint32_t per_layer,
                          uint32_t total_budget);

// The prior.
void beginAdditive(const AdditiveProblem& problem, v1::LearnerState* state);

// An episode of an update at this budget.
struct GradedEpisode {
  SampleSchedule schedule;
  double reward = 0;  // between 0 and 1
  uint64_t set = 0;   // episodes of one answered the same questions
};
// Updates the posterior by the episodes of one update.
void observe(const AdditiveProblem& problem, const std::vector<GradedEpisode>& episodes,
             v1::LearnerState* state);

// The posterior at one moment. Made once an update; costs features^3 / 6 multiplications.
class AdditivePosterior {
 public:
  AdditivePosterior(const AdditiveProblem& problem, const v1::LearnerState& state);

  // The best schedule by the mean of the weights.
  SampleSchedule best() const;
  // The best one by weights drawn from the posterior (Thompson).
  SampleSchedule drawn(RandomStream* random) const;

  // A schedule's log-odds above uniform's, and their standard deviation.
  struct Estimate {
    double mean = 0;
    double deviation = 0;
  };
  Estimate above(const SampleSchedule& schedule) const;
  // The same above `other`'s.
  Estimate difference(const SampleSchedule& schedule, const SampleSchedule& other) const;
  // What `draws` reads in each entry of a layer are worth, above none in any.
  Estimate worth(uint32_t layer, uint32_t draws) const;
  // Reward above the uniform schedule's of what has so much higher log-odds.
  double inReward(double log_odds) const;

 private:
  SampleSchedule bestBy(const std::vector<double>& weights) const;
  Estimate along(const std::vector<double>& direction) const;

  AdditiveProblem problem_;
  std::vector<double> root_;     // lower triangle L, row by row: precision = L L^T
  std::vector<double> weights_;  // mean
  std::vector<double> logs_;     // of the numbers of draws that schedules are made of
};

}  // namespace allot
