#pragma once
// Computes the variance of an attention output as in the SANTA paper's Appendix N: from replicates,
// and from the closed forms of independent and of stratified draws. No shared state: any thread.
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "allot/kernels/method.h"

namespace allot {

// The variance of outputs of one width. Differences are taken to the first output, so that equal
// outputs have a variance of exactly 0.
class Spread {
 public:
  // Adds an output.
  // Requires: all outputs have the same width.
  void add(std::span<const float> out);
  // Returns sum over r of |out_r - mean|^2 / (R - 1), which is unbiased for tr Cov.
  // Requires: R >= 2 outputs.
  double variance() const;

 private:
  std::vector<float> first_;
  std::vector<double> sum_;  // of differences to the first
  double squares_ = 0;
  uint64_t count_ = 0;
};

// Returns the value row of a key, [width], valid until the next call.
using ValueOf = std::function<const float*(size_t key)>;

// Returns true if closedFormVariance() supports the method.
bool hasClosedForm(const kernels::MethodOptions& method);

// Returns tr Cov of a head's output at this budget. scores: [keys], exact.
//  - santa: tr Sigma / S, with Sigma the covariance of a value drawn from the softmax;
//  - s2anta-strat: sum over m of tr Sigma_m / S^2. Sigma_m belongs to the stratum [m/S, (m+1)/S) of
//    the softmax's distribution function, keys in their order.
// Returns 0 if nothing is drawn: at a budget of 0, or of all keys and more if that is exact
// attention (kernels::exactFromAllKeys). Returns nothing for other methods and for draws=group.
// Requires: scores is not empty.
std::optional<double> closedFormVariance(const kernels::MethodOptions& method,
                                         std::span<const float> scores, const ValueOf& value,
                                         size_t width, uint32_t budget);

}  // namespace allot
