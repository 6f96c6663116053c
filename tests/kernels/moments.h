#pragma once
// Means and variances of estimators: closed forms in double precision, and what replicates show.
// o = sum_j a_j v_j, a from the integer weights that draws are made from.
#include <functional>
#include <vector>

#include "tests/kernels/fixture.h"

namespace allot::kernels {

// Keys' probabilities and values of one head, in double precision.
struct Population {
  std::vector<double> a;  // sums to 1 (for a tile too: then it is the tile's own)
  std::vector<const float*> values;
  int dim = 0;

  // Of row 0, head `head` of a cache.
  static Population of(Cache* cache, int head = 0);
  // Keys first..last-1 with their weight taken out: the share that it was of the whole.
  Population part(int first, int last, double* share) const;
  std::vector<double> mean() const;
};

// Mean and variance of each coordinate of an estimator's output.
struct Moments {
  std::vector<double> mean, variance;
  double trace() const;
};

// S independent draws: variance (sum_j a_j v_j^2 - o^2) / S.
Moments independentMoments(const Population& p, int samples);
// One draw in each of S strata: (1 / S^2) times the sum of their variances.
Moments stratifiedMoments(const Population& p, int samples);
// Systematic sampling: the output is constant in u but for n jumps, so that the integral over u is
// a sum over the intervals between them.
Moments systematicMoments(const Population& p, int samples);
// Systematic sampling of max(1, floor(S / T)) draws in each tile: sum_t W_t^2 Var_t.
Moments tiledMoments(const Population& p, int samples, int tile);
// The SANTA paper's Algorithm 4 with Algorithm 5: S_t draws in tile t by largest remainders, each
// tile with an offset of its own. Mean sum_t S_t / S o_t, variance sum_t (S_t / S)^2 Var_t, o_t the
// tile's own mean.
Moments largestRemainderMoments(const Population& p, int samples, int tile);

// Outputs of `count` replicates, [count, dim], the first of them number `first`.
using Replicates = std::function<std::vector<float>(uint32_t first, int count)>;
// decodeAttention on row 0, head 0: replicates are sequences.
Replicates decoded(Cache* cache, const MethodOptions& method, uint32_t budget);

// What replicates 0..count-1 show, beside the exact output.
struct Sample {
  int count = 0;
  std::vector<double> mean, variance;
  double squared_error = 0;           // mean of |out - o|^2
  double squared_error_variance = 0;  // of one replicate's
};
Sample sample(const Replicates& replicates, int count, const std::vector<double>& exact);

// The largest |z| over coordinates of the mean against `mean`, with these variances. Coordinates
// that vary by less than float32 rounding are left out.
double largestZ(const Sample& sample, const std::vector<double>& mean,
                const std::vector<double>& variance);
// z of the mean squared error against a closed-form trace.
double traceZ(const Sample& sample, double trace);

// Least squares slope of log y on log x.
double logSlope(const std::vector<double>& x, const std::vector<double>& y);

}  // namespace allot::kernels
