#pragma once
// The evolution strategy: the gradient of what is deployed, from antithetic noise on the logits.
//
// A version tries mu + sigma e and mu - sigma e for some e ~ N(0, I), each *rounded* to a schedule
// as the learned one is (largest remainder), so that the objective is the schedule that is
// published and not a mean over multinomial draws. With A the reward above the mean of the other
// episodes of the same questions,
//   g = 1/n sum_i A_i s_i e_i / sigma,   s_i = 1 or -1,
// estimates the gradient of the reward smoothed by that noise (Salimans et al. 2017,
// arXiv 1703.03864); the spec's optimiser takes it from there.
//
// Noise is a function of the run, the version, the budget and the pair, and is computed again where
// a result names them: nothing is stored. A result that is some versions late counts with the noise
// of its own version: it estimates the gradient at an older mean. A rounded schedule has no density
// to weigh it by, so that spec.staleness.mode truncated-is gives every result the weight 1; drop
// drops. Pure; any thread.
#include <cstdint>
#include <optional>
#include <vector>

#include "core/random_stream.h"

namespace allot {

// sigma, in logits. Measured in the planted world of tests/core/planted_run.h, at 8, 16 and 64
// reads: with .5 and .7 perturbed logits often round to one schedule, and with 1.5 what is tried is
// too far from the mean to tell of it where budgets are ample. So is the default learning rate, .2.
inline constexpr double kEvolutionStep = 1.0;

// Where the proposals of a question set that are the learner's own begin: before them are uniform
// and the trial's candidate (or what the mean rounds to, where there is none).
inline constexpr uint32_t kFirstOwnProposal = 2;

// One half of a pair.
struct NoiseOf {
  uint32_t pair = 0;
  double sign = 1;
};
// Which one a set's `proposal`th of `proposals` is; nothing: none of them. An odd one is left over.
std::optional<NoiseOf> noiseOfProposal(uint32_t proposal, uint32_t proposals);

// e of a pair. [entries]
std::vector<double> evolutionNoise(const RunStreams& streams, uint64_t version, uint32_t budget,
                                   uint32_t pair, size_t entries);

}  // namespace allot
