#pragma once
// One step of a Bayesian logistic regression: the posterior after a batch of answers, by Laplace's
// approximation (Rasmussen and Williams, Gaussian Processes for Machine Learning, algorithm 3.1).
//
// The log-odds of a right answer in observation i are x_i . w + a_g, where w is normal and a_g, the
// level of the observation's group, is normal around 0 and independent of all else; it is
// integrated out. The mode is found in the space of observations: of n observations and d weights a
// batch costs d^3 / 6 multiplications and each of its few Newton steps n^3 / 6.
//
// Pure, any thread; the same bits everywhere (core/learning/exact_math.h).
#include <cstddef>
#include <cstdint>
#include <vector>

namespace allot {

struct GradedAnswers {
  std::vector<double> x;  // as long as the weights
  double right = 0;       // of `answers`; shares of a score count as they are, 0 to `answers`
  double answers = 0;
  uint64_t group = 0;
};

// The normal posterior of the weights: `precision` as a lower triangle (below)
// and `evidence`, precision times mean. One that has no Cholesky factor, or with the batch would be
// beyond what a double holds, stays as it is.
struct Gaussian {
  std::vector<double> precision;
  std::vector<double> evidence;
};
void learnAnswers(const std::vector<GradedAnswers>& batch, double level_variance,
                  Gaussian* posterior);

// ---- Symmetric and lower triangular matrices as their lower triangles, row by row ----
// Sums run in a fixed order.

constexpr size_t inTriangle(size_t row, size_t column) { return row * (row + 1) / 2 + column; }

// L of A = L L^T, A of n rows; empty: there is none whose diagonal is finite and above 0. n^3 / 6
// multiplications.
std::vector<double> factorOf(std::vector<double> a, size_t n);

// L^-1 y and L^-T y, into y. n^2 / 2 multiplications.
void solveLower(const std::vector<double>& root, std::vector<double>* y);
void solveUpper(const std::vector<double>& root, std::vector<double>* y);

}  // namespace allot
