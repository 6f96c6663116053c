#pragma once
// Numbers in what a model writes: where they are, what they are worth, when two are equal.
//
// A number is digits with thousands commas (1,000), a decimal part, an exponent (1e3), a fraction
// (3/4) or a mixed number (1 1/2); a currency sign before it and a percent sign behind it are no
// part of its value: 50% is 50, as the PRM800K grader has it. Digits that hang on a letter, on _ or
// on ^ (H2O, x_1, 10^3) are no number. Pure functions, any thread.
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace allot {

struct TextNumber {
  double value = 0;  // NaN: looks like a number and has no value (1/0, 1e999)
  size_t begin = 0;  // bytes of the text, sign included
  size_t end = 0;
};

// The first number at or after `from`.
std::optional<TextNumber> findNumber(std::string_view text, size_t from = 0);
std::vector<TextNumber> findNumbers(std::string_view text);

// Equal but for the rounding of doubles; false for NaN.
bool sameNumber(double a, double b);

// Math as LaTeX has it, made plain: \text{..}, \$, \%, spacing and {,} go, \frac{a}{b} becomes a/b.
std::string plainMath(std::string_view latex);

}  // namespace allot
