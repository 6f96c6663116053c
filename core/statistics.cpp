#include "core/statistics.h"

#include <algorithm>
#include <cmath>

namespace allot {

Interval wilson95(double sum, size_t n) {
  if (n == 0) return {0, 1};
  constexpr double z = 1.959963984540054;
  const double count = static_cast<double>(n);
  const double p = sum / count;
  const double shrink = 1 + z * z / count;
  const double centre = (p + z * z / (2 * count)) / shrink;
  const double half = z * std::sqrt(p * (1 - p) / count + z * z / (4 * count * count)) / shrink;
  return {std::max(0.0, centre - half), std::min(1.0, centre + half)};
}

}  // namespace allot
