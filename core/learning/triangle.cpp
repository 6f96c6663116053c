#include "core/learning/triangle.h"

#include <cmath>

namespace allot {

std::vector<double> factorOf(std::vector<double> a, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j <= i; ++j) {
      double sum = a[inTriangle(i, j)];
      for (size_t k = 0; k < j; ++k) sum -= a[inTriangle(i, k)] * a[inTriangle(j, k)];
      if (i == j && !(sum > 0 && std::isfinite(sum))) return {};
      a[inTriangle(i, j)] = i == j ? std::sqrt(sum) : sum / a[inTriangle(j, j)];
    }
  }
  return a;
}

void solveLower(const std::vector<double>& root, std::vector<double>* y) {
  std::vector<double>& v = *y;
  for (size_t i = 0; i < v.size(); ++i) {
    for (size_t k = 0; k < i; ++k) v[i] -= root[inTriangle(i, k)] * v[k];
    v[i] /= root[inTriangle(i, i)];
  }
}

void solveUpper(const std::vector<double>& root, std::vector<double>* y) {
  std::vector<double>& v = *y;
  for (size_t i = v.size(); i-- > 0;) {
    for (size_t k = i + 1; k < v.size(); ++k) v[i] -= root[inTriangle(k, i)] * v[k];
    v[i] /= root[inTriangle(i, i)];
  }
}

}  // namespace allot
