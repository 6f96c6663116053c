#pragma once
// From scores to unnormalised softmax weights, as floats and as integers. Private to kernels/cpu.
// Pure functions, any thread.
#include <cstdint>

namespace allot::kernels {

// Returns n, rounded up to a multiple of kBlock, so that vectors need no tail.
int paddedLength(int n);

// Adds bias, unless it is null, to scores[first..n). Writes -inf from the start of first's block to
// `first`, and from n to the padded length. Returns false if a score was not finite, or is +inf or
// NaN with its bias.
bool finishScores(float* scores, int n, const float* bias, int first = 0);

// Computes exp_weights_j = exp(s_j - top) over the padded length. Returns top, the largest score,
// or 0 if every score is -inf.
// Requires: padded_length is above 0.
float exponentials(const float* scores, int padded_length, float* exp_weights);

// Returns the sum of all weights, in a fixed order.
double expWeightTotal(const float* exp_weights, int padded_length);

// Computes weights_j = round(exp_weights_j * 2^30) and block_weights, their sums over kBlock keys.
// Returns the total, at most 2^61.
uint64_t integerWeights(const float* exp_weights, int padded_length, uint32_t* weights,
                        uint64_t* block_weights);

}  // namespace allot::kernels
