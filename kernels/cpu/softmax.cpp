#include "kernels/cpu/softmax.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/methods.h"
#include "kernels/cpu/simd.h"

namespace allot::kernels {
namespace {

// Adds in one order, whatever the instruction set.
ALLOT_CLONES
double blockSum(const float* exp_weights) {
  return static_cast<double>(sum(load(exp_weights) + load(exp_weights + 16)));
}

}  // namespace

int paddedLength(int n) { return (n + kBlock - 1) / kBlock * kBlock; }

ALLOT_CLONES
bool finishScores(float* scores, int n, const float* bias, int first) {
  int bad = 0;
  for (int j = first; j < n; ++j) {
    bad |= !(std::fabs(scores[j]) <= std::numeric_limits<float>::max());
  }
  if (bias) {
    for (int j = first; j < n; ++j) {
      scores[j] += bias[j];
      // -inf masks; a sum of two finite numbers may overflow the other way.
      bad |= !(scores[j] <= std::numeric_limits<float>::max());
    }
  }
  std::fill(scores + first / kBlock * kBlock, scores + first,
            -std::numeric_limits<float>::infinity());
  std::fill(scores + n, scores + paddedLength(n), -std::numeric_limits<float>::infinity());
  return !bad;
}

ALLOT_CLONES
float exponentials(const float* scores, int padded_length, float* exp_weights) {
  // Sixteen maxima side by side: one alone waits for itself at every key.
  Float16 tops = load(scores);
  for (int j = 16; j < padded_length; j += 16) {
    const Float16 next = load(scores + j);
    tops = next > tops ? next : tops;
  }
  float top = tops[0];
  for (int i = 1; i < 16; ++i) top = tops[i] > top ? tops[i] : top;
  const float shift = std::isfinite(top) ? top : 0.0f;
  for (int j = 0; j < padded_length; j += 16) at(exp_weights + j) = expOf(load(scores + j) - shift);
  return shift;
}

double expWeightTotal(const float* exp_weights, int padded_length) {
  double total = 0;
  for (int j = 0; j < padded_length; j += kBlock) total += blockSum(exp_weights + j);
  return total;
}

ALLOT_CLONES
uint64_t integerWeights(const float* exp_weights, int padded_length, uint32_t* weights,
                        uint64_t* block_weights) {
  uint64_t total = 0;
  for (int block = 0; block < padded_length / kBlock; ++block) {
    uint64_t sum = 0;
    for (int j = block * kBlock; j < (block + 1) * kBlock; ++j) {
      // Floats from 2^23 on are whole numbers; adding a half would only round them again.
      const float scaled = exp_weights[j] * 0x1p30f;
      const auto weight = static_cast<int32_t>(scaled < 0x1p22f ? scaled + 0.5f : scaled);
      weights[j] = static_cast<uint32_t>(weight);
      sum += static_cast<uint64_t>(weight);
    }
    block_weights[block] = sum;
    total += sum;
  }
  return total;
}

}  // namespace allot::kernels
