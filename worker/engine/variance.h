#pragma once
// Variance of an attention output, as the SANTA paper's Appendix N takes it: by replicates, and by
// the closed forms of independent and of stratified draws. Pure functions, any thread.
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "allot/kernels/method.h"

namespace allot {

// Outputs of one width and how far they are from their mean. Differences are taken to the first
// output, so that equal ones have no variance at all.
class Spread {
 public:
  void add(std::span<const float> out);  // of the same width each time
  // sum over r of |out_r - mean|^2 / (R - 1), which is unbiased for tr Cov; R >= 2 outputs.
  double variance() const;

 private:
  std::vector<float> first_;
  std::vector<double> sum_;  // of differences to the first
  double squares_ = 0;
  uint64_t count_ = 0;
};

// The value row of a key, [width]; valid until the next one is asked for.
using ValueOf = std::function<const float*(size_t key)>;

// Whether closedFormVariance() knows the method.
bool hasClosedForm(const kernels::MethodOptions& method);

// tr Cov of a head's output at this budget, of keys with these exact scores, [keys]:
//  - santa: tr Sigma / S, with Sigma the covariance of a value drawn from the softmax;
//  - s2anta-strat: sum over m of tr Sigma_m / S^2, with Sigma_m that of the stratum [m/S, (m+1)/S)
//    of the softmax's distribution function, keys in their order.
// 0 where nothing is drawn: a budget of 0, or of all keys and more where that is exact attention
// (kernels::exactFromAllKeys). Nothing for other methods, which have no closed form.
std::optional<double> closedFormVariance(const kernels::MethodOptions& method,
                                         std::span<const float> scores, const ValueOf& value,
                                         size_t width, uint32_t budget);

}  // namespace allot
