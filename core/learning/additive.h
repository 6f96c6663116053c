#pragma once
// The additive surrogate: a Bayesian logistic regression of what each layer's reads are worth.
//
// The log-odds of a right answer under schedule n, on question set g, are modelled as
//   a_g + sum_l w_l . (f(n_l) - f(u_l)),   f(n) = (1, 1/n, log n), and 0 at n = 0,
// with u the uniform schedule. The sum is over the entries of a schedule. The variance of a layer's
// output error falls as 1/n, errors of layers add up, and an answer turns wrong once their sum is
// more than the model can bear. The prior of the weights w is normal around values under which no
// schedule is better than uniform. In the prior, weights of one layer's heads are correlated: what
// is learned of one head is in part learned of the others. The level a_g, the difficulty of a set's
// questions, is the sum of a level that all sets share and a small one of the set. Episodes of an
// update are learned from in batches of at most 400 (core/learning/logistic_update.h). Each batch
// infers its sets' own levels anew.
//
// With prices (core/learning/priced_schedule.h) an entry that reads all rows has another weight
// instead of 1/n and log n, and the schedules are those within the price. If no uniform schedule is
// within it, u is the schedule that the prior's mean has for the best.
//
// Where layers are measured (core/learning/measured.h), the prior is another one. The log-odds that
// a schedule loses are an unknown multiple of a measured loss, plus deviations of each layer. That
// loss is the log-probability that the layers are measured to lose in an answer. The multiple has a
// mean and a deviation of 1, which answers soon correct. The deviations are half as large as
// without a measurement.
//
// Arithmetic is IEEE operations and core/learning/exact_math.h in a fixed order, so that updates
// compute to the same bits everywhere. Pure; any thread.
#include <cstdint>
#include <vector>

#include "allot/v1/experiment.pb.h"
#include "allot/v1/policy.pb.h"
#include "core/learning/measured.h"
#include "core/learning/priced_schedule.h"
#include "core/random_stream.h"

namespace allot {

// The regression at one total budget. Constant in a run.
struct AdditiveProblem {
  uint32_t entries = 0;        // of a schedule
  uint32_t total = 0;          // sum of a schedule's entries
  uint32_t min_per_layer = 0;  // least draws of an entry
  uint32_t questions = 0;      // answers whose mean is a reward
  uint32_t per_layer = 1;      // entries of a layer
  PriceList prices = {};       // not empty: `total` is what a schedule may cost, in units

  uint32_t weightsOfEntry() const { return prices.empty() ? 3 : 4; }
  // Returns the number of weights: those of each entry, then the level that all sets share.
  uint32_t features() const { return weightsOfEntry() * entries + 1; }
  // Returns u: the uniform schedule or, if none is within the price, the prior's best.
  SampleSchedule reference() const;
  // Returns true if the entries sum to the total, or are actions within the price.
  bool isSchedule(const SampleSchedule& schedule) const;
};

// Returns the problem at `total_budget` draws per head or, with prices, per cent.
// Requires: layers > 0, per_layer > 0, layers * minPerLayer <= total_budget; with prices, per_layer
// is 1 and the budget buys layers * leastPrice(prices).
AdditiveProblem problemOf(const v1::Spec& spec, uint32_t layers, uint32_t per_layer,
                          uint32_t total_budget, const PriceList& prices = {});

// Writes the prior into the state's precision and evidence.
void beginAdditive(const AdditiveProblem& problem, v1::LearnerState* state);

// Replaces the prior by that of the measured losses, if there are any.
// Requires: the state has its prior alone; the losses are of the problem's layers.
void beginMeasured(const AdditiveProblem& problem, const LayerLosses& losses,
                   v1::LearnerState* state);

// An episode of an update at the problem's total budget.
struct GradedEpisode {
  SampleSchedule schedule;
  double reward = 0;  // clamped to 0..1
  uint64_t set = 0;   // number of its question set
};
// Updates the state's precision and evidence by the episodes of one update.
void observe(const AdditiveProblem& problem, const std::vector<GradedEpisode>& episodes,
             v1::LearnerState* state);

// The posterior of the weights at one moment. Construction costs features^3 / 6 multiplications. If
// the state's precision has no Cholesky factor, the weights are 0 with a variance of 1.
class AdditivePosterior {
 public:
  AdditivePosterior(const AdditiveProblem& problem, const v1::LearnerState& state);

  // Returns the best schedule under the mean of the weights.
  SampleSchedule best() const;
  // Returns the best schedule under weights that are drawn from the posterior (Thompson sampling).
  SampleSchedule drawn(RandomStream* random) const;

  // A difference, of log-odds unless a comment says otherwise: mean and standard deviation.
  struct Estimate {
    double mean = 0;
    double deviation = 0;
  };
  // Returns the log-odds of a schedule less those of the uniform one.
  Estimate above(const SampleSchedule& schedule) const;
  // Returns the log-odds of `schedule` less those of `other`.
  Estimate difference(const SampleSchedule& schedule, const SampleSchedule& other) const;
  // Returns the log-odds with `draws` in each entry of a layer less those with none there.
  Estimate worth(uint32_t layer, uint32_t draws) const;
  // Returns the reward of a schedule that is `log_odds` above the uniform one, less the uniform
  // one's reward.
  double inReward(double log_odds) const;

 private:
  SampleSchedule bestBy(const std::vector<double>& weights) const;
  Estimate along(const std::vector<double>& direction) const;

  AdditiveProblem problem_;
  std::vector<double> root_;     // lower triangle L, row by row: precision = L L^T
  std::vector<double> weights_;  // mean
  std::vector<double> logs_;     // of each number of draws that the dynamic programme asks for
  SampleSchedule reference_;
};

}  // namespace allot
