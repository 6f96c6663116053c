#include "core/learning/exact_math.h"

#include <array>
#include <cfloat>
#include <cmath>
#include <limits>

namespace allot {
namespace {

static_assert(FLT_EVAL_METHOD == 0, "doubles must be rounded to doubles at every step");
static_assert(std::numeric_limits<double>::is_iec559);

// ln 2 in two parts (Cody and Waite, "Software Manual for the Elementary Functions", 1980): the
// first has 42 bits, so that its product with any exponent of a double is exact.
constexpr double kLn2High = 0x1.62e42fefa38p-1;
constexpr double kLn2Low = 0x1.ef35793c7673p-45;
constexpr double kLn2Inverse = 0x1.71547652b82fep+0;
constexpr double kSqrtHalf = 0x1.6a09e667f3bcdp-1;
// Above the first e^x is infinite, below the second 0.
constexpr double kHighestExponent = 710;
constexpr double kLowestExponent = -746;

constexpr int kExpTerms = 14;
constexpr int kAtanhTerms = 13;

// 1 / n!. Every factorial is exact: 14! < 2^53.
constexpr auto kInverseFactorials = [] {
  std::array<double, kExpTerms + 1> inverse{1};
  double factorial = 1;
  for (int n = 1; n <= kExpTerms; ++n) inverse[n] = 1 / (factorial *= n);
  return inverse;
}();

// Returns (e^r - 1 - r) / r^2 for |r| <= ln(2) / 2, by Taylor's series up to r^14 / 14!. The rest
// of the series is below 2^-60 of e^r.
double expTail(double r) {
  double sum = kInverseFactorials[kExpTerms];
  for (int n = kExpTerms - 1; n >= 2; --n) sum = sum * r + kInverseFactorials[n];
  return sum;
}

// Returns 2 (z / 3 + z^2 / 5 + ...) with z = s^2 <= 0.0295, which is 2 atanh(s) / s - 2. The rest
// of the series is below 2^-70.
double atanhTail(double z) {
  double sum = 0;
  for (int n = kAtanhTerms; n >= 1; --n) sum = sum * z + 2.0 / (2 * n + 1);
  return sum * z;
}

}  // namespace

// x = k ln 2 + r, |r| <= ln(2) / 2; e^x = 2^k e^r.
double exactExp(double x) {
  if (std::isnan(x)) return x;
  if (x > kHighestExponent) return std::numeric_limits<double>::infinity();
  if (x < kLowestExponent) return 0;
  const double k = std::floor(x * kLn2Inverse + 0.5);
  const double high = x - k * kLn2High;  // exact
  const double low = k * kLn2Low;
  const double r = high - low;
  const double lost = (high - r) - low;  // rounding error of r
  return std::ldexp(1 + (r + (r * r * expTail(r) + lost)), static_cast<int>(k));
}

// x = 2^k m with m in [sqrt(1/2), sqrt(2)); f = m - 1 is exact. With s = f / (2 + f),
// log m = 2 atanh(s), and as 2s = f - s f, the largest term needs no rounding.
double exactLog(double x) {
  if (x == 0) return -std::numeric_limits<double>::infinity();
  if (!(x > 0)) return std::numeric_limits<double>::quiet_NaN();
  if (std::isinf(x)) return x;
  int exponent = 0;
  double m = std::frexp(x, &exponent);
  if (m < kSqrtHalf) {
    m *= 2;
    --exponent;
  }
  const double f = m - 1;
  const double s = f / (2 + f);
  const double k = exponent;
  return k * kLn2High + (f - (s * (f - atanhTail(s * s)) - k * kLn2Low));
}

double exactLogistic(double x) {
  const double e = exactExp(-std::abs(x));
  return (x < 0 ? e : 1) / (1 + e);
}

double exactPower(double base, uint64_t exponent) {
  double power = 1;
  for (; exponent > 0; exponent >>= 1, base *= base) {
    if (exponent & 1) power *= base;
  }
  return power;
}

}  // namespace allot
