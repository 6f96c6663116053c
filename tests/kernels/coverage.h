#pragma once
// How often a method's output is further from exact attention than epsilon, over many random
// streams of one state.
#include <cmath>
#include <vector>

#include "tests/kernels/fixture.h"

namespace allot::kernels {

// What one query sees: n keys and values [n, head_dim] of one KV head.
struct AttentionState {
  int head_dim = 0;
  float scale = 1;
  std::vector<float> query, keys, values;
  int n() const { return static_cast<int>(keys.size()) / head_dim; }
};

// [head_dim], in double.
inline std::vector<double> exactOutput(const AttentionState& state) {
  std::vector<double> scores(state.n()), out(state.head_dim, 0.0);
  for (int j = 0; j < state.n(); ++j) {
    for (int d = 0; d < state.head_dim; ++d) {
      scores[j] += double{state.query[d]} * state.keys[j * state.head_dim + d] * state.scale;
    }
  }
  const double top = *std::max_element(scores.begin(), scores.end());
  double total = 0;
  for (int j = 0; j < state.n(); ++j) {
    const double e = std::exp(scores[j] - top);
    total += e;
    for (int d = 0; d < state.head_dim; ++d) out[d] += e * state.values[j * state.head_dim + d];
  }
  for (double& x : out) x /= total;
  return out;
}

struct Coverage {
  int runs = 0;
  int exceeded = 0;       // |out - o| > epsilon |o|
  double rows_read = 0;   // distinct value rows, mean share of n
  double root_error = 0;  // sqrt(mean squared relative error)
  double exceedance() const { return static_cast<double>(exceeded) / runs; }
};

// P(X > count) for X binomial.
inline double binomialAbove(int count, int runs, double p) {
  double above = 0;
  for (int k = count + 1; k <= runs; ++k) {
    above += std::exp(std::lgamma(runs + 1.0) - std::lgamma(k + 1.0) - std::lgamma(runs - k + 1.0) +
                      k * std::log(p) + (runs - k) * std::log1p(-p));
  }
  return above;
}

// The state as a paged cache that `runs` rows share, each with its own random stream.
class SharedState {
 public:
  SharedState(const AttentionState& state, int runs)
      : cache_({.lengths = {state.n()}, .head_dim = state.head_dim}), exact_(exactOutput(state)) {
    cache_.keys[0] = state.keys;
    cache_.values[0] = state.values;
    cache_.queries = state.query;
    cache_.scale = state.scale;
    cache_.layer = 0;
    cache_.budgets = {1};
    cache_.steps = {7};
    cache_.write();
    cache_.repeatFirstRow(runs, 0);
  }

  // Errors relative to |o|, [runs].
  std::vector<double> errors(const MethodOptions& options, uint64_t seed,
                             std::vector<HeadStatistics>* statistics) const {
    DecodeInputs in = cache_.inputs();
    in.seed = seed;
    const Cache::Result run = cache_.run(options, in);
    *statistics = run.heads;
    std::vector<double> errors;
    for (auto out = run.out.begin(); out != run.out.end(); out += cache_.shape.head_dim) {
      double gap = 0, norm = 0;
      for (size_t d = 0; d < exact_.size(); ++d) {
        gap += std::pow(out[static_cast<std::ptrdiff_t>(d)] - exact_[d], 2);
        norm += exact_[d] * exact_[d];
      }
      errors.push_back(std::sqrt(gap / norm));
    }
    return errors;
  }

  // `epsilon` may differ from the one that the method works with.
  Coverage coverage(const MethodOptions& options, double epsilon, uint64_t seed) const {
    Coverage result;
    std::vector<HeadStatistics> statistics;
    for (const double error : errors(options, seed, &statistics)) {
      ++result.runs;
      result.exceeded += error > epsilon ? 1 : 0;
      result.root_error += error * error;
    }
    for (const HeadStatistics& one : statistics) result.rows_read += one.unique_rows;
    result.rows_read /= static_cast<double>(statistics.size()) * cache_.lengths[0];
    result.root_error = std::sqrt(result.root_error / std::max(result.runs, 1));
    return result;
  }

 private:
  Cache cache_;
  std::vector<double> exact_;
};

}  // namespace allot::kernels
