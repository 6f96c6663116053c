#pragma once
// CMA-ES: a search whose normal distribution adapts to what did well.
//
// Hansen, "The CMA Evolution Strategy: A Tutorial" (arXiv 1604.00772), with positive weights, over
// the logits of one total budget: as many dimensions as a schedule has entries. The mean is the
// policy's logits, all else is in Search. What is asked is m + s L z with C = L L^T; L stands where
// the tutorial has the symmetric root of C, as in Krause et al. 2016 (NeurIPS, "CMA-ES with optimal
// covariance update and storage complexity").
//
// Here evaluations are noisy and come late, in any number:
// - Values are rewards above the mean of the other episodes that answered the same questions, so
//   that question sets compare. Those of a point that was answered more than once are averaged.
// - A generation is learned from as soon as lambda points are answered, from all that are; weights
//   and rates are those of that many. Each point is learned from once.
// - Points of the newest kAskedVersions versions can be answered; older ones are kept while answers
//   to them wait for a generation. What comes later than that tells the search nothing. The mean
//   may have moved on since a point was asked for: its step from there is cut to the length of an
//   injected solution's (Hansen 2011, arXiv 1110.4181).
// - C is scaled to trace n, s taking the rest, and mixed with kRidge of the identity, so that it
//   keeps a factor whatever is learned; s stays within kLeastStep and kMostStep, since below the
//   one all points round to the same schedule.
// Arithmetic as in core/learning/exact_math.h. Pure; any thread.
#include <cstdint>
#include <vector>

#include "allot/v1/policy.pb.h"
#include "core/random_stream.h"

namespace allot {

inline constexpr int kAskedVersions = 4;
// Measured in the planted world of tests/core/planted_run.h, like kEvolutionStep.
inline constexpr double kFirstStep = 1.0;
inline constexpr double kLeastStep = 0.2;
inline constexpr double kMostStep = 4;
inline constexpr double kRidge = 1e-4;

using Logits = google::protobuf::RepeatedField<double>;

// lambda: the tutorial's 4 + floor(3 ln n), twice, since answers are noisy: with as many as that
// the mean wanders off where budgets are ample.
uint32_t generationSize(uint32_t dimensions);

void beginSearch(uint32_t dimensions, v1::Search* search);

// `count` points of `version`, remembered by their places. [count][dimensions]
std::vector<std::vector<double>> askPoints(uint64_t version, uint32_t count, const Logits& mean,
                                           RandomStream* random, v1::Search* search);

// An answer to the `place`th point of `version`; without effect where that is not remembered.
// `value`: the higher, the better.
void tellPoint(uint64_t version, uint32_t place, double value, uint32_t dimensions,
               v1::Search* search);

// Moves mean and distribution, if a generation is at hand. The length of the mean's step.
double learnGeneration(Logits* mean, v1::Search* search);

// Points that no version to come can have asked for (a fork counts versions anew).
void forgetAsked(v1::Search* search);

// Whether a search that came from outside is one of so many dimensions, with at most `points`
// points a version, that can be gone on with.
bool isSearchOf(uint32_t dimensions, uint32_t points, const v1::Search& search);

}  // namespace allot
