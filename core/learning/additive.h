#pragma once
// The additive surrogate: what each layer's reads are worth, as a Bayesian linear regression.
//
// The reward of a schedule n on question set g is modelled as
//   r = a_g + sum_l w_l . (f(n_l) - f(u_l)) + noise,   f(n) = (1, 1/n, log n), and 0 at n = 0,
// with u the uniform schedule, so that everything is relative to it. The sum is over the entries of
// a schedule: layers, or heads of layers. Weights are normal around what makes uniform the best
// schedule, those of a layer's heads correlated, so that what is learned of one is in part learned
// of the others; so is a_g, which every episode of a set shares and which takes the questions'
// difficulty out. The noise is that of graded answers; an episode weighs by its reward, since one
// that gets nothing right hides what the rest of its schedule is worth. Sums over a set enter the
// posterior as they come: the order of results, and in which update they arrive, change nothing but
// rounding.
//
// Arithmetic is IEEE additions, multiplications, divisions, square roots and core's own logarithm,
// in a fixed order, so that updates compute to the same bits everywhere. Pure; any thread.
#include <cstdint>
#include <vector>

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

  // Weights, three an entry.
  uint32_t features() const { return 3 * entries; }
  SampleSchedule uniform() const {
    return uniformSchedule(total / per_layer, entries / per_layer, per_layer);
  }
};

// The prior, by the rules that the state's trial goes by (core/learning/trial.h).
void beginAdditive(const AdditiveProblem& problem, v1::LearnerState* state);

// One more episode of `set`, which has not counted it yet; the sums of features grow by it.
void observe(const AdditiveProblem& problem, const SampleSchedule& schedule, double reward,
             v1::QuestionSet* set, v1::LearnerState* state);

// The posterior at one moment. Made once an update; costs features^3 / 6 multiplications.
class AdditivePosterior {
 public:
  AdditivePosterior(const AdditiveProblem& problem, const v1::LearnerState& state);

  // The best schedule by the mean of the weights.
  SampleSchedule best() const;
  // The best one by weights drawn from the posterior (Thompson), in models of more than eight
  // layers nearer to its mean: of that many weights some are far off in every draw.
  SampleSchedule drawn(RandomStream* random) const;

  // A schedule's expected reward above uniform's, and its standard deviation.
  struct Estimate {
    double mean = 0;
    double deviation = 0;
  };
  Estimate above(const SampleSchedule& schedule) const;
  // The same above `other`'s.
  Estimate difference(const SampleSchedule& schedule, const SampleSchedule& other) const;
  // What `draws` reads in each entry of a layer are worth, above none in any.
  Estimate worth(uint32_t layer, uint32_t draws) const;

 private:
  SampleSchedule bestBy(const std::vector<double>& weights) const;
  Estimate along(const std::vector<double>& direction) const;

  AdditiveProblem problem_;
  std::vector<double> root_;     // lower triangle L, row by row: precision = L L^T
  std::vector<double> weights_;  // mean
  double spread_;                // of drawn weights, of the posterior's
  std::vector<double> logs_;     // of the numbers of draws that schedules are made of
};

}  // namespace allot
