#pragma once
// From scores to masses, in floating point and as integers. Private to kernels/cpu.
#include <cstdint>

namespace allot::kernels {

// Room for n scores: up to a multiple of a block, so that vectors never need a tail.
int paddedLength(int n);

// Adds bias (may be null) to scores[first..n) and fills with -inf down to a whole block and up to
// the padded length. False if a score was not finite before, or is +inf now.
bool finishScores(float* scores, int n, const float* bias, int first = 0);

// mass_j = exp(s_j - top) over the padded length; returns top, 0 if every score is -inf.
float exponentials(const float* scores, int padded_length, float* exp_weights);

// The sum of all masses, in a fixed order.
double expWeightTotal(const float* exp_weights, int padded_length);

// weights_j = round(mass_j * 2^30), block_weights their sums over kBlock keys; returns the total,
// below 2^63 for any n that an int can hold.
uint64_t integerWeights(const float* exp_weights, int padded_length, uint32_t* weights,
                        uint64_t* block_weights);

}  // namespace allot::kernels
