#pragma once
// How often a method's output is further from exact attention than epsilon, over many random
// streams of one state.
#include <cmath>
#include <numeric>
#include <vector>

#include "allot/kernels/decode.h"
#include "tests/kernels/key_pool.h"

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
      : pool_({.element = Element::kFloat32,
               .pages = (state.n() + 15) / 16,
               .kv_heads = 1,
               .page_size = 16,
               .head_dim = state.head_dim}),
        exact_(exactOutput(state)),
        runs_(runs),
        n_(state.n()),
        dim_(state.head_dim),
        scale_(state.scale) {
    refusal_ = pool_.append(0, n_, state.keys.data(), state.values.data());
    for (int r = 0; r < runs; ++r) {
      queries_.insert(queries_.end(), state.query.begin(), state.query.end());
      table_.insert(table_.end(), pool_.table.begin(), pool_.table.end());
    }
    lengths_.assign(runs, n_);
    budgets_.assign(runs, 1);
    steps_.assign(runs, 7);
    sequences_.resize(runs);
    std::iota(sequences_.begin(), sequences_.end(), 0u);
  }

  // Errors relative to |o|, [runs]; empty if the step was refused.
  std::vector<double> errors(const MethodOptions& options, uint64_t seed,
                             std::vector<HeadStatistics>* statistics) const {
    std::vector<float> out(static_cast<size_t>(runs_) * dim_);
    statistics->resize(runs_);
    DecodeInputs in;
    in.queries = queries_.data();
    in.page_table = table_.data();
    in.lengths = lengths_.data();
    in.budgets = budgets_.data();
    in.sequences = sequences_.data();
    in.steps = steps_.data();
    in.rows = runs_;
    in.heads = 1;
    in.max_pages = static_cast<int>(pool_.table.size());
    in.seed = seed;
    in.scale = scale_;
    DecodeWorkspace workspace;
    workspace.plan(n_, 1, dim_);
    const DecodeOutputs outputs{.out = out.data(), .head_statistics = statistics->data()};
    if (refusal_ || decodeAttention(options, pool_.kv, in, &workspace, outputs)) return {};
    std::vector<double> errors(runs_);
    for (int r = 0; r < runs_; ++r) {
      double gap = 0, norm = 0;
      for (int d = 0; d < dim_; ++d) {
        gap += std::pow(out[static_cast<size_t>(r) * dim_ + d] - exact_[d], 2);
        norm += exact_[d] * exact_[d];
      }
      errors[r] = std::sqrt(gap / norm);
    }
    return errors;
  }

  // `epsilon` may differ from the one that the method works with. runs = 0: refused.
  Coverage coverage(const MethodOptions& options, double epsilon, uint64_t seed) const {
    Coverage result;
    std::vector<HeadStatistics> statistics;
    for (const double error : errors(options, seed, &statistics)) {
      ++result.runs;
      result.exceeded += error > epsilon ? 1 : 0;
      result.root_error += error * error;
    }
    for (const HeadStatistics& one : statistics) result.rows_read += one.unique_rows;
    result.rows_read /= static_cast<double>(statistics.size()) * n_;
    result.root_error = std::sqrt(result.root_error / std::max(result.runs, 1));
    return result;
  }

 private:
  KeyPool pool_;
  std::optional<std::string> refusal_;
  std::vector<double> exact_;
  std::vector<float> queries_;
  std::vector<int32_t> table_, lengths_;
  std::vector<uint32_t> budgets_, sequences_, steps_;
  int runs_, n_, dim_;
  float scale_;
};

}  // namespace allot::kernels
