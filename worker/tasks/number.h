#pragma once
// Finds numbers in a model's text, computes their values and compares them. Pure functions, any
// thread.
//
// A number is digits with thousands commas (1,000), a decimal part, an exponent (1e3), a fraction
// (3/4) or a mixed number (1 1/2). A currency sign before it or a percent sign behind it does not
// change its value: 50% is 50, as in the PRM800K grader. Digits attached to a letter, to _ or to ^
// (H2O, x_1, 10^3) are no number.
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace allot {

struct TextNumber {
  double value = 0;  // NaN: it has the form of a number and no value (1/0, 1e999)
  size_t begin = 0;  // byte positions in the text, sign included
  size_t end = 0;
};

// Returns the first number at or after `from`.
std::optional<TextNumber> findNumber(std::string_view text, size_t from = 0);
std::vector<TextNumber> findNumbers(std::string_view text);

// Returns true if both are equal up to the rounding of doubles; false for NaN.
bool sameNumber(double a, double b);

// Simplifies LaTeX math: removes \text{..}, \$, \%, spacing and {,}; \frac{a}{b} becomes a/b.
std::string plainMath(std::string_view latex);

}  // namespace allot
