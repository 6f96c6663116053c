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
#include <cstdint>
#include <vector>

namespace allot {

struct GradedAnswers {
  std::vector<double> x;  // as long as the weights
  double right = 0;       // of `answers`; shares of a score count as they are, 0 to `answers`
  double answers = 0;
  uint64_t group = 0;
};

// The normal posterior of the weights: `precision` as a lower triangle (core/learning/triangle.h)
// and `evidence`, precision times mean. One that has no Cholesky factor, or with the batch would be
// beyond what a double holds, stays as it is.
struct Gaussian {
  std::vector<double> precision;
  std::vector<double> evidence;
};
void learnAnswers(const std::vector<GradedAnswers>& batch, double level_variance,
                  Gaussian* posterior);

}  // namespace allot
