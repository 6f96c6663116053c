#pragma once
// Finds numbers in a model's text, computes their values and compares them. Pure functions, any
// thread.
//
// A number is digits with thousands commas (1,000), a decimal part, an exponent (1e3), a fraction
// (3/4) or a mixed number (1 1/2). A currency sign before it or a percent sign behind it does not
// change its value: 50% is 50, as in the PRM800K grader. Digits directly behind a letter, _ or ^
// (H2O, x_1) are no number. A number directly before ^ (10^3) has no value.
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace allot {

struct TextNumber {
  double value = 0;  // NaN: it has the form of a number and no value (1/0, 1e999, 10^3)
  size_t begin = 0;  // byte positions in the text, with signs of minus, currency and percent
  size_t end = 0;
};

// Returns the first number whose digits begin at or after `from`.
std::optional<TextNumber> findNumber(std::string_view text, size_t from = 0);
std::vector<TextNumber> findNumbers(std::string_view text);

// Returns true if a and b differ by at most 1e-12, times the larger magnitude if that is above 1.
// Returns false for NaN.
bool sameNumber(double a, double b);

// Simplifies LaTeX math: \frac{a}{b} becomes a/b, {,} a comma, \$ and \% the bare sign. Removes
// braces, commands of fonts (\text{x} becomes x) and narrow spaces; wide ones become blanks.
std::string plainMath(std::string_view latex);

}  // namespace allot
