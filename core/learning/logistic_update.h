#pragma once
// One step of a Bayesian logistic regression: the posterior after a batch of answers, by Laplace's
// approximation (Rasmussen and Williams, Gaussian Processes for Machine Learning, algorithm 3.1).
//
// The log-odds of a right answer in observation i are x_i . w + a_g. The weights w are normal. The
// level a_g of the observation's group is normal around 0, independent of all else, and integrated
// out. The mode is found in the space of observations: with n observations each of the few Newton
// steps costs about n^3 / 6 multiplications, whatever the number of weights.
//
// Pure, any thread; the same bits everywhere (core/learning/exact_math.h).
#include <cstddef>
#include <cstdint>
#include <vector>

namespace allot {

// An observation.
struct GradedAnswers {
  std::vector<double> x;  // [weights]
  double right = 0;       // sum of the scores of `answers`, 0 to `answers`; need not be whole
  double answers = 0;
  uint64_t group = 0;
};

// A normal distribution of the weights.
struct Gaussian {
  std::vector<double> precision;  // lower triangle, row by row
  std::vector<double> evidence;   // precision times mean
};
// Replaces the prior in `posterior` by the posterior. level_variance: of each a_g. Does nothing if
// the prior has no Cholesky factor or the result would not be finite.
void learnAnswers(const std::vector<GradedAnswers>& batch, double level_variance,
                  Gaussian* posterior);

// ---- Symmetric and lower triangular matrices as their lower triangles, row by row ----
// Sums run in a fixed order.

// Returns the index of an element, column <= row; inTriangle(n, 0) is the size for n rows.
constexpr size_t inTriangle(size_t row, size_t column) { return row * (row + 1) / 2 + column; }

// Returns L with A = L L^T for A of n rows. Empty if a diagonal element of L would not be finite
// and above 0. Costs n^3 / 6 multiplications.
std::vector<double> factorOf(std::vector<double> a, size_t n);

// Replace y by L^-1 y, and by L^-T y. Each costs n^2 / 2 multiplications.
void solveLower(const std::vector<double>& root, std::vector<double>* y);
void solveUpper(const std::vector<double>& root, std::vector<double>* y);

}  // namespace allot
