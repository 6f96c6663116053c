#pragma once
// Symmetric and lower triangular matrices as their lower triangles, row by row.
//
// Sums run in a fixed order, so that they come out the same everywhere
// (core/learning/exact_math.h). Pure; any thread.
#include <cstddef>
#include <vector>

namespace allot {

constexpr size_t inTriangle(size_t row, size_t column) { return row * (row + 1) / 2 + column; }

// L of A = L L^T, A of n rows; empty: there is none whose diagonal is finite and above 0. n^3 / 6
// multiplications.
std::vector<double> factorOf(std::vector<double> a, size_t n);

// L^-1 y and L^-T y, into y. n^2 / 2 multiplications.
void solveLower(const std::vector<double>& root, std::vector<double>* y);
void solveUpper(const std::vector<double>& root, std::vector<double>* y);

}  // namespace allot
